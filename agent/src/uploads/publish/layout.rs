//! Container images in one file: an OCI layout in a tar archive, or what `docker save` writes.
//!
//! Whoever wrote the archive chooses nothing of what its reading takes: names, manifests, layers and images are counted,
//! and each layer is hashed once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use agent_api::oci::{self, Descriptor, ImageIndex, ImageManifest, Saved, blob_path};
use agent_api::release::Digest;
use flate2::read::MultiGzDecoder;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::archive::{Archive, Blob, Image, Manifest, Section, SectionReader};
use crate::tarball::{Heads, Seeking, TarError};

/// Most bytes of a manifest or index, and of all of them together: each is read as often as it is named.
const MOST_MANIFEST: u64 = 4 * 1024 * 1024;
const MOST_MANIFESTS: u64 = 16 * 1024 * 1024;
/// Most manifests and indexes, each counted as often as it is named.
const MOST_IMAGES: usize = 1000;
/// Most layers of an image (Linux' overlayfs takes 500), and of all images together.
const MOST_LAYERS: usize = 500;
const MOST_BLOBS: usize = 20_000;
/// Most names of images.
const MOST_NAMES: usize = 1000;
/// Longest name: repository and tag, with the registry's host before it.
const LONGEST_NAME: usize = 1024;
/// Indexes in indexes.
const DEEPEST: usize = 4;

/// How files begin that other programs than gzip have packed.
const UNREAD: [(&[u8], &str); 5] = [
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"PK\x03\x04", "zip"),
];

/// Why a file is no archive of images.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArchiveError {
    #[error("it is no docker or OCI archive: {0}")]
    Shape(String),
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("`{0}` in it is not JSON of the right shape: {1}")]
    Json(String, serde_json::Error),
    #[error("`{0}` is named in it and not there")]
    Missing(String),
}

impl From<TarError> for ArchiveError {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Io(error) => Self::Io(error),
            error @ (TarError::Shape(_) | TarError::Cut) => Self::Shape(error.to_string()),
        }
    }
}

/// An archive whose files are listed.
pub(super) struct Layout {
    archive: Archive,
    sections: BTreeMap<String, Section>,
    /// What was read so far.
    manifests: Cell<usize>,
    bytes: Cell<u64>,
    blobs: Cell<usize>,
    /// Digests by place.
    hashed: RefCell<BTreeMap<u64, Digest>>,
}

impl Layout {
    /// Lists what is in the archive.
    pub(super) fn open(mut file: File) -> Result<Self, ArchiveError> {
        file.rewind()?;
        let sections = sections(&file)?;
        Ok(Self {
            archive: Archive::new(file),
            sections,
            manifests: Cell::default(),
            bytes: Cell::default(),
            blobs: Cell::default(),
            hashed: RefCell::default(),
        })
    }

    /// The images in it.
    pub(super) fn images(&self) -> Result<Vec<Image>, ArchiveError> {
        let images = if self.sections.contains_key(oci::LAYOUT_FILE) {
            self.oci_images()?
        } else if self.sections.contains_key(oci::SAVED_FILE) {
            self.saved_images()?
        } else {
            return Err(ArchiveError::Shape("it has neither index.json nor manifest.json".to_owned()));
        };
        let names = || images.iter().flat_map(|image| &image.names);
        if names().count() > MOST_NAMES {
            return Err(ArchiveError::Shape(format!("its images have more than {MOST_NAMES} names")));
        }
        match names().map(String::len).max() {
            Some(longest) if longest > LONGEST_NAME => {
                Err(ArchiveError::Shape(format!("an image's name has {longest} bytes, at most {LONGEST_NAME} fit")))
            }
            _ => Ok(images),
        }
    }

    /// Counts a manifest of so many bytes with so many blobs.
    fn count(&self, bytes: u64, blobs: usize) -> Result<(), ArchiveError> {
        self.manifests.set(self.manifests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        self.blobs.set(self.blobs.get() + blobs);
        let too_many = |what: &str| Err(ArchiveError::Shape(format!("it has more {what}")));
        if self.manifests.get() > MOST_IMAGES {
            return too_many(&format!("than {MOST_IMAGES} images and indexes"));
        }
        if self.bytes.get() > MOST_MANIFESTS {
            return too_many(&format!("than {MOST_MANIFESTS} bytes of manifests and indexes"));
        }
        if blobs > MOST_LAYERS + 1 {
            return too_many(&format!("than {MOST_LAYERS} layers in one image"));
        }
        if self.blobs.get() > MOST_BLOBS {
            return too_many(&format!("than {MOST_BLOBS} layers"));
        }
        Ok(())
    }

    fn oci_images(&self) -> Result<Vec<Image>, ArchiveError> {
        let index: ImageIndex = self.json(oci::LAYOUT_FILE)?;
        let mut images: Vec<(Digest, Image)> = Vec::new();
        for descriptor in &index.manifests {
            let names = descriptor.names().take(1).map(str::to_owned);
            if let Some((_, image)) = images.iter_mut().find(|(digest, _)| *digest == descriptor.digest) {
                image.names.extend(names);
                continue;
            }
            let manifest = self.manifest(descriptor, 0)?;
            images.push((descriptor.digest.clone(), Image { names: names.collect(), manifest }));
        }
        Ok(images.into_iter().map(|(_, image)| image).collect())
    }

    fn manifest(&self, descriptor: &Descriptor, depth: usize) -> Result<Manifest, ArchiveError> {
        let path = blob_path(&descriptor.digest);
        let bytes = self.read(&path)?;
        let size = bytes.len() as u64;
        let parse = |error| ArchiveError::Json(path.clone(), error);
        let found: serde_json::Value = serde_json::from_slice(&bytes).map_err(parse)?;
        let text = String::from_utf8(bytes).map_err(|_| ArchiveError::Shape(format!("`{path}` is no text")))?;
        let media_type = match found["mediaType"].as_str() {
            Some(told) => told.to_owned(),
            None if !descriptor.media_type.is_empty() => descriptor.media_type.clone(),
            None if found.get("manifests").is_some() => oci::INDEX.to_owned(),
            None => oci::MANIFEST.to_owned(),
        };
        if oci::is_index(&media_type) {
            if depth == DEEPEST {
                return Err(ArchiveError::Shape("indexes are in indexes more than four deep".to_owned()));
            }
            let index: ImageIndex = serde_json::from_value(found).map_err(parse)?;
            self.count(size, 0)?;
            return self.index(media_type, text, &index, depth);
        }
        let manifest: ImageManifest = serde_json::from_value(found).map_err(parse)?;
        self.count(size, manifest.layers.len() + 1)?;
        let blobs = std::iter::once(&manifest.config).chain(&manifest.layers);
        let blobs = blobs.map(|blob| self.blob(blob)).collect::<Result<Vec<_>, _>>()?;
        Ok(Manifest { media_type, text, blobs, children: Vec::new() })
    }

    /// An index, or the one platform of it that is in the archive: a registry takes no index with gaps.
    fn index(
        &self,
        media_type: String,
        text: String,
        index: &ImageIndex,
        depth: usize,
    ) -> Result<Manifest, ArchiveError> {
        let is_here = |child: &&Descriptor| self.sections.contains_key(&blob_path(&child.digest));
        let here: Vec<&Descriptor> = index.manifests.iter().filter(is_here).collect();
        let mut children = here.iter().map(|child| self.manifest(child, depth + 1)).collect::<Result<Vec<_>, _>>()?;
        if children.len() == index.manifests.len() {
            return Ok(Manifest { media_type, text, blobs: Vec::new(), children });
        }
        let lost = index.manifests.iter().find(|child| !is_here(child));
        match (children.len(), lost) {
            (1, _) => Ok(children.remove(0)),
            (_, Some(lost)) => Err(ArchiveError::Missing(blob_path(&lost.digest))),
            (_, None) => Err(ArchiveError::Shape("an index names nothing".to_owned())),
        }
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Blob, ArchiveError> {
        let path = blob_path(&descriptor.digest);
        let section = *self.sections.get(&path).ok_or_else(|| ArchiveError::Missing(path.clone()))?;
        if section.size != descriptor.size {
            let told = format!("`{path}` has {} bytes, its descriptor says {}", section.size, descriptor.size);
            return Err(ArchiveError::Shape(told));
        }
        Ok(Blob { digest: descriptor.digest.clone(), section })
    }

    fn saved_images(&self) -> Result<Vec<Image>, ArchiveError> {
        let saved: Vec<Saved> = self.json(oci::SAVED_FILE)?;
        saved.into_iter().map(|saved| self.saved_image(saved)).collect()
    }

    /// `docker save` keeps no manifest: one is made, with the layers as they are, which is as its config has them.
    fn saved_image(&self, saved: Saved) -> Result<Image, ArchiveError> {
        let config = self.hashed(&saved.config)?;
        let layers = saved.layers.iter().map(|layer| self.hashed(layer)).collect::<Result<Vec<_>, _>>()?;
        let told = |kind: &str, blob: &Blob| json!({"mediaType": kind, "digest": blob.digest.to_string(), "size": blob.section.size});
        let mut kinds = Vec::new();
        for layer in &layers {
            kinds.push(if self.is_gzip(layer.section)? {
                format!("{}+gzip", oci::LAYER)
            } else {
                oci::LAYER.to_owned()
            });
        }
        let listed: Vec<_> = layers.iter().zip(&kinds).map(|(layer, kind)| told(kind, layer)).collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": oci::MANIFEST, "config": told(oci::CONFIG, &config), "layers": listed,
        });
        let text = manifest.to_string();
        self.count(text.len() as u64, layers.len() + 1)?;
        let blobs = std::iter::once(config).chain(layers).collect();
        let manifest = Manifest { media_type: oci::MANIFEST.to_owned(), text, blobs, children: Vec::new() };
        Ok(Image { names: saved.repo_tags.unwrap_or_default(), manifest })
    }

    fn is_gzip(&self, section: Section) -> io::Result<bool> {
        let mut magic = [0; 2];
        let read = self.reader(section)?.read(&mut magic)?;
        Ok(read == 2 && magic == [0x1F, 0x8B])
    }

    fn hashed(&self, name: &str) -> Result<Blob, ArchiveError> {
        let name = normal(name);
        let section = *self.sections.get(&name).ok_or(ArchiveError::Missing(name))?;
        if let Some(digest) = self.hashed.borrow().get(&section.at).cloned() {
            return Ok(Blob { digest, section });
        }
        let mut hasher = Sha256::new();
        let mut reader = self.reader(section)?;
        let mut piece = vec![0; 64 * 1024];
        loop {
            match reader.read(&mut piece)? {
                0 => break,
                read => hasher.update(&piece[..read]),
            }
        }
        let digest = Digest::from_sha256(hasher.finalize().into());
        self.hashed.borrow_mut().insert(section.at, digest.clone());
        Ok(Blob { digest, section })
    }

    fn reader(&self, section: Section) -> io::Result<SectionReader> {
        self.archive.reader(section)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, ArchiveError> {
        let section = *self.sections.get(name).ok_or_else(|| ArchiveError::Missing(name.to_owned()))?;
        if section.size > MOST_MANIFEST {
            return Err(ArchiveError::Shape(format!("`{name}` has {} bytes, more than any manifest", section.size)));
        }
        let mut bytes = Vec::new();
        self.reader(section)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, ArchiveError> {
        serde_json::from_slice(&self.read(name)?).map_err(|error| ArchiveError::Json(name.to_owned(), error))
    }
}

fn normal(path: &str) -> String {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    parts
        .fold(Vec::new(), |mut parts, part| {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
            parts
        })
        .join("/")
}

/// Where each file of a tar archive lies. Links lead to the file they mean.
fn sections(file: &File) -> Result<BTreeMap<String, Section>, ArchiveError> {
    let mut heads = Heads::new(Seeking::new(file)?);
    let (mut sections, mut links) = (BTreeMap::new(), BTreeMap::new());
    while let Some(member) = heads.next_member()? {
        if let Some(target) = member.link {
            let folder = if member.kind.is_symlink() { format!("{}/..", member.name) } else { String::new() };
            links.insert(normal(&member.name), normal(&format!("{folder}/{target}")));
        } else if member.kind.is_file() {
            sections.insert(normal(&member.name), Section { at: member.at, size: member.size });
        }
    }
    for (name, target) in links {
        if let Some(section) = sections.get(&target).copied() {
            sections.insert(name, section);
        }
    }
    Ok(sections)
}

/// Unpacks a gzip-compressed archive into a file that was made for it, of at most `most` bytes; tells whether it is one.
pub(super) fn unpack(packed: &mut File, into: &mut impl Write, most: u64) -> Result<bool, ArchiveError> {
    let mut magic = Vec::new();
    Read::by_ref(packed).take(6).read_to_end(&mut magic)?;
    packed.seek(SeekFrom::Start(0))?;
    if let Some((_, name)) = UNREAD.iter().find(|(start, _)| magic.starts_with(start)) {
        let told = format!("it is packed with {name}, which is not read; hint: send it unpacked, or packed with gzip");
        return Err(ArchiveError::Shape(told));
    }
    if !magic.starts_with(&[0x1F, 0x8B]) {
        return Ok(false);
    }
    let mut plain = MultiGzDecoder::new(io::BufReader::new(packed)).take(most);
    if io::copy(&mut plain, into)? == most {
        return Err(ArchiveError::Shape(format!("it unpacks to {most} bytes or more, for which there is no room")));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use rstest::rstest;

    use super::unpack;

    #[rstest]
    #[case::xz(b"\xfd7zXZ\0\0\0", "packed with xz, which is not read; hint: ")]
    #[case::zstd(b"\x28\xb5\x2f\xfd\0\0", "packed with zstd")]
    #[case::bzip2(b"BZh91AY", "packed with bzip2")]
    #[case::lz4(b"\x04\x22\x4d\x18\0\0", "packed with lz4")]
    #[case::zip(b"PK\x03\x04\0\0", "packed with zip")]
    fn an_archive_that_is_packed_in_another_way_is_refused_in_words(#[case] bytes: &[u8], #[case] expected: &str) {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        file.rewind().expect("rewound");
        let said = unpack(&mut file, &mut Vec::new(), 1000).expect_err("refused").to_string();
        assert!(said.contains(expected), "{said}");
    }

    #[test]
    fn what_was_packed_in_pieces_is_unpacked_whole() {
        let mut file = tempfile::tempfile().expect("a file");
        for piece in ["one ", "two"] {
            let mut gz = flate2::write::GzEncoder::new(&mut file, flate2::Compression::fast());
            gz.write_all(piece.as_bytes()).expect("written");
            gz.finish().expect("packed");
        }
        file.rewind().expect("rewound");
        let mut plain = Vec::new();
        assert!(unpack(&mut file, &mut plain, 1000).expect("read"));
        assert_eq!(plain, b"one two");
    }

    #[test]
    fn a_plain_archive_is_left_as_it_is() {
        for bytes in [&b""[..], b"a", b"./index.json\0"] {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(bytes).expect("written");
            file.rewind().expect("rewound");
            assert!(!unpack(&mut file, &mut Vec::new(), 1000).expect("read"));
        }
    }
}
