//! The root of an OS image as a folder: packages, programs, overlays; then without all that differs from day to day.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, Timespec, Timestamps};

use super::Input;
use super::disk::{self, Ids, TREE};
use crate::rootfs;
use crate::rootfs::programs::place_all;
use crate::store::WorkDir;

/// Removed: what a machine makes anew for itself, and what the builder left.
const REMOVE: &[&str] = &[
    "etc/.pwd.lock",
    "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/apt/sources.list",
    "etc/apt/sources.list.d/0000mmdebstrap.sources",
    "etc/dpkg/dpkg.cfg.d/99mmdebstrap",
    "etc/group-",
    "etc/gshadow-",
    "etc/hostname",
    "etc/iscsi/initiatorname.iscsi",
    "etc/nvme/hostid",
    "etc/nvme/hostnqn",
    "etc/passwd-",
    "etc/shadow-",
    "etc/subgid-",
    "etc/subuid-",
    "var/lib/dbus/machine-id",
    "var/lib/dpkg/diversions-old",
    "var/lib/dpkg/status-old",
    "var/lib/dpkg/statoverride-old",
    "var/lib/systemd/random-seed",
];

/// Emptied: folders stay with their modes.
const EMPTY: &[&str] = &[
    "tmp",
    "run",
    "dev",
    "proc",
    "sys",
    "var/cache/apt",
    "var/cache/debconf",
    "var/cache/ldconfig",
    "var/lib/apt/lists",
    "var/tmp",
];

/// Host keys, which every server makes for itself.
const HOST_KEYS: &str = "etc/ssh";
const HOST_KEY: &str = "ssh_host_";

/// Makes the tree in the work folder.
pub fn make(input: &Input<'_>, work: &WorkDir, ids: &Ids) -> Result<()> {
    (input.waiting)(&format!("unpacking {} packages", input.debs.len()));
    rootfs::bootstrap(input.cache, input.toolbox, work, TREE, input.debs, input.built)?;
    let tree = work.path().join(TREE);
    for link in ["vmlinuz", "initrd.img"] {
        let there = fs_err::read_link(tree.join(link)).is_ok_and(|target| tree.join(target).is_file());
        ensure!(there, "the image has no `/{link}`\nhint: a kernel and `initramfs-tools` belong to its packages");
    }
    scrub(&tree)?;
    let programs = input.recipe.programs.iter().map(|(path, name)| (name.as_str(), path.as_str()));
    place_all(input.cache, input.programs, &tree, programs)?;
    for overlay in &input.recipe.overlays {
        lay_over(&input.directory.join(overlay), &tree)
            .with_context(|| format!("laying `{}` over the root", overlay.display()))?;
    }
    let menu = tree.join("boot/grub/grub.cfg");
    fs_err::create_dir_all(menu.parent().context("a folder")?)?;
    fs_err::write(menu, disk::menu(&ids.root, &input.recipe.command_line()))?;
    fs_err::write(tree.join("etc/fstab"), format!("UUID={} / ext4 errors=remount-ro 0 1\n", ids.root))?;
    clamp(&tree, input.built)
}

/// Takes out what differs from day to day, and what a machine makes for itself.
pub fn scrub(tree: &Path) -> Result<()> {
    for name in REMOVE {
        let path = tree.join(name);
        if path.symlink_metadata().is_ok() {
            fs_err::remove_file(path)?;
        }
    }
    for name in EMPTY {
        empty(&tree.join(name))?;
    }
    if tree.join(HOST_KEYS).is_dir() {
        for entry in fs_err::read_dir(tree.join(HOST_KEYS))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(HOST_KEY) {
                fs_err::remove_file(entry.path())?;
            }
        }
    }
    remove_logs(&tree.join("var/log"))?;
    remove_compiled(tree)?;
    // systemd takes an empty file for "to be filled in".
    fs_err::write(tree.join("etc/machine-id"), "")?;
    Ok(())
}

fn empty(folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs_err::remove_dir_all(entry.path())?;
        } else {
            fs_err::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Files go, folders stay: services expect theirs.
fn remove_logs(folder: &Path) -> Result<()> {
    for entry in walkdir::WalkDir::new(folder) {
        let entry = entry?;
        if !entry.file_type().is_dir() {
            fs_err::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Python's compiled modules: a third of its size, made anew when they are first used.
fn remove_compiled(tree: &Path) -> Result<()> {
    let mut found = Vec::new();
    let mut walk = walkdir::WalkDir::new(tree.join("usr")).into_iter();
    while let Some(entry) = walk.next() {
        let entry = entry?;
        if entry.file_type().is_dir() && entry.file_name() == "__pycache__" {
            walk.skip_current_dir();
            found.push(entry.into_path());
        }
    }
    found.iter().try_for_each(|path| Ok(fs_err::remove_dir_all(path)?))
}

/// Copies a folder over the tree, owned by root: links as they are, files with their executable bit.
pub fn lay_over(overlay: &Path, tree: &Path) -> Result<()> {
    for entry in walkdir::WalkDir::new(overlay).min_depth(1).sort_by_file_name() {
        let entry = entry?;
        let target = tree.join(entry.path().strip_prefix(overlay)?);
        if entry.file_type().is_dir() {
            fs_err::create_dir_all(&target)?;
            continue;
        }
        if target.symlink_metadata().is_ok() {
            fs_err::remove_file(&target)?;
        }
        if entry.file_type().is_symlink() {
            fs_err::os::unix::fs::symlink(fs_err::read_link(entry.path())?, &target)?;
        } else {
            fs_err::copy(entry.path(), &target)?;
            let executable = entry.metadata()?.permissions().mode() & 0o100 != 0;
            let mode = if executable { 0o755 } else { 0o644 };
            fs_err::set_permissions(&target, std::fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

/// No file is newer than the build: what was made while building has its time.
pub fn clamp(tree: &Path, built: u64) -> Result<()> {
    let built = i64::try_from(built).context("a build time")?;
    for entry in walkdir::WalkDir::new(tree).contents_first(true) {
        let entry = entry?;
        let modified = {
            use std::os::unix::fs::MetadataExt as _;
            entry.metadata()?.mtime()
        };
        let time = Timespec { tv_sec: modified.min(built), tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, entry.path(), &times, AtFlags::SYMLINK_NOFOLLOW)
            .with_context(|| format!("setting the time of `{}`", entry.path().display()))?;
    }
    Ok(())
}
