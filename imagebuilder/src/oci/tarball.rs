//! A layer as a tar stream (OCI image specification, layer.md): sorted, root-owned, one time for all.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Writes the tree below `root` as tar. Names of one file stay names of one file.
pub fn write(root: &Path, time: u64, into: impl std::io::Write) -> Result<()> {
    let mut tar = tar::Builder::new(into);
    let mut written: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    for entry in walkdir::WalkDir::new(root).sort_by_file_name().min_depth(1) {
        let entry = entry?;
        let name = entry.path().strip_prefix(root)?;
        let meta = entry.metadata()?;
        let mut header = tar::Header::new_gnu();
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mode(meta.permissions().mode() & 0o7777);
        header.set_size(0);
        if entry.file_type().is_dir() {
            header.set_entry_type(tar::EntryType::Directory);
            tar.append_data(&mut header, format!("{}/", name.display()), std::io::empty())?;
        } else if entry.file_type().is_symlink() {
            header.set_entry_type(tar::EntryType::Symlink);
            tar.append_link(&mut header, name, fs_err::read_link(entry.path())?)?;
        } else if let Some(same) = written.get(&(meta.dev(), meta.ino())) {
            header.set_entry_type(tar::EntryType::Link);
            tar.append_link(&mut header, name, same)?;
        } else {
            if meta.nlink() > 1 {
                written.insert((meta.dev(), meta.ino()), name.to_owned());
            }
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(meta.len());
            tar.append_data(&mut header, name, fs_err::File::open(entry.path())?)?;
        }
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_same_tree_gives_the_same_bytes() {
        let make = || {
            let dir = tempfile::tempdir().expect("a folder");
            fs_err::create_dir(dir.path().join("b")).expect("made");
            fs_err::write(dir.path().join("b/file"), "x").expect("written");
            fs_err::os::unix::fs::symlink("b/file", dir.path().join("a")).expect("linked");
            fs_err::hard_link(dir.path().join("b/file"), dir.path().join("b/other")).expect("linked");
            let mut bytes = Vec::new();
            super::write(dir.path(), 7, &mut bytes).expect("packed");
            bytes
        };
        assert_eq!(make(), make());
        let bytes = make();
        let mut read = tar::Archive::new(&*bytes);
        let entries = read.entries().expect("a tar").map(|entry| {
            let entry = entry.expect("an entry");
            let link = entry.link_name().expect("a name").map(|name| name.display().to_string());
            (entry.path().expect("a path").display().to_string(), entry.size(), link)
        });
        let entries: Vec<_> = entries.collect();
        let expected = [("a", 0, Some("b/file")), ("b/", 0, None), ("b/file", 1, None), ("b/other", 0, Some("b/file"))];
        assert_eq!(entries, expected.map(|(path, size, link)| (path.to_owned(), size, link.map(str::to_owned))));
    }
}
