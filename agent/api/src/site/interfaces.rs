//! What the box's networks are made of, in the words of systemd-networkd: each key is the one of systemd.network(5) or
//! systemd.netdev(5) in camelCase, and means what is said there.

use std::fmt;
use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::card;
pub use super::card::Card;

/// Beginnings of names that the box and the kernel give interfaces of their own.
pub const OWN_NAMES: [&str; 7] = ["lo", "foothold", "cni", "veth", "kube-", "nodelocaldns", "dummy"];

/// One interface, or several that are alike: `[Match]`, `[Link]`, `[Network]` and the other sections of systemd.network(5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Interface {
    /// `PermanentMACAddress` of a card: `52:54:00:12:34:56`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// `Name`: that of one of `netdevs`, or of cards as the kernel names them; `*`, `?` and `[...]` match several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `Driver` of cards, as `ethtool -i` prints it; `*`, `?` and `[...]` match several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Addresses with prefix length.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Default gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// `DHCP`: unless said, `yes` for what has no address of its own, is no part of a bond or a bridge, and has no VLANs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<Dhcp>,
    /// `IPv6AcceptRA`: whether routers give it addresses. Unless said, where it asks DHCP for IPv6, too.
    #[serde(default, rename = "ipv6AcceptRA", skip_serializing_if = "Option::is_none")]
    pub ipv6_accept_ra: Option<bool>,
    /// `MTUBytes`, 68 to 65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
    /// Name servers that are asked by this interface, beside those of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<IpAddr>,
    /// `Domains` in which names are looked for; `~example.org` are asked of this interface's servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// `[Route]` sections beside the gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// `Bond`: the bond that this is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<String>,
    /// `PrimarySlave`: the bond prefers this part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub primary_slave: bool,
    /// `Bridge`: the bridge that this is a port of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// `VLAN`: the VLANs that lie on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vlan: Vec<String>,
    /// `[DHCPv4]`.
    #[serde(default, rename = "dhcpV4", skip_serializing_if = "Option::is_none")]
    pub dhcp_v4: Option<DhcpV4>,
    /// `[DHCPv6]`.
    #[serde(default, rename = "dhcpV6", skip_serializing_if = "Option::is_none")]
    pub dhcp_v6: Option<DhcpV6>,
}

impl Interface {
    /// Whether it can be about several cards: it names none by its MAC address or by its whole name.
    pub fn is_several(&self) -> bool {
        self.mac_address.is_none() && self.name.as_deref().is_none_or(card::is_pattern)
    }

    /// Which addresses it asks for.
    pub fn dhcp(&self) -> Dhcp {
        let by_itself =
            self.addresses.is_empty() && self.bond.is_none() && self.bridge.is_none() && self.vlan.is_empty();
        self.dhcp.unwrap_or(if by_itself { Dhcp::Yes } else { Dhcp::No })
    }
}

/// Which addresses are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dhcp {
    /// Of both families.
    Yes,
    /// None.
    No,
    /// Of IPv4.
    Ipv4,
    /// Of IPv6.
    Ipv6,
}

impl Dhcp {
    /// As systemd.network(5) writes it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

impl Serialize for Dhcp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Dhcp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Word;
        impl de::Visitor<'_> for Word {
            type Value = Dhcp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`yes`, `no`, `ipv4` or `ipv6`")
            }

            fn visit_bool<E: de::Error>(self, is: bool) -> Result<Dhcp, E> {
                Ok(if is { Dhcp::Yes } else { Dhcp::No })
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Dhcp, E> {
                [Dhcp::Yes, Dhcp::No, Dhcp::Ipv4, Dhcp::Ipv6]
                    .into_iter()
                    .find(|known| known.word() == text)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        from.deserialize_any(Word)
    }
}

impl JsonSchema for Dhcp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Dhcp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Which addresses are asked for.", "enum": ["yes", "no", "ipv4", "ipv6", true, false] })
    }
}

/// Where another network is: `[Route]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    /// The network, such as `10.0.0.0/8`.
    pub destination: String,
    /// The router; without one, the network is reached on the wire itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The router is reached on the wire, though no address of the interface is of its subnet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gateway_on_link: bool,
    /// Of two routes to one network, the one with the lower metric is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// The own address that is used towards it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_source: Option<IpAddr>,
}

/// How DHCP is asked for IPv4: `[DHCPv4]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DhcpV4 {
    /// `mac` unless said; `duid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_identifier: Option<ClientIdentifier>,
    /// Option 12.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Option 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_class_identifier: Option<String>,
    /// Option 77.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_class: Vec<String>,
    /// Options that are asked for beside the usual ones: their numbers, 1 to 254.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub request_options: Vec<u8>,
    /// Options that are sent: `NUMBER:TYPE:VALUE`, the type `uint8`, `uint16`, `uint32`, `ipv4address`, `ipv6address` or
    /// `string`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub send_option: Vec<String>,
    /// Whether its name servers are used.
    #[serde(default, rename = "useDNS", skip_serializing_if = "Option::is_none")]
    pub use_dns: Option<bool>,
    /// Whether its time servers are used.
    #[serde(default, rename = "useNTP", skip_serializing_if = "Option::is_none")]
    pub use_ntp: Option<bool>,
    /// Whether its routes are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_routes: Option<bool>,
    /// Whether its gateway is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_gateway: Option<bool>,
    /// Whether its MTU is used.
    #[serde(default, rename = "useMTU", skip_serializing_if = "Option::is_none")]
    pub use_mtu: Option<bool>,
    /// Metric of its routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_metric: Option<u32>,
}

/// What a client calls itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientIdentifier {
    /// The MAC address.
    Mac,
    /// An identifier of the machine (RFC 4361).
    Duid,
}

/// How DHCP is asked for IPv6: `[DHCPv6]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DhcpV6 {
    /// Whether its name servers are used.
    #[serde(default, rename = "useDNS", skip_serializing_if = "Option::is_none")]
    pub use_dns: Option<bool>,
    /// Whether its time servers are used.
    #[serde(default, rename = "useNTP", skip_serializing_if = "Option::is_none")]
    pub use_ntp: Option<bool>,
    /// Whether its addresses are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_address: Option<bool>,
    /// Asks though no router says that there is a server: `solicit`, `information-request` or `no`.
    #[serde(default, rename = "withoutRA", skip_serializing_if = "Option::is_none")]
    pub without_ra: Option<WithoutRa>,
}

/// How DHCP begins where no router speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WithoutRa {
    /// Not at all.
    No,
    /// For addresses.
    Solicit,
    /// For everything else.
    InformationRequest,
}

impl WithoutRa {
    /// As systemd.network(5) writes it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Solicit => "solicit",
            Self::InformationRequest => "information-request",
        }
    }
}

/// An interface that the box makes: systemd.netdev(5). Its addresses stand in the item of `interfaces` that has its name; without
/// one it asks DHCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Netdev {
    /// What it is called, at most 15 letters.
    pub name: String,
    /// What it is.
    pub kind: NetdevKind,
    /// Its MAC address; unless said, that of a part, or one that stays the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// `[Bond]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// `[VLAN]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// `[Bridge]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Bridge>,
}

/// Kinds of [`Netdev`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetdevKind {
    /// Several cards as one.
    Bond,
    /// A tagged network (IEEE 802.1Q) on a card, a bond or a bridge.
    Vlan,
    /// A switch of several interfaces.
    Bridge,
}

impl NetdevKind {
    /// As systemd.netdev(5) writes it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bond => "bond",
            Self::Vlan => "vlan",
            Self::Bridge => "bridge",
        }
    }
}

/// Settings of a bond.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bond {
    /// How its parts work together; `balance-rr` unless said, as the kernel does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<BondMode>,
    /// What decides which part a packet takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit_hash_policy: Option<TransmitHashPolicy>,
    /// How often LACP speaks: `slow` each 30 s, `fast` each second.
    #[serde(default, rename = "lacpTransmitRate", skip_serializing_if = "Option::is_none")]
    pub lacp_transmit_rate: Option<LacpRate>,
    /// How often it is looked whether parts have a link: `100ms` unless said, and unless ARP is asked.
    #[serde(default, rename = "miiMonitorSec", skip_serializing_if = "Option::is_none")]
    pub mii_monitor_sec: Option<String>,
    /// How long a link must be there before it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_delay_sec: Option<String>,
    /// How long it must be gone before it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_delay_sec: Option<String>,
    /// How many parts must have a link, of LACP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_links: Option<u16>,
    /// Which group of parts LACP uses: `stable`, `bandwidth` or `count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ad_select: Option<AdSelect>,
    /// Whose MAC address is used after a change: `none`, `active` or `follow`.
    #[serde(default, rename = "failOverMACPolicy", skip_serializing_if = "Option::is_none")]
    pub fail_over_mac_policy: Option<FailOverMac>,
    /// How often ARP is asked in place of looking at links.
    #[serde(default, rename = "arpIntervalSec", skip_serializing_if = "Option::is_none")]
    pub arp_interval_sec: Option<String>,
    /// Whom ARP asks: at most 16 addresses of IPv4.
    #[serde(default, rename = "arpIPTargets", skip_serializing_if = "Vec::is_empty")]
    pub arp_ip_targets: Vec<IpAddr>,
}

/// Writes an enum whose words are those of the kernel, with a function that gives them.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum $name { $($(#[$of])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// As systemd.netdev(5) writes it.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}

words! {
    /// Modes of a bond (the kernel's `Documentation/networking/bonding.rst`, `mode`).
    BondMode {
        /// One part after the other.
        BalanceRr = "balance-rr",
        /// One part at a time.
        ActiveBackup = "active-backup",
        /// By a hash of each packet.
        BalanceXor = "balance-xor",
        /// Each packet by all parts.
        Broadcast = "broadcast",
        /// LACP.
        Lacp = "802.3ad",
        /// By the load of what is sent.
        BalanceTlb = "balance-tlb",
        /// By the load of what is sent and received.
        BalanceAlb = "balance-alb",
    }
}

words! {
    /// What a hash is made of.
    TransmitHashPolicy {
        /// MAC addresses.
        Layer2 = "layer2",
        /// Addresses and ports.
        Layer34 = "layer3+4",
        /// MAC and IP addresses.
        Layer23 = "layer2+3",
        /// MAC and IP addresses of what is inside a tunnel.
        Encap23 = "encap2+3",
        /// Addresses and ports of what is inside a tunnel.
        Encap34 = "encap3+4",
        /// VLAN and MAC address of the sender.
        VlanSrcMac = "vlan+srcmac",
    }
}

words! {
    /// How often LACP speaks.
    LacpRate {
        /// Each 30 s.
        Slow = "slow",
        /// Each second.
        Fast = "fast",
    }
}

words! {
    /// Which group of parts LACP uses.
    AdSelect {
        /// The one of most bandwidth, until it has no link.
        Stable = "stable",
        /// The one of most bandwidth.
        Bandwidth = "bandwidth",
        /// The one of most parts.
        Count = "count",
    }
}

words! {
    /// Whose MAC address a bond uses.
    FailOverMac {
        /// One for all parts.
        None = "none",
        /// That of the part that is used.
        Active = "active",
        /// The bond's, which goes with the part that is used.
        Follow = "follow",
    }
}

/// A tagged network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Vlan {
    /// Its number, 1 to 4094.
    pub id: u16,
}

/// Settings of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bridge {
    /// Spanning tree.
    #[serde(default, rename = "stp", skip_serializing_if = "Option::is_none")]
    pub stp: Option<bool>,
    /// Of spanning tree: the lowest is the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u16>,
    /// How long a port listens and learns before it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_delay_sec: Option<String>,
}
