//! Values of the `machine` chart, R6 on: as a values file, or in the `HelmRelease`s of a `site.yaml`. Early ones have all
//! machines in one table `machines`, by name.

use serde_json::{Map, Value, json};

use super::node::{At, Node, Table, parse, shortened};
use super::{Input, Problem};

/// A host, whatever file it comes from.
#[derive(Clone, Debug, Default)]
pub(super) struct IcnMachine {
    pub file: String,
    pub line: u64,
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub address: String,
    pub username: String,
    pub password: String,
    pub unverified: Option<bool>,
    pub boot_mac: Option<String>,
    /// `OpenStack`'s `network_data`.
    pub network_data: Option<Value>,
    /// Addresses of the host as a Kubernetes node, with commas.
    pub node_ip: Option<String>,
    pub user: User,
    pub has_user_data: bool,
    pub image: Option<String>,
}

/// Who may log in.
#[derive(Clone, Debug, Default)]
pub(super) struct User {
    pub name: Option<String>,
    pub password: Option<Password>,
    pub ssh_key: Option<String>,
    pub fqdn: Option<String>,
}

/// A password.
#[derive(Clone)]
pub(super) enum Password {
    Plain(String),
    Hashed(String),
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The chart that describes a host: `deploy/machine` of ICN's repository.
const CHART: &str = "machine";
/// The link on which hosts are Kubernetes nodes.
const NODE_LINK: &str = "baremetal";
pub(super) const NAME_EXPECTED: &str = "a host name (a-z, 0-9, `-`, at most 63)";
pub(super) const MAC_EXPECTED: &str = "a MAC address such as `52:54:00:12:34:56`";

/// An RFC 1123 label.
pub(super) fn name(text: &str) -> Option<String> {
    let inner = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    let ends = !text.starts_with('-') && !text.ends_with('-');
    ((1..=63).contains(&text.len()) && text.bytes().all(inner) && ends).then(|| text.to_owned())
}

/// A MAC address, in lower case.
pub(super) fn mac(text: &str) -> Option<String> {
    text.parse::<agent_api::net::MacAddress>().ok().map(|mac| mac.to_string())
}

/// The file name of an image.
pub(super) fn image_name(at: &At<'_>, problems: &mut Vec<Problem>) -> Option<String> {
    let file = |text: &str| {
        let inner = |it: u8| it.is_ascii_alphanumeric() || b"._+-".contains(&it);
        (text.bytes().all(inner) && !text.starts_with('.')).then(|| text.to_owned())
    };
    at.read("the file name of an image (letters, digits, `.`, `_`, `+`, `-`)", problems, file)
}

/// Takes the machines of a file.
pub(super) fn read(
    input: &Input,
    machines: &mut Vec<IcnMachine>,
    notes: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) {
    for (above, text) in documents(&input.text) {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            continue;
        }
        let Some(document) = parse(&input.file, &text, above, problems) else { continue };
        object(&At::top(&input.file, above, &document), machines, notes, problems);
    }
}

/// Takes the machines of a document, or of an item of a list, as `kubectl get` prints them.
fn object(at: &At<'_>, machines: &mut Vec<IcnMachine>, notes: &mut Vec<String>, problems: &mut Vec<Problem>) {
    let Some(kind) = kind(at.node) else { return values(at, machines, notes, problems) };
    if kind.ends_with("List") {
        for (_, items) in at.entries(problems).unwrap_or_default().into_iter().filter(|(key, _)| *key == "items") {
            for item in items.list(problems).unwrap_or_default() {
                object(&item, machines, notes, problems);
            }
        }
        return;
    }
    match release(at.node) {
        Some(chart) if kind == "HelmRelease" && chart.trim_end_matches('/').rsplit('/').next() == Some(CHART) => {
            released(at, machines, notes, problems);
        }
        Some(chart) => notes.push(format!("{}:{}: this {kind} of the chart `{chart}` is no host", at.file, at.line)),
        None => notes.push(format!("{}:{}: this {kind} is no host", at.file, at.line)),
    }
}

/// Documents, each with the number of lines above it.
fn documents(text: &str) -> Vec<(u64, String)> {
    let mut found = vec![(0, String::new())];
    for (number, line) in (1..).zip(text.lines()) {
        let (mark, last) = (line == "---" || line.starts_with("--- "), found.len() - 1);
        if mark {
            found.push((number, String::new()));
        } else {
            found[last].1.push_str(line);
            found[last].1.push('\n');
        }
    }
    found
}

fn field<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    let Node::Table(entries) = node else { return None };
    entries.iter().find(|(name, _)| name.value == key).map(|(_, value)| &value.value)
}

fn text(node: &Node) -> Option<&str> {
    if let Node::Scalar(Value::String(text)) = node { Some(text) } else { None }
}

fn kind(node: &Node) -> Option<&str> {
    field(node, "apiVersion").and(field(node, "kind")).and_then(text)
}

/// The chart of a release.
fn release(node: &Node) -> Option<&str> {
    ["spec", "chart", "spec", "chart"].iter().try_fold(node, |node, key| field(node, key)).and_then(text)
}

/// The machine of a `HelmRelease`, of which only `spec.values` are looked at.
fn released(top: &At<'_>, machines: &mut Vec<IcnMachine>, notes: &mut Vec<String>, problems: &mut Vec<Problem>) {
    let spec = top.table(problems).and_then(|mut it| it.required("spec", "what is released", problems));
    let found = spec.and_then(|it| it.table(problems));
    let found = found.and_then(|mut it| it.required("values", "values of the machine chart", problems));
    if let Some(found) = found {
        values(&found, machines, notes, problems);
    }
}

/// The machine that values describe, or all of `machines`; what stands beside that says nothing of hosts.
fn values(at: &At<'_>, machines: &mut Vec<IcnMachine>, notes: &mut Vec<String>, problems: &mut Vec<Problem>) {
    if field(at.node, "machines").is_none() {
        machines.extend(machine(at, None, notes, problems));
        return;
    }
    for (key, it) in at.entries(problems).unwrap_or_default() {
        if key != "machines" {
            notes.push(format!("{}:{}: `{key}`: nothing of a host is made of it", it.file, it.line));
            continue;
        }
        for (named, it) in it.entries(problems).unwrap_or_default() {
            machines.extend(machine(&it, Some(named), notes, problems));
        }
    }
}

/// `named`: where the values need not say the name.
fn machine(
    values: &At<'_>,
    named: Option<&str>,
    notes: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) -> Option<IcnMachine> {
    let before = problems.len();
    let mut table = values.table(problems)?;
    let mut wanted = |table: &mut Table<'_>, key: &'static str, expected: &str| {
        table.required(key, expected, problems).and_then(|it| it.text(expected, problems))
    };
    let address = wanted(&mut table, "bmcAddress", "address of the BMC, such as `ipmi://10.0.0.2`");
    let username = wanted(&mut table, "bmcUsername", "the BMC's user");
    let password = wanted(&mut table, "bmcPassword", "the BMC's password");
    let own = match named {
        None => table.required("machineName", NAME_EXPECTED, problems),
        Some(_) => table.optional("machineName"),
    };
    let named = match (own, named) {
        (Some(own), _) => own.read(NAME_EXPECTED, problems, name),
        (None, Some(key)) if name(key).is_some() => Some(key.to_owned()),
        (None, Some(key)) => {
            problems.push(values.problem(format!("`{}`", shortened(key)), NAME_EXPECTED));
            None
        }
        (None, None) => None,
    };
    let labels = table.optional("machineLabels").and_then(|it| labels(&it, problems)).unwrap_or_default();
    let unverified = table.optional("bmcDisableCertificateVerification").and_then(|it| it.boolean(problems));
    let boot_mac = table.optional("bootMACAddress").and_then(|it| it.read(MAC_EXPECTED, problems, mac));
    let image = table.optional("imageName").and_then(|it| image_name(&it, problems));
    let user = table.optional("userData");
    let has_user_data = user.is_some();
    let user = user.and_then(|it| user_of(&it, problems)).unwrap_or_default();
    let (data, flat) = (table.optional("networkData"), table.optional("networks"));
    if let (Some(_), Some(flat)) = (&data, &flat) {
        problems.push(flat.problem("it beside `networkData`".into(), "one of the two"));
    }
    let network_data =
        data.and_then(|it| network_data(&it, notes, problems)).or_else(|| flat.and_then(|it| networks(&it, problems)));
    table.end(problems);
    let (name, address, username, password) = (named?, address?, username?, password?);
    (problems.len() == before).then(|| IcnMachine {
        file: values.file.to_owned(),
        line: values.line,
        name,
        labels,
        address,
        username,
        password,
        unverified,
        boot_mac,
        node_ip: network_data.as_ref().and_then(node_ip),
        network_data,
        user,
        has_user_data,
        image,
    })
}

fn labels(at: &At<'_>, problems: &mut Vec<Problem>) -> Option<Vec<(String, String)>> {
    let entries = at.entries(problems)?;
    let label = |(key, at): &(&str, At<'_>)| Some(((*key).to_owned(), at.text("the label's value", problems)?));
    entries.iter().map(label).collect()
}

fn user_of(at: &At<'_>, problems: &mut Vec<Problem>) -> Option<User> {
    let mut table = at.table(problems)?;
    let mut one = |key: &'static str, expected: &str| {
        let at = table.optional(key)?;
        at.text(expected, problems)
    };
    let user = User {
        name: one("name", "a user of the OS"),
        password: one("hashedPassword", "a hash as `mkpasswd` prints it").map(Password::Hashed),
        ssh_key: one("sshAuthorizedKey", "a public ssh key"),
        fqdn: one("fqdn", "a name with its domain"),
    };
    table.end(problems);
    Some(user)
}

/// `networkData`: links, networks by kind, name servers.
fn network_data(at: &At<'_>, notes: &mut Vec<String>, problems: &mut Vec<Problem>) -> Option<Value> {
    let mut table = at.table(problems)?;
    let links = table.optional("links").and_then(|it| ethernets(&it, problems)).unwrap_or_default();
    let mut listed = Vec::new();
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
                let listing = address(id, kind, link.as_deref().unwrap_or_default(), &mut network, problems);
                match link {
                    Some(_) => listed.push(listing),
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
    Some(json!({ "links": links, "networks": listed, "services": services }))
}

/// What the chart has as the node's addresses: the fixed ones of the link `baremetal`, IPv4 first, each kind by name.
fn node_ip(data: &Value) -> Option<String> {
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
fn networks(at: &At<'_>, problems: &mut Vec<Problem>) -> Option<Value> {
    let (mut links, mut listed, mut services) = (Vec::new(), Vec::new(), Vec::new());
    let kinds = |text: &str| matches!(text, "ipv4" | "ipv4_dhcp" | "ipv6" | "ipv6_dhcp").then(|| text.to_owned());
    for (id, it) in at.entries(problems)? {
        let Some(mut network) = it.table(problems) else { continue };
        let link = network.required("macAddress", MAC_EXPECTED, problems);
        let link = link.and_then(|it| it.read(MAC_EXPECTED, problems, mac));
        let expected = "`ipv4`, `ipv4_dhcp`, `ipv6` or `ipv6_dhcp`";
        let kind = network.required("type", expected, problems);
        let kind = kind.and_then(|it| it.read(expected, problems, kinds)).unwrap_or_default();
        links.push(json!({ "id": id, "type": "phy", "ethernet_mac_address": link }));
        listed.push(address(id, &kind, id, &mut network, problems));
        if let Some(servers) = network.optional("nameservers") {
            services.extend(dns(&servers, problems));
        }
        network.end(problems);
    }
    Some(json!({ "links": links, "networks": listed, "services": services }))
}

/// A network; a fixed one has an address with its prefix length.
fn address(id: &str, kind: &str, link: &str, from: &mut Table<'_>, problems: &mut Vec<Problem>) -> Value {
    let mut network = Map::new();
    for (key, value) in [("id", id), ("type", kind), ("link", link)] {
        network.insert(key.into(), json!(value));
    }
    let expected = "an address with its prefix length, such as `10.0.0.2/24`";
    let cidr = |text: &str| agent_api::net::Cidr::parse(text).map(|_| text.to_owned());
    let address = if kind.ends_with("dhcp") {
        if let Some(it) = from.optional("ipAddress") {
            problems.push(it.problem("an address".into(), "none in a network with DHCP"));
        }
        None
    } else {
        from.required("ipAddress", expected, problems).and_then(|it| it.read(expected, problems, cidr))
    };
    if let Some(address) = address {
        network.insert("ip_address".into(), json!(address));
    }
    let ip = |text: &str| text.parse::<std::net::IpAddr>().ok();
    let gateway = from.optional("gateway").and_then(|it| it.read("an IP address", problems, ip));
    if let Some(gateway) = gateway {
        let everywhere = if gateway.is_ipv4() { ("0.0.0.0", "0.0.0.0") } else { ("::", "::") };
        let route = json!({ "network": everywhere.0, "netmask": everywhere.1, "gateway": gateway });
        network.insert("routes".into(), json!([route]));
    }
    Value::Object(network)
}

fn dns(at: &At<'_>, problems: &mut Vec<Problem>) -> Vec<Value> {
    let ip = |text: &str| text.parse::<std::net::IpAddr>().ok();
    let servers = at.list(problems).unwrap_or_default();
    let server = |it: &At<'_>| it.read("an IP address", problems, ip);
    let servers: Vec<_> = servers.iter().filter_map(server).collect();
    servers.into_iter().map(|server| json!({ "type": "dns", "address": server })).collect()
}
