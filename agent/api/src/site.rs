//! Site: what is particular to one place. A second document of the definition, or `site.yaml` on the
//! SITE partition, a CIDATA volume, the kernel command line, or sent by REST; the first found wins.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::{Cidr, MacAddress};
use crate::servers::{ServersNetwork, Wrong};

/// The `Site` document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Site {
    /// `foothold.dev/v1`.
    pub api_version: String,
    /// `Site`.
    pub kind: String,
    /// Host name of the box, an RFC 1123 label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Addresses and planes.
    #[serde(default)]
    pub networks: Networks,
    /// Who may come in.
    #[serde(default)]
    pub access: Access,
    /// Time sources.
    #[serde(default)]
    pub ntp: Ntp,
    /// What may be uploaded. Left out when it says nothing: releases that do not know it refuse the key.
    #[serde(default, skip_serializing_if = "Uploads::is_default")]
    pub uploads: Uploads,
}

/// Networks of the site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Networks {
    /// The control plane listens and advertises on the first address that lies in one of these.
    #[serde(default)]
    pub control_plane: Plane,
    /// Interfaces with fixed addresses; all others ask DHCP.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// Name servers beside those from DHCP.
    #[serde(default)]
    pub dns: Vec<IpAddr>,
    /// Where this place's servers are, in place of all that the definition's `services.provisioning` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning: Option<ServersNetwork>,
}

/// A set of address ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plane {
    /// CIDRs such as `10.0.0.0/24`.
    #[serde(default)]
    pub cidrs: Vec<String>,
}

/// One interface, named by its MAC address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Interface {
    /// `52:54:00:12:34:56`.
    pub mac_address: String,
    /// Addresses with prefix length.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Default gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// Who may come in. With nothing here the console shows a one-time claim code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Access {
    /// SHA-256 of the bearer token for REST, 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_sha256: Option<String>,
    /// Keys in `authorized_keys` form for root's ssh.
    #[serde(default)]
    pub ssh_authorized_keys: Vec<String>,
    /// Certificate authority of clients that may upload, PEM. A certificate under it acts for the owners that its
    /// subject names as O, or without O as CN; `foothold:admin` acts for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<String>,
}

/// Rules of the Binary Provisioning Agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Uploads {
    /// Answer 500 where clients of Akraino ICN's agent expect it: for what is missing, and for what is there already.
    #[serde(default)]
    pub compat: bool,
    /// Percent of DATA that binaries may take, 15 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary_percent: Option<u8>,
    /// Percent of DATA that container images may take, 25 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_percent: Option<u8>,
    /// Percent of DATA that OS images may take, 40 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_percent: Option<u8>,
}

impl Uploads {
    /// Whether it says nothing.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Time sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ntp {
    /// Names or addresses of servers.
    #[serde(default)]
    pub peers: Vec<String>,
}

/// Why a text is not a Site.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// Not YAML of the right shape; the message has line and column.
    #[error("{0}")]
    Shape(String),
    /// Another kind of document.
    #[error("found apiVersion `{api_version}`, kind `{kind}`; expected `foothold.dev/v1`, `Site`")]
    Kind {
        /// Found version.
        api_version: String,
        /// Found kind.
        kind: String,
    },
    /// A value that cannot be used.
    #[error("`{key}`: `{found}` is not {expected}")]
    Value {
        /// Key path.
        key: &'static str,
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// Values of the servers' network that cannot be used.
    #[error("{}", .0.iter().map(servers_sentence).collect::<Vec<_>>().join("; "))]
    Servers(Vec<Wrong>),
}

fn servers_sentence(wrong: &Wrong) -> String {
    let Wrong { key, found, expected, hint } = wrong;
    format!("`networks.provisioning.{key}`: {found}, expected {expected} ({hint})")
}

impl Site {
    /// Reads and checks the YAML text of a Site.
    pub fn parse(text: &str) -> Result<Self, SiteError> {
        let options = serde_saphyr::options! { strict_booleans: true };
        let site: Self = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| SiteError::Shape(crate::yaml::told(&error)))?;
        site.check()?;
        Ok(site)
    }

    fn check(&self) -> Result<(), SiteError> {
        if self.api_version != "foothold.dev/v1" || self.kind != "Site" {
            return Err(SiteError::Kind { api_version: self.api_version.clone(), kind: self.kind.clone() });
        }
        let value = |key, found: &str, expected| Err(SiteError::Value { key, found: found.to_owned(), expected });
        if let Some(name) = self.hostname.as_deref().filter(|name| !is_label(name)) {
            return value("hostname", name, "an RFC 1123 label (a-z, 0-9, `-`, at most 63)");
        }
        if let Some(hash) = self.access.token_sha256.as_deref().filter(|hash| !is_sha256(hash)) {
            return value("access.tokenSha256", hash, "a SHA-256 in 64 lower-case hex digits");
        }
        if let Some(pem) = self.access.client_ca.as_deref().filter(|pem| !pem.contains("-----BEGIN CERTIFICATE-----")) {
            return value("access.clientCa", pem, "a certificate in PEM");
        }
        let shares = [self.uploads.binary_percent, self.uploads.container_percent, self.uploads.os_percent];
        if let Some(share) = shares.into_iter().flatten().find(|share| *share > 84) {
            return value("uploads", &share.to_string(), "at most 84 percent of DATA: the cluster needs the rest");
        }
        for cidr in &self.networks.control_plane.cidrs {
            if Cidr::parse(cidr).is_none() {
                return value("networks.controlPlane.cidrs", cidr, "a CIDR such as `10.0.0.0/24`");
            }
        }
        for interface in &self.networks.interfaces {
            if interface.mac_address.parse::<MacAddress>().is_err() {
                return value("networks.interfaces.macAddress", &interface.mac_address, "a MAC address");
            }
            for address in &interface.addresses {
                if Cidr::parse(address).is_none() {
                    return value("networks.interfaces.addresses", address, "an address with prefix length");
                }
            }
        }
        match self.networks.provisioning.as_ref().map(ServersNetwork::resolve) {
            Some((_, wrong)) if !wrong.is_empty() => Err(SiteError::Servers(wrong)),
            _ => Ok(()),
        }
    }
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::Site;

    #[test]
    fn unknown_keys_and_bad_values_are_refused_by_name() {
        let unknown = Site::parse("apiVersion: foothold.dev/v1\nkind: Site\nhostnam: a\n").expect_err("unknown key");
        assert!(unknown.to_string().contains("hostnam"), "{unknown}");
        let bad = Site::parse("apiVersion: foothold.dev/v1\nkind: Site\nhostname: A_b\n").expect_err("bad name");
        assert_eq!(bad.to_string(), "`hostname`: `A_b` is not an RFC 1123 label (a-z, 0-9, `-`, at most 63)");
        let servers = "networks: { provisioning: { address: 172.22.0.1/24, range: 10.0.0.1-10.0.0.9 } }";
        let bad = Site::parse(&format!("apiVersion: foothold.dev/v1\nkind: Site\n{servers}\n")).expect_err("nowhere");
        let told = bad.to_string();
        assert!(told.contains("`networks.provisioning.address`: `172.22.0.1/24` is on no interface"), "{told}");
        assert!(told.contains("`networks.provisioning.range`: `10.0.0.1-10.0.0.9` lies beside"), "{told}");
    }
}
