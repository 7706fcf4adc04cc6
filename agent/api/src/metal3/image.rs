//! What is written to a host, and how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How an image's checksum was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ChecksumType {
    /// MD5.
    #[serde(rename = "md5")]
    Md5,
    /// SHA-256.
    #[serde(rename = "sha256")]
    Sha256,
    /// SHA-512.
    #[serde(rename = "sha512")]
    Sha512,
    /// To be told from its length.
    #[serde(rename = "auto")]
    Auto,
}

/// What an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DiskFormat {
    /// The bytes of a disk.
    #[serde(rename = "raw")]
    Raw,
    /// Of QEMU.
    #[serde(rename = "qcow2")]
    Qcow2,
    /// Of `VirtualBox`.
    #[serde(rename = "vdi")]
    Vdi,
    /// Of `VMware`.
    #[serde(rename = "vmdk")]
    Vmdk,
    /// An ISO 9660 image that is booted, and not written to any disk.
    #[serde(rename = "live-iso")]
    LiveIso,
}

/// An operating system's image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Where it is fetched from: http, https, or oci.
    pub url: String,
    /// Its checksum, or the URL of a file that has it. Needed for all but `live-iso` and `oci://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// How the checksum was made; told from its length when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum_type: Option<ChecksumType>,
    /// What the image is; found out when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<DiskFormat>,
    /// Secret of the host's namespace with the registry's credentials, of type `kubernetes.io/dockerconfigjson` or `dockercfg`; for `oci://` only.
    #[serde(rename = "ociAuthSecretName", skip_serializing_if = "Option::is_none")]
    pub oci_auth_secret_name: Option<String>,
}

/// A deploy procedure of a ramdisk of one's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomDeploy {
    /// Name of the deploy step.
    pub method: String,
}

/// Which disk is meant. All hints that are given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RootDeviceHints {
    /// `/dev/sda`, or a link below `/dev/disk/by-path/`; must be the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// SCSI address, such as `0:0:0:0`; must be the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hctl: Option<String>,
    /// Part of the model's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Part of the vendor's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Serial number; must be the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
    /// GB that it has at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_size_gigabytes: Option<i64>,
    /// World wide name; must be the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// World wide name with the vendor's extension; must be the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn_with_extension: Option<String>,
    /// The vendor's extension; must be the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn_vendor_extension: Option<String>,
    /// Whether it rotates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
}
