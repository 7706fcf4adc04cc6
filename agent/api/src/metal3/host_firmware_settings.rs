//! `HostFirmwareSettings`: a host's BIOS settings by the vendor's names.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

use super::common::{Condition, NamespacedName, Time};

/// Condition: what is asked for is not what the host has.
pub const CHANGE_DETECTED: &str = "ChangeDetected";
/// Condition: what is asked for can be had.
pub const VALID: &str = "Valid";

/// A value that may be written as a number or as a text (`intstr.IntOrString`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number.
    Int(i64),
    /// A text.
    String(String),
}

impl std::fmt::Display for IntOrString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::String(text) => f.write_str(text),
        }
    }
}

impl JsonSchema for IntOrString {
    fn schema_name() -> Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true})
    }
}

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "HostFirmwareSettings",
    plural = "hostfirmwaresettings",
    shortname = "hfs",
    status = "HostFirmwareSettingsStatus",
    doc = "BIOS settings of the host of the same name."
)]
#[serde(rename_all = "camelCase")]
pub struct HostFirmwareSettingsSpec {
    /// Settings to change, by the vendor's names.
    pub settings: BTreeMap<String, IntOrString>,
}

/// What the host has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostFirmwareSettingsStatus {
    /// The `FirmwareSchema` that says what the settings may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<NamespacedName>,
    /// Settings that the host has.
    pub settings: BTreeMap<String, String>,
    /// When this was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// `ChangeDetected` and `Valid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
