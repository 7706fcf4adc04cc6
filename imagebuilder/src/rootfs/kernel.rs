//! Debian's kernel: which modules stay, with the firmware that they ask for; which the initrd carries.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use agent_api::release::Blob;
use anyhow::{Context, Result, bail};
use rayon::prelude::*;

use super::{INSIDE, firmware};
use crate::lock::Deb;
use crate::store::{Cache, WorkDir};
use crate::toolbox::Toolbox;

/// A list of path prefixes; a line with `-` takes out again, and the last line that fits decides.
#[derive(Clone, Debug)]
pub struct ModuleList(Vec<(bool, String)>);

impl ModuleList {
    /// Reads the lines of `packages/kernel/*.txt`.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(
            lines
                .map(|line| match line.strip_prefix('-') {
                    Some(prefix) => (false, prefix.to_owned()),
                    None => (true, line.to_owned()),
                })
                .collect(),
        )
    }

    /// Whether a path below `kernel/` is chosen.
    pub fn keeps(&self, path: &str) -> bool {
        self.0.iter().rev().find(|(_, prefix)| path.starts_with(prefix.as_str())).is_some_and(|(keep, _)| *keep)
    }
}

/// Kernel release of the only kernel in the tree, as `uname -r` prints it.
pub fn release_of(tree: &Path) -> Result<String> {
    let mut names: Vec<String> = fs_err::read_dir(tree.join("usr/lib/modules"))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => bail!("expected exactly one kernel in `{}`", tree.display()),
    }
}

/// Whether it is the kernel itself: neither the package that only names the newest one, nor what serves an initrd that is
/// not ours.
pub fn is_kernel(deb: &Deb) -> bool {
    deb.name
        .strip_prefix("linux-image-")
        .is_some_and(|release| release.starts_with(|first: char| first.is_ascii_digit()))
}

/// Puts the kernel's modules that the list keeps into the tree `<work>/<name>`, and those files of the other packages of
/// `linux` that these modules ask for. Returns its release and its image.
pub fn install(
    cache: &Cache,
    toolbox: &Toolbox,
    work: &WorkDir,
    name: &str,
    linux: &[Deb],
    keep: &ModuleList,
) -> Result<(String, Blob)> {
    let unpacked = work.path().join("linux");
    super::unpack(cache, linux, &unpacked)?;
    let release = release_of(&unpacked)?;
    let modules = unpacked.join("usr/lib/modules").join(&release);
    choose(&modules, keep)?;
    let image = unpacked.join("boot").join(format!("vmlinuz-{release}"));
    let image = cache.adopt(&image).context("the kernel package has no kernel")?;
    let into = work.path().join(name).join("usr/lib/modules");
    fs_err::create_dir_all(&into)?;
    fs_err::rename(&modules, into.join(&release))?;
    let depmod = toolbox.tool("depmod").args(["--basedir", &format!("{INSIDE}/{name}"), &release]);
    depmod.bind(work.path(), Path::new(INSIDE), true).run().context("listing the kernel's modules")?;
    firmware::install(toolbox, work, name, &unpacked, &release)?;
    fs_err::remove_dir_all(&unpacked)?;
    Ok((release, image))
}

/// All module files below `<modules>/kernel`, relative to it.
pub(super) fn modules_in(modules: &Path) -> Result<Vec<PathBuf>> {
    let root = modules.join("kernel");
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(&root).sort_by_file_name() {
        let entry = entry?;
        if entry.file_type().is_file() {
            found.push(entry.path().strip_prefix(&root)?.to_owned());
        }
    }
    Ok(found)
}

/// Removes the modules that the list does not keep, then empty folders.
fn choose(modules: &Path, list: &ModuleList) -> Result<()> {
    for module in modules_in(modules)? {
        if !list.keeps(&module.to_string_lossy()) {
            fs_err::remove_file(modules.join("kernel").join(module))?;
        }
    }
    Ok(())
}

/// Dependencies of each module by `modules.dep` (depmod(8)): paths relative to the modules folder.
pub fn parse_dep(text: &str) -> BTreeMap<String, Vec<String>> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(module, needs)| (module.to_owned(), needs.split_whitespace().map(str::to_owned).collect()))
        .collect()
}

/// The modules that the initrd needs: those on the list and everything they depend on.
pub fn initrd_set(dep: &BTreeMap<String, Vec<String>>, list: &ModuleList) -> BTreeSet<String> {
    let mut chosen = BTreeSet::new();
    for (module, needs) in dep {
        if module.strip_prefix("kernel/").is_some_and(|path| list.keeps(path)) {
            chosen.insert(module.clone());
            chosen.extend(needs.iter().cloned());
        }
    }
    chosen
}

/// Unpacks the chosen `.ko.xz` modules to `.ko` in `<into>/usr/lib/modules/<release>`. Their signatures are inside.
pub fn unpack_for_initrd(modules: &Path, chosen: &BTreeSet<String>, into: &Path) -> Result<()> {
    chosen.par_iter().try_for_each(|name| {
        let packed = fs_err::read(modules.join(name))?;
        let plain_name = name.strip_suffix(".xz").unwrap_or(name);
        let target = into.join(plain_name);
        fs_err::create_dir_all(target.parent().context("a module lies in a folder")?)?;
        let plain = if plain_name == name {
            packed
        } else {
            let mut plain = Vec::new();
            liblzma::read::XzDecoder::new(packed.as_slice())
                .read_to_end(&mut plain)
                .with_context(|| format!("unpacking the kernel module `{name}`"))?;
            plain
        };
        fs_err::write(target, plain)?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::{ModuleList, initrd_set, is_kernel, parse_dep};
    use crate::lock::Deb;

    #[test]
    fn the_kernel_is_the_package_with_a_release_in_its_name() {
        let deb = |name: &str| Deb {
            name: name.to_owned(),
            version: "1".into(),
            architecture: "amd64".into(),
            sha256: crate::store::hash::bytes(b""),
            size: 0,
        };
        assert!(is_kernel(&deb("linux-image-6.12.117+deb13-amd64")));
        for other in ["linux-image-amd64", "linux-base", "firmware-bnx2x"] {
            assert!(!is_kernel(&deb(other)), "{other}");
        }
    }

    #[test]
    fn the_last_fitting_line_decides() {
        let list = ModuleList::parse("# all\ndrivers/\n-drivers/gpu/\ndrivers/gpu/drm/ast/\n");
        assert!(list.keeps("drivers/net/e1000.ko.xz"));
        assert!(!list.keeps("drivers/gpu/drm/i915/i915.ko.xz"));
        assert!(list.keeps("drivers/gpu/drm/ast/ast.ko.xz"));
        assert!(!list.keeps("sound/core/snd.ko.xz"));
    }

    #[test]
    fn dependencies_come_along() {
        let dep = parse_dep("kernel/a.ko.xz: kernel/b.ko.xz kernel/c.ko.xz\nkernel/b.ko.xz:\nkernel/d.ko.xz:\n");
        let chosen = initrd_set(&dep, &ModuleList::parse("a"));
        assert_eq!(chosen.into_iter().collect::<Vec<_>>(), ["kernel/a.ko.xz", "kernel/b.ko.xz", "kernel/c.ko.xz"]);
    }
}
