//! The steps of the booted box, in the order in which they are shown. Those of its services stand with them
//! ([`crate::services`]).

use agent_api::events::{Phase, PhaseWord};

use crate::steps::Step;

const AGENT_LOG: &str = "journalctl -u foothold-agent";
const KUBELET_LOG: &str = "journalctl -u kubelet";
const PODS_LOG: &str = "/var/log/pods";

macro_rules! steps {
    ($($(#[$doc:meta])* $id:ident = $phase:ident $name:expr, $next:literal, $log:expr;)*) => {
        $($(#[$doc])* pub const $id: Step =
            Step { phase: PhaseWord::new(Phase::$phase.name()), name: $name, next: $next, log: $log };)*
        /// Every step, in the order in which they are shown.
        pub const ALL: &[&Step] = &[$(&$id),*];
    };
}

steps! {
    /// What is particular to this place.
    SITE = Identity "site", "correct `site.yaml` (the message names the line) and plug it in again; it is read anew", AGENT_LOG;
    /// A Site that was seen and is not used.
    OTHER_SITE = Identity "other-site", "send the Site by REST, or sign it; what is wrong with it is in the cause", AGENT_LOG;
    /// The name of host and node.
    HOSTNAME = Identity "hostname", "it is tried again", AGENT_LOG;
    /// `/etc/kubernetes` in DATA.
    ETC_KUBERNETES = Identity "etc-kubernetes", "check DATA: `dmesg` names the disk", AGENT_LOG;
    /// Modules and settings of the kernel for pods.
    KERNEL = Network "kernel", "it is tried again", "dmesg";
    /// The cluster's own address.
    CLUSTER_ADDRESS = Network "cluster-address", "it is tried again", "dmesg";
    /// Interfaces of the site.
    INTERFACES = Network "interfaces", "it is tried again", "journalctl -u systemd-networkd";
    /// No network of the site is one of the cluster's.
    OVERLAP = Network "overlap", "give the site another network, or build the image with another `podCIDR` or `serviceCIDR`", "journalctl -u systemd-networkd";
    /// The address the cluster advertises.
    ADVERTISE = Network "advertise-address", "give an interface an address in `networks.controlPlane.cidrs`; a cluster keeps the one that it was made with: by a fixed lease, or in Site", "journalctl -u systemd-networkd";
    /// Where names are asked.
    NAME_SERVICE = Network "name-service", "it is tried again", "journalctl -u systemd-resolved";
    /// Who may come in.
    FIREWALL = Network "firewall", "it is tried again", AGENT_LOG;
    /// Time sources.
    CLOCK = Time "sources", "it is tried again", "journalctl -u chrony";
    /// Blobs of the release.
    BLOBS = Content "blobs", "write the image to the medium again", AGENT_LOG;
    /// The state of the container runtime.
    CONTAINERD_STATE = Runtime "containerd-state", "it is made anew", AGENT_LOG;
    /// How pods are connected.
    CNI = Runtime "cni", "it is tried again", AGENT_LOG;
    /// The container runtime itself.
    CONTAINERD = Runtime "containerd", "it is started again", "journalctl -u containerd";
    /// Keys, certificates and kubeconfigs.
    CERTIFICATES = ControlPlane "certificates", "it is tried again; a lost authority needs its files back from a backup", AGENT_LOG;
    /// Settings of the kubelet and static pods.
    MANIFESTS = ControlPlane "manifests", "it is tried again", AGENT_LOG;
    /// What a new cluster begins with.
    STATE = ControlPlane "state", "the API server creates it piece by piece", PODS_LOG;
    /// Nobody asks the API server before it can answer.
    GATE = ControlPlane "gate", "it is tried again", AGENT_LOG;
    /// The kubelet.
    KUBELET = ControlPlane "kubelet", "it is started again", KUBELET_LOG;
    /// The API server answers.
    API_SERVER = ControlPlane "api-server", "the kubelet restarts etcd and kube-apiserver", PODS_LOG;
    /// Now everybody may ask it.
    GATE_OPEN = ControlPlane "gate-open", "it is tried again", AGENT_LOG;
    /// The control plane may work while its roles are created.
    GRANT = ControlPlane "grant", "it is tried again", PODS_LOG;
    /// Roles that its clients need.
    ROLES = ControlPlane "roles", "the API server tries again", PODS_LOG;
    /// Controller manager and scheduler.
    CONTROLLERS = ControlPlane "controllers", "it is tried again", PODS_LOG;
    /// What kubeadm adds.
    OBJECTS = Addons "objects", "it is tried again", PODS_LOG;
    /// Labels of the node.
    NODE_LABELS = Addons "node-labels", "it is tried again", KUBELET_LOG;
    /// All pods of CoreDNS, which begins with one; behind `ready`.
    COREDNS = Addons "coredns", "it is tried again", PODS_LOG;
    /// A way in, if Site gives keys.
    SSH = Services "ssh", "it is tried again", "journalctl -u ssh";
    /// Services of the host that wait for the cluster. Those of the box itself come next ([`all`]).
    HOST_SERVICES = Services "host-services", "it is tried again", "journalctl -b";
    /// What the release declares beside the cluster itself.
    SITE_OBJECTS = Services "site-objects", "it is tried again; an object that the API server calls wrong must be corrected in the definition, and the image built again", AGENT_LOG;
    /// Each of these objects does what it is for.
    SITE_HEALTH = Services "site-health", "the check is repeated; `kubectl describe` the object that is named, or read `objects` of the status", PODS_LOG;
    /// `/readyz`.
    READYZ = Ready "readyz", "the check is repeated", PODS_LOG;
    /// The node.
    NODE = Ready "node", "the check is repeated", KUBELET_LOG;
    /// Every pod of `kube-system`.
    PODS = Ready "pods", "the check is repeated", PODS_LOG;
    /// A name through CoreDNS.
    DNS = Ready "dns", "the check is repeated", PODS_LOG;
    /// An answer through a Service address.
    SERVICE = Ready "service-address", "the check is repeated", PODS_LOG;
    /// An image of the release in the registry.
    IMAGES = Ready "registry", "the check is repeated", PODS_LOG;
    /// A file of the release over HTTP.
    FILES = Ready "content", "the check is repeated", AGENT_LOG;
    /// No damage of the medium is known.
    MEDIUM = Ready "medium", "write the image to a new medium (`foothold write`) and start from it", "dmesg";
    /// Everything.
    READY = Ready "ready", "the checks are repeated", AGENT_LOG;
}

/// Every step of a box that has these services, in the order in which they are shown.
pub fn all(services: impl Iterator<Item = &'static Step>) -> Vec<&'static Step> {
    let before = ALL.iter().position(|step| **step == HOST_SERVICES).map_or(ALL.len(), |at| at + 1);
    ALL[..before].iter().copied().chain(services).chain(ALL[before..].iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::{ALL, Phase, all};
    use crate::services::{dhcp, ironic, metal3, registry};

    #[test]
    fn steps_are_listed_by_phase_and_each_once() {
        let at = |step: &super::Step| Phase::ALL.iter().position(|phase| phase.name() == step.phase.name());
        let all = all([&registry::STEP, &ironic::STEP, &metal3::STEP, &dhcp::STEP].into_iter());
        assert!(all.iter().all(|step| at(step).is_some()));
        assert!(all.windows(2).all(|pair| at(pair[0]) <= at(pair[1])));
        let mut names: Vec<_> = all.iter().map(|step| (step.phase, step.name)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len() + 4);
    }
}
