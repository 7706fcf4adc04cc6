//! The rules of nftables, made from the list of declared ports. Pure text.

use std::fmt::Write;
use std::net::IpAddr;

use agent_api::ports::{OpenWhen, PORTS, Port, Protocol};

use crate::cluster::CLUSTER_INTERFACE;
use crate::cluster::cni::POD_BRIDGE;
use crate::vino_node::BRIDGES;

/// What decides which ports are open.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
pub struct Wanted<'a> {
    /// Whether Site gives ssh keys.
    pub ssh: bool,
    /// Whether the release serves time.
    pub ntp: bool,
    /// Whether the release declares provisioning.
    pub provisioning: bool,
    /// Whether the release declares tenant clusters, which are reached at ports of the node.
    pub node_ports: bool,
    /// Addresses of pods.
    pub pod_cidr: &'a str,
}

fn is_open(port: &Port, wanted: &Wanted<'_>) -> bool {
    match port.when {
        OpenWhen::Always => true,
        OpenWhen::SshKeys => wanted.ssh,
        OpenWhen::NtpServe => wanted.ntp,
        OpenWhen::Provisioning => wanted.provisioning,
    }
}

/// kube-proxy has led them to a pod by the time that they are forwarded; what they were sent to is remembered.
const NODE_PORTS: &str =
    "\t\tmeta l4proto tcp ct status dnat ct original proto-dst 30000-32767 accept comment \"ports of nodes\"\n";

/// The whole table, replaced in one transaction by `nft -f -`.
///
/// It is a table of its own: kube-proxy's and those of CNI plugins are beside it, and a packet must
/// be let through by all. From the site only declared ports are reached: also a NodePort, whose
/// packets are forwarded, stays closed unless tenant clusters are declared. Pods, and the box itself, reach everything.
pub fn ruleset(wanted: &Wanted<'_>) -> String {
    let mut text = format!(
        "table inet foothold
delete table inet foothold
table inet foothold {{
	chain input {{
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		ct state invalid drop
		iifname {{ \"lo\", \"{CLUSTER_INTERFACE}\", \"{POD_BRIDGE}\" }} accept
		meta l4proto {{ 1, 58 }} accept comment \"ICMP and ICMPv6\"
		udp dport 68 accept comment \"DHCP client\"
		iifgroup {BRIDGES} udp dport {{ 67, 547 }} accept comment \"DHCP of virtual machines\"
		ip6 saddr fe80::/10 udp dport 546 accept comment \"DHCPv6 client\"
"
    );
    for port in PORTS.iter().filter(|port| is_open(port, wanted)) {
        let protocol = match port.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        let _ = writeln!(text, "\t\t{protocol} dport {} accept comment \"{}\"", port.number, port.name);
    }
    let _ = write!(
        text,
        "	}}
	chain forward {{
		type filter hook forward priority filter; policy drop;
		ct state established,related accept
		iifname \"{POD_BRIDGE}\" accept
		iifgroup {BRIDGES} oifgroup {BRIDGES} accept comment \"between virtual machines\"
{node_ports}	}}
	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr {pods} ip daddr != {pods} oifname != \"{POD_BRIDGE}\" masquerade
	}}
}}
",
        node_ports = if wanted.node_ports { NODE_PORTS } else { "" },
        pods = wanted.pod_cidr
    );
    text
}

/// A table that lets no new connection through to the API server at `address`.
///
/// While the API server starts, the kubelet and the rest would be refused and come back ever later,
/// each time for the price of a failed start. Behind this gate their first attempt just waits: the
/// kernel repeats it each second, and it arrives as soon as the gate is opened. The agent itself,
/// and the API server's calls to itself, come by the loopback address.
pub fn gate(address: IpAddr, port: u16) -> String {
    let family = if address.is_ipv4() { "ip" } else { "ip6" };
    format!(
        "table inet {GATE}
delete table inet {GATE}
table inet {GATE} {{
	chain input {{
		type filter hook input priority filter - 10; policy accept;
		{family} daddr {address} tcp dport {port} tcp flags & (syn | ack) == syn drop
	}}
}}
"
    )
}

/// Takes the gate away, whether it is there or not.
pub fn open_gate() -> String {
    format!("table inet {GATE}\ndelete table inet {GATE}\n")
}

/// A table that leads from the Service address of the API server to the API server.
///
/// Pods that need it start beside kube-proxy, and would otherwise wait for it, each ever longer.
pub fn shortcut(service: IpAddr, address: IpAddr, port: u16) -> String {
    let family = if address.is_ipv4() { "ip" } else { "ip6" };
    let target = std::net::SocketAddr::new(address, port);
    format!(
        "table inet {SHORTCUT}
delete table inet {SHORTCUT}
table inet {SHORTCUT} {{
	chain prerouting {{
		type nat hook prerouting priority dstnat - 10; policy accept;
		{family} daddr {service} tcp dport 443 dnat {family} to {target}
	}}
}}
"
    )
}

/// Takes it away, whether it is there or not.
pub fn end_shortcut() -> String {
    format!("table inet {SHORTCUT}\ndelete table inet {SHORTCUT}\n")
}

/// Name of the gate's table.
const GATE: &str = "foothold_gate";
/// Name of the shortcut's table.
const SHORTCUT: &str = "foothold_shortcut";

#[cfg(test)]
mod tests {
    use super::{Wanted, gate, ruleset, shortcut};

    #[test]
    fn the_gate_stops_only_new_connections_to_one_address() {
        let text = gate([198, 18, 0, 1].into(), 6443);
        assert!(text.contains("ip daddr 198.18.0.1 tcp dport 6443 tcp flags & (syn | ack) == syn drop\n"), "{text}");
        assert!(gate("fd00::1".parse().expect("an address"), 6443).contains("ip6 daddr fd00::1 "));
    }

    #[test]
    fn the_shortcut_leads_one_address_to_one_place() {
        let text = shortcut([10, 96, 0, 1].into(), [198, 18, 0, 1].into(), 6443);
        assert!(text.contains("ip daddr 10.96.0.1 tcp dport 443 dnat ip to 198.18.0.1:6443\n"), "{text}");
    }

    #[test]
    fn only_declared_ports_are_open() {
        let closed = ruleset(&Wanted {
            ssh: false,
            ntp: false,
            provisioning: false,
            node_ports: false,
            pod_cidr: "10.244.0.0/16",
        });
        insta::assert_snapshot!(closed);
        let open =
            ruleset(&Wanted { ssh: true, ntp: true, provisioning: true, node_ports: true, pod_cidr: "10.244.0.0/16" });
        assert!(open.contains("tcp dport 22 accept") && open.contains("udp dport 123 accept"));
        assert!(open.contains("tcp dport 6385 accept") && !closed.contains("dport 6385 "));
        assert!(open.contains("ct original proto-dst 30000-32767 accept") && !closed.contains("30000"));
        assert!(!closed.contains("dport 22 ") && !closed.contains("dport 123 "));
    }
}
