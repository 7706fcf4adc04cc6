//! Folders for work in progress: removed with their handle, or by the next build when their owner was killed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::host::flock::{self, Held};

/// A folder that is removed when dropped.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    lock: PathBuf,
    _held: Held,
}

impl WorkDir {
    pub(super) fn new(parent: &Path) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{}-{n}", std::process::id()));
        let lock = path.with_extension("lock");
        let held = flock::try_lock(&lock)?.with_context(|| format!("`{}` is in use", lock.display()))?;
        if path.exists() {
            remove(&path);
        }
        fs_err::create_dir(&path)?;
        Ok(Self { path, lock, _held: held })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        remove(&self.path);
        let _ = fs_err::remove_file(&self.lock);
    }
}

/// Removes the folders whose owners are gone.
pub(super) fn sweep(parent: &Path) {
    let Ok(entries) = fs_err::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let lock = entry.path();
        if lock.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        if let Ok(Some(_held)) = flock::try_lock(&lock) {
            remove(&lock.with_extension(""));
            let _ = fs_err::remove_file(&lock);
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs_err::remove_dir_all(path)
        && path.exists()
    {
        log::warn!("left `{}` behind: {error}", path.display());
    }
}
