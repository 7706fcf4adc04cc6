//! The builder's cache: content-addressed files, and which of them a stage made from which inputs.
//!
//! ```text
//! <cache>/blobs/sha256/<hex>   every file once, read-only
//! <cache>/stages/<key>.json    what a stage made: names -> digests; the key is made of its inputs
//! <cache>/checked/<hex>.json   what the blob's inode said when it last hashed to its name
//! <cache>/downloads/<hex>      what has come of a program that is being downloaded
//! <cache>/locks/<key>          held while a stage is being made: two builds share the work
//! <cache>/stage-secs.json      how long stages took the last time: for estimates only
//! <cache>/tmp/<pid>-<n>/       work in progress, removed by its owner, or by the next build
//! ```
//! Safe to delete at any time. A blob that was changed is found when it is used, and made anew; before blobs are copied
//! into an image they are hashed again ([`Cache::is_whole`]), which finds a failing disk, too.

pub mod hash;
mod stage;
mod stamp;
mod work;

use std::path::{Path, PathBuf};

use agent_api::release::{Blob, Digest};
use anyhow::{Context, Result, ensure};

pub use stage::{Made, NotMade, StageKey};
pub use stamp::Stamp;
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
        for dir in ["blobs/sha256", "checked", "stages", "locks", "tmp"] {
            fs_err::create_dir_all(root.join(dir)).context("making the cache folder")?;
        }
        let root = fs_err::canonicalize(root)?;
        let mounted = rustix::fs::statvfs(&root)?;
        ensure!(
            !mounted.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC),
            "the cache folder `{}` lies on a filesystem that is mounted `noexec`, and programs of the toolbox run from there\n\
             hint: set XDG_CACHE_HOME to a folder on another filesystem, or `mount -o remount,exec ...`",
            root.display()
        );
        work::sweep(&root.join("tmp"));
        Ok(Self { root, looking: false })
    }

    /// The cache at `root` for looking only: nothing is made, removed or written, and a stage that is not there is the
    /// error [`NotMade`]. The folder need not exist.
    pub fn look(root: &Path) -> Self {
        Self { root: root.to_owned(), looking: true }
    }

    /// Whether it is for looking only.
    pub fn only_looks(&self) -> bool {
        self.looking
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
        fs_err::rename(file, &target)?;
        self.mark(&blob, Stamp::of(&target)?);
        Ok(blob)
    }

    /// Puts bytes into the cache.
    pub fn adopt_bytes(&self, bytes: &[u8]) -> Result<Blob> {
        let work = self.work_dir()?;
        let file = work.path().join("bytes");
        fs_err::write(&file, bytes)?;
        self.adopt(&file)
    }

    /// Whether the blob is there and has not changed since it was last hashed. A damaged one is removed.
    pub fn holds(&self, blob: &Blob) -> Result<bool> {
        let path = self.blob_path(&blob.digest);
        let Some(stamp) = Stamp::of_any(&path)? else { return Ok(false) };
        let marked = fs_err::read(self.mark_path(blob)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if marked == Some((blob.size, stamp)) {
            return Ok(true);
        }
        self.is_whole(blob)
    }

    /// Whether the blob is there and hashes to its name, all of it read. A damaged one is removed.
    pub fn is_whole(&self, blob: &Blob) -> Result<bool> {
        let path = self.blob_path(&blob.digest);
        if !path.exists() {
            return Ok(false);
        }
        let before = Stamp::of(&path)?;
        if hash::file(&path)? == *blob {
            self.mark(blob, before);
            return Ok(true);
        }
        if self.looking {
            return Ok(false);
        }
        log::warn!("the cached file {} is damaged: it will be made anew", path.display());
        fs_err::remove_file(path)?;
        Ok(false)
    }

    fn mark_path(&self, blob: &Blob) -> PathBuf {
        self.root.join("checked").join(format!("{}.json", blob.digest.hex()))
    }

    /// Records that the blob was whole when its file looked like that. Without the record it is only hashed again.
    fn mark(&self, blob: &Blob, stamp: Stamp) {
        if self.looking {
            return;
        }
        let path = self.mark_path(blob);
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(self.root.join("checked"))?;
            serde_json::to_writer(&mut file, &(blob.size, stamp))?;
            file.persist(&path).map_err(|error| error.error)
        };
        if let Err(error) = write() {
            log::debug!("writing `{}`: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::Cache;

    /// Writes into a cached file, and gives it the time of modification it had.
    fn damage(path: &Path) {
        let before = fs_err::metadata(path).expect("a file").modified().expect("a time");
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o644)).expect("chmod");
        fs_err::write(path, b"c0ntent").expect("written");
        let file = fs_err::OpenOptions::new().write(true).open(path).expect("opened");
        file.file().set_modified(before).expect("a time");
    }

    #[test]
    fn a_damaged_blob_is_found_and_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let blob = cache.adopt_bytes(b"content").expect("adopted");
        assert!(cache.holds(&blob).expect("readable"));
        let path = cache.blob_path(&blob.digest);
        damage(&path);
        assert!(!cache.holds(&blob).expect("readable"));
        assert!(!path.exists());
    }

    #[test]
    fn a_blob_that_was_hashed_is_not_hashed_again_but_for_an_image() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let blob = cache.adopt_bytes(b"content").expect("adopted");
        damage(&cache.blob_path(&blob.digest));
        // As a failing disk would: other bytes, and nothing tells.
        cache.mark(&blob, super::Stamp::of(&cache.blob_path(&blob.digest)).expect("a stamp"));
        assert!(cache.holds(&blob).expect("readable"));
        assert!(!cache.is_whole(&blob).expect("readable"));
        assert!(!cache.holds(&blob).expect("readable"), "it was removed");
    }

    #[test]
    fn a_cache_that_is_looked_at_is_not_written() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let blob = cache.adopt_bytes(b"content").expect("adopted");
        fs_err::remove_dir_all(cache.path("checked")).expect("removed");
        assert!(Cache::look(dir.path()).holds(&blob).expect("readable"));
        assert!(!cache.path("checked").exists());
    }
}
