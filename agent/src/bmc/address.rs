//! Addresses of BMCs in metal3's forms, as far as asking takes: scheme, host, port, path.

use reqwest::Url;

use super::ipmi::Privilege;

/// 13.1.2 of the IPMI specification: RMCP's port.
const RMCP_PORT: u16 = 623;

/// Schemes that are answered by Redfish, and how their hosts boot.
const REDFISH: [(&str, Way); 7] = [
    ("redfish", Way::Network),
    ("ilo5-redfish", Way::Network),
    ("idrac-redfish", Way::Network),
    ("redfish-virtualmedia", Way::VirtualMedia),
    ("ilo5-virtualmedia", Way::VirtualMedia),
    ("idrac-virtualmedia", Way::VirtualMedia),
    ("redfish-uefihttp", Way::UefiHttp),
];
/// Schemes that are answered by IPMI.
const IPMI: [&str; 2] = ["ipmi", "libvirt"];

/// How a host is to boot its ramdisk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// iPXE.
    Network,
    /// A disc in a virtual drive.
    VirtualMedia,
    /// UEFI's own HTTP boot.
    UefiHttp,
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
    /// It is empty.
    #[error("the address is empty")]
    Empty,
    /// Nobody knows that scheme.
    #[error("the scheme `{0}` is not known")]
    Scheme(String),
    /// It is no URL.
    #[error("`{address}` is no address: {why}")]
    Form {
        /// The address.
        address: String,
        /// Why.
        why: String,
    },
    /// `?privilegelevel=` says something else.
    #[error("the privilege level `{0}` is not known")]
    Privilege(String),
}

impl AddressError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Empty | Self::Form { .. } => {
                "write `spec.bmc.address` as `redfish+https://HOST/redfish/v1/Systems/ID` or `ipmi://HOST`".to_owned()
            }
            Self::Scheme(_) => {
                let redfish = REDFISH.iter().map(|(scheme, _)| *scheme);
                format!("use one of {}", IPMI.into_iter().chain(redfish).collect::<Vec<_>>().join(", "))
            }
            Self::Privilege(_) => "use USER, OPERATOR or ADMINISTRATOR".to_owned(),
        }
    }
}

impl Address {
    /// Reads `spec.bmc.address`.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        let wrong = |why: &dyn std::fmt::Display| AddressError::Form { address: text.to_owned(), why: why.to_string() };
        // Without a scheme it is IPMI.
        let (scheme, rest) = text.split_once("://").unwrap_or(("ipmi", text));
        let (scheme, transport) = scheme.split_once('+').unwrap_or((scheme, "https"));
        if IPMI.contains(&scheme) {
            let url = Url::parse(&format!("ipmi://{rest}")).map_err(|error| wrong(&error))?;
            let level =
                url.query_pairs().find(|(name, _)| name == "privilegelevel").map(|(_, level)| level.into_owned());
            let privilege = level.as_deref().map_or(Ok(Privilege::default()), |level| {
                Privilege::named(level).ok_or_else(|| AddressError::Privilege(level.to_owned()))
            });
            let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong(&"it has no host"))?;
            let host = host.trim_matches(['[', ']']).to_owned();
            return Ok(Self::Ipmi { host, port: url.port().unwrap_or(RMCP_PORT), privilege: privilege? });
        }
        let way = REDFISH.iter().find(|(known, _)| *known == scheme).map(|(_, way)| *way);
        let way = way.ok_or_else(|| AddressError::Scheme(scheme.to_owned()))?;
        if !["http", "https"].contains(&transport) {
            return Err(AddressError::Scheme(format!("{scheme}+{transport}")));
        }
        let url = Url::parse(&format!("{transport}://{rest}")).map_err(|error| wrong(&error))?;
        let path = url.path().trim_end_matches('/');
        let system = Some(path).filter(|path| !["", "/redfish/v1", "/redfish"].contains(path)).map(str::to_owned);
        Ok(Self::Redfish { base: url.origin().ascii_serialization(), system, way })
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
    #[case("idrac-virtualmedia://bmc", redfish("https://bmc", None, Way::VirtualMedia))]
    #[case(
        "ilo5-virtualmedia+https://bmc/redfish/v1/Systems/1/",
        redfish("https://bmc", Some("/redfish/v1/Systems/1"), Way::VirtualMedia)
    )]
    #[case("redfish-uefihttp://[2001:db8::1]:8443", redfish("https://[2001:db8::1]:8443", None, Way::UefiHttp))]
    fn addresses_in_metal3s_forms(#[case] text: &str, #[case] wanted: Address) {
        assert_eq!(Address::parse(text), Ok(wanted));
    }

    #[rstest]
    #[case("", "empty")]
    #[case("irmc://192.0.2.1", "`irmc`")]
    #[case("redfish+ftp://192.0.2.1", "`redfish+ftp`")]
    #[case("redfish://", "no address")]
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
