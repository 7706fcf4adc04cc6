//! What cannot be in a Site: one list for the desk, where `foothold lint` shows it in the file, and for the box, which says it
//! on its console.
//!
//! ```text
//! Site ─► Checks: each value, then what contradicts another ─► Finding: key path, found, expected, hint
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Site;
use crate::net::{Cidr, MacAddress, is_label};
use crate::servers::ServersNetwork;

mod interfaces;
mod keys;
mod servers;

pub use keys::{is_public_key, wrong_token_hash};

/// The cluster's own address on every box.
pub const CLUSTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Longest name of a host (RFC 1035, 2.3.4).
const LONGEST_HOST: usize = 253;

/// One step into a Site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A key of a mapping.
    Name(&'static str),
    /// A position in a list.
    Index(usize),
}

/// Where a value stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<Key>);

impl Path {
    /// The path of a key with its parts, such as `networks.dns`.
    pub fn of(keys: &'static str) -> Self {
        Self(keys.split('.').map(Key::Name).collect())
    }

    /// The path of a key of this mapping.
    #[must_use]
    pub fn key(&self, key: &'static str) -> Self {
        Self(self.0.iter().cloned().chain(key.split('.').map(Key::Name)).collect())
    }

    /// The path of an item of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(self.0.iter().cloned().chain([Key::Index(index)]).collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, key) in self.0.iter().enumerate() {
            match key {
                Key::Name(name) if number == 0 => f.write_str(name)?,
                Key::Name(name) => write!(f, ".{name}")?,
                Key::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// A value that cannot be, or that does harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it stands.
    pub path: Path,
    /// What is wrong with what was found.
    pub found: String,
    /// What should stand there.
    pub expected: String,
    /// What to do.
    pub hint: String,
    /// It can be all the same.
    pub warning: bool,
    /// The value itself must not be shown.
    pub secret: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, found, expected, hint, .. } = self;
        write!(f, "`{path}`: {found}, expected {expected} ({hint})")
    }
}

/// Everything that cannot be in a Site.
pub fn findings(site: &Site) -> Vec<Finding> {
    let mut checks = Checks::default();
    if site.api_version != "foothold.dev/v1" {
        let found = format!("`{}` is not a version of this format", site.api_version);
        checks.add(&Path::of("apiVersion"), found, "`foothold.dev/v1`", "write `foothold.dev/v1`");
    }
    if site.kind != "Site" {
        checks.add(&Path::of("kind"), format!("`{}` is not a Site", site.kind), "`Site`", "write `kind: Site`");
    }
    checks.hostname(site);
    checks.networks(site);
    checks.access(site);
    let uploads = &site.uploads;
    for (key, share) in [
        ("uploads.binaryPercent", uploads.binary_percent),
        ("uploads.containerPercent", uploads.container_percent),
        ("uploads.osPercent", uploads.os_percent),
    ] {
        if let Some(share) = share.filter(|share| *share > 84) {
            let found = format!("{share} percent of DATA are too much");
            checks.add(&Path::of(key), found, "at most 84", "the cluster needs the rest");
        }
    }
    for (number, peer) in site.ntp.peers.iter().enumerate() {
        checks.peer(&Path::of("ntp.peers").index(number), peer);
    }
    checks.list
}

/// What cannot be in the network of the servers, at `path`: the definition has one, too.
pub fn of_servers(servers: &ServersNetwork, path: &Path) -> Vec<Finding> {
    let mut checks = Checks::default();
    checks.servers(servers, path);
    checks.list
}

/// What a Site makes wrong of this network of the servers, which stands elsewhere: its interface is a part of another one, or
/// addresses that it leases are somebody's.
pub fn servers_beside(site: &Site, servers: &ServersNetwork) -> Vec<Finding> {
    let mut checks = Checks::default();
    checks.card_beside(&site.networks, servers);
    checks.leased(site, servers, &Path::of("services.provisioning"));
    checks.list
}

/// [`against_cluster`] for the network of the servers alone.
pub fn servers_against_cluster(own: &str, path: &Path, clusters: &[(&'static str, Cidr)]) -> Vec<Finding> {
    let mut checks = Checks::default();
    checks.overlap(path, own, clusters);
    checks.list
}

/// Networks of the site that the cluster of the box would hide from it. `clusters`: names and networks of the cluster.
pub fn against_cluster(site: &Site, clusters: &[(&'static str, Cidr)]) -> Vec<Finding> {
    let mut checks = Checks::default();
    for (path, text) in networks_of(site) {
        checks.overlap(&path, text, clusters);
    }
    for (path, server) in servers_of(site) {
        if let Some((name, own)) = clusters.iter().find(|(_, own)| own.contains(server)) {
            let found = format!("{server} lies in `{name}` {own} of the cluster");
            let hint = format!("give the cluster another network: `kubernetes: {{ {name}: ... }}`");
            checks.add(&path, found, "a server outside of the cluster's", &hint);
        }
    }
    checks.list
}

/// All servers that a Site names by their address.
fn servers_of(site: &Site) -> Vec<(Path, IpAddr)> {
    let listed = |path: Path, servers: &[IpAddr]| -> Vec<(Path, IpAddr)> {
        servers.iter().enumerate().map(|(number, server)| (path.index(number), *server)).collect()
    };
    let mut all = listed(Path::of("networks.dns"), &site.networks.dns);
    for (number, interface) in site.networks.interfaces.iter().enumerate() {
        all.extend(listed(Path::of("networks.interfaces").index(number).key("dns"), &interface.dns));
    }
    let peers = site.ntp.peers.iter().enumerate();
    all.extend(peers.filter_map(|(number, peer)| Some((Path::of("ntp.peers").index(number), peer.parse().ok()?))));
    all
}

/// All networks that a Site names, as they stand there.
fn networks_of(site: &Site) -> Vec<(Path, &String)> {
    let networks = &site.networks;
    let planes = networks.control_plane.cidrs.iter().enumerate();
    let mut all: Vec<_> =
        planes.map(|(number, text)| (Path::of("networks.controlPlane.cidrs").index(number), text)).collect();
    for (number, interface) in networks.interfaces.iter().enumerate() {
        let path = Path::of("networks.interfaces").index(number).key("addresses");
        all.extend(interface.addresses.iter().enumerate().map(|(number, text)| (path.index(number), text)));
        // A default route leads to everything that nothing else does.
        let routes = interface.routes.iter().enumerate().filter(|(_, route)| !route.destination.ends_with("/0"));
        let path = Path::of("networks.interfaces").index(number).key("routes");
        all.extend(routes.map(|(number, route)| (path.index(number).key("destination"), &route.destination)));
    }
    let servers = networks.provisioning.iter().filter_map(|servers| servers.address.as_ref());
    all.extend(servers.map(|text| (Path::of("networks.provisioning.address"), text)));
    all
}

#[derive(Default)]
struct Checks {
    list: Vec<Finding>,
    /// Where each was seen first.
    macs: BTreeMap<MacAddress, Path>,
    addresses: BTreeMap<IpAddr, Path>,
    /// Routes by the network that they lead to and their metric: of two that are alike the kernel keeps the last.
    routes: BTreeMap<(IpAddr, u8, Option<u32>), Path>,
    /// Networks on the wire.
    subnets: Vec<(Cidr, Path)>,
}

impl Checks {
    fn add(&mut self, path: &Path, found: impl Into<String>, expected: impl Into<String>, hint: &str) {
        let (found, expected, hint) = (found.into(), expected.into(), hint.to_owned());
        self.list.push(Finding { path: path.clone(), found, expected, hint, warning: false, secret: false });
    }

    fn warn(&mut self, path: &Path, found: String, expected: &str, hint: &str) {
        self.add(path, found, expected, hint);
        self.last(|finding| finding.warning = true);
    }

    fn secret(&mut self, path: &Path, found: &str, expected: &str, hint: &str) {
        self.add(path, found, expected, hint);
        self.last(|finding| finding.secret = true);
    }

    fn last(&mut self, change: impl FnOnce(&mut Finding)) {
        if let Some(finding) = self.list.last_mut() {
            change(finding);
        }
    }

    fn overlap(&mut self, path: &Path, text: &str, clusters: &[(&'static str, Cidr)]) {
        let Some(cidr) = Cidr::parse(text) else { return };
        for &(name, own) in clusters {
            let hint = format!("give the cluster another network: `kubernetes: {{ {name}: ... }}`");
            let outside = "a network outside of the cluster's";
            if own.contains(cidr.address) {
                self.add(path, format!("{text} lies in `{name}` {own} of the cluster"), outside, &hint);
            } else if cidr.contains(own.address) {
                let found = format!("the box cannot reach the part of {text} that is `{name}` {own} of its cluster");
                self.warn(path, found, outside, &hint);
            }
        }
    }

    fn hostname(&mut self, site: &Site) {
        let Some(name) = site.hostname.as_deref().filter(|name| !is_label(name)) else { return };
        let found = if name.is_empty() { "the text is empty".to_owned() } else { format!("`{name}` is not valid") };
        let near: String =
            name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(63).collect();
        let near = near.trim_matches('-');
        let hint = format!("for example `{}`", if near.is_empty() { "edge" } else { near });
        self.add(&Path::of("hostname"), found, "a DNS label (a-z, 0-9 and `-` inside, at most 63)", &hint);
    }

    fn networks(&mut self, site: &Site) {
        let networks = &site.networks;
        for (number, text) in networks.control_plane.cidrs.iter().enumerate() {
            let path = Path::of("networks.controlPlane.cidrs").index(number);
            if let Some(cidr) = self.cidr(&path, text)
                && let Some(what) = never_a_host(cidr.address).filter(|_| !cidr.address.is_unspecified())
            {
                self.add(&path, format!("`{text}` is {what}"), "a network of the site", "give that of an interface");
            }
        }
        self.interfaces(networks);
        self.name_servers(&Path::of("networks.dns"), &networks.dns);
        self.domains(&Path::of("networks.domains"), &networks.domains);
        if let Some(servers) = &networks.provisioning {
            let path = Path::of("networks.provisioning");
            self.servers(servers, &path);
            self.servers_card(networks, servers, &path);
            self.leased(site, servers, &path);
        }
    }

    /// Whether the gateway is reached from one of these addresses.
    pub(super) fn gateway(&mut self, path: &Path, gateway: IpAddr, own: &[Cidr]) {
        let (family, other) = if gateway.is_ipv4() { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
        let link_local = matches!(gateway, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let of_family = || own.iter().filter(|cidr| cidr.address.is_ipv4() == gateway.is_ipv4());
        let hint = "it is the router's address in the subnet of one of this interface's addresses";
        if let Some(what) = never_a_host(gateway) {
            self.add(path, format!("`{gateway}` is {what}"), "the address of a router", hint);
        } else if own.is_empty() {
            let hint = "give `addresses`, or leave the gateway to DHCP";
            self.add(
                path,
                format!("`{gateway}` is a gateway without an address of this interface"),
                "no gateway",
                hint,
            );
        } else if of_family().next().is_none() {
            let found = format!("`{gateway}` is an {family} gateway, and all addresses here are {other}");
            self.add(path, found, format!("an {other} gateway, or an {family} address"), hint);
        } else if of_family().any(|cidr| cidr.address == gateway) {
            self.add(path, format!("`{gateway}` is the box's own address"), "the address of a router", hint);
        } else if !link_local && !of_family().any(|cidr| cidr.contains(gateway)) {
            let nets: Vec<String> = of_family().map(|cidr| cidr.network().to_string()).collect();
            let found = format!("`{gateway}` lies outside of {}", nets.join(", "));
            self.add(path, found, "an address of this interface's subnet", hint);
        } else if let Some(what) = of_family().find_map(|cidr| end_of_subnet(Cidr { address: gateway, ..*cidr })) {
            self.add(path, format!("`{gateway}` is {what}"), "the address of a router", hint);
        }
    }

    /// An address that the box is to have.
    pub(super) fn own_address(&mut self, path: &Path, text: &str, cidr: Cidr) {
        let hint = "ask the network's owner for an address that is free";
        let expected = "an address of one host";
        if let Some(what) = never_a_host(cidr.address).or_else(|| end_of_subnet(cidr)) {
            return self.add(path, format!("`{text}` is {what}"), expected, hint);
        }
        if cidr.prefix == 0 {
            let found = format!("`{text}` says that every address is in the box's own subnet");
            return self.add(path, found, "the prefix length of the subnet", "24 is usual");
        }
        if cidr.address == IpAddr::from(CLUSTER_ADDRESS) {
            let found = format!("`{text}` is the cluster's own address on every box");
            return self.add(path, found, "another address", hint);
        }
        if let Some(first) = self.addresses.get(&cidr.address) {
            let found = format!("`{}` stands at `{first}` already", cidr.address);
            return self.add(path, found, "each address once", "two interfaces cannot have one address");
        }
        self.addresses.insert(cidr.address, path.clone());
        let net = cidr.network();
        // Where the servers are may be an interface of which an item says more.
        let elsewhere = |other: &Path| other.0.get(1) == path.0.get(1) && other.0.get(2) != path.0.get(2);
        let alone = net.prefix == if net.address.is_ipv4() { 32 } else { 128 };
        if let Some((_, first)) = self.subnets.iter().find(|(other, at)| *other == net && !alone && elsewhere(at)) {
            let found = format!("`{net}` is the subnet of `{first}`, too");
            let hint = "the box reaches a subnet by one interface only: bond the two, or give each a subnet of its own";
            self.warn(path, found, "one interface for a subnet", hint);
        }
        self.subnets.push((net, path.clone()));
    }

    /// One more way to a network.
    pub(super) fn way(&mut self, path: &Path, to: Cidr, metric: Option<u32>) {
        match self.routes.get(&(to.address, to.prefix, metric)).cloned() {
            Some(first) => {
                let found = format!("the way to {to} stands at `{first}` already");
                let hint = "give one of them in `routes`, with a `metric`: that with the lower one is used";
                self.add(path, found, "each way once, or with another metric", hint);
            }
            None => drop(self.routes.insert((to.address, to.prefix, metric), path.clone())),
        }
    }

    fn cidr(&mut self, path: &Path, text: &str) -> Option<Cidr> {
        let cidr = Cidr::parse(text);
        if cidr.is_none() {
            let expected = "an address with prefix length, such as `10.0.0.5/24`";
            self.add(path, format!("`{text}` is not valid"), expected, "give both, with a `/` between them");
        }
        cidr
    }

    fn access(&mut self, site: &Site) {
        let access = &site.access;
        if let Some(found) = access.token_sha256.as_deref().and_then(wrong_token_hash) {
            let hint = "it is printed by `printf %s TOKEN | sha256sum`; the token itself never stands in a file";
            let expected = "the SHA-256 of a token, 64 lower-case hex digits";
            self.secret(&Path::of("access.tokenSha256"), found, expected, hint);
        }
        for (number, key) in access.ssh_authorized_keys.iter().enumerate() {
            if let Some(keys::WrongKey { found, hint }) = keys::wrong_key(key) {
                let path = Path::of("access.sshAuthorizedKeys").index(number);
                self.add(&path, found, "`TYPE BASE64 COMMENT`", hint);
            }
        }
        for (number, key) in access.site_keys.iter().enumerate() {
            if !is_minisign_key(key) {
                let path = Path::of("access.siteKeys").index(number);
                let hint = "copy the second line of a `minisign.pub`";
                self.add(&path, "this is not a public key of minisign", "56 letters that begin with `RW`", hint);
            }
        }
        if access.client_ca.as_deref().is_some_and(|pem| !are_certificates(pem)) {
            let hint = "copy the whole file, its first and last line included";
            self.add(&Path::of("access.clientCa"), "this is no certificate", "a certificate in PEM", hint);
        }
    }

    fn peer(&mut self, path: &Path, peer: &str) {
        let address = peer.parse::<IpAddr>();
        if let Ok(address) = address {
            if let Some(what) = never_a_host(address) {
                self.add(path, format!("`{peer}` is {what}"), "the address of a time server", "name a host");
            }
        } else if !is_host(peer) {
            let found = if peer.is_empty() { "the text is empty".to_owned() } else { format!("`{peer}` is no host") };
            let hint = "one server an item, without port and options";
            self.add(path, found, "a host name or an address, such as `ntp.example.org`", hint);
        }
    }
}

/// What an address is that no host can have; `None` for one that can.
pub fn never_a_host(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_unspecified() => Some("no address"),
        _ if address.is_loopback() => Some("a loopback address"),
        _ if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("the broadcast address"),
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some("an address of no network (0.0.0.0/8)"),
        IpAddr::V4(v4) if v4.octets()[0] >= 240 => Some("a reserved address (240.0.0.0/4)"),
        IpAddr::V4(v4) if v4.octets()[0] == 127 => Some("a loopback address"),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Some("an IPv4 address in the form of IPv6"),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

/// Whether it is the first or the last address of its subnet, which no host has (RFC 3021 for /31).
fn end_of_subnet(cidr: Cidr) -> Option<&'static str> {
    match cidr.address {
        IpAddr::V4(v4) if cidr.prefix < 31 => {
            let host = u32::MAX.checked_shr(u32::from(cidr.prefix)).unwrap_or(0);
            match v4.to_bits() & host {
                0 => Some("the address of the subnet itself"),
                bits if bits == host => Some("the broadcast address of its subnet"),
                _ => None,
            }
        }
        // The anycast address of the subnet's routers (RFC 4291, 2.6.1).
        IpAddr::V6(v6) if cidr.prefix < 127 && Cidr { address: v6.into(), ..cidr }.network().address == v6 => {
            Some("the address of the subnet itself")
        }
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

/// Whether it can be the name of a host (RFC 1123, 2.1; `_` is common). What ends in a number is an address, and a wrong one.
pub fn is_host(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= LONGEST_HOST && name.split('.').all(label) && !last.bytes().all(|b| b.is_ascii_digit())
}

/// `Ed`, eight bytes of an identifier, 32 of the key (minisign, "Public key format").
fn is_minisign_key(text: &str) -> bool {
    STANDARD.decode(text).is_ok_and(|bytes| bytes.len() == 42 && bytes.starts_with(b"Ed"))
}

/// Whether a text has certificates in PEM (RFC 7468, 5), all of them whole.
fn are_certificates(pem: &str) -> bool {
    let mut parts = pem.split("-----BEGIN CERTIFICATE-----").skip(1).peekable();
    let whole = |part: &str| {
        let text =
            part.split_once("-----END CERTIFICATE-----").map(|(text, _)| text.split_whitespace().collect::<String>());
        // DER begins with a sequence (X.690, 8.9).
        text.and_then(|text| STANDARD.decode(text).ok()).is_some_and(|der| der.first() == Some(&0x30))
    };
    parts.peek().is_some() && parts.all(whole)
}

#[cfg(test)]
mod tests;
