//! A file that has no name until it is whole, so that a build that is killed leaves nothing behind.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;

use fs_err as fs;
use fs_err::File;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tempfile::TempPath;

use crate::store::Stamp;

const MODE: u32 = 0o644;

/// An output being written.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    path: PathBuf,
    /// Where the filesystem knows no nameless files: the name it has for now.
    temporary: Option<TempPath>,
}

impl Output {
    /// A new file that will be called `path`. Errors of writing name that path.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let (file, temporary) = match rustix::fs::openat(CWD, folder, flags, Mode::from_raw_mode(MODE)) {
            Ok(file) => (std::fs::File::from(file), None),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let (file, temporary) = tempfile::Builder::new().prefix(".writing-").tempfile_in(folder)?.into_parts();
                (file, Some(temporary))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { file: File::from_parts(file, path), path: path.to_owned(), temporary })
    }

    /// The file.
    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its name and the usual permissions, in place of an older one, and returns its stamp: that of this
    /// file, even when another build gives the name to its own at the same time. It is on the disk by then: what the disk
    /// could not take is an error here, or nowhere.
    pub(super) fn publish(self) -> io::Result<Stamp> {
        self.file.sync_all()?;
        self.file.set_permissions(PermissionsExt::from_mode(MODE))?;
        match self.temporary {
            Some(temporary) => temporary.persist(&self.path).map_err(|error| error.error)?,
            None => give_name(&self.file, &self.path)?,
        }
        Ok(Stamp::from(&self.file.metadata()?))
    }
}

/// Gives a file without a name one, in place of an older file.
fn give_name(file: &File, path: &Path) -> io::Result<()> {
    // A link cannot take the place of a file, a rename can.
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}", process::id()));
    let beside = path.with_file_name(name);
    let _ = fs::remove_file(&beside);
    rustix::fs::linkat(CWD, own_path(file), CWD, &beside, AtFlags::SYMLINK_FOLLOW)?;
    fs::rename(&beside, path)
}

/// A path under which this process can open a file again that has no name.
pub(super) fn own_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{Output, Stamp};

    #[test]
    fn a_file_appears_when_it_is_published_and_not_before() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("edge.raw");
        fs_err::write(&path, b"old").expect("an older file");
        let mut output = Output::create(&path).expect("a file");
        output.file().write_all(b"new").expect("writes");
        assert_eq!(fs_err::read(&path).expect("reads"), b"old");
        let stamp = output.publish().expect("a name");
        assert_eq!(stamp, Stamp::of(&path).expect("a stamp"));
        assert_eq!(fs_err::read(&path).expect("reads"), b"new");
        assert_eq!(fs_err::read_dir(dir.path()).expect("the folder").count(), 1);
    }

    #[test]
    fn a_file_that_is_given_up_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        drop(Output::create(&dir.path().join("edge.raw")).expect("a file"));
        assert_eq!(fs_err::read_dir(dir.path()).expect("the folder").count(), 0);
    }
}
