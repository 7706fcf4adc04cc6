//! The `os` layer, the kernel, and the modules of the initrd.

use std::path::Path;

use agent_api::release::Package;
use anyhow::{Context, Result};

use super::seal;
use super::squashfs::Packing;
use crate::lock::{Deb, Lock};
use crate::rootfs::kernel::{self, ModuleList};
use crate::rootfs::{self, INSIDE, scrub};
use crate::store::{Cache, Made, StageKey, WorkDir, hash};
use crate::toolbox::Toolbox;

/// Name of the kernel among the stage's files.
pub const KERNEL: &str = "vmlinuz";
/// Name of the initrd's modules among the stage's files: a tar of `usr/lib/modules/<release>/...`.
pub const INITRD_MODULES: &str = "initrd-modules.tar";

/// What the layer is made from.
pub struct Input<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The toolbox.
    pub toolbox: &'a Toolbox,
    /// Key of the toolbox.
    pub toolbox_key: &'a str,
    /// The lock.
    pub lock: &'a Lock,
    /// The folder `packages/`.
    pub packages: &'a Path,
    /// Told what is waited for.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

/// What the layer's stage depends on.
struct Plan {
    key: StageKey,
    modules: ModuleList,
    initrd: ModuleList,
}

fn plan(input: &Input<'_>) -> Result<Plan> {
    let (os, linux) = (input.lock.packages("os")?, input.lock.packages("kernel")?);
    let list = |name: &str| fs_err::read_to_string(input.packages.join("kernel").join(name));
    let (modules, initrd) = (list("modules.txt")?, list("initrd.txt")?);
    let key = StageKey::new("os", 5)
        .with("toolbox", input.toolbox_key)
        .with("packages", hash::bytes(&serde_json::to_vec(&(os, linux))?))
        .with("modules", hash::bytes(modules.as_bytes()))
        .with("initrd", hash::bytes(initrd.as_bytes()))
        .with("built", input.lock.made);
    Ok(Plan { key, modules: ModuleList::parse(&modules), initrd: ModuleList::parse(&initrd) })
}

/// The layer, when it is in the cache.
pub fn recall(input: &Input<'_>) -> Result<Option<Made>> {
    input.cache.recall(&plan(input)?.key)
}

/// Makes the layer or takes it from the cache. Facts: `layer`, `kernelRelease`, `packages`.
pub fn make(input: &Input<'_>) -> Result<(Made, bool)> {
    let Plan { key, modules, initrd } = plan(input)?;
    let (os, linux) = (input.lock.packages("os")?, input.lock.packages("kernel")?);
    input.cache.stage(&key, &mut || (input.waiting)("another build is making the same"), |work| {
        rootfs::bootstrap(input.cache, input.toolbox, work, "tree", os, input.lock.made)?;
        let mut made = Made::default();
        let tree = work.path().join("tree");
        scrub::scrub(&tree)?;
        let (release, image) = kernel::install(input.cache, input.toolbox, work, "tree", linux, &modules)?;
        made.files.insert(KERNEL.to_owned(), image);
        add_initrd_modules(input, work, &tree.join("usr/lib/modules").join(&release), &initrd, &mut made)?;
        made.set_fact("kernelRelease", &release)?;
        made.set_fact("packages", &package_list(os, linux))?;
        let packing = Packing { level: 15, all_root: false, time: input.lock.made, order: Vec::new() };
        seal::seal(input.cache, input.toolbox, work, "tree", "os", &packing, &mut made)?;
        Ok(made)
    })
}

fn package_list(os: &[Deb], linux: &[Deb]) -> Vec<Package> {
    os.iter().chain(linux).map(|deb| Package { name: deb.name.clone(), version: deb.version.clone() }).collect()
}

fn add_initrd_modules(
    input: &Input<'_>,
    work: &WorkDir,
    modules: &Path,
    list: &ModuleList,
    made: &mut Made,
) -> Result<()> {
    let release = modules.file_name().context("a release")?;
    let root = work.path().join("initrd-modules");
    let into = root.join("usr/lib/modules").join(release);
    let dep = kernel::parse_dep(&fs_err::read_to_string(modules.join("modules.dep"))?);
    kernel::unpack_for_initrd(modules, &kernel::initrd_set(&dep, list), &into)?;
    for index in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        fs_err::copy(modules.join(index), into.join(index))?;
    }
    // depmod looks below /lib, which is a link in a whole tree.
    let link = root.join("lib");
    fs_err::os::unix::fs::symlink("usr/lib", &link)?;
    let base = format!("{INSIDE}/initrd-modules");
    let depmod = input.toolbox.tool("depmod").args(["--basedir", &base]).arg(release);
    depmod.bind(work.path(), Path::new(INSIDE), true).run().context("listing the initrd's modules")?;
    fs_err::remove_file(link)?;
    for index in [
        "modules.alias.bin",
        "modules.dep.bin",
        "modules.symbols.bin",
        "modules.builtin.bin",
        "modules.symbols",
        "modules.builtin.alias.bin",
        "modules.builtin.modinfo",
        "modules.order",
        "modules.devname",
        "modules.weakdep",
    ] {
        let _ = fs_err::remove_file(into.join(index));
    }
    let tar = work.path().join(INITRD_MODULES);
    crate::oci::tarball::write(&root, input.lock.made, std::io::BufWriter::new(fs_err::File::create(&tar)?))?;
    fs_err::remove_dir_all(&root)?;
    made.files.insert(INITRD_MODULES.to_owned(), input.cache.adopt(&tar)?);
    Ok(())
}
