//! Small files, and where they lie.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The folder of a file; the current one when its path names none.
pub fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file that only its owner may read: all of it, or nothing.
pub fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    persist(tempfile::NamedTempFile::new_in(directory_of(file))?, file, bytes)
}

/// Writes a file for people, who may read it as far as the umask lets them: all of it, or nothing.
pub fn write_shared(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mode = Permissions::from_mode(0o666);
    persist(tempfile::Builder::new().permissions(mode).tempfile_in(directory_of(file))?, file, bytes)
}

fn persist(mut partial: tempfile::NamedTempFile, file: &Path, bytes: &[u8]) -> io::Result<()> {
    partial.write_all(bytes)?;
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
