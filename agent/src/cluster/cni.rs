//! The network of pods on one node: a bridge, addresses handed out on the host, host ports.

use agent_api::net::Cidr;
use serde_json::json;

use super::nth_address;

/// Bridge of the pods.
pub const POD_BRIDGE: &str = "cni0";
/// Where containerd looks for it.
pub const PATH: &str = "/etc/cni/net.d/10-foothold.conflist";
/// Prefix length of one node's part (kube-controller-manager, `--node-cidr-mask-size-ipv4` and `-ipv6`).
const NODE_PREFIX: (u8, u8) = (24, 64);

/// The configuration list (CNI specification 1.0, section 1). The first node has the first part of the
/// range, as the controller manager hands it out.
///
/// Addresses in use are kept in memory: after a power cut no pod is there, and no address is taken.
/// Masquerading is the firewall's, which needs no chain for each pod.
pub fn config(pod_cidr: &str) -> Option<String> {
    let cidr = Cidr::parse(pod_cidr)?;
    let (node, everywhere) =
        if cidr.address.is_ipv4() { (NODE_PREFIX.0, "0.0.0.0/0") } else { (NODE_PREFIX.1, "::/0") };
    let subnet = format!("{}/{}", nth_address(pod_cidr, 0)?, cidr.prefix.max(node));
    let config = json!({
        "cniVersion": "1.0.0",
        "name": "foothold",
        "plugins": [
            {
                "type": "bridge",
                "bridge": POD_BRIDGE,
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni/networks",
                    "ranges": [[{"subnet": subnet}]],
                    "routes": [{"dst": everywhere}],
                },
            },
            {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}},
        ],
    });
    serde_json::to_string_pretty(&config).ok().map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::config;

    #[test]
    fn a_node_has_the_first_part_of_the_range() {
        let table = [
            ("10.244.0.0/16", "10.244.0.0/24"),
            ("10.244.7.0/25", "10.244.7.0/25"),
            ("fd00:244::/48", "fd00:244::/64"),
        ];
        for (range, subnet) in table {
            let text = config(range).expect("a configuration");
            assert!(text.contains(&format!("\"subnet\": \"{subnet}\"")), "{text}");
        }
        assert_eq!(config("pods"), None);
    }
}
