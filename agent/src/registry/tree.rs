//! The registry's storage as `distribution` lays it out (`registry/storage/paths.go`), with links to the medium where
//! blobs are: written at every boot, in memory, in milliseconds.
//!
//! ```text
//! docker/registry/v2/blobs/sha256/<2>/<hex>/data ─► the medium
//!                    repositories/<name>/_manifests/revisions/sha256/<hex>/link
//!                                       /_manifests/tags/<tag>/{current,index/sha256/<hex>}/link
//!                                       /_layers/sha256/<hex>/link
//! ```

use std::io;
use std::path::{Path, PathBuf};

use agent_api::release::Digest;
use fs_err::os::unix::fs::symlink;

use super::catalog::{Catalog, Repository};

/// Everything of the registry lies below it.
pub(super) const V2: &str = "docker/registry/v2";

/// Lays the tree out at `root`, which must not be there. `store` is where blobs are, as the registry sees it.
pub fn lay_out(root: &Path, catalog: &Catalog, store: &Path) -> io::Result<()> {
    let v2 = root.join(V2);
    fs_err::create_dir_all(v2.join("repositories"))?;
    for digest in catalog.sizes.keys() {
        let hex = digest.hex();
        let folder = v2.join("blobs/sha256").join(&hex[..2]).join(hex);
        fs_err::create_dir_all(&folder)?;
        symlink(store.join(hex), folder.join("data"))?;
    }
    let mut links = Links { folder: root.join("links"), made: 0 };
    fs_err::create_dir_all(&links.folder)?;
    for (name, repository) in &catalog.repositories {
        links.repository(&v2.join("repositories").join(name), repository)?;
    }
    fs_err::remove_dir_all(&links.folder)
}

/// Makes link files. The same digest is the same file, wherever it stands: each costs a page of memory otherwise.
struct Links {
    folder: PathBuf,
    made: usize,
}

impl Links {
    fn repository(&mut self, folder: &Path, repository: &Repository) -> io::Result<()> {
        for digest in &repository.manifests {
            self.link(&folder.join("_manifests/revisions/sha256").join(digest.hex()), digest)?;
        }
        for (tag, digest) in &repository.tags {
            let tag = folder.join("_manifests/tags").join(tag);
            self.link(&tag.join("current"), digest)?;
            self.link(&tag.join("index/sha256").join(digest.hex()), digest)?;
        }
        for digest in &repository.layers {
            self.link(&folder.join("_layers/sha256").join(digest.hex()), digest)?;
        }
        Ok(())
    }

    fn link(&mut self, folder: &Path, digest: &Digest) -> io::Result<()> {
        fs_err::create_dir_all(folder)?;
        let first = self.folder.join(digest.hex());
        if !first.exists() {
            fs_err::write(&first, digest.to_string())?;
            self.made += 1;
        }
        fs_err::hard_link(&first, folder.join("link"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::catalog::Catalog;
    use super::super::catalog::tests::image;
    use super::lay_out;

    #[test]
    fn the_tree_is_the_one_that_distribution_reads() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().join("root");
        let images = [image("docker.io/library/nginx:1", Some("c"), &["a", "b", "c"])];
        lay_out(&root, &Catalog::new(&images), Path::new("/store")).expect("laid out");
        let mut lines: Vec<String> = walk(&root).into_iter().map(|line| short(&line)).collect();
        lines.sort();
        insta::assert_snapshot!(lines.join("\n"));
    }

    fn short(text: &str) -> String {
        ["a", "b", "c"].iter().fold(text.to_owned(), |text, letter| text.replace(&letter.repeat(64), &letter.repeat(4)))
    }

    fn walk(root: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs_err::read_dir(root).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                found.extend(walk(&path).into_iter().map(|inner| join(&path, &inner)));
            } else if let Ok(target) = fs_err::read_link(&path) {
                found.push(join(&path, &format!(" -> {}", target.display())));
            } else {
                found.push(join(&path, &format!(" = {}", fs_err::read_to_string(&path).expect("text"))));
            }
        }
        found
    }

    fn join(path: &Path, rest: &str) -> String {
        let name = path.file_name().expect("a name").to_string_lossy();
        if rest.starts_with(' ') { format!("{name}{rest}") } else { format!("{name}/{rest}") }
    }
}
