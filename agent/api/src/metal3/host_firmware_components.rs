//! `HostFirmwareComponents`: versions of a host's firmware, and their updates.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Condition, Time};

/// An update that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareUpdate {
    /// `bios`, `bmc`, or a `nic:` of the host.
    pub component: String,
    /// Where the update is fetched from.
    pub url: String,
}

/// A component that the host has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareComponentStatus {
    /// Its name.
    pub component: String,
    /// Version that was found first.
    pub initial_version: String,
    /// Version that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_version: Option<String>,
    /// Version that was written last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_version_flashed: Option<String>,
    /// When that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Time>,
}

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "HostFirmwareComponents",
    plural = "hostfirmwarecomponents",
    status = "HostFirmwareComponentsStatus",
    doc = "Firmware versions of the host of the same name."
)]
#[serde(rename_all = "camelCase")]
pub struct HostFirmwareComponentsSpec {
    /// Updates to write.
    pub updates: Vec<FirmwareUpdate>,
}

/// What the host has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostFirmwareComponentsStatus {
    /// Updates that were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updates: Option<Vec<FirmwareUpdate>>,
    /// Components that can be updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<Vec<FirmwareComponentStatus>>,
    /// When this was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// `ChangeDetected` and `Valid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
