//! The servers' network: as a user declares it, in the definition as `services.provisioning` and in its place in Site as
//! `networks.provisioning`, and as the release holds it.
//!
//! ```text
//! ServersNetwork (texts) ─resolve─► Provisioning, and every Wrong with its key
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::{AddressRange, InterfaceAddress, MacAddress, is_interface_name};

/// Network boot and provisioning of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServersNetwork {
    /// The interface of the provisioning network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<InterfaceChoice>,
    /// The box's own address there with its prefix length, such as `172.22.0.1/24`. Default: what Site or another DHCP
    /// server gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(title = "an address such as `172.22.0.1/24`")]
    pub address: Option<String>,
    /// First and last address to lease, such as `172.22.0.10-172.22.0.100`. Without it the box serves no DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(title = "a range such as `172.22.0.10-172.22.0.100`")]
    pub range: Option<String>,
    /// Whom DHCP answers. Default: `guard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<DhcpPolicy>,
}

/// Selects a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InterfaceChoice {
    /// By its hardware address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(title = "a MAC address such as \"52:54:00:12:34:56\"")]
    pub mac_address: Option<String>,
    /// By its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(title = "an interface name such as `enp3s0`")]
    pub name: Option<String>,
}

/// How the box provisions other servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provisioning {
    /// MAC address of the interface on the servers' network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Name of that interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The box's own address there; else it has what Site or another DHCP server gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<InterfaceAddress>,
    /// Addresses to lease. Without them the box serves no DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<AddressRange>,
    /// Whom DHCP answers.
    #[serde(default)]
    pub dhcp: DhcpPolicy,
}

/// Whom DHCP on the servers' network answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DhcpPolicy {
    /// Known machines; unknown ones only right after a probe found no other server.
    #[default]
    Guard,
    /// Known machines.
    Known,
    /// Everybody, whoever else answers.
    Always,
    /// Nobody.
    Off,
}

/// A value that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its key, below the network's.
    pub key: &'static str,
    /// What is wrong with what was found.
    pub found: String,
    /// What should stand there.
    pub expected: &'static str,
    /// What to do.
    pub hint: &'static str,
}

impl ServersNetwork {
    /// What it comes to, and everything that is wrong with it; only without that it may be used.
    pub fn resolve(&self) -> (Provisioning, Vec<Wrong>) {
        let mut wrong = Vec::new();
        let mut add = |key, found, expected, hint| wrong.push(Wrong { key, found, expected, hint });
        let InterfaceChoice { mac_address, name } = self.interface.clone().unwrap_or_default();
        if let Some(mac) = mac_address.as_deref().filter(|mac| mac.parse::<MacAddress>().is_err()) {
            let expected = "six pairs of hex digits such as \"52:54:00:12:34:56\"";
            let found = format!("`{mac}` is not a MAC address");
            add("interface.macAddress", found, expected, "it stands on the label of the machine");
        }
        if let Some(name) = name.as_deref().filter(|name| !is_interface_name(name)) {
            let expected = "the whole name of one interface, no pattern";
            add(
                "interface.name",
                format!("`{name}` is no name of an interface"),
                expected,
                "`ip link` on the box prints it",
            );
        }
        let range = self.range.as_deref().and_then(|text| {
            let range = text.parse::<AddressRange>().ok();
            if range.is_none() {
                let hint = "for example `172.22.0.10-172.22.0.100`";
                add("range", format!("`{text}` is not a range of addresses"), "first and last address", hint);
            }
            range
        });
        let address = self.address.as_deref().and_then(|text| {
            let address = text.parse::<InterfaceAddress>().ok();
            if address.is_none() {
                let expected = "an IPv4 address and its prefix length, 1 to 30";
                add("address", format!("`{text}` is not valid"), expected, "for example `172.22.0.1/24`");
            }
            address
        });
        if let Some(own) = address.filter(|_| mac_address.is_none() && name.is_none()) {
            let hint = "name it in `interface`, by `macAddress` or `name`";
            add("address", format!("`{own}` is on no interface"), "an interface that has the address", hint);
        }
        if let (Some(own), Some(range)) = (address, range) {
            if !own.reaches(range.first) || !own.reaches(range.last) {
                let hint = "servers with other addresses do not reach the box";
                add("range", format!("`{range}` lies beside `{own}`"), "addresses of the box's own subnet", hint);
            } else if range.contains(own.address) {
                let found = format!("`{range}` has the box's own address in it");
                add("range", found, "addresses that nobody has", "begin behind it");
            }
        }
        let dhcp = self.dhcp.unwrap_or_default();
        (Provisioning { mac_address, interface: name, address, range, dhcp }, wrong)
    }
}

impl From<&Provisioning> for ServersNetwork {
    fn from(declared: &Provisioning) -> Self {
        let choice = InterfaceChoice { mac_address: declared.mac_address.clone(), name: declared.interface.clone() };
        Self {
            interface: Some(choice).filter(|choice| *choice != InterfaceChoice::default()),
            address: declared.address.map(|own| own.to_string()),
            range: declared.range.map(|range| range.to_string()),
            dhcp: Some(declared.dhcp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(mac: Option<&str>, address: Option<&str>, range: Option<&str>) -> ServersNetwork {
        let interface = mac.map(|mac| InterfaceChoice { mac_address: Some(mac.to_owned()), name: None });
        let [address, range] = [address, range].map(|text| text.map(str::to_owned));
        ServersNetwork { interface, address, range, dhcp: None }
    }

    #[test]
    fn what_cannot_be_is_told_by_its_key() {
        let mac = Some("52:54:00:12:34:56");
        let cases: [(ServersNetwork, &[&str]); 7] = [
            (network(Some("52:54"), None, None), &["interface.macAddress"]),
            (network(mac, Some("172.22.0.1"), None), &["address"]),
            (network(None, Some("172.22.0.1/24"), None), &["address"]),
            (network(None, None, Some("172.22.0.9-172.22.0.1")), &["range"]),
            (network(mac, Some("172.22.0.1/24"), Some("172.22.1.1-172.22.1.9")), &["range"]),
            (network(mac, Some("172.22.0.1/24"), Some("172.22.0.1-172.22.0.9")), &["range"]),
            (network(Some("x"), Some("y"), Some("z")), &["interface.macAddress", "range", "address"]),
        ];
        for (network, keys) in cases {
            let (_, wrong) = network.resolve();
            assert_eq!(wrong.iter().map(|wrong| wrong.key).collect::<Vec<_>>(), keys, "{wrong:?}");
        }
    }

    #[test]
    fn what_a_release_says_can_be_said_again() {
        let (declared, wrong) =
            network(Some("52:54:00:12:34:56"), Some("172.22.0.1/24"), Some("172.22.0.10-172.22.0.100")).resolve();
        assert_eq!(wrong, []);
        assert_eq!(ServersNetwork::from(&declared).resolve(), (declared, Vec::new()));
        let nothing = Provisioning::default();
        assert_eq!(ServersNetwork::from(&nothing).resolve(), (nothing, Vec::new()));
    }
}
