//! The cluster of the box, laid out on disk and in the API as `kubeadm init` leaves it.
//!
//! ```text
//! Identity, Addresses --pki--> /etc/kubernetes/pki --kubeconfig--> /etc/kubernetes/*.conf
//! templates of the release --manifests, kubelet--> /etc/kubernetes/manifests, /var/lib/kubelet
//!                          --state-------> etcd, once; --objects--> API server (through `api`)
//! manifests of the release --apply--> API server, server-side apply; are they what they should be? (any cluster)
//! bpa_service, metrics_server, local_path: objects of parts of the box, the latter two for any cluster
//! checks, dns: is it really there?        renewal: certificates before they expire
//! follow: objects of the API server, as they change      probes: how patient the kubelet is
//! ```
//!
//! Nothing here starts a process: files are written, and the API server is spoken to.

pub mod api;
pub mod apply;
pub mod bpa_service;
pub mod checks;
pub mod cni;
pub mod dns;
pub mod follow;
pub mod kubeconfig;
pub mod kubelet;
pub mod local_path;
pub mod manifests;
pub mod metrics_server;
pub mod objects;
pub mod pki;
pub mod probes;
pub mod state;

use std::net::{IpAddr, Ipv4Addr};

/// Address of the cluster itself, on a dummy interface: there with no cable in.
pub const CLUSTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Interface that carries [`CLUSTER_ADDRESS`].
pub const CLUSTER_INTERFACE: &str = "foothold0";
/// Name of the node in the templates that kubeadm rendered at build time.
pub const TEMPLATE_NODE: &str = "foothold-node-name";
/// Address in those templates.
pub const TEMPLATE_ADDRESS: &str = "198.18.0.1";
/// Where the templates are.
pub const TEMPLATES: &str = "/usr/share/foothold/kubernetes";
/// DNS domain of the cluster, kubeadm's default.
pub const DNS_DOMAIN: &str = "cluster.local";

/// What a box puts into its certificates, kubeconfigs and manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the Node object, and host name.
    pub name: String,
    /// Address that the API server and etcd advertise.
    pub advertise: IpAddr,
    /// First address of the Service range: `kubernetes.default`.
    pub service_address: IpAddr,
    /// Further addresses under which the box is reached, sorted.
    pub site_addresses: Vec<IpAddr>,
}

impl Node {
    /// The API server as the box itself and its pods reach it.
    pub fn server(&self) -> String {
        match self.advertise {
            IpAddr::V4(v4) => format!("https://{v4}:{}", agent_api::ports::KUBERNETES_API),
            IpAddr::V6(v6) => format!("https://[{v6}]:{}", agent_api::ports::KUBERNETES_API),
        }
    }
}

/// The `n`th address of a range, such as the 1st of the Service range for the API, the 10th for DNS.
pub fn nth_address(cidr: &str, n: u32) -> Option<IpAddr> {
    agent_api::net::Cidr::parse(cidr)?.nth(n)
}

#[cfg(test)]
mod tests {
    use super::nth_address;

    #[test]
    fn addresses_are_counted_from_the_start_of_the_range() {
        let table = [
            ("10.96.0.0/12", 1, "10.96.0.1"),
            ("10.96.0.0/12", 10, "10.96.0.10"),
            ("10.100.3.0/12", 10, "10.96.0.10"),
            ("fd00:96::/112", 10, "fd00:96::a"),
        ];
        for (cidr, n, expected) in table {
            assert_eq!(nth_address(cidr, n).map(|ip| ip.to_string()).as_deref(), Some(expected), "{cidr} {n}");
        }
        assert_eq!(nth_address("nonsense", 1), None);
    }
}
