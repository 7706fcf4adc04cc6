//! The order of first boot. What must have happened before is an argument.

use std::sync::Arc;

use agent_api::events::{Status, StepStatus};
use agent_api::site::Site;
use tokio::sync::watch;

use super::site_objects::SiteObjects;
use super::{
    Machine, addons, content, control_plane, decide, host_services, identity, network, phase, ready, runtime, time,
    watch as after,
};
use crate::cluster::api::Api;
use crate::cluster::{Node, nth_address};
use crate::events::Bus;
use crate::host::addresses;
use crate::registry::Front;
use crate::services::{Ground, Services, Turn};
use crate::steps::{Ledger, Pace, Step, Steps};

/// What others of this process want to know as soon as it is known.
#[derive(Clone, Debug)]
pub struct Published {
    /// Site, once it was looked for.
    pub site: watch::Sender<Option<Arc<Site>>>,
}

impl Default for Published {
    fn default() -> Self {
        Self { site: watch::Sender::new(None) }
    }
}

/// What a release may declare beside the cluster.
#[derive(Debug)]
pub struct Declared {
    /// Objects of the cluster.
    pub objects: Option<SiteObjects>,
    /// Services of the box.
    pub services: Services,
}

/// The cluster of a box that is ready.
#[derive(Debug)]
pub struct Cluster {
    /// Its node.
    pub node: Node,
    /// Its API, as it was when the box became ready.
    pub api: Api,
    /// When the node was Ready, seconds since power-on.
    pub node_ready: f64,
}

/// Brings the box to `ready` and keeps it there. Ends only when it is dropped.
pub async fn run(machine: Machine, bus: Bus, ledger: Arc<Ledger>, published: Published, front: Arc<Front>) {
    let steps = steps(&machine, bus, ledger);
    let site = found_site(&machine, &steps, &published);
    let (site, ()) = tokio::join!(site, identity::etc_kubernetes(&machine, &steps));
    let (machine, steps) = (&machine.at_site(&site), &steps);
    let declared = &Declared { objects: SiteObjects::of(machine, steps), services: Services::of(machine, &front) };
    let all = phase::all(declared.services.steps());
    let planned = all.into_iter().filter(|step| is_planned(step, machine, &front, declared));
    steps.bus.set_plan(planned.map(|step| (step.phase, step.name)));
    published.site.send_replace(Some(Arc::new(site.clone())));
    let name = identity::hostname(machine, steps, &site).await;
    let all_of_it = async {
        let cluster = bring_up_cluster(machine, steps, &site, name, declared, &front);
        let beside = beside(machine, steps, &site);
        let (cluster, ()) = tokio::join!(Box::pin(cluster), beside);
        after::forever(machine, steps, cluster, declared, &front).await;
    };
    tokio::join!(all_of_it, network::tell_overlaps(machine, steps));
}

/// Site. As long as the one that counts cannot be used and there was none before it, the box is reached at the addresses
/// that DHCP gives it, and can be claimed.
async fn found_site(machine: &Machine, steps: &Steps, published: &Published) -> Site {
    let reachable = async {
        let mut status = steps.bus.status();
        let is_site = |step: &StepStatus| step.phase == phase::SITE.phase.name() && step.step == phase::SITE.name;
        let failed = |status: &Arc<Status>| status.failed().any(is_site);
        if status.wait_for(failed).await.is_ok() {
            let nothing = Site::default();
            published.site.send_replace(Some(Arc::new(nothing.clone())));
            tokio::join!(network::firewall(machine, steps, &nothing), network::interfaces(machine, steps, &nothing));
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        site = identity::site(machine, steps) => site,
        () = reachable => Site::default(),
    }
}

/// Whether every boot of this release comes to that step.
fn is_planned(step: &Step, machine: &Machine, front: &Front, declared: &Declared) -> bool {
    let has_images = !front.catalog().repositories.is_empty();
    match step {
        step if [phase::SSH, phase::GATE, phase::OTHER_SITE, phase::OVERLAP].contains(step) => false,
        step if *step == phase::IMAGES => has_images,
        step if *step == phase::FILES => !machine.release().content.is_empty(),
        step if *step == phase::SITE_OBJECTS || *step == phase::SITE_HEALTH => declared.objects.is_some(),
        _ => true,
    }
}

/// Safe mode: who the box is, its addresses, its firewall, a way in; no cluster.
pub async fn run_safe(machine: Machine, bus: Bus, ledger: Arc<Ledger>, published: Published) {
    let steps = steps(&machine, bus, ledger);
    let steps = &steps;
    let site = identity::site(&machine, steps).await;
    let machine = &machine.at_site(&site);
    published.site.send_replace(Some(Arc::new(site.clone())));
    identity::hostname(machine, steps, &site).await;
    network::cluster_address(machine, steps).await;
    beside(machine, steps, &site).await;
    host_services::host_services(machine, steps).await;
}

fn steps(machine: &Machine, bus: Bus, ledger: Arc<Ledger>) -> Steps {
    let stop_before = machine.parameter("foothold.stop").map(str::to_owned);
    Steps { bus, ledger, stop_before, pace: Pace::default() }
}

/// What nothing waits for.
async fn beside(machine: &Machine, steps: &Steps, site: &Site) {
    tokio::join!(
        network::name_service(machine, steps, site),
        network::firewall(machine, steps, site),
        network::interfaces(machine, steps, site),
        time::sources(machine, steps, site),
        content::blobs(machine, steps),
        host_services::ssh(machine, steps, site),
    );
}

async fn bring_up_cluster(
    machine: &Machine,
    steps: &Steps,
    site: &Site,
    name: String,
    declared: &Declared,
    front: &Arc<Front>,
) -> Cluster {
    let runtime = async {
        runtime::containerd_state(machine, steps).await;
        runtime::cni(machine, steps).await;
        runtime::containerd(machine, steps).await;
    };
    let control_plane = async {
        network::cluster_address(machine, steps).await;
        let node = node(machine, name, network::advertise(steps, site).await);
        let credentials = control_plane::certificates(machine, steps, &node).await;
        control_plane::place_manifests(machine, steps, &node).await;
        (node, credentials)
    };
    let services = &declared.services;
    let ((), (), (), (node, credentials)) =
        tokio::join!(runtime, network::kernel(machine, steps), services.prepare(machine), control_plane);
    control_plane::start_kubelet(machine, steps).await;
    let early = services.start_with_kubelet(Ground { machine, steps, node: &node });
    let cluster = cluster(machine, steps, &node, &credentials, declared, front);
    let ((api, node_ready), ()) = tokio::join!(Box::pin(cluster), early);
    let node = after::catch_up(machine, steps, node).await;
    ready::tell_ready(machine, steps, node_ready);
    Cluster { node, api, node_ready }
}

/// Everything from the API server on, and what runs in the cluster. Returns its API, and when the node was Ready.
async fn cluster(
    machine: &Machine,
    steps: &Steps,
    node: &Node,
    credentials: &control_plane::Credentials,
    declared: &Declared,
    front: &Arc<Front>,
) -> (Api, f64) {
    let ((), api) = tokio::join!(
        control_plane::state(machine, steps, node, credentials),
        control_plane::api_behind_gate(machine, steps, node),
    );
    let workloads = async {
        control_plane::grant(machine, steps, &api).await;
        control_plane::controllers(machine, steps, node, &api).await;
        addons::objects(machine, steps, node, credentials, &api).await;
    };
    let ((), (), (), node_ready) = tokio::join!(
        workloads,
        control_plane::roles(machine, steps, node, &api),
        addons::node_labels(machine, steps, node, credentials, &api),
        ready::node(steps, node, &api),
    );
    host_services::host_services(machine, steps).await;
    let objects = async {
        if let Some(objects) = &declared.objects {
            objects.bring_up(steps, &api).await;
        }
    };
    let (services, on) = (&declared.services, Ground { machine, steps, node });
    tokio::join!(ready::everything(on, &api, front, services), objects, services.start(Turn::Beside, on, &api),);
    (api, node_ready)
}

fn node(machine: &Machine, name: String, advertise: std::net::IpAddr) -> Node {
    let service_address = nth_address(&machine.release().kubernetes.service_cidr, 1);
    Node {
        name,
        advertise,
        // The builder has checked the range; kubeadm's default is as good a guess as any.
        service_address: service_address.unwrap_or_else(|| [10, 96, 0, 1].into()),
        site_addresses: decide::site_addresses(&addresses().unwrap_or_default()),
    }
}
