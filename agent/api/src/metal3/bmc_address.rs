//! Addresses of BMCs: what `spec.bmc.address` says, and what Ironic is told for it.
//!
//! ```text
//! scheme[+http|+https]://host[:port][/path][?query]    host[:port] alone is ipmi, `scheme:host` is `scheme://host`
//!
//! scheme                 speaks   boots by             RAID            network  ISO  secure boot  fast inspection
//! ipmi, libvirt          ipmi     iPXE                 no              needed   no   no           no
//! redfish, ilo5-redfish  redfish  iPXE                 redfish         needed   no   yes          yes
//! idrac-redfish          idrac    iPXE                 idrac-redfish   needed   no   yes          yes
//! redfish-virtualmedia,
//! ilo5-virtualmedia      redfish  virtual media        redfish         no       yes  yes          yes
//! idrac-virtualmedia     idrac    virtual media        idrac-redfish   no       yes  yes          yes
//! redfish-uefihttp       redfish  UEFI HTTP            redfish         no       yes  yes          yes
//! ```

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::go_url::{self, Url};

/// UDP port of IPMI unless the address has another.
pub const IPMI_PORT: &str = "623";
/// Privilege that is asked for unless the address has `?privilegelevel=`.
pub const IPMI_PRIVILEGE: &str = "ADMINISTRATOR";

/// Why an address is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BmcAddressError {
    /// It is empty.
    #[error("missing BMC address")]
    Missing,
    /// It is no URL.
    #[error("failed to parse BMC address information: {0}")]
    Unreadable(String),
    /// Nothing speaks its scheme.
    #[error("Unknown BMC type '{scheme}' for address {address}")]
    Unknown {
        /// The scheme.
        scheme: String,
        /// The whole address.
        address: String,
    },
}

/// A way to speak with a BMC and to boot its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// IPMI over LAN.
    Ipmi,
    /// IPMI over LAN to a virtual machine.
    Libvirt,
    /// Redfish.
    Redfish,
    /// Redfish of HPE iLO 5.
    Ilo5Redfish,
    /// Redfish of Dell iDRAC.
    IdracRedfish,
    /// Redfish with virtual media.
    RedfishVirtualmedia,
    /// Redfish of HPE iLO 5 with virtual media.
    Ilo5Virtualmedia,
    /// Redfish of Dell iDRAC with virtual media.
    IdracVirtualmedia,
    /// Redfish with UEFI HTTP boot.
    RedfishUefihttp,
}

impl Driver {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Ipmi,
        Self::Libvirt,
        Self::Redfish,
        Self::Ilo5Redfish,
        Self::IdracRedfish,
        Self::RedfishVirtualmedia,
        Self::Ilo5Virtualmedia,
        Self::IdracVirtualmedia,
        Self::RedfishUefihttp,
    ];

    /// Its scheme, without `+http` or `+https`.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Ipmi => "ipmi",
            Self::Libvirt => "libvirt",
            Self::Redfish => "redfish",
            Self::Ilo5Redfish => "ilo5-redfish",
            Self::IdracRedfish => "idrac-redfish",
            Self::RedfishVirtualmedia => "redfish-virtualmedia",
            Self::Ilo5Virtualmedia => "ilo5-virtualmedia",
            Self::IdracVirtualmedia => "idrac-virtualmedia",
            Self::RedfishUefihttp => "redfish-uefihttp",
        }
    }

    /// Ironic's hardware type.
    pub const fn hardware_type(self) -> &'static str {
        match self {
            Self::Ipmi | Self::Libvirt => "ipmi",
            Self::IdracRedfish | Self::IdracVirtualmedia => "idrac",
            Self::Redfish
            | Self::Ilo5Redfish
            | Self::RedfishVirtualmedia
            | Self::Ilo5Virtualmedia
            | Self::RedfishUefihttp => "redfish",
        }
    }

    /// Ironic's boot interface.
    pub const fn boot_interface(self) -> &'static str {
        match self {
            Self::Ipmi | Self::Libvirt | Self::Redfish | Self::Ilo5Redfish | Self::IdracRedfish => "ipxe",
            Self::RedfishVirtualmedia | Self::Ilo5Virtualmedia => "redfish-virtual-media",
            Self::IdracVirtualmedia => "idrac-redfish-virtual-media",
            Self::RedfishUefihttp => "redfish-https",
        }
    }

    /// Ironic's RAID interface.
    pub const fn raid_interface(self) -> &'static str {
        if self.is_ipmi() {
            "no-raid"
        } else if self.is_idrac() {
            "idrac-redfish"
        } else {
            "redfish"
        }
    }

    /// Ironic's bios, management, power and vendor interface; the hardware type's own when `None`.
    pub const fn vendor_interfaces(self) -> Option<&'static str> {
        if self.is_idrac() { Some("idrac-redfish") } else { None }
    }

    /// Ironic's firmware interface; the hardware type's own when `None`.
    pub const fn firmware_interface(self) -> Option<&'static str> {
        if self.is_ipmi() { None } else { Some("redfish") }
    }

    /// Ironic's inspect interface for inspection by the BMC; none can do it when `None`.
    pub const fn fast_inspect_interface(self) -> Option<&'static str> {
        if self.is_ipmi() {
            None
        } else if self.is_idrac() {
            Some("idrac-redfish")
        } else {
            Some("redfish")
        }
    }

    /// Whether the host must say its MAC address even if it is inspected.
    pub const fn needs_mac(self) -> bool {
        matches!(self, Self::Libvirt)
    }

    /// Whether the ramdisk comes over the provisioning network.
    pub const fn needs_provisioning_network(self) -> bool {
        matches!(self, Self::Ipmi | Self::Libvirt | Self::Redfish | Self::Ilo5Redfish | Self::IdracRedfish)
    }

    /// Whether the ramdisk may be an ISO image.
    pub const fn boots_iso(self) -> bool {
        !self.needs_provisioning_network()
    }

    /// Whether the host's drive is what it boots from: provisioning it takes no slot of the limit.
    pub const fn uses_virtual_media(self) -> bool {
        matches!(self, Self::RedfishVirtualmedia | Self::Ilo5Virtualmedia | Self::IdracVirtualmedia)
    }

    /// Whether secure boot can be switched on.
    pub const fn supports_secure_boot(self) -> bool {
        !self.is_ipmi()
    }

    /// Whether IPMI is spoken, not Redfish.
    pub const fn is_ipmi(self) -> bool {
        matches!(self, Self::Ipmi | Self::Libvirt)
    }

    const fn is_idrac(self) -> bool {
        matches!(self, Self::IdracRedfish | Self::IdracVirtualmedia)
    }

    /// By scheme, with `+http` or `+https` where the driver speaks HTTP.
    fn of(scheme: &str) -> Option<(Self, Transport)> {
        let (name, transport) = match scheme.split_once('+') {
            Some((name, "http")) => (name, Transport::Http),
            Some((name, "https")) => (name, Transport::Https),
            Some(_) => return None,
            None => (scheme, Transport::Https),
        };
        let driver = Self::ALL.into_iter().find(|driver| driver.scheme() == name)?;
        if driver.is_ipmi() && scheme.contains('+') { None } else { Some((driver, transport)) }
    }
}

/// What Redfish goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Without encryption.
    Http,
    /// With TLS.
    Https,
}

/// User and password of a BMC.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?}, ***)", self.username)
    }
}

/// What a Secret lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// There is no user.
    #[error("Validation error with BMC credentials: Missing BMC connection detail 'username' in credentials")]
    Username,
    /// There is no password.
    #[error("Validation error with BMC credentials: Missing BMC connection details 'password' in credentials")]
    Password,
}

impl Credentials {
    /// From the keys `username` and `password` of a Secret; white space around them is not theirs.
    ///
    /// # Errors
    /// Which one is missing or empty.
    pub fn new(username: Option<&str>, password: Option<&str>) -> Result<Self, CredentialsError> {
        let plain = |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(Self {
            username: plain(username).ok_or(CredentialsError::Username)?,
            password: plain(password).ok_or(CredentialsError::Password)?,
        })
    }
}

/// The address of a BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BmcAddress {
    /// What is spoken, and how the host boots.
    pub driver: Driver,
    /// What Redfish goes over.
    pub transport: Transport,
    /// The scheme as it was written, in lower case: how messages name the driver.
    pub scheme: String,
    /// Name or IP address, without brackets.
    pub hostname: String,
    /// Port, when the address has one.
    pub port: Option<String>,
    /// Path; of Redfish, that of the system.
    pub path: String,
    /// IPMI's privilege.
    pub privilege: String,
    /// Host and port as they are written in URLs.
    host: String,
}

impl FromStr for BmcAddress {
    type Err = BmcAddressError;

    fn from_str(address: &str) -> Result<Self, BmcAddressError> {
        if address.is_empty() {
            return Err(BmcAddressError::Missing);
        }
        let url = parsed(address)?;
        let Some((driver, transport)) = Driver::of(&url.scheme) else {
            return Err(BmcAddressError::Unknown { scheme: url.scheme, address: address.to_owned() });
        };
        Ok(Self {
            driver,
            transport,
            hostname: url.hostname().to_owned(),
            port: Some(url.port()).filter(|port| !port.is_empty()).map(str::to_owned),
            privilege: url.query_value("privilegelevel").unwrap_or_else(|| IPMI_PRIVILEGE.to_owned()),
            scheme: url.scheme,
            path: url.path,
            host: url.host,
        })
    }
}

impl BmcAddress {
    /// Ironic's `driver_info`, without the ramdisk. `any_certificate` as in the host's spec.
    pub fn driver_info(&self, credentials: &Credentials, any_certificate: bool) -> Map<String, Value> {
        let mut info = Map::new();
        let prefix = if self.driver.is_ipmi() { "ipmi" } else { "redfish" };
        info.insert(format!("{prefix}_username"), json!(credentials.username));
        info.insert(format!("{prefix}_password"), json!(credentials.password));
        if self.driver.is_ipmi() {
            info.insert("ipmi_address".into(), json!(self.hostname));
            info.insert("ipmi_port".into(), json!(self.port.as_deref().unwrap_or(IPMI_PORT)));
            info.insert("ipmi_priv_level".into(), json!(self.privilege));
        } else {
            info.insert("redfish_address".into(), json!(self.redfish_root()));
            if !matches!(self.path.trim_matches('/'), "" | "redfish/v1") {
                info.insert("redfish_system_id".into(), json!(self.path));
            }
        }
        if any_certificate {
            info.insert(format!("{prefix}_verify_ca"), json!(false));
        }
        info
    }

    /// Whether another address is of the same BMC and the same system behind it, as far as its text tells: schemes of one
    /// protocol are one, and a name is not its IP address.
    pub fn is_same(&self, other: &Self) -> bool {
        self.place() == other.place()
    }

    /// Host, port and path: what [`Self::is_same`] compares, to look many of them up.
    pub fn place(&self) -> (String, String, String) {
        let port = self.port.clone().unwrap_or_else(|| self.default_port().to_owned());
        (self.hostname.to_lowercase(), port, self.path.trim_matches('/').to_owned())
    }

    fn default_port(&self) -> &'static str {
        match (self.driver.is_ipmi(), self.transport) {
            (true, _) => IPMI_PORT,
            (false, Transport::Http) => "80",
            (false, Transport::Https) => "443",
        }
    }

    /// Scheme, host and port of the Redfish service.
    pub fn redfish_root(&self) -> String {
        let scheme = match self.transport {
            Transport::Http => "http",
            Transport::Https => "https",
        };
        format!("{scheme}://{}", self.host)
    }
}

/// The address in its parts, whatever its scheme.
///
/// # Errors
/// [`BmcAddressError::Unreadable`].
pub(super) fn parsed(address: &str) -> Result<Url, BmcAddressError> {
    let unreadable = BmcAddressError::Unreadable;
    let url = match go_url::parse(address) {
        // Neither a URL nor a path: perhaps host and port, of which no URL may begin.
        Err(problem) if address.contains(':') && !is_host_and_port(address) => return Err(unreadable(problem)),
        Err(_) => Url { scheme: "ipmi".into(), host: address.to_owned(), ..Url::default() },
        Ok(url) if is_name_and_port(&url) => go_url::parse(&format!("ipmi://{address}")).map_err(unreadable)?,
        Ok(url) if !url.opaque.is_empty() => go_url::parse(&address.replacen(':', "://", 1)).map_err(unreadable)?,
        // Without a scheme, a name is read as a path.
        Ok(url) if url.scheme.is_empty() && url.hostname().is_empty() => {
            go_url::parse(&format!("ipmi://{address}")).map_err(unreadable)?
        }
        Ok(url) => url,
    };
    let hostname = url.hostname();
    if hostname.is_empty() || hostname.parse::<IpAddr>().is_ok() || is_dns_name(hostname) {
        Ok(url)
    } else {
        Err(unreadable(format!("BMC address hostname/IP : [{hostname}] is invalid")))
    }
}

/// `bmc1.example.com:623` has the form of a scheme and what belongs to it, but nothing is spoken that is called so.
fn is_name_and_port(url: &Url) -> bool {
    let port = !url.opaque.is_empty() && url.opaque.parse::<u16>().is_ok();
    port && url.scheme.contains('.') && is_dns_name(&url.scheme)
}

/// Go's `net.SplitHostPort` would take it apart.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    if port.contains(['[', ']']) {
        return false;
    }
    match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').is_some_and(|address| !address.contains(['[', ']'])),
        None => !host.contains([':', '[', ']']),
    }
}

fn is_dns_name(name: &str) -> bool {
    name.split('.').all(|label| {
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        let inside = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
        bytes.len() <= 63 && inside && ends(bytes.first()) && ends(bytes.last())
    })
}

#[cfg(test)]
#[path = "bmc_address/tests.rs"]
mod tests;
