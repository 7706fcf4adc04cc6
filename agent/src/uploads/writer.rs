//! Writes the bytes of one image as they come.
//!
//! The record's checkpoint (offset, and state of the digests) is written after the bytes before it are on the disk, so
//! that it is true after any power cut. Bytes behind it are cut off when the upload goes on.

use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

use agent_api::bpa::{Kind, Published};
use agent_api::release::Digest;

use super::hashes::Hashes;
use super::record::{Checkpoint, Record};
use super::{NoRoom, UploadError, UploadKey, Uploads, qcow2, secs};
use crate::content::Held;
use crate::host::files;

/// Bytes that are gathered before they are written.
const GATHER: usize = 256 * 1024;
/// A run of zeros of this length becomes a hole in the file.
const HOLE: usize = 4096;
/// Bytes between two checkpoints: so many may be lost when the power is cut in the middle of a request.
const CHECKPOINT: u64 = 64 * 1024 * 1024;

/// While it lives, nobody else changes the image.
pub struct Writer {
    uploads: Uploads,
    file: fs_err::File,
    record: Record,
    hashes: Hashes,
    /// Bytes that were written, durable or not.
    offset: u64,
    gathered: Vec<u8>,
}

impl Uploads {
    /// Begins to take in all remaining bytes of an image; `length` is what the client announces.
    pub fn begin(&self, key: &UploadKey, offset: u64, length: Option<u64>) -> Result<Writer, UploadError> {
        let mut state = self.lock();
        let storage = self.storage_of(&state)?;
        let entry = state.images.get_mut(key).ok_or(UploadError::Missing)?;
        let record = &entry.record;
        if record.digest.is_some() {
            return Err(UploadError::Complete);
        }
        if entry.busy {
            return Err(UploadError::Busy);
        }
        if record.offset() != offset {
            return Err(UploadError::Offset { expected: record.offset(), found: offset });
        }
        let (expected, found) = (record.remaining(), length.ok_or(UploadError::NoLength)?);
        if expected != found {
            return Err(UploadError::Length { expected, found });
        }
        let (free, reserve) = (storage.free_bytes, storage.reserve_bytes);
        if free < reserve {
            return Err(NoRoom::Disk { free, reserve, promised: 0, wanted: expected }.into());
        }
        let file = self.open_partial(record)?;
        let Some(hashes) = Hashes::restore(&record.checkpoint.hashes).filter(|_| has(&file, offset)) else {
            log::error!("what is there of `{}` is damaged; it begins anew", key.name);
            entry.record.checkpoint = Checkpoint::default();
            self.keep(&entry.record)?;
            return Err(UploadError::Offset { expected: 0, found: offset });
        };
        // What came after the checkpoint is not hashed: it comes again.
        file.set_len(offset)?;
        entry.busy = true;
        let gathered = Vec::with_capacity(GATHER);
        Ok(Writer { uploads: self.clone(), file, record: entry.record.clone(), hashes, offset, gathered })
    }

    fn open_partial(&self, record: &Record) -> io::Result<fs_err::File> {
        let path = self.partial_path(record);
        let file = fs_err::OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        if record.offset() == 0 {
            files::sync_dir(&self.inner.root.join("partial"))?;
        }
        Ok(file)
    }

    /// Completes images whose last byte is there but whose record does not say so.
    pub(super) fn end_interrupted(&self) -> Result<(), io::Error> {
        let mut state = self.lock();
        let keys: Vec<UploadKey> = state.images.keys().cloned().collect();
        for key in keys {
            let Some(entry) = state.images.get_mut(&key) else { continue };
            if entry.record.digest.is_none() && entry.record.remaining() == 0 {
                let hashes = Hashes::restore(&entry.record.checkpoint.hashes);
                match self.complete(&mut entry.record, hashes.unwrap_or_default()) {
                    Ok(()) => {}
                    Err(UploadError::Io(error)) => return Err(error),
                    Err(error) => log::error!("`{}` begins anew: {error}", key.name),
                }
            }
            entry.sums = self.sums(&entry.record)?;
        }
        Ok(())
    }

    /// Checks the digest, gives the bytes their place, and says so in the record.
    fn complete(&self, record: &mut Record, hashes: Hashes) -> Result<(), UploadError> {
        let (digest, md5) = hashes.finish();
        let partial = self.partial_path(record);
        let blob = self.inner.root.join("sha256").join(digest.hex());
        let wrong = record.expected.as_ref().filter(|expected| *expected != digest.hex()).cloned();
        if wrong.is_some() || !(partial.exists() || blob.exists()) {
            record.checkpoint = Checkpoint::default();
            self.keep(record)?;
            files::remove(&partial)?;
            let expected = wrong.unwrap_or_else(|| "bytes on the disk".to_owned());
            return Err(UploadError::Mismatch { expected, found: digest.hex().to_owned() });
        }
        if blob.exists() {
            files::remove(&partial)?;
        } else {
            fs_err::rename(&partial, &blob)?;
            files::sync_dir(&self.inner.root.join("sha256"))?;
        }
        record.digest = Some(digest);
        record.md5 = Some(md5);
        record.problem = unusable(record, &blob)?;
        record.published = match (&record.problem, publishes_later(record)) {
            (Some(_), _) => Published::Failed,
            (None, true) => Published::Pending,
            (None, false) => Published::Published,
        };
        self.keep(record)?;
        Ok(())
    }

    /// The files with the checksums of an OS image: `<hex>  <name>` as `sha256sum` and `md5sum` print it.
    fn sums(&self, record: &Record) -> io::Result<Vec<Held>> {
        let (Some(digest), Some(md5), Some(path)) = (&record.digest, &record.md5, record.path()) else {
            return Ok(Vec::new());
        };
        let mut sums = Vec::new();
        for (suffix, sum) in [("sha256", digest.hex()), ("md5sum", md5)] {
            let text = format!("{sum}  {}\n", record.key.name);
            let (file, digest) = self.keep_made(text.as_bytes())?;
            let kind = super::source::content_kind(record.key.kind);
            sums.push(Held { path: format!("{path}.{suffix}"), kind, file, digest, size: text.len() as u64 });
        }
        Ok(sums)
    }

    /// Keeps a small file that the box made itself, by its digest.
    pub(super) fn keep_made(&self, bytes: &[u8]) -> io::Result<(std::path::PathBuf, Digest)> {
        use sha2::Digest as _;
        let hex = hex::encode(sha2::Sha256::digest(bytes));
        let file = self.inner.root.join("sums").join(&hex);
        if fs_err::metadata(&file).map_or(true, |found| found.len() != bytes.len() as u64) {
            files::replace_below(&self.inner.root, &file, bytes)?;
        }
        Ok((file, Digest::from_hex(&hex).map_err(io::Error::other)?))
    }
}

/// Why nobody could use an OS image. It is served all the same: who fetches it may know better.
fn unusable(record: &Record, blob: &Path) -> io::Result<Option<String>> {
    if record.key.kind != Kind::OsImages {
        return Ok(None);
    }
    let mut head = Vec::new();
    fs_err::File::open(blob)?.take(qcow2::HEAD as u64).read_to_end(&mut head)?;
    Ok(qcow2::problem(&head))
}

/// Whether the registry or the apt repository must take it in, too.
fn publishes_later(record: &Record) -> bool {
    match record.key.kind {
        Kind::ContainerImages => true,
        Kind::BinaryImages => is_package(record),
        Kind::OsImages => false,
    }
}

/// Whether it goes into the apt repository.
pub(super) fn is_package(record: &Record) -> bool {
    let deb = std::path::Path::new(&record.key.name).extension().is_some_and(|extension| extension == "deb");
    record.key.kind == Kind::BinaryImages && deb
}

fn has(file: &fs_err::File, bytes: u64) -> bool {
    file.metadata().is_ok_and(|found| found.len() >= bytes)
}

impl Writer {
    /// Takes in the next bytes.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), UploadError> {
        let room = self.record.length - self.offset - self.gathered.len() as u64;
        if bytes.len() as u64 > room {
            return Err(UploadError::TooMuch);
        }
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(GATHER - self.gathered.len()));
            self.gathered.extend_from_slice(now);
            bytes = later;
            if self.gathered.len() == GATHER {
                self.flush()?;
            }
        }
        if self.offset - self.record.offset() >= CHECKPOINT {
            self.checkpoint()?;
            self.look_at_room()?;
        }
        Ok(())
    }

    /// Ends the request: everything that was written is durable, and published if it was the last byte.
    pub fn end(mut self) -> Result<Record, UploadError> {
        self.flush()?;
        if self.offset != self.record.offset() {
            self.checkpoint()?;
        }
        if self.record.remaining() > 0 {
            return Ok(self.record.clone());
        }
        let hashes = std::mem::take(&mut self.hashes);
        // Under the lock: until the record names the blob, a look for files without a name must not see it.
        let mut state = self.uploads.lock();
        let completed = self.uploads.complete(&mut self.record, hashes);
        let sums = self.uploads.sums(&self.record);
        if let Some(entry) = state.images.get_mut(&self.record.key) {
            entry.record = self.record.clone();
            entry.sums = sums?;
        }
        drop(state);
        completed?;
        self.uploads.tell();
        Ok(self.record.clone())
    }

    /// Writes what was gathered; zeros stay holes, for the file is never longer than what was written.
    fn flush(&mut self) -> io::Result<()> {
        self.hashes.update(&self.gathered);
        let mut at = self.offset;
        let mut run: Option<(u64, usize, usize)> = None;
        for (index, piece) in self.gathered.chunks(HOLE).enumerate() {
            let start = index * HOLE;
            if piece.iter().all(|byte| *byte == 0) {
                self.write_run(run.take())?;
            } else {
                let (from, first, _) = run.unwrap_or((at, start, start));
                run = Some((from, first, start + piece.len()));
            }
            at += piece.len() as u64;
        }
        self.write_run(run)?;
        self.offset = at;
        self.gathered.clear();
        Ok(())
    }

    fn write_run(&self, run: Option<(u64, usize, usize)>) -> io::Result<()> {
        let Some((at, start, end)) = run else { return Ok(()) };
        self.file.file().write_all_at(&self.gathered[start..end], at)
    }

    /// First the bytes, then the record that says that they are there.
    fn checkpoint(&mut self) -> io::Result<()> {
        self.file.set_len(self.offset)?;
        self.file.sync_data()?;
        self.record.checkpoint = Checkpoint { offset: self.offset, hashes: self.hashes.save() };
        self.record.touched = secs(SystemTime::now());
        self.uploads.keep(&self.record)?;
        if let Some(entry) = self.uploads.lock().images.get_mut(&self.record.key) {
            entry.record = self.record.clone();
        }
        Ok(())
    }

    /// Other writers may have filled the disk since the image was announced.
    fn look_at_room(&self) -> Result<(), UploadError> {
        let storage = self.uploads.storage()?;
        let (free, reserve) = (storage.free_bytes, storage.reserve_bytes);
        if free < reserve {
            return Err(NoRoom::Disk { free, reserve, promised: 0, wanted: self.record.remaining() }.into());
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(entry) = self.uploads.lock().images.get_mut(&self.record.key) {
            entry.busy = false;
        }
    }
}
