//! The builder's cache: content-addressed files, and which of them a stage made from which inputs.
//!
//! ```text
//! <cache>/blobs/sha256/<hex>   every file once, read-only
//! <cache>/stages/<key>.json    what a stage made: names -> digests; the key is made of its inputs
//! <cache>/locks/<key>          held while a stage is being made: two builds share the work
//! <cache>/tmp/<pid>-<n>/       work in progress, removed by its owner, or by the next build
//! ```
//! Safe to delete at any time. A blob that does not hash to its name is found when it is used, and made anew.

pub mod hash;
mod stage;
mod work;

use std::path::{Path, PathBuf};

use agent_api::release::{Blob, Digest};
use anyhow::{Context, Result};

pub use stage::{Made, NotMade, StageKey};
pub use work::WorkDir;

/// The cache folder.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
    looking: bool,
}

impl Cache {
    /// Opens (and makes) the cache at `root`; removes what killed builds left behind.
    pub fn open(root: &Path) -> Result<Self> {
        for dir in ["blobs/sha256", "stages", "locks", "tmp"] {
            fs_err::create_dir_all(root.join(dir)).context("making the cache folder")?;
        }
        let root = fs_err::canonicalize(root)?;
        work::sweep(&root.join("tmp"));
        Ok(Self { root, looking: false })
    }

    /// The cache at `root` for looking only: nothing is made, removed or written, and a stage that is not there is the
    /// error [`NotMade`]. The folder need not exist.
    pub fn look(root: &Path) -> Self {
        Self { root: root.to_owned(), looking: true }
    }

    /// `$XDG_CACHE_HOME/foothold`, by default `~/.cache/foothold` (XDG Base Directory Specification).
    pub fn default_root() -> Result<PathBuf> {
        let set = |key| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        base.map(|dir| dir.join("foothold")).context("neither XDG_CACHE_HOME nor HOME is set")
    }

    /// A path below the cache folder.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside)
    }

    /// A new empty folder for work in progress, on the same file system as the blobs.
    pub fn work_dir(&self) -> Result<WorkDir> {
        WorkDir::new(&self.root.join("tmp"))
    }

    /// Where the blob lies or would lie.
    pub fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs/sha256").join(digest.hex())
    }

    /// Moves a finished file into the cache and returns what it is.
    pub fn adopt(&self, file: &Path) -> Result<Blob> {
        let blob = hash::file(file)?;
        let target = self.blob_path(&blob.digest);
        fs_err::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o444))?;
        fs_err::File::open(file)?.sync_all()?;
        fs_err::rename(file, target)?;
        Ok(blob)
    }

    /// Puts bytes into the cache.
    pub fn adopt_bytes(&self, bytes: &[u8]) -> Result<Blob> {
        let work = self.work_dir()?;
        let file = work.path().join("bytes");
        fs_err::write(&file, bytes)?;
        self.adopt(&file)
    }

    /// Whether the blob is there and whole. A damaged one is removed.
    pub fn holds(&self, blob: &Blob) -> Result<bool> {
        let path = self.blob_path(&blob.digest);
        if !path.exists() {
            return Ok(false);
        }
        if hash::file(&path)? == *blob {
            return Ok(true);
        }
        if self.looking {
            return Ok(false);
        }
        log::warn!("the cached file {} is damaged: it will be made anew", path.display());
        fs_err::remove_file(path)?;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn a_damaged_blob_is_found_and_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let blob = cache.adopt_bytes(b"content").expect("adopted");
        assert!(cache.holds(&blob).expect("readable"));
        let path = cache.blob_path(&blob.digest);
        fs_err::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("chmod");
        fs_err::write(&path, b"c0ntent").expect("written");
        assert!(!cache.holds(&blob).expect("readable"));
        assert!(!path.exists());
    }
}
