//! `user_config.sh`: assignments, read and never run.
//!
//! The forms that ICN's own files have: `KEY=VALUE`, `export KEY=VALUE`, the value bare, in single or double quotes, or as
//! the default of `${KEY:-VALUE}`; comments. Anything else could mean anything, and is refused. A key that says nothing of
//! hosts is noted: each release had others.

use std::net::IpAddr;

use super::node::shortened;
use super::{Input, Problem};

/// What hosts need to know of the network outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Provider {
    pub gateway: Option<IpAddr>,
    pub dns: Vec<IpAddr>,
}

/// Keys that do not concern hosts, and what stands for them on a box.
const OF_THE_BOX: [(&str, &str); 9] = [
    ("BS_DHCP_INTERFACE", "the site's own DHCP server is the one that serves there"),
    ("BS_DHCP_INTERFACE_IP", "the site's own DHCP server is the one that serves there"),
    ("IRONIC_INTERFACE", "it is the provisioning interface of the definition (`services.provisioning`)"),
    ("IRONIC_PROVISIONING_INTERFACE_IP", "it is the address of the provisioning interface (`services.provisioning`)"),
    ("IRONIC_IPMI_INTERFACE", "give the interface an address in Site's `networks.interfaces`"),
    ("IRONIC_IPMI_INTERFACE_IP", "give the interface an address in Site's `networks.interfaces`"),
    ("IRONIC_ENABLE_DHCP", "the box serves DHCP to servers where `services.provisioning` has a `range`"),
    ("DOCKER_REGISTRY_MIRROR", "the box is its own registry"),
    ("DOCKER_REGISTRY_MIRRORS", "the box is its own registry"),
];
/// What keys that concern hosts begin with: another one of these is a slip.
const OF_HOSTS: &str = "PROVIDER_NETWORK_";

const FORM: &str = "`KEY=VALUE`, quoted or not, with or without `export`, or a comment: the file is read, not run";

/// Takes what a file says.
pub(super) fn read(input: &Input, provider: &mut Provider, notes: &mut Vec<String>, problems: &mut Vec<Problem>) {
    for (number, line) in (1..).zip(input.text.lines()) {
        let problem = |key: &str, found: String, expected: &str| Problem {
            file: input.file.clone(),
            line: number,
            key: key.to_owned(),
            found,
            expected: expected.to_owned(),
        };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((key, value)) = assignment(line) else {
            problems.push(problem("", format!("`{}`", shown(line)), FORM));
            continue;
        };
        let addresses = || value.split([' ', ',']).filter(|it| !it.is_empty()).map(|it| it.parse().ok()).collect();
        let refused = |expected: &str| problem(key, format!("`{}`", shortened(value)), expected);
        match key {
            _ if value.is_empty() => {}
            "PROVIDER_NETWORK_GATEWAY" => match value.parse() {
                Ok(address) => provider.gateway = Some(address),
                Err(_) => problems.push(refused("an IP address")),
            },
            "PROVIDER_NETWORK_DNS" => match addresses() {
                Some(servers) => provider.dns = servers,
                None => problems.push(refused("IP addresses")),
            },
            _ if key.starts_with(OF_HOSTS) => {
                let expected = "`PROVIDER_NETWORK_GATEWAY` or `PROVIDER_NETWORK_DNS`";
                problems.push(problem(key, "a key that nobody knows".into(), expected));
            }
            _ => {
                let known = OF_THE_BOX.iter().find(|(known, _)| *known == key);
                let told = known.map_or_else(
                    // The value may be a secret.
                    || "nothing of a host is made of it".to_owned(),
                    |(_, what)| format!("`{}`: {what}", shortened(value)),
                );
                let is = if known.is_some() { " is " } else { ": " };
                notes.push(format!("{}:{number}: `{key}`{is}{told}", input.file));
            }
        }
    }
}

/// What can be shown of a line that is no assignment: the value of an unknown key may be a secret.
fn shown(line: &str) -> String {
    let known = |key: &str| key.starts_with(OF_HOSTS) || OF_THE_BOX.iter().any(|(known, _)| *known == key);
    match line.split_once('=') {
        Some((key, _)) if !known(key.rsplit([' ', '\t']).next().unwrap_or_default()) => {
            format!("{}=...", shortened(key))
        }
        _ => shortened(line),
    }
}

/// Key and value of a line, when it is an assignment and nothing else.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let line = match line.strip_prefix("export") {
        Some(rest) if rest.starts_with([' ', '\t']) => rest.trim_start(),
        _ => line,
    };
    let (key, rest) = line.split_once('=')?;
    let name = !key.is_empty() && key.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
    if !name || key.starts_with(|it: char| it.is_ascii_digit()) {
        return None;
    }
    value(key, rest).map(|value| (key, value))
}

/// A value, by the few rules of the shell that are needed.
fn value<'a>(key: &str, text: &'a str) -> Option<&'a str> {
    let (inner, after) = if let Some(rest) = text.strip_prefix('\'') {
        rest.split_once('\'').filter(|(inner, _)| !inner.contains(char::is_control))?
    } else if let Some(rest) = text.strip_prefix("${") {
        let (name, default) = rest.split_once(":-")?;
        let (default, after) = default.rsplit_once('}')?;
        (name == key && !default.starts_with('$')).then_some(())?;
        (value(key, default)?, after)
    } else if let Some(rest) = text.strip_prefix('"') {
        let (inner, after) = rest.split_once('"')?;
        let inner = if inner.starts_with("${") { value(key, inner)? } else { inner };
        (inner, after)
    } else {
        text.split_at(text.find([' ', '\t', '#', '"', '\'']).unwrap_or(text.len()))
    };
    let active = |it: char| "$`\\;&|<>(){}*?[]~!".contains(it) || it.is_control();
    let quoted = text.starts_with('\'');
    let rest = after.trim_start();
    let over = rest.is_empty() || rest.starts_with('#') && rest.len() < after.len();
    (over && (quoted || !inner.contains(active))).then_some(inner)
}
