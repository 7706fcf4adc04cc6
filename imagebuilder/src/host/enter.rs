//! Entering a Debian tree: mounts and `chroot` in namespaces of our own.
//!
//! ```text
//! foothold -> unshare (mount, PID, [user] namespaces) -> foothold __enter SPEC -> program in the tree
//! ```
//! The tree itself is never written: the new root is a tmpfs on which the tree's top directories are
//! bound read-only and the caller's directories at the paths they have outside, wherever that is. All of it ends with
//! the namespace.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
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
    let target = inside(root, &bind.to)?;
    let is_directory = source.is_dir();
    if !target.exists()
        && let Err(error) = make_target(&target, is_directory)
    {
        // The tree's own directories are read-only: one of them makes room.
        if error.raw_os_error() != Some(libc::EROFS) {
            return Err(error).with_context(|| format!("making `{}`", target.display()));
        }
        make_room(&target)?;
        make_target(&target, is_directory)?;
    }
    bind_path(source, &target, bind.writable)
}

fn make_target(target: &Path, is_directory: bool) -> std::io::Result<()> {
    if is_directory {
        return fs_err::create_dir_all(target);
    }
    if let Some(parent) = target.parent() {
        fs_err::create_dir_all(parent)?;
    }
    fs_err::write(target, "")
}

/// Makes the deepest directory above `target` that is there a writable one that holds all that it held.
fn make_room(target: &Path) -> Result<()> {
    let there = target.ancestors().skip(1).find(|path| path.is_dir()).context("the new root is a directory")?;
    let before = open_path(there)?;
    mount_fs("tmpfs", there, "mode=0755")?;
    for entry in fs_err::read_dir(through(&before))? {
        let entry = entry?;
        let (path, again) = (through(&before).join(entry.file_name()), there.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            fs_err::os::unix::fs::symlink(fs_err::read_link(&path)?, &again)?;
            continue;
        }
        if kind.is_dir() {
            fs_err::create_dir(&again)?;
        } else {
            fs_err::write(&again, "")?;
        }
        bind_path(&path, &again, false)?;
    }
    Ok(())
}

/// Where a path of the new root lies now. Links are those of the new root: followed from here, an absolute one would lead
/// into the host's.
fn inside(root: &Path, path: &Path) -> Result<PathBuf> {
    /// As many as Linux follows (`path_resolution(7)`).
    const MOST_LINKS: usize = 40;
    let mut rest: Vec<OsString> = path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    let (mut at, mut links) = (root.to_owned(), 0);
    while let Some(part) = rest.pop() {
        match part.as_bytes() {
            b"/" => root.clone_into(&mut at),
            b"." => {}
            b".." => {
                if at != root {
                    at.pop();
                }
            }
            _ => match fs_err::read_link(at.join(&part)) {
                Ok(target) => {
                    links += 1;
                    ensure!(links <= MOST_LINKS, "`{}` has too many links in the tree", path.display());
                    rest.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
                }
                Err(_) => at.push(part),
            },
        }
    }
    Ok(at)
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::inside;

    #[test]
    fn links_of_the_new_root_lead_to_the_new_root() {
        let dir = tempfile::tempdir().expect("a folder");
        let link = |target: &str, name: &str| {
            fs_err::os::unix::fs::symlink(target, dir.path().join(name)).expect("linked");
        };
        fs_err::create_dir_all(dir.path().join("usr/lib")).expect("made");
        fs_err::create_dir_all(dir.path().join("var")).expect("made");
        link("usr/lib", "lib");
        link("/run", "var/run");
        link("../../../../etc", "var/out");
        link("round", "round");
        for (path, expected) in [
            ("/srv/a b", "srv/a b"),
            ("/lib/x", "usr/lib/x"),
            ("/var/run/x", "run/x"),
            ("/var/out/x", "etc/x"),
            ("/a/../../b/./c", "b/c"),
        ] {
            assert_eq!(inside(dir.path(), Path::new(path)).expect("a path"), dir.path().join(expected), "{path}");
        }
        assert!(inside(dir.path(), Path::new("/round/x")).is_err());
    }
}
