//! File locks between processes: they end with the process that holds them, however it ends.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use super::cancel;
use super::command::pause;

/// A held lock.
#[derive(Debug)]
pub struct Held(Flock<File>);

impl Held {
    /// Whether the file still has this name: who held it before may have removed it.
    pub fn has_name(&self, path: &Path) -> bool {
        let inode = |found: std::fs::Metadata| (found.dev(), found.ino());
        let (held, named) = (self.0.metadata().map(inode), fs_err::metadata(path).map(inode));
        held.ok().is_some_and(|held| named.is_ok_and(|named| held == named))
    }
}

/// Takes the lock or returns `None` when another process has it.
pub fn try_lock(path: &Path) -> anyhow::Result<Option<Held>> {
    let file = fs_err::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    match Flock::lock(file.into_file(), FlockArg::LockExclusiveNonblock) {
        Ok(held) => Ok(Some(Held(held))),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(anyhow::Error::new(errno).context(format!("locking `{}`", path.display()))),
    }
}

/// Waits for the lock; calls `waiting` once when it is not free at once.
pub fn lock(path: &Path, waiting: &mut dyn FnMut()) -> anyhow::Result<Held> {
    let mut told = false;
    loop {
        if let Some(held) = try_lock(path)? {
            return Ok(held);
        }
        if !told {
            waiting();
            told = true;
        }
        cancel::check()?;
        pause(Duration::from_millis(50));
    }
}
