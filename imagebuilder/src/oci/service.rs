//! Images of services that a definition switches on: whole trees of Debian packages, trimmed and compiled.
//!
//! ```text
//! images/<name>/image.yaml with `service:` ─resolve─> Lock ─make─> image, exported files
//!   unpack ─> files ─> remove ─> edits ─> run, in the tree itself ─> exports ─> links ─> pack
//! ```
//! A release that does not declare the service holds nothing of it, and its lock names none of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_api::release::{Blob, Image};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::recipe::{ImageLayer, Kitchen, Packed, Recipe};
use crate::boot::esp;
use crate::builder::Builder;
use crate::config::{ServiceName, Services};
use crate::disk::fat::{self, FatKind, Volume};
use crate::disk::{Content, SourceFile};
use crate::lock::apt::Apt;
use crate::lock::{Deb, Lock, fetch};
use crate::rootfs::trim;
use crate::store::{Cache, Made, StageKey, WorkDir, hash};
use crate::toolbox::{ImageTools, Toolbox};

/// What a service's recipe says beside the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Extra {
    /// The service that must be declared.
    pub of: ServiceName,
    /// Whether servers run it, and not the box: its registry has it, and no layer holds it unpacked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub carried: bool,
    /// What the versions of packages must begin with: the rest of the recipe was tested with these.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// Packages that others depend on and that nothing in the image uses. What only they need stays out, too.
    #[serde(default)]
    pub without: Vec<String>,
    /// Changes to files of the packages.
    #[serde(default)]
    pub edits: Vec<Edit>,
    /// Links: path in the image -> target.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Where a volume with Debian's signed loaders goes that looks for its menu on the medium with that label.
    #[serde(default)]
    pub esp: Option<Esp>,
    /// Programs that are run in the finished tree, one after the other.
    #[serde(default)]
    pub run: Vec<Vec<String>>,
    /// Files for the agent, taken out of the tree: name below `/usr/share/foothold/services` -> path in the tree.
    #[serde(default)]
    pub exports: BTreeMap<String, String>,
    /// What of the packages no program in the image reads: paths, with `*` for any part of a name.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// A change of a file: a text that it must hold exactly once, and the text that replaces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edit {
    /// The file.
    pub file: String,
    /// The text to replace.
    pub replace: String,
    /// The text that replaces it.
    pub with: String,
}

/// A volume that firmware starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Esp {
    /// Path in the image.
    pub path: String,
    /// Label of the medium that GRUB goes on with.
    pub label: String,
    /// Folder of the menu on that medium.
    pub menu: String,
}

/// A recipe and its folder.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The recipe.
    pub recipe: Recipe,
    /// What is particular to it.
    pub extra: Extra,
    /// Its folder.
    pub folder: PathBuf,
}

impl Declared {
    /// Name of the image, of its stage, and of its package set in the lock.
    pub fn set(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        format!("service-image/{}", name.to_string_lossy())
    }

    /// What the set was resolved from.
    fn asked(&self) -> Vec<String> {
        let without = self.extra.without.iter().map(|name| format!("{name}-"));
        self.recipe.debian.iter().cloned().chain(without).collect()
    }

    /// Its packages.
    pub fn packages<'a>(&self, lock: &'a Lock) -> Result<&'a [Deb]> {
        if self.recipe.debian.is_empty() {
            return Ok(&[]);
        }
        lock.packages_for(&self.set(), &self.asked())
    }

    /// Programs of the release that it holds.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        self.recipe.programs()
    }

    fn check_versions(&self, debs: &[Deb]) -> Result<()> {
        for (name, begin) in &self.extra.versions {
            let found = debs.iter().find(|deb| deb.name == *name);
            let found = found.with_context(|| format!("`{}` has no package `{name}`", self.set()))?;
            ensure!(
                found.version.starts_with(begin.as_str()),
                "`{}` has `{name}` {}, and its recipe was proved with {begin}*\nhint: look whether its edits are still \
                 needed and right, then change `versions` in `{}`",
                self.set(),
                found.version,
                self.folder.join("image.yaml").display()
            );
        }
        Ok(())
    }
}

/// The recipes below `images/` whose service the definition declares.
pub fn declared(images: &Path, services: &Services) -> Result<Vec<Declared>> {
    let mut found = Vec::new();
    for (recipe, folder) in Recipe::read_below(images)? {
        let Some(extra) = recipe.service.clone() else { continue };
        if services.has(extra.of) {
            found.push(Declared { recipe, extra, folder });
        }
    }
    Ok(found)
}

/// Resolves their packages into the lock.
pub fn resolve(images: &[Declared], apt: &Apt, lock: &mut Lock) -> Result<()> {
    for image in images.iter().filter(|image| !image.recipe.debian.is_empty()) {
        let debs = apt
            .resolve_without(&image.recipe.debian, &image.extra.without)
            .with_context(|| format!("resolving the packages of `{}`", image.set()))?;
        image.check_versions(&debs)?;
        lock.asked.insert(image.set(), image.asked());
        lock.debian.insert(image.set(), debs);
    }
    Ok(())
}

/// What making needs beside the build.
pub struct Input<'a> {
    /// Exactly what goes in.
    pub lock: &'a Lock,
    /// Foreign tools.
    pub toolbox: &'a Toolbox,
    /// Key of the toolbox.
    pub toolbox_key: &'a str,
    /// Programs of the release, for images that hold some.
    pub programs: &'a Made,
}

impl Input<'_> {
    /// Key of an image's stage.
    pub fn key(&self, image: &Declared) -> Result<StageKey> {
        let mut key = StageKey::new("service-image", 2)
            .with("toolbox", self.toolbox_key)
            .with("recipe", serde_json::to_string(&image.recipe)?)
            .with("folder", hash::tree(&image.folder)?)
            .with("built", self.lock.made);
        for deb in image.packages(self.lock)? {
            key = key.with(&deb.name, &deb.sha256);
        }
        for program in image.programs() {
            key = key.with(program, &self.programs.file(program)?.digest);
        }
        Ok(key)
    }
}

/// The images, and the files that they export, by name.
#[derive(Clone, Debug, Default)]
pub struct Images {
    /// Images that the box runs.
    pub packed: Vec<Packed>,
    /// Images that it only serves.
    pub carried: Vec<Image>,
    /// Exported files.
    pub exports: Made,
}

impl Images {
    /// Adds what [`make`] made of it.
    pub fn add(&mut self, declared: &Declared, made: &Made) -> Result<()> {
        let image: Image = made.fact("image")?;
        if declared.extra.carried {
            self.carried.push(image);
        } else {
            self.packed.push(Packed { image, manifest: made.fact("manifest")? });
        }
        let exports = made.files.iter().filter_map(|(name, blob)| Some((name.strip_prefix(EXPORT)?, blob)));
        self.exports.files.extend(exports.map(|(name, blob)| (name.to_owned(), blob.clone())));
        Ok(())
    }
}

/// Beginning of the stage's files that are exported.
const EXPORT: &str = "export ";

/// Makes an image, or takes it from the cache. Facts: `image`, `manifest`; files: its blobs, and `export NAME`.
pub fn make(at: &Builder, image: &Declared, input: &Input<'_>, say: &(dyn Fn(&str) + Sync)) -> Result<(Made, bool)> {
    let debs = image.packages(input.lock)?;
    let key = input.key(image)?;
    at.cache.stage(&key, &mut || say("another build is making the same"), |work| {
        image.check_versions(debs)?;
        fetch::debs(&at.cache, &at.network, debs, &mut |line| say(line))?;
        let (cache, programs, built) = (&at.cache, input.programs, input.lock.made);
        let kitchen = Kitchen { cache, programs, built, version: "" };
        let root = work.path().join("root");
        say(&format!("unpacking {} packages", debs.len()));
        kitchen.unpack(&root, debs)?;
        kitchen.lay_out(&image.recipe, &root, Some(&image.folder))?;
        let tree = Tree { root: &root, image, helper: &at.helper, built };
        let exports = tree.finish(work, input.toolbox, &at.cache, say)?;
        let layer = ImageLayer::of(&at.cache, work, &root, built)?;
        let Packed { image, manifest } = image.recipe.pack(&at.cache, &[layer], built, "")?;
        let blobs = image.blobs.iter().map(|blob| (format!("blob {}", blob.digest.hex()), blob.clone()));
        let mut made = Made { files: blobs.chain(exports).collect(), ..Made::default() };
        made.set_fact("image", &image)?;
        made.set_fact("manifest", &manifest)?;
        Ok(made)
    })
}

/// An unpacked tree on its way to an image.
struct Tree<'a> {
    root: &'a Path,
    image: &'a Declared,
    helper: &'a Path,
    built: u64,
}

impl Tree<'_> {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn finish(
        &self,
        work: &WorkDir,
        toolbox: &Toolbox,
        cache: &Cache,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<Vec<(String, Blob)>> {
        let extra = &self.image.extra;
        trim::remove(self.root, &extra.remove).with_context(|| self.image.set())?;
        for edit in &extra.edits {
            edit.apply(&self.at(&edit.file))?;
        }
        if let Some(esp) = &extra.esp {
            self.write_esp(esp, &ImageTools { toolbox, time: self.built })?;
        }
        for argv in &extra.run {
            say(&argv.join(" "));
            let folder = fs_err::canonicalize(&self.image.folder)?;
            trim::run(self.root, self.helper, argv, &folder, self.built)?;
        }
        let mut exports = Vec::new();
        for (name, path) in &extra.exports {
            let file = work.path().join("export");
            fs_err::rename(self.at(path), &file)?;
            exports.push((format!("{EXPORT}{name}"), cache.adopt(&file)?));
        }
        for (link, target) in &extra.links {
            let link = self.at(link);
            fs_err::create_dir_all(link.parent().context("a link lies in a folder")?)?;
            fs_err::os::unix::fs::symlink(target, link)?;
        }
        Ok(exports)
    }

    fn write_esp(&self, esp: &Esp, tools: &ImageTools<'_>) -> Result<()> {
        let mut files = esp::signed_files(tools)?;
        let menu = format!(
            "search --no-floppy --set=root --label {}\nset prefix=($root){menu}\nconfigfile ($root){menu}/grub.cfg\n",
            esp.label,
            menu = esp.menu
        );
        files.push(SourceFile { path: esp::GRUB_CFG.to_owned(), content: Content::Bytes(menu.into_bytes()) });
        let path = self.at(&esp.path);
        fs_err::create_dir_all(path.parent().context("a volume lies in a folder")?)?;
        let time = i64::try_from(self.built).context("a build time")?;
        let volume = Volume {
            label: "ESP",
            serial: ESP_SERIAL,
            bytes: ESP_BYTES,
            offset: 0,
            kind: FatKind::Fat16,
            sector: fat::SECTOR,
            cluster: ESP_CLUSTER,
            time,
        };
        fat::write(&path, &volume, &files)?;
        Ok(())
    }
}

/// Size of the volume: the loaders, and a little room.
const ESP_BYTES: u64 = 8 << 20;
/// Small clusters, so that it is FAT16.
const ESP_CLUSTER: u32 = 1024;
/// Serial number of the volume: any, and always the same.
const ESP_SERIAL: u32 = 0xF007_401D;

impl Edit {
    fn apply(&self, path: &Path) -> Result<()> {
        let text = fs_err::read_to_string(path)?;
        let times = text.matches(&self.replace).count();
        if times != 1 {
            bail!(
                "`{}` has the text that a recipe replaces {times} times, expected once\nhint: was it mended by Debian? \
                 Then take the edit out of the recipe\n{}",
                self.file,
                self.replace
            );
        }
        Ok(fs_err::write(path, text.replacen(&self.replace, &self.with, 1))?)
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
