//! The definition as it is written: serde types, and through schemars the JSON Schema and the shape check.
//!
//! Every key may be absent here; what must be there is marked `required` for the schema, and reported by
//! the shape check. Texts become newtypes in `validate`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::services::ServicesInput;

/// An appliance: what goes into the image and how the box uses it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Appliance {
    /// Version of this format.
    #[schemars(required)]
    pub api_version: Option<ApiVersion>,
    /// Kind of the document.
    #[schemars(required)]
    pub kind: Option<Kind>,
    /// Name and version.
    #[schemars(required)]
    pub metadata: Option<Metadata>,
    /// The cluster of the box.
    #[serde(default)]
    pub kubernetes: Kubernetes,
    /// Images to make. Default: one qcow2.
    pub outputs: Option<Vec<Output>>,
    /// How the image boots.
    #[serde(default)]
    pub boot: Boot,
    /// What the box does when it starts for the first time.
    #[serde(default)]
    pub first_boot: FirstBoot,
    /// What the image carries beside the cluster.
    #[serde(default)]
    pub content: Content,
    /// What the box offers to its site.
    #[serde(default)]
    pub services: ServicesInput,
    /// Limits that the build and `foothold prove` hold the image to.
    #[serde(default)]
    pub budgets: Budgets,
    /// The key that signs the release. Default: a development key of the user's.
    pub sign: Option<Sign>,
}

/// Versions of the format.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub enum ApiVersion {
    /// The one there is.
    #[serde(rename = "foothold.dev/v1")]
    V1,
}

/// Kinds of a definition.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub enum Kind {
    /// The only kind of this document.
    Appliance,
}

/// Name and version of an appliance.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// A DNS label: a-z, 0-9 and `-`, at most 63. File names and host names begin with it.
    #[schemars(required, title = "a DNS label", regex(pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub name: Option<String>,
    /// A semantic version such as `1.4.0`.
    #[schemars(required, title = "a version such as `1.4.0`", extend("x-form" = "version"))]
    pub version: Option<String>,
}

/// The cluster.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubernetes {
    /// Release such as `v1.36.4`, the default.
    #[schemars(title = "a Kubernetes release such as `v1.36.4`", extend("x-form" = "version"))]
    pub version: Option<String>,
    /// Where Kubernetes' own programs come from. Default: `modules`. etcd, CoreDNS, containerd and the CNI plugins are
    /// always built from the pinned Go modules.
    pub from: Option<KubernetesFrom>,
    /// Directory with kubeadm, kubectl, kubelet, kube-apiserver, kube-controller-manager, kube-proxy and kube-scheduler,
    /// for `from: directory`; relative to this file.
    #[schemars(title = "a directory")]
    pub path: Option<String>,
    /// Release server, for `from: upstream`: `URL/release/v1.36.4/bin/linux/amd64/kubelet`, with `kubelet.sha256` beside it.
    #[schemars(title = "a URL", extend("x-form" = "uri"))]
    pub url: Option<String>,
    /// Addresses of pods. Default: `10.244.0.0/16`.
    #[serde(rename = "podCIDR")]
    #[schemars(title = "a CIDR such as `10.244.0.0/16`", extend("x-form" = "cidr"))]
    pub pod_cidr: Option<String>,
    /// Addresses of Services. Default: `10.96.0.0/12`.
    #[serde(rename = "serviceCIDR")]
    #[schemars(title = "a CIDR such as `10.96.0.0/12`", extend("x-form" = "cidr"))]
    pub service_cidr: Option<String>,
}

/// Sources of the cluster's programs.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KubernetesFrom {
    /// Built from pinned Go modules.
    Modules,
    /// Published release files, by digest.
    Upstream,
    /// A directory that holds the programs.
    Directory,
}

/// One image to make.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Output {
    /// Format of the file.
    #[schemars(required)]
    pub format: Option<Format>,
    /// Size of the disk, such as `16GiB`. Default: raw as small as possible, qcow2 `16GiB` (unused space costs nothing).
    #[schemars(title = "a size such as `16GiB`", extend("x-form" = "size"))]
    pub size: Option<String>,
    /// The build fails when the file gets larger, such as `28GiB`.
    #[schemars(title = "a size such as `28GiB`", extend("x-form" = "size"))]
    pub max_size: Option<String>,
    /// How a qcow2 is compressed. Default: `zstd`; `zlib` is for hypervisors older than QEMU 5.1.
    pub compression: Option<Compression>,
}

/// How a qcow2 is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Small and fast; QEMU 5.1 and newer read it.
    Zstd,
    /// Every hypervisor that reads qcow2 reads it.
    Zlib,
}

/// Formats of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A disk image with GPT.
    Raw,
    /// The same disk, compressed, for virtual machines.
    Qcow2,
    /// A hybrid ISO for CD and USB stick.
    Iso,
}

/// How the image boots.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Boot {
    /// Firmware that must be able to start it. Default: both.
    pub firmware: Option<Vec<Firmware>>,
    /// Consoles such as `tty0` or `ttyS0,115200`; the last one becomes /dev/console. Default: `tty0`, `ttyS0`.
    pub consoles: Option<Vec<String>>,
    /// More kernel parameters.
    pub kernel_parameters: Option<Vec<String>>,
}

/// Kinds of firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Firmware {
    /// The PC's old one.
    Bios,
    /// UEFI, with or without Secure Boot.
    Uefi,
}

/// What the box does when it starts for the first time.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FirstBoot {
    /// Default: `run`.
    pub mode: Option<FirstBootMode>,
    /// Where DATA may be made, the first possible place wins. Default: the boot disk, an empty disk, memory.
    pub data: Option<Vec<DataPlace>>,
    /// The disk to install on, for `mode: install`.
    pub target: Option<Target>,
}

/// Modes of first boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FirstBootMode {
    /// Run from the boot medium.
    Run,
    /// Copy to the target disk and boot from there.
    Install,
}

/// A place where DATA may be made.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DataPlace {
    /// Kind of place.
    #[schemars(required)]
    pub place: Option<Place>,
    /// Least free space (bootDisk) or size (disk), such as `8GiB`.
    #[schemars(title = "a size such as `8GiB`", extend("x-form" = "size"))]
    pub min_size: Option<String>,
    /// Only disks on this bus (disk).
    pub bus: Option<Bus>,
    /// Only the disk with this serial number (disk).
    #[schemars(title = "a serial number as text")]
    pub serial: Option<String>,
    /// Which of several disks that fit (disk).
    pub prefer: Option<Prefer>,
}

/// Kinds of places for DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// Free space of the disk that was booted.
    BootDisk,
    /// An empty disk that fits.
    Disk,
    /// Memory; everything is forgotten at power-off.
    Ram,
}

/// The disk to install on. Never a /dev name: those change from boot to boot.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    /// Only disks on this bus.
    pub bus: Option<Bus>,
    /// Least size, such as `64GiB`.
    #[schemars(title = "a size such as `64GiB`", extend("x-form" = "size"))]
    pub min_size: Option<String>,
    /// Whether the disk must hold nothing; `false` only of the one with a `serial`. Default: true.
    pub require_empty: Option<bool>,
    /// Which of several disks that fit.
    pub prefer: Option<Prefer>,
    /// Only the disk with this serial number.
    #[schemars(title = "a serial number as text")]
    pub serial: Option<String>,
}

/// How a disk is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    /// Drives on PCI Express.
    Nvme,
    /// SATA, also AHCI.
    Sata,
    /// SCSI, SAS, RAID controllers.
    Scsi,
    /// virtio-blk and virtio-scsi.
    Virtio,
    /// USB.
    Usb,
    /// SD cards and eMMC.
    Mmc,
}

/// Which of several disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Prefer {
    /// The smallest.
    Smallest,
    /// The largest.
    Largest,
}

/// What the image carries beside the cluster.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Content {
    /// Container images, whole references such as `quay.io/org/app:1.2`; mirrored by digest.
    pub images: Option<Vec<CarriedImage>>,
    /// How registries are reached, by the host name that references begin with.
    pub registries: Option<BTreeMap<String, RegistryAccess>>,
    /// Whether an image that objects name and the release does not hold is an error. Default: strict.
    pub closure: Option<Closure>,
    /// What looks like an image in objects and is none; `*` stands for anything, as in `example.org/policy:*`.
    pub not_images: Option<Vec<String>>,
    /// OS images for servers.
    pub os_images: Option<Vec<OsImage>>,
    /// Packages for servers.
    #[serde(default)]
    pub packages: Packages,
    /// Files, directories or kustomizations with Kubernetes objects, applied at first boot in this order; relative to
    /// this file.
    pub manifests: Option<Vec<String>>,
    /// Helm charts, rendered when the image is built, applied after the manifests in this order.
    pub charts: Option<Vec<Chart>>,
    /// Any other files that the box serves, below `files/`.
    pub files: Option<Vec<File>>,
}

/// A container image.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CarriedImage {
    /// From its registry.
    #[schemars(title = "a whole image reference such as `quay.io/org/app:1.2`, or a mapping with `name` and `from`")]
    Reference(String),
    /// From here.
    Here(ImageHere),
}

/// A container image that is not fetched from its registry.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageHere {
    /// The reference under which the box serves it, such as `quay.io/org/app:1.2`.
    #[schemars(required, title = "a whole image reference such as `quay.io/org/app:1.2`")]
    pub name: Option<String>,
    /// OCI layout (folder or tar), archive of `docker save`, or folder with a recipe (`image.yaml`); relative to this
    /// file.
    #[schemars(required, title = "a path")]
    pub from: Option<String>,
}

/// How a registry is reached. Credentials come from the user's docker configuration.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegistryAccess {
    /// Another server that holds the same images, such as `https://mirror.example/docker`.
    #[schemars(title = "a URL such as `https://mirror.example`")]
    pub mirror: Option<String>,
    /// File with the certificates (PEM) of its authority, beside those that this host trusts; relative to this file.
    #[schemars(title = "a path")]
    pub ca: Option<String>,
    /// Whether its certificate need not be valid, and plain HTTP is allowed. Default: false.
    pub insecure: Option<bool>,
}

/// What an image that is named and not there means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Closure {
    /// The build fails.
    #[default]
    Strict,
    /// The build says so and goes on.
    Off,
}

/// A Helm chart.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Chart {
    /// Name of the release, a DNS label.
    #[schemars(required, title = "a DNS label")]
    pub name: Option<String>,
    /// Namespace of the release; it is made.
    #[schemars(required, title = "a DNS label")]
    pub namespace: Option<String>,
    /// Directory or `.tgz` of the chart, its dependencies inside; relative to this file. Or `oci://REGISTRY/CHART:VERSION`:
    /// the lock holds what that is.
    #[schemars(required, title = "a path, or `oci://REGISTRY/CHART:VERSION`")]
    pub chart: Option<String>,
    /// File with values; relative to this file.
    #[schemars(title = "a path")]
    pub values: Option<String>,
}

/// An OS image for servers, served below `images/`: made by a recipe, or ready-made.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OsImage {
    /// A DNS label; the served file is named after it, such as `images/NAME.qcow2`.
    #[schemars(required, title = "a DNS label")]
    pub name: Option<String>,
    /// Directory with a recipe `os-image.yaml`, or an image file (raw or qcow2); relative to this file.
    #[schemars(title = "a path")]
    pub from: Option<String>,
    /// Where a ready-made image is downloaded from: `https`, `http` or `file`.
    #[schemars(title = "a URL", extend("x-form" = "uri"))]
    pub url: Option<String>,
    /// Digest of a downloaded image: 64 hex digits, quoted.
    #[schemars(title = "64 hex digits as text")]
    pub sha256: Option<String>,
    /// Formats that a recipe's image is made in. Default: `qcow2`.
    pub formats: Option<Vec<DiskFormat>>,
}

/// Formats of an OS image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskFormat {
    /// Compressed; needs `qemu-img` where it is written to a disk, as Ironic's ramdisk has it.
    Qcow2,
    /// The disk's bytes.
    Raw,
}

/// Packages for servers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Packages {
    /// Debian packages, such as `lldpd` or `lldpd=1.0.18-1`; what they depend on comes along. Served as a signed apt
    /// repository below `debian/`.
    pub debian: Option<Vec<String>>,
}

/// A file that the box serves.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct File {
    /// Path below `files/`, such as `tools/probe.tar`.
    #[schemars(required, title = "a relative path")]
    pub name: Option<String>,
    /// The file; relative to this definition.
    #[schemars(title = "a path")]
    pub from: Option<String>,
    /// Where it is downloaded from: `https`, `http` or `file`.
    #[schemars(title = "a URL", extend("x-form" = "uri"))]
    pub url: Option<String>,
    /// Digest of a downloaded file: 64 hex digits, quoted.
    #[schemars(title = "64 hex digits as text")]
    pub sha256: Option<String>,
}

/// Limits.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budgets {
    /// Largest image file, such as `350MiB`.
    #[schemars(title = "a size such as `350MiB`", extend("x-form" = "size"))]
    pub image: Option<String>,
    /// Memory of the smallest machine that must do, such as `4GiB`.
    #[schemars(title = "a size such as `4GiB`", extend("x-form" = "size"))]
    pub memory: Option<String>,
    /// Longest time from power-on to ready, such as `60s`.
    #[schemars(title = "a duration such as `60s`", extend("x-form" = "duration"))]
    pub ready_within: Option<String>,
}

/// Signing.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sign {
    /// The minisign secret key: `file:PATH` or `env:NAME`.
    #[schemars(required, title = "a reference `file:PATH` or `env:NAME`", extend("x-form" = "reference"))]
    pub key: Option<String>,
}

impl Format {
    /// The word in the definition, and the ending of the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Iso => "iso",
        }
    }
}

impl DiskFormat {
    /// The word in the definition, and the ending of the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        }
    }
}

impl Bus {
    /// The word in the definition.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvme => "nvme",
            Self::Sata => "sata",
            Self::Scsi => "scsi",
            Self::Virtio => "virtio",
            Self::Usb => "usb",
            Self::Mmc => "mmc",
        }
    }
}

impl Prefer {
    /// The word in the definition.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smallest => "smallest",
            Self::Largest => "largest",
        }
    }
}
