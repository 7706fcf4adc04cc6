//! Writes files to a file system without a journal, whose medium may be pulled at any instant.
//!
//! ```text
//! X.new written, synced ─► X.old removed ─► X becomes X.old ─► X.new becomes X ─► X.old removed
//! ```
//! No rename replaces a file: FAT cannot do that atomically. At every instant `X` or `X.old` is whole, and
//! the next write finds out which.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Bytes to spare for clusters, folders and the table.
const SPARE: u64 = 64 * 1024;

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    name: &'static str,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Piece {
    /// These bytes.
    pub fn bytes(name: &'static str, bytes: Vec<u8>) -> Self {
        Self { name, content: Content::Bytes(bytes) }
    }

    /// The bytes of that file.
    pub fn file(name: &'static str, path: &Path) -> Self {
        Self { name, content: Content::File(path.to_owned()) }
    }

    fn size(&self) -> io::Result<u64> {
        match &self.content {
            Content::Bytes(bytes) => Ok(bytes.len() as u64),
            Content::File(path) => Ok(fs_err::metadata(path)?.len()),
        }
    }

    fn write_to(&self, file: &mut fs_err::File) -> io::Result<()> {
        match &self.content {
            Content::Bytes(bytes) => file.write_all(bytes),
            Content::File(path) => io::copy(&mut fs_err::File::open(path)?, file).map(drop),
        }
    }
}

/// Writes the files into `folder`, each replacing its predecessor once it is whole. Bytes that were written.
pub fn store(folder: &Path, pieces: &[Piece]) -> anyhow::Result<u64> {
    let mut total = 0;
    for piece in pieces {
        mend(folder, piece.name)?;
        let size = piece.size()?;
        check_room(folder, piece.name, size)?;
        replace(folder, piece, &mut || Ok(())).with_context(|| format!("writing `{}`", piece.name))?;
        total += size;
    }
    Ok(total)
}

fn check_room(folder: &Path, name: &str, size: u64) -> anyhow::Result<()> {
    let room = rustix::fs::statvfs(folder)?;
    let free = room.f_bavail * room.f_frsize;
    let kib = |bytes: u64| bytes.div_ceil(1024);
    anyhow::ensure!(
        free >= size + SPARE,
        "SITE is full: `{name}` needs {} KiB, {} KiB are free",
        kib(size + SPARE),
        kib(free)
    );
    Ok(())
}

/// One file. `instant` is called between any two changes: an error there is the power cut of the tests.
fn replace(folder: &Path, piece: &Piece, instant: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
    let [own, new, old] = names(folder, piece.name);
    let mut file = fs_err::File::create(&new)?;
    instant()?;
    piece.write_to(&mut file)?;
    instant()?;
    file.sync_all()?;
    drop(file);
    sync(folder)?;
    instant()?;
    if own.exists() {
        fs_err::rename(&own, &old)?;
        sync(folder)?;
        instant()?;
    }
    fs_err::rename(&new, &own)?;
    sync(folder)?;
    instant()?;
    if old.exists() {
        fs_err::remove_file(&old)?;
        sync(folder)?;
    }
    Ok(())
}

/// Tidies up after a power cut: brings the predecessor back when nothing else is left, removes incomplete files.
fn mend(folder: &Path, name: &str) -> io::Result<()> {
    let [own, new, old] = names(folder, name);
    if !own.exists() && old.exists() {
        fs_err::rename(&old, &own)?;
    }
    for rest in [new, old] {
        if rest.exists() {
            fs_err::remove_file(rest)?;
        }
    }
    sync(folder)
}

fn names(folder: &Path, name: &str) -> [PathBuf; 3] {
    [name.to_owned(), format!("{name}.new"), format!("{name}.old")].map(|name| folder.join(name))
}

/// Syncs the whole file system: FAT keeps its table apart from files and folders.
fn sync(folder: &Path) -> io::Result<()> {
    let folder = fs_err::File::open(folder)?;
    Ok(rustix::fs::syncfs(&folder)?)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Piece, mend, names, replace, store};

    #[test]
    fn at_every_instant_the_old_or_the_new_file_is_whole() {
        let dir = tempfile::tempdir().expect("a folder");
        let (old, new) = (vec![b'o'; 9000], vec![b'n'; 7000]);
        let piece = |bytes: &[u8]| Piece::bytes("report.json", bytes.to_vec());
        let [own, .., kept] = names(dir.path(), "report.json");
        let mut cuts = 0;
        loop {
            store(dir.path(), &[piece(&old)]).expect("stored");
            let mut left = cuts;
            let mut cut = || {
                left -= 1;
                if left < 0 { Err(io::Error::other("cut")) } else { Ok(()) }
            };
            let done = replace(dir.path(), &piece(&new), &mut cut).is_ok();
            let read = |path: &std::path::Path| fs_err::read(path).ok();
            let whole = read(&own).or_else(|| read(&kept)).expect("one of them is there");
            assert!(whole == old || whole == new, "cut {cuts}: {} bytes", whole.len());
            mend(dir.path(), "report.json").expect("mended");
            assert_eq!(read(&own), Some(whole), "cut {cuts}");
            assert_eq!(fs_err::read_dir(dir.path()).expect("listed").count(), 1, "cut {cuts}");
            if done {
                break;
            }
            cuts += 1;
        }
        assert_eq!(cuts, 5);
    }

    #[test]
    fn a_piece_that_does_not_fit_is_told_in_numbers() {
        let dir = tempfile::tempdir().expect("a folder");
        let error = super::check_room(dir.path(), "support-bundle.tar.gz", 1 << 60).expect_err("too large").to_string();
        assert!(error.starts_with("SITE is full: `support-bundle.tar.gz` needs 1125899906842688 KiB, "), "{error}");
    }
}
