//! Load balancers before the API servers and before the workers: `HAProxy`, under this program, which follows its
//! configuration (`pod/haproxy`). Pure.

use agent_api::sip::cluster::{Role, ServiceWish, SipCluster};
use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort as PodPort, NodeAffinity, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PodSpec, SecretVolumeSource, Toleration, Volume,
};

use super::template::{ContainerPort, Server, render};
use super::{Backend, Given, Images, Infra, Objects, parts};
use crate::cluster::probes;

/// Templates of users, as Airship calls them: what they are for, `ConfigMap`, key.
pub const TEMPLATES: [(Infra, &str, &str); 2] = [
    (Infra::ControlPlane, "loadbalancercontrolplane", "loadBalancerControlPlane.cfg"),
    (Infra::Worker, "loadbalancerworker", "loadBalancerWorker.cfg"),
];
/// Ours.
const CONTROL_PLANE: &str = include_str!("loadbalancer-controlplane.cfg");
const WORKER: &str = include_str!("loadbalancer-worker.cfg");
/// Key of the Secret with the configuration, and its place in the pod.
const KEY: &str = "haproxy.cfg";
const CONFIG: &str = "/etc/sip/haproxy";
/// Where the configuration lies that was checked.
const RUN: &str = "/run/haproxy";
/// Port of API servers.
const API: i32 = 6443;
/// Who runs it.
const USER: i64 = 65532;
/// Labels of nodes with a control plane: that of today, and the older one.
const MASTERS: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

pub fn control_plane(
    object: &SipCluster,
    backends: &[Backend],
    given: &Given,
    images: &Images,
) -> Result<Option<Objects>, String> {
    let Some(wish) = object.spec.services.load_balancer_control_plane.first() else { return Ok(None) };
    let ports = [(ContainerPort { name: "http".to_owned(), port: API }, wish.node_port)];
    Plan {
        infra: Infra::ControlPlane,
        object,
        wish: &wish.wish,
        role: Role::ControlPlane,
        ports: &ports,
        ours: CONTROL_PLANE,
    }
    .objects(backends, given, images)
    .map(Some)
}

pub fn worker(
    object: &SipCluster,
    backends: &[Backend],
    given: &Given,
    images: &Images,
) -> Result<Option<Objects>, String> {
    let Some(wish) = object.spec.services.load_balancer_worker.first() else { return Ok(None) };
    let range = wish.node_port_range;
    let port = |port: i32| (ContainerPort { name: format!("port-{port}"), port }, port);
    let ports: Vec<(ContainerPort, i32)> = (range.start..=range.end).map(port).collect();
    Plan { infra: Infra::Worker, object, wish: &wish.wish, role: Role::Worker, ports: &ports, ours: WORKER }
        .objects(backends, given, images)
        .map(Some)
}

struct Plan<'a> {
    infra: Infra,
    object: &'a SipCluster,
    wish: &'a ServiceWish,
    role: Role,
    /// Ports, and those of all nodes that lead to them.
    ports: &'a [(ContainerPort, i32)],
    ours: &'a str,
}

impl Plan<'_> {
    fn objects(&self, backends: &[Backend], given: &Given, images: &Images) -> Result<Objects, String> {
        let (infra, object) = (self.infra, self.object);
        let config = self.config(backends, given)?;
        let ports = self.ports.iter().map(|(port, node_port)| (port.name.clone(), port.port, *node_port));
        Ok(Objects {
            secret: parts::secret(infra, object, [(KEY, config.clone())]),
            service: parts::service(infra, object, self.wish, ports),
            deployment: parts::deployment(infra, object, self.pod(images)),
            config: Some(config),
            ..Objects::default()
        })
    }

    fn config(&self, backends: &[Backend], given: &Given) -> Result<String, String> {
        let of_role = backends.iter().filter(|backend| backend.role == self.role);
        let interface = &self.wish.node_interface_id;
        let server = |backend: &Backend| Some(Server { name: backend.name.clone(), ip: backend.address(interface)? });
        let servers: Vec<Server> = of_role.filter_map(server).collect();
        let ports: Vec<ContainerPort> = self.ports.iter().map(|(port, _)| port.clone()).collect();
        let theirs = TEMPLATES.iter().find(|(infra, ..)| *infra == self.infra);
        let theirs = theirs.and_then(|(_, map, key)| Some((map, key, given.templates.get(map)?)));
        match theirs {
            None => render(self.ours, &ports, &servers),
            Some((map, key, text)) => render(text, &ports, &servers)
                .map_err(|why| format!("the template `{key}` of ConfigMap `{map}`: {why}")),
        }
    }

    fn pod(&self, images: &Images) -> PodSpec {
        let image = self.wish.image.clone().unwrap_or_else(|| images.own.clone());
        let first = self.ports.first().map_or(API, |(port, _)| port.port);
        let command =
            [parts::AGENT, "operator", "sip", "haproxy", "--config", &format!("{CONFIG}/{KEY}"), "--run", RUN];
        let port = |port: &ContainerPort| PodPort {
            name: Some(port.name.clone()),
            container_port: port.port,
            ..PodPort::default()
        };
        let container = Container {
            name: "haproxy".to_owned(),
            image: Some(image),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            command: Some(command.map(str::to_owned).to_vec()),
            ports: Some(self.ports.iter().map(|(it, _)| port(it)).collect()),
            readiness_probe: Some(probes::of_readiness(parts::answers(first, 1, 5))),
            liveness_probe: Some(probes::of_life(parts::answers(first, 30, 20))),
            resources: Some(parts::resources("20m", "64Mi")),
            security_context: Some(parts::restricted()),
            volume_mounts: Some(vec![
                parts::mount("sip", "/sip", true),
                parts::mount("run", RUN, false),
                parts::mount("config", CONFIG, true),
            ]),
            ..Container::default()
        };
        let secret = SecretVolumeSource {
            secret_name: Some(self.infra.name(self.object)),
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        };
        let config = Volume { name: "config".to_owned(), secret: Some(secret), ..Volume::default() };
        let mut pod = PodSpec {
            // It asks nobody: what it knows is in its Secret.
            automount_service_account_token: Some(false),
            init_containers: Some(vec![parts::bring(&images.own)]),
            containers: vec![container],
            security_context: Some(parts::nobody(USER)),
            volumes: Some(vec![parts::empty("sip"), parts::empty("run"), config]),
            ..PodSpec::default()
        };
        self.place(&mut pod);
        pod
    }

    /// Where it runs: where the user says, else that of the API servers beside a control plane.
    fn place(&self, pod: &mut PodSpec) {
        if self.infra == Infra::ControlPlane {
            let toleration = |key: &str| Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                effect: Some("NoSchedule".to_owned()),
                ..Toleration::default()
            };
            pod.tolerations = Some(MASTERS.map(toleration).to_vec());
        }
        if !self.wish.node_labels.is_empty() {
            pod.node_selector = Some(self.wish.node_labels.clone());
        } else if self.infra == Infra::ControlPlane {
            pod.affinity = Some(beside_a_control_plane());
        }
    }
}

fn beside_a_control_plane() -> Affinity {
    let term = |key: &str| NodeSelectorTerm {
        match_expressions: Some(vec![NodeSelectorRequirement {
            key: key.to_owned(),
            operator: "Exists".to_owned(),
            values: None,
        }]),
        ..NodeSelectorTerm::default()
    };
    let selector = NodeSelector { node_selector_terms: MASTERS.map(term).to_vec() };
    let node_affinity =
        NodeAffinity { required_during_scheduling_ignored_during_execution: Some(selector), ..NodeAffinity::default() };
    Affinity { node_affinity: Some(node_affinity), ..Affinity::default() }
}
