//! Addresses as people write them, each read in one place and written in one spelling: MAC addresses, networks, ranges.
//!
//! By hand, for `ipnet` reads `010.0.0.0/8` as `10.0.0.0/8`, where other programs take the first number as octal; the
//! standard library, which reads the addresses here, refuses it.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A MAC address of six bytes, written `52:54:00:12:34:56` in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress(pub [u8; 6]);

/// A text that is no MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a MAC address such as `52:54:00:12:34:56`")]
pub struct NotAMacAddress(String);

impl MacAddress {
    /// Reads any spelling of [`hardware_address`] that has six bytes.
    pub fn from_any(text: &str) -> Option<Self> {
        hardware_address(text)?.try_into().ok().map(Self)
    }

    /// Whether no bit of it is set: it names nothing.
    pub const fn is_zero(self) -> bool {
        u64::from_be_bytes([0, 0, self.0[0], self.0[1], self.0[2], self.0[3], self.0[4], self.0[5]]) == 0
    }

    /// Whether it names several interfaces at once (IEEE 802, the I/G bit).
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl FromStr for MacAddress {
    type Err = NotAMacAddress;

    /// Reads six pairs of hex digits with colons, upper or lower case: the spelling of all files of ours.
    fn from_str(text: &str) -> Result<Self, NotAMacAddress> {
        Some(text)
            .filter(|text| text.contains(':'))
            .and_then(Self::from_any)
            .ok_or_else(|| NotAMacAddress(text.to_owned()))
    }
}

impl TryFrom<String> for MacAddress {
    type Error = NotAMacAddress;

    fn try_from(text: String) -> Result<Self, NotAMacAddress> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(mac: MacAddress) -> Self {
        mac.to_string()
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}

/// Reads the address of a network card: 6, 8 or 20 bytes (Ethernet, EUI-64, InfiniBand), in pairs of hex digits with
/// colons or hyphens, or in fours with dots, as Go's `net.ParseMAC` does.
pub fn hardware_address(text: &str) -> Option<Vec<u8>> {
    let separator = text.chars().find(|c| !c.is_ascii_hexdigit())?;
    let digits = match separator {
        ':' | '-' => 2,
        '.' => 4,
        _ => return None,
    };
    if text.split(separator).any(|part| part.len() != digits) {
        return None;
    }
    let bytes = hex::decode(text.replace(separator, "")).ok()?;
    [6, 8, 20].contains(&bytes.len()).then_some(bytes)
}

/// An address with a prefix length. Bits behind the prefix may be set: then it is a host's address and its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    /// Address as written.
    pub address: IpAddr,
    /// Prefix length, at most 32 or 128.
    pub prefix: u8,
}

/// A text that is no address with a prefix length.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address with a prefix length such as `10.0.0.0/24`")]
pub struct NotACidr(String);

impl Cidr {
    /// Reads `10.0.0.0/24` or `fd00::/64`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let prefix: u8 = prefix.parse().ok()?;
        (prefix <= width(address)).then_some(Self { address, prefix })
    }

    /// The network alone: no bit behind the prefix is set.
    #[must_use]
    pub fn network(self) -> Self {
        let address = match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V6((v6.to_bits() & mask).into())
            }
        };
        Self { address, prefix: self.prefix }
    }

    /// Whether `other` lies in it.
    pub fn contains(self, other: IpAddr) -> bool {
        self.address.is_ipv4() == other.is_ipv4()
            && Self { address: other, prefix: self.prefix }.network() == self.network()
    }

    /// Whether the two networks share an address.
    pub fn overlaps(self, other: Self) -> bool {
        if self.prefix <= other.prefix { self.contains(other.address) } else { other.contains(self.address) }
    }

    /// The `n`th address behind the network's own, unless there is none so high.
    pub fn nth(self, n: u32) -> Option<IpAddr> {
        match self.network().address {
            IpAddr::V4(v4) => Some(IpAddr::V4(v4.to_bits().checked_add(n)?.into())),
            IpAddr::V6(v6) => Some(IpAddr::V6(v6.to_bits().checked_add(n.into())?.into())),
        }
    }
}

/// Bits of an address.
const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for Cidr {
    type Err = NotACidr;

    fn from_str(text: &str) -> Result<Self, NotACidr> {
        Self::parse(text).ok_or_else(|| NotACidr(text.to_owned()))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The IPv4 address of an interface, and how many bits of it name the subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InterfaceAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// 1 to 30.
    pub prefix: u8,
}

/// A text that is no address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an IPv4 address with a prefix length")]
pub struct NotAnInterfaceAddress(String);

impl InterfaceAddress {
    /// Whether another address is in its subnet.
    pub fn reaches(self, other: Ipv4Addr) -> bool {
        Cidr { address: self.address.into(), prefix: self.prefix }.contains(other.into())
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for InterfaceAddress {
    type Err = NotAnInterfaceAddress;

    fn from_str(text: &str) -> Result<Self, NotAnInterfaceAddress> {
        match Cidr::parse(text) {
            Some(Cidr { address: IpAddr::V4(address), prefix: prefix @ 1..=30 }) => Ok(Self { address, prefix }),
            _ => Err(NotAnInterfaceAddress(text.to_owned())),
        }
    }
}

/// IPv4 addresses from the first to the last, both included, written `172.22.0.10-172.22.0.100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressRange {
    /// First.
    pub first: Ipv4Addr,
    /// Last.
    pub last: Ipv4Addr,
}

/// A text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a first and a last IPv4 address")]
pub struct NotAnAddressRange(String);

impl AddressRange {
    /// Whether the address is one of them.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for AddressRange {
    type Err = NotAnAddressRange;

    fn from_str(text: &str) -> Result<Self, NotAnAddressRange> {
        let range = text.split_once('-').and_then(|(first, last)| {
            Some(Self { first: first.trim().parse().ok()?, last: last.trim().parse().ok()? })
        });
        range.filter(|range| range.first <= range.last).ok_or_else(|| NotAnAddressRange(text.to_owned()))
    }
}

/// A name or an address as it stands before `:PORT` (RFC 3986, 3.2.2): one of IPv6 in brackets.
pub fn before_port(host: &str) -> Cow<'_, str> {
    if host.contains(':') { Cow::Owned(format!("[{host}]")) } else { Cow::Borrowed(host) }
}

/// Longest name of an interface (`IFNAMSIZ` without its end, linux/if.h).
const LONGEST_INTERFACE: usize = 15;

/// Whether the kernel and systemd-networkd take it as the name of an interface that is made (systemd.netdev(5), `Name=`).
pub fn is_interface_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    // Digits alone would be an index.
    let is_index = text.bytes().all(|b| b.is_ascii_digit());
    (1..=LONGEST_INTERFACE).contains(&text.len())
        && text.bytes().all(inner)
        && !is_index
        && !matches!(text, "." | ".." | "all" | "default" | "lo")
}

/// Whether it is a label of DNS (RFC 1123, 2.1) as Kubernetes wants it: a to z, 0 to 9, `-` inside, at most 63 characters.
pub fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::{any, proptest};

    use super::{AddressRange, Cidr, InterfaceAddress, MacAddress, hardware_address};

    #[test]
    fn names_of_interfaces_are_those_that_the_kernel_takes() {
        for good in ["bond0", "v.10", "storage_net-1", "a23456789012345"] {
            assert!(super::is_interface_name(good), "{good}");
        }
        for bad in ["", ".", "..", "lo", "all", "default", "12", "a234567890123456", "a b", "a/b", "a:b", "é"] {
            assert!(!super::is_interface_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_mac_address_is_written_in_one_way() {
        for text in ["52:54:00:AB:cd:ef", "52:54:00:ab:CD:EF"] {
            assert_eq!(text.parse::<MacAddress>().expect("a MAC address").to_string(), "52:54:00:ab:cd:ef");
        }
        for wrong in [
            "",
            "52:54:00:ab:cd",
            "52:54:00:ab:cd:ef:01",
            "52:54:00:ab:cd:+f",
            "52-54-00-ab-cd-ef",
            "g2:54:00:ab:cd:ef",
        ] {
            assert!(wrong.parse::<MacAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn any_spelling_of_a_mac_is_written_in_one() {
        for text in ["52:54:00:AB:CD:01", "52-54-00-ab-cd-01", "5254.00ab.cd01"] {
            assert_eq!(MacAddress::from_any(text).map(|mac| mac.to_string()).as_deref(), Some("52:54:00:ab:cd:01"));
        }
        for bad in ["525400abcd01", "52:54-00:ab:cd:01", "52:54:00:ab:cd:01:02:03", "5:4:0:a:c:1", "52 54 00 ab cd 01"]
        {
            assert_eq!(MacAddress::from_any(bad), None, "{bad}");
        }
    }

    #[test]
    fn cards_have_addresses_of_six_eight_or_twenty_bytes() {
        for (text, bytes) in [
            ("52:54:00:ab:cd:01", Some(6)),
            ("02-00-5e-10-00-00-00-01", Some(8)),
            ("0000.0000.fe80.0000.0000.0000.0200.5e10.0000.0001", Some(20)),
            ("02:00:5e:10:00:00:00", None),
            ("0200:5e10:0000", None),
            ("02.00.5e.10.00.00", None),
            (":52:54:00:ab:cd", None),
            ("", None),
        ] {
            assert_eq!(hardware_address(text).map(|address| address.len()), bytes, "{text}");
        }
    }

    #[test]
    fn a_cidr_contains_its_addresses_only() {
        let cidr = Cidr::parse("10.1.0.0/16").expect("a CIDR");
        assert!(cidr.contains("10.1.255.1".parse().expect("an address")));
        assert!(!cidr.contains("10.2.0.1".parse().expect("an address")));
        assert!(!cidr.contains("fd00::1".parse().expect("an address")));
    }

    #[test]
    fn a_number_that_may_be_octal_is_refused() {
        for bad in ["010.0.0.0/8", "10.0.0.0/33", "fd00::/129", "10.0.0.0", "10.0.0.0/", "/8"] {
            bad.parse::<Cidr>().expect_err(bad);
        }
    }

    #[test]
    fn a_range_has_its_ends_and_what_is_between() {
        let range: AddressRange = "172.22.0.10 - 172.22.0.100".parse().expect("a range");
        assert_eq!(range.to_string(), "172.22.0.10-172.22.0.100");
        assert!(range.contains(range.last) && !range.contains([172, 22, 0, 101].into()));
    }

    #[test]
    fn addresses_and_ranges_are_written_as_they_are_read() {
        for text in ["172.22.0.1/24", "10.0.0.1/30"] {
            assert_eq!(text.parse::<InterfaceAddress>().expect("an address").to_string(), text);
        }
        for wrong in ["172.22.0.1", "172.22.0.1/0", "172.22.0.1/31", "fd00::1/64"] {
            assert!(wrong.parse::<InterfaceAddress>().is_err(), "{wrong}");
        }
        let text = "172.22.0.10-172.22.0.100";
        assert_eq!(text.parse::<AddressRange>().expect("a range").to_string(), text);
        assert!("172.22.0.9-172.22.0.1".parse::<AddressRange>().is_err());
    }

    proptest! {
        #[test]
        fn a_mac_reads_back_as_it_is_shown(bytes in any::<[u8; 6]>()) {
            assert_eq!(MacAddress(bytes).to_string().parse(), Ok(MacAddress(bytes)));
        }

        #[test]
        fn a_network_has_the_first_address_of_all_that_it_contains(address in any::<u128>(), other in any::<u128>(), prefix in 0..=128_u8) {
            let [address, other] = [address, other].map(|bits| IpAddr::V6(bits.into()));
            let cidr = Cidr { address, prefix };
            let is_equal_so_far = |a: u128, b: u128| prefix == 0 || (a ^ b) >> (128 - u32::from(prefix)) == 0;
            let (IpAddr::V6(mine), IpAddr::V6(theirs)) = (address, other) else { unreachable!() };
            assert!(cidr.contains(address) && cidr.nth(0) <= Some(address));
            assert_eq!(cidr.contains(other), is_equal_so_far(mine.to_bits(), theirs.to_bits()));
            assert_eq!(cidr.to_string().parse(), Ok(cidr));
        }
    }
}
