//! Which machines are on the servers' network, and what each of them may read from Ironic. The agent stands before Ironic's
//! API and before the files that Ironic makes: both hold secrets of servers, and Ironic itself does not check who asks.
//!
//! ```text
//! BareMetalHosts, segment ─ facts ─► RUN ─┐
//! leases on DATA ─────────────────────────┼─► Known (who has which address) ─┬─ gate: port 6385 ─► Ironic on loopback
//! the kernel's neighbours ────────────────┘                                  └─ Served: /provisioning/
//! ```
//! An address belongs to a server if it lies on the servers' segment, is leased, or is in network data. What concerns one
//! server only is for that server and its BMC. So a look-up of a MAC address is answered only to the address that has this
//! MAC address's lease (if there is no lease: from which the kernel hears it), and a file named after a node is given only
//! to that node's addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use agent_api::net::{Cidr, MacAddress};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dhcp;
use super::segment::dnsmasq::LEASES;
use super::segment::leases::{self, Lease};
use crate::host::{Runner as _, System, addresses};

mod gate;
mod rules;

pub use gate::{Gate, start};

/// The file with the facts about servers, in `/run`.
pub const SERVERS: &str = "/run/foothold/servers.json";
/// The box's address on their network, with the length of its prefix, in `/run`.
pub const SEGMENT: &str = "/run/foothold/servers-segment";

/// The kernel's table of who is heard by IPv4 (proc(5)).
const ARP: &str = "/proc/net/arp";
/// The kernel answers at once.
const ANSWER: Duration = Duration::from_secs(2);

/// The addresses of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFacts {
    /// Its cards: the one that it boots from, and those that were found in it.
    pub macs: BTreeSet<MacAddress>,
    /// Addresses that its network data give it.
    pub addresses: BTreeSet<IpAddr>,
    /// Those of its BMC.
    pub bmc: BTreeSet<IpAddr>,
    /// Ironic's id of it.
    pub node: Option<String>,
}

/// Where the box reads what it knows of the machines on the network.
#[derive(Clone, Debug)]
pub struct Wire {
    root: PathBuf,
}

impl Wire {
    /// For the box at `root`.
    pub fn of(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// What is known now about the machine with `address`. Reads files.
    pub fn known(&self, address: IpAddr) -> Known {
        let read =
            |path: &str| fs_err::read_to_string(self.root.join(path.trim_start_matches('/'))).unwrap_or_default();
        Known {
            address: plain(address),
            own: addresses().unwrap_or_default().into_iter().map(|one| one.address).collect(),
            segment: Cidr::parse(read(SEGMENT).trim()),
            servers: serde_json::from_str(&read(SERVERS)).unwrap_or_default(),
            leases: leases::read(&read(&format!("{}/{LEASES}", dhcp::STATE))),
            now: Timestamp::now(),
            heard: OnceLock::new(),
        }
    }
}

/// Turns an IPv4 address that came over a socket of IPv6 into an IPv4 address.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The MAC address from which the kernel hears that address on a link of its own.
fn heard(address: IpAddr) -> Option<MacAddress> {
    let asked = System::new().run(&["ip", "-j", "neighbour", "show", "to", &address.to_string()], b"", ANSWER);
    let Ok(asked) = asked else {
        // In a pod of the agent's image, which has no `ip`: the kernel's table of IPv4.
        return in_arp(&fs_err::read_to_string(ARP).ok()?, address);
    };
    let found: Value = serde_json::from_str(&asked.text()).ok()?;
    found.as_array()?.iter().find_map(|one| one["lladdr"].as_str()?.parse().ok())
}

/// The MAC address of an entry of [`ARP`] that is complete: address, type, flags, MAC address, mask, device.
fn in_arp(table: &str, address: IpAddr) -> Option<MacAddress> {
    let mut lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find_map(|words| match words.as_slice() {
        [found, _, flags, mac, ..] if found.parse() == Ok(address) && *flags != "0x0" => mac.parse().ok(),
        _ => None,
    })
}

/// What is known of the machine with an address.
#[derive(Clone, Debug)]
pub struct Known {
    address: IpAddr,
    own: Vec<IpAddr>,
    segment: Option<Cidr>,
    servers: Vec<ServerFacts>,
    leases: Vec<Lease>,
    now: Timestamp,
    /// The MAC address from which the kernel hears it, once it was asked.
    heard: OnceLock<Option<MacAddress>>,
}

impl Known {
    /// Whether it is the box itself.
    pub fn is_own(&self) -> bool {
        self.address.is_loopback() || self.own.contains(&self.address)
    }

    fn is_beside(&self) -> bool {
        self.segment.is_some_and(|segment| segment.contains(self.address))
    }

    /// Whether the address is on the servers' network.
    pub fn is_server(&self) -> bool {
        let told = || self.servers.iter().any(|server| server.addresses.contains(&self.address));
        self.is_beside() || told() || self.leased().next().is_some()
    }

    fn is_bmc(&self) -> bool {
        self.servers.iter().any(|server| server.bmc.contains(&self.address))
    }

    fn leased(&self) -> impl Iterator<Item = MacAddress> {
        let holds = |lease: &&Lease| {
            lease.address == self.address && leases::address_of(&self.leases, lease.mac, self.now) == Ok(lease.address)
        };
        self.leases.iter().filter(holds).map(|lease| lease.mac)
    }

    /// The MAC addresses of the machine: from leases and network data, else from the kernel; and the other MAC addresses of
    /// the same server. It may ask the kernel.
    pub fn macs(&self) -> BTreeSet<MacAddress> {
        let mut macs: BTreeSet<MacAddress> = self.leased().collect();
        let told = self.servers.iter().filter(|server| server.addresses.contains(&self.address));
        macs.extend(told.flat_map(|server| self.cards_of(server)));
        // Who has a lease of the box elsewhere is not whom the kernel hears here.
        let unleased = |mac: &MacAddress| leases::address_of(&self.leases, *mac, self.now).is_err();
        if macs.is_empty() && self.is_beside() {
            let heard = self.heard.get_or_init(|| heard(self.address));
            macs.extend(heard.filter(unleased));
        }
        let of = |server: &&ServerFacts| self.cards_of(server).any(|mac| macs.contains(&mac));
        let same: Vec<MacAddress> = self.servers.iter().filter(of).flat_map(|server| self.cards_of(server)).collect();
        macs.extend(same);
        macs
    }

    /// Cards that only this server has. Cards that several servers report (those of BMCs, for example) do not identify a
    /// server.
    fn cards_of(&self, server: &ServerFacts) -> impl Iterator<Item = MacAddress> {
        let has = |mac: &MacAddress| self.servers.iter().filter(|other| other.macs.contains(mac)).count();
        server.macs.iter().copied().filter(move |mac| has(mac) == 1)
    }

    /// Whether the machine may read this file of Ironic's. `path` is below Ironic's folder.
    pub fn may_fetch(&self, path: &str) -> bool {
        if self.is_own() {
            return true;
        }
        let of_nodes: Vec<&ServerFacts> =
            self.servers.iter().filter(|server| server.node.as_ref().is_some_and(|node| path.contains(node))).collect();
        if of_nodes.is_empty() {
            // That of a node which is not told yet is for a BMC at most: nobody knows whose it is.
            return self.is_bmc() || (self.is_server() && node_of(path).is_none());
        }
        let macs = self.macs();
        let is = |server: &ServerFacts| self.cards_of(server).any(|mac| macs.contains(&mac));
        of_nodes.iter().any(|server| server.bmc.contains(&self.address) || is(server))
    }
}

/// The id of a node that a path names (RFC 9562, 4).
pub fn node_of(path: &str) -> Option<&str> {
    const LENGTH: usize = 36;
    let is_uuid = |text: &str| {
        text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    (0..path.len()).filter_map(|start| path.get(start..start + LENGTH)).find(|text| is_uuid(text))
}

/// The addresses in network data (`OpenStack`'s `network_data.json`).
pub fn addresses_in(network_data: &Value) -> BTreeSet<IpAddr> {
    let networks = network_data["networks"].as_array();
    let address = |network: &Value| network["ip_address"].as_str()?.split('/').next()?.parse().ok();
    networks.into_iter().flatten().filter_map(address).collect()
}

/// The cards and the id of a `BareMetalHost`, and the name or address of its BMC.
pub fn of_host(host: &Value) -> (ServerFacts, Option<String>) {
    let boot = host["spec"]["bootMACAddress"].as_str().and_then(MacAddress::from_any);
    let nics = host["status"]["hardware"]["nics"].as_array();
    let found = nics.into_iter().flatten().filter_map(|nic| MacAddress::from_any(nic["mac"].as_str()?));
    let node = host["status"]["provisioning"]["ID"].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
    let address = host["spec"]["bmc"]["address"].as_str().unwrap_or_default();
    let bmc = address.parse().ok().map(|address: agent_api::metal3::bmc_address::BmcAddress| address.hostname);
    (ServerFacts { macs: boot.into_iter().chain(found).collect(), node, ..ServerFacts::default() }, bmc)
}

#[cfg(test)]
pub(super) mod tests;
