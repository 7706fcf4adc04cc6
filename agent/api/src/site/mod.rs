//! Site: what is particular to one place. A second document of the definition, or `site.yaml` on the
//! SITE partition, a CIDATA volume, the kernel command line, or sent by REST; the first found wins.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::Cidr;
use crate::servers::ServersNetwork;
use crate::yaml;

mod card;
pub mod check;
pub mod interfaces;
mod place;

pub use check::Finding;
pub use interfaces::{Interface, Netdev};

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
    /// Bonds, VLANs and bridges. Left out when there is none: releases that do not know it refuse the key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub netdevs: Vec<Netdev>,
    /// Interfaces with fixed addresses, or with other settings; all others ask DHCP.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// Name servers beside those from DHCP.
    #[serde(default)]
    pub dns: Vec<IpAddr>,
    /// Domains in which names are looked for, beside those from DHCP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
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
    /// Public keys of minisign. A Site on a volume that one of them signed (`site.yaml.minisig` beside it) takes the place
    /// of this one. Left out when there is none: releases that do not know it refuse the key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub site_keys: Vec<String>,
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

/// Most bytes of a Site, wherever it comes from.
pub const MOST_BYTES: usize = 64 * 1024;

/// Why a text is not a Site.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// More than [`MOST_BYTES`].
    #[error("found more than {} KiB, expected a Site; hint: certificates and keys are its longest values", MOST_BYTES / 1024)]
    TooLarge,
    /// Not YAML of the right shape; the message has line and column.
    #[error("{0}")]
    Shape(String),
    /// Values that cannot be, each with its line.
    #[error("{}", .0.iter().map(sentence).collect::<Vec<_>>().join("; "))]
    Wrong(Vec<(Option<usize>, Finding)>),
}

fn sentence((line, finding): &(Option<usize>, Finding)) -> String {
    line.map_or_else(|| finding.to_string(), |line| format!("line {line}: {finding}"))
}

impl Site {
    /// Reads and checks the YAML text of a Site.
    pub fn parse(text: &str) -> Result<Self, SiteError> {
        if text.len() > MOST_BYTES {
            return Err(SiteError::TooLarge);
        }
        let mut options = yaml::options(text);
        options.strict_booleans = true;
        let site: Self = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| SiteError::Shape(yaml::told_with_lines(&error)))?;
        let wrong: Vec<_> = check::findings(&site).into_iter().filter(|finding| !finding.warning).collect();
        if wrong.is_empty() {
            return Ok(site);
        }
        Err(SiteError::Wrong(wrong.into_iter().map(|finding| (place::line_of(text, &finding.path), finding)).collect()))
    }

    /// [`Site::parse`] on a box whose cluster has these networks.
    pub fn parse_beside(text: &str, clusters: &[(&'static str, Cidr)]) -> Result<Self, SiteError> {
        let site = Self::parse(text)?;
        let wrong = check::against_cluster(&site, clusters).into_iter().filter(|finding| !finding.warning);
        let wrong: Vec<_> = wrong.map(|finding| (place::line_of(text, &finding.path), finding)).collect();
        if wrong.is_empty() { Ok(site) } else { Err(SiteError::Wrong(wrong)) }
    }
}

#[cfg(test)]
mod tests {
    use super::Site;

    #[test]
    fn unknown_keys_and_bad_values_are_refused_by_name_and_line() {
        let unknown = Site::parse("apiVersion: foothold.dev/v1\nkind: Site\nhostnam: a\n").expect_err("unknown key");
        assert!(unknown.to_string().contains("hostnam"), "{unknown}");
        let bad = Site::parse("apiVersion: foothold.dev/v1\nkind: Site\nhostname: A_b\n").expect_err("bad name");
        let expected = "line 3: `hostname`: `A_b` is not valid, expected a DNS label (a-z, 0-9 and `-` inside, at most 63) (for example `a-b`)";
        assert_eq!(bad.to_string(), expected);
        let servers = "networks: { provisioning: { address: 172.22.0.1/24, range: 10.0.0.1-10.0.0.9 } }";
        let bad = Site::parse(&format!("apiVersion: foothold.dev/v1\nkind: Site\n{servers}\n")).expect_err("nowhere");
        let told = bad.to_string();
        assert!(told.contains("`networks.provisioning.address`: `172.22.0.1/24` is on no interface"), "{told}");
        assert!(told.contains("`networks.provisioning.range`: `10.0.0.1-10.0.0.9` lies beside"), "{told}");
    }

    #[test]
    fn a_value_that_may_be_a_secret_is_not_shown() {
        let text = "apiVersion: foothold.dev/v1\nkind: Site\naccess: { tokenSha256: hunter2 }\n";
        let told = Site::parse(text).expect_err("no hash").to_string();
        assert!(told.starts_with("line 3: `access.tokenSha256`: ") && !told.contains("hunter2"), "{told}");
    }

    #[test]
    fn a_text_that_is_larger_than_any_site_is_refused() {
        let large = format!("apiVersion: foothold.dev/v1\nkind: Site\n# {}\n", "x".repeat(super::MOST_BYTES));
        assert!(Site::parse(&large).expect_err("large").to_string().contains("64 KiB"));
        let bomb = format!("a: &a [x]\nb: &b [{}]\n", "*a,".repeat(20_000));
        Site::parse(&bomb).expect_err("a bomb");
    }
}
