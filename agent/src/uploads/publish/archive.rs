//! Container images in one file: an OCI layout in a tar archive, or what `docker save` writes.
//!
//! The archive stays where it is; only its list of files, manifests and nothing of its layers is held in memory.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use agent_api::release::Digest;
use flate2::read::GzDecoder;
use fs_err::os::unix::fs::OpenOptionsExt;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// Most files in an archive, and most bytes of a manifest or index in it.
const MOST_FILES: usize = 100_000;
const MOST_MANIFEST: u64 = 4 * 1024 * 1024;
/// Indexes in indexes.
const DEEPEST: usize = 4;

pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

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

/// Where bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) at: u64,
    pub(super) size: u64,
}

/// A blob to push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) digest: Digest,
    pub(super) section: Section,
}

/// A manifest to push after its blobs and the manifests it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) media_type: String,
    pub(super) bytes: Vec<u8>,
    pub(super) blobs: Vec<Blob>,
    pub(super) children: Vec<Manifest>,
}

/// An image of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// Names that the archive gives it, such as `docker.io/library/nginx:1.2`.
    pub(super) names: Vec<String>,
    pub(super) manifest: Manifest,
}

/// An open archive.
pub(super) struct Archive {
    pub(super) file: fs_err::File,
    sections: BTreeMap<String, Section>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: Digest,
    size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct OciManifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Archive {
    /// Lists what is in the archive at `path`. A gzip-compressed one is unpacked into a file without a name beside it,
    /// of at most `most` bytes.
    pub(super) fn open(path: &Path, most: u64) -> Result<Self, ArchiveError> {
        let mut file = fs_err::File::open(path)?;
        let mut magic = [0; 2];
        if file.read(&mut magic)? == 2 && magic == [0x1F, 0x8B] {
            file = unpack(file, path, most)?;
        }
        file.rewind()?;
        let sections = sections(&file)?;
        Ok(Self { file, sections })
    }

    /// The images in it.
    pub(super) fn images(&self) -> Result<Vec<Image>, ArchiveError> {
        if self.sections.contains_key("index.json") {
            self.oci_images()
        } else if self.sections.contains_key("manifest.json") {
            self.saved_images()
        } else {
            Err(ArchiveError::Shape("it has neither index.json nor manifest.json".to_owned()))
        }
    }

    fn oci_images(&self) -> Result<Vec<Image>, ArchiveError> {
        let index: Index = self.json("index.json")?;
        let mut images: Vec<(Digest, Image)> = Vec::new();
        for descriptor in &index.manifests {
            let names = names_of(descriptor);
            if let Some((_, image)) = images.iter_mut().find(|(digest, _)| *digest == descriptor.digest) {
                image.names.extend(names);
                continue;
            }
            let manifest = self.manifest(descriptor, 0)?;
            images.push((descriptor.digest.clone(), Image { names, manifest }));
        }
        Ok(images.into_iter().map(|(_, image)| image).collect())
    }

    fn manifest(&self, descriptor: &Descriptor, depth: usize) -> Result<Manifest, ArchiveError> {
        let path = blob_path(&descriptor.digest);
        let bytes = self.read(&path)?;
        let parse = |error| ArchiveError::Json(path.clone(), error);
        let found: serde_json::Value = serde_json::from_slice(&bytes).map_err(parse)?;
        let media_type = match found["mediaType"].as_str() {
            Some(told) => told.to_owned(),
            None if !descriptor.media_type.is_empty() => descriptor.media_type.clone(),
            None => OCI_MANIFEST.to_owned(),
        };
        if media_type == OCI_INDEX || media_type == DOCKER_LIST {
            if depth == DEEPEST {
                return Err(ArchiveError::Shape("indexes are in indexes more than four deep".to_owned()));
            }
            let index: Index = serde_json::from_value(found).map_err(parse)?;
            return self.index(media_type, bytes, &index, depth);
        }
        let manifest: OciManifest = serde_json::from_value(found).map_err(parse)?;
        let blobs = std::iter::once(&manifest.config).chain(&manifest.layers);
        let blobs = blobs.map(|blob| self.blob(blob)).collect::<Result<Vec<_>, _>>()?;
        Ok(Manifest { media_type, bytes, blobs, children: Vec::new() })
    }

    /// An index, or the one platform of it that is in the archive: a registry takes no index with gaps.
    fn index(&self, media_type: String, bytes: Vec<u8>, index: &Index, depth: usize) -> Result<Manifest, ArchiveError> {
        let is_here = |child: &&Descriptor| self.sections.contains_key(&blob_path(&child.digest));
        let here: Vec<&Descriptor> = index.manifests.iter().filter(is_here).collect();
        let mut children = here.iter().map(|child| self.manifest(child, depth + 1)).collect::<Result<Vec<_>, _>>()?;
        if children.len() == index.manifests.len() {
            return Ok(Manifest { media_type, bytes, blobs: Vec::new(), children });
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
        let saved: Vec<Saved> = self.json("manifest.json")?;
        saved.into_iter().map(|saved| self.saved_image(saved)).collect()
    }

    /// `docker save` keeps no manifest: one is made, with the layers as they are, which is as its config has them.
    fn saved_image(&self, saved: Saved) -> Result<Image, ArchiveError> {
        let config = self.hashed(&saved.config)?;
        let layers = saved.layers.iter().map(|layer| self.hashed(layer)).collect::<Result<Vec<_>, _>>()?;
        let told = |kind: &str, blob: &Blob| json!({"mediaType": kind, "digest": blob.digest.to_string(), "size": blob.section.size});
        let mut kinds = Vec::new();
        for layer in &layers {
            kinds.push(if self.is_gzip(layer.section)? { format!("{OCI_LAYER}+gzip") } else { OCI_LAYER.to_owned() });
        }
        let listed: Vec<_> = layers.iter().zip(&kinds).map(|(layer, kind)| told(kind, layer)).collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": told(OCI_CONFIG, &config), "layers": listed,
        });
        let bytes = manifest.to_string().into_bytes();
        let blobs = std::iter::once(config).chain(layers).collect();
        let manifest = Manifest { media_type: OCI_MANIFEST.to_owned(), bytes, blobs, children: Vec::new() };
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
        let mut hasher = Sha256::new();
        let mut reader = self.reader(section)?;
        let mut piece = vec![0; 64 * 1024];
        loop {
            match reader.read(&mut piece)? {
                0 => break,
                read => hasher.update(&piece[..read]),
            }
        }
        let digest = Digest::from_hex(&hex::encode(hasher.finalize())).map_err(io::Error::other)?;
        Ok(Blob { digest, section })
    }

    /// The bytes of a section, with a position of its own.
    pub(super) fn reader(&self, section: Section) -> io::Result<SectionReader> {
        Ok(SectionReader { file: self.file.file().try_clone()?, at: section.at, left: section.size })
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

/// A part of a file, read at its own position: others may read the same file.
pub(super) struct SectionReader {
    file: std::fs::File,
    at: u64,
    left: u64,
}

impl Read for SectionReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let most = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut into[..most], self.at)?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

fn names_of(descriptor: &Descriptor) -> Vec<String> {
    let keys = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
    keys.into_iter().find_map(|key| descriptor.annotations.get(key).cloned()).into_iter().collect()
}

fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
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
fn sections(file: &fs_err::File) -> Result<BTreeMap<String, Section>, ArchiveError> {
    let shape = |error: io::Error| ArchiveError::Shape(error.to_string());
    let mut archive = tar::Archive::new(io::BufReader::new(file.file()));
    let (mut sections, mut links) = (BTreeMap::new(), BTreeMap::new());
    for entry in archive.entries_with_seek().map_err(shape)? {
        let entry = entry.map_err(shape)?;
        let name = entry.path().map_err(shape)?.to_string_lossy().into_owned();
        if let Some(target) = entry.link_name().map_err(shape)? {
            let folder = if entry.header().entry_type().is_symlink() { format!("{name}/..") } else { String::new() };
            links.insert(normal(&name), normal(&format!("{folder}/{}", target.to_string_lossy())));
        } else if entry.header().entry_type().is_file() {
            let section = Section { at: entry.raw_file_position(), size: entry.size() };
            sections.insert(normal(&name), section);
        }
        if sections.len() + links.len() > MOST_FILES {
            return Err(ArchiveError::Shape(format!("it has more than {MOST_FILES} files")));
        }
    }
    for (name, target) in links {
        if let Some(section) = sections.get(&target).copied() {
            sections.insert(name, section);
        }
    }
    Ok(sections)
}

fn unpack(mut packed: fs_err::File, path: &Path, most: u64) -> Result<fs_err::File, ArchiveError> {
    packed.seek(SeekFrom::Start(0))?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let mut options = fs_err::OpenOptions::new();
    let mut file = options.read(true).write(true).custom_flags(libc::O_TMPFILE).open(dir)?;
    let mut plain = GzDecoder::new(io::BufReader::new(packed)).take(most);
    let size = io::copy(&mut plain, &mut file)?;
    if size == most {
        return Err(ArchiveError::Shape(format!("it unpacks to more than {most} bytes, for which there is no room")));
    }
    Ok(file)
}
