//! One pass: it makes what the values ask for in libvirt, and writes a report. And the loop around it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_api::vino::values::{Accelerator, CREDENTIALS, NodeReport, NodeValues, REPORT, VALUES};
use anyhow::Context as _;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde_json::json;

use super::Paths;
use super::act::{Act, restore_pools};
use super::cores;
use super::ledger::Ledger;
use super::plan::plan;
use super::report::report;
use super::templates::Templates;
use super::there::{self, There};
use super::virsh::Virsh;
use super::wanted::{Facts, Wanted, wanted};
use crate::host::files;
use crate::operators::kit::text_of;

/// How often domains are looked at: the report gets their states, and what somebody else changed is repaired.
const LOOK: Duration = Duration::from_secs(3);
/// The cost of the bcrypt hash of Redfish's password. It is low because the hash is checked at each request.
const COST: u32 = 5;
/// Where the kernel lists cores and huge pages.
const NUMA: &str = "/sys/devices/system/node";

/// A node.
#[derive(Clone, Debug)]
pub struct Builder {
    /// libvirt.
    pub virsh: Virsh,
    /// Paths.
    pub paths: Paths,
    /// Address of the node.
    pub node_ip: String,
    /// The interface for networks that name none.
    pub interface: Option<String>,
}

/// The templates and passwords that the values name, as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Templates of users, or what is wrong with them.
    pub templates: BTreeMap<String, String>,
    /// Passwords of screens, by Secret and key.
    pub passwords: BTreeMap<(String, String), String>,
}

impl Builder {
    /// Makes what the values ask for in libvirt.
    ///
    /// # Errors
    /// libvirt or the ledger cannot be read. Then nothing was changed.
    pub fn pass(&self, values: &NodeValues, given: &Given) -> anyhow::Result<NodeReport> {
        let mut ledger = Ledger::read(&self.paths.ledger())?;
        let accelerator = self.accelerator()?;
        let mut there = self.look(&ledger, &BTreeSet::new())?;
        if restore_pools(&self.virsh, &self.paths, &ledger, &there)? {
            there = self.look(&ledger, &BTreeSet::new())?;
        }
        settle(&mut ledger, &there);
        let facts = self.facts(accelerator, &there, given)?;
        let (wanted, mut wrong, steps, there) = match Templates::read(&given.templates) {
            Ok(templates) => {
                let wanted = wanted(values, &templates, &facts, &ledger);
                let pools: BTreeSet<String> = wanted.pools.iter().map(|pool| pool.name.clone()).collect();
                // Pools that are ours were looked into already.
                let is_known = pools.iter().all(|pool| ledger.pools.contains_key(pool));
                let there = if is_known { there } else { self.look(&ledger, &pools)? };
                let plan = plan(&there, &wanted, &ledger);
                (wanted, plan.wrong, plan.steps, there)
            }
            // Nothing is removed for a template that cannot be read.
            Err(error) => (Wanted { errors: vec![error], ..Wanted::default() }, BTreeMap::new(), Vec::new(), there),
        };
        let there = if steps.is_empty() {
            there
        } else {
            fs_err::create_dir_all(&self.paths.state)?;
            Act { virsh: &self.virsh, paths: &self.paths, ledger: &mut ledger }.all(&steps, &mut wrong);
            self.look(&ledger, &BTreeSet::new())?
        };
        settle(&mut ledger, &there);
        ledger.write(&self.paths.ledger())?;
        if ledger == Ledger::default() && values.domains.is_empty() && values.networks.is_empty() {
            // The `Vino` is being deleted: the next one on this node has another server of consoles.
            files::remove(&self.paths.console_key())?;
        }
        Ok(report(&values.hash, accelerator, &there, &wanted, &ledger, &wrong))
    }

    fn look(&self, ledger: &Ledger, pools: &BTreeSet<String>) -> anyhow::Result<There> {
        let known = ledger.pools.keys().cloned().chain(pools.iter().cloned()).collect();
        there::look(&self.virsh, &known).context("asking libvirt")
    }

    fn accelerator(&self) -> anyhow::Result<Accelerator> {
        let path = self.paths.accelerator();
        let word = fs_err::read_to_string(&path).context("libvirt's container has not started yet")?;
        match word.trim() {
            "kvm" => Ok(Accelerator::Kvm),
            "tcg" => Ok(Accelerator::Tcg),
            other => anyhow::bail!("`{}` is `{other}`, expected `kvm` or `tcg`", path.display()),
        }
    }

    fn facts(&self, accelerator: Accelerator, there: &There, given: &Given) -> anyhow::Result<Facts> {
        let (numa, huge_pages) = numa(Path::new(NUMA))?;
        Ok(Facts {
            node_ip: self.node_ip.clone(),
            accelerator,
            numa,
            huge_pages,
            interface: self.interface.clone(),
            links: there.links.clone(),
            passwords: given.passwords.clone(),
        })
    }
}

/// Forgets that a change waits for a restart, once its domain is off or was started again.
fn settle(ledger: &mut Ledger, there: &There) {
    for (name, entry) in &mut ledger.domains {
        if entry.pending.is_some() && entry.pending.as_ref() != there.runs.get(name) {
            entry.pending = None;
        }
    }
}

/// Cores by NUMA node, and huge pages of 1 GiB.
fn numa(folder: &Path) -> anyhow::Result<(Vec<BTreeSet<u32>>, u32)> {
    let (mut nodes, mut pages) = (BTreeMap::new(), 0);
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(number) = name.strip_prefix("node").and_then(|number| number.parse::<u32>().ok()) else { continue };
        let list = fs_err::read_to_string(entry.path().join("cpulist"))?;
        nodes.insert(number, cores::parse(&list).map_err(anyhow::Error::msg)?);
        let huge = fs_err::read_to_string(entry.path().join("hugepages/hugepages-1048576kB/nr_hugepages"));
        pages += huge.ok().and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(0);
    }
    Ok((nodes.into_values().collect(), pages))
}

/// Where the pod runs, and to which `Vino` it belongs.
#[derive(Clone, Debug)]
pub struct Place {
    /// The node.
    pub node: String,
    /// The pod.
    pub pod: String,
    /// Its namespace.
    pub namespace: String,
    /// The `Vino`, as `namespace/name`.
    pub vino: String,
}

/// Follows the node's annotation. Ends with an error when the API server cannot be followed any more.
pub async fn follow(builder: Builder, place: Place, client: Client) -> anyhow::Result<()> {
    let config = watcher::Config::default().fields(&format!("metadata.name={}", place.node));
    let nodes = watcher(Api::<Node>::all(client.clone()), config).default_backoff().applied_objects();
    let mut nodes = pin!(nodes);
    let mut told = Told::default();
    let mut values: Option<NodeValues> = None;
    loop {
        tokio::select! {
            node = nodes.next() => match node {
                Some(Ok(node)) => values = read(&node, &place).or(values),
                Some(Err(error)) => log::warn!("watching the node: {error}"),
                None => anyhow::bail!("the watch of the node has ended"),
            },
            () = tokio::time::sleep(LOOK) => {}
        }
        let Some(values) = &values else { continue };
        if let Err(error) = turn(&builder, &place, &client, values, &mut told).await {
            log::warn!("{error:#}");
            let error = format!("{error:#}");
            tell(
                &place,
                &client,
                NodeReport { hash: values.hash.clone(), errors: vec![error], ..NodeReport::default() },
                &mut told,
            )
            .await;
        }
    }
}

/// The report that was written last, and what was read for which values.
#[derive(Default)]
struct Told {
    report: Option<NodeReport>,
    given: Option<(String, Given)>,
}

/// The values of a node, if they are for this pod's `Vino`.
fn read(node: &Node, place: &Place) -> Option<NodeValues> {
    let text = node.metadata.annotations.as_ref()?.get(VALUES)?;
    let values: NodeValues = serde_saphyr::from_str(text)
        .inspect_err(|error| log::warn!("the annotation `{VALUES}`: {}", agent_api::yaml::told(error)))
        .ok()?;
    (values.vino == place.vino).then_some(values)
}

async fn turn(
    builder: &Builder,
    place: &Place,
    client: &Client,
    values: &NodeValues,
    told: &mut Told,
) -> anyhow::Result<()> {
    let given = match &told.given {
        Some((hash, given)) if *hash == values.hash => given.clone(),
        _ => {
            let given = given(builder, place, client, values).await?;
            told.given = Some((values.hash.clone(), given.clone()));
            given
        }
    };
    let (builder, values, ready) = (Arc::new(builder.clone()), values.clone(), builder.paths.ready());
    let passed = tokio::task::spawn_blocking(move || builder.pass(&values, &given)).await??;
    files::write(&ready, b"", 0o644)?;
    tell(place, client, passed, told).await;
    Ok(())
}

async fn tell(place: &Place, client: &Client, report: NodeReport, told: &mut Told) {
    if told.report.as_ref() == Some(&report) {
        return;
    }
    let text = serde_json::to_string(&report).unwrap_or_default();
    let patch = json!({ "metadata": { "annotations": { REPORT: text } } });
    let pods = Api::<Pod>::namespaced(client.clone(), &place.namespace);
    match pods.patch(&place.pod, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => told.report = Some(report),
        Err(error) => log::warn!("telling the report: {error}"),
    }
}

/// Reads the templates and passwords that the values name, and writes Redfish's credentials.
async fn given(builder: &Builder, place: &Place, client: &Client, values: &NodeValues) -> anyhow::Result<Given> {
    let secrets = Api::<Secret>::namespaced(client.clone(), &place.namespace);
    let mut given = Given::default();
    if let Some(named) = &values.templates {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), &place.namespace);
        let map = maps
            .get(&named.name)
            .await
            .with_context(|| format!("reading the ConfigMap `{}` with templates", named.name))?;
        given.templates = map.data.unwrap_or_default();
    }
    if let Some(named) = &values.credentials {
        let secret = secrets.get(&named.name).await;
        let secret =
            secret.with_context(|| format!("reading the Secret `{}` with the credentials of Redfish", named.name))?;
        let [user, password] = CREDENTIALS.map(|key| text_of(&secret, key));
        let missing = || format!("the Secret `{}` has not both keys {}", named.name, CREDENTIALS.join(", "));
        let (user, password) = user.zip(password).with_context(missing)?;
        let hash = bcrypt::hash_with_salt(&password, COST, rand::random())?.format_for_version(bcrypt::Version::TwoY);
        files::write(&builder.paths.htpasswd(), format!("{user}:{hash}\n").as_bytes(), 0o600)?;
    }
    let screens: BTreeSet<&str> =
        values.domains.iter().filter_map(|domain| Some(domain.vnc.as_ref()?.secret.as_str())).collect();
    for name in screens {
        // One that is not there is told with each domain that it is for.
        let Some(secret) = secrets.get_opt(name).await? else { continue };
        let keys: Vec<String> = secret.data.iter().flatten().map(|(key, _)| key.clone()).collect();
        let found = keys.into_iter().filter_map(|key| Some(((name.to_owned(), key.clone()), text_of(&secret, &key)?)));
        given.passwords.extend(found);
    }
    Ok(given)
}
