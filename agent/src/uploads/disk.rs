//! Durable writes: a power cut leaves the old or the new state, never a mix.

use std::io::{self, Write};
use std::path::Path;

/// Puts `bytes` at `path` by renaming; on the disk for good when it returns. Folders up to `root` are made.
pub(super) fn replace(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(root);
    make_dirs(root, dir)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!(".{name}"));
    let mut file = fs_err::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    drop(file);
    fs_err::rename(&temporary, path)?;
    sync_dir(dir)
}

/// Makes `dir` and what is missing between it and `root`, each known to its parent for good.
pub(super) fn make_dirs(root: &Path, dir: &Path) -> io::Result<()> {
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

/// Makes renames and removals in `dir` durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    fs_err::File::open(dir)?.sync_all()
}
