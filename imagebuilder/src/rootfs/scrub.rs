//! Taking out of a fresh Debian tree what must not be the same on every box, or differs between two builds.

use std::path::Path;

use anyhow::Result;

/// Files and folders that are removed whole.
const REMOVE: &[&str] = &[
    "etc/apt/sources.list",
    "etc/apt/sources.list.d/0000mmdebstrap.sources",
    "etc/hostname",
    "etc/machine-id",
    "etc/resolv.conf",
    "etc/ssh/ssh_host_ecdsa_key",
    "etc/ssh/ssh_host_ecdsa_key.pub",
    "etc/ssh/ssh_host_ed25519_key",
    "etc/ssh/ssh_host_ed25519_key.pub",
    "etc/ssh/ssh_host_rsa_key",
    "etc/ssh/ssh_host_rsa_key.pub",
    "etc/passwd-",
    "etc/group-",
    "etc/shadow-",
    "etc/gshadow-",
    "etc/subuid-",
    "etc/subgid-",
    "etc/.pwd.lock",
    "etc/cron.daily",
    "var/lib/dbus/machine-id",
    "var/lib/systemd/random-seed",
    "usr/lib/udev/hwdb.bin",
    "usr/share/i18n",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/share/perl",
    "usr/share/info",
    "usr/share/pixmaps",
];

/// Folders that stay, empty.
const EMPTY: &[&str] = &["tmp", "run", "proc", "sys", "dev", "var/cache", "var/log", "var/lib/apt/lists", "var/tmp"];

/// Scrubs the tree. dpkg's database moves from `/var` (which is DATA on the box) to `/usr/lib/dpkg/db`.
pub fn scrub(tree: &Path) -> Result<()> {
    for name in REMOVE {
        let path = tree.join(name);
        if path.is_dir() && !path.is_symlink() {
            fs_err::remove_dir_all(path)?;
        } else if path.symlink_metadata().is_ok() {
            fs_err::remove_file(path)?;
        }
    }
    for name in EMPTY {
        let path = tree.join(name);
        if path.symlink_metadata().is_ok() {
            fs_err::remove_dir_all(&path)?;
        }
        fs_err::create_dir_all(&path)?;
    }
    let database = tree.join("usr/lib/dpkg/db");
    fs_err::create_dir_all(&database)?;
    fs_err::rename(tree.join("var/lib/dpkg/status"), database.join("status"))?;
    fs_err::remove_dir_all(tree.join("var"))?;
    fs_err::create_dir(tree.join("var"))?;
    // systemd takes an empty file for "to be filled in"; the initrd writes the box's own into it.
    fs_err::write(tree.join("etc/machine-id"), "")?;
    Ok(())
}
