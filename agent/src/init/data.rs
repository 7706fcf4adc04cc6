//! What the initrd puts into DATA: the skeleton of `/var`, the machine id.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fs_err::os::unix::fs::symlink;

use crate::host::files;

/// Everything of ours in DATA.
const OURS: &str = "lib/foothold";
/// Folders of `/var` and their modes.
const FOLDERS: [(&str, u32); 7] = [
    ("lib", 0o755),
    ("log", 0o755),
    ("tmp", 0o1777),
    ("cache", 0o755),
    ("spool", 0o755),
    ("lib/foothold", 0o755),
    ("lib/systemd", 0o755),
];
/// Links of `/var` to where things live until power-off.
const LINKS: [(&str, &str); 2] = [("run", "/run"), ("lock", "/run/lock")];

/// Makes what `/var` must have.
pub fn skeleton(var: &Path) -> io::Result<()> {
    for (name, mode) in FOLDERS {
        let folder = var.join(name);
        if !folder.is_dir() {
            fs_err::create_dir_all(&folder)?;
            fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(mode))?;
        }
    }
    for (name, target) in LINKS {
        let link = var.join(name);
        if fs_err::symlink_metadata(&link).is_err() {
            symlink(target, &link)?;
        }
    }
    Ok(())
}

/// The machine id of this DATA, made at the first boot; and whether this is the first boot.
pub fn machine_id(var: &Path) -> io::Result<(String, bool)> {
    let path = var.join(OURS).join("machine-id");
    let known = match fs_err::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        // A disk that fails for a moment must not make another machine of it.
        read => read?,
    };
    let known = String::from_utf8_lossy(&known);
    let known = known.trim();
    if known.len() == 32 && known.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok((known.to_owned(), false));
    }
    let id = hex::encode(uuid::Builder::from_random_bytes(rand::random()).into_uuid().into_bytes());
    files::replace(&path, format!("{id}\n").as_bytes())?;
    Ok((id, true))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{machine_id, skeleton, symlink};
    use crate::disk::execute::mark;

    #[test]
    fn the_skeleton_is_made_once_and_kept() {
        let var = tempfile::tempdir().expect("a folder");
        skeleton(var.path()).expect("made");
        skeleton(var.path()).expect("kept");
        let mode = fs_err::metadata(var.path().join("tmp")).expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o1777);
        assert_eq!(fs_err::read_link(var.path().join("run")).expect("a link").to_string_lossy(), "/run");
    }

    #[test]
    fn the_machine_id_stays_and_a_broken_one_is_replaced() {
        let var = tempfile::tempdir().expect("a folder");
        mark(var.path(), "edge").expect("marked");
        let (id, first) = machine_id(var.path()).expect("made");
        assert!(first && id.len() == 32);
        assert_eq!(machine_id(var.path()).expect("read"), (id.clone(), false));
        fs_err::write(var.path().join("lib/foothold/machine-id"), "").expect("cut");
        let (other, first) = machine_id(var.path()).expect("made again");
        assert!(first && other != id);
        // A link to itself is to a read what a failing disk is: an error.
        let path = var.path().join("lib/foothold/machine-id");
        fs_err::remove_file(&path).expect("gone");
        symlink(&path, &path).expect("a link");
        machine_id(var.path()).expect_err("told");
    }
}
