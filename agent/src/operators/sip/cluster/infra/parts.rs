//! What the objects of all services have in common. Pure.

use std::collections::BTreeMap;

use agent_api::sip::cluster::{ServiceWish, SipCluster};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
    ResourceRequirements, SeccompProfile, Secret, SecurityContext, Service, ServicePort, ServiceSpec, TCPSocketAction,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ObjectMeta;

use super::{Infra, PART_OF};
use crate::operators::kit::Object as _;

/// Where this program is in pods of whatever image: an init container brings it.
const BROUGHT: &str = "/sip";
/// The program there.
pub const AGENT: &str = "/sip/foothold-agent";

/// Labels of a service's objects and pods.
pub fn labels(infra: Infra, object: &SipCluster) -> BTreeMap<String, String> {
    let of = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    [
        of(PART_OF.0, PART_OF.1),
        of("app.kubernetes.io/name", infra.component()),
        of("app.kubernetes.io/component", infra.component()),
        of("app.kubernetes.io/instance", &infra.name(object)),
    ]
    .into()
}

/// An object of a service. It goes with the cluster.
pub fn metadata(infra: Infra, object: &SipCluster, name: String) -> ObjectMeta {
    let (namespace, _) = object.key();
    ObjectMeta {
        name: Some(name),
        namespace: Some(namespace),
        labels: Some(labels(infra, object)),
        owner_references: kube::Resource::controller_owner_ref(object, &()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// A Secret of a service.
pub fn secret<const N: usize>(infra: Infra, object: &SipCluster, data: [(&str, String); N]) -> Secret {
    let bytes = |(key, text): (&str, String)| (key.to_owned(), ByteString(text.into_bytes()));
    Secret {
        metadata: metadata(infra, object, infra.name(object)),
        data: Some(data.into_iter().map(bytes).collect()),
        ..Secret::default()
    }
}

/// Its Service: name of a port, port in the cluster, port of the pod's container, port of all nodes.
pub fn service(
    infra: Infra,
    object: &SipCluster,
    wish: &ServiceWish,
    ports: impl IntoIterator<Item = (String, i32, i32)>,
) -> Service {
    let port = |(name, port, node_port): (String, i32, i32)| ServicePort {
        name: Some(name),
        port,
        target_port: Some(IntOrString::Int(port)),
        node_port: Some(node_port),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    };
    Service {
        metadata: metadata(infra, object, infra.name(object)),
        spec: Some(ServiceSpec {
            type_: Some("NodePort".to_owned()),
            selector: Some(labels(infra, object)),
            cluster_ip: wish.cluster_ip.clone(),
            ports: Some(ports.into_iter().map(port).collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Its Deployment of one pod.
pub fn deployment(infra: Infra, object: &SipCluster, pod: PodSpec) -> Deployment {
    let labels = labels(infra, object);
    Deployment {
        metadata: metadata(infra, object, infra.name(object)),
        spec: DeploymentSpec {
            replicas: Some(1),
            selector: LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(pod),
            },
            ..DeploymentSpec::default()
        },
        status: None,
    }
}

/// What brings this program, for containers whose image has another one.
pub fn bring(image: &str) -> Container {
    Container {
        name: "bring".to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(["/usr/bin/foothold-agent", "operator", "sip", "bring", AGENT].map(str::to_owned).to_vec()),
        resources: Some(resources("10m", "16Mi")),
        security_context: Some(restricted()),
        volume_mounts: Some(vec![mount("sip", BROUGHT, false)]),
        ..Container::default()
    }
}

/// Who a pod is that is not root.
pub fn nobody(user: i64) -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(user),
        run_as_group: Some(user),
        fs_group: Some(user),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..PodSecurityContext::default()
    }
}

/// A container that gets no more rights, and writes to its volumes alone.
pub fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        ..SecurityContext::default()
    }
}

/// What is reserved for a container.
pub fn resources(cpu: &str, memory: &str) -> ResourceRequirements {
    let amounts = [("cpu", cpu), ("memory", memory)];
    let amounts = amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
    ResourceRequirements { requests: Some(amounts.into()), ..ResourceRequirements::default() }
}

/// Whether something listens on a port.
pub fn answers(port: i32, delay_secs: i32, period_secs: i32) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction { port: IntOrString::Int(port), ..TCPSocketAction::default() }),
        initial_delay_seconds: Some(delay_secs),
        period_seconds: Some(period_secs),
        ..Probe::default()
    }
}

/// A volume that is empty at first.
pub fn empty(name: &str) -> Volume {
    let medium =
        EmptyDirVolumeSource { size_limit: Some(Quantity("256Mi".to_owned())), ..EmptyDirVolumeSource::default() };
    Volume { name: name.to_owned(), empty_dir: Some(medium), ..Volume::default() }
}

/// Where a volume is seen.
pub fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}
