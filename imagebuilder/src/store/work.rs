//! Folders for work in progress: removed with their handle, or by the next build when their owner was killed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

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
        let (path, lock, held) = loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{}-{n}", std::process::id()));
            let lock = path.with_extension("lock");
            // A builder in another container may have this number, too, and who sweeps holds each lock for a moment.
            if let Some(held) = flock::try_lock(&lock)?
                && held.has_name(&lock)
            {
                break (path, lock, held);
            }
        };
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

#[cfg(test)]
mod tests {
    use super::{WorkDir, flock};

    #[test]
    fn a_builder_with_the_same_number_in_another_container_has_other_folders() {
        let dir = tempfile::tempdir().expect("a folder");
        let own = WorkDir::new(dir.path()).expect("made");
        let last: u32 = own.path().to_string_lossy().rsplit_once('-').expect("a number").1.parse().expect("a number");
        // Tests beside this one take numbers, too.
        let theirs: Vec<_> = (last + 1..last + 1000)
            .map(|n| dir.path().join(format!("{}-{n}.lock", std::process::id())))
            .map(|lock| flock::try_lock(&lock).expect("locked").expect("free"))
            .collect();
        let other = WorkDir::new(dir.path()).expect("another number");
        assert!(other.path().is_dir() && other.path() != own.path());
        drop(theirs);
    }

    #[test]
    fn a_lock_whose_file_was_swept_away_does_not_count() {
        let dir = tempfile::tempdir().expect("a folder");
        let lock = dir.path().join("1-0.lock");
        let held = flock::try_lock(&lock).expect("locked").expect("free");
        assert!(held.has_name(&lock));
        fs_err::remove_file(&lock).expect("swept");
        assert!(!held.has_name(&lock));
        fs_err::write(&lock, "").expect("made by another");
        assert!(!held.has_name(&lock));
    }
}
