//! The optional second document: a Site, checked like the agent will, but all of it and with places.

use std::str::FromStr;

use agent_api::site::{Cidr, Interface, Site};

use super::Findings;
use super::path::Path;
use super::tree::Node;
use super::types::Name;
use super::{API_VERSION, schema, shape};

pub(super) fn check(document: &Node, findings: &mut Findings<'_>) -> Option<Site> {
    let input = shape::check(document, &schema::of::<Site>(), findings)?;
    // What does not deserialize lacks a key or has a wrong one, and the shape check has said which.
    let site: Site = serde_json::from_value(input).ok()?;
    if site.api_version != API_VERSION {
        let found = format!("`{}` is not a version of this format", site.api_version);
        findings.at(&Path::of("apiVersion"), &found, format!("`{API_VERSION}`"), &format!("write `{API_VERSION}`"));
    }
    if let Some(name) = &site.hostname {
        findings.parse(&Path::of("hostname"), name, Name::from_str);
    }
    let networks = Path::of("networks");
    let cidrs = networks.key("controlPlane").key("cidrs");
    for (i, cidr) in site.networks.control_plane.cidrs.iter().enumerate() {
        network(&cidrs.index(i), cidr, findings);
    }
    for (i, interface) in site.networks.interfaces.iter().enumerate() {
        check_interface(&networks.key("interfaces").index(i), interface, findings);
    }
    let access = Path::of("access");
    if let Some(hash) = site.access.token_sha256.as_deref().filter(|hash| !is_sha256(hash)) {
        let found = format!("`{hash}` is not a SHA-256");
        let hint = "it is printed by `printf %s TOKEN | sha256sum`";
        findings.at(&access.key("tokenSha256"), &found, "64 lower-case hex digits", hint);
    }
    for (i, key) in site.access.ssh_authorized_keys.iter().enumerate() {
        let good = key.split_whitespace().nth(1).is_some_and(|blob| blob.starts_with("AAAA"));
        if !good {
            let hint = "copy the whole line of a `.pub` file";
            findings.at(
                &access.key("sshAuthorizedKeys").index(i),
                "this is not a public key",
                "`TYPE BASE64 COMMENT`",
                hint,
            );
        }
    }
    Some(site)
}

fn check_interface(path: &Path, interface: &Interface, findings: &mut Findings<'_>) {
    if !is_mac(&interface.mac_address) {
        let found = format!("`{}` is not a MAC address", interface.mac_address);
        let hint = "it is printed by `ip link` on the box, and stands on its label";
        findings.at(&path.key("macAddress"), &found, "six pairs of hex digits such as \"52:54:00:12:34:56\"", hint);
    }
    for (i, address) in interface.addresses.iter().enumerate() {
        network(&path.key("addresses").index(i), address, findings);
    }
}

fn network(path: &Path, text: &str, findings: &mut Findings<'_>) {
    if Cidr::parse(text).is_none() {
        let found = format!("`{text}` is not valid");
        findings.at(
            path,
            &found,
            "an address with prefix length, such as `10.0.0.5/24`",
            "give both, with a `/` between them",
        );
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether it is six pairs of hex digits with colons.
pub(super) fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    parts.len() == 6 && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
}
