//! `PreprovisioningImage`: the ramdisk that is made for a host.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::Condition;

/// Condition: the image can be downloaded.
pub const READY: &str = "Ready";
/// Condition: the image cannot be made.
pub const ERROR: &str = "Error";

/// What the ramdisk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImageFormat {
    /// For virtual media and UEFI HTTP boot.
    #[serde(rename = "iso")]
    Iso,
    /// For boot over the network.
    #[serde(rename = "initrd")]
    Initrd,
}

/// A version of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretStatus {
    /// Name of the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its `resourceVersion`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "PreprovisioningImage",
    plural = "preprovisioningimages",
    shortname = "ppimg",
    status = "PreprovisioningImageStatus",
    doc = "The ramdisk that is made for the host of the same name.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        description = "Whether it can be used",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        description = "Why, or why not",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct PreprovisioningImageSpec {
    /// Secret of this namespace with network data that the image shall hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_name: Option<String>,
    /// Architecture of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// What the host can boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_formats: Option<Vec<ImageFormat>>,
}

/// What was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreprovisioningImageStatus {
    /// Where the image is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_url: Option<String>,
    /// Where the kernel is, for `initrd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_url: Option<String>,
    /// What is added to the kernel's command line, for `initrd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_kernel_params: Option<String>,
    /// What the image is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<ImageFormat>,
    /// The network data that it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretStatus>,
    /// Its architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// `Ready` and `Error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
