//! Ironic, where the release provisions servers: laid out, started by the kubelet, asked until it answers, and started anew
//! when its database is lost or the box's address has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent_api::events::{Phase, PhaseWord};
use agent_api::metal3::BareMetalHost;
use agent_api::{ports, yaml};
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::{HTTPGetAction, Probe, Secret};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ApiResource;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use super::{EVERY, Ground, Mount, PODS_LOG, Service, StaticPod, metal3};
use crate::cluster::Node;
use crate::cluster::api::Api;
use crate::cluster::follow::Kept;
use crate::host;
use crate::host::files;
use crate::machine::Machine;
use crate::provisioning::authorities::Certificates;
use crate::provisioning::client::{Access, Trouble};
use crate::provisioning::wire::{self, ServerFacts};
use crate::provisioning::{IronicPlan, PlacedIronic, RUN, STATE, USER, authorities, database, kept};
use crate::steps::{Missing, Outcome, Pace, Step, blocking};

/// Ironic, where servers are provisioned.
pub const STEP: Step = Step {
    phase: PhaseWord::new(Phase::Services.name()),
    name: "ironic",
    next: "the kubelet restarts it; a lost database is made anew",
    log: PODS_LOG,
};

/// How long networkd may need for a fixed address.
const ADDRESSED_WITHIN: Duration = Duration::from_secs(20);
/// Pause between two looks at what Ironic depends on.
const LOOK: Duration = Duration::from_secs(10);
/// Pause between two looks at files that nobody needs any more.
const TIDY: Duration = Duration::from_secs(600);

/// Pause between two looks at what servers' facts are made of beside their hosts.
const SERVERS: Duration = Duration::from_secs(60);

/// Ironic on this box. Its access can be read at any time; only one task at a time changes it.
#[derive(Debug)]
pub struct Ironic {
    plan: IronicPlan,
    access: Mutex<Option<Access>>,
    placed_anew: Notify,
    authorities: Mutex<Authorities>,
}

/// Certificates of all Secrets that look like those of BMCs, and the Secrets that hosts name. Only what a host names is
/// trusted: whoever may write Secrets somewhere is not one whom BMCs are known by.
#[derive(Debug, Default)]
struct Authorities {
    secrets: Option<Kept<Result<Certificates, String>>>,
    named: Option<BTreeSet<(String, String)>>,
    /// What was wrong and is told.
    told: BTreeSet<String>,
}

impl Authorities {
    /// What is trusted, and what is wrong with the others; nothing before both kinds are listed.
    fn trusted(&self) -> Option<(Certificates, BTreeSet<String>)> {
        let (secrets, named) = (self.secrets.as_ref()?, self.named.as_ref()?);
        let (mut found, mut problems) = (Certificates::new(), BTreeSet::new());
        for one in named.iter().filter_map(|name| secrets.get(name)) {
            match one {
                Ok(certificates) => found.extend(certificates.iter().cloned()),
                Err(problem) => drop(problems.insert(problem.clone())),
            }
        }
        Some((found, problems))
    }
}

impl Ironic {
    /// `None` if the release does not declare it, or has no controller that would use it.
    pub fn of(machine: &Machine) -> Option<Arc<Self>> {
        let plan = IronicPlan::of(machine.release(), machine.provisioning()?.clone(), &machine.at("/"))?;
        machine.release().image(metal3::IMAGE)?;
        let (access, placed_anew, authorities) = (Mutex::new(None), Notify::new(), Mutex::default());
        Some(Arc::new(Self { plan, access, placed_anew, authorities }))
    }

    /// How it is laid out, and for which network.
    pub const fn plan(&self) -> &IronicPlan {
        &self.plan
    }

    /// How to reach its API.
    pub async fn access(&self) -> Result<Access, Missing> {
        self.access.lock().await.clone().ok_or_else(|| Missing::new("Ironic", "it is not laid out yet"))
    }

    /// Returns when it was laid out anew after `ready`: its authority may be another one.
    pub async fn placed_anew(&self) {
        self.placed_anew.notified().await;
    }

    /// Has `tell` hand on how Ironic is asked, now and whenever that changes; what failed is tried again. `whom` is for the log.
    /// Ends only when it is dropped.
    pub async fn keep_told<F>(&self, whom: &str, tell: impl Fn() -> F)
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        loop {
            match tell().await {
                Ok(()) => self.placed_anew().await,
                Err(error) => {
                    log::warn!("{whom} is not told yet how Ironic is asked: {error:#}");
                    tokio::time::sleep(Pace::default().longest_pause).await;
                }
            }
        }
    }

    /// Removes files that Ironic had not finished when the box was switched off, so that no server gets them.
    async fn look_through(machine: &Machine) {
        let at = machine.clone();
        match blocking(move || Ok(kept::look_through(&at.at("/"), &at.release().content)?)).await {
            Ok(gone) => {
                for path in gone {
                    log::warn!("`{}` was not whole after the box was switched off, and is gone", path.display());
                }
            }
            Err(error) => log::error!("looking through what Ironic had made for servers: {error:#}"),
        }
    }

    /// Starts it, and waits until it has drivers.
    async fn bring_up(&self, on: Ground<'_>) {
        let act = || async {
            self.until_addressed().await;
            let (changed, placed) = self.place(on.machine, on.node, false).await?;
            let made = placed.new_database.map(database::Reason::text);
            on.steps.wait(&STEP, EVERY, || self.answers()).await;
            let detail = json!({"newDatabase": made});
            Ok(if changed { Outcome::Done((), detail) } else { Outcome::Current(()) })
        };
        on.steps.perform(&STEP, act).await;
    }

    /// Waits for the box's declared address on the servers' network: with another one Ironic would have to be restarted.
    /// Gives up after a while, for the interface may be missing.
    async fn until_addressed(&self) {
        let begun = Instant::now();
        while self.plan.declared.address.is_some() && begun.elapsed() < ADDRESSED_WITHIN {
            if self.plan.segment(&addresses()).is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Lays out everything, the pod's manifest last. Returns whether the pod is another one now.
    async fn place(&self, machine: &Machine, node: &Node, lost: bool) -> anyhow::Result<(bool, PlacedIronic)> {
        let mut access = self.access.lock().await;
        let (plan, machine, own) = (self.plan.clone(), machine.clone(), node.advertise);
        let (changed, placed) = blocking(move || {
            let own = address(&plan, own);
            tell_segment(&machine, own)?;
            let placed = plan.place(own, lost)?;
            let changed = pod(&placed.image, placed.generation.clone()).place(&machine)?;
            Ok((changed, placed))
        })
        .await?;
        *access = Some(placed.access.clone());
        Ok((changed, placed))
    }

    /// Whether it has drivers.
    async fn answers(&self) -> Result<(), Missing> {
        let drivers = self.access().await?.drivers().await;
        drivers.map(drop).map_err(|trouble| Missing::new("an answer of Ironic", trouble.why()))
    }

    /// Whether it answers, and all files that it had made before power-on were checked.
    async fn is_right(&self, machine: &Machine) -> Result<(), Missing> {
        if !kept::mark(&machine.at("/")).exists() {
            let why = "a folder or file in it can be neither read nor removed; servers are given none of it";
            return Err(Missing::new("what Ironic had made before the box was switched on", why));
        }
        self.answers().await
    }

    /// Keeps the authorities that Ironic trusts as the Secrets of hosts' BMCs say. Ends only when it is dropped.
    async fn follow_authorities(&self, machine: &Machine) {
        let tell = |kept: &Kept<Result<Certificates, String>>| {
            let secrets = kept.clone();
            self.trust(|known| known.secrets = Some(secrets))
        };
        let kind = ApiResource::erase::<Secret>(&());
        let not = "Ironic is not told of the authorities of BMCs";
        machine.follow(&kind, not, authorities::of_secret, tell).await;
    }

    /// Keeps the file with the facts about servers and their BMCs, for the agent that stands before Ironic, and tells whose
    /// Secrets count. Names of BMCs and network data may change without their hosts: they are looked at again from time to
    /// time. Ends only when it is dropped.
    async fn follow_servers(&self, machine: &Machine) {
        let kind = ApiResource::erase::<BareMetalHost>(&());
        let not = "Ironic's files and API are not told of new servers";
        let last: Mutex<(Option<Vec<ToldServer>>, BmcNames)> = Mutex::default();
        let tell = |known: &Kept<ToldServer>| {
            let (told, last): (Vec<ToldServer>, _) = (known.values().cloned().collect(), &last);
            let named = told.iter().filter_map(|one| one.credentials.clone()).collect();
            async move {
                let mut last = last.lock().await;
                last.0 = Some(told);
                tell_servers(machine, &mut last).await?;
                self.trust(|known| known.named = Some(named)).await
            }
        };
        let again = async {
            loop {
                tokio::time::sleep(SERVERS).await;
                let mut last = last.lock().await;
                if let Err(error) = tell_servers(machine, &mut last).await {
                    log::warn!("{not}: {error:#}");
                }
            }
        };
        tokio::join!(machine.follow(&kind, not, |host| Some(ToldServer::of(host)), tell), again);
    }

    /// Has Ironic trust what is known after `change`.
    async fn trust(&self, change: impl FnOnce(&mut Authorities)) -> anyhow::Result<()> {
        let mut known = self.authorities.lock().await;
        change(&mut known);
        let Some((found, problems)) = known.trusted() else { return Ok(()) };
        for problem in problems.difference(&known.told) {
            log::warn!("{problem}");
        }
        known.told = problems;
        let access = self.access.lock().await.clone().context("Ironic is not laid out yet")?;
        let (plan, count) = (self.plan.clone(), found.len());
        if blocking(move || plan.trust(&access.authority, &found)).await? {
            log::info!("Ironic trusts {count} authorities of BMCs");
        }
        Ok(())
    }

    /// Lays it out again when something has changed: the address, a renewed certificate, or a lost database. Ends only when
    /// it is dropped.
    async fn follow_box(&self, machine: &Machine, node: &Node) {
        loop {
            tokio::time::sleep(LOOK).await;
            let lost = match self.access().await {
                Ok(access) => matches!(access.drivers().await, Err(Trouble::DatabaseLost(_))),
                Err(_) => false,
            };
            match self.place(machine, node, lost).await {
                Ok((true, placed)) => {
                    match placed.new_database {
                        Some(reason) => log::warn!("Ironic is started with an empty database: {}", reason.text()),
                        None => log::info!("Ironic is started anew: its address or certificate has changed"),
                    }
                    self.placed_anew.notify_one();
                }
                Ok((false, _)) => {}
                Err(error) => log::error!("Ironic cannot be laid out: {error:#}"),
            }
        }
    }

    /// Removes what nobody needs any more. Ends only when it is dropped.
    async fn tidy(machine: &Machine) {
        loop {
            tokio::time::sleep(TIDY).await;
            Self::look_through(machine).await;
            let at = machine.clone();
            if let Err(error) = blocking(move || Ok(kept::tidy(&at.at("/"), SystemTime::now())?)).await {
                log::warn!("removing what Ironic does not need any more: {error:#}");
            }
        }
    }
}

impl Service for Ironic {
    fn step(&self) -> &'static Step {
        &STEP
    }

    fn prepare<'a>(&'a self, machine: &'a Machine) -> BoxFuture<'a, ()> {
        Box::pin(Self::look_through(machine))
    }

    fn start_with_kubelet<'a>(&'a self, on: Ground<'a>) -> BoxFuture<'a, ()> {
        Box::pin(self.bring_up(on))
    }

    fn ask<'a>(&'a self, machine: &'a Machine, _api: &'a Api) -> BoxFuture<'a, Result<(), Missing>> {
        Box::pin(self.is_right(machine))
    }

    fn tend<'a>(&'a self, on: Ground<'a>) -> BoxFuture<'a, ()> {
        let all = async move {
            tokio::join!(
                self.follow_box(on.machine, on.node),
                self.follow_authorities(on.machine),
                self.follow_servers(on.machine),
                Self::tidy(on.machine),
            );
        };
        Box::pin(all)
    }
}

fn address(plan: &IronicPlan, own: IpAddr) -> IpAddr {
    plan.address(&addresses(), own)
}

/// Writes which network the servers are on.
fn tell_segment(machine: &Machine, own: IpAddr) -> anyhow::Result<()> {
    let Some(found) = host::addresses()?.into_iter().find(|one| one.address == own) else { return Ok(()) };
    let text = format!("{}/{}\n", found.address, found.prefix);
    files::write(&machine.at(wire::SEGMENT), text.as_bytes(), files::PUBLIC)?;
    Ok(())
}

/// The facts about a server that its host has, and the name of the Secret with more.
#[derive(Clone, Debug, PartialEq)]
pub struct ToldServer {
    facts: ServerFacts,
    bmc: Option<String>,
    /// Namespace and name of the Secret with its network data.
    network_data: Option<(String, String)>,
    /// The same of the one with its BMC's credentials.
    credentials: Option<(String, String)>,
}

impl ToldServer {
    /// By the `BareMetalHost`.
    pub fn of(host: &Value) -> Self {
        let (facts, bmc) = wire::of_host(host);
        let spec = &host["spec"];
        let secret = |name: &Value| {
            let name = name.as_str().filter(|name| !name.is_empty())?;
            Some((host["metadata"]["namespace"].as_str()?.to_owned(), name.to_owned()))
        };
        let network_data = secret(&spec["preprovisioningNetworkDataName"]);
        Self { facts, bmc, network_data, credentials: secret(&spec["bmc"]["credentialsName"]) }
    }
}

/// Addresses of BMCs that are told by name.
type BmcNames = BTreeMap<String, BTreeSet<IpAddr>>;

async fn tell_servers(
    machine: &Machine,
    (told, names): &mut (Option<Vec<ToldServer>>, BmcNames),
) -> anyhow::Result<()> {
    // Before the hosts are listed there is nothing to tell.
    let Some(told) = told else { return Ok(()) };
    *names = addresses_of_bmcs(told, names).await;
    let all = with_names(&machine.api()?, told.clone(), names).await?;
    let (path, text) = (machine.at(wire::SERVERS), serde_json::to_vec(&all)?);
    blocking(move || Ok(files::write(&path, &text, files::PUBLIC).map(drop)?)).await
}

/// The facts about servers, with the addresses of their BMCs' names and those in their network data.
///
/// # Errors
/// The API does not give the network data.
pub async fn known_servers(api: &Api, told: Vec<ToldServer>) -> anyhow::Result<Vec<ServerFacts>> {
    let names = addresses_of_bmcs(&told, &BmcNames::new()).await;
    with_names(api, told, &names).await
}

/// Asks for all names at a time: one whose name server is silent must not hold up the others. Of a name without an answer
/// those stay that it had `before`: a BMC may be fetching what its server boots.
async fn addresses_of_bmcs(told: &[ToldServer], before: &BmcNames) -> BmcNames {
    let names: BTreeSet<&String> = told.iter().filter_map(|one| one.bmc.as_ref()).collect();
    let asked = names.into_iter().map(|name| async move {
        let found = match tokio::net::lookup_host((name.as_str(), 0)).await {
            Ok(found) => found.map(|address| address.ip()).collect(),
            Err(error) => {
                let known = before.get(name).cloned().unwrap_or_default();
                if known.is_empty() {
                    log::warn!("the BMC `{name}` may fetch nothing: {error}");
                }
                known
            }
        };
        (name.clone(), found)
    });
    join_all(asked).await.into_iter().collect()
}

async fn with_names(api: &Api, told: Vec<ToldServer>, names: &BmcNames) -> anyhow::Result<Vec<ServerFacts>> {
    let mut all = Vec::new();
    for ToldServer { mut facts, bmc, network_data, .. } in told {
        facts.bmc.extend(bmc.and_then(|name| names.get(&name)).into_iter().flatten());
        if let Some((namespace, name)) = network_data {
            let secret = api.get(&format!("/api/v1/namespaces/{namespace}/secrets/{name}")).await?;
            facts.addresses = secret.map(|secret| addresses_of(&secret)).unwrap_or_default();
        }
        all.push(facts);
    }
    Ok(all)
}

/// The addresses in a Secret with network data. Data that cannot be read give none: the controller says what is wrong.
fn addresses_of(secret: &Value) -> BTreeSet<IpAddr> {
    // As the controller has it.
    let found = ["networkData", "value"].into_iter().find_map(|key| secret["data"][key].as_str());
    let text = found.and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let read = serde_saphyr::from_str_with_options(&text, yaml::options(&text));
    read.map(|data: Value| wire::addresses_in(&data)).unwrap_or_default()
}

/// The box's addresses now, by name of the interface.
pub(super) fn addresses() -> Vec<(String, IpAddr)> {
    let have = host::addresses().unwrap_or_default();
    have.into_iter().map(|one| (one.interface, one.address)).collect()
}

/// The pod. Ironic reads its configuration, its certificate and the state of its database only when it starts: another
/// `generation` of them is another pod.
///
/// Its probes ask what needs no password, and give it the time that Python needs on a slow machine.
fn pod(image: &str, generation: String) -> StaticPod {
    StaticPod {
        name: "ironic",
        image: image.to_owned(),
        args: vec!["--config-file".to_owned(), format!("{RUN}/ironic.conf")],
        env: vec![("HOME", format!("{STATE}/tmp"))],
        user: Some(USER),
        requests: ("50m", "192Mi"),
        memory_limit: Some("1Gi"),
        grace_secs: Some(30),
        startup: Some(probe(5, 10, 120)),
        liveness: Some(probe(30, 20, 6)),
        mounts: vec![
            Mount::folder("run", RUN).read_only(),
            Mount::file("authority", "/etc/ssl/certs/ca-certificates.crt", format!("{RUN}/ca.crt")),
            Mount::folder("state", STATE),
            Mount::empty("tmp", "/tmp", "64Mi"),
        ],
        generation: Some(generation),
        ..StaticPod::default()
    }
}

fn probe(period_secs: i32, timeout_secs: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            scheme: Some("HTTPS".to_owned()),
            path: Some("/".to_owned()),
            port: IntOrString::Int(ports::IRONIC.into()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_secs),
        timeout_seconds: Some(timeout_secs),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::{Authorities, BmcNames, Certificates, ToldServer, addresses_of, addresses_of_bmcs, pod};

    #[test]
    fn only_the_authorities_that_a_host_names_are_trusted() {
        let key = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        let host = json!({"metadata": {"namespace": "metal3", "name": "a"},
            "spec": {"bmc": {"address": "redfish://10.0.0.1", "credentialsName": "a-bmc"}}});
        let certificate = |byte: u8| Ok(Certificates::from([vec![byte]]));
        let secrets = [
            (key("metal3", "a-bmc"), certificate(1)),
            (key("tenant", "a-bmc"), certificate(2)),
            (key("tenant", "database"), Err("Secret `tenant/database`: `ca.crt`: found no certificate".to_owned())),
        ];
        let mut known = Authorities { secrets: Some(secrets.into()), ..Authorities::default() };
        assert_eq!(known.trusted(), None, "the hosts are not listed yet");
        known.named = Some(ToldServer::of(&host).credentials.into_iter().collect());
        assert_eq!(known.trusted(), Some((Certificates::from([vec![1]]), std::collections::BTreeSet::new())));
    }

    #[tokio::test]
    async fn a_name_without_an_answer_keeps_its_addresses() {
        let told = |address: &str| ToldServer::of(&json!({"spec": {"bmc": {"address": address}}}));
        let silent = |name: &str| ToldServer { bmc: Some(name.to_owned()), ..told("") };
        let all = [told("redfish://127.0.0.1/redfish/v1/Systems/1"), silent("no name"), silent("never seen")];
        let old: IpAddr = [10, 0, 0, 7].into();
        let before =
            BmcNames::from([("no name".to_owned(), [old].into()), ("of a host that is gone".to_owned(), [old].into())]);
        let now = addresses_of_bmcs(&all, &before).await;
        let expected =
            [("127.0.0.1", vec![IpAddr::from([127, 0, 0, 1])]), ("never seen", vec![]), ("no name", vec![old])];
        assert_eq!(now, expected.map(|(name, found)| (name.to_owned(), found.into_iter().collect())).into());
    }

    /// Either key is read by the controller, which has the server use these addresses.
    #[test]
    fn network_data_are_found_under_both_keys() {
        for key in ["networkData", "value"] {
            let data = STANDARD.encode("networks: [ { ip_address: 10.9.0.5/24 } ]");
            assert_eq!(addresses_of(&json!({"data": {key: data}})), [IpAddr::from([10, 9, 0, 5])].into(), "{key}");
        }
    }

    #[test]
    fn the_pod() {
        let pod = pod("foothold.dev/ironic:29.0.5", "0123456789abcdef".to_owned());
        insta::assert_snapshot!(pod.manifest().expect("a manifest"));
    }
}
