//! Addresses of BMCs in metal3's forms, as far as asking takes: who answers where, and how the host is to boot.

use std::net::SocketAddr;

use agent_api::metal3::bmc_address::{BmcAddress, BmcAddressError, Driver};

use tokio::net::lookup_host;

use super::ipmi::{Privilege, RMCP_PORT};

/// How a host is to boot its ramdisk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// iPXE.
    Network,
    /// A disc in a virtual drive.
    VirtualMedia,
    /// The same by Dell's own way.
    IdracVirtualMedia,
    /// UEFI's own HTTP boot.
    UefiHttp,
}

impl Way {
    const fn of(driver: Driver) -> Self {
        if matches!(driver, Driver::IdracVirtualmedia) {
            Self::IdracVirtualMedia
        } else if driver.uses_virtual_media() {
            Self::VirtualMedia
        } else if driver.boots_iso() {
            Self::UefiHttp
        } else {
            Self::Network
        }
    }

    /// Whether a virtual drive is what the host boots from.
    pub const fn is_media(self) -> bool {
        matches!(self, Self::VirtualMedia | Self::IdracVirtualMedia)
    }
}

/// Where a BMC is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Redfish.
    Redfish {
        /// `https://HOST:PORT`, without a path.
        base: String,
        /// Path of the computer system, if the address names one.
        system: Option<String>,
        /// How the host boots.
        way: Way,
    },
    /// IPMI over LAN.
    Ipmi {
        /// Name or IP address, without brackets.
        host: String,
        /// UDP port.
        port: u16,
        /// What a session is opened for.
        privilege: Privilege,
    },
}

/// An address that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is not an address of a BMC.
    #[error(transparent)]
    Form(#[from] BmcAddressError),
    /// The port is not a number.
    #[error("the port `{0}` is no number from 1 to 65535")]
    Port(String),
    /// `?privilegelevel=` says something else.
    #[error("the privilege level `{0}` is not known")]
    Privilege(String),
}

/// The address behind a BMC's name. An error text where it has none.
pub async fn resolve(name: &str, port: u16) -> Result<SocketAddr, String> {
    let mut found = lookup_host((name, port)).await.map_err(|error| format!("`{name}` has no address: {error}"))?;
    found.next().ok_or_else(|| format!("`{name}` has no address"))
}

impl AddressError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Port(_) => "write the BMC's port behind its name, or none for the usual one".to_owned(),
            Self::Form(BmcAddressError::Missing | BmcAddressError::Unreadable(_)) => {
                "write `spec.bmc.address` as `redfish+https://HOST/redfish/v1/Systems/ID` or `ipmi://HOST`".to_owned()
            }
            Self::Form(BmcAddressError::Unknown { .. }) => {
                format!("use one of {}", Driver::ALL.map(Driver::scheme).join(", "))
            }
            Self::Privilege(_) => "use USER, OPERATOR or ADMINISTRATOR".to_owned(),
        }
    }
}

impl Address {
    /// Reads `spec.bmc.address`.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let address: BmcAddress = text.trim().parse()?;
        if address.hostname.is_empty() {
            return Err(BmcAddressError::Unreadable(format!("`{text}` has no host")).into());
        }
        let port = |text: &String| {
            let port: Option<u16> = text.parse().ok().filter(|port| *port > 0);
            port.ok_or_else(|| AddressError::Port(text.clone()))
        };
        let port = address.port.as_ref().map(port).transpose()?;
        if address.driver.is_ipmi() {
            let port = port.unwrap_or(RMCP_PORT);
            let level = &address.privilege;
            let privilege = Privilege::named(level).ok_or_else(|| AddressError::Privilege(level.clone()))?;
            return Ok(Self::Ipmi { host: address.hostname, port, privilege });
        }
        let path = address.path.trim_end_matches('/');
        let system = Some(path).filter(|path| !["", "/redfish/v1", "/redfish"].contains(path)).map(str::to_owned);
        Ok(Self::Redfish { base: address.redfish_root(), system, way: Way::of(address.driver) })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn ipmi(host: &str, port: u16) -> Address {
        Address::Ipmi { host: host.into(), port, privilege: Privilege::Administrator }
    }

    fn redfish(base: &str, system: Option<&str>, way: Way) -> Address {
        Address::Redfish { base: base.into(), system: system.map(str::to_owned), way }
    }

    #[rstest]
    #[case("192.0.2.1", ipmi("192.0.2.1", 623))]
    #[case("bmc.example:6230", ipmi("bmc.example", 6230))]
    #[case("ipmi://[2001:db8::1]:80", ipmi("2001:db8::1", 80))]
    #[case("libvirt://192.0.2.1:6230/", ipmi("192.0.2.1", 6230))]
    #[case(
        "redfish://192.0.2.1/redfish/v1/Systems/1",
        redfish("https://192.0.2.1", Some("/redfish/v1/Systems/1"), Way::Network)
    )]
    #[case("redfish+http://192.0.2.1:8000/redfish/v1/", redfish("http://192.0.2.1:8000", None, Way::Network))]
    #[case("idrac-virtualmedia://bmc", redfish("https://bmc", None, Way::IdracVirtualMedia))]
    #[case(
        "ilo5-virtualmedia+https://bmc/redfish/v1/Systems/1/",
        redfish("https://bmc", Some("/redfish/v1/Systems/1"), Way::VirtualMedia)
    )]
    #[case("redfish-uefihttp://[2001:db8::1]:8443", redfish("https://[2001:db8::1]:8443", None, Way::UefiHttp))]
    fn addresses_in_metal3s_forms(#[case] text: &str, #[case] wanted: Address) {
        assert_eq!(Address::parse(text), Ok(wanted));
    }

    #[rstest]
    #[case("", "missing")]
    #[case("irmc://192.0.2.1", "'irmc'")]
    #[case("redfish+ftp://192.0.2.1", "'redfish+ftp'")]
    #[case("redfish://", "failed to parse")]
    #[case("ipmi://bmc:99999", "the port `99999` is no number from 1 to 65535")]
    #[case("redfish+https://127.0.0.1:99999", "the port `99999` is no number from 1 to 65535")]
    #[case("redfish://[2001:db8::1]:65536/redfish/v1/Systems/1", "the port `65536`")]
    #[case("idrac-virtualmedia+http://bmc:0", "the port `0`")]
    #[case("ipmi://bmc?privilegelevel=KING", "`KING`")]
    fn what_is_no_address_is_told_with_a_hint(#[case] text: &str, #[case] part: &str) {
        let error = Address::parse(text).expect_err("no address");
        assert!(error.to_string().contains(part) && !error.hint().is_empty(), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,80}", scheme in "(ipmi|redfish|idrac-virtualmedia\\+http)?") {
            let _ = Address::parse(&text);
            let _ = Address::parse(&format!("{scheme}://{text}"));
        }
    }
}
