//! Recipes of `images/<name>/image.yaml`: container images that the builder makes itself.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use agent_api::release::{Blob, Image};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::tarball;
use crate::store::{Cache, WorkDir};

/// zstd level of layers: they are read once per pull, and kept on every medium.
const LEVEL: i32 = 12;
/// Two workers whatever the machine has: the number does not change the bytes, but zero would.
const WORKERS: u32 = 2;

/// `image.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Recipe {
    /// Name and tag. `{kubernetes}` stands for the version of the cluster.
    pub reference: String,
    /// Debian packages that are unpacked first, without their dependencies.
    #[serde(default)]
    pub debian: Vec<String>,
    /// Programs and files: path in the image -> where it comes from.
    pub files: BTreeMap<String, String>,
    /// What is run.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// Environment, `NAME=value`.
    #[serde(default)]
    pub env: Vec<String>,
    /// User and group.
    #[serde(default)]
    pub user: String,
}

impl Recipe {
    /// Reads a recipe file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs_err::read_to_string(path)?;
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options(&text, options)
            .map_err(|error| anyhow::anyhow!("`{}`: {error}", path.display()))
    }

    /// Every recipe below `images/`, by folder name.
    pub fn read_all(images: &Path) -> Result<Vec<Self>> {
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in fs_err::read_dir(images)? {
            let path = entry?.path().join("image.yaml");
            if path.exists() {
                paths.push(path);
            }
        }
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// The reference with its version filled in.
    pub fn reference_for(&self, kubernetes: &str) -> String {
        self.reference.replace("{kubernetes}", kubernetes)
    }

    /// Lays the image's tree out at `root`. `find` tells where a source such as `module:coredns` lies.
    pub fn lay_out(&self, root: &Path, find: &dyn Fn(&str) -> Result<PathBuf>) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        for (to, from) in &self.files {
            let target = root.join(to.trim_start_matches('/'));
            let source = find(from).with_context(|| format!("`{}` wants `{from}` as `{to}`", self.reference))?;
            fs_err::create_dir_all(target.parent().context("a file lies in a folder")?)?;
            if target.symlink_metadata().is_ok() {
                bail!("`{}` has `{to}` twice", self.reference);
            }
            fs_err::copy(&source, &target)?;
            fs_err::set_permissions(&target, std::fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    /// Packs a laid out tree as an image of one layer. Blobs go into the cache.
    pub fn pack(&self, cache: &Cache, work: &WorkDir, root: &Path, built: u64, version: &str) -> Result<Packed> {
        let reference = self.reference_for(version);
        let plain = work.path().join("layer.tar");
        tarball::write(root, built, std::io::BufWriter::new(fs_err::File::create(&plain)?))?;
        let diff_id = crate::store::hash::file(&plain)?.digest;
        let packed = work.path().join("layer.tar.zst");
        compress(&plain, &packed)?;
        fs_err::remove_file(&plain)?;
        let layer = cache.adopt(&packed)?;
        let created = jiff::Timestamp::from_second(built.cast_signed())?.to_string();
        let mut settings = serde_json::Map::new();
        if !self.env.is_empty() {
            settings.insert("Env".into(), json!(self.env));
        }
        if !self.entrypoint.is_empty() {
            settings.insert("Entrypoint".into(), json!(self.entrypoint));
        }
        if !self.user.is_empty() {
            settings.insert("User".into(), json!(self.user));
        }
        let config = cache.adopt_bytes(&serde_json::to_vec(&json!({
            "created": created,
            "architecture": "amd64",
            "os": "linux",
            "config": settings,
            "rootfs": { "type": "layers", "diff_ids": [diff_id.to_string()] },
            "history": [{ "created": created, "created_by": "foothold" }],
        }))?)?;
        let manifest = cache.adopt_bytes(&serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": { "mediaType": CONFIG, "digest": config.digest, "size": config.size },
            "layers": [{ "mediaType": LAYER, "digest": layer.digest, "size": layer.size }],
        }))?)?;
        let image = Image {
            reference,
            index: None,
            manifest: manifest.digest.clone(),
            blobs: vec![manifest.clone(), config, layer],
        };
        Ok(Packed { image, manifest })
    }
}

/// An image whose blobs lie in the cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Packed {
    /// What the release says of it.
    pub image: Image,
    /// Its manifest.
    pub manifest: Blob,
}

/// Media type of a manifest (OCI image specification, media-types.md).
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of a configuration.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Media type of our layers.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

/// Packs a layer.
pub fn compress(plain: &Path, packed: &Path) -> Result<()> {
    let mut encoder = zstd::Encoder::new(fs_err::File::create(packed)?, LEVEL)?;
    encoder.multithread(WORKERS)?;
    encoder.long_distance_matching(true)?;
    encoder.window_log(25)?;
    std::io::copy(&mut fs_err::File::open(plain)?, &mut encoder)?;
    encoder.finish()?.flush()?;
    Ok(())
}
