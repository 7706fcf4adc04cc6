//! Mounting.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{self as sys, MountFlags, UnmountFlags};

/// A mount that failed.
#[derive(Debug, thiserror::Error)]
#[error("mounting {what} on `{}`", .target.display())]
pub struct MountError {
    /// Type and source.
    pub what: String,
    /// Where.
    pub target: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Options of a mount.
#[derive(Clone, Copy, Debug)]
pub struct MountOptions<'a> {
    /// Flags such as `RDONLY`.
    pub flags: MountFlags,
    /// Text for the file system itself.
    pub data: &'a str,
}

impl<'a> MountOptions<'a> {
    /// Read-only, no set-uid programs, no devices.
    pub fn read_only(data: &'a str) -> Self {
        Self { flags: MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, data }
    }

    /// These flags.
    pub const fn new(flags: MountFlags, data: &'a str) -> Self {
        Self { flags, data }
    }
}

/// Where something is mounted, in the order in which it was. `mountinfo`: the text of `/proc/self/mountinfo`, whose fifth field
/// has blanks and backslashes as octal numbers. Source: `proc_pid_mountinfo(5)`.
pub fn points(mountinfo: &str) -> impl Iterator<Item = PathBuf> {
    let read = |field: &str| {
        [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
            .iter()
            .fold(field.to_owned(), |path, (octal, char)| path.replace(octal, char))
    };
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(move |field| PathBuf::from(read(field)))
}

/// Makes the directory `target` and mounts `source` on it.
pub fn mount(kind: &str, source: &str, target: &Path, options: MountOptions<'_>) -> Result<(), MountError> {
    let fail = |source_error: io::Error| MountError {
        what: format!("{kind} `{source}`"),
        target: target.to_owned(),
        source: source_error,
    };
    fs_err::create_dir_all(target).map_err(fail)?;
    let data = CString::new(options.data).map_err(|error| fail(error.into()))?;
    sys::mount(source, target, kind, options.flags, data.as_c_str()).map_err(|error| fail(error.into()))
}

/// Makes `source` visible at `target` too.
pub fn bind(source: &Path, target: &Path) -> Result<(), MountError> {
    sys::mount_bind(source, target).map_err(|error| moving_failed("bind", source, target, error.into()))
}

/// Moves the mount at `source` to `target`.
pub fn move_to(source: &Path, target: &Path) -> Result<(), MountError> {
    sys::mount_move(source, target).map_err(|error| moving_failed("move", source, target, error.into()))
}

fn moving_failed(kind: &str, source: &Path, target: &Path, error: io::Error) -> MountError {
    MountError { what: format!("{kind} `{}`", source.display()), target: target.to_owned(), source: error }
}

/// Unmounts; `lazy` lets go of it even when it is in use.
pub fn unmount(target: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    Ok(sys::unmount(target, flags)?)
}

/// The kernel message behind an error, in words a user can look up.
pub fn cause(error: &MountError) -> String {
    error.source.to_string()
}
