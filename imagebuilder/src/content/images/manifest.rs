//! Indexes, manifests and configurations of images: OCI's and Docker's (schema 2), read and checked without any I/O.

use std::collections::BTreeSet;

use agent_api::oci::{self, Descriptor};
use agent_api::release::Digest;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::lock::images::{LockedImage, Piece};
use crate::store::hash;

/// The platform of every box.
const PLATFORM: (&str, &str) = ("linux", "amd64");

/// Configurations of images; anything else is another kind of artifact.
const CONFIGS: [&str; 2] = [oci::CONFIG, "application/vnd.docker.container.image.v1+json"];

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
            oci::LAYER | "application/vnd.docker.image.rootfs.diff.tar" => Some(Self::Tar),
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
    Index(Vec<Descriptor>),
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

/// Index and manifest together: descriptors may have more keys than are read here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    schema_version: u32,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
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
        Wire { manifests: Some(manifests), .. } => (oci::INDEX, Document::Index(manifests)),
        Wire { config: Some(config), layers: Some(layers), .. } => {
            let layers = layers.iter().map(Piece::from).collect();
            (oci::MANIFEST, Document::Manifest(Parts { config: Piece::from(&config), layers }))
        }
        _ => bail!("it is neither an index nor a manifest of an image"),
    };
    let media_type = media_type.unwrap_or_else(|| default.to_owned());
    let known = match document {
        Document::Index(_) => [oci::INDEX, oci::DOCKER_LIST],
        Document::Manifest(_) => [oci::MANIFEST, oci::DOCKER_MANIFEST],
    };
    ensure!(known.contains(&media_type.as_str()), "its media type is `{media_type}`, one of {known:?} is expected");
    Ok((media_type, document))
}

/// Brings the bytes of an index, a manifest or a configuration, checked.
pub type Fetch<'a> = dyn FnMut(&Piece) -> Result<Vec<u8>> + 'a;

/// The way from an index down to the manifest for the box.
struct Way {
    /// Indexes on it.
    inner: Vec<Piece>,
    manifest: Piece,
    parts: Parts,
}

/// How deep indexes may lie in each other.
const DEEPEST: usize = 8;

/// The way to the box's manifest among those of an index: the one that every processor runs, if there are several. An
/// entry that does not say its platform is asked: its index or its configuration says it. `seen` is told all platforms.
fn way_to_the_box(
    entries: &[Descriptor],
    depth: usize,
    fetch: &mut Fetch<'_>,
    seen: &mut BTreeSet<String>,
) -> Result<Option<Way>> {
    ensure!(depth < DEEPEST, "its indexes lie in each other more than {DEEPEST} deep");
    let mut able: Vec<&Descriptor> = entries.iter().filter(|entry| may_be_for_the_box(entry)).collect();
    // What says its platform needs no look; the plainest variant comes first.
    able.sort_by_key(|entry| {
        (entry.platform.is_none(), entry.platform.as_ref().and_then(|platform| platform.variant.clone()))
    });
    seen.extend(entries.iter().filter_map(|entry| entry.platform.as_ref()).map(ToString::to_string));
    for entry in able {
        let piece = Piece::from(entry);
        let (media_type, document) = read(&fetch(&piece)?).with_context(|| format!("reading {}", entry.digest))?;
        let piece = Piece { media_type, ..piece };
        match document {
            Document::Index(inner) => {
                if let Some(mut way) = way_to_the_box(&inner, depth + 1, fetch, seen)? {
                    way.inner.insert(0, piece);
                    return Ok(Some(way));
                }
            }
            Document::Manifest(parts) => {
                let is_image = CONFIGS.contains(&parts.config.media_type.as_str());
                if entry.platform.is_some() {
                    return Ok(Some(Way { inner: Vec::new(), manifest: piece, parts }));
                }
                if !is_image {
                    continue;
                }
                let config = Config::parse(&fetch(&parts.config)?)?;
                if config.is_for_the_box() {
                    return Ok(Some(Way { inner: Vec::new(), manifest: piece, parts }));
                }
                seen.insert(format!("{}/{}", config.os, config.architecture));
            }
        }
    }
    Ok(None)
}

/// Whether one of a layout's entries is an image for the box.
pub fn is_for_the_box(entry: &Descriptor, fetch: &mut Fetch<'_>) -> Result<bool> {
    Ok(way_to_the_box(std::slice::from_ref(entry), 0, fetch, &mut BTreeSet::new())?.is_some())
}

fn may_be_for_the_box(entry: &Descriptor) -> bool {
    let fits = entry.platform.as_ref().is_none_or(|platform| (&*platform.os, &*platform.architecture) == PLATFORM);
    fits && is_manifest(&entry.media_type)
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
    /// Reads a configuration of whatever platform.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).context("its configuration cannot be read")
    }

    /// Whether it is for the platform of every box.
    pub fn is_for_the_box(&self) -> bool {
        (&*self.os, &*self.architecture) == PLATFORM
    }

    /// Reads a configuration; one for another platform is an error.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let config = Self::parse(bytes)?;
        let (os, architecture) = (&*config.os, &*config.architecture);
        ensure!(
            config.is_for_the_box(),
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
pub fn resolve(top: &[u8], fetch: &mut Fetch<'_>) -> Result<LockedImage> {
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
    let (index, inner, manifest, parts) = match document {
        Document::Manifest(parts) => (None, Vec::new(), first, parts),
        Document::Index(entries) => {
            let mut seen = BTreeSet::new();
            let Some(Way { inner, manifest, parts }) = way_to_the_box(&entries, 0, &mut whole, &mut seen)? else {
                bail!(none_for_the_box(&seen, entries.len()))
            };
            (Some(first), inner, manifest, parts)
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
    Ok(LockedImage { index, inner, manifest, config: parts.config, layers: parts.layers })
}

/// What to say of an index without an image for the box.
fn none_for_the_box(seen: &BTreeSet<String>, entries: usize) -> String {
    let (os, architecture) = PLATFORM;
    let has = if seen.is_empty() {
        format!("none of its {entries} entries is an image that says its platform")
    } else {
        format!("only for {}", seen.iter().cloned().collect::<Vec<_>>().join(", "))
    };
    format!("it has no image for {os}/{architecture}, {has}")
}

/// Whether a media type is that of an index or a manifest.
pub fn is_manifest(media_type: &str) -> bool {
    [oci::INDEX, oci::MANIFEST, oci::DOCKER_LIST, oci::DOCKER_MANIFEST].contains(&media_type)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use agent_api::oci;

    use super::{LockedImage, Piece, resolve};
    use crate::store::hash;

    /// Blobs by digest, as a registry has them.
    #[derive(Default)]
    struct Blobs(BTreeMap<String, Vec<u8>>);

    impl Blobs {
        fn add(&mut self, kind: &str, value: &Value) -> Value {
            let bytes = value.to_string().into_bytes();
            let entry = json!({"mediaType": kind, "digest": hash::bytes(&bytes), "size": bytes.len()});
            self.0.insert(hash::bytes(&bytes).to_string(), bytes);
            entry
        }

        fn image(&mut self, architecture: &str) -> Value {
            let config = json!({"os": "linux", "architecture": architecture, "rootfs": {"diff_ids": []}});
            let config = self.add("application/vnd.oci.image.config.v1+json", &config);
            self.add(oci::MANIFEST, &json!({"schemaVersion": 2, "config": config, "layers": []}))
        }

        fn artifact(&mut self) -> Value {
            let config = self.add("application/vnd.example.config.v1+json", &json!({}));
            self.add(oci::MANIFEST, &json!({"schemaVersion": 2, "config": config, "layers": []}))
        }

        fn index(&mut self, entries: &[Value]) -> Value {
            self.add(oci::INDEX, &json!({"schemaVersion": 2, "manifests": entries}))
        }

        fn resolve(&self, top: &Value) -> anyhow::Result<LockedImage> {
            let bytes = |digest: &str| self.0[digest].clone();
            let top = bytes(top["digest"].as_str().expect("a digest"));
            resolve(&top, &mut |piece: &Piece| Ok(bytes(&piece.digest.to_string())))
        }
    }

    fn on(mut entry: Value, platform: &str) -> Value {
        let (os, architecture) = platform.split_once('/').expect("a platform");
        entry["platform"] = json!({"os": os, "architecture": architecture});
        entry
    }

    #[test]
    fn an_index_inside_of_an_index_is_followed_and_carried() {
        let mut blobs = Blobs::default();
        let (ours, other) = (blobs.image("amd64"), blobs.image("arm64"));
        let inner = blobs.index(&[on(other.clone(), "linux/arm64"), on(ours.clone(), "linux/amd64")]);
        let arm = blobs.index(&[on(other, "linux/arm64")]);
        let top = blobs.index(&[arm, inner.clone()]);
        let locked = blobs.resolve(&top).expect("an image");
        assert_eq!(json!(locked.manifest.digest), ours["digest"]);
        assert_eq!(locked.inner.iter().map(|piece| json!(piece.digest)).collect::<Vec<_>>(), [inner["digest"].clone()]);
        let pieces: Vec<Value> = locked.pieces().map(|piece| json!(piece.digest)).collect();
        assert_eq!(pieces[..3], [top["digest"].clone(), inner["digest"].clone(), ours["digest"].clone()]);
    }

    #[test]
    fn an_entry_without_a_platform_is_what_its_configuration_says() {
        let mut blobs = Blobs::default();
        let (ours, other, artifact) = (blobs.image("amd64"), blobs.image("arm64"), blobs.artifact());
        let attestation = on(artifact.clone(), "unknown/unknown");
        let top = blobs.index(&[attestation, artifact, other, ours.clone()]);
        assert_eq!(json!(blobs.resolve(&top).expect("an image").manifest.digest), ours["digest"]);
    }

    #[test]
    fn what_is_there_instead_is_named() {
        let mut blobs = Blobs::default();
        let (other, artifact) = (blobs.image("s390x"), blobs.artifact());
        let arm = on(other.clone(), "linux/arm64");
        for (entries, words) in [
            (vec![other, arm], "no image for linux/amd64, only for linux/arm64, linux/s390x"),
            (vec![artifact], "none of its 1 entries is an image"),
            (vec![], "none of its 0 entries is an image"),
        ] {
            let top = blobs.index(&entries);
            let error = blobs.resolve(&top).expect_err("nothing for a box").to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
