//! The controllers of application clusters on the box (`Provisioning`, `Software`; `Release`): their kinds, rights, folder
//! and pods.

use std::fs::Permissions;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_api::clusters::crds;
use agent_api::events::{Phase, PhaseWord};
use agent_api::release::Release;
use futures_util::future::BoxFuture;

use super::deployed::{self, Controller, USER, place, rule};
use super::ironic::{Ironic, addresses};
use super::{EVERY, Ground, Mount, PODS_LOG, Service, metal3, metrics, seen, storage};
use crate::cluster::api::Api;
use crate::cluster::objects::{ObjectsError, Placed};
use crate::machine::Machine;
use crate::provisioning::dhcp;
use crate::provisioning::segment::dnsmasq::LEASES;
use crate::steps::{Missing, Step};

/// The controller of clusters, with its kinds and rights.
pub const STEP: Step = Step {
    phase: PhaseWord::new(Phase::Services.name()),
    name: "bpa-operator",
    next: "it is tried again",
    log: PODS_LOG,
};

/// Name of all objects of the controller of clusters.
const NAME: &str = "bpa-operator";
/// What it is for a user.
const TITLE: &str = "the controller of clusters";
/// What the controller of releases is for a user.
const KPA: &str = "kpa-operator";
const KPA_TITLE: &str = "the controller of releases";
/// Image with Helm.
pub const HELM: &str = "foothold.dev/helm:";
/// Inventories, logs and kubeconfigs of clusters, on DATA.
pub const FOLDER: &str = "/var/lib/foothold/clusters";
/// Where the pod finds that: ICN's own place.
const MOUNTED: &str = "/opt/kud/multi-cluster";
/// Where the pod finds what DHCP leased.
const DHCP: &str = "/var/run/dhcp";
/// Metrics and health, on the loopback address.
const METRICS: u16 = 8086;
const KPA_METRICS: u16 = 8087;
/// Pause between two looks at the box's address.
const LOOK: Duration = Duration::from_secs(30);

/// The controller.
#[derive(Debug)]
pub struct Clusters {
    image: String,
    helm: String,
    ironic: Arc<Ironic>,
}

impl Clusters {
    /// `None` if the release does not declare it.
    pub fn of(machine: &Machine, ironic: &Arc<Ironic>) -> Option<Self> {
        machine.release().clusters.as_ref()?;
        let image = machine.release().image(metal3::IMAGE)?.reference.clone();
        let helm = machine.release().image(HELM)?.reference.clone();
        Some(Self { image, helm, ironic: Arc::clone(ironic) })
    }

    /// Starts it once the box has its address on the servers' network, and waits until it is there.
    async fn bring_up(&self, on: Ground<'_>, api: &Api) {
        let place = || async {
            on.steps.wait(&STEP, EVERY, || async { self.own().map(drop) }).await;
            make_folder(&on.machine.at(FOLDER))?;
            self.place(on.machine, api).await
        };
        deployed::bring_up(on, &STEP, place, || is_there(api)).await;
    }

    /// The box's address on the servers' network.
    fn own(&self) -> Result<Ipv4Addr, Missing> {
        let why = "it has none: give it one with `services.provisioning.address`, or by Site";
        let segment = self.ironic.plan().segment(&addresses());
        segment.map(|(_, own)| own).ok_or_else(|| Missing::new("the box's address on the network of the servers", why))
    }

    /// Brings its objects up to date. Returns how many are new.
    async fn place(&self, machine: &Machine, api: &Api) -> anyhow::Result<usize> {
        let own = self.own().map_err(|missing| anyhow::anyhow!("{}: {}", missing.what, missing.why))?;
        deployed::apply(api, &objects(&self.image, &self.helm, own, machine.release())?).await
    }

    /// Updates its objects when servers reach the box at another address. Ends only when it is dropped.
    async fn follow_address(&self, machine: &Machine) {
        let mut known = self.own().ok();
        loop {
            tokio::time::sleep(LOOK).await;
            let own = self.own().ok();
            if own.is_none() || own == known {
                continue;
            }
            let placed = async { self.place(machine, &machine.api()?).await };
            match placed.await {
                Ok(_) => known = own,
                Err(error) => log::error!("{TITLE} is not told: {error:#}"),
            }
        }
    }
}

impl Service for Clusters {
    fn step(&self) -> &'static Step {
        &STEP
    }

    fn start<'a>(&'a self, on: Ground<'a>, api: &'a Api) -> BoxFuture<'a, ()> {
        Box::pin(self.bring_up(on, api))
    }

    fn ask<'a>(&'a self, _machine: &'a Machine, api: &'a Api) -> BoxFuture<'a, Result<(), Missing>> {
        Box::pin(is_there(api))
    }

    fn tend<'a>(&'a self, on: Ground<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            tokio::join!(self.follow_address(on.machine), seen::follow_clusters(on));
        })
    }
}

/// Whether their pods are ready.
async fn is_there(api: &Api) -> Result<(), Missing> {
    deployed::ask(api, &Controller::path(NAME), TITLE).await?;
    deployed::ask(api, &Controller::path(KPA), KPA_TITLE).await
}

/// Makes the folder that the pod, which is not root, writes to. Only the pod and root can read it, because it holds
/// kubeconfigs.
pub fn make_folder(folder: &Path) -> anyhow::Result<()> {
    fs_err::create_dir_all(folder)?;
    fs_err::set_permissions(folder, Permissions::from_mode(0o700))?;
    let user = u32::try_from(USER)?;
    Ok(std::os::unix::fs::chown(folder, Some(user), Some(user))?)
}

/// All objects, in the order in which they are needed.
fn objects(image: &str, helm: &str, own: Ipv4Addr, release: &Release) -> Result<Vec<Placed>, ObjectsError> {
    let mut objects: Vec<Placed> = crds::all().iter().map(place).collect::<Result<_, _>>()?;
    let own = own.to_string();
    for controller in [controller(image, &own, release), releases(image, helm, &own)] {
        objects.extend(controller.rights()?);
        objects.push(controller.deployment()?);
    }
    Ok(objects)
}

/// The controller of releases. `own` is the box's address.
pub fn releases(image: &str, helm: &str, own: &str) -> Controller {
    let metrics = format!("127.0.0.1:{KPA_METRICS}");
    let args = ["operator", "kpa", "--box", own, "--helm", helm, "--metrics-address", &metrics];
    Controller {
        name: KPA,
        image: image.to_owned(),
        args: args.map(str::to_owned).to_vec(),
        rules: vec![
            rule(&["kpa.foothold.dev"], &["*"], &["*"]),
            rule(&["bpa.akraino.org"], &["provisionings"], &["get", "list", "watch"]),
            // Kubeconfigs and values; plans of its own.
            rule(&[""], &["secrets"], &["get", "create", "patch", "delete"]),
            rule(&[""], &["configmaps"], &["get"]),
            rule(&[""], &["pods"], &["get", "list"]),
            rule(&["batch"], &["jobs"], &["get", "create", "patch", "delete"]),
            rule(&["", "events.k8s.io"], &["events"], &["create", "patch"]),
        ],
        health_port: KPA_METRICS,
        memory_limit: Some("256Mi"),
        ..Controller::default()
    }
}

/// Arguments of the controller of clusters that name what clusters have where the box carries it.
pub fn parts(release: &Release) -> Vec<String> {
    let carried = |(flag, image): (&str, &str)| Some([flag.to_owned(), release.image(image)?.reference.clone()]);
    [("--metrics", metrics::IMAGE), ("--storage", storage::IMAGE)].into_iter().filter_map(carried).flatten().collect()
}

/// The controller of clusters. `own` is the box's address on the servers' network.
pub fn controller(image: &str, own: &str, release: &Release) -> Controller {
    let mut args = vec![
        "operator".to_owned(),
        "bpa".to_owned(),
        "--box".to_owned(),
        own.to_owned(),
        "--kubernetes".to_owned(),
        release.kubernetes.version.clone(),
        "--clusters".to_owned(),
        MOUNTED.to_owned(),
        "--clusters-on-host".to_owned(),
        FOLDER.to_owned(),
        "--leases".to_owned(),
        format!("{DHCP}/{LEASES}"),
        "--metrics-address".to_owned(),
        format!("127.0.0.1:{METRICS}"),
    ];
    args.extend(parts(release));
    Controller {
        name: NAME,
        image: image.to_owned(),
        args,
        rules: vec![
            rule(&["bpa.akraino.org"], &["*"], &["*"]),
            // Hosts are found and claimed, and not made.
            rule(&["metal3.io"], &["baremetalhosts"], &["get", "list", "watch", "patch"]),
            // Which hosts a tenant's cluster has.
            rule(&["airship.airshipit.org"], &["sipclusters"], &["get"]),
            // Keys, passwords and kubeconfigs of clusters, in their namespaces.
            rule(&[""], &["secrets", "configmaps"], &["get", "create", "patch", "delete"]),
            // Installers of the user's, and what they wrote.
            rule(&["batch"], &["jobs"], &["get", "create", "patch", "delete"]),
            rule(&[""], &["pods"], &["list"]),
            rule(&[""], &["pods/log"], &["get"]),
            rule(&["", "events.k8s.io"], &["events"], &["create", "patch"]),
        ],
        health_port: METRICS,
        memory_limit: Some("512Mi"),
        mounts: vec![Mount::folder("clusters", FOLDER).at(MOUNTED), Mount::folder_or_new("dhcp", DHCP, dhcp::STATE)],
        generation: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Controller, KPA, NAME, objects};
    use crate::fixtures::release;

    #[test]
    fn kinds_come_first_and_the_pod_last() {
        let all =
            objects("foothold.dev/agent:1", "foothold.dev/helm:1", [172, 22, 0, 1].into(), &release()).expect("placed");
        assert_eq!(all.len(), 3 + 4 + 4);
        assert!(all[..3].iter().all(|placed| placed.object["kind"] == "CustomResourceDefinition"));
        assert_eq!((all[6].path(), all[10].path()), (Controller::path(NAME), Controller::path(KPA)));
        let args = all[10].object["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
        assert!(args.contains(r#""--helm","foothold.dev/helm:1""#), "{args}");
        let pod = &all[6].object["spec"]["template"]["spec"];
        assert_eq!(pod["volumes"][0]["hostPath"]["path"], "/var/lib/foothold/clusters");
        assert_eq!(pod["containers"][0]["volumeMounts"][0]["mountPath"], "/opt/kud/multi-cluster");
        let args = pod["containers"][0]["args"].as_array().expect("arguments");
        assert_eq!(args[2..6], [json!("--box"), json!("172.22.0.1"), json!("--kubernetes"), json!("v1.36.4")]);
    }
}
