//! `network_data.json` as units of systemd-networkd: the same for ramdisk and OS image. Pure text.
//!
//! Source: `OpenStack`'s metadata service and its JSON schema (nova, `doc/api_schemas/network_data.json`); systemd.network(5),
//! systemd.netdev(5).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use agent_api::net::{MacAddress, is_interface_name};

/// Parameters of a bond: as network data calls them behind `bond_`, as systemd.netdev(5) does, what follows the number.
const BOND: [(&str, &str, &str); 15] = [
    ("ad_select", "AdSelect", ""),
    ("all_slaves_active", "AllSlavesActive", ""),
    ("arp_all_targets", "ARPAllTargets", ""),
    ("arp_interval", "ARPIntervalSec", "ms"),
    ("arp_ip_target", "ARPIPTargets", ""),
    ("arp_validate", "ARPValidate", ""),
    ("downdelay", "DownDelaySec", "ms"),
    ("fail_over_mac", "FailOverMACPolicy", ""),
    ("lacp_rate", "LACPTransmitRate", ""),
    ("lp_interval", "LearnPacketIntervalSec", "s"),
    ("min_links", "MinLinks", ""),
    ("num_grat_arp", "GratuitousARP", ""),
    ("packets_per_slave", "PacketsPerSlave", ""),
    ("primary_reselect", "PrimaryReselectPolicy", ""),
    ("updelay", "UpDelaySec", "ms"),
];

/// The whole file. Keys that do not concern addresses are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NetworkData {
    /// Cards, and what lies over them.
    #[serde(deserialize_with = "nullable")]
    pub links: Vec<Link>,
    /// Addresses on them.
    #[serde(deserialize_with = "nullable")]
    pub networks: Vec<Network>,
    /// Name servers of all.
    #[serde(deserialize_with = "nullable")]
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
    #[serde(deserialize_with = "number")]
    pub mtu: Option<u32>,
    /// The link that a VLAN lies on.
    pub vlan_link: Option<String>,
    /// Its number.
    #[serde(deserialize_with = "number")]
    pub vlan_id: Option<u32>,
    /// Its own hardware address.
    pub vlan_mac_address: Option<String>,
    /// Links of a bond.
    #[serde(deserialize_with = "nullable")]
    pub bond_links: Vec<String>,
    /// `802.3ad`, `active-backup` and the others.
    pub bond_mode: Option<String>,
    /// Milliseconds between two looks at its links.
    #[serde(deserialize_with = "number")]
    pub bond_miimon: Option<u32>,
    /// How it spreads packets.
    pub bond_xmit_hash_policy: Option<String>,
    /// The card that it prefers: an id.
    pub bond_primary: Option<String>,
    /// Everything else that is said of it.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// Addresses on a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Network {
    /// What others call it.
    pub id: String,
    /// The link's `id`.
    pub link: String,
    /// `ipv4`, `ipv6`, `ipv4_dhcp`, `ipv6_dhcp`, `ipv6_slaac` and the like.
    #[serde(rename = "type")]
    pub kind: String,
    /// With or without its prefix.
    pub ip_address: Option<String>,
    /// A mask or a prefix.
    #[serde(deserialize_with = "text")]
    pub netmask: Option<String>,
    /// Where other networks are.
    #[serde(deserialize_with = "nullable")]
    pub routes: Vec<Route>,
    /// Its own name servers.
    #[serde(deserialize_with = "nullable")]
    pub services: Vec<Service>,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Route {
    /// The network that it leads to.
    pub network: String,
    /// A mask or a prefix.
    #[serde(deserialize_with = "text")]
    pub netmask: Option<String>,
    /// The gateway.
    pub gateway: String,
    /// Name servers that are reached by it.
    #[serde(deserialize_with = "nullable")]
    pub services: Vec<Service>,
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

/// A list that may be `null`.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A number, or the text of one.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let expected = |found: &str| serde::de::Error::custom(format!("found `{found}`, expected a number"));
    match Value::deserialize(from)? {
        Value::Null => Ok(None),
        Value::String(text) => text.trim().parse().map(Some).map_err(|_| expected(&text)),
        other => other
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .map(Some)
            .ok_or_else(|| expected(&other.to_string())),
    }
}

/// A text, or a number as one.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
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
    /// It is the file of another program.
    #[error(
        "found {found}, expected OpenStack's network data (`links`, `networks`, `services`), which Ironic hands on"
    )]
    Foreign {
        /// Whose.
        found: &'static str,
    },
    /// It has another shape.
    #[error("{0}")]
    Shape(String),
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
    /// Reads it, and says whose file it is when it is another one.
    ///
    /// # Errors
    /// It is of another program or of another shape.
    pub fn read(value: &Value) -> Result<Self, NetworkDataError> {
        let keys = value.as_object().map(|map| map.keys().map(String::as_str).collect::<Vec<_>>()).unwrap_or_default();
        let has = |names: &[&str]| keys.iter().any(|key| names.contains(key));
        let found = match () {
            () if has(&["links", "networks"]) => None,
            () if has(&["network", "ethernets", "bonds", "vlans"]) => Some("a file of netplan"),
            () if has(&["config", "version"]) => Some("a network configuration of cloud-init"),
            () if has(&["interfaces", "dns-resolver", "routes"]) => Some("a state of nmstate"),
            () if keys.is_empty() || has(&["services"]) => None,
            () => Some("keys of none of its parts"),
        };
        match found {
            Some(found) => Err(NetworkDataError::Foreign { found }),
            None => Self::deserialize(value).map_err(|error| NetworkDataError::Shape(error.to_string())),
        }
    }

    /// File names, which begin with `stem`, and texts. Every link has a unit, those without addresses too: they come up
    /// without DHCP.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub fn units(&self, stem: &str) -> Result<Vec<(String, String)>, NetworkDataError> {
        let names = self.names()?;
        let mut units = Vec::new();
        for (index, link) in self.links.iter().enumerate() {
            let name = &names[link.id.as_str()];
            let stem = format!("{stem}{index:02}");
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

    /// What each link is called. Bonds and VLANs are called by their id where the kernel takes it: that is how user data names
    /// them, too.
    fn names(&self) -> Result<BTreeMap<&str, String>, NetworkDataError> {
        let mut names: BTreeMap<&str, String> = BTreeMap::new();
        for (index, link) in self.links.iter().enumerate() {
            let name = match link.kind.as_str() {
                "vlan" | "bond" if is_interface_name(&link.id) => link.id.clone(),
                "vlan" => format!("vlan{index}"),
                "bond" => format!("bond{index}"),
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
                "bond" => {
                    let lost = link.bond_links.iter().find(|id| !names.contains_key(id.as_str()));
                    lost.map_or(Ok(()), |id| Err(missing("links.bond_links", id)))?;
                }
                _ => {}
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
            if bond.bond_primary.as_deref() == Some(&link.id) {
                text.push_str("PrimarySlave=yes\n");
            }
        }
        let of_routes = own.iter().flat_map(|network| &network.routes).flat_map(|route| &route.services);
        let services = own.iter().flat_map(|network| &network.services).chain(of_routes).chain(&self.services);
        let mut told = Vec::new();
        for service in services.filter(|service| service.kind == "dns" && !own.is_empty()) {
            let address = address_of("services.address", &service.address)?;
            if !told.contains(&address) {
                let _ = writeln!(text, "DNS={address}");
                told.push(address);
            }
        }
        for network in &own {
            if let Some(address) = &network.ip_address {
                let _ = writeln!(text, "Address={}", with_prefix(address, network.netmask.as_deref())?);
            }
        }
        if dhcp != "no" {
            // Where the name servers of the network are told, those of DHCP are not asked.
            let own_names = if told.is_empty() { "" } else { "UseDNS=no\n" };
            let _ = write!(text, "\n[DHCPv4]\nClientIdentifier=mac\n{own_names}");
        }
        for route in own.iter().flat_map(|network| &network.routes) {
            let to = with_prefix(&route.network, route.netmask.as_deref().filter(|mask| !mask.is_empty()))?;
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
    let asks_arp = link.others.contains_key("bond_arp_interval");
    if let Some(every) = link.bond_miimon.or((!asks_arp).then_some(100)) {
        let _ = writeln!(text, "MIIMonitorSec={every}ms");
    }
    for (name, ours, unit) in BOND {
        let Some(value) = link.others.get(&format!("bond_{name}")).filter(|value| !value.is_null()) else { continue };
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let plain = !value.is_empty() && value.bytes().all(|it| it.is_ascii_alphanumeric() || b".:,_-".contains(&it));
        if !plain {
            return Err(wrong("links.bond_*", &value, "a word or a number"));
        }
        let value = match value.as_str() {
            "0" if name == "lacp_rate" => "slow".to_owned(),
            "1" if name == "lacp_rate" => "fast".to_owned(),
            other => other.replace(',', " "),
        };
        let _ = writeln!(text, "{ours}={value}{unit}");
    }
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
        let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let data = NetworkData::read(&value).map_err(|error| error.to_string())?;
        data.units("10-ironic-").map_err(|error| error.to_string())
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
            ("\"vlan_link\": \"pair\"", "\"vlan_link\": \"nic9\"", "`links.vlan_link`: found no link `nic9`"),
            ("\"nic1\", \"nic2\"", "\"nic1\", \"nic9\"", "`links.bond_links`: found no link `nic9`"),
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

    /// As CAPM3 writes it: names of links as the kernel has them, name servers below routes, masks of IPv6.
    #[test]
    fn what_capm3_writes_is_understood() {
        let text = r#"{
            "links": [
                {"id": "eno1", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01", "mtu": 9000},
                {"id": "eno2", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:02", "mtu": 9000},
                {"id": "bond0", "type": "bond", "bond_links": ["eno1", "eno2"], "bond_mode": "802.3ad", "mtu": 9000,
                 "ethernet_mac_address": "52:54:00:00:00:01", "bond_xmit_hash_policy": "layer3+4", "bond_lacp_rate": "fast",
                 "bond_min_links": 1, "bond_primary": "eno1"},
                {"id": "bond0.100", "type": "vlan", "vlan_link": "bond0", "vlan_id": "100", "vlan_mac_address": "52:54:00:00:00:64"},
                {"id": "a name that is too long for the kernel", "type": "vlan", "vlan_link": "bond0", "vlan_id": 200}
            ],
            "networks": [
                {"id": "v4", "link": "bond0.100", "type": "ipv4", "ip_address": "10.1.0.9", "netmask": "255.255.255.0",
                 "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.1.0.1",
                             "services": [{"type": "dns", "address": "10.1.0.53"}]}]},
                {"id": "v6", "link": "bond0.100", "type": "ipv6", "ip_address": "fd00:1::9", "netmask": "ffff:ffff:ffff:ffff::",
                 "routes": [{"network": "::", "netmask": "::", "gateway": "fd00:1::1"}]},
                {"id": "ra", "link": "a name that is too long for the kernel", "type": "ipv6_slaac", "routes": null}
            ],
            "services": [{"type": "dns", "address": "10.1.0.53"}]
        }"#;
        let units = units(text).expect("good");
        let of = |name: &str| {
            units.iter().find(|(found, _)| found == name).map(|(_, text)| text.as_str()).unwrap_or_default()
        };
        let all = |name: &str, lines: &[&str]| {
            for line in lines {
                assert!(of(name).contains(&format!("{line}\n")), "{name} has no `{line}`:\n{}", of(name));
            }
        };
        all("10-ironic-00.network", &["MTUBytes=9000", "Bond=bond0", "PrimarySlave=yes", "DHCP=no"]);
        all(
            "10-ironic-02.netdev",
            &["Name=bond0", "Mode=802.3ad", "TransmitHashPolicy=layer3+4", "LACPTransmitRate=fast", "MinLinks=1"],
        );
        all("10-ironic-02.network", &["VLAN=bond0.100", "VLAN=vlan4"]);
        all("10-ironic-03.netdev", &["Name=bond0.100", "Id=100", "MACAddress=52:54:00:00:00:64"]);
        all(
            "10-ironic-03.network",
            &[
                "Address=10.1.0.9/24",
                "Address=fd00:1::9/64",
                "DNS=10.1.0.53",
                "Destination=0.0.0.0/0",
                "Destination=::/0",
            ],
        );
        all("10-ironic-04.network", &["IPv6AcceptRA=yes", "DHCP=no"]);
        assert_eq!(of("10-ironic-03.network").matches("DNS=").count(), 1);
    }

    #[test]
    fn files_of_other_programs_are_refused_in_words() {
        for (text, whose) in [
            (r#"{"network": {"version": 2, "ethernets": {}}}"#, "netplan"),
            (r#"{"version": 2, "ethernets": {"eno1": {"dhcp4": true}}}"#, "netplan"),
            (r#"{"version": 1, "config": []}"#, "cloud-init"),
            (r#"{"interfaces": [], "dns-resolver": {}}"#, "nmstate"),
            (r#"{"anything": 1}"#, "none of its parts"),
        ] {
            let said = units(text).expect_err(whose);
            assert!(said.contains(whose) && said.contains("expected OpenStack's network data"), "{said}");
        }
        assert_eq!(units("{}"), Ok(Vec::new()));
        assert!(units(r#"{"links": {}}"#).is_err() && units(r#"{"links": [{"id": "a", "mtu": "wide"}]}"#).is_err());
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
