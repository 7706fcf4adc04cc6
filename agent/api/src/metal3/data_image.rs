//! `DataImage`: an ISO image in a provisioned host's virtual drive.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::Time;

/// Held until the image is out of the drive.
pub const FINALIZER: &str = "dataimage.metal3.io";

/// The image in the drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachedImage {
    /// Where it came from.
    pub url: String,
}

/// Why the image is not in the drive, or not out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataImageError {
    /// Tries that failed, one after the other.
    pub count: i64,
    /// What the last one said.
    pub message: String,
}

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "DataImage",
    plural = "dataimages",
    status = "DataImageStatus",
    doc = "An ISO image in the virtual drive of the host of the same name."
)]
#[serde(rename_all = "camelCase")]
pub struct DataImageSpec {
    /// Where the image is fetched from: http or https.
    pub url: String,
}

/// What the drive holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataImageStatus {
    /// When it was looked at last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reconciled: Option<Time>,
    /// The image in the drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_image: Option<AttachedImage>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<DataImageError>,
}
