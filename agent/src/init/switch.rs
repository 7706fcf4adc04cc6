//! Leaving the initrd: its mounts move to the new root, its files are forgotten, systemd takes over.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, unlinkat};

use super::layers::SYSROOT;
use crate::host::{mount, process};

/// What runs next.
pub const SYSTEMD: &str = "/usr/lib/systemd/systemd";

/// Moves the kernel's file systems and makes the new root the root.
pub fn enter_root() -> io::Result<()> {
    // It was bound for the tools that made DATA.
    mount::unmount(&Path::new(SYSROOT).join("dev"), true)?;
    for folder in ["run", "dev", "sys", "proc"] {
        let (from, to) = (Path::new("/").join(folder), Path::new(SYSROOT).join(folder));
        mount::move_to(&from, &to).map_err(io::Error::other)?;
    }
    let old = rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let old_device = fs_err::metadata("/")?.dev();
    rustix::process::chdir(SYSROOT)?;
    mount::move_to(Path::new("."), Path::new("/")).map_err(io::Error::other)?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")?;
    // The initrd's files are memory: tens of megabytes of modules that nobody can reach any more.
    forget(&old, old_device);
    Ok(())
}

/// Deletes everything below `folder` that lies on the same file system.
fn forget(folder: &rustix::fd::OwnedFd, device: u64) {
    let Ok(entries) = Dir::read_from(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entry.file_type() != FileType::Directory {
            let _ = unlinkat(folder, name, AtFlags::empty());
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(inner) = openat(folder, name, flags, Mode::empty()) else { continue };
        if rustix::fs::fstat(&inner).is_ok_and(|found| found.st_dev == device) {
            forget(&inner, device);
            let _ = unlinkat(folder, name, AtFlags::REMOVEDIR);
        }
    }
}

/// Becomes systemd. Returns only if that fails.
pub fn exec_systemd() -> io::Error {
    process::become_program(SYSTEMD, "systemd", &[("PATH", "/usr/sbin:/usr/bin"), ("TERM", "linux")])
}
