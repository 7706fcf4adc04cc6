//! The release manifest: what an image holds, signed as a whole.
//!
//! `release.json` lies under `/foothold/releases/<id>/` on the medium, its signature beside it as
//! `release.json.minisig`. The id is the SHA-256 of the file's bytes in hex.

use std::fmt;
use std::ops::Not;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::net::Cidr;
use crate::servers::Provisioning;

/// Directory on the medium that holds everything of ours.
pub const MEDIUM_ROOT: &str = "foothold";
/// Name of the list of everything in it (SPDX 2.3), in the release's folder; signed beside it.
pub const SBOM: &str = "sbom.spdx.json";

/// A SHA-256 digest, written `sha256:<64 hex digits>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is not a digest.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a digest of the form `sha256:<64 hex digits>`")]
pub struct InvalidDigest(String);

impl Digest {
    /// The digest of 32 bytes in hex.
    pub fn from_hex(hex: &str) -> Result<Self, InvalidDigest> {
        let good = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if good { Ok(Self(hex.to_owned())) } else { Err(InvalidDigest(hex.to_owned())) }
    }

    /// What a SHA-256 came to.
    pub fn from_sha256(bytes: [u8; 32]) -> Self {
        Self(hex::encode(bytes))
    }

    /// The digest of bytes.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self::from_sha256(Sha256::digest(bytes).into())
    }

    /// The 64 hex digits.
    pub fn hex(&self) -> &str {
        &self.0
    }

    /// Path in the store: `store/sha256/<hex>`, relative to [`MEDIUM_ROOT`].
    pub fn store_path(&self) -> String {
        format!("store/sha256/{}", self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let hex = text.strip_prefix("sha256:").ok_or_else(|| InvalidDigest(text.to_owned()))?;
        Self::from_hex(hex)
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// A file of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Blob {
    /// What the bytes must hash to.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
}

/// A read-only squashfs with its dm-verity tree behind it, one blob of the store.
///
/// The tree is that of `veritysetup format --no-superblock`: format 1, SHA-256, 4096-byte data and
/// hash blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Layer {
    /// `os`, `kubernetes`, `containers` or `appliance`.
    pub name: String,
    /// Digest of squashfs, padding and tree together.
    pub digest: Digest,
    /// Bytes of all of it.
    pub size: u64,
    /// Bytes before the tree, a multiple of 4096.
    pub data_bytes: u64,
    /// Root hash, 64 hex digits.
    pub root_hash: String,
    /// Salt, hex.
    pub salt: String,
}

/// One way to start the release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BootEntry {
    /// `default` for now.
    pub name: String,
    /// Kernel image.
    pub kernel: Blob,
    /// initrd: a zstd-compressed newc cpio.
    pub initrd: Blob,
    /// Kernel parameters without `foothold.release`.
    pub command_line: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel_release: String,
}

/// A container image of the release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// Name under which pods ask for it.
    pub reference: String,
    /// Digest of the image index, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Digest>,
    /// Digests of indexes that lie in that one, down to the manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<Digest>,
    /// Digest of the platform's manifest.
    pub manifest: Digest,
    /// Manifest, config and layers: all blobs that must be in the store.
    pub blobs: Vec<Blob>,
}

impl Image {
    /// Its name in another registry, by digest: `REGISTRY/<path>:<tag>@<digest>`. In its own registry it is nowhere to be
    /// pulled: it was imported, and `ctr images import`, as others of the kind, knows what it imported by tag alone.
    pub fn in_registry(&self, registry: &str) -> String {
        match self.reference.split_once('/') {
            Some((own, _)) if own == registry => self.reference.clone(),
            named => format!("{registry}/{}@{}", named.map_or(&*self.reference, |(_, path)| path), self.manifest),
        }
    }
}

/// What a file of the content is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContentKind {
    /// An operating system's image, or a checksum beside it: below `images/`.
    OsImage,
    /// A part of the Debian repository: below `debian/`.
    Package,
    /// Any other file: below `files/`.
    File,
    /// What servers boot from the network: below `netboot/`.
    Netboot,
    /// Objects that are applied at first boot, in the order of their paths: below `manifests/`.
    Manifest,
    /// What servers become nodes of a cluster with: below `kubernetes/`, then the cluster's version.
    Kubernetes,
}

/// A file in one of the layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InLayer {
    /// Name of the layer.
    pub layer: String,
    /// Path in it, without a leading `/`.
    pub path: String,
}

/// A file that the box serves over HTTP under its path, straight from the store, or from the layer that has it anyway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContentFile {
    /// Path without a leading `/`, no empty part, no `.` or `..`: `images/debian-node.qcow2`.
    pub path: String,
    /// What it is for.
    pub kind: ContentKind,
    /// Digest of its bytes.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
    /// Where it lies when it is not in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<InLayer>,
}

impl ContentFile {
    /// A file of the store.
    pub fn stored(path: impl Into<String>, kind: ContentKind, blob: &Blob) -> Self {
        Self { path: path.into(), kind, digest: blob.digest.clone(), size: blob.size, within: None }
    }

    /// The file of the store; none when a layer has it.
    pub fn blob(&self) -> Option<Blob> {
        self.within.is_none().then(|| Blob { digest: self.digest.clone(), size: self.size })
    }
}

/// A Debian package in one of the layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Package {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
}

/// The cluster of the box.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubernetes {
    /// `v1.36.4`.
    pub version: String,
    /// Addresses of pods.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    /// Addresses of Services.
    #[serde(rename = "serviceCIDR")]
    pub service_cidr: String,
}

impl Kubernetes {
    /// The cluster's networks, by their names in a definition.
    pub fn networks(&self) -> Vec<(&'static str, Cidr)> {
        let both = [("podCIDR", &self.pod_cidr), ("serviceCIDR", &self.service_cidr)];
        both.into_iter().filter_map(|(name, text)| Some((name, Cidr::parse(text)?))).collect()
    }
}

/// Where DATA may be made, in this order; the first that is possible is taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "on", deny_unknown_fields)]
pub enum DataPlace {
    /// Free space of the disk that was booted.
    #[serde(rename_all = "camelCase")]
    BootDisk {
        /// Least bytes of free space.
        min_bytes: u64,
    },
    /// A whole disk that fits the selector and holds nothing.
    #[serde(rename_all = "camelCase")]
    Disk {
        /// Which disks.
        selector: DiskSelector,
    },
    /// Memory: everything is forgotten at power-off.
    Ram,
}

/// Which disks may be taken. An absent field fits any disk. Never a `/dev` name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskSelector {
    /// `nvme`, `sata`, `scsi`, `virtio`, `usb`, `mmc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Least bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_bytes: Option<u64>,
    /// Serial number, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// `smallest` or `largest` of those that fit; otherwise the first by serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<String>,
}

/// The disk on which the box installs itself, to be started from it from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstallTarget {
    /// Which disks fit.
    pub selector: DiskSelector,
    /// Whether it must hold nothing; else whatever is on it is overwritten.
    pub require_empty: bool,
}

/// What the user promised about the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budgets {
    /// Most bytes of a compressed image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_bytes: Option<u64>,
    /// Memory of the machine, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Most seconds from power-on to `ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_within_secs: Option<u64>,
}

/// `release.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Release {
    /// `foothold.dev/v1`.
    pub api_version: String,
    /// `Release`.
    pub kind: String,
    /// Name of the appliance.
    pub name: String,
    /// Version of the appliance.
    pub version: String,
    /// `amd64`.
    pub architecture: String,
    /// Seconds since 1970: the clock of the box is never before it.
    pub built: u64,
    /// Whether the signing key is one that the builder made for development.
    pub development_key: bool,
    /// Whether the agent is a development build: no release for a site has one.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub development_agent: bool,
    /// Layers, bottom first.
    pub layers: Vec<Layer>,
    /// Ways to start.
    pub boot: Vec<BootEntry>,
    /// The cluster.
    pub kubernetes: Kubernetes,
    /// Container images.
    pub images: Vec<Image>,
    /// Files that the box serves, sorted by path, each path once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentFile>,
    /// Debian packages in the layers.
    pub packages: Vec<Package>,
    /// Where DATA may be made.
    pub data: Vec<DataPlace>,
    /// The disk to install on; none runs from the medium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallTarget>,
    /// Whether the box serves time to the site.
    pub ntp_serve: bool,
    /// Bytes of DATA for uploads to the registry; none is a registry that is only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_writable_bytes: Option<u64>,
    /// Provisioning of servers; none is a box that does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning: Option<Provisioning>,
    /// Clusters that it forms of those servers; none is a box that does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Clusters>,
    /// Volumes on DATA; none is a box without a `StorageClass` of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Tenant clusters; none is a box without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sip: Option<Sip>,
    /// Virtual machines as hosts; none is a box without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vino: Option<Vino>,
    /// Promises.
    pub budgets: Budgets,
}

/// Clusters of Kubernetes that the box forms of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Clusters {
    /// Releases of Kubernetes that they may have beside the box's own, such as `v1.35.8`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
}

/// Volumes of the box's own cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Storage {
    /// Percent of DATA that are set aside for them.
    pub share_percent: u8,
}

/// Tenant clusters, by Airship's `SIPCluster`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sip {}

/// Virtual machines as hosts, by Airship's `Vino`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Vino {
    /// Interface of the box that networks of machines are plugged into, where a `Vino` names none (`physicalInterface`), such
    /// as `ens5`. Without it such a network stays on the box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

impl Release {
    /// The layer of that name.
    pub fn layer(&self, name: &str) -> Option<&Layer> {
        self.layers.iter().find(|layer| layer.name == name)
    }

    /// The image whose reference begins so: its name with the colon, whatever its version.
    pub fn image(&self, name: &str) -> Option<&Image> {
        self.images.iter().find(|image| image.reference.starts_with(name))
    }
}

/// `/etc/foothold/initrd.json` in the initrd: what must be known before a release is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InitrdConfig {
    /// Name of the appliance, for messages.
    pub name: String,
    /// Version of the appliance, for messages.
    pub version: String,
    /// Seconds since 1970: the clock is set to it when it is before it.
    pub built: u64,
}

#[cfg(test)]
mod tests {
    use super::{Clusters, Digest, Image, Release, Sip, Vino};
    use crate::servers::Provisioning;

    #[test]
    fn an_image_is_pulled_by_digest_and_imported_by_tag() {
        let (reference, manifest) = ("foothold.dev/agent:0.1.0".to_owned(), Digest::of("a manifest"));
        let image = Image { reference, index: None, inner: Vec::new(), manifest: manifest.clone(), blobs: Vec::new() };
        assert_eq!(image.in_registry("foothold.dev"), "foothold.dev/agent:0.1.0");
        assert_eq!(image.in_registry("registry.example/a"), format!("registry.example/a/agent:0.1.0@{manifest}"));
    }

    #[test]
    fn a_release_names_clusters_only_where_they_are_asked_for() {
        let without = Release { provisioning: Some(Provisioning::default()), ..Release::default() };
        let text = serde_json::to_string(&without).expect("it serializes");
        assert!(!text.contains("clusters") && !text.contains("sip") && !text.contains("vino"), "{text}");
        assert_eq!(serde_json::from_str::<Release>(&text).expect("a release of before"), without);
        let with = Release { clusters: Some(Clusters::default()), sip: Some(Sip::default()), ..without };
        let vino = Vino { interface: Some("ens4".to_owned()) };
        let with = Release { vino: Some(vino), ..with };
        let text = serde_json::to_string(&with).expect("it serializes");
        assert!(text.contains("\"clusters\":{}") && text.contains("\"sip\":{}"), "{text}");
        assert!(text.contains("\"vino\":{\"interface\":\"ens4\"}"), "{text}");
        assert_eq!(serde_json::from_str::<Release>(&text).expect("it can be read"), with);
    }
}
