//! What cannot be in network data, though its shape is right. Who writes it reads of it before a machine starts with it.

use std::collections::{BTreeMap, BTreeSet};

use agent_api::net::is_interface_name;

use super::{Link, Network, NetworkData, NetworkDataError, wrong};

/// Smallest MTU (RFC 791), the largest there is, and that of a card of which nothing is said.
const MTU: (u32, u32, u32) = (68, 65_535, 1500);
/// Types of networks: those of nova's schema and of CAPM3, cloud-init's own (`network_state.py`), and that of Airship's samples, whose
/// templates write the type of a `Vino`'s network.
const TYPES: [(&str, How); 14] = [
    ("ipv4", How::Fixed),
    ("ipv6", How::Fixed),
    ("ipv4_dhcp", How::Dhcp4),
    ("ipv6_dhcp", How::Dhcp6),
    ("ipv6_slaac", How::Routers),
    ("ipv6_dhcpv6-stateful", How::Routers),
    ("ipv6_dhcpv6-stateless", How::Routers),
    ("static", How::Fixed),
    ("static6", How::Fixed),
    ("dhcp", How::Dhcp4),
    ("dhcp4", How::Dhcp4),
    ("dhcp6", How::Dhcp6),
    ("slaac", How::Routers),
    ("bridge", How::Fixed),
];

/// How a network gets its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// They stand in it.
    Fixed,
    /// DHCP gives them.
    Dhcp4,
    /// `DHCPv6` gives them, beside routers.
    Dhcp6,
    /// Routers give them, or say that `DHCPv6` does.
    Routers,
}

impl How {
    /// That of a network's type.
    pub(super) fn of(kind: &str) -> Option<Self> {
        TYPES.iter().find(|(known, _)| *known == kind).map(|(_, how)| *how)
    }
}

impl NetworkData {
    /// What each link is called. Bonds and VLANs are called by their id where the kernel takes it: that is how user data names
    /// them, too.
    pub(super) fn names(&self) -> Result<BTreeMap<&str, String>, NetworkDataError> {
        let mut names: BTreeMap<&str, String> = BTreeMap::new();
        for (index, link) in self.links.iter().enumerate() {
            let name = match link.kind.as_str() {
                "vlan" | "bond" if is_interface_name(&link.id) => link.id.clone(),
                kind @ ("vlan" | "bond") => self.free_name(kind, index),
                _ => format!("card{index}"),
            };
            if link.id.is_empty() || names.insert(link.id.as_str(), name).is_some() {
                return Err(wrong("links.id", &link.id, "an id that no other link has"));
            }
        }
        let missing = |key: &'static str, id: &str| NetworkDataError::NoLink { key, id: id.to_owned() };
        for link in &self.links {
            match link.kind.as_str() {
                "vlan" => {
                    let below = link.vlan_link.as_deref().unwrap_or_default();
                    names.get(below).ok_or_else(|| missing("links.vlan_link", below))?;
                }
                "bond" if link.bond_links.is_empty() => {
                    return Err(wrong("links.bond_links", "[]", "the ids of the cards that the bond is made of"));
                }
                "bond" => {
                    let lost = link.bond_links.iter().find(|id| !names.contains_key(id.as_str()));
                    lost.map_or(Ok(()), |id| Err(missing("links.bond_links", id)))?;
                }
                _ => {}
            }
            self.link(link)?;
        }
        self.parts()?;
        for network in &self.networks {
            if !names.contains_key(network.link.as_str()) {
                return Err(NetworkDataError::NoLink { key: "networks.link", id: network.link.clone() });
            }
            network.check()?;
        }
        Ok(names)
    }

    /// Whether a link lies on itself, by whatever way.
    fn is_round(&self, link: &Link) -> bool {
        let lies_on = |above: &Link, below: &Link| match above.kind.as_str() {
            "vlan" => above.vlan_link.as_ref() == Some(&below.id),
            "bond" => above.bond_links.contains(&below.id),
            _ => false,
        };
        let (mut seen, mut open) = (BTreeSet::new(), vec![link]);
        while let Some(above) = open.pop() {
            for below in self.links.iter().filter(|below| lies_on(above, below)) {
                if seen.insert(below.id.as_str()) {
                    open.push(below);
                }
            }
        }
        seen.contains(link.id.as_str())
    }

    /// A name that no other link has for its id.
    fn free_name(&self, kind: &str, index: usize) -> String {
        let names = (index..).map(|number| format!("{kind}{number}"));
        let mut free = names.filter(|name| !self.links.iter().any(|link| link.id == *name));
        free.next().unwrap_or_default()
    }

    /// Values of a link.
    fn link(&self, link: &Link) -> Result<(), NetworkDataError> {
        let (least, most, _) = MTU;
        if let Some(mtu) = link.mtu.filter(|mtu| !(least..=most).contains(mtu)) {
            return Err(link.wrong("links.mtu", &mtu.to_string(), &format!("{least} to {most} bytes")));
        }
        let below = self.links.iter().find(|below| link.kind == "vlan" && link.vlan_link.as_ref() == Some(&below.id));
        if let (Some(mtu), Some(below)) = (link.mtu, below) {
            let most = self.mtu(below);
            if mtu > most {
                let said = if below.mtu.is_some() { "" } else { ", for nothing is said of it" };
                let expected = format!("at most the {most} of `{}`, on which it lies{said}", below.id);
                return Err(link.wrong("links.mtu", &mtu.to_string(), &expected));
            }
        }
        let primary = link.bond_primary.as_ref().filter(|primary| link.kind == "bond" && !primary.is_empty());
        if let Some(primary) = primary.filter(|primary| !link.bond_links.contains(primary)) {
            return Err(link.wrong("links.bond_primary", primary, "one of its `bond_links`"));
        }
        Ok(())
    }

    /// The MTU of a link: what is said, else that of what a VLAN lies on. A bond gives its own to its parts.
    fn mtu(&self, link: &Link) -> u32 {
        let mut link = link;
        // Each step goes to another link; one that comes back is no network.
        for _ in &self.links {
            match (link.mtu, self.links.iter().find(|below| link.vlan_link.as_ref() == Some(&below.id))) {
                (Some(mtu), _) => return mtu,
                (None, Some(below)) if link.kind == "vlan" => link = below,
                (None, _) => break,
            }
        }
        MTU.2
    }

    /// Each card is there once and a part of one bond at most, and no link is a part of itself.
    fn parts(&self) -> Result<(), NetworkDataError> {
        let mut macs: BTreeMap<String, &str> = BTreeMap::new();
        for card in self.links.iter().filter(|link| !matches!(link.kind.as_str(), "vlan" | "bond")) {
            let mac = card.ethernet_mac_address.as_deref().unwrap_or_default();
            if let Some(first) = macs.insert(mac.to_lowercase(), &card.id).filter(|_| !mac.is_empty()) {
                let expected = format!("a MAC address of its own, for that is the one of `{first}`");
                return Err(card.wrong("links.ethernet_mac_address", mac, &expected));
            }
        }
        for link in &self.links {
            let (key, below) = if link.kind == "vlan" {
                ("links.vlan_link", link.vlan_link.as_deref().unwrap_or_default().to_owned())
            } else {
                ("links.bond_links", link.bond_links.join("`, `"))
            };
            if self.is_round(link) {
                return Err(link.wrong(key, &below, "links that do not lie on this one themselves"));
            }
        }
        let mut parts: BTreeMap<&str, &str> = BTreeMap::new();
        for bond in self.links.iter().filter(|link| link.kind == "bond") {
            for part in &bond.bond_links {
                if let Some(first) = parts.insert(part, &bond.id) {
                    let expected = format!("a card of its own, for that one is a part of `{first}`");
                    return Err(bond.wrong("links.bond_links", part, &expected));
                }
            }
        }
        Ok(())
    }
}

impl Link {
    fn wrong(&self, key: &'static str, found: &str, expected: &str) -> NetworkDataError {
        let (found, expected) = (format!("`{found}`"), expected.to_owned());
        NetworkDataError::Of { key, whose: format!("the link `{}`", self.id), found, expected }
    }
}

impl Network {
    /// Its type, and the address that such a one has.
    fn check(&self) -> Result<(), NetworkDataError> {
        let Some(how) = How::of(&self.kind) else {
            let known: Vec<&str> = TYPES.iter().map(|(known, _)| *known).collect();
            return Err(self.wrong("networks.type", &self.kind, &format!("one of `{}`", known.join("`, `"))));
        };
        let address = self.ip_address.as_deref().unwrap_or_default();
        if how == How::Fixed && address.is_empty() {
            let expected = format!("the address that a network of the type `{}` has", self.kind);
            return Err(self.wrong("networks.ip_address", address, &expected));
        }
        Ok(())
    }

    pub(super) fn wrong(&self, key: &'static str, found: &str, expected: &str) -> NetworkDataError {
        let found = if found.is_empty() { "nothing".to_owned() } else { format!("`{found}`") };
        let whose = match self.id.as_str() {
            "" => format!("a network of the link `{}`", self.link),
            id => format!("the network `{id}`"),
        };
        NetworkDataError::Of { key, whose, found, expected: expected.to_owned() }
    }
}
