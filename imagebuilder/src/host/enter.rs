//! Entering a Debian tree: mounts and `chroot` in namespaces of our own.
//!
//! ```text
//! foothold -> unshare (mount, PID, [user] namespaces) -> foothold __enter SPEC -> program in the tree
//! ```
//! The tree itself is never written: the new root is a tmpfs on which the tree's top directories are
//! bound read-only and the caller's directories at the paths they have outside. All of it ends with the
//! namespace.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use serde::{Deserialize, Serialize};

/// First argument by which the builder's own program knows that it is called to enter a tree.
pub const ENTER: &str = "__enter";

/// A file or directory that is visible inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bind {
    /// Path outside.
    pub from: PathBuf,
    /// Path inside.
    pub to: PathBuf,
    /// Whether it may be written.
    pub writable: bool,
}

/// What to enter and what to run there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EnterSpec {
    /// The Debian tree.
    pub tree: PathBuf,
    /// What else is visible.
    pub binds: Vec<Bind>,
    /// Working directory inside.
    pub cwd: PathBuf,
    /// Program and arguments.
    pub argv: Vec<String>,
}

/// Performs the mounts, changes the root and replaces this process. Returns only an error.
pub fn enter(spec: &str) -> Result<std::convert::Infallible> {
    let spec: EnterSpec = serde_json::from_str(spec).context("reading what to enter")?;
    let root = PathBuf::from("/tmp");
    mount_flags(None, Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
    // Sources below /tmp would vanish under the new root: pin them by descriptor first.
    let pinned: Vec<_> = spec.binds.iter().map(pin).collect::<Result<_>>()?;
    let tree = open_path(&spec.tree)?;
    let devices = open_path(Path::new("/dev"))?;
    mount_fs("tmpfs", &root, "mode=0755")?;
    bind_tree(&through(&tree), &root)?;
    bind_devices(&through(&devices), &root)?;
    for (bind, source) in spec.binds.iter().zip(&pinned) {
        bind_one(bind, &through(source), &root)?;
    }
    nix::unistd::chdir(&root).context("entering the tree")?;
    nix::unistd::chroot(".").context("changing the root")?;
    nix::unistd::chdir(&spec.cwd).with_context(|| format!("entering `{}` in the tree", spec.cwd.display()))?;
    let argv: Vec<CString> =
        spec.argv.iter().map(|word| CString::new(word.as_str())).collect::<Result<_, _>>().context("arguments")?;
    nix::unistd::execvp(&argv[0], &argv).with_context(|| format!("starting `{}` in the tree", spec.argv[0]))
}

fn pin(bind: &Bind) -> Result<std::os::fd::OwnedFd> {
    open_path(&bind.from)
}

/// Programs inside get no descriptor of ours: dash cannot name one above 9, and mmdebstrap asks it to.
fn open_path(path: &Path) -> Result<std::os::fd::OwnedFd> {
    use nix::fcntl::{OFlag, open};
    open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty())
        .with_context(|| format!("opening `{}`", path.display()))
}

fn through(fd: &std::os::fd::OwnedFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Directories of the tree that hold programs and their settings. All others are empty scratch space, so that the
/// caller's directories can be bound below them.
const BOUND: &[&str] = &["bin", "etc", "lib", "lib64", "opt", "sbin", "usr"];

/// Top directories of the tree, read-only; its symbolic links as they are; scratch space where programs write.
fn bind_tree(tree: &Path, root: &Path) -> Result<()> {
    for entry in fs_err::read_dir(tree)? {
        let entry = entry?;
        let (path, target) = (tree.join(entry.file_name()), root.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            fs_err::os::unix::fs::symlink(fs_err::read_link(entry.path())?, &target)?;
        } else if kind.is_dir() {
            fs_err::create_dir(&target)?;
            if BOUND.iter().any(|name| entry.file_name() == *name) {
                bind_path(&path, &target, false)?;
            }
        }
    }
    for scratch in ["tmp", "run", "var/tmp"] {
        let path = root.join(scratch);
        if !path.is_dir() {
            fs_err::create_dir_all(&path)?;
        }
        mount_fs("tmpfs", &path, "mode=1777")?;
    }
    let proc = root.join("proc");
    fs_err::create_dir_all(&proc)?;
    mount_fs("proc", &proc, "")
}

fn bind_devices(host: &Path, root: &Path) -> Result<()> {
    let dev = root.join("dev");
    fs_err::create_dir_all(&dev)?;
    mount_fs("tmpfs", &dev, "mode=0755")?;
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        fs_err::write(dev.join(name), "")?;
        bind_path(&host.join(name), &dev.join(name), true)?;
    }
    for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        fs_err::os::unix::fs::symlink(target, dev.join(name))?;
    }
    for name in ["shm", "pts"] {
        fs_err::create_dir(dev.join(name))?;
    }
    mount_fs("tmpfs", &dev.join("shm"), "mode=1777")
}

fn bind_one(bind: &Bind, source: &Path, root: &Path) -> Result<()> {
    let inside = bind.to.strip_prefix("/").unwrap_or(&bind.to);
    let target = root.join(inside);
    if source.is_dir() {
        fs_err::create_dir_all(&target)?;
    } else if !target.exists() {
        if let Some(parent) = target.parent() {
            fs_err::create_dir_all(parent)?;
        }
        fs_err::write(&target, "")?;
    }
    bind_path(source, &target, bind.writable)
}

fn bind_path(source: &Path, target: &Path, writable: bool) -> Result<()> {
    mount(Some(source), target, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .with_context(|| format!("binding onto `{}`", target.display()))?;
    if writable {
        return Ok(());
    }
    // In a user namespace the flags that the outer mount carries are locked and must be repeated.
    let stat = nix::sys::statvfs::statvfs(target).context("reading mount flags")?;
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    for (have, keep) in [
        (nix::sys::statvfs::FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (nix::sys::statvfs::FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (nix::sys::statvfs::FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (nix::sys::statvfs::FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (nix::sys::statvfs::FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        if stat.flags().contains(have) {
            flags |= keep;
        }
    }
    mount_flags(None, target, flags)
}

fn mount_flags(source: Option<&Path>, target: &Path, flags: MsFlags) -> Result<()> {
    mount(source, target, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("changing the mount `{}`", target.display()))
}

fn mount_fs(kind: &str, target: &Path, options: &str) -> Result<()> {
    mount(Some(kind), target, Some(kind), MsFlags::MS_NOSUID, Some(options.as_bytes()))
        .with_context(|| format!("mounting {kind} on `{}`", target.display()))
}

/// Whether these arguments ask to enter a tree; the JSON of what to enter.
pub fn asked(args: &[OsString]) -> Option<String> {
    (args.get(1)?.as_bytes() == ENTER.as_bytes()).then(|| args.get(2))?.map(|spec| spec.to_string_lossy().into_owned())
}
