//! `BareMetalSwitch`: a switch that hosts are attached to.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::Condition;

/// What speaks to the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SwitchDriver {
    /// networking-generic-switch.
    #[serde(rename = "generic-switch")]
    GenericSwitch,
}

/// How one logs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SwitchCredentialType {
    /// With the Secret's `username` and `password`.
    #[default]
    #[serde(rename = "password")]
    Password,
    /// With the Secret's `username` and `ssh-privatekey`.
    #[serde(rename = "publickey")]
    PublicKey,
}

/// How one logs in to the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwitchCredentials {
    /// How.
    #[serde(rename = "type")]
    #[schemars(default)]
    pub kind: SwitchCredentialType,
    /// Secret of this namespace, with `enable-secret` where the switch asks for it.
    #[schemars(length(min = 1))]
    pub secret_name: String,
}

/// The switch.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "BareMetalSwitch",
    plural = "baremetalswitches",
    shortname = "bms",
    status = "BareMetalSwitchStatus",
    doc = "A switch that hosts are attached to.",
    printcolumn(name = "Driver", type_ = "string", description = "What speaks to it", json_path = ".spec.driver"),
    printcolumn(
        name = "Device Type",
        type_ = "string",
        description = "Its type in the driver's words",
        json_path = ".spec.deviceType"
    ),
    printcolumn(name = "Address", type_ = "string", description = "Where it is", json_path = ".spec.address"),
    printcolumn(
        name = "Credential Type",
        type_ = "string",
        description = "How one logs in",
        json_path = ".spec.credentials.type"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalSwitchSpec {
    /// IP address or name.
    pub address: String,
    /// MAC address that it tells by LLDP.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$"))]
    pub mac_address: String,
    /// What speaks to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default = "generic_switch")]
    pub driver: Option<SwitchDriver>,
    /// Its type in that driver's words, such as `netmiko_cisco_ios`.
    pub device_type: String,
    /// How one logs in.
    pub credentials: SwitchCredentials,
    /// Port of its management; the usual one of its type when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Whether any certificate will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_certificate_verification: Option<bool>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalSwitchStatus {
    /// `Valid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

#[expect(clippy::unnecessary_wraps, reason = "a default has the type of its field")]
fn generic_switch() -> Option<SwitchDriver> {
    Some(SwitchDriver::GenericSwitch)
}
