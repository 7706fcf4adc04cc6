//! The optional second document: a Site, checked like the agent will, but all of it and with places.

use agent_api::net::Cidr;
use agent_api::servers::{Provisioning, ServersNetwork};
use agent_api::site::check::{self, Key, Path};
use agent_api::site::{Finding, Site};

use super::Findings;
use super::appliance::{Appliance, Kubernetes};
use super::path::KeyPath;
use super::tree::Node;
use super::{schema, shape};

pub(super) fn check(document: &Node, findings: &mut Findings<'_>) -> Option<Site> {
    let before = findings.errors();
    let input = shape::check(document, &schema::of::<Site>(), findings)?;
    match serde_json::from_value(input) {
        Ok(site) => {
            tell(check::findings(&site), findings);
            Some(site)
        }
        // What does not deserialize lacks a key or has a wrong one. Where that is told already, the rest is not looked at.
        Err(error) if findings.errors() > before => {
            let found = format!("the values of this Site were not looked at: {error}");
            let hint = "mend the errors, then lint it again: there may be more";
            findings.warn(&KeyPath::of("kind"), &found, "a Site whose keys are all as they should be", hint);
            None
        }
        Err(error) => {
            let found = format!("the document cannot be read: {error}");
            let hint = "compare it with `foothold schema`";
            findings.at(&KeyPath::default(), &found, "a document of `kind: Site`", hint);
            None
        }
    }
}

/// Networks of the site that the cluster would hide from the box, and the servers' card where the site makes it a part of another.
pub(super) fn against(site: &Site, appliance: &Appliance, findings: &mut Findings<'_>) {
    tell(check::against_cluster(site, &networks(&appliance.kubernetes)), findings);
    if let (None, Some(servers)) = (&site.networks.provisioning, &appliance.services.provisioning) {
        tell(check::servers_beside(site, &ServersNetwork::from(servers)), findings);
    }
}

/// The same for the network of the servers that the definition itself names.
pub(super) fn servers_against(appliance: &Appliance, findings: &mut Findings<'_>) {
    if let Some(own) = appliance.services.provisioning.as_ref().and_then(|servers| servers.address) {
        let path = Path::of("services.provisioning.address");
        tell(check::servers_against_cluster(&own.to_string(), &path, &networks(&appliance.kubernetes)), findings);
    }
}

/// The cluster's networks by their keys.
fn networks(kubernetes: &Kubernetes) -> Vec<(&'static str, Cidr)> {
    let own = [("podCIDR", kubernetes.pod_cidr), ("serviceCIDR", kubernetes.service_cidr)];
    own.into_iter().filter_map(|(name, own)| Some((name, Cidr::parse(&own.to_string())?))).collect()
}

/// What the box would say, at its place in the file.
fn tell(found: Vec<Finding>, findings: &mut Findings<'_>) {
    for Finding { path, found, expected, hint, warning, secret } in found {
        let path = key_path(&path);
        match (warning, secret) {
            (true, _) => findings.warn(&path, &found, &expected, &hint),
            (false, true) => findings.at_secret(&path, &found, expected, &hint),
            (false, false) => findings.at(&path, &found, expected, &hint),
        }
    }
}

fn key_path(path: &Path) -> KeyPath {
    path.0.iter().fold(KeyPath::default(), |path, key| match key {
        Key::Name(name) => path.key(name),
        Key::Index(index) => path.index(*index),
    })
}

/// The servers' network of a definition.
pub(super) fn servers_network(input: &ServersNetwork, findings: &mut Findings<'_>) -> Provisioning {
    tell(check::of_servers(input, &Path::of("services.provisioning")), findings);
    input.resolve().0
}
