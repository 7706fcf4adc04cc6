//! Ports: the MAC addresses by which Ironic knows a node, and whose they are where two hosts have the same.
//!
//! ```text
//! bootMACAddress ──────────────┐
//! what inspection found: cards ┼─► macs ──► a port each, of one node only
//!   not: a BMC's virtual card, which has the same address in every server of a kind
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_api::metal3::{BareMetalHost, Nic};
use kube::ResourceExt as _;

use super::Executor;
use crate::ironic::{IronicError, Node, Port};
use crate::operators::kit::Object as _;
use crate::operators::metal3::common::ActError;

/// MAC addresses that Ironic must know a host by, and whether it boots from them: the one of the spec, and those of the
/// cards that inspection found. The ramdisk calls back with them, so that a lost database must get them all again; with
/// an address of two nodes among them Ironic knows neither.
pub fn macs(host: &BareMetalHost, all: &[Arc<BareMetalHost>]) -> BTreeMap<String, bool> {
    let mut macs: BTreeMap<String, bool> = BTreeMap::new();
    let found = nics(host);
    // Cards have ids of their bus; a BMC out of band tells no ids at all.
    let has_ids = found.iter().any(Nic::has_id);
    for nic in found {
        let Some(mac) = nic.mac.as_ref().map(|mac| mac.to_lowercase()) else { continue };
        let pxe = nic.pxe.unwrap_or_default();
        if pxe || (nic.has_id() || !has_ids) && !is_shared(host, &mac, all) {
            *macs.entry(mac).or_default() |= pxe;
        }
    }
    if let Some(mac) = boot_mac(host) {
        macs.insert(mac, true);
    }
    macs
}

fn nics(host: &BareMetalHost) -> &[Nic] {
    host.status.as_ref().and_then(|status| status.hardware.as_ref()?.nics.as_deref()).unwrap_or_default()
}

fn boot_mac(host: &BareMetalHost) -> Option<String> {
    host.spec.boot_mac_address.as_ref().filter(|mac| !mac.is_empty()).map(|mac| mac.to_lowercase())
}

/// Whether another host has an interface with this address.
fn is_shared(host: &BareMetalHost, mac: &str, all: &[Arc<BareMetalHost>]) -> bool {
    let same = |other: &str| other.eq_ignore_ascii_case(mac);
    all.iter().any(|other| {
        other.key() != host.key()
            && (other.spec.boot_mac_address.as_deref().is_some_and(same)
                || nics(other).iter().any(|nic| nic.mac.as_deref().is_some_and(same)))
    })
}

/// Another host that boots from the same address, and goes before this one: one that Ironic knows, else the older one.
pub(super) fn rival(host: &BareMetalHost, all: &[Arc<BareMetalHost>]) -> Option<String> {
    let mac = boot_mac(host)?;
    let rank = |one: &BareMetalHost| {
        let unknown = one.status.as_ref().is_none_or(|status| status.provisioning.id.is_empty());
        (unknown, one.creation_timestamp().map(|time| time.0), one.key())
    };
    let first = |other: &&Arc<BareMetalHost>| boot_mac(other).as_ref() == Some(&mac) && rank(other) < rank(host);
    all.iter().find(first).map(|other| other.key()).map(|(namespace, name)| format!("{namespace}/{name}"))
}

/// A host by the name of its node.
pub(super) fn host_of(node: &str) -> String {
    node.replacen('~', "/", 1)
}

/// What is wrong with a host that boots from another one's address. `all`: the hosts that are known.
pub(super) fn conflict(host: &BareMetalHost, mac: &str, other: &str, all: &[Arc<BareMetalHost>]) -> String {
    let (namespace, name) = host.key();
    let is_there = all.iter().map(|one| one.key()).any(|(namespace, name)| format!("{namespace}/{name}") == other);
    let hint = if is_there {
        "one of them names another server's card; set the right address of a card in a new BareMetalHost".to_owned()
    } else {
        // Its finalizer was taken off, or a controller of another namespace has it.
        format!("no such host is known here; if it was removed by force, make `{other}` again and delete it")
    };
    format!(
        "bootMACAddress {mac} of BareMetalHost {namespace}/{name} conflicts with BareMetalHost {other}, which has it; \
         hint: {hint}"
    )
}

impl Executor {
    /// Makes missing ports; why that cannot be. What another node has is left to it: the host does without, as long as it
    /// is not what it boots from.
    pub(super) async fn ensure_ports(&self, host: &BareMetalHost, node: &Node) -> Result<Option<String>, ActError> {
        let there = self.ironic.ports_of(&node.uuid).await?;
        for (mac, pxe) in macs(host, &self.hosts.state()) {
            if there.iter().any(|port| port.address.eq_ignore_ascii_case(&mac)) {
                continue;
            }
            match self.ironic.create_port(&node.uuid, &mac, pxe).await {
                Ok(()) => {}
                Err(IronicError::Taken(why)) => {
                    let owner = self.ironic.port_by_address(&mac).await?.map(|port| port.node_uuid);
                    if owner.as_deref() == Some(&node.uuid) || boot_mac(host).as_ref() != Some(&mac) {
                        continue;
                    }
                    let other = match owner {
                        Some(owner) => self.ironic.node(&owner).await?.and_then(|node| node.name),
                        None => None,
                    };
                    return Ok(Some(
                        other.map_or(why, |node| conflict(host, &mac, &host_of(&node), &self.hosts.state())),
                    ));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Whether all ports are there that can be: another node's are left to it.
    pub(in super::super) async fn has_ports(&self, host: &BareMetalHost, ports: &[Port]) -> Result<bool, IronicError> {
        for mac in macs(host, &self.hosts.state()).into_keys() {
            if ports.iter().any(|port| port.address.eq_ignore_ascii_case(&mac)) {
                continue;
            }
            if boot_mac(host).as_ref() == Some(&mac) || self.ironic.port_by_address(&mac).await?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
#[path = "ports_tests.rs"]
mod tests;
