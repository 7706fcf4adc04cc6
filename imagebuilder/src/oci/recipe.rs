//! Recipes of `images/<name>/image.yaml`: container images that the builder makes itself.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use agent_api::release::{Blob, Digest, Image};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::service::Extra;
use super::tarball;
use crate::lock::Deb;
use crate::rootfs;
use crate::rootfs::programs::{ensure_called, names_of, place_all};
use crate::store::{Cache, Made, StageKey, WorkDir, hash};

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
    /// Its arguments, where who runs it gives none (OCI image specification, config.md, `Cmd`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
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
            .map_err(|error| anyhow::anyhow!("`{}`: {}", path.display(), agent_api::yaml::told_with_lines(&error)))
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

    /// Programs from Go modules that it holds, each with its path in the image.
    fn modules(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, source)| Some((source.strip_prefix("module:")?, path.as_str())))
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

    /// Puts an image together of its layers, the lowest first. Blobs go into the cache.
    pub fn pack(&self, cache: &Cache, layers: &[ImageLayer], built: u64, version: &str) -> Result<Packed> {
        let reference = self.reference_for(version);
        let diff_ids: Vec<&Digest> = layers.iter().map(|layer| &layer.diff_id).collect();
        let described = layers
            .iter()
            .map(|ImageLayer { blob, .. }| json!({ "mediaType": LAYER, "digest": blob.digest, "size": blob.size }));
        let described: Vec<_> = described.collect();
        let created = jiff::Timestamp::from_second(built.cast_signed())?.to_string();
        let mut settings = serde_json::Map::new();
        if !self.env.is_empty() {
            settings.insert("Env".into(), json!(self.env));
        }
        if !self.entrypoint.is_empty() {
            settings.insert("Entrypoint".into(), json!(self.entrypoint));
        }
        if !self.cmd.is_empty() {
            settings.insert("Cmd".into(), json!(self.cmd));
        }
        if !self.user.is_empty() {
            settings.insert("User".into(), json!(self.user));
        }
        let config = cache.adopt_bytes(&serde_json::to_vec(&json!({
            "created": created,
            "architecture": "amd64",
            "os": "linux",
            "config": settings,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
            "history": vec![json!({ "created": created, "created_by": "foothold" }); layers.len()],
        }))?)?;
        let manifest = cache.adopt_bytes(&serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": { "mediaType": CONFIG, "digest": config.digest, "size": config.size },
            "layers": described,
        }))?)?;
        let image = Image {
            reference,
            index: None,
            inner: Vec::new(),
            manifest: manifest.digest.clone(),
            blobs: [manifest.clone(), config]
                .into_iter()
                .chain(layers.iter().map(|layer| layer.blob.clone()))
                .collect(),
        };
        Ok(Packed { image, manifest })
    }
}

/// A layer of an image (OCI image specification, config.md and layer.md).
#[derive(Clone, Debug)]
pub struct ImageLayer {
    /// Digest of the tar itself.
    diff_id: Digest,
    /// The tar, packed.
    blob: Blob,
}

impl ImageLayer {
    /// Packs a tree.
    pub fn of(cache: &Cache, work: &WorkDir, root: &Path, built: u64) -> Result<Self> {
        let plain = work.path().join("layer.tar");
        tarball::write(root, built, std::io::BufWriter::new(fs_err::File::create(&plain)?))?;
        let diff_id = hash::file(&plain)?.digest;
        let packed = work.path().join("layer.tar.zst");
        compress(&plain, &packed)?;
        fs_err::remove_file(&plain)?;
        Ok(Self { diff_id, blob: cache.adopt(&packed)? })
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
        let mut layers = Vec::new();
        let mut own = recipe.clone();
        for (name, path) in recipe.modules() {
            if names_of(self.programs, name)?.len() > 1 {
                own.files.remove(path);
                layers.push(self.shared_layer(name, path)?);
            }
        }
        self.lay_out(&own, &root, folder)?;
        if layers.is_empty() || fs_err::read_dir(&root)?.next().is_some() {
            layers.push(ImageLayer::of(self.cache, work, &root, self.built)?);
        }
        fs_err::remove_dir_all(&root)?;
        recipe.pack(self.cache, &layers, self.built, self.version)
    }

    /// The layer of a program that is several: all its names, so that the images of each of them have one layer together.
    fn shared_layer(&self, name: &str, path: &str) -> Result<ImageLayer> {
        ensure_called(self.programs, name, path)?;
        let folder = path.trim_start_matches('/').rsplit_once('/').map_or("", |(folder, _)| folder);
        let program = &self.programs.file(name)?.digest;
        let names = names_of(self.programs, name)?;
        let key = StageKey::new("shared-layer", 1).with("built", self.built).with("folder", folder);
        let key = key.with("program", program).with("names", names.join(" "));
        let (made, _) = self.cache.stage(&key, &mut || (), |work| {
            let root = work.path().join("root");
            let all: Vec<_> = names.iter().map(|name| (*name, format!("{folder}/{name}"))).collect();
            place_all(self.cache, self.programs, &root, all.iter().map(|(name, path)| (*name, path.as_str())))?;
            let layer = ImageLayer::of(self.cache, work, &root, self.built)?;
            let mut made = Made::default();
            made.files.insert("layer".into(), layer.blob);
            made.set_fact("diffId", &layer.diff_id)?;
            Ok(made)
        })?;
        Ok(ImageLayer { diff_id: made.fact("diffId")?, blob: made.file("layer")?.clone() })
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
            // Programs of packages write there. On a machine, Debian's `base-files` and systemd make these folders.
            for (folder, mode) in [("run", 0o755), ("tmp", 0o1777)] {
                let folder = root.join(folder);
                fs_err::create_dir_all(&folder)?;
                fs_err::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
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

    const RECIPE: &str = "files:\n  /bin/run: file:run\n  /etc/app.conf: file:app.conf\n  /pause: agent:pause\nentrypoint: [/bin/run]\ncmd: [--all]\nuser: \"1000\"\n";

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
            let config = fs_err::read(cache.blob_path(&packed.image.blobs[1].digest)).expect("a configuration");
            let config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
            let runs = serde_json::json!({"Entrypoint": ["/bin/run"], "Cmd": ["--all"], "User": "1000"});
            assert_eq!(config["config"], runs);
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

    fn of_one_program(cache: &Cache) -> Made {
        let mut programs = Made::default();
        let (one, other) = (cache.adopt_bytes(b"all in one"), cache.adopt_bytes(b"apart"));
        for (name, blob) in [("kube-proxy", &one), ("kubelet", &one), ("kubectl", &one), ("etcd", &other)] {
            programs.files.insert(name.into(), blob.as_ref().expect("a blob").clone());
        }
        programs
    }

    #[test]
    fn images_of_one_program_under_several_names_share_its_layer() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let programs = of_one_program(&cache);
        let kitchen = Kitchen { cache: &cache, programs: &programs, built: 1_760_000_000, version: "v1.36.4" };
        let blobs = |files: &[(&str, &str)]| {
            let files = files.iter().map(|(path, source)| ((*path).to_owned(), (*source).to_owned())).collect();
            let recipe = Recipe { reference: "a.example/b:1".into(), files, ..Recipe::default() };
            let work = cache.work_dir().expect("a folder");
            kitchen.make(&work, &recipe, None, &[]).map(|packed| packed.image.blobs)
        };
        let proxy = blobs(&[("/bin/kube-proxy", "module:kube-proxy"), ("/bin/etcd", "module:etcd")]).expect("an image");
        let kubelet = blobs(&[("/bin/kubelet", "module:kubelet")]).expect("an image");
        let etcd = blobs(&[("/bin/etcd", "module:etcd")]).expect("an image");
        assert_eq!((proxy.len(), kubelet.len(), etcd.len()), (4, 3, 3), "manifest, configuration, layers");
        assert_eq!((&proxy[2], &proxy[3]), (&kubelet[2], &etcd[2]));
        let layer = fs_err::File::open(cache.blob_path(&kubelet[2].digest)).expect("a layer");
        let mut tar = tar::Archive::new(zstd::Decoder::new(layer).expect("zstd"));
        let names = tar.entries().expect("a tar").map(|entry| {
            let entry = entry.expect("an entry");
            (entry.path().expect("a path").display().to_string(), entry.size())
        });
        let expected = [("bin/", 0), ("bin/kube-proxy", 10), ("bin/kubectl", 0), ("bin/kubelet", 0)];
        assert_eq!(names.collect::<Vec<_>>(), expected.map(|(path, size)| (path.to_owned(), size)));
        let error = blobs(&[("/bin/k", "module:kubectl")]).expect_err("it would not know what it is");
        assert!(format!("{error:#}").contains("`/bin/k` is to be the program `kubectl`"), "{error:#}");
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
