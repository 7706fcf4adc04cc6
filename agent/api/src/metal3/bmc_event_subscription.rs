//! `BMCEventSubscription`: events that a BMC sends to somebody.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::SecretReference;

/// Held until the subscription is gone from the BMC.
pub const FINALIZER: &str = "bmceventsubscription.metal3.io";

/// Who sends what to whom. Does not change once it is there.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "BMCEventSubscription",
    root = "BmcEventSubscription",
    plural = "bmceventsubscriptions",
    shortname = "bes",
    shortname = "bmcevent",
    status = "BmcEventSubscriptionStatus",
    doc = "Events that a host's BMC sends to somebody.",
    printcolumn(
        name = "Error",
        type_ = "string",
        description = "Why it could not be made",
        json_path = ".status.error"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        description = "How long it is here",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BmcEventSubscriptionSpec {
    /// Name of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// URL that the events are sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Any text, sent with each event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Secret of this namespace with HTTP headers that are sent with each event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_headers_ref: Option<SecretReference>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BmcEventSubscriptionStatus {
    /// The BMC's name for it.
    #[serde(rename = "subscriptionID", skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<String>,
    /// Why it could not be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
