//! `IPPool`: addresses of a subnet, and who has which. The controller writes it; each change is one write that the API server
//! refuses when somebody else was faster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Addresses, both ends included.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    /// The first.
    #[schemars(length(min = 2, max = 45))]
    pub start: String,
    /// The last.
    #[schemars(length(min = 2, max = 45))]
    pub stop: String,
}

/// Addresses that a node gives by DHCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedRange {
    /// The node.
    pub allocated_to: String,
    /// The first.
    pub start: String,
    /// The last.
    pub stop: String,
    /// The `Vino`, as `namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vino: String,
}

/// An address that somebody has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedIp {
    /// A node's name, for its bridge, or a host's name and its network's, such as `a-b-c-worker-0/management`.
    pub allocated_to: String,
    /// The address.
    pub ip: String,
    /// The MAC address. It never changes.
    pub mac: String,
    /// The `Vino`, as `namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vino: String,
}

/// A subnet's addresses.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "airship.airshipit.org",
    version = "v1",
    namespaced,
    derive = "PartialEq",
    kind = "IPPool",
    root = "IpPool",
    plural = "ippools",
    doc = "Addresses of a subnet, and who has which.",
    printcolumn = r#"{"name":"Subnet","type":"string","jsonPath":".spec.subnet"}"#,
    printcolumn = r#"{"name":"Next MAC","type":"string","jsonPath":".spec.nextMAC","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct IpPoolSpec {
    /// Such as `10.0.0.0/16`.
    #[schemars(length(min = 4, max = 49))]
    pub subnet: String,
    /// Addresses that may be given.
    pub ranges: Vec<Range>,
    /// Those that nodes give by DHCP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allocated_ranges: Vec<AllocatedRange>,
    /// Those that somebody has.
    #[serde(rename = "allocatedIPs")]
    pub allocated_ips: Vec<AllocatedIp>,
    /// First MAC address.
    #[serde(rename = "macPrefix")]
    #[schemars(length(max = 17), regex(pattern = "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$"))]
    pub mac_prefix: String,
    /// MAC address that is given next. One that was given is not given again, as long as `macPrefix` stays.
    #[serde(rename = "nextMAC")]
    #[schemars(length(max = 17), regex(pattern = "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$"))]
    pub next_mac: String,
}
