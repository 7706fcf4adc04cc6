//! Indexes, manifests and configurations of images: OCI's and Docker's (schema 2), read and checked without any I/O.

use agent_api::release::Digest;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::lock::images::{LockedImage, Piece};
use crate::store::hash;

/// The platform of every box.
const PLATFORM: (&str, &str) = ("linux", "amd64");

/// Media type of an index (OCI image specification, media-types.md).
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of a manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Docker's index (image manifest version 2, schema 2).
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's manifest.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Configurations of images; anything else is another kind of artifact.
const CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// How the bytes of a layer are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Plain tar.
    Tar,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

impl Packing {
    /// The packing of a layer of that media type; `None`: no layer that can be carried.
    pub fn of(media_type: &str) -> Option<Self> {
        match media_type {
            "application/vnd.oci.image.layer.v1.tar" | "application/vnd.docker.image.rootfs.diff.tar" => {
                Some(Self::Tar)
            }
            "application/vnd.oci.image.layer.v1.tar+gzip" | "application/vnd.docker.image.rootfs.diff.tar.gzip" => {
                Some(Self::Gzip)
            }
            "application/vnd.oci.image.layer.v1.tar+zstd" | "application/vnd.docker.image.rootfs.diff.tar.zstd" => {
                Some(Self::Zstd)
            }
            _ => None,
        }
    }
}

/// What a reference may stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// Manifests of several platforms.
    Index(Vec<Entry>),
    /// One platform's image.
    Manifest(Parts),
}

/// Configuration and layers of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Configuration.
    pub config: Piece,
    /// Layers, bottom first.
    pub layers: Vec<Piece>,
}

/// A manifest of an index.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its media type.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// What it is for.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// What tools say of it.
    #[serde(default)]
    pub annotations: std::collections::BTreeMap<String, String>,
}

impl Entry {
    /// As a blob.
    pub fn piece(&self) -> Piece {
        Piece { media_type: self.media_type.clone(), digest: self.digest.clone(), size: self.size }
    }
}

/// A platform.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// `linux`.
    #[serde(default)]
    pub os: String,
    /// `amd64`.
    #[serde(default)]
    pub architecture: String,
    /// `v2` and later need newer processors.
    #[serde(default)]
    pub variant: Option<String>,
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

/// Index and manifest together: descriptors may have more keys than are read here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    schema_version: u32,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<Vec<Entry>>,
    #[serde(default)]
    config: Option<Entry>,
    #[serde(default)]
    layers: Option<Vec<Entry>>,
}

/// The media type and content of an index or a manifest. One that does not say its type is OCI's.
pub fn read(bytes: &[u8]) -> Result<(String, Document)> {
    let wire: Wire = serde_json::from_slice(bytes).context("it is not an index or a manifest")?;
    ensure!(
        wire.schema_version == 2,
        "it is a manifest of schema {}, 2 is expected\nhint: push the image anew with a tool of this decade",
        wire.schema_version
    );
    let media_type = wire.media_type.clone();
    let (default, document) = match wire {
        Wire { manifests: Some(manifests), .. } => (OCI_INDEX, Document::Index(manifests)),
        Wire { config: Some(config), layers: Some(layers), .. } => {
            let layers = layers.iter().map(Entry::piece).collect();
            (OCI_MANIFEST, Document::Manifest(Parts { config: config.piece(), layers }))
        }
        _ => bail!("it is neither an index nor a manifest of an image"),
    };
    let media_type = media_type.unwrap_or_else(|| default.to_owned());
    let known = match document {
        Document::Index(_) => [OCI_INDEX, DOCKER_LIST],
        Document::Manifest(_) => [OCI_MANIFEST, DOCKER_MANIFEST],
    };
    ensure!(known.contains(&media_type.as_str()), "its media type is `{media_type}`, one of {known:?} is expected");
    Ok((media_type, document))
}

/// The manifest for the box among those of an index: the one that every processor runs, if there are several.
pub fn for_the_box(entries: &[Entry]) -> Result<&Entry> {
    let fits = |entry: &&Entry| {
        entry.platform.as_ref().is_some_and(|platform| (&*platform.os, &*platform.architecture) == PLATFORM)
    };
    let needs = |entry: &&Entry| entry.platform.as_ref().and_then(|platform| platform.variant.clone());
    entries.iter().filter(fits).min_by_key(needs).with_context(|| {
        let platforms: Vec<_> =
            entries.iter().filter_map(|entry| entry.platform.as_ref()).map(ToString::to_string).collect();
        let (os, architecture) = PLATFORM;
        format!("it has no image for {os}/{architecture}, only for {}", platforms.join(", "))
    })
}

/// What a configuration says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Config {
    os: String,
    architecture: String,
    rootfs: RootFs,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct RootFs {
    diff_ids: Vec<Digest>,
}

impl Config {
    /// Reads a configuration; one for another platform is an error.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let config: Self = serde_json::from_slice(bytes).context("its configuration cannot be read")?;
        let (os, architecture) = (&*config.os, &*config.architecture);
        ensure!(
            (os, architecture) == PLATFORM,
            "it is an image for {os}/{architecture}, {}/{} is expected",
            PLATFORM.0,
            PLATFORM.1
        );
        Ok(config)
    }

    /// What the unpacked layers hash to, bottom first.
    pub fn diff_ids(&self) -> &[Digest] {
        &self.rootfs.diff_ids
    }
}

/// Reads an image from its top down to its configuration. `fetch` brings the bytes of a manifest or configuration, which
/// need not have been checked.
pub fn resolve(top: &[u8], fetch: &mut dyn FnMut(&Piece) -> Result<Vec<u8>>) -> Result<LockedImage> {
    let mut whole = |piece: &Piece| {
        let bytes = fetch(piece)?;
        let found = (hash::bytes(&bytes), bytes.len() as u64);
        ensure!(
            found == (piece.digest.clone(), piece.size),
            "{} ({} bytes) is expected, and {} ({} bytes) came",
            piece.digest,
            piece.size,
            found.0,
            found.1
        );
        Ok(bytes)
    };
    let (media_type, document) = read(top)?;
    let first = Piece { media_type, digest: hash::bytes(top), size: top.len() as u64 };
    let (index, manifest, parts) = match document {
        Document::Manifest(parts) => (None, first, parts),
        Document::Index(entries) => {
            let entry = for_the_box(&entries)?.piece();
            let (media_type, document) = read(&whole(&entry)?).with_context(|| format!("reading {}", entry.digest))?;
            let Document::Manifest(parts) = document else { bail!("its index names another index") };
            (Some(first), Piece { media_type, ..entry }, parts)
        }
    };
    let kind = &parts.config.media_type;
    ensure!(
        CONFIGS.contains(&kind.as_str()),
        "it is no container image: its configuration is of the type `{kind}`\nhint: other artifacts are carried as \
         `content.files`"
    );
    for layer in &parts.layers {
        let (digest, kind) = (&layer.digest, &layer.media_type);
        ensure!(Packing::of(kind).is_some(), "its layer {digest} is of the type `{kind}`, which cannot be carried");
    }
    let config = Config::read(&whole(&parts.config)?)?;
    let (layers, ids) = (parts.layers.len(), config.diff_ids().len());
    ensure!(layers == ids, "it has {layers} layers, its configuration names {ids}");
    Ok(LockedImage { index, manifest, config: parts.config, layers: parts.layers })
}

/// Whether a media type is that of an index or a manifest.
pub fn is_manifest(media_type: &str) -> bool {
    [OCI_INDEX, OCI_MANIFEST, DOCKER_LIST, DOCKER_MANIFEST].contains(&media_type)
}
