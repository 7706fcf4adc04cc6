//! `network_data.json` as units of systemd-networkd: the same for ramdisk and OS image. Pure text.
//!
//! Source: `OpenStack`'s metadata service and its JSON schema (nova, `doc/api_schemas/network_data.json`); systemd.network(5),
//! systemd.netdev(5).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use agent_api::net::MacAddress;
use agent_api::site::check::is_host;

mod checks;

use checks::How;

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

/// Words of a bond's parameters in systemd.netdev(5), by the number that the kernel takes for each, too
/// (Documentation/networking/bonding.rst, "Bonding Driver Options").
const BOND_WORDS: [(&str, &[&str]); 8] = [
    ("mode", &["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"]),
    ("xmit_hash_policy", &["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"]),
    ("ad_select", &["stable", "bandwidth", "count"]),
    ("arp_all_targets", &["any", "all"]),
    ("arp_validate", &["none", "active", "backup", "all"]),
    ("fail_over_mac", &["none", "active", "follow"]),
    ("lacp_rate", &["slow", "fast"]),
    ("primary_reselect", &["always", "better", "failure"]),
];
/// Prefixes of addresses that come without one, as cloud-init takes them (`network_state.py`).
pub const PREFIXES: (u32, u32) = (24, 64);

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
    #[serde(deserialize_with = "text")]
    pub bond_mode: Option<String>,
    /// Milliseconds between two looks at its links.
    #[serde(deserialize_with = "number")]
    pub bond_miimon: Option<u32>,
    /// How it spreads packets.
    #[serde(deserialize_with = "text")]
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
    /// The default gateway. This and the next three are not in `OpenStack`'s schema; cloud-init takes them
    /// (`sources/helpers/openstack.py`, `valid_keys["subnet"]`), and so files have them.
    #[serde(deserialize_with = "text")]
    pub gateway: Option<String>,
    /// Of the gateway: of several, the one with the lowest is used.
    #[serde(deserialize_with = "number")]
    pub metric: Option<u32>,
    /// Name servers: a list, or a text with spaces between them.
    #[serde(deserialize_with = "words")]
    pub dns_nameservers: Vec<String>,
    /// Domains in which names are looked for, in the same form.
    #[serde(deserialize_with = "words")]
    pub dns_search: Vec<String>,
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
    /// Of several ways, the one with the lowest is used.
    #[serde(deserialize_with = "number")]
    pub metric: Option<u32>,
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

/// The words of a text, or those of all texts of a list.
fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let texts = match Value::deserialize(from)? {
        Value::Null => Vec::new(),
        Value::Array(texts) => texts,
        other => vec![other],
    };
    let expected = |found: &Value| serde::de::Error::custom(format!("found `{found}`, expected a list of texts"));
    let texts: Result<Vec<&str>, _> = texts.iter().map(|one| one.as_str().ok_or_else(|| expected(one))).collect();
    let texts = texts?;
    let words = texts.iter().flat_map(|text| text.split([' ', ',', '\t'])).filter(|word| !word.is_empty());
    Ok(words.map(str::to_owned).collect())
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
    /// The same, of a network or a link.
    #[error("`{key}` of {whose}: found {found}, expected {expected}")]
    Of {
        /// Which.
        key: &'static str,
        /// The network or the link, in words.
        whose: String,
        /// What stands there.
        found: String,
        /// What should.
        expected: String,
    },
    /// A word of a bond that nobody knows.
    #[error("`{key}`: found `{found}` as `{name}`, expected one of `{}`, or its number", words.join("`, `"))]
    Word {
        /// Which.
        key: &'static str,
        /// The parameter.
        name: String,
        /// What stands there.
        found: String,
        /// What could.
        words: &'static [&'static str],
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
    #[error("`{key}`: found {}, expected the `id` of one of `links`", found_id(id))]
    NoLink {
        /// Which.
        key: &'static str,
        /// The id.
        id: String,
    },
}

fn found_id(id: &str) -> String {
    if id.is_empty() { "nothing".to_owned() } else { format!("`{id}`, which no link has") }
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

    fn network(&self, link: &Link, names: &BTreeMap<&str, String>, text: &mut String) -> Result<(), NetworkDataError> {
        let own: Vec<&Network> = self.networks.iter().filter(|network| network.link == link.id).collect();
        let asks = |how: How| own.iter().any(|it| How::of(&it.kind) == Some(how));
        let dhcp = match (asks(How::Dhcp4), asks(How::Dhcp6)) {
            (true, true) => "yes",
            (true, false) => "ipv4",
            (false, true) => "ipv6",
            (false, false) => "no",
        };
        let listens = asks(How::Routers) || asks(How::Dhcp6);
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
        let told = self.name_servers(&own, text)?;
        for network in &own {
            if let Some(address) = network.ip_address.as_deref().filter(|address| !address.is_empty()) {
                let least = if address.contains(':') { PREFIXES.1 } else { PREFIXES.0 };
                let _ = writeln!(text, "Address={}", with_prefix(address, network.netmask.as_deref(), least)?);
            }
        }
        let gateways: Vec<(IpAddr, Option<u32>)> =
            own.iter().filter_map(|network| network.way_out().transpose()).collect::<Result<_, _>>()?;
        for (gateway, _) in gateways.iter().filter(|(_, metric)| metric.is_none()) {
            let _ = writeln!(text, "Gateway={gateway}");
        }
        let metric = |how: &[How]| {
            let mut asking = own.iter().filter(|it| How::of(&it.kind).is_some_and(|it| how.contains(&it)));
            let metric = asking.find_map(|it| it.metric);
            metric.map_or_else(String::new, |metric| format!("RouteMetric={metric}\n"))
        };
        if dhcp != "no" {
            // Where the name servers of the network are told, those of DHCP are not asked.
            let own_names = if told { "UseDNS=no\n" } else { "" };
            let _ = write!(text, "\n[DHCPv4]\nClientIdentifier=mac\n{own_names}{}", metric(&[How::Dhcp4]));
        }
        let of_routers = metric(&[How::Dhcp6, How::Routers]);
        if !of_routers.is_empty() {
            let _ = write!(text, "\n[IPv6AcceptRA]\n{of_routers}");
        }
        for (gateway, metric) in gateways.iter().filter_map(|(gateway, metric)| Some((gateway, (*metric)?))) {
            let to = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            let _ = writeln!(text, "\n[Route]\nDestination={to}\nGateway={gateway}\nMetric={metric}");
        }
        own.iter().flat_map(|network| &network.routes).try_for_each(|one| route(one, text))
    }

    /// Name servers and domains of a link; whether there are any servers.
    fn name_servers(&self, own: &[&Network], text: &mut String) -> Result<bool, NetworkDataError> {
        let mut told = Vec::new();
        for network in own {
            for server in &network.dns_nameservers {
                told.push(server.parse().map_err(|_| network.wrong("networks.dns_nameservers", server, "an address"))?);
            }
        }
        let of_routes = own.iter().flat_map(|network| &network.routes).flat_map(|route| &route.services);
        let services = own.iter().flat_map(|network| &network.services).chain(of_routes).chain(&self.services);
        for service in services.filter(|service| service.kind == "dns" && !own.is_empty()) {
            told.push(address_of("services.address", &service.address)?);
        }
        let mut known = BTreeSet::new();
        for server in told.iter().filter(|server| known.insert(**server)) {
            let _ = writeln!(text, "DNS={server}");
        }
        for network in own {
            for domain in &network.dns_search {
                if !is_host(domain.trim_start_matches('~')) {
                    return Err(network.wrong("networks.dns_search", domain, "a domain such as `example.org`"));
                }
                let _ = writeln!(text, "Domains={domain}");
            }
        }
        Ok(!told.is_empty())
    }
}

impl Network {
    /// The gateway, and its metric. That of DHCP's or routers' is not told here.
    fn way_out(&self) -> Result<Option<(IpAddr, Option<u32>)>, NetworkDataError> {
        let Some(gateway) = self.gateway.as_deref().filter(|gateway| !gateway.is_empty()) else { return Ok(None) };
        let address = gateway.parse().map_err(|_| self.wrong("networks.gateway", gateway, "an address"))?;
        Ok(Some((address, self.metric)))
    }
}

fn route(route: &Route, text: &mut String) -> Result<(), NetworkDataError> {
    // `0.0.0.0` and `::` without a mask are everything, any other address is a host.
    let everything = route.network.parse().is_ok_and(|network: IpAddr| network.is_unspecified());
    let least = if everything { 0 } else { u32::MAX };
    let to = with_prefix(&route.network, route.netmask.as_deref(), least)?;
    let gateway = address_of("routes.gateway", &route.gateway)?;
    let _ = writeln!(text, "\n[Route]\nDestination={to}\nGateway={gateway}");
    if let Some(metric) = route.metric {
        let _ = writeln!(text, "Metric={metric}");
    }
    Ok(())
}

fn netdev(link: &Link, name: &str) -> Result<String, NetworkDataError> {
    let mut text = format!("[NetDev]\nName={name}\nKind={}\n", link.kind);
    let (key, mac) = if link.kind == "vlan" {
        ("vlan_mac_address", &link.vlan_mac_address)
    } else {
        ("ethernet_mac_address", &link.ethernet_mac_address)
    };
    if let Some(mac) = mac {
        let _ = writeln!(text, "MACAddress={}", mac_of(key, mac)?);
    }
    if link.kind == "vlan" {
        let id = link.vlan_id.filter(|id| (1..4095).contains(id));
        let id = id.ok_or_else(|| wrong("links.vlan_id", &format!("{:?}", link.vlan_id), "1 to 4094"))?;
        let _ = writeln!(text, "\n[VLAN]\nId={id}");
        return Ok(text);
    }
    text.push_str("\n[Bond]\n");
    if let Some(mode) = &link.bond_mode {
        let _ = writeln!(text, "Mode={}", bond_word("links.bond_mode", "mode", mode)?);
    }
    if let Some(policy) = &link.bond_xmit_hash_policy {
        let policy = bond_word("links.bond_xmit_hash_policy", "xmit_hash_policy", policy)?;
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
        let value = bond_word("links.bond_*", name, &value)?.replace(',', " ");
        let _ = writeln!(text, "{ours}={value}{unit}");
    }
    Ok(text)
}

/// The word of systemd.netdev(5) for a bond's parameter, which may be told by its number; a parameter without words as it
/// is. systemd-networkd would pass over a word that it does not know.
fn bond_word<'a>(key: &'static str, name: &str, value: &'a str) -> Result<&'a str, NetworkDataError> {
    let Some((_, words)) = BOND_WORDS.iter().find(|(known, _)| *known == name) else { return Ok(value) };
    let by_number = value.parse().ok().and_then(|number: usize| words.get(number));
    let word = words.iter().find(|word| word.eq_ignore_ascii_case(value)).or(by_number);
    word.copied().ok_or_else(|| NetworkDataError::Word { key, name: name.to_owned(), found: value.to_owned(), words })
}

fn mac_of(key: &'static str, text: &str) -> Result<MacAddress, NetworkDataError> {
    text.parse().map_err(|_| wrong(key, text, "a MAC address such as `52:54:00:12:34:56`"))
}

fn address_of(key: &'static str, text: &str) -> Result<IpAddr, NetworkDataError> {
    text.parse().map_err(|_| wrong(key, text, "an IP address"))
}

/// `ADDRESS/PREFIX`, the prefix from the address itself or from a mask; `otherwise`: where there is neither.
fn with_prefix(address: &str, mask: Option<&str>, otherwise: u32) -> Result<String, NetworkDataError> {
    let (plain, own) = address.split_once('/').map_or((address, None), |(plain, prefix)| (plain, Some(prefix)));
    let ip = address_of("ip_address", plain)?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let prefix = match own.or(mask).filter(|mask| !mask.is_empty()) {
        None => otherwise.min(most),
        Some(text) => prefix_of(text)
            .filter(|prefix| *prefix <= most)
            .ok_or_else(|| wrong("netmask", text, "a mask or a prefix"))?,
    };
    Ok(format!("{ip}/{prefix}"))
}

/// Of `24`, `255.255.255.0` or `ffff:ffff::`.
pub fn prefix_of(text: &str) -> Option<u32> {
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
#[path = "network_data_tests.rs"]
mod tests;
