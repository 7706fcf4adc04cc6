//! Words of networks that several documents share: MAC addresses, subnets, ranges.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A MAC address of six bytes (EUI-48): pairs of hex digits with colons, written in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress(pub [u8; 6]);

/// A text that is not a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a MAC address such as `52:54:00:12:34:56`")]
pub struct NotAMac(String);

impl FromStr for MacAddress {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<Self, NotAMac> {
        let wrong = || NotAMac(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|it| it.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(part.ok_or_else(wrong)?, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_none() { Ok(Self(bytes)) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for MacAddress {
    type Error = NotAMac;

    fn try_from(text: String) -> Result<Self, NotAMac> {
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
        for (index, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if index == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

/// An address with a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// Address as written.
    pub address: IpAddr,
    /// Prefix length.
    pub prefix: u8,
}

impl Cidr {
    /// Reads `10.0.0.0/24` or `fd00::/64`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let prefix: u8 = prefix.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= most).then_some(Self { address, prefix })
    }

    /// Whether `other` lies in it.
    pub fn contains(&self, other: IpAddr) -> bool {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, 32),
            IpAddr::V6(v6) => (u128::from(v6), 128),
        };
        let ((mine, width), (theirs, other_width)) = (bits(self.address), bits(other));
        width == other_width && (self.prefix == 0 || (mine ^ theirs) >> (128 - u32::from(self.prefix)) == 0)
    }
}

/// An address of an interface, and how many bits of it name the subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InterfaceAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// 1 to 30.
    pub prefix: u8,
}

impl InterfaceAddress {
    /// Whether another address is in its subnet.
    pub fn reaches(&self, other: Ipv4Addr) -> bool {
        Cidr { address: self.address.into(), prefix: self.prefix }.contains(other.into())
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for InterfaceAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        match Cidr::parse(text) {
            Some(Cidr { address: IpAddr::V4(address), prefix: prefix @ 1..=30 }) => Ok(Self { address, prefix }),
            _ => Err(NotAnAddress(text.to_owned())),
        }
    }
}

/// A text that is no address of an interface.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an IPv4 address with a prefix length")]
pub struct NotAnAddress(String);

/// First and last address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressRange {
    /// First.
    pub first: Ipv4Addr,
    /// Last.
    pub last: Ipv4Addr,
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for AddressRange {
    type Err = NotARange;

    fn from_str(text: &str) -> Result<Self, NotARange> {
        let range = text.split_once('-').and_then(|(first, last)| {
            Some(Self { first: first.trim().parse().ok()?, last: last.trim().parse().ok()? })
        });
        range.filter(|range| range.first <= range.last).ok_or_else(|| NotARange(text.to_owned()))
    }
}

/// A text that is no range of addresses.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a first and a last IPv4 address")]
pub struct NotARange(String);

#[cfg(test)]
mod tests {
    use super::{AddressRange, Cidr, InterfaceAddress, MacAddress};

    #[test]
    fn a_cidr_contains_its_addresses_only() {
        let cidr = Cidr::parse("10.1.0.0/16").expect("a CIDR");
        assert!(cidr.contains("10.1.255.1".parse().expect("an address")));
        assert!(!cidr.contains("10.2.0.1".parse().expect("an address")));
        assert!(!cidr.contains("fd00::1".parse().expect("an address")));
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
}
