//! A valid definition. Nothing here has to be checked again, and every default is filled in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use agent_api::release::{DataPlace, Digest, InstallTarget};
use agent_api::site::Site;
use serde::Serialize;

use super::input::{Closure, Compression, DiskFormat, Format};
use super::services::Services;
use super::types::{
    ByteSize, Console, ImageReference, Ipv4Network, KubernetesVersion, Name, SecretReference, Version, duration_as_text,
};

/// A valid appliance. Paths in it are usable from the working directory.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Appliance {
    /// Directory of the definition.
    pub directory: PathBuf,
    /// Name; files and host names begin with it.
    pub name: Name,
    /// Version.
    pub version: Version,
    /// The cluster.
    pub kubernetes: Kubernetes,
    /// Images to make, at least one, each format once.
    pub outputs: Vec<Output>,
    /// How the image boots.
    pub boot: Boot,
    /// What the box does at first.
    pub first_boot: FirstBoot,
    /// What the image carries beside the cluster.
    pub content: Content,
    /// What the box offers to its site.
    pub services: Services,
    /// Limits; absent ones do not limit.
    pub budgets: Budgets,
    /// The signing key; without one the user's development key signs.
    pub sign: Option<SecretReference>,
    /// The Site in the same file.
    pub site: Option<Site>,
}

/// The cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kubernetes {
    /// Release.
    pub version: KubernetesVersion,
    /// Where the programs come from.
    pub source: KubernetesSource,
    /// Addresses of pods.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Ipv4Network,
    /// Addresses of Services.
    #[serde(rename = "serviceCIDR")]
    pub service_cidr: Ipv4Network,
}

/// Where Kubernetes' own programs come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "from")]
pub enum KubernetesSource {
    /// Built from the pinned Go modules.
    Modules,
    /// Published release files on a server.
    Upstream {
        /// URL without a trailing slash.
        url: String,
    },
    /// A directory that holds the programs.
    Directory {
        /// The directory.
        path: PathBuf,
    },
}

/// One image to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// Format.
    pub format: Format,
    /// Size of the disk; `None` is as small as possible. Always given for a qcow2, never for an ISO.
    pub size: Option<ByteSize>,
    /// Largest file.
    pub max_size: Option<ByteSize>,
    /// How it is compressed. Always given for a qcow2, and for nothing else.
    pub compression: Option<Compression>,
}

impl Output {
    /// One of that format, as it is when nothing else is said.
    pub fn of(format: Format) -> Self {
        let compression = (format == Format::Qcow2).then_some(Compression::Zstd);
        Self { format, size: None, max_size: None, compression }
    }
}

/// How the image boots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Boot {
    /// Firmware that must be able to start it.
    pub firmware: Firmware,
    /// Consoles, at least one; the last one is /dev/console.
    pub consoles: Vec<Console>,
    /// More kernel parameters.
    pub kernel_parameters: Vec<String>,
}

impl Boot {
    /// What the kernel is given, less its consoles and the release.
    pub fn command_line(&self) -> Vec<String> {
        let all = PARAMETERS.iter().map(|word| (*word).to_owned());
        all.chain(self.kernel_parameters.iter().cloned()).collect()
    }
}

/// Kernel parameters of every release: little on the consoles but what matters, and a reboot after a panic.
const PARAMETERS: [&str; 5] = ["quiet", "loglevel=4", "panic=60", "audit=0", "no_timer_check"];

/// Firmware that must be able to start the image; at least one is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Firmware {
    /// The PC's old one.
    pub bios: bool,
    /// UEFI.
    pub uefi: bool,
}

/// What the box does at first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstBoot {
    /// The disk to install on; `None` runs from the medium.
    pub install: Option<InstallTarget>,
    /// Where DATA may be made, best first, at least one.
    pub data: Vec<DataPlace>,
}

/// What the image carries beside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// Container images, each reference once.
    pub images: Vec<CarriedImage>,
    /// How registries are reached, by host.
    pub registries: BTreeMap<String, RegistryAccess>,
    /// What an image that is named and not there means.
    pub closure: Closure,
    /// What looks like an image in objects and is none; `*` stands for anything.
    pub not_images: Vec<String>,
    /// OS images for servers, each name once.
    pub os_images: Vec<OsImage>,
    /// Debian packages for servers: `NAME` or `NAME=VERSION`.
    pub debian_packages: Vec<String>,
    /// Files, directories or kustomizations with Kubernetes objects, in the order in which they are applied.
    pub manifests: Vec<PathBuf>,
    /// Helm charts, applied after the manifests, in this order; no two have the same name.
    pub charts: Vec<Chart>,
    /// Files that the box serves, each name once.
    pub files: Vec<ServedFile>,
}

/// A container image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CarriedImage {
    /// Its whole name.
    pub reference: ImageReference,
    /// Where it is; `None` is its registry.
    pub from: Option<PathBuf>,
}

/// How a registry is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryAccess {
    /// URL without a trailing slash.
    pub mirror: Option<String>,
    /// Certificates of its authority.
    pub ca: Option<PathBuf>,
    /// Whether any certificate will do.
    pub insecure: bool,
}

/// A Helm chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chart {
    /// Name of the release.
    pub name: Name,
    /// Namespace of the release.
    pub namespace: Name,
    /// Where it comes from.
    pub chart: ChartOrigin,
    /// File with values.
    pub values: Option<PathBuf>,
}

/// Where a chart comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ChartOrigin {
    /// A directory or an archive.
    Path(PathBuf),
    /// A registry: `oci://` and this.
    Registry(ImageReference),
}

/// An OS image for servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OsImage {
    /// The served file is named after it.
    pub name: Name,
    /// Where it comes from.
    pub source: OsImageSource,
}

/// Where an OS image comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum OsImageSource {
    /// Made by a recipe.
    Recipe {
        /// Its directory.
        directory: PathBuf,
        /// Formats to make, at least one, each once.
        formats: Vec<DiskFormat>,
    },
    /// Ready-made.
    File {
        /// Where it is.
        origin: Origin,
    },
}

/// A file that the box serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedFile {
    /// Path below `files/`.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a file comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "from")]
pub enum Origin {
    /// A file beside the definition; the lock says what it must hold.
    Path {
        /// The file.
        path: PathBuf,
    },
    /// A file on a server.
    Url {
        /// `https`, `http` or `file`.
        url: String,
        /// What it must hash to.
        sha256: Digest,
    },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path { path } => write!(f, "`{}`", path.display()),
            Self::Url { url, .. } => write!(f, "`{url}`"),
        }
    }
}

/// Limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Budgets {
    /// Largest image file.
    pub image: Option<ByteSize>,
    /// Memory of the smallest machine that must do.
    pub memory: Option<ByteSize>,
    /// Longest time from power-on to ready.
    #[serde(serialize_with = "duration_as_text")]
    pub ready_within: Option<Duration>,
}
