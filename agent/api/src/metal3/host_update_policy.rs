//! `HostUpdatePolicy`: when a host's firmware may be changed.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When firmware may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdatePolicy {
    /// Before the host is available, never while it is provisioned.
    #[serde(rename = "onPreparing")]
    OnPreparing,
    /// Also while it is provisioned, at its next reboot.
    #[serde(rename = "onReboot")]
    OnReboot,
}

/// When.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "HostUpdatePolicy",
    plural = "hostupdatepolicies",
    status = "HostUpdatePolicyStatus",
    doc = "When the firmware of the host of the same name may be changed."
)]
#[serde(rename_all = "camelCase")]
pub struct HostUpdatePolicySpec {
    /// When BIOS settings are changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware_settings: Option<UpdatePolicy>,
    /// When firmware is updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware_updates: Option<UpdatePolicy>,
}

/// Nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostUpdatePolicyStatus {}
