//! Network data of hosts, out of templates of Go that users give. Pure.
//!
//! What a template finds, as Airship's do: `.BMHName`; `.Node`, as it is asked for; `.Networks`, each with the values of its
//! node; `.BuilderDomain`, the machine with its `.Interfaces`, whose fields are at the top as well. Of networks those are
//! there that the machine has an interface in.
//!
//! Beside Go's own functions there are those of sprig that such templates are made of: dictionaries (`dict`, `set`, `get`,
//! `hasKey`, and Go's `index`), `list`, `join`, `default`, `quote`, `lower`, `upper`, `trim`, `toJson`. A dictionary is asked
//! by its keys; `range` over it is not possible.

use std::cell::RefCell;
use std::collections::HashMap;

use agent_api::vino::spec::NodeSet;
use agent_api::vino::values::{DomainValues, NetworkValues};
use agent_api::yaml;
use gtmpl_ng::{Func, FuncError, Value};

use crate::operators::kit::templates;
use crate::ramdisk::network_data::NetworkData;

/// Most that a template may write.
const MOST: usize = 500_000;
/// MTU of a machine's interface for which the `Vino` names none.
const MTU: u16 = 1500;
/// A dictionary is handed on as a text: this, then its number.
const DICT: &str = "\u{1}dict ";

thread_local! {
    /// Dictionaries of the template that is being rendered. `set` changes them, and values of the template engine cannot be
    /// changed.
    static DICTS: RefCell<Vec<HashMap<String, Value>>> = const { RefCell::new(Vec::new()) };
}

fn refused(why: impl Into<String>) -> FuncError {
    FuncError::Generic(why.into())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Does something with the dictionary that a value stands for.
fn with_dict<T>(value: Option<&Value>, what: impl FnOnce(&mut HashMap<String, Value>) -> T) -> Result<T, FuncError> {
    let number = match value {
        Some(Value::String(text)) => text.strip_prefix(DICT).and_then(|number| number.parse::<usize>().ok()),
        _ => None,
    };
    let number = number.ok_or_else(|| refused("expected a dictionary that `dict` made"))?;
    DICTS
        .with_borrow_mut(|all| all.get_mut(number).map(what))
        .ok_or_else(|| refused("a dictionary of another template"))
}

fn dict(args: &[Value]) -> Result<Value, FuncError> {
    if !args.len().is_multiple_of(2) {
        return Err(refused("dict: a key has no value"));
    }
    let entries = args.chunks(2).map(|pair| (text(&pair[0]), pair[1].clone())).collect();
    let number = DICTS.with_borrow_mut(|all| {
        all.push(entries);
        all.len() - 1
    });
    Ok(Value::String(format!("{DICT}{number}")))
}

fn set(args: &[Value]) -> Result<Value, FuncError> {
    let [at, key, value] = args else { return Err(refused("set: expected a dictionary, a key and a value")) };
    with_dict(Some(at), |entries| entries.insert(text(key), value.clone()))?;
    Ok(at.clone())
}

fn get(args: &[Value]) -> Result<Value, FuncError> {
    let [at, key] = args else { return Err(refused("get: expected a dictionary and a key")) };
    with_dict(Some(at), |entries| entries.get(&text(key)).cloned().unwrap_or_else(|| "".into()))
}

fn has_key(args: &[Value]) -> Result<Value, FuncError> {
    let [at, key] = args else { return Err(refused("hasKey: expected a dictionary and a key")) };
    with_dict(Some(at), |entries| Value::Bool(entries.contains_key(&text(key))))
}

/// Go's `index`, which works on these dictionaries, too.
fn index(args: &[Value]) -> Result<Value, FuncError> {
    let is_dict = matches!(args.first(), Some(Value::String(text)) if text.starts_with(DICT));
    match args {
        [at, key] if is_dict => {
            let found = with_dict(Some(at), |entries| entries.get(&text(key)).cloned())?;
            found.ok_or_else(|| refused(format!("the dictionary has no `{}`", text(key))))
        }
        _ => gtmpl_ng::funcs::index(args),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the type of a template's function")]
fn list(args: &[Value]) -> Result<Value, FuncError> {
    Ok(Value::Array(args.to_vec()))
}

fn join(args: &[Value]) -> Result<Value, FuncError> {
    let [between, Value::Array(all)] = args else { return Err(refused("join: expected a text and a list")) };
    Ok(all.iter().map(text).collect::<Vec<_>>().join(&text(between)).into())
}

fn default(args: &[Value]) -> Result<Value, FuncError> {
    let is_empty = |value: &Value| match value {
        Value::Nil | Value::NoValue | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Map(all) | Value::Object(all) => all.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    };
    match args {
        [otherwise] => Ok(otherwise.clone()),
        [otherwise, value] => Ok(if is_empty(value) { otherwise.clone() } else { value.clone() }),
        _ => Err(refused("default: expected a value, and one in its place")),
    }
}

fn one(name: &str, args: &[Value]) -> Result<String, FuncError> {
    match args {
        [value] => Ok(text(value)),
        _ => Err(refused(format!("{name}: expected one value"))),
    }
}

fn quote(args: &[Value]) -> Result<Value, FuncError> {
    Ok(format!("{:?}", one("quote", args)?).into())
}

fn lower(args: &[Value]) -> Result<Value, FuncError> {
    Ok(one("lower", args)?.to_lowercase().into())
}

fn upper(args: &[Value]) -> Result<Value, FuncError> {
    Ok(one("upper", args)?.to_uppercase().into())
}

fn trim(args: &[Value]) -> Result<Value, FuncError> {
    Ok(one("trim", args)?.trim().into())
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Bool(flag) => (*flag).into(),
        Value::String(text) => text.clone().into(),
        Value::Array(all) => all.iter().map(json).collect::<Vec<_>>().into(),
        Value::Map(all) | Value::Object(all) => {
            all.iter().map(|(key, value)| (key.clone(), json(value))).collect::<serde_json::Map<_, _>>().into()
        }
        Value::Number(number) => number.as_i64().map_or_else(|| number.as_f64().into(), Into::into),
        _ => serde_json::Value::Null,
    }
}

fn to_json(args: &[Value]) -> Result<Value, FuncError> {
    match args {
        [value] => Ok(json(value).to_string().into()),
        _ => Err(refused("toJson: expected one value")),
    }
}

const FUNCTIONS: [(&str, Func); 13] = [
    ("dict", dict),
    ("set", set),
    ("get", get),
    ("hasKey", has_key),
    ("index", index),
    ("list", list),
    ("join", join),
    ("default", default),
    ("quote", quote),
    ("lower", lower),
    ("upper", upper),
    ("trim", trim),
    ("toJson", to_json),
];

/// A machine, as templates find it.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// Name of its `BareMetalHost`.
    pub host: &'a str,
    /// What is asked for.
    pub set: &'a NodeSet,
    /// Networks of its node.
    pub networks: &'a [NetworkValues],
    /// The machine.
    pub domain: &'a DomainValues,
}

fn map<const N: usize>(fields: [(&str, Value); N]) -> HashMap<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn optional(text: Option<&String>) -> Value {
    text.cloned().unwrap_or_default().into()
}

fn texts<'a>(all: impl IntoIterator<Item = (&'a String, &'a String)>) -> Value {
    Value::Map(all.into_iter().map(|(key, value)| (key.clone(), value.clone().into())).collect())
}

fn network(network: &NetworkValues) -> Value {
    let route = |route: &agent_api::vino::values::RouteValues| {
        Value::Object(map([
            ("Network", route.network.clone().into()),
            ("Netmask", optional(route.netmask.as_ref())),
            ("Gateway", route.gateway.clone().into()),
        ]))
    };
    let range = network.range.clone().unwrap_or_default();
    Value::Object(map([
        ("Name", network.name.clone().into()),
        ("SubNet", network.subnet.clone().into()),
        ("Netmask", optional(network.netmask.as_ref())),
        ("Type", optional(network.kind.as_ref())),
        ("DNSServers", Value::Array(network.dns_servers.iter().map(|server| server.clone().into()).collect())),
        ("Routes", Value::Array(network.routes.iter().map(route).collect())),
        ("BridgeIP", network.bridge_ip.clone().into()),
        ("BridgeMAC", network.bridge_mac.clone().into()),
        ("BridgeName", optional(network.bridge_name.as_ref())),
        ("PhysicalInterface", optional(network.physical_interface.as_ref())),
        ("LibvirtTemplate", optional(network.libvirt_template.as_ref())),
        ("Range", Value::Object(map([("Start", range.start.into()), ("Stop", range.stop.into())]))),
    ]))
}

fn domain(domain: &DomainValues) -> HashMap<String, Value> {
    let interface = |interface: &agent_api::vino::values::InterfaceValues| {
        Value::Object(map([
            ("Name", interface.name.clone().into()),
            ("Type", optional(interface.kind.as_ref())),
            ("NetworkName", interface.network.clone().into()),
            ("MTU", i64::from(interface.mtu.unwrap_or(MTU)).into()),
            ("Options", texts(&interface.options)),
            ("IPAddress", interface.ip_address.clone().into()),
            ("MACAddress", interface.mac_address.clone().into()),
        ]))
    };
    map([
        ("Name", domain.name.clone().into()),
        ("Role", domain.role.clone().into()),
        ("BootMACAddress", domain.boot_mac_address.clone().into()),
        ("EnableVNC", domain.enable_vnc.into()),
        ("Interfaces", Value::Array(domain.interfaces.iter().map(interface).collect())),
    ])
}

fn values(machine: &Machine<'_>) -> Value {
    let of_machine = |one: &&NetworkValues| machine.domain.interfaces.iter().any(|it| it.network == one.name);
    let set = map([
        ("Name", machine.set.name.clone().into()),
        ("Count", i64::from(machine.set.count).into()),
        ("BMHLabels", texts(&machine.set.bmh_labels)),
        ("RootDeviceName", machine.set.root_device().into()),
        ("BootInterfaceName", machine.set.boot_interface().unwrap_or_default().into()),
    ]);
    let mut all = domain(machine.domain);
    all.extend(map([
        ("BMHName", machine.host.into()),
        ("Node", Value::Object(set)),
        ("Networks", Value::Array(machine.networks.iter().filter(of_machine).map(network).collect())),
        ("BuilderDomain", Value::Object(domain(machine.domain))),
    ]));
    Value::Object(all)
}

/// Network data of a machine.
///
/// # Errors
/// What is wrong with the template, with its line, or with what it made.
pub fn network_data(template: &str, machine: &Machine<'_>) -> Result<String, String> {
    drop(DICTS.take());
    let rendered = templates::render(template, values(machine), &FUNCTIONS, MOST);
    drop(DICTS.take());
    let text = rendered?;
    check(&text, machine)?;
    Ok(text)
}

/// Whether text is network data that a ramdisk can use, and has the machine's cards.
fn check(text: &str, machine: &Machine<'_>) -> Result<(), String> {
    let made = |why: String| format!("what it makes is no network data of OpenStack: {why}");
    let value: serde_json::Value = yaml::read(text).map_err(made)?;
    let data = NetworkData::read(&value).map_err(|error| made(error.to_string()))?;
    data.units("check").map_err(|error| made(error.to_string()))?;
    for (network, server) in value["networks"].as_array().into_iter().flatten().flat_map(|network| {
        network["dns_nameservers"].as_array().into_iter().flatten().map(move |server| (network, server))
    }) {
        let address = server.as_str().unwrap_or_default();
        if address.parse::<std::net::IpAddr>().is_err() {
            return Err(made(format!(
                "`networks.dns_nameservers` of `{}`: found `{address}`, expected an address; hint: a list of several is written \
                 by `{{{{ toJson .DNSServers }}}}`",
                network["id"].as_str().unwrap_or_default()
            )));
        }
    }
    let known = |mac: &str| {
        let links = data.links.iter().filter_map(|link| link.ethernet_mac_address.as_deref());
        links.map(str::to_lowercase).any(|it| it == mac.to_lowercase())
    };
    match machine.domain.interfaces.iter().find(|interface| !known(&interface.mac_address)) {
        Some(interface) => Err(made(format!(
            "`links`: found none with the MAC address of `{}`, {}",
            interface.name, interface.mac_address
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use agent_api::vino::values::NodeValues;
    use serde_json::Value;

    use super::*;

    fn node() -> NodeValues {
        serde_saphyr::from_str(include_str!("../../../tests/fixtures/vino/node-values.yaml")).expect("values")
    }

    fn made(template: &str, node: &NodeValues) -> Result<String, String> {
        let set = NodeSet { name: "master".to_owned(), count: 1, ..NodeSet::default() };
        let machine = Machine { host: "a-b-c-master-0", set: &set, networks: &node.networks, domain: &node.domains[0] };
        network_data(template, &machine)
    }

    fn sample() -> String {
        let secret: Value =
            serde_saphyr::from_str(include_str!("../../../tests/fixtures/vino/network-template.yaml")).expect("YAML");
        secret["stringData"]["template"].as_str().expect("a template").to_owned()
    }

    #[test]
    fn a_template_of_airships_users_makes_network_data() {
        insta::assert_snapshot!(made(&sample(), &node()).expect("network data").trim());
    }

    /// There `$vinobridge` was replaced once for all nodes: the second had the bridge of the first.
    #[test]
    fn a_machine_sees_the_bridge_of_its_own_node() {
        let mut second = node();
        second.networks[0].routes[0].gateway = "192.168.2.99".to_owned();
        assert!(made(&sample(), &node()).expect("made").contains("gateway: 192.168.2.10\n"));
        assert!(made(&sample(), &second).expect("made").contains("gateway: 192.168.2.99\n"));
    }

    #[test]
    fn a_network_that_the_machine_is_not_in_is_not_there() {
        let mut node = node();
        node.networks.push(NetworkValues { name: "storage".to_owned(), ..NetworkValues::default() });
        assert!(!made(&sample(), &node).expect("made").contains("storage"));
    }

    #[test]
    fn what_is_wrong_with_a_template_or_with_what_it_makes_is_said() {
        let mut two = node();
        two.networks[0].dns_servers = vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()];
        let mac = "links: [{id: a, type: phy, ethernet_mac_address: \"{{ .BootMACAddress }}\"}]";
        for (template, node, words) in [
            ("{{ range .Networks }}".to_owned(), node(), "eof"),
            ("{{ nonsense 1 }}".to_owned(), node(), "nonsense"),
            ("{{ index (dict \"a\" 1) \"b\" }}".to_owned(), node(), "the dictionary has no `b`"),
            ("{{ set 1 2 3 }}".to_owned(), node(), "expected a dictionary"),
            ("links: [".to_owned(), node(), "no network data of OpenStack"),
            ("version: 2\nethernets: {}".to_owned(), node(), "netplan"),
            ("links: []\nnetworks: []".to_owned(), node(), "found none with the MAC address of `management`"),
            (
                format!("{mac}\nnetworks: [{{id: net, link: b, type: ipv4, ip_address: 10.0.0.1/24}}]"),
                node(),
                "found `b`, which no link has",
            ),
            (format!("{mac}\nnetworks: [{{id: net, link: a, type: ipv4, ip_address: 10.0.0.x}}]"), node(), "10.0.0.x"),
            (sample(), two, "found `10.0.0.1 10.0.0.2`, expected an address"),
        ] {
            let why = made(&template, &node).expect_err(&template);
            assert!(why.to_lowercase().contains(&words.to_lowercase()), "{template}: {why}");
        }
    }

    #[test]
    fn functions_do_what_sprigs_do() {
        let text = "links: [{id: {{ join \"-\" (list \"a\" \"b\") }}, type: {{ default \"phy\" \"\" }}, \
                    ethernet_mac_address: {{ quote (lower (upper (trim .BootMACAddress))) }}}]\n\
                    networks: {{ toJson (list) }}\n# {{ hasKey (dict \"a\" 1) \"a\" }} {{ get (dict \"a\" \"x\") \"a\" }}";
        let made = made(text, &node()).expect("made");
        assert!(
            made.contains("id: a-b, type: phy, ethernet_mac_address: \"52:54:00:06:00:01\"")
                && made.contains("# true x")
        );
    }
}
