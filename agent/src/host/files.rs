//! Files that are either whole or as they were, also after a power cut.
//!
//! [`replace`] is one durable write: draft, sync, rename, sync of the folder. [`write()`] does the same for one of many,
//! whose syncs come at the end, as one [`sync`] of the file system.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Mode of files that hold a secret.
pub const SECRET: u32 = 0o600;
/// Mode of files that everybody may read.
pub const PUBLIC: u32 = 0o644;

/// Puts `bytes` at `path` by renaming; a file that already holds them is left alone. Returns whether it changed.
///
/// Not yet on the disk when it returns: call [`sync`] once after a batch, before anything relies on it.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<bool> {
    if fs_err::read(path).is_ok_and(|found| found == bytes) {
        return Ok(false);
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs_err::create_dir_all(dir)?;
    let draft = draft_of(path);
    let _ = fs_err::remove_file(&draft);
    let mut file = fs_err::OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
    file.write_all(bytes)?;
    drop(file);
    fs_err::rename(&draft, path)?;
    Ok(true)
}

/// Puts `bytes` at `path`, in a folder that is there; on the disk for good when it returns.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = draft_of(path);
    let mut file = fs_err::File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    drop(file);
    fs_err::rename(&draft, path)?;
    sync_dir(path.parent().unwrap_or(Path::new("/")))
}

/// [`replace`] in a folder that may have to be made, up to `root`.
pub fn replace_below(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    make_dirs(root, path.parent().unwrap_or(root))?;
    replace(path, bytes)
}

/// Where a file is written before it takes the place of `path`. The leading dot keeps others from reading half of it:
/// the kubelet ignores such names.
pub(crate) fn draft_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

/// Makes renames and removals in `dir` durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    fs_err::File::open(dir)?.sync_all()
}

/// Makes `dir` and what is missing between it and `root`, each known to its parent for good.
pub fn make_dirs(root: &Path, dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent().filter(|parent| parent.starts_with(root)) {
        make_dirs(root, parent)?;
    }
    match fs_err::create_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    dir.parent().map_or(Ok(()), sync_dir)
}

/// Makes everything written so far to the file system of `dir` durable.
pub fn sync(dir: &Path) -> io::Result<()> {
    let dir = fs_err::File::open(dir)?;
    rustix::fs::syncfs(dir.file())?;
    Ok(())
}

/// [`write()`] and [`sync`] in one, for a single file.
pub fn write_durably(path: &Path, bytes: &[u8], mode: u32) -> io::Result<bool> {
    let changed = write(path, bytes, mode)?;
    if changed {
        sync(path.parent().unwrap_or(Path::new("/")))?;
    }
    Ok(changed)
}

/// Waits until nobody else holds this file, and holds it until the handle is dropped. It is made if it is not there.
///
/// The handle gives the file up in so many words. To close it would not do: a process that was forked meanwhile has it open
/// until it calls `exec`.
pub fn lock(path: &Path) -> io::Result<Flock<File>> {
    let file = fs_err::OpenOptions::new().create(true).truncate(false).write(true).open(path)?.into_file();
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
}

/// Whether somebody else holds this file ([`lock`]).
pub fn is_held(path: &Path) -> io::Result<bool> {
    let file = match fs_err::OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?.into_file(),
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(_) => Ok(false),
        Err((_, Errno::EWOULDBLOCK)) => Ok(true),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// Removes a file; one that is gone already is as good.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a folder and all that is in it; one that is gone already is as good.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match fs_err::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{SECRET, is_held, lock, replace_below, write};

    #[test]
    fn a_file_is_replaced_whole_and_only_when_it_differs() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("deep/key");
        assert!(write(&path, b"one", SECRET).expect("written"));
        assert!(!write(&path, b"one", SECRET).expect("left alone"));
        assert!(write(&path, b"two", SECRET).expect("replaced"));
        assert_eq!(fs_err::read(&path).expect("read"), b"two");
        let mode = fs_err::metadata(&path).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, SECRET);
        assert_eq!(fs_err::read_dir(path.parent().expect("parent")).expect("listing").count(), 1);
    }

    #[test]
    fn a_durable_write_leaves_the_new_file_alone_in_its_folder() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("a/b/record.json");
        replace_below(root.path(), &path, b"one").expect("written");
        replace_below(root.path(), &path, b"two").expect("replaced");
        assert_eq!(fs_err::read(&path).expect("read"), b"two");
        assert_eq!(fs_err::read_dir(path.parent().expect("parent")).expect("listing").count(), 1);
    }

    #[test]
    fn a_file_is_held_as_long_as_somebody_has_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lock");
        assert!(!is_held(&path).expect("looked"), "it is not there");
        let held = lock(&path).expect("locked");
        assert!(is_held(&path).expect("looked"));
        // As a process has that was forked and is about to call `exec`.
        let childs = held.try_clone().expect("another descriptor");
        drop(held);
        assert!(!is_held(&path).expect("looked"));
        drop(childs);
        // To look does not hold it.
        drop(lock(&path).expect("locked"));
    }
}
