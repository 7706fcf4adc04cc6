//! Images that lie as files on a partition: of sticks with several systems (Ventoy), and of GRUB's menus that loop one.
//!
//! Firmware and GRUB show such an image as a disc; the kernel sees only the partition that it lies on.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::probe::{self, Content};

/// Where such a partition is mounted for a moment.
pub const PLACE: &str = "/run/foothold-images";
/// Folders within each other, and entries, that are looked at: what people keep images in.
const DEEPEST: usize = 4;
const MOST_ENTRIES: usize = 20_000;
/// Ending of images.
const ENDING: &str = "iso";

/// The kernel's name of the file system, its module, if files of people may lie on it, and how it is mounted.
pub fn file_system(content: &Content) -> Option<(&'static str, &'static str)> {
    match content {
        Content::Fat { .. } => Some(("vfat", "")),
        // Nothing is replayed: a foreign disk stays as it is.
        Content::Ext4 { .. } => Some(("ext4", "noload")),
        Content::Other { name } if name == "exFAT" => Some(("exfat", "")),
        Content::Other { name } if name == "NTFS" => Some(("ntfs3", "")),
        Content::Iso9660 { .. } | Content::Gpt | Content::Mbr | Content::Other { .. } => None,
    }
}

/// Whether the device is one of a stick with several systems, or one whose files were copied.
pub fn maker(content: &Content, label: &str) -> Option<&'static str> {
    match content {
        Content::Fat { label: found } if found == "VTOYEFI" => Some("it is a stick of Ventoy"),
        Content::Fat { label: found } if found == label => {
            Some("the files of the ISO were copied to it, as Rufus does")
        }
        _ => None,
    }
}

/// The images below `root` whose volume has this label.
pub fn images(root: &Path, label: &str) -> Vec<PathBuf> {
    let walk = walkdir::WalkDir::new(root).max_depth(DEEPEST).sort_by_file_name();
    let files = walk.into_iter().take(MOST_ENTRIES).filter_map(Result::ok).filter(|entry| entry.file_type().is_file());
    let paths = files.map(walkdir::DirEntry::into_path);
    let images = paths.filter(|path| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(ENDING)));
    images.filter(|path| is_labelled(path, label).unwrap_or(false)).collect()
}

fn is_labelled(path: &Path, label: &str) -> io::Result<bool> {
    let head = probe::read_head(&mut fs_err::File::open(path)?)?;
    Ok(probe::identify(&head)
        .iter()
        .any(|content| matches!(content, Content::Iso9660 { label: found, .. } if found == label)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{file_system, images, maker};
    use crate::disk::probe::Content;

    /// As much of an ISO as tells its label.
    fn iso(path: &Path, label: &str) {
        let mut bytes = vec![0; 0x8800];
        bytes[0x8000..0x8006].copy_from_slice(b"\x01CD001");
        bytes[0x8028..0x8048].fill(b' ');
        bytes[0x8028..0x8028 + label.len()].copy_from_slice(label.as_bytes());
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs_err::write(path, bytes).expect("written");
    }

    #[test]
    fn images_are_found_in_folders_by_their_label() {
        let dir = tempfile::tempdir().expect("a folder");
        iso(&dir.path().join("edge-1.4.0.iso"), "FOOTHOLD");
        iso(&dir.path().join("ISO/linux/EDGE.ISO"), "FOOTHOLD");
        iso(&dir.path().join("debian.iso"), "Debian 13");
        iso(&dir.path().join("edge.img"), "FOOTHOLD");
        iso(&dir.path().join("a/b/c/d/too-deep.iso"), "FOOTHOLD");
        fs_err::write(dir.path().join("short.iso"), "x").expect("written");
        let found = images(dir.path(), "FOOTHOLD");
        assert_eq!(found, [dir.path().join("ISO/linux/EDGE.ISO"), dir.path().join("edge-1.4.0.iso")]);
    }

    #[test]
    fn what_holds_files_is_known_and_who_made_it() {
        let other = |name: &str| Content::Other { name: name.to_owned() };
        let fat = |label: &str| Content::Fat { label: label.to_owned() };
        assert_eq!(file_system(&other("exFAT")), Some(("exfat", "")));
        assert_eq!(file_system(&other("LUKS")), None);
        assert!(maker(&fat("VTOYEFI"), "FOOTHOLD").is_some_and(|said| said.contains("Ventoy")));
        assert!(maker(&fat("FOOTHOLD"), "FOOTHOLD").is_some_and(|said| said.contains("Rufus")));
        assert_eq!(maker(&fat("ESP"), "FOOTHOLD"), None);
    }
}
