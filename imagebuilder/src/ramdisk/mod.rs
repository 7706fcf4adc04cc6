//! The deploy ramdisk: what a server runs in its memory while Ironic inspects, installs and cleans it.
//!
//! ```text
//! images/ramdisk/ramdisk.yaml ─resolve─> Lock: `ramdisk`, `ramdisk/unpacked` ─make─> kernel, initramfs
//!   packages ─> unpacked ─> kernel's modules ─> scrub ─> programs, overlay ─> run ─> remove ─> cpio ─> zstd
//! ```
//! It is ironic-python-agent on Debian, with the kernel of the box. Everything particular to a server comes from Ironic:
//! on the kernel's command line, and on the virtual medium.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use agent_api::release::{ContentFile, ContentKind};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::config::{ServiceName, Services};
use crate::lock::apt::Apt;
use crate::lock::{Deb, Lock, fetch};
use crate::osimage::tree;
use crate::rootfs::kernel::{self, ModuleList};
use crate::rootfs::programs::place_all;
use crate::rootfs::{self, INSIDE, trim};
use crate::store::{Made, StageKey, WorkDir, hash};
use crate::toolbox::Toolbox;

/// Name of its stage, and of its package set in the lock.
pub const SET: &str = "ramdisk";
/// Package set of those that are only unpacked.
const UNPACKED: &str = "ramdisk/unpacked";
/// The recipe, in its folder.
const FILE: &str = "ramdisk.yaml";
/// The kernel among the stage's files.
pub const KERNEL: &str = "kernel";
/// The rest.
pub const INITRAMFS: &str = "initramfs";
/// zstd level: made once, loaded by every server. Higher ones take minutes for a few percent.
const LEVEL: i32 = 12;
/// Name of the tree in the work folder.
const TREE: &str = "tree";

/// `ramdisk.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Recipe {
    /// Debian packages beside those that every Debian system has; what they depend on comes along.
    pub packages: Vec<String>,
    /// Packages that are unpacked as they are, without what they depend on: that stands in `packages`.
    #[serde(default)]
    pub unpacked: Vec<String>,
    /// Programs of the release: path in the ramdisk -> name.
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
    /// Folder laid over the root, relative to the recipe: the path there is the path in the ramdisk.
    pub overlay: PathBuf,
    /// Programs that are run in the finished tree, one after the other.
    #[serde(default)]
    pub run: Vec<Vec<String>>,
    /// What of the packages nothing in the ramdisk reads: paths, with `*` for any part of a name.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// The ramdisk and its folder.
#[derive(Clone, Debug)]
pub struct Ramdisk {
    /// The recipe.
    pub recipe: Recipe,
    folder: PathBuf,
}

impl Ramdisk {
    /// That of `images/ramdisk`, where the definition declares `services.provisioning`.
    pub fn declared(images: &Path, services: &Services) -> Result<Option<Self>> {
        if !services.has(ServiceName::Provisioning) {
            return Ok(None);
        }
        let folder = images.join("ramdisk");
        let path = folder.join(FILE);
        let text = fs_err::read_to_string(&path)?;
        let options = serde_saphyr::options! { strict_booleans: true };
        let recipe = serde_saphyr::from_str_with_options(&text, options)
            .map_err(|error| anyhow::anyhow!("`{}`: {}", path.display(), agent_api::yaml::told_with_lines(&error)))?;
        Ok(Some(Self { recipe, folder }))
    }

    /// Resolves its packages into the lock.
    pub fn resolve(&self, apt: &Apt, lock: &mut Lock) -> Result<()> {
        let Recipe { packages, unpacked, .. } = &self.recipe;
        for (set, asked, debs) in
            [(SET, packages, apt.resolve(packages, true)), (UNPACKED, unpacked, apt.alone(unpacked))]
        {
            lock.asked.insert(set.to_owned(), asked.clone());
            lock.debian.insert(set.to_owned(), debs.context("resolving the packages of the deploy ramdisk")?);
        }
        Ok(())
    }

    /// All its packages: those that are installed, those that are unpacked, the kernel.
    pub fn packages<'a>(&self, lock: &'a Lock) -> Result<[&'a [Deb]; 3]> {
        let Recipe { packages, unpacked, .. } = &self.recipe;
        Ok([lock.packages_for(SET, packages)?, lock.packages_for(UNPACKED, unpacked)?, lock.packages("kernel")?])
    }

    /// Key of its stage.
    pub fn key(&self, input: &Input<'_>) -> Result<StageKey> {
        let mut key = StageKey::new("ramdisk", 1)
            .with("toolbox", input.toolbox_key)
            .with("folder", hash::tree(&self.folder)?)
            .with("packages", serde_json::to_string(&self.packages(input.lock)?)?)
            .with("modules", hash::bytes(modules(input)?.as_bytes()))
            .with("built", input.lock.made);
        for name in self.recipe.programs.values() {
            key = key.with(name, &input.programs.file(name)?.digest);
        }
        Ok(key)
    }

    /// Makes it or takes it from the cache: the files [`KERNEL`] and [`INITRAMFS`].
    pub fn make(&self, at: &Builder, input: &Input<'_>, say: &(dyn Fn(&str) + Sync)) -> Result<(Made, bool)> {
        at.cache.stage(&self.key(input)?, &mut || say("another build is making the same"), |work| {
            let debs = self.packages(input.lock)?;
            fetch::debs(&at.cache, &at.network, &debs.concat(), &mut |line| say(line))?;
            self.build(at, input, work, debs, say)
        })
    }

    fn build(
        &self,
        at: &Builder,
        input: &Input<'_>,
        work: &WorkDir,
        [installed, unpacked, linux]: [&[Deb]; 3],
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<Made> {
        let (cache, built) = (&at.cache, input.lock.made);
        say(&format!("unpacking {} packages", installed.len() + unpacked.len()));
        rootfs::bootstrap(cache, input.toolbox, work, TREE, installed, built)?;
        let root = work.path().join(TREE);
        rootfs::unpack(cache, unpacked, &root)?;
        let keep = ModuleList::parse(&modules(input)?);
        let (_, image) = kernel::install(cache, input.toolbox, work, TREE, linux, &keep)?;
        tree::scrub(&root)?;
        let programs = self.recipe.programs.iter().map(|(path, name)| (name.as_str(), path.as_str()));
        place_all(cache, input.programs, &root, programs)?;
        tree::lay_over(&self.folder.join(&self.recipe.overlay), &root).context("laying the overlay over the root")?;
        let folder = fs_err::canonicalize(&self.folder)?;
        for argv in &self.recipe.run {
            say(&argv.join(" "));
            trim::run(&root, &at.helper, argv, &folder, built)?;
        }
        trim::remove(&root, &self.recipe.remove).context("the deploy ramdisk")?;
        tree::clamp(&root, built)?;
        say("packing");
        let mut made = Made::default();
        made.files.insert(KERNEL.to_owned(), image);
        made.files.insert(INITRAMFS.to_owned(), cache.adopt(&pack(input.toolbox, work)?)?);
        Ok(made)
    }
}

/// What making needs beside the build.
pub struct Input<'a> {
    /// Exactly what goes in.
    pub lock: &'a Lock,
    /// Foreign tools.
    pub toolbox: &'a Toolbox,
    /// Key of the toolbox.
    pub toolbox_key: &'a str,
    /// Programs of the release.
    pub programs: &'a Made,
    /// The folder `packages/`.
    pub lists: PathBuf,
}

/// The list of modules that the box's own kernel keeps: servers of one site are alike.
fn modules(input: &Input<'_>) -> Result<String> {
    Ok(fs_err::read_to_string(input.lists.join("kernel/modules.txt"))?)
}

/// The tree of the work folder as an initramfs: a newc cpio (kernel documentation, driver-api/early-userspace), sorted,
/// with its own owners and modes, and numbered inodes.
fn pack(toolbox: &Toolbox, work: &WorkDir) -> Result<PathBuf> {
    let root = work.path().join(TREE);
    let mut names = Vec::new();
    for entry in walkdir::WalkDir::new(&root).sort_by_file_name() {
        let entry = entry?;
        let name = entry.path().strip_prefix(&root)?.as_os_str().as_bytes();
        names.extend_from_slice(if name.is_empty() { b"." } else { name });
        names.push(0);
    }
    let inside = Path::new(INSIDE);
    let cpio = toolbox.tool("cpio").args(["--create", "--format=newc", "--null", "--reproducible", "--quiet"]);
    let cpio = cpio.arg("--file").arg(inside.join("archive")).cwd(&inside.join(TREE)).stdin(names);
    cpio.bind(work.path(), inside, true).run().context("packing the deploy ramdisk")?;
    let archive = work.path().join("archive");
    let packed = work.path().join(INITRAMFS);
    let mut encoder = zstd::Encoder::new(fs_err::File::create(&packed)?, LEVEL)?;
    encoder.multithread(2)?;
    encoder.include_checksum(true)?;
    io::copy(&mut fs_err::File::open(&archive)?, &mut encoder)?;
    encoder.finish()?;
    fs_err::remove_file(archive)?;
    Ok(packed)
}

/// What is served of it, under the names that Metal3's users know.
pub fn files(made: &Made) -> Result<Vec<ContentFile>> {
    let file = |name: &str| {
        let blob = made.file(name)?;
        let path = format!("netboot/ironic-python-agent.{name}");
        Ok(ContentFile::stored(path, ContentKind::Netboot, blob))
    };
    [KERNEL, INITRAMFS].into_iter().map(file).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Ramdisk;
    use crate::config::{Provisioning, Services};

    #[test]
    fn the_recipe_of_this_workspace_is_right_and_only_provisioning_has_it() {
        let services = |provisioning: bool| Services {
            provisioning: provisioning.then(Provisioning::default),
            ..Services::default()
        };
        let images = Path::new("../images");
        assert!(Ramdisk::declared(images, &services(false)).expect("read").is_none());
        let ramdisk = Ramdisk::declared(images, &services(true)).expect("read").expect("declared");
        assert!(ramdisk.recipe.packages.is_sorted(), "sort the packages");
        assert!(ramdisk.folder.join(&ramdisk.recipe.overlay).is_dir());
    }
}
