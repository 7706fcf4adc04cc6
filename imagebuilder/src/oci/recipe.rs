//! Recipes of `images/<name>/image.yaml`: container images that the builder makes itself.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use agent_api::release::{Blob, Image};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::service::Extra;
use super::tarball;
use crate::lock::Deb;
use crate::rootfs;
use crate::store::{Cache, Made, WorkDir};

/// zstd level of layers: they are read once per pull, and kept on every medium.
const LEVEL: i32 = 12;
/// Two workers whatever the machine has: the number does not change the bytes, but zero would.
const WORKERS: u32 = 2;

/// Beginning of a source that lies in the folder of the recipe.
const FILE: &str = "file:";

/// `image.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Recipe {
    /// Name and tag. `{kubernetes}` stands for the version of the cluster. A definition names its images itself.
    #[serde(default)]
    pub reference: String,
    /// Debian packages that are unpacked first, without their dependencies.
    #[serde(default)]
    pub debian: Vec<String>,
    /// Whether the packages' dependencies are unpacked, too. Only for recipes of a definition; those of a service always
    /// have them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dependencies: bool,
    /// Programs and files: path in the image -> `module:<program>`, `agent:<program>` or `file:<path in the folder>`.
    #[serde(default)]
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
    /// Only where a service is declared, and more than unpacked. Only for recipes of the builder's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Extra>,
}

impl Recipe {
    /// Reads a recipe file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs_err::read_to_string(path)?;
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options(&text, options)
            .map_err(|error| anyhow::anyhow!("`{}`: {}", path.display(), agent_api::yaml::told(&error)))
    }

    /// The recipes below `images/` of what every box runs, by folder name.
    pub fn read_all(images: &Path) -> Result<Vec<Self>> {
        let recipes = Self::read_below(images)?.into_iter().map(|(recipe, _)| recipe);
        Ok(recipes.filter(|recipe| recipe.service.is_none()).collect())
    }

    /// Every recipe below `images/` with its folder, by folder name.
    pub fn read_below(images: &Path) -> Result<Vec<(Self, PathBuf)>> {
        let mut folders: Vec<PathBuf> = Vec::new();
        for entry in fs_err::read_dir(images)? {
            let folder = entry?.path();
            if folder.join("image.yaml").exists() {
                folders.push(folder);
            }
        }
        folders.sort();
        let own = |folder: PathBuf| {
            let path = folder.join("image.yaml");
            let recipe = Self::read(&path)?;
            ensure!(!recipe.reference.is_empty(), "`{}` has no `reference`", path.display());
            ensure!(!recipe.dependencies, "`{}`: `dependencies` is for recipes of a definition", path.display());
            Ok((recipe, folder))
        };
        folders.into_iter().map(own).collect()
    }

    /// The reference with its version filled in.
    pub fn reference_for(&self, kubernetes: &str) -> String {
        self.reference.replace("{kubernetes}", kubernetes)
    }

    /// Programs of the release that it holds.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        let sources = self.files.values().filter_map(|source| source.split_once(':'));
        sources.filter_map(|(kind, name)| matches!(kind, "module" | "agent").then_some(name))
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
            // Files of the user keep whether they can be run; the cache does not know it of its blobs.
            let plain = from.starts_with(FILE) && fs_err::metadata(&source)?.permissions().mode() & 0o100 == 0;
            let mode = if plain { 0o644 } else { 0o755 };
            fs_err::set_permissions(&target, std::fs::Permissions::from_mode(mode))?;
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
            inner: Vec::new(),
            manifest: manifest.digest.clone(),
            blobs: vec![manifest.clone(), config, layer],
        };
        Ok(Packed { image, manifest })
    }
}

/// What images are made with.
pub struct Kitchen<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// Programs of all module sets, and the agent's.
    pub programs: &'a Made,
    /// Build time.
    pub built: u64,
    /// Version of the cluster.
    pub version: &'a str,
}

/// What of a package no program in an image reads.
const UNREAD: [&str; 4] = ["usr/share/doc", "usr/share/man", "usr/share/lintian", "usr/lib/x86_64-linux-gnu/gconv"];

impl Kitchen<'_> {
    /// Makes an image of these packages and the recipe's files; those of the user lie in `folder`.
    pub fn make(&self, work: &WorkDir, recipe: &Recipe, folder: Option<&Path>, debs: &[&Deb]) -> Result<Packed> {
        let root = work.path().join("root");
        self.unpack(&root, debs.iter().copied())?;
        for path in UNREAD {
            let _ = fs_err::remove_dir_all(root.join(path));
        }
        self.lay_out(recipe, &root, folder)?;
        let packed = recipe.pack(self.cache, work, &root, self.built, self.version)?;
        fs_err::remove_dir_all(&root)?;
        Ok(packed)
    }

    /// Unpacks packages into a new tree, whole.
    pub fn unpack<'d>(&self, root: &Path, debs: impl IntoIterator<Item = &'d Deb>) -> Result<()> {
        fs_err::create_dir(root)?;
        let mut debs = debs.into_iter().peekable();
        if debs.peek().is_some() {
            rootfs::unpack(self.cache, debs, root)?;
            // Debian's /lib is a link into /usr (file-system hierarchy since trixie); packages only bring /usr.
            for (link, target) in [("lib", "usr/lib"), ("lib64", "usr/lib64"), ("sbin", "usr/sbin"), ("bin", "usr/bin")]
            {
                if root.join(link).symlink_metadata().is_err() {
                    fs_err::os::unix::fs::symlink(target, root.join(link))?;
                }
            }
        }
        Ok(())
    }

    /// Lays a recipe's files into a tree; those of the user lie in `folder`.
    pub fn lay_out(&self, recipe: &Recipe, root: &Path, folder: Option<&Path>) -> Result<()> {
        recipe.lay_out(root, &|source| self.find(source, folder))
    }

    fn find(&self, source: &str, folder: Option<&Path>) -> Result<PathBuf> {
        match (source.split_once(':'), folder) {
            (Some(("module" | "agent", name)), _) => Ok(self.cache.blob_path(&self.programs.file(name)?.digest)),
            (Some(("file", path)), Some(folder)) => {
                let file = folder.join(path);
                ensure!(file.is_file(), "`{}` is not a file", file.display());
                Ok(file)
            }
            _ => bail!("`{source}` is not of the form `module:<program>`, `agent:<program>` or `file:<path>`"),
        }
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

pub use agent_api::oci::{CONFIG, MANIFEST};

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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::{Kitchen, Recipe};
    use crate::store::{Cache, Made};

    const RECIPE: &str = "files:\n  /bin/run: file:run\n  /etc/app.conf: file:app.conf\n  /pause: agent:pause\nentrypoint: [/bin/run]\nuser: \"1000\"\n";

    fn folder(dir: &Path) -> Recipe {
        fs_err::write(dir.join("image.yaml"), RECIPE).expect("written");
        for (name, mode) in [("run", 0o700), ("app.conf", 0o600)] {
            fs_err::write(dir.join(name), name).expect("written");
            fs_err::set_permissions(dir.join(name), std::fs::Permissions::from_mode(mode)).expect("chmod");
        }
        let recipe = Recipe::read(&dir.join("image.yaml")).expect("a recipe");
        Recipe { reference: "quay.io/org/made:1".into(), ..recipe }
    }

    #[test]
    fn a_folder_gives_the_same_image_wherever_it_lies() {
        let made = || {
            let (dir, root) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
            let cache = Cache::open(root.path()).expect("a cache");
            let mut programs = Made::default();
            programs.files.insert("pause".into(), cache.adopt_bytes(b"a program").expect("adopted"));
            let kitchen = Kitchen { cache: &cache, programs: &programs, built: 1_760_000_000, version: "v1.36.4" };
            let work = cache.work_dir().expect("a folder");
            let packed = kitchen.make(&work, &folder(dir.path()), Some(dir.path()), &[]).expect("an image");
            let layer = fs_err::File::open(cache.blob_path(&packed.image.blobs[2].digest)).expect("a layer");
            let mut tar = tar::Archive::new(zstd::Decoder::new(layer).expect("zstd"));
            let entries = tar.entries().expect("a tar").map(|entry| entry.expect("an entry"));
            let modes: Vec<String> = entries
                .map(|entry| {
                    format!("{} {:o}", entry.path().expect("a path").display(), entry.header().mode().expect("a mode"))
                })
                .collect();
            (packed.image, modes)
        };
        let (image, modes) = made();
        assert_eq!(made().0, image);
        assert!(
            modes.contains(&"bin/run 755".to_owned()) && modes.contains(&"etc/app.conf 644".to_owned()),
            "{modes:?}"
        );
        assert!(modes.contains(&"pause 755".to_owned()), "{modes:?}");
    }

    #[test]
    fn a_source_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
        let (programs, work) = (Made::default(), cache.work_dir().expect("a folder"));
        let kitchen = Kitchen { cache: &cache, programs: &programs, built: 1, version: "v1.36.4" };
        let recipe = folder(dir.path());
        let error = kitchen.make(&work, &recipe, Some(dir.path()), &[]).expect_err("there is no such program");
        let text = format!("{error:#}");
        assert!(text.contains("`quay.io/org/made:1` wants `agent:pause` as `/pause`"), "{text}");
    }
}
