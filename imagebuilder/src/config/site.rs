//! The optional second document: a Site, checked like the agent will, but all of it and with places.

use std::net::IpAddr;
use std::str::FromStr;

use agent_api::net::{Cidr, MacAddress};
use agent_api::release::Provisioning;
use agent_api::servers::{ServersNetwork, Wrong};
use agent_api::site::{Interface, Site};

use super::Findings;
use super::appliance::Kubernetes;
use super::path::KeyPath;
use super::tree::Node;
use super::types::Name;
use super::{API_VERSION, schema, shape};

pub(super) fn check(document: &Node, findings: &mut Findings<'_>) -> Option<Site> {
    let input = shape::check(document, &schema::of::<Site>(), findings)?;
    // What does not deserialize lacks a key or has a wrong one, and the shape check has said which.
    let site: Site = serde_json::from_value(input).ok()?;
    if site.api_version != API_VERSION {
        let found = format!("`{}` is not a version of this format", site.api_version);
        findings.at(&KeyPath::of("apiVersion"), &found, format!("`{API_VERSION}`"), &format!("write `{API_VERSION}`"));
    }
    if let Some(name) = &site.hostname {
        findings.parse(&KeyPath::of("hostname"), name, Name::from_str);
    }
    let networks = KeyPath::of("networks");
    let cidrs = networks.key("controlPlane").key("cidrs");
    for (i, cidr) in site.networks.control_plane.cidrs.iter().enumerate() {
        network(&cidrs.index(i), cidr, findings);
    }
    for (i, interface) in site.networks.interfaces.iter().enumerate() {
        check_interface(&networks.key("interfaces").index(i), interface, findings);
    }
    if let Some(servers) = &site.networks.provisioning {
        servers_network(servers, &networks.key("provisioning"), findings);
    }
    let access = KeyPath::of("access");
    if site.access.token_sha256.as_deref().is_some_and(|hash| !is_sha256(hash)) {
        let hint = "it is printed by `printf %s TOKEN | sha256sum`; the token itself never stands in a file";
        findings.at_secret(&access.key("tokenSha256"), "this is not a SHA-256", "64 lower-case hex digits", hint);
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

/// Networks of the site that the cluster would hide from the box.
pub(super) fn against(site: &Site, kubernetes: &Kubernetes, findings: &mut Findings<'_>) {
    let networks = KeyPath::of("networks");
    let planes = networks.key("controlPlane").key("cidrs");
    let planes = site.networks.control_plane.cidrs.iter().enumerate().map(|(i, text)| (planes.index(i), text));
    let interfaces = networks.key("interfaces");
    let addresses = site.networks.interfaces.iter().enumerate().flat_map(|(i, interface)| {
        let path = interfaces.index(i).key("addresses");
        interface.addresses.iter().enumerate().map(move |(j, text)| (path.index(j), text))
    });
    let servers = site.networks.provisioning.iter().filter_map(|servers| servers.address.as_ref());
    let servers = servers.map(|text| (networks.key("provisioning").key("address"), text));
    for (path, text) in planes.chain(addresses).chain(servers) {
        let Some(cidr) = Cidr::parse(text) else { continue };
        for (name, own) in [("podCIDR", kubernetes.pod_cidr), ("serviceCIDR", kubernetes.service_cidr)] {
            let hint = format!("give the cluster another network: `kubernetes: {{ {name}: ... }}`");
            if own.contains(cidr.address) {
                let found = format!("{text} lies in `{name}` {own} of the cluster");
                findings.at(&path, &found, "a network outside of the cluster's", &hint);
            } else if cidr.contains(IpAddr::V4(own.address())) {
                let found = format!("the box cannot reach the part of {text} that is `{name}` {own} of its cluster");
                findings.warn(&path, &found, "a network outside of the cluster's", &hint);
            }
        }
    }
}

/// The servers' network, of a definition or of a Site.
pub(super) fn servers_network(input: &ServersNetwork, path: &KeyPath, findings: &mut Findings<'_>) -> Provisioning {
    let (declared, wrong) = input.resolve();
    for Wrong { key, found, expected, hint } in wrong {
        let path = key.split('.').fold(path.clone(), |path, key| path.key(key));
        findings.at(&path, &found, expected, hint);
    }
    declared
}

fn check_interface(path: &KeyPath, interface: &Interface, findings: &mut Findings<'_>) {
    if interface.mac_address.parse::<MacAddress>().is_err() {
        let found = format!("`{}` is not a MAC address", interface.mac_address);
        let hint = "it is printed by `ip link` on the box, and stands on its label";
        findings.at(&path.key("macAddress"), &found, "six pairs of hex digits such as \"52:54:00:12:34:56\"", hint);
    }
    for (i, address) in interface.addresses.iter().enumerate() {
        network(&path.key("addresses").index(i), address, findings);
    }
}

fn network(path: &KeyPath, text: &str, findings: &mut Findings<'_>) {
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
