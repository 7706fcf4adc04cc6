//! Files that are either whole or as they were, also after a power cut.

use std::io::{self, Write};
use std::path::Path;

use fs_err::os::unix::fs::OpenOptionsExt;

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
    // The leading dot keeps the kubelet from reading half a manifest: it ignores such names.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!(".{name}.new"));
    let _ = fs_err::remove_file(&temporary);
    let mut file = fs_err::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(bytes)?;
    drop(file);
    fs_err::rename(&temporary, path)?;
    Ok(true)
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

/// Removes a file; one that is gone already is as good.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{SECRET, write};

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
}
