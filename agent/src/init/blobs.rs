//! Blobs of the store that no verity guards: images and files of the content, each against its digest.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

use agent_api::boot::MediumFailure;
use agent_api::release::{Digest, Release};
use fs_err::File;
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use sha2::Digest as _;

/// Bytes of a read, and alignment of its buffer for reading past the page cache.
pub const CHUNK: usize = 256 << 10;
const ALIGNMENT: usize = 4096;
/// How many of the images and files that need a blob a message names.
const MOST_NAMED: usize = 4;

/// A blob, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedBlob {
    /// Digest of its bytes.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
    /// Images and files that need it.
    pub needed_by: Vec<String>,
}

/// Every blob of images and content, each once, in the order of their digests.
pub fn of(release: &Release) -> Vec<WantedBlob> {
    let images = release
        .images
        .iter()
        .flat_map(|image| image.blobs.iter().map(|blob| (blob.clone(), format!("image `{}`", image.reference))));
    let files = release.content.iter();
    let files = files.filter_map(|file| Some((file.blob()?, format!("file `{}`", file.path))));
    let mut found: BTreeMap<Digest, WantedBlob> = BTreeMap::new();
    for (blob, owner) in images.chain(files) {
        let fresh = || WantedBlob { digest: blob.digest.clone(), size: blob.size, needed_by: Vec::new() };
        let wanted = found.entry(blob.digest.clone()).or_insert_with(fresh);
        if !wanted.needed_by.contains(&owner) {
            wanted.needed_by.push(owner);
        }
    }
    found.into_values().collect()
}

/// What is wrong with a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobDamage {
    /// First block that cannot be read; 0 if all can be read, and the bytes are wrong.
    pub block: u64,
    /// In words.
    pub found: String,
}

impl WantedBlob {
    /// What needs it, in a few words.
    pub fn names(&self) -> String {
        let names = self.needed_by.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
        match self.needed_by.len() {
            0 => "a file of no release".to_owned(),
            1..=MOST_NAMED => names,
            more => format!("{names} and {} more", more - MOST_NAMED),
        }
    }

    /// The damage as an event tells it. `medium` is the device.
    pub fn failure(&self, wrong: &BlobDamage, medium: &str) -> MediumFailure {
        let names = self.names();
        MediumFailure {
            what: MediumFailure::of_blob(&self.digest),
            device: medium.to_owned(),
            block: wrong.block,
            message: format!("{names} on {medium} is damaged: {} {}", self.digest, wrong.found),
        }
    }

    /// Reads the blob in `store`, telling how many bytes at a time.
    pub fn check(&self, store: &Path, reader: &mut Reader, read: &mut dyn FnMut(u64)) -> Result<(), BlobDamage> {
        let wrong = |block, found: String| Err(BlobDamage { block, found });
        let path = store.join(self.digest.hex());
        let (mut file, direct) = match open(&path) {
            Ok(opened) => opened,
            Err(error) => return wrong(0, format!("cannot be opened: {}", error.kind())),
        };
        let (mut hash, mut length) = (sha2::Sha256::new(), 0_u64);
        loop {
            match reader.next(&mut file) {
                Ok([]) => break,
                Ok(bytes) => {
                    hash.update(bytes);
                    length += bytes.len() as u64;
                    read(bytes.len() as u64);
                }
                Err(error) => {
                    return wrong(length / ALIGNMENT as u64, format!("cannot be read at byte {length}: {error}"));
                }
            }
            if !direct {
                // What was read for this does not have to stay in memory.
                let _ = fadvise(file.file(), 0, std::num::NonZeroU64::new(length), Advice::DontNeed);
            }
        }
        let found = hex::encode(hash.finalize());
        match (length == self.size, found == self.digest.hex()) {
            (true, true) => Ok(()),
            (false, _) => wrong(0, format!("has {length} bytes instead of {}", self.size)),
            (true, false) => wrong(0, format!("has other bytes: their digest is {}...", &found[..16])),
        }
    }
}

/// Reads past the page cache if the file system can do that; returns whether it can.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = |more| Ok(File::from_parts(rustix::fs::open(path, flags | more, Mode::empty())?.into(), path));
    match opened(OFlags::DIRECT) {
        Ok(file) => Ok((file, true)),
        Err(_) => opened(OFlags::empty()).map(|file| (file, false)),
    }
}

/// A buffer for reading past the page cache.
pub struct Reader {
    buffer: Vec<u8>,
    aligned: usize,
}

impl Default for Reader {
    fn default() -> Self {
        let buffer = vec![0_u8; CHUNK + ALIGNMENT];
        let aligned = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { buffer, aligned }
    }
}

impl Reader {
    /// The next bytes of the file; none at its end.
    fn next(&mut self, file: &mut File) -> io::Result<&[u8]> {
        let into = &mut self.buffer[self.aligned..self.aligned + CHUNK];
        loop {
            match file.file().read(into) {
                Ok(read) => return Ok(&self.buffer[self.aligned..self.aligned + read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use agent_api::release::{Blob, ContentFile, ContentKind, Digest, Image, InLayer};

    use super::{CHUNK, Reader, WantedBlob, of};
    use crate::fixtures::release;

    /// Blobs of many sizes, some longer than a read, in `store`.
    fn blobs(store: &Path, count: usize) -> Vec<Blob> {
        let one = |n: usize| {
            let size = [1, 4095, 4096, 4097, CHUNK - 1, CHUNK + 1, 3 * CHUNK][n % 7];
            let bytes: Vec<u8> = (0..size).map(|at| u8::try_from((at * 7 + n) % 253).unwrap_or(0)).collect();
            let digest = Digest::of(&bytes);
            fs_err::write(store.join(digest.hex()), &bytes).expect("a blob");
            Blob { digest, size: bytes.len() as u64 }
        };
        (0..count).map(one).collect()
    }

    fn damaged<'a>(store: &Path, wanted: &'a [WantedBlob]) -> Vec<(&'a WantedBlob, String)> {
        let mut reader = Reader::default();
        let check = |one: &'a WantedBlob| {
            let mut read = 0;
            let wrong = one.check(store, &mut reader, &mut |bytes| read += bytes).err()?;
            Some((one, one.failure(&wrong, "sda3").message))
        };
        wanted.iter().filter_map(check).collect()
    }

    #[test]
    fn each_of_a_hundred_flipped_bytes_is_found_and_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = dir.path();
        let all = blobs(store, 150);
        let mut release = release();
        let image = |(n, blobs): (usize, &[Blob])| Image {
            reference: format!("docker.io/library/app{n}:1"),
            index: None,
            inner: Vec::new(),
            manifest: blobs[0].digest.clone(),
            blobs: blobs.to_vec(),
        };
        release.images = all[..75].chunks(5).enumerate().map(image).collect();
        let file = |blob: &Blob| ContentFile::stored(format!("files/{}", blob.digest.hex()), ContentKind::File, blob);
        release.content = all[75..].iter().map(file).collect();
        // Its bytes are a layer's, which verity reads.
        let (layer, path) = ("kubernetes".to_owned(), "usr/bin/kubelet".to_owned());
        let kubelet = Blob { digest: Digest::of("kubelet"), size: 7 };
        let kubelet = ContentFile::stored("kubernetes/v1.36.4/kubelet", ContentKind::Kubernetes, &kubelet);
        release.content.push(ContentFile { within: Some(InLayer { layer, path }), ..kubelet });
        let wanted = of(&release);
        assert_eq!(damaged(store, &wanted), [], "nothing is damaged yet");

        let mut flipped = BTreeSet::new();
        while flipped.len() < 100 {
            let blob = &all[rand::random_range(0..all.len())];
            if !flipped.insert(blob.digest.clone()) {
                continue;
            }
            let path = store.join(blob.digest.hex());
            let mut bytes = fs_err::read(&path).expect("a blob");
            let at = rand::random_range(0..bytes.len());
            bytes[at] ^= 1 << rand::random_range(0..8);
            fs_err::write(&path, bytes).expect("damaged");
        }
        let found = damaged(store, &wanted);
        let digests: BTreeSet<_> = found.iter().map(|(one, _)| one.digest.clone()).collect();
        assert_eq!(digests, flipped);
        for (one, message) in found {
            assert!(one.needed_by.iter().all(|owner| message.contains(owner)), "{message}");
        }
    }

    #[test]
    fn a_blob_is_good_only_whole_and_unchanged_and_every_byte_read_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let digest = Digest::of(b"abc");
        let blob = WantedBlob { digest, size: 3, needed_by: Vec::new() };
        for (bytes, good) in [(&b"abc"[..], true), (b"abd", false), (b"ab", false)] {
            fs_err::write(dir.path().join(blob.digest.hex()), bytes).expect("written");
            let mut seen = 0;
            let checked = blob.check(dir.path(), &mut Reader::default(), &mut |bytes| seen += bytes);
            assert_eq!(checked.is_ok(), good);
            assert_eq!(seen, bytes.len() as u64);
        }
    }

    #[test]
    fn a_blob_that_is_cut_off_or_gone_is_told_and_shared_ones_are_read_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let all = blobs(dir.path(), 2);
        let mut release = release();
        let image = |name: &str| Image {
            reference: name.to_owned(),
            index: None,
            inner: Vec::new(),
            manifest: all[0].digest.clone(),
            blobs: all.clone(),
        };
        release.images = ["a/a:1", "a/b:1"].map(image).to_vec();
        let wanted = of(&release);
        assert_eq!(wanted.len(), 2);
        fs_err::write(dir.path().join(all[1].digest.hex()), b"short").expect("cut off");
        fs_err::remove_file(dir.path().join(all[0].digest.hex())).expect("gone");
        let messages: Vec<String> = damaged(dir.path(), &wanted).into_iter().map(|(_, message)| message).collect();
        assert!(messages.iter().all(|message| message.starts_with("image `a/a:1`, image `a/b:1` on sda3")));
        assert!(messages.iter().any(|message| message.ends_with("has 5 bytes instead of 4095")), "{messages:?}");
        assert!(messages.iter().any(|message| message.ends_with("cannot be opened: entity not found")), "{messages:?}");
    }
}
