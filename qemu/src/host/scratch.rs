//! Scratch folders that do not outlive their owner for long.
//!
//! A folder holds a lock file; the kernel drops the lock when the owner ends, however it ends. Making a
//! new folder removes those beside it whose lock is free: what a killed process left.

use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use tempfile::TempDir;

const PREFIX: &str = "foothold-vm-";
const LOCK: &str = "lock";

/// A private folder (mode 0700), removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: TempDir,
    _lock: Flock<std::fs::File>,
}

impl Scratch {
    /// Makes one in `parent`.
    pub(crate) fn new(parent: &Path) -> io::Result<Self> {
        sweep(parent);
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // Locked before it has its name: who sees the file must not find the lock free.
        let unnamed = dir.path().join("unnamed");
        let file = fs_err::File::create(&unnamed)?.into_parts().0;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| io::Error::from(errno))?;
        fs_err::rename(unnamed, dir.path().join(LOCK))?;
        Ok(Self { dir, _lock: lock })
    }

    /// The path of a file in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Removes folders whose owner is gone. What cannot be looked at or removed belongs to somebody else.
fn sweep(parent: &Path) {
    let Ok(entries) = fs_err::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&entry.path()) {
            log::debug!("removing `{}`, left by a runner that was killed", entry.path().display());
            let _ = fs_err::remove_dir_all(entry.path());
        }
    }
}

/// A folder without its lock file is being made right now.
fn is_abandoned(dir: &Path) -> bool {
    let Ok(file) = fs_err::File::open(dir.join(LOCK)) else { return false };
    Flock::lock(file.into_parts().0, FlockArg::LockExclusiveNonblock).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_owner_left_is_removed_and_what_is_in_use_stays() {
        let parent = tempfile::tempdir().expect("temporary folder");
        let left = parent.path().join("foothold-vm-left");
        fs_err::create_dir(&left).expect("making");
        fs_err::write(left.join(LOCK), "").expect("writing");
        let used = Scratch::new(parent.path()).expect("made");
        let other = Scratch::new(parent.path()).expect("made");
        assert!(!left.exists());
        assert!(used.join(LOCK).exists() && other.join(LOCK).exists());
        drop((used, other));
        assert_eq!(fs_err::read_dir(parent.path()).expect("readable").count(), 0);
    }
}
