//! `network_data.json` as units of systemd-networkd. Pure text.
//!
//! Source: `OpenStack`'s metadata service and its JSON schema (nova, `doc/api_schemas/network_data.json`); systemd.network(5),
//! systemd.netdev(5).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use serde::Deserialize;

use agent_api::net::MacAddress;

/// The whole file. Keys that do not concern addresses are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NetworkData {
    /// Cards, and what lies over them.
    pub links: Vec<Link>,
    /// Addresses on them.
    pub networks: Vec<Network>,
    /// Name servers of all.
    pub services: Vec<Service>,
}

/// A card, a bond or a VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Link {
    /// What networks call it.
    pub id: String,
    /// `phy`, `vlan`, `bond`; cards have many other names.
    #[serde(rename = "type")]
    pub kind: String,
    /// MAC address of a card, or the one that a bond takes.
    pub ethernet_mac_address: Option<String>,
    /// Bytes.
    pub mtu: Option<u32>,
    /// The link that a VLAN lies on.
    pub vlan_link: Option<String>,
    /// Its number.
    pub vlan_id: Option<u16>,
    /// Its own hardware address.
    pub vlan_mac_address: Option<String>,
    /// Links of a bond.
    pub bond_links: Vec<String>,
    /// `802.3ad`, `active-backup` and the others.
    pub bond_mode: Option<String>,
    /// Milliseconds between two looks at its links.
    pub bond_miimon: Option<u32>,
    /// How it spreads packets.
    pub bond_xmit_hash_policy: Option<String>,
}

/// Addresses on a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Network {
    /// The link's `id`.
    pub link: String,
    /// `ipv4`, `ipv6`, `ipv4_dhcp`, `ipv6_dhcp`, `ipv6_slaac` and the like.
    #[serde(rename = "type")]
    pub kind: String,
    /// With or without its prefix.
    pub ip_address: Option<String>,
    /// A mask or a prefix.
    pub netmask: Option<String>,
    /// Where other networks are.
    pub routes: Vec<Route>,
    /// Its own name servers.
    pub services: Vec<Service>,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Route {
    /// The network that it leads to.
    pub network: String,
    /// A mask or a prefix.
    pub netmask: String,
    /// The gateway.
    pub gateway: String,
}

/// A service of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Service {
    /// `dns`; other types are ignored.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its address.
    pub address: String,
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkDataError {
    /// A value that is not what it should be.
    #[error("`{key}`: found `{found}`, expected {expected}")]
    Value {
        /// Which.
        key: &'static str,
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// A network or a link names a link that is not there.
    #[error("`{key}`: found no link `{id}`")]
    NoLink {
        /// Which.
        key: &'static str,
        /// The id.
        id: String,
    },
}

fn wrong(key: &'static str, found: &str, expected: &'static str) -> NetworkDataError {
    NetworkDataError::Value { key, found: found.to_owned(), expected }
}

impl NetworkData {
    /// File names and texts. Every link has a unit, those without addresses too: they come up without DHCP.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub fn units(&self) -> Result<Vec<(String, String)>, NetworkDataError> {
        let names = self.names()?;
        let mut units = Vec::new();
        for (index, link) in self.links.iter().enumerate() {
            let name = &names[link.id.as_str()];
            let stem = format!("10-ironic-{index:02}");
            let mut text = String::from("[Match]\n");
            match link.kind.as_str() {
                "vlan" | "bond" => {
                    let _ = writeln!(text, "Name={name}");
                    units.push((format!("{stem}.netdev"), netdev(link, name)?));
                }
                _ => {
                    let mac = link.ethernet_mac_address.as_deref().unwrap_or_default();
                    let _ = writeln!(text, "PermanentMACAddress={}\nType=ether", mac_of("ethernet_mac_address", mac)?);
                }
            }
            if let Some(mtu) = link.mtu {
                let _ = writeln!(text, "\n[Link]\nMTUBytes={mtu}");
            }
            self.network(link, &names, &mut text)?;
            units.push((format!("{stem}.network"), text));
        }
        Ok(units)
    }

    /// What each link is called: a card by its id for others to find it, the rest by names that the kernel takes.
    fn names(&self) -> Result<BTreeMap<&str, String>, NetworkDataError> {
        let mut names = BTreeMap::new();
        for (index, link) in self.links.iter().enumerate() {
            let name = match link.kind.as_str() {
                "vlan" => format!("vlan{}", link.vlan_id.unwrap_or_default()),
                "bond" => format!("bond{index}"),
                _ => format!("card{index}"),
            };
            if link.id.is_empty() || names.insert(link.id.as_str(), name).is_some() {
                return Err(wrong("links.id", &link.id, "an id that no other link has"));
            }
        }
        for network in &self.networks {
            if !names.contains_key(network.link.as_str()) {
                return Err(NetworkDataError::NoLink { key: "networks.link", id: network.link.clone() });
            }
        }
        Ok(names)
    }

    fn network(&self, link: &Link, names: &BTreeMap<&str, String>, text: &mut String) -> Result<(), NetworkDataError> {
        let own: Vec<&Network> = self.networks.iter().filter(|network| network.link == link.id).collect();
        let asks = |version: &str| own.iter().any(|it| it.kind.starts_with(version) && it.kind.ends_with("dhcp"));
        let dhcp = match (asks("ipv4"), asks("ipv6")) {
            (true, true) => "yes",
            (true, false) => "ipv4",
            (false, true) => "ipv6",
            (false, false) => "no",
        };
        let listens = own.iter().any(|it| it.kind.contains("slaac") || it.kind.starts_with("ipv6_dhcp"));
        let _ =
            writeln!(text, "\n[Network]\nDHCP={dhcp}\nIPv6AcceptRA={}\nLLDP=yes", if listens { "yes" } else { "no" });
        for vlan in self.links.iter().filter(|it| it.kind == "vlan" && it.vlan_link.as_deref() == Some(&link.id)) {
            let _ = writeln!(text, "VLAN={}", names[vlan.id.as_str()]);
        }
        for bond in self.links.iter().filter(|it| it.kind == "bond" && it.bond_links.contains(&link.id)) {
            let _ = writeln!(text, "Bond={}", names[bond.id.as_str()]);
        }
        let services = own.iter().flat_map(|network| &network.services).chain(&self.services);
        for service in services.filter(|service| service.kind == "dns" && !own.is_empty()) {
            let _ = writeln!(text, "DNS={}", address_of("services.address", &service.address)?);
        }
        for network in &own {
            if let Some(address) = &network.ip_address {
                let _ = writeln!(text, "Address={}", with_prefix(address, network.netmask.as_deref())?);
            }
        }
        if dhcp != "no" {
            text.push_str("\n[DHCPv4]\nClientIdentifier=mac\n");
        }
        for route in own.iter().flat_map(|network| &network.routes) {
            let to =
                with_prefix(&route.network, Some(&route.netmask).filter(|mask| !mask.is_empty()).map(String::as_str))?;
            let _ = writeln!(
                text,
                "\n[Route]\nDestination={to}\nGateway={}",
                address_of("routes.gateway", &route.gateway)?
            );
        }
        Ok(())
    }
}

fn netdev(link: &Link, name: &str) -> Result<String, NetworkDataError> {
    let mut text = format!("[NetDev]\nName={name}\nKind={}\n", link.kind);
    let mac = if link.kind == "vlan" { &link.vlan_mac_address } else { &link.ethernet_mac_address };
    if let Some(mac) = mac {
        let _ = writeln!(text, "MACAddress={}", mac_of("vlan_mac_address", mac)?);
    }
    if link.kind == "vlan" {
        let id = link.vlan_id.filter(|id| (1..4095).contains(id));
        let id = id.ok_or_else(|| wrong("links.vlan_id", &format!("{:?}", link.vlan_id), "1 to 4094"))?;
        let _ = writeln!(text, "\n[VLAN]\nId={id}");
        return Ok(text);
    }
    text.push_str("\n[Bond]\n");
    let word = |key: &'static str, value: &str| {
        let plain = !value.is_empty() && value.bytes().all(|it| it.is_ascii_alphanumeric() || b".+-".contains(&it));
        if plain { Ok(()) } else { Err(wrong(key, value, "a word")) }
    };
    if let Some(mode) = &link.bond_mode {
        word("links.bond_mode", mode)?;
        let _ = writeln!(text, "Mode={mode}");
    }
    if let Some(policy) = &link.bond_xmit_hash_policy {
        word("links.bond_xmit_hash_policy", policy)?;
        let _ = writeln!(text, "TransmitHashPolicy={policy}");
    }
    let _ = writeln!(text, "MIIMonitorSec={}ms", link.bond_miimon.unwrap_or(100));
    Ok(text)
}

fn mac_of(key: &'static str, text: &str) -> Result<MacAddress, NetworkDataError> {
    text.parse().map_err(|_| wrong(key, text, "a MAC address such as `52:54:00:12:34:56`"))
}

fn address_of(key: &'static str, text: &str) -> Result<IpAddr, NetworkDataError> {
    text.parse().map_err(|_| wrong(key, text, "an IP address"))
}

/// `ADDRESS/PREFIX`, the prefix from the address itself or from a mask.
fn with_prefix(address: &str, mask: Option<&str>) -> Result<String, NetworkDataError> {
    let (plain, own) = address.split_once('/').map_or((address, None), |(plain, prefix)| (plain, Some(prefix)));
    let ip = address_of("ip_address", plain)?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let prefix = match own.or(mask) {
        None => most,
        Some(text) => prefix_of(text)
            .filter(|prefix| *prefix <= most)
            .ok_or_else(|| wrong("netmask", text, "a mask or a prefix"))?,
    };
    Ok(format!("{ip}/{prefix}"))
}

/// Of `24`, `255.255.255.0` or `ffff:ffff::`.
fn prefix_of(text: &str) -> Option<u32> {
    if let Ok(prefix) = text.parse() {
        return Some(prefix);
    }
    let (ones, zeros, bits) = match text.parse().ok()? {
        IpAddr::V4(mask) => (mask.to_bits().leading_ones(), mask.to_bits().trailing_zeros(), 32),
        IpAddr::V6(mask) => (mask.to_bits().leading_ones(), mask.to_bits().trailing_zeros(), 128),
    };
    (ones + zeros.min(bits) == bits || ones == bits).then_some(ones)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{NetworkData, prefix_of};

    const WHOLE: &str = r#"{
        "links": [
            {"id": "nic0", "type": "phy", "ethernet_mac_address": "52:54:00:AA:00:01", "mtu": 9000},
            {"id": "nic1", "type": "phy", "ethernet_mac_address": "52:54:00:aa:00:02"},
            {"id": "nic2", "type": "phy", "ethernet_mac_address": "52:54:00:aa:00:03"},
            {"id": "pair", "type": "bond", "bond_links": ["nic1", "nic2"], "bond_mode": "802.3ad", "bond_miimon": 50},
            {"id": "tagged", "type": "vlan", "vlan_link": "pair", "vlan_id": 42}
        ],
        "networks": [
            {"id": "a", "link": "nic0", "type": "ipv4", "ip_address": "172.22.0.20", "netmask": "255.255.255.0",
             "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "172.22.0.1"}],
             "services": [{"type": "dns", "address": "172.22.0.53"}]},
            {"id": "b", "link": "tagged", "type": "ipv6", "ip_address": "fd00::20/64", "routes": []},
            {"id": "c", "link": "tagged", "type": "ipv4_dhcp"}
        ],
        "services": [{"type": "dns", "address": "172.22.0.1"}, {"type": "ntp", "address": "here"}]
    }"#;

    fn units(text: &str) -> Result<Vec<(String, String)>, String> {
        let data: NetworkData = serde_json::from_str(text).map_err(|error| error.to_string())?;
        data.units().map_err(|error| error.to_string())
    }

    #[test]
    fn cards_bonds_and_vlans_get_their_addresses() {
        let text = units(WHOLE)
            .expect("good")
            .into_iter()
            .fold(String::new(), |text, (name, unit)| text + &format!("# {name}\n{unit}\n"));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        for (from, to, said) in [
            ("52:54:00:AA:00:01", "nowhere", "`ethernet_mac_address`: found `nowhere`"),
            ("172.22.0.20", "172.22.0", "`ip_address`: found `172.22.0`"),
            ("255.255.255.0", "255.0.255.0", "`netmask`: found `255.0.255.0`"),
            ("\"link\": \"nic0\"", "\"link\": \"nic9\"", "`networks.link`: found no link `nic9`"),
            ("\"vlan_id\": 42", "\"vlan_id\": 4095", "`links.vlan_id`"),
            ("802.3ad", "802\\nName=x", "`links.bond_mode`"),
            ("\"id\": \"nic1\"", "\"id\": \"nic0\"", "`links.id`: found `nic0`"),
            ("172.22.0.53", "dns.example", "`services.address`: found `dns.example`"),
        ] {
            let error = units(&WHOLE.replacen(from, to, 1)).expect_err(to);
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn masks_are_prefixes() {
        for (text, prefix) in
            [("24", Some(24)), ("255.255.255.0", Some(24)), ("0.0.0.0", Some(0)), ("255.255.255.255", Some(32))]
        {
            assert_eq!(prefix_of(text), prefix, "{text}");
        }
        assert_eq!((prefix_of("ffff:ffff:ffff:ffff::"), prefix_of("::")), (Some(64), Some(0)));
        assert_eq!((prefix_of("255.0.255.0"), prefix_of("wide")), (None, None));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(noise in any::<String>(), from in 0..1100_usize, length in 0..40_usize) {
            let _ = units(&noise);
            let cut = |at: usize| (0..=at.min(WHOLE.len())).rev().find(|at| WHOLE.is_char_boundary(*at)).unwrap_or(0);
            let _ = units(&format!("{}{noise}{}", &WHOLE[..cut(from)], &WHOLE[cut(from + length)..]));
        }
    }
}
