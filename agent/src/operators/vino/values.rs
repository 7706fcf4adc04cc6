//! The values of a node, made from the spec and from the addresses that were given. Pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use agent_api::net::Cidr;
use agent_api::vino::pool::{AllocatedIp, Range};
use agent_api::vino::spec::{BRIDGE, Network, NodeSet, Vino};
use agent_api::vino::values::{
    CpuValues, DiskValues, DomainValues, Flavor, InterfaceValues, Named, NetworkValues, NodeValues, RangeValues,
    RouteValues, VncValues,
};

use super::decide::host_name;
use super::objects::Names;
use crate::operators::kit::{Object as _, told_key};

/// Addresses that were given, of all networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Those of bridges, by network and node.
    pub bridges: BTreeMap<(String, String), AllocatedIp>,
    /// Pieces for DHCP, by network and node.
    pub pieces: BTreeMap<(String, String), Range>,
    /// Those of machines, by network and host.
    pub machines: BTreeMap<(String, String), AllocatedIp>,
}

/// What all nodes have in common.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// Sizes, by kind of machine.
    pub flavors: BTreeMap<String, Flavor>,
    /// Nodes.
    pub node_count: usize,
    /// Templates of libvirt.
    pub templates: Option<Named>,
    /// Credentials of Redfish.
    pub credentials: Option<Named>,
    /// Namespace of the hosts.
    pub namespace: String,
}

/// The mask of a subnet of IPv4, such as `255.255.255.0`.
fn netmask(subnet: &str) -> Option<String> {
    let cidr = Cidr::parse(subnet)?;
    let IpAddr::V4(_) = cidr.address else { return None };
    let mask = u32::MAX.checked_shl(32 - u32::from(cidr.prefix)).unwrap_or(0);
    Some(Ipv4Addr::from_bits(mask).to_string())
}

fn network(asked: &Network, node: &str, addresses: &Addresses) -> NetworkValues {
    let at = (asked.name.clone(), node.to_owned());
    let bridge = addresses.bridges.get(&at).cloned().unwrap_or_default();
    let gateway = |text: &String| if text == BRIDGE { bridge.ip.clone() } else { text.clone() };
    let route = |route: &agent_api::vino::spec::VmRoute| RouteValues {
        network: route.network.clone(),
        netmask: route.netmask.clone(),
        gateway: gateway(&route.gateway),
    };
    let piece = |range: &Range| RangeValues { start: range.start.clone(), stop: range.stop.clone() };
    NetworkValues {
        name: asked.name.clone(),
        kind: asked.kind.clone(),
        subnet: asked.subnet.clone(),
        netmask: netmask(&asked.subnet),
        range: addresses.pieces.get(&at).map(piece),
        bridge_ip: bridge.ip.clone(),
        bridge_mac: bridge.mac.clone(),
        bridge_name: asked.bridge_name.clone(),
        physical_interface: asked.physical_interface.clone(),
        libvirt_template: asked.libvirt_template.clone(),
        dns_servers: asked.dns_servers.clone(),
        routes: asked.routes.iter().map(route).collect(),
    }
}

fn domain(
    object: &Vino,
    node: &str,
    set: &NodeSet,
    name: &str,
    common: &Common,
    addresses: &Addresses,
) -> DomainValues {
    let host = host_name(object, node, name);
    let interface = |asked: &agent_api::vino::spec::NetworkInterface| {
        let given = addresses.machines.get(&(asked.network.clone(), host.clone())).cloned().unwrap_or_default();
        InterfaceValues {
            name: asked.name.clone(),
            kind: asked.kind.clone(),
            network: asked.network.clone(),
            mtu: asked.mtu,
            options: asked.options.clone(),
            ip_address: given.ip,
            mac_address: given.mac,
        }
    };
    let interfaces: Vec<InterfaceValues> = set.network_interfaces.iter().map(interface).collect();
    let boot = interfaces.iter().find(|interface| Some(interface.name.as_str()) == set.boot_interface());
    let disk = |disk: &agent_api::vino::spec::DiskDrive| {
        let options = disk.options.unwrap_or_default();
        DiskValues {
            name: disk.name.clone(),
            kind: disk.kind.clone(),
            path: disk.path.clone(),
            size_gb: options.size_gb,
            sparse: options.sparse,
        }
    };
    DomainValues {
        name: name.to_owned(),
        role: set.name.clone(),
        flavor: common.flavors.get(&set.name).cloned().unwrap_or_default(),
        boot_mac_address: boot.map(|interface| interface.mac_address.clone()).unwrap_or_default(),
        enable_vnc: set.enable_vnc,
        vnc: set.enable_vnc.then(|| VncValues { secret: Names::of(object).vnc, key: host.clone() }),
        interfaces,
        disk_drives: set.disk_drives.iter().map(disk).collect(),
        root_device_name: set.root_device().to_owned(),
        host: format!("{}/{host}", common.namespace),
    }
}

/// The values of a node: the `wanted` machines, and the `lasting` ones whose hosts are not gone yet.
///
/// # Errors
/// Only if the values cannot be written as JSON, which does not happen.
pub fn of_node(
    object: &Vino,
    node: &str,
    (wanted, lasting): (&[(usize, String)], &[DomainValues]),
    common: &Common,
    addresses: &Addresses,
) -> Result<NodeValues, serde_json::Error> {
    let sets = &object.spec.nodes;
    let made =
        wanted.iter().filter_map(|(at, name)| Some(domain(object, node, sets.get(*at)?, name, common, addresses)));
    let mut domains: Vec<DomainValues> = made.chain(lasting.iter().cloned()).collect();
    domains.sort_by(|one, other| one.name.cmp(&other.name));
    let configuration = object.spec.configuration.clone().unwrap_or_default();
    NodeValues {
        vino: told_key(&object.key()),
        generation: object.metadata.generation.unwrap_or_default(),
        hash: String::new(),
        pxe_boot_image_host: object.spec.pxe_boot_image_host.clone(),
        pxe_boot_image_host_port: object.spec.pxe_boot_image_host_port,
        networks: object.spec.networks.iter().map(|asked| network(asked, node, addresses)).collect(),
        configuration: CpuValues { cpu_exclude: configuration.cpu_exclude },
        domains,
        node_count: common.node_count,
        templates: common.templates.clone(),
        credentials: common.credentials.clone(),
    }
    .sealed()
}

/// The values of a node that is not asked for any more: the machines that still last.
///
/// # Errors
/// Only what cannot be written as JSON, which values never are.
pub fn leaving(before: &NodeValues, lasting: &[String]) -> Result<NodeValues, serde_json::Error> {
    let mut values = before.clone();
    values.domains.retain(|domain| lasting.contains(&domain.name));
    if values.domains.is_empty() {
        values.networks.clear();
        // What is only removed needs no template, and one that is wrong must not stop it.
        (values.templates, values.credentials) = (None, None);
    }
    values.sealed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Vino {
        let mut object: Vino =
            serde_saphyr::from_str(include_str!("../../../tests/fixtures/vino/vino.yaml")).expect("a Vino");
        object.metadata.namespace = Some("default".to_owned());
        object
    }

    fn addresses(node: &str, first: u8) -> Addresses {
        let ip = |number: u8| AllocatedIp {
            ip: format!("192.168.2.{number}"),
            mac: format!("52:54:00:06:00:{number:02x}"),
            ..AllocatedIp::default()
        };
        let at = || ("management".to_owned(), node.to_owned());
        let host = host_name(&object(), node, "worker-0");
        Addresses {
            bridges: [(at(), ip(first))].into(),
            pieces: [(at(), Range { start: "192.168.4.0".to_owned(), stop: "192.168.4.63".to_owned() })].into(),
            machines: [(("management".to_owned(), host), ip(first + 1))].into(),
        }
    }

    fn made(node: &str, first: u8) -> NodeValues {
        let flavors =
            [("worker".to_owned(), Flavor { vcpus: 1, memory: 2, root_size: 10, ..Flavor::default() })].into();
        let common = Common { flavors, node_count: 2, namespace: "vino-system".to_owned(), ..Common::default() };
        let wanted = [(1, "worker-0".to_owned())];
        of_node(&object(), node, (&wanted, &[]), &common, &addresses(node, first)).expect("values")
    }

    #[test]
    fn a_node_has_its_own_bridge_as_gateway_whatever_another_one_has() {
        let (one, other) = (made("n1", 10), made("n2", 20));
        let gateway = |values: &NodeValues| values.networks[0].routes[0].gateway.clone();
        assert_eq!((gateway(&one).as_str(), gateway(&other).as_str()), ("192.168.2.10", "192.168.2.20"));
        assert_eq!(object().spec.networks[0].routes[0].gateway, BRIDGE, "what is asked for stays as it is");
        assert_eq!(one.networks[0].netmask.as_deref(), Some("255.255.240.0"));
        let domain = &one.domains[0];
        assert_eq!(domain.boot_mac_address, "52:54:00:06:00:0b");
        assert_eq!(domain.host, "vino-system/default-vino-test-cr-n1-worker-0");
        assert!(one.hash.len() == 64 && one.hash != other.hash && one.vino == "default/vino-test-cr");
    }

    #[test]
    fn what_leaves_keeps_its_networks_as_long_as_a_machine_lasts() {
        let named = || Some(Named { name: "default-v-libvirt".to_owned(), version: "1".to_owned() });
        let before = NodeValues { templates: named(), credentials: named(), ..made("n1", 10) };
        let lasting = leaving(&before, &["worker-0".to_owned()]).expect("values");
        assert_eq!((lasting.domains.len(), lasting.networks.len()), (1, 1));
        assert_eq!(lasting.templates, named());
        let empty = leaving(&before, &[]).expect("values");
        assert!(empty.domains.is_empty() && empty.networks.is_empty() && empty.hash != before.hash);
        assert_eq!((empty.templates, empty.credentials), (None, None), "a template that is wrong stops nothing");
    }

    #[test]
    fn a_subnet_of_ipv6_has_no_mask() {
        assert_eq!(netmask("fd00::/64"), None);
        assert_eq!(netmask("10.0.0.0/0").as_deref(), Some("0.0.0.0"));
    }
}
