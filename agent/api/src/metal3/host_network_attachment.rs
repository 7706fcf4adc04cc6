//! `HostNetworkAttachment`: how a switch's port is set up for a host.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::Condition;

/// What a port carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SwitchPortMode {
    /// One VLAN, untagged.
    #[default]
    #[serde(rename = "access")]
    Access,
    /// Many VLANs, tagged.
    #[serde(rename = "trunk")]
    Trunk,
    /// One untagged, others tagged.
    #[serde(rename = "hybrid")]
    Hybrid,
}

/// An attachment by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostNetworkAttachmentRef {
    /// Name of the attachment.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; the host's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// A port of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwitchPortIdentifier {
    /// Management MAC address of the switch.
    #[serde(rename = "switchID")]
    #[schemars(regex(pattern = "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$"))]
    pub switch_id: String,
    /// Name of the port in the switch's words.
    #[serde(rename = "portID")]
    pub port_id: String,
    /// Name of the switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_system_name: Option<String>,
}

/// How a port was set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwitchPortConfig {
    /// What it carries.
    pub mode: SwitchPortMode,
    /// The untagged VLAN.
    #[serde(rename = "nativeVLAN")]
    pub native_vlan: i64,
    /// Tagged VLANs.
    #[serde(rename = "allowedVLANs", skip_serializing_if = "Option::is_none")]
    pub allowed_vlans: Option<Vec<i64>>,
    /// Bytes of a frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i64>,
}

/// How a port is set up. Does not change while a host refers to it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "HostNetworkAttachment",
    plural = "hostnetworkattachments",
    status = "HostNetworkAttachmentStatus",
    doc = "How a switch's port is set up for a host.",
    printcolumn(name = "Mode", type_ = "string", description = "What a port carries", json_path = ".spec.mode"),
    printcolumn(
        name = "Native VLAN",
        type_ = "integer",
        description = "The untagged VLAN",
        json_path = ".spec.nativeVLAN"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        description = "How long it is here",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct HostNetworkAttachmentSpec {
    /// What it carries.
    #[schemars(default)]
    pub mode: SwitchPortMode,
    /// The untagged VLAN.
    #[serde(rename = "nativeVLAN")]
    #[schemars(range(min = 1, max = 4094))]
    pub native_vlan: i64,
    /// Tagged VLANs, such as `100` or `100-200`.
    #[serde(rename = "allowedVLANs", skip_serializing_if = "Option::is_none")]
    pub allowed_vlans: Option<Vec<VlanRange>>,
    /// Bytes of a frame; the network's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 68, max = 9216))]
    pub mtu: Option<i64>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostNetworkAttachmentStatus {
    /// `Valid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

/// A VLAN or a range of them, as written: `100`, `100-200`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct VlanRange(#[schemars(regex(pattern = r"^\d+(-\d+)?$"))] pub String);
