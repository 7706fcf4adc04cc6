//! Values of the `machine` chart, R6 on: as a values file, or in the `HelmRelease`s of a `site.yaml`. Early ones have all
//! machines in one table `machines`, by name.

use agent_api::metal3::admission::{label_value, qualified_name};
use agent_api::net::is_label;
use agent_api::site::check::is_public_key;
use serde_json::Value;

use super::network::{network_data, networks, node_ip};
use super::node::{At, Node, Placed, Table, parse, shortened};
use super::{Input, Problem};

/// A host, whatever file it comes from.
#[derive(Clone, Debug, Default)]
pub(super) struct IcnMachine {
    pub file: String,
    pub line: u64,
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub address: Placed<String>,
    pub username: String,
    pub password: String,
    pub unverified: Option<bool>,
    pub boot_mac: Option<Placed<String>>,
    /// `OpenStack`'s `network_data`.
    pub network_data: Option<Placed<Value>>,
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
pub(super) const NAME_EXPECTED: &str = "a host name (a-z, 0-9, `-`, at most 63)";
pub(super) const MAC_EXPECTED: &str = "a MAC address such as `52:54:00:12:34:56`";

const LABEL_KEY_EXPECTED: &str =
    "a label's key (letters, digits, `-`, `_`, `.`, at most 63, behind a prefix such as `example.org/` or alone)";
const LABEL_VALUE_EXPECTED: &str =
    "a label's value (letters, digits, `-`, `_`, `.`, at most 63, a letter or digit at both ends)";
/// Most letters of a host's name with its domain (RFC 1035, 2.3.4, as text).
const LONGEST_FQDN: usize = 253;

/// An RFC 1123 label.
pub(super) fn name(text: &str) -> Option<String> {
    is_label(text).then(|| text.to_owned())
}

/// A host name, with or without its domain.
fn fqdn(text: &str) -> Option<String> {
    let is_name = text.len() <= LONGEST_FQDN && text.to_ascii_lowercase().split('.').all(is_label);
    is_name.then(|| text.to_owned())
}

/// A hash as crypt(5) has it: `$ID$...$HASH`, in letters that `/etc/shadow` takes.
fn is_hash(text: &str) -> bool {
    let inner = |letter: u8| letter.is_ascii_graphic() && !b":;*!\\".contains(&letter);
    let parts: Vec<&str> = text.split('$').collect();
    text.bytes().all(inner) && matches!(parts.as_slice(), ["", id, _, .., hash] if !id.is_empty() && !hash.is_empty())
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
    let expected = "address of the BMC, such as `ipmi://10.0.0.2`";
    let address = table.required("bmcAddress", expected, problems);
    let address = address.and_then(|it| Some(it.placed(it.text(expected, problems)?)));
    let mut wanted = |table: &mut Table<'_>, key: &'static str, expected: &str| {
        table.required(key, expected, problems).and_then(|it| it.text(expected, problems))
    };
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
    let boot_mac = table.optional("bootMACAddress");
    let boot_mac = boot_mac.and_then(|it| Some(it.placed(it.read(MAC_EXPECTED, problems, mac)?)));
    let image = table.optional("imageName").and_then(|it| image_name(&it, problems));
    let user = table.optional("userData");
    let has_user_data = user.is_some();
    let user = user.and_then(|it| user_of(&it, problems)).unwrap_or_default();
    let (data, flat) = (table.optional("networkData"), table.optional("networks"));
    if let (Some(_), Some(flat)) = (&data, &flat) {
        problems.push(flat.problem("it beside `networkData`".into(), "one of the two"));
    }
    let data = data.and_then(|it| Some(it.placed(network_data(&it, notes, problems)?)));
    let network_data = data.or_else(|| flat.and_then(|it| Some(it.placed(networks(&it, problems)?))));
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
        node_ip: network_data.as_ref().and_then(|it| node_ip(&it.value)),
        network_data,
        user,
        has_user_data,
        image,
    })
}

fn labels(at: &At<'_>, problems: &mut Vec<Problem>) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    for (key, it) in at.entries(problems)? {
        if !qualified_name(key).is_empty() {
            problems.push(it.problem(format!("`{}`", shortened(key)), LABEL_KEY_EXPECTED));
        }
        let value = |text: &str| label_value(text).next().is_none().then(|| text.to_owned());
        let value = match it.node {
            Node::Scalar(Value::String(text)) if text.is_empty() => Some(String::new()),
            _ => it.read(LABEL_VALUE_EXPECTED, problems, value),
        };
        labels.extend(value.map(|value| (key.to_owned(), value)));
    }
    Some(labels)
}

fn user_of(at: &At<'_>, problems: &mut Vec<Problem>) -> Option<User> {
    let mut table = at.table(problems)?;
    let hash = "a hash as `mkpasswd` prints it (crypt(5), begins with `$`)";
    let key = "a public ssh key: the whole line of a `.pub` file";
    let user = User {
        name: table.optional("name").and_then(|it| it.text("a user of the OS", problems)),
        password: table
            .optional("hashedPassword")
            .and_then(|it| it.hidden(hash, problems, is_hash))
            .map(Password::Hashed),
        ssh_key: table.optional("sshAuthorizedKey").and_then(|it| it.hidden(key, problems, is_public_key)),
        fqdn: table
            .optional("fqdn")
            .and_then(|it| it.read("a host name with its domain, such as `node1.example.org`", problems, fqdn)),
    };
    table.end(problems);
    Some(user)
}

#[cfg(test)]
mod tests {
    use super::{fqdn, is_hash};

    #[test]
    fn hashes_are_those_of_crypt() {
        for good in ["$6$rounds=10000$PJLO$9Rpa.iL40.", "$y$j9T$abc$def", "$2b$10$abcdefg/.", "$1$s$h", "$3$$8846f7"] {
            assert!(is_hash(good), "{good}");
        }
        for bad in ["", "hunter2", "$", "$6$", "$6$salt", "$6$salt$", "$$$a", "$6$sa lt$h", "!$6$salt$h", "$6$s:$h"] {
            assert!(!is_hash(bad), "{bad}");
        }
    }

    #[test]
    fn names_with_domains_are_names_of_hosts() {
        for good in ["node1", "node1.example.org", "Node1.Example.ORG", "1.2.example"] {
            assert_eq!(fqdn(good).as_deref(), Some(good));
        }
        let long = format!("{}.org", ["a".repeat(60).as_str(); 5].join("."));
        for bad in ["", ".", "a..b", "node_1.org", "a b", "-a.org", "node1.example.org.", "http://a", long.as_str()] {
            assert_eq!(fqdn(bad), None, "{bad}");
        }
    }
}
