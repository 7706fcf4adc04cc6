//! `nodes.json` of R2 to R5.

use std::net::Ipv6Addr;

use serde_json::Value;

use super::machine::{IcnMachine, MAC_EXPECTED, NAME_EXPECTED, Password, User, image_name, mac, name};
use super::network;
use super::node::{At, Placed, parse};
use super::{Input, Problem};

/// The link that hosts boot from.
const BOOT_LINK: &str = "provisioning_nic";

/// Takes the machines of a file.
pub(super) fn read(input: &Input, machines: &mut Vec<IcnMachine>, problems: &mut Vec<Problem>) {
    // A tab is white space in JSON and none in YAML; in JSON no text holds one.
    let text = input.text.replace('\t', " ");
    let Some(document) = parse(&input.file, &text, 0, problems) else { return };
    let Some(mut top) = At::top(&input.file, 0, &document).table(problems) else { return };
    let nodes = top.required("nodes", "a list of nodes", problems);
    top.end(problems);
    for node in nodes.and_then(|nodes| nodes.list(problems)).unwrap_or_default() {
        machines.extend(machine(&node, problems));
    }
}

fn machine(node: &At<'_>, problems: &mut Vec<Problem>) -> Option<IcnMachine> {
    let before = problems.len();
    let mut table = node.table(problems)?;
    let name = table.required("name", NAME_EXPECTED, problems);
    let name = name.and_then(|it| it.read(NAME_EXPECTED, problems, name_of));
    let bmc = table.required("ipmi_driver_info", "`address`, `username` and `password` of the BMC", problems);
    let bmc = bmc.and_then(|it| driver_info(&it, problems));
    let os = table.optional("os").and_then(|it| os(&it, problems)).unwrap_or_default();
    let net = table.optional("net");
    let boot_mac = net.as_ref().and_then(|it| boot_mac(it, problems));
    let network_data = net.map(|it| {
        network::check(&it, problems);
        it.placed(it.node.json())
    });
    table.end(problems);
    let (name, (address, username, password)) = (name?, bmc?);
    (problems.len() == before).then(|| IcnMachine {
        file: node.file.to_owned(),
        line: node.line,
        user: User { fqdn: Some(format!("{name}.akraino.icn.org")), ..os.1 },
        name,
        labels: Vec::new(),
        // An address of IPv6 alone has no port.
        address: Placed {
            value: if address.value.parse::<Ipv6Addr>().is_ok() {
                format!("ipmi://[{}]", address.value)
            } else {
                format!("ipmi://{}", address.value)
            },
            ..address
        },
        username,
        password,
        unverified: None,
        boot_mac,
        network_data,
        // Releases that had this file had no such annotation.
        node_ip: None,
        image: os.0,
        has_user_data: true,
    })
}

fn name_of(text: &str) -> Option<String> {
    name(text)
}

fn driver_info(at: &At<'_>, problems: &mut Vec<Problem>) -> Option<(Placed<String>, String, String)> {
    let mut table = at.table(problems)?;
    let expected = "address of the BMC, with or without a port";
    let address = table.required("address", expected, problems);
    let address = address.and_then(|it| Some(it.placed(it.text(expected, problems)?)));
    let mut text = |key: &'static str, expected: &str, problems: &mut Vec<Problem>| {
        table.required(key, expected, problems).and_then(|it| it.text(expected, problems))
    };
    let username = text("username", "the BMC's user", problems);
    let password = text("password", "the BMC's password", problems);
    table.end(problems);
    Some((address?, username?, password?))
}

fn os(at: &At<'_>, problems: &mut Vec<Problem>) -> Option<(Option<String>, User)> {
    let mut table = at.table(problems)?;
    let image = table.optional("image_name").and_then(|it| image_name(&it, problems));
    let name = table.optional("username").and_then(|it| it.text("a user of the OS", problems));
    let password = table.optional("password").and_then(|it| it.text("the user's password", problems));
    table.end(problems);
    Some((image, User { name, password: password.map(Password::Plain), ..User::default() }))
}

/// The MAC address of the link that hosts boot from. The rest of `net` is `OpenStack`'s `network_data`, and stays as it is.
fn boot_mac(net: &At<'_>, problems: &mut Vec<Problem>) -> Option<Placed<String>> {
    let entries = net.entries(problems)?;
    let (_, links) = entries.into_iter().find(|(key, _)| *key == "links")?;
    for link in links.list(problems)? {
        let fields = link.entries(problems)?;
        let id = fields.iter().find(|(key, _)| *key == "id").map(|(_, it)| it.node.json());
        if id == Some(Value::String(BOOT_LINK.to_owned())) {
            let (_, address) = fields.into_iter().find(|(key, _)| *key == "ethernet_mac_address")?;
            return Some(address.placed(address.read(MAC_EXPECTED, problems, mac)?));
        }
    }
    None
}
