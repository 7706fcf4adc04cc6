//! Small files, and where they lie.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The folder of a file; the current one when its path names none.
pub fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file that only its owner may read: all of it, or nothing.
pub fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    write(&tempfile::Builder::new(), file, bytes)
}

/// Writes a file for people, who may read it as far as the umask lets them: all of it, or nothing.
pub fn write_shared(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mode = Permissions::from_mode(0o666);
    let mut builder = tempfile::Builder::new();
    builder.permissions(mode);
    write(&builder, file, bytes)
}

/// Where the file that is to be replaced lies: a link stays, and what it leads to is replaced.
///
/// # Errors
/// There is something else than a file: what is renamed to its name would take the place of a device or a pipe.
pub fn to_replace(file: &Path) -> io::Result<PathBuf> {
    match fs_err::metadata(file) {
        Ok(found) if found.is_file() => fs_err::canonicalize(file),
        Ok(_) => {
            let message = format!("`{}` is no file\nhint: name another one", file.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let link = fs_err::read_link(file).ok();
            Ok(link.map_or_else(|| file.to_owned(), |target| directory_of(file).join(target)))
        }
        Err(error) => Err(error),
    }
}

/// Whether two paths, links among them, lead to one file or to one device: what is written to the one is lost to the other.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (fs_err::metadata(one), fs_err::metadata(other)) else { return false };
    let are_devices = one.file_type().is_block_device() && other.file_type().is_block_device();
    (one.dev(), one.ino()) == (other.dev(), other.ino()) || (are_devices && one.rdev() == other.rdev())
}

/// A pipe, a terminal and the like take the bytes as they are.
fn takes_bytes(file: &Path) -> bool {
    let kind = fs_err::metadata(file).map(|found| found.file_type());
    kind.is_ok_and(|kind| kind.is_char_device() || kind.is_fifo())
}

fn write(builder: &tempfile::Builder<'_, '_>, file: &Path, bytes: &[u8]) -> io::Result<()> {
    if takes_bytes(file) {
        return fs_err::OpenOptions::new().write(true).open(file)?.write_all(bytes);
    }
    let file = to_replace(file)?;
    let mut partial = builder.tempfile_in(directory_of(&file))?;
    partial.write_all(bytes)?;
    // Before the name: a power cut must not leave an empty file in the place of a good one.
    partial.as_file().sync_all()?;
    partial.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::{directory_of, write_shared, write_whole};

    #[test]
    fn a_bare_name_lies_in_the_current_folder() {
        for (file, folder) in [("site.yaml", "."), ("a/site.yaml", "a"), ("/site.yaml", "/")] {
            assert_eq!(directory_of(Path::new(file)), Path::new(folder), "{file}");
        }
    }

    #[test]
    fn what_is_for_people_is_read_by_whom_the_umask_lets() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        fs_err::write(at("usual"), "").expect("written");
        write_shared(&at("shared"), b"").expect("written");
        write_whole(&at("own"), b"").expect("written");
        let mode = |name: &str| fs_err::metadata(at(name)).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode("shared"), mode("own")), (mode("usual"), 0o600));
    }

    #[test]
    fn links_stay_and_what_is_no_file_is_not_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        fs_err::write(at("kept"), "old").expect("written");
        for (link, target) in [("link", "kept"), ("dangling", "made")] {
            fs_err::os::unix::fs::symlink(target, at(link)).expect("a link");
            write_shared(&at(link), b"new").expect("written");
            assert!(fs_err::symlink_metadata(at(link)).expect("there").is_symlink());
            assert_eq!(fs_err::read_to_string(at(target)).expect("read"), "new");
        }
        fs_err::create_dir(at("folder")).expect("made");
        let error = write_shared(&at("folder"), b"").expect_err("a folder");
        assert!(error.to_string().contains("folder` is no file\nhint: "), "{error}");
        // As root this would put a file in the place of the device.
        write_whole(Path::new("/dev/null"), b"secret").expect("it takes everything");
        assert!(!fs_err::metadata("/dev/null").expect("there").is_file());
        super::to_replace(Path::new("/dev/null")).expect_err("a device");
    }

    #[test]
    fn a_whole_file_takes_the_place_of_an_older_one_and_nothing_lies_beside_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("hosts.yaml");
        for text in ["a longer one", "new"] {
            write_whole(&file, text.as_bytes()).expect("written");
            assert_eq!(fs_err::read_to_string(&file).expect("read"), text);
        }
        assert_eq!(fs_err::read_dir(dir.path()).expect("a folder").count(), 1);
        write_whole(&dir.path().join("absent/file"), b"").expect_err("there is no such folder");
    }
}
