//! `appliance.lock`: exactly what goes into an image, so that the same lock gives the same bytes.
//!
//! ```text
//! definition --Apt::resolve, go.sum digests, programs--> Lock --> appliance.lock (JSON, beside the definition)
//! ```
//! The mirror is the host's and is never written into it; neither is the place that programs come from.

pub mod apt;
pub mod download;
pub mod fetch;
pub mod http;
pub mod images;
pub mod index;
pub mod known;
pub mod mirror;
mod names;
#[cfg(test)]
pub(crate) mod testserver;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use agent_api::release::{Blob, Digest};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use self::images::{LockedChart, LockedImage};
use crate::host::files::write_shared;

/// Version of the lock's own shape.
const FORMAT: u32 = 1;

/// A Debian binary package, exactly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deb {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// `amd64` or `all`.
    pub architecture: String,
    /// Digest of the `.deb`.
    pub sha256: Digest,
    /// Bytes of the `.deb`.
    pub size: u64,
}

impl Deb {
    /// File name in a repository of ours.
    pub fn file_name(&self) -> String {
        format!("{}_{}_{}.deb", self.name, self.version.replace(':', "%3a"), self.architecture)
    }
}

/// The lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Lock {
    /// Version of this shape.
    pub lock_version: u32,
    /// Seconds since 1970 at which Debian's archive was as it is locked here: the build time of every image made from it.
    /// Two locks of the same archive have the same, so that their images share what is made of the same packages.
    pub made: u64,
    /// Whether Debian's security archive was not there when it was made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_security: bool,
    /// Package sets by name: `toolbox`, `os`, `kernel`; `repository` is served to servers, `os-image/NAME` makes one.
    pub debian: BTreeMap<String, Vec<Deb>>,
    /// What the sets were resolved from.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub asked: BTreeMap<String, Vec<String>>,
    /// Digest of `go.mod`, `go.sum` and own programs of each Go module set.
    pub modules: BTreeMap<String, Digest>,
    /// Digest and size of each program of `kubernetes.from: directory` or `upstream`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub binaries: BTreeMap<String, Blob>,
    /// The same for releases of Kubernetes that only clusters may have (`services.clusters.versions`), by version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cluster_binaries: BTreeMap<String, BTreeMap<String, Blob>>,
    /// Digest of the files of each entry of `content.manifests` and `content.charts`, by what messages call it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub manifests: BTreeMap<String, Digest>,
    /// Charts of registries, by reference.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub charts: BTreeMap<String, LockedChart>,
    /// Container images of the definition, by reference.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, LockedImage>,
    /// Digest and size of each file of the content that is carried as it is, by the path it is served under.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, Blob>,
}

impl Lock {
    /// An empty lock made at `made`.
    pub fn new(made: u64) -> Self {
        Self {
            lock_version: FORMAT,
            made,
            without_security: false,
            debian: BTreeMap::new(),
            asked: BTreeMap::new(),
            modules: BTreeMap::new(),
            binaries: BTreeMap::new(),
            cluster_binaries: BTreeMap::new(),
            manifests: BTreeMap::new(),
            charts: BTreeMap::new(),
            images: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Programs of a release of Kubernetes that only clusters may have; none when the lock does not name them.
    pub fn binaries_of(&self, version: &str) -> &BTreeMap<String, Blob> {
        static NONE: BTreeMap<String, Blob> = BTreeMap::new();
        self.cluster_binaries.get(version).unwrap_or(&NONE)
    }

    /// `appliance.lock` beside `appliance.yaml`.
    pub fn path_for(definition: &Path) -> PathBuf {
        definition.with_extension("lock")
    }

    /// Reads a lock; `None` when there is none.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let text = fs_err::read_to_string(path)?;
        let lock: Self = serde_json::from_str(&text)
            .with_context(|| format!("reading `{}`\nhint: make it anew: `foothold lock --update`", path.display()))?;
        if lock.lock_version != FORMAT {
            bail!(
                "`{}` has lockVersion {}, expected {FORMAT}\nhint: make it anew: `foothold lock --update`",
                path.display(),
                lock.lock_version
            );
        }
        Ok(Some(lock))
    }

    /// Writes it atomically, a package a line.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_shared(path, self.text()?.as_bytes()).with_context(|| format!("writing `{}`", path.display()))
    }

    /// Its text.
    pub fn text(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The digest of the Go module set of that name.
    pub fn module_set(&self, set: &str) -> Result<&Digest> {
        self.modules
            .get(set)
            .with_context(|| format!("the lock does not name the Go modules `{set}`\nhint: `foothold lock --update`"))
    }

    /// The package set of that name.
    pub fn packages(&self, set: &str) -> Result<&[Deb]> {
        self.debian
            .get(set)
            .map(Vec::as_slice)
            .with_context(|| format!("the lock has no package set `{set}`\nhint: `foothold lock --update`"))
    }

    /// The package set of that name, if it was resolved from exactly these packages.
    pub fn packages_for(&self, set: &str, asked: &[String]) -> Result<&[Deb]> {
        if self.asked.get(set).map(Vec::as_slice) != Some(asked) {
            bail!(
                "the lock's package set `{set}` was not made for what is asked for now\nhint: `foothold lock --update`"
            );
        }
        self.packages(set)
    }

    /// The file that is served under that path.
    pub fn file(&self, path: &str) -> Result<&Blob> {
        self.files
            .get(path)
            .with_context(|| format!("the lock does not name the file `{path}`\nhint: `foothold lock --update`"))
    }
}

/// An error when `found`, which is `file` now, is not what the lock names.
pub fn expect_locked(file: &dyn Display, found: &Blob, locked: &Blob) -> Result<()> {
    ensure!(
        found == locked,
        "`{file}` is {} ({} bytes), the lock expects {} ({} bytes)\nhint: bring the file back, or move the lock: \
         `foothold lock --update`",
        found.digest,
        found.size,
        locked.digest,
        locked.size
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Lock;

    #[test]
    fn a_lock_survives_writing_and_reading() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("appliance.lock");
        let lock = Lock::new(1_700_000_000);
        lock.write(&path).expect("written");
        assert_eq!(Lock::read(&path).expect("read"), Some(lock));
        assert_eq!(fs_err::read_dir(dir.path()).expect("listed").count(), 1);
    }

    #[test]
    fn a_set_that_was_made_for_another_list_is_refused() {
        let mut lock = Lock::new(1_700_000_000);
        lock.debian.insert("os".to_owned(), Vec::new());
        let (before, now) = (["runc".to_owned()], ["crun".to_owned()]);
        assert!(lock.packages_for("os", &before).is_err(), "made before lists were remembered");
        lock.asked.insert("os".to_owned(), before.to_vec());
        assert!(lock.packages_for("os", &before).is_ok());
        let error = lock.packages_for("os", &now).expect_err("another list");
        assert!(error.to_string().contains("`os`") && error.to_string().contains("lock --update"), "{error}");
    }

    #[test]
    fn a_lock_of_another_shape_says_what_to_do() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("appliance.lock");
        fs_err::write(&path, "{}").expect("written");
        let error = Lock::read(&path).expect_err("refused");
        assert!(format!("{error:#}").contains("lock --update"), "{error:#}");
    }
}
