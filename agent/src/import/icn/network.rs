//! Networks of a host: those of the machine chart as `OpenStack`'s `network_data`, and what both files may have wrong.

use std::net::IpAddr;

use agent_api::net::Cidr;
use serde_json::{Map, Value, json};

use super::Problem;
use super::machine::{MAC_EXPECTED, mac};
use super::node::{At, Node, Table};
use crate::ramdisk::network_data::{PREFIXES, prefix_of};

/// The link on which hosts are Kubernetes nodes.
const NODE_LINK: &str = "baremetal";

/// A gateway, where a file has it.
struct Gateway<'a> {
    at: At<'a>,
    link: String,
    address: IpAddr,
}

impl Gateway<'_> {
    /// Reports a gateway that the host cannot reach. `networks`: all of the host, as `network_data` has them.
    fn check(&self, networks: &[Value], problems: &mut Vec<Problem>) {
        let Some(expected) = self.beyond(networks) else { return };
        problems.push(self.at.problem(format!("`{}`", self.address), &expected));
    }

    /// What was expected instead of it; none of a gateway that one of its link's networks has.
    fn beyond(&self, networks: &[Value]) -> Option<String> {
        // A router of IPv6 is mostly known by this one.
        if matches!(self.address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            return None;
        }
        let family = if self.address.is_ipv4() { "ipv4" } else { "ipv6" };
        let on_link = || networks.iter().filter(|network| network["link"] == self.link.as_str());
        // Where addresses come from outside, nobody knows here which subnet they are of.
        let kind = |network: &Value| network["type"].as_str().unwrap_or_default().to_owned();
        if on_link().map(kind).any(|kind| kind.starts_with(family) && kind != family) {
            return None;
        }
        let subnets: Vec<Cidr> =
            on_link().filter_map(subnet).filter(|it| it.address.is_ipv4() == self.address.is_ipv4()).collect();
        if subnets.iter().any(|own| own.address == self.address) {
            return Some("another address than the host's own".to_owned());
        }
        if subnets.iter().any(|own| own.contains(self.address)) {
            return None;
        }
        let known = subnets.iter().map(|own| format!("`{}`", own.network())).collect::<Vec<_>>().join(" or ");
        let family = if self.address.is_ipv4() { "IPv4" } else { "IPv6" };
        Some(if known.is_empty() {
            format!("none, for the link has no {family} address")
        } else {
            format!("an address in {known}")
        })
    }
}

/// The subnet of a fixed network: `10.0.0.2/24`, or an address with `netmask`, a mask or a length.
fn subnet(network: &Value) -> Option<Cidr> {
    let text = network["ip_address"].as_str()?;
    if let Some(cidr) = Cidr::parse(text) {
        return Some(cidr);
    }
    let address: IpAddr = text.parse().ok()?;
    let mask = &network["netmask"];
    let length = prefix_of(&mask.as_str().map_or_else(|| mask.to_string(), str::to_owned));
    // What the converter takes where nothing is said.
    let prefix = length.unwrap_or(if address.is_ipv4() { PREFIXES.0 } else { PREFIXES.1 });
    Cidr::parse(&format!("{address}/{prefix}"))
}

/// Checks `network_data` that stands in a file as it is: links of networks, and gateways. Its other faults are found by
/// who reads it.
pub(super) fn check(net: &At<'_>, problems: &mut Vec<Problem>) {
    let data = net.node.json();
    let links = data["links"].as_array().map(Vec::as_slice).unwrap_or_default();
    let all = data["networks"].as_array().map(Vec::as_slice).unwrap_or_default();
    for network in fields(net, "networks").iter().flat_map(items) {
        let link = fields(&network, "link").into_iter().next();
        let id = link.as_ref().and_then(|it| it.node.json().as_str().map(str::to_owned)).unwrap_or_default();
        if let Some(link) = link.filter(|_| !links.iter().any(|link| link["id"] == id.as_str())) {
            problems.push(link.problem(link.found(), "the `id` of one of `links`"));
            continue;
        }
        let routes = fields(&network, "routes");
        let of_routes = routes.iter().flat_map(items).flat_map(|route| fields(&route, "gateway"));
        for at in fields(&network, "gateway").into_iter().chain(of_routes) {
            let address = at.node.json().as_str().and_then(|text| text.parse().ok());
            if let Some(address) = address {
                Gateway { at, link: id.clone(), address }.check(all, problems);
            }
        }
    }
}

/// The value of a key, if there is a table with it.
fn fields<'a>(at: &At<'a>, key: &str) -> Vec<At<'a>> {
    let Node::Table(_) = at.node else { return Vec::new() };
    let entries = at.entries(&mut Vec::new()).unwrap_or_default();
    entries.into_iter().filter(|(name, _)| *name == key).map(|(_, it)| it).collect()
}

/// Members, if it is a list.
fn items<'a>(at: &At<'a>) -> Vec<At<'a>> {
    if let Node::List(_) = at.node { at.list(&mut Vec::new()).unwrap_or_default() } else { Vec::new() }
}

/// `networkData`: links, networks by kind, name servers.
pub(super) fn network_data(at: &At<'_>, notes: &mut Vec<String>, problems: &mut Vec<Problem>) -> Option<Value> {
    let mut table = at.table(problems)?;
    let links = table.optional("links").and_then(|it| ethernets(&it, problems)).unwrap_or_default();
    let (mut listed, mut gateways) = (Vec::new(), Vec::new());
    if let Some(mut kinds) = table.optional("networks").and_then(|it| it.table(problems)) {
        for (key, kind) in [("ipv4DHCP", "ipv4_dhcp"), ("ipv4", "ipv4"), ("ipv6DHCP", "ipv6_dhcp"), ("ipv6", "ipv6")] {
            for (id, it) in kinds.optional(key).and_then(|it| it.entries(problems)).unwrap_or_default() {
                let Some(mut network) = it.table_or_nothing(problems) else { continue };
                let known = |text: &str| links.iter().any(|link| link["id"] == text).then(|| text.to_owned());
                let link = match network.optional("link") {
                    Some(link) => link.read("a link of `links.ethernets`", problems, known),
                    // The link is the name; in the first charts with `_nic`.
                    None => known(id).or_else(|| known(&format!("{id}_nic"))),
                };
                let on = link.as_deref().unwrap_or_default();
                let (listing, gateway) = address(id, kind, on, &mut network, problems);
                match link {
                    Some(_) => {
                        listed.push(listing);
                        gateways.extend(gateway);
                    }
                    // A host's card is known by its link: without one, nothing comes of the network.
                    None => notes.push(format!(
                        "{}:{}: `{}` is left out: it has no `link`, and no link of its name is in `links.ethernets`",
                        it.file, it.line, it.key
                    )),
                }
                network.end(problems);
            }
        }
        kinds.end(problems);
    }
    let mut services = Vec::new();
    if let Some(mut declared) = table.optional("services").and_then(|it| it.table(problems)) {
        services = declared.optional("dns").map(|it| dns(&it, problems)).unwrap_or_default();
        declared.end(problems);
    }
    table.end(problems);
    for gateway in &gateways {
        gateway.check(&listed, problems);
    }
    Some(json!({ "links": links, "networks": listed, "services": services }))
}

/// What the chart has as the node's addresses: the fixed ones of the link `baremetal`, IPv4 first, each kind by name.
pub(super) fn node_ip(data: &Value) -> Option<String> {
    let networks = data["networks"].as_array()?;
    let mut found = Vec::new();
    for kind in ["ipv4", "ipv6"] {
        let of_kind = networks.iter().filter(|it| it["type"] == kind && it["link"] == NODE_LINK);
        let mut named: Vec<_> =
            of_kind.filter_map(|it| Some((it["id"].as_str()?, it["ip_address"].as_str()?))).collect();
        named.sort_unstable();
        found.extend(named.into_iter().map(|(_, address)| address.split('/').next().unwrap_or_default()));
    }
    (!found.is_empty()).then(|| found.join(","))
}

fn ethernets(at: &At<'_>, problems: &mut Vec<Problem>) -> Option<Vec<Value>> {
    let mut table = at.table(problems)?;
    let ethernets = table.optional("ethernets").and_then(|it| it.entries(problems)).unwrap_or_default();
    table.end(problems);
    let mut links = Vec::new();
    for (id, it) in ethernets {
        let Some(mut link) = it.table(problems) else { continue };
        let address = link.required("macAddress", MAC_EXPECTED, problems);
        let address = address.and_then(|it| it.read(MAC_EXPECTED, problems, mac));
        link.end(problems);
        links.push(json!({ "id": id, "type": "phy", "ethernet_mac_address": address }));
    }
    Some(links)
}

/// `networks` of the first R6: link and network in one.
pub(super) fn networks(at: &At<'_>, problems: &mut Vec<Problem>) -> Option<Value> {
    let (mut links, mut listed, mut services, mut gateways) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let kinds = |text: &str| matches!(text, "ipv4" | "ipv4_dhcp" | "ipv6" | "ipv6_dhcp").then(|| text.to_owned());
    for (id, it) in at.entries(problems)? {
        let Some(mut network) = it.table(problems) else { continue };
        let link = network.required("macAddress", MAC_EXPECTED, problems);
        let link = link.and_then(|it| it.read(MAC_EXPECTED, problems, mac));
        let expected = "`ipv4`, `ipv4_dhcp`, `ipv6` or `ipv6_dhcp`";
        let kind = network.required("type", expected, problems);
        let kind = kind.and_then(|it| it.read(expected, problems, kinds)).unwrap_or_default();
        // Of one card there is one link, whatever it has.
        let first = links.iter().find(|it: &&Value| link.is_some() && it["ethernet_mac_address"] == json!(link));
        let on = first.map_or(id, |it| it["id"].as_str().unwrap_or(id)).to_owned();
        if first.is_none() {
            links.push(json!({ "id": id, "type": "phy", "ethernet_mac_address": link }));
        }
        let (listing, gateway) = address(id, &kind, &on, &mut network, problems);
        listed.push(listing);
        gateways.extend(gateway);
        if let Some(servers) = network.optional("nameservers") {
            services.extend(dns(&servers, problems));
        }
        network.end(problems);
    }
    for gateway in &gateways {
        gateway.check(&listed, problems);
    }
    Some(json!({ "links": links, "networks": listed, "services": services }))
}

/// A network, and its gateway; a fixed one has an address with its prefix length.
fn address<'a>(
    id: &str,
    kind: &str,
    link: &str,
    from: &mut Table<'a>,
    problems: &mut Vec<Problem>,
) -> (Value, Option<Gateway<'a>>) {
    let mut network = Map::new();
    for (key, value) in [("id", id), ("type", kind), ("link", link)] {
        network.insert(key.into(), json!(value));
    }
    let expected = "an address with its prefix length, such as `10.0.0.2/24`";
    let cidr = |text: &str| Cidr::parse(text).map(|_| text.to_owned());
    let asks = kind.ends_with("dhcp");
    let address = if asks {
        if let Some(it) = from.optional("ipAddress") {
            problems.push(it.problem("an address".into(), "none in a network with DHCP"));
        }
        None
    } else {
        from.required("ipAddress", expected, problems).and_then(|it| it.read(expected, problems, cidr))
    };
    // Without an address that is told already.
    let is_known = asks || address.is_some();
    if let Some(address) = address {
        network.insert("ip_address".into(), json!(address));
    }
    let ip = |text: &str| text.parse::<IpAddr>().ok();
    let found = from.optional("gateway").and_then(|at| Some((at.read("an IP address", problems, ip)?, at)));
    if let Some((gateway, _)) = &found {
        let everywhere = if gateway.is_ipv4() { ("0.0.0.0", "0.0.0.0") } else { ("::", "::") };
        let route = json!({ "network": everywhere.0, "netmask": everywhere.1, "gateway": gateway });
        network.insert("routes".into(), json!([route]));
    }
    let gateway = found.filter(|_| is_known).map(|(address, at)| Gateway { at, link: link.to_owned(), address });
    (Value::Object(network), gateway)
}

fn dns(at: &At<'_>, problems: &mut Vec<Problem>) -> Vec<Value> {
    let ip = |text: &str| text.parse::<IpAddr>().ok();
    let servers = at.list(problems).unwrap_or_default();
    let server = |it: &At<'_>| it.read("an IP address", problems, ip);
    let servers: Vec<_> = servers.iter().filter_map(server).collect();
    servers.into_iter().map(|server| json!({ "type": "dns", "address": server })).collect()
}
