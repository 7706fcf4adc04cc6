//! SHA-256 of files and texts.

use std::path::Path;

use agent_api::release::{Blob, Digest};
use anyhow::Result;
use sha2::{Digest as _, Sha256};

/// Size and digest of a file.
pub fn file(path: &Path) -> Result<Blob> {
    // Read, not mapped: what a disk cannot read is then an error, not the end of this process.
    Ok(agent_api::hash::blob(fs_err::File::open(path)?)?)
}

/// MD5 of a file, 32 hex digits: for tools that ask for it beside the digest that counts.
pub fn md5_of_file(path: &Path) -> Result<String> {
    let mut hasher = md5::Md5::new();
    std::io::copy(&mut fs_err::File::open(path)?, &mut HashWriter(&mut hasher))?;
    Ok(hex::encode(hasher.finalize()))
}

/// MD5 of bytes, 32 hex digits.
pub fn md5(bytes: &[u8]) -> String {
    hex::encode(md5::Md5::digest(bytes))
}

struct HashWriter<'a>(&'a mut md5::Md5);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Digest of bytes.
pub fn bytes(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}

fn digest(hasher: Sha256) -> Digest {
    Digest::from_sha256(hasher.finalize().into())
}

/// Digest of everything below a folder that goes into a result: paths, kinds, modes, content. Sorted by path.
pub fn tree(root: &Path) -> Result<Digest> {
    use std::os::unix::fs::PermissionsExt;
    let mut hasher = Sha256::new();
    for entry in walkdir::WalkDir::new(root).sort_by_file_name() {
        let entry = entry?;
        let name = entry.path().strip_prefix(root).unwrap_or(entry.path());
        let executable = entry.metadata()?.permissions().mode() & 0o100 != 0;
        let what = if entry.file_type().is_symlink() {
            format!("link {}", fs_err::read_link(entry.path())?.display())
        } else if entry.file_type().is_file() {
            format!("file {executable} {}", file(entry.path())?.digest)
        } else {
            "dir".to_owned()
        };
        hasher.update(format!("{}\0{what}\0", name.display()));
    }
    Ok(digest(hasher))
}
