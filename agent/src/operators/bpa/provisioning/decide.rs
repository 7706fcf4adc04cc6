//! Which host each node gets. Pure: hosts, leases and wishes in, a choice with its reasons out.
//!
//! Nodes that have a host keep it. Then those with a MAC address, then the most demanding first; each takes the smallest
//! host that will do, of equal ones the first by name: the same hosts give the same choice each time.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use agent_api::clusters::provisioning::{
    ADDRESS_ANNOTATION, NODE_ANNOTATION, NodeRole, NodeStatus, NotChosen, Provisioning,
};
use agent_api::metal3::annotations::{DETACHED, PAUSED};
use agent_api::metal3::{BareMetalHost, Nic, ObjectReference, ProvisioningState};
use agent_api::net::MacAddress;
use agent_api::sip::cluster::cluster_of;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::tenant::is_tenants;
use super::wishes::{Wanted, WantedNode};
use crate::operators::kit::{Key, Object as _, told_key};
use crate::provisioning::segment::leases::{Lease, address_of};

/// Kind of a consumer, as a host names it.
const KIND: &str = "Provisioning";
/// Group and version of a consumer, as a host names it.
const API_VERSION: &str = "bpa.akraino.org/v1alpha1";
/// Label by which users say that a host has `QuickAssist`: inspection does not tell it.
const QAT: &str = "bpa.akraino.org/qat";
/// Label by which users say that a host can do SR-IOV, if inspection does not tell it.
const SRIOV: &str = "bpa.akraino.org/sriov";
/// Vendor and device of cards that can do SR-IOV, as inspection writes them: Intel's 82599, X540, X550, X710, XL710, XXV710,
/// E810; all of Mellanox' `ConnectX` are matched by their vendor.
const SRIOV_CARDS: [&str; 14] = [
    "0x8086 0x10fb",
    "0x8086 0x1528",
    "0x8086 0x1563",
    "0x8086 0x1572",
    "0x8086 0x1581",
    "0x8086 0x1583",
    "0x8086 0x1584",
    "0x8086 0x1589",
    "0x8086 0x158a",
    "0x8086 0x158b",
    "0x8086 0x1592",
    "0x8086 0x1593",
    "0x8086 0x159b",
    "0x15b3 ",
];

/// A node and its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The node.
    pub name: String,
    /// What it does.
    pub roles: Vec<NodeRole>,
    /// Its host.
    pub host: Key,
    /// The card whose address it has.
    pub mac: MacAddress,
    /// Its address.
    pub ip: IpAddr,
    /// Whether the box's DHCP leased it that address: the server would lose it when the box is away.
    pub leased: bool,
}

impl Chosen {
    /// Whether the status tells of this node, on this host.
    pub fn is(&self, told: &NodeStatus) -> bool {
        self.name == told.name && told_key(&self.host) == told.host
    }
}

/// The result of choosing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Nodes with a host, masters first.
    pub chosen: Vec<Chosen>,
    /// Why the others have none, each a sentence.
    pub lacking: Vec<String>,
    /// Every host that was looked at and not chosen, while nodes are lacking.
    pub not_chosen: Vec<NotChosen>,
}

/// The reference to a cluster, as a host has it.
pub fn reference(object: &Provisioning) -> ObjectReference {
    let (namespace, name) = object.key();
    let uid = object.metadata.uid.clone();
    ObjectReference { uid, ..ObjectReference::of(API_VERSION, KIND, namespace, name) }
}

/// The cluster that a host names, as namespace and name.
pub fn consumer(host: &BareMetalHost) -> Option<(&str, &str)> {
    host.spec.consumer_ref.as_ref()?.names(API_VERSION, KIND)
}

/// Whether a host is a node of the cluster, or is claimed for it.
pub fn is_of(host: &BareMetalHost, object: &Provisioning) -> bool {
    let (namespace, name) = object.key();
    consumer(host) == Some((&namespace, &name))
}

/// Leases that DHCP gave, and the time at which they are looked at.
#[derive(Clone, Debug)]
pub struct Leases {
    /// Of all files.
    pub all: Vec<Lease>,
    /// Now.
    pub now: Timestamp,
}

/// Chooses.
pub fn choose(object: &Provisioning, wanted: &Wanted, hosts: &[Arc<BareMetalHost>], leases: &Leases) -> Choice {
    let mut hosts: Vec<&BareMetalHost> = hosts.iter().map(AsRef::as_ref).collect();
    hosts.sort_by_key(|host| host.key());
    let mut choice = Choice::default();
    let mut taken: BTreeSet<Key> = BTreeSet::new();
    let mut order: Vec<&WantedNode> = wanted.nodes.iter().collect();
    let claimed = |node: &WantedNode| {
        let own = |host: &&&BareMetalHost| {
            let named = host.annotations().get(NODE_ANNOTATION) == Some(&node.name);
            is_of(host, object)
                && named
                && node.host.as_ref().is_none_or(|key| *key == host.key())
                && node.mac.as_ref().is_none_or(|(mac, _)| has_card(host, *mac))
        };
        hosts.iter().find(own).copied()
    };
    // A stable sort: equal wishes stay in the order of the spec.
    order.sort_by_cached_key(|node| {
        let demand = (node.memory_mib, node.cpu, node.sriov, node.qat);
        (claimed(node).is_none(), node.mac.is_none(), Reverse(demand))
    });
    for node in order {
        let found = match claimed(node) {
            Some(host) => card_of(host, node, leases).map(|(mac, ip)| (host, mac, ip)),
            None => find(object, node, &hosts, &taken, leases),
        };
        match found {
            Ok((host, mac, ip)) => {
                taken.insert(host.key());
                choice.chosen.push(Chosen {
                    name: node.name.clone(),
                    roles: node.roles.clone(),
                    host: host.key(),
                    mac,
                    ip,
                    leased: is_leased(host, mac, ip, leases),
                });
            }
            Err(why) => choice.lacking.push(why),
        }
    }
    let place = |chosen: &Chosen| wanted.nodes.iter().position(|node| node.name == chosen.name);
    choice.chosen.sort_by_key(place);
    if !choice.lacking.is_empty() {
        let open: Vec<&WantedNode> =
            wanted.nodes.iter().filter(|node| !choice.chosen.iter().any(|chosen| chosen.name == node.name)).collect();
        for host in hosts.iter().filter(|host| !taken.contains(&host.key())) {
            choice.not_chosen.push(NotChosen { host: told_key(&host.key()), why: why_not(object, host, &open) });
        }
    }
    choice
}

fn why_not(object: &Provisioning, host: &BareMetalHost, open: &[&WantedNode]) -> String {
    if let Err(why) = is_usable(host, object) {
        return why;
    }
    let reasons: BTreeSet<String> = open
        .iter()
        .map(|node| match &node.mac {
            _ if node.host.as_ref().is_some_and(|key| *key != host.key()) => {
                format!("the SIPCluster has another one for {}", node.name)
            }
            Some((mac, _)) if !macs(host).contains(mac) => format!("it has no card {mac} ({})", node.name),
            _ => shortfall(host, node)
                .map_or_else(|| "it has no address".to_owned(), |why| format!("{why} ({})", node.name)),
        })
        .collect();
    reasons.into_iter().collect::<Vec<_>>().join("; ")
}

/// A host for a node that has none yet.
fn find<'a>(
    object: &Provisioning,
    node: &WantedNode,
    hosts: &[&'a BareMetalHost],
    taken: &BTreeSet<Key>,
    leases: &Leases,
) -> Result<(&'a BareMetalHost, MacAddress, IpAddr), String> {
    if let Some(key) = &node.host {
        let named = told_key(key);
        let host = hosts.iter().find(|host| host.key() == *key);
        let host = host.ok_or_else(|| format!("node {}: there is no BareMetalHost {named} any more", node.name))?;
        is_usable(host, object)
            .map_err(|why| format!("node {}: BareMetalHost {named} cannot be used: {why}", node.name))?;
        return card_of(host, node, leases).map(|(mac, ip)| (*host, mac, ip));
    }
    if let Some((mac, written)) = &node.mac {
        let host = hosts.iter().find(|host| macs(host).contains(mac));
        let host = host.ok_or_else(|| format!("Host with MAC Address {written} not found"))?;
        let named = told_key(&host.key());
        if taken.contains(&host.key()) {
            return Err(format!("BareMetalHost {named} has the card {written}, and is another node already"));
        }
        let told = |why: String| format!("node {}: BareMetalHost {named} cannot be used: {why}", node.name);
        is_usable(host, object).map_err(told)?;
        if let Some(why) = shortfall(host, node) {
            return Err(told(why));
        }
        return card_of(host, node, leases).map(|(mac, ip)| (*host, mac, ip));
    }
    let fitting = |host: &&&BareMetalHost| !taken.contains(&host.key()) && shortfall(host, node).is_none();
    let mut usable: Vec<&&BareMetalHost> =
        hosts.iter().filter(fitting).filter(|host| is_usable(host, object).is_ok()).collect();
    usable.sort_by_key(|host| (memory(host), processors(host), host.key()));
    let mut last = None;
    for host in &usable {
        match card_of(host, node, leases) {
            Ok((mac, ip)) => return Ok((**host, mac, ip)),
            Err(why) => last = Some(why),
        }
    }
    if let Some(why) = last {
        return Err(why);
    }
    let later: Vec<String> = hosts
        .iter()
        .filter(fitting)
        .filter_map(|host| is_usable(host, object).err().map(|why| told(host, &why)))
        .collect();
    let asked = asked(node);
    Err(if later.is_empty() {
        format!("node {}: no host has {asked}", node.name)
    } else {
        format!("node {}: no host with {asked} can be used: {}", node.name, later.join("; "))
    })
}

fn told(host: &BareMetalHost, why: &str) -> String {
    format!("{}: {why}", told_key(&host.key()))
}

fn asked(node: &WantedNode) -> String {
    let mut all = Vec::new();
    if node.cpu > 0 {
        all.push(format!("{} processors", node.cpu));
    }
    if node.memory_mib > 0 {
        all.push(format!("{} MiB of memory", node.memory_mib));
    }
    if node.sriov {
        all.push("a card for SR-IOV".to_owned());
    }
    if node.qat {
        all.push(format!("QAT (label `{QAT}: \"true\"`)"));
    }
    all.extend(node.labels.iter().map(|(key, value)| format!("the label `{key}: {value}`")));
    all.join(", ")
}

/// Whether a host runs an OS: one that was written to it, or whatever its user gave it where nobody provisions it here.
pub fn has_system(host: &BareMetalHost) -> bool {
    let installed = matches!(host.state(), ProvisioningState::Provisioned | ProvisioningState::ExternallyProvisioned);
    installed || host.spec.bmc.as_ref().is_none_or(|bmc| bmc.address.is_empty())
}

/// Whether the OS of a node's host was written after the node was installed: nothing of the node is left there.
pub fn is_written_anew(host: &BareMetalHost, node: &NodeStatus) -> bool {
    let written = || {
        let history = host.status.as_ref()?.operation_history.as_ref()?;
        history.provision.as_ref()?.end.as_ref()?.0
    };
    written().zip(node.installed_at).is_some_and(|(written, installed)| written.0 > installed.0)
}

/// Whether a host has a card, as far as is known: before an inspection only the card that it boots from is.
fn has_card(host: &BareMetalHost, mac: MacAddress) -> bool {
    macs(host).contains(&mac) || nics(host).next().is_none()
}

/// Whose host it is, if it is another's: who uses it says so in `consumerRef`, a `SIPCluster` in labels.
pub fn is_anothers(host: &BareMetalHost, object: &Provisioning) -> Option<String> {
    if is_of(host, object) {
        return None;
    }
    if let Some(by) = &host.spec.consumer_ref {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        return Some(format!("it is used by {} {}/{}", text(&by.kind), text(&by.namespace), text(&by.name)));
    }
    let (namespace, name) = cluster_of(host.labels()).filter(|_| !is_tenants(host, object))?;
    Some(format!("it is of SIPCluster {namespace}/{name}; hint: name that as `clusterRef` to use its hosts"))
}

/// Whether a host may become a node of the cluster, now.
fn is_usable(host: &BareMetalHost, object: &Provisioning) -> Result<(), String> {
    if host.leaves() {
        return Err("it is being deleted".to_owned());
    }
    if let Some(why) = is_anothers(host, object) {
        return Err(why);
    }
    if let Some(annotation) = [PAUSED, DETACHED].into_iter().find(|name| host.annotations().contains_key(*name)) {
        return Err(format!("it has the annotation `{annotation}`"));
    }
    let error = host.status.as_ref().map(|status| status.error_message.trim()).filter(|message| !message.is_empty());
    if let Some(error) = error {
        return Err(format!("it has an error: {error}"));
    }
    if has_system(host) {
        return Ok(());
    }
    match host.state() {
        ProvisioningState::Available | ProvisioningState::Ready => {
            Err("it is available and has no OS: give it an `image`".to_owned())
        }
        state => Err(format!("it is {state}, and not provisioned yet")),
    }
}

/// What a host lacks for a node.
fn shortfall(host: &BareMetalHost, node: &WantedNode) -> Option<String> {
    let mut all = Vec::new();
    if processors(host) < node.cpu {
        all.push(format!("{} processors of {}", processors(host), node.cpu));
    }
    if memory(host) < node.memory_mib {
        all.push(format!("{} MiB of memory of {}", memory(host), node.memory_mib));
    }
    let says = |label: &str| host.labels().get(label).is_some_and(|value| value == "true");
    let sriov = || {
        nics(host)
            .any(|nic| nic.model.as_deref().is_some_and(|model| SRIOV_CARDS.iter().any(|card| model.starts_with(card))))
    };
    if node.sriov && !says(SRIOV) && !sriov() {
        all.push("no card for SR-IOV".to_owned());
    }
    if node.qat && !says(QAT) {
        all.push(format!("no label `{QAT}: \"true\"`"));
    }
    for (key, value) in &node.labels {
        if host.labels().get(key) != Some(value) {
            all.push(format!("no label `{key}: {value}`"));
        }
    }
    (!all.is_empty()).then(|| format!("it has {}", all.join(", ")))
}

fn nics(host: &BareMetalHost) -> impl Iterator<Item = &Nic> {
    let hardware = host.status.as_ref().and_then(|status| status.hardware.as_ref());
    hardware.and_then(|hardware| hardware.nics.as_ref()).into_iter().flatten()
}

fn processors(host: &BareMetalHost) -> i64 {
    let hardware = host.status.as_ref().and_then(|status| status.hardware.as_ref());
    hardware.and_then(|hardware| hardware.cpu.as_ref()?.count).map_or(0, i64::from)
}

fn memory(host: &BareMetalHost) -> i64 {
    let hardware = host.status.as_ref().and_then(|status| status.hardware.as_ref());
    hardware.and_then(|hardware| hardware.ram_mebibytes).unwrap_or_default()
}

/// MAC addresses of a host: the card that it boots from first, then those that were found in it.
fn macs(host: &BareMetalHost) -> Vec<MacAddress> {
    let found = nics(host).filter_map(|nic| MacAddress::from_any(nic.mac.as_deref()?));
    let mut all: Vec<MacAddress> = boot_mac(host).into_iter().chain(found).collect();
    let mut seen = BTreeSet::new();
    all.retain(|mac| seen.insert(*mac));
    all
}

/// The card that a host boots from.
fn boot_mac(host: &BareMetalHost) -> Option<MacAddress> {
    host.spec.boot_mac_address.as_deref().and_then(MacAddress::from_any)
}

/// The card of a host and its address: as its network data has it where a `SIPCluster` chose it, else as inspection found
/// it, else by the newest active lease. IPv4 comes first.
fn card_of(host: &BareMetalHost, node: &WantedNode, leases: &Leases) -> Result<(MacAddress, IpAddr), String> {
    let wished = node.mac.as_ref().map(|(mac, _)| *mac);
    let cards = wished.map_or_else(|| macs(host), |mac| vec![mac]);
    let written = if node.mac.is_some() {
        node.written().to_owned()
    } else {
        cards.first().map(ToString::to_string).unwrap_or_default()
    };
    let mut expired = false;
    if let (Some(address), Some(mac)) = (node.address, cards.first()) {
        return Ok((*mac, address));
    }
    for mac in &cards {
        let mut found: Vec<IpAddr> = nics(host)
            .filter(|nic| nic.mac.as_deref().and_then(MacAddress::from_any) == Some(*mac))
            .filter_map(|nic| nic.ip.as_deref()?.split('%').next()?.parse().ok())
            .filter(|ip| !is_local(*ip))
            .collect();
        found.sort_by_key(IpAddr::is_ipv6);
        if let Some(&ip) = found.first() {
            return Ok((*mac, ip));
        }
        match address_of(&leases.all, *mac, leases.now) {
            Ok(ip) => return Ok((*mac, ip.into())),
            Err(_) => expired |= leases.all.iter().any(|lease| lease.mac == *mac),
        }
        // A node keeps its address, and asks for no lease any more.
        if let Some(ip) = kept_address(host, *mac) {
            return Ok((*mac, ip));
        }
    }
    Err(if expired {
        format!("No active ip address lease found for MAC address {written}")
    } else {
        format!("IP address not found for host with MAC address {written}")
    })
}

/// The address that DHCP keeps for the card that a node boots from.
fn kept_address(host: &BareMetalHost, mac: MacAddress) -> Option<IpAddr> {
    host.annotations().get(ADDRESS_ANNOTATION)?.parse().ok().filter(|_| boot_mac(host) == Some(mac))
}

/// Whether the box's DHCP leased that address. Only for the card that a host boots from it can be kept.
fn is_leased(host: &BareMetalHost, mac: MacAddress, ip: IpAddr, leases: &Leases) -> bool {
    let known = || leases.all.iter().any(|lease| lease.mac == mac && IpAddr::from(lease.address) == ip);
    kept_address(host, mac) == Some(ip) || (boot_mac(host) == Some(mac) && known())
}

/// Whether an address cannot be reached by other machines.
fn is_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_unspecified() || ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_unspecified() || ip.is_loopback(),
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
pub(super) mod tests;
