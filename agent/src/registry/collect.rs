//! Garbage collection of uploads: removes blobs on DATA that no manifest there names.
//!
//! ```text
//! mark:  every manifest that a repository on DATA has, and every digest in its text
//! sweep: what is not marked, not new and not the release's: links in repositories, then the bytes
//! ```
//! `distribution`'s own `garbage-collect` would also judge the release below, and hide parts of it for good. What a
//! manifest names stays, even without a tag: somebody may pull it by its digest.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::tree::V2;

/// A younger blob stays: the manifest that names it may still be on its way.
const NEW: Duration = Duration::from_secs(3600);

/// The registry's storage: what was uploaded, what the release brought, and both as the registry sees them.
#[derive(Clone, Debug)]
pub struct Trees {
    /// Uploads: only read here, as overlayfs demands.
    pub upper: PathBuf,
    /// The release.
    pub lower: PathBuf,
    /// Where things are removed.
    pub whole: PathBuf,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Blobs.
    pub blobs: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Removes blobs that no manifest names. Nothing may be pushed meanwhile. When a manifest cannot be read, nothing is
/// removed.
pub fn collect(trees: &Trees, now: SystemTime) -> io::Result<Collected> {
    let repositories = repositories(&trees.upper.join(V2).join("repositories"))?;
    let mut named = HashSet::new();
    for repository in &repositories {
        for (hex, _) in links(&repository.join("_manifests/revisions/sha256"))? {
            mark(&blob(&trees.whole, &hex).join("data"), &mut named)?;
            named.insert(hex);
        }
    }
    let mut linked: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for repository in &repositories {
        for (hex, since) in links(&repository.join("_layers/sha256"))? {
            // A push that found the blob there made a link to it.
            if is_new(since, now) {
                named.insert(hex);
            } else if let Ok(inner) = repository.strip_prefix(&trees.upper) {
                linked.entry(hex.clone()).or_default().push(trees.whole.join(inner).join("_layers/sha256").join(hex));
            }
        }
    }
    let mut collected = Collected::default();
    for (hex, size, since) in blobs(&trees.upper)? {
        if named.contains(&hex) || is_new(since, now) || blob(&trees.lower, &hex).exists() {
            continue;
        }
        for link in linked.remove(&hex).unwrap_or_default() {
            fs_err::remove_dir_all(link)?;
        }
        fs_err::remove_dir_all(blob(&trees.whole, &hex))?;
        collected.blobs += 1;
        collected.bytes += size;
    }
    Ok(collected)
}

fn is_new(since: SystemTime, now: SystemTime) -> bool {
    // A clock that was set back makes everything new: it stays.
    now.duration_since(since).map_or(true, |age| age < NEW)
}

/// Folder of a blob.
fn blob(tree: &Path, hex: &str) -> PathBuf {
    tree.join(V2).join("blobs/sha256").join(hex.get(..2).unwrap_or_default()).join(hex)
}

/// What is in a folder, with its kind; nothing when it is not there.
fn entries(folder: &Path) -> io::Result<Vec<(PathBuf, String, fs_err::DirEntry)>> {
    let entries = match fs_err::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let entries = entries.map(|entry| {
        let entry = entry?;
        Ok((entry.path(), entry.file_name().to_string_lossy().into_owned(), entry))
    });
    entries.collect()
}

/// Folders below the names of repositories: those that have parts of distribution's, which begin with `_`.
fn repositories(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for (path, name, entry) in entries(folder)? {
        if !entry.file_type()?.is_dir() {
            continue;
        }
        if !name.starts_with('_') {
            found.extend(repositories(&path)?);
        } else if !found.iter().any(|known| known == folder) {
            found.push(folder.to_owned());
        }
    }
    Ok(found)
}

/// The `<hex>/link` files in a folder: digest and time. A whiteout of overlayfs is no file.
fn links(folder: &Path) -> io::Result<Vec<(String, SystemTime)>> {
    let mut found = Vec::new();
    for (path, hex, _) in entries(folder)? {
        if let Some(link) = file(&path.join("link"))? {
            found.push((hex, link.modified()?));
        }
    }
    Ok(found)
}

/// All blobs of a tree: digest, bytes, since when.
fn blobs(tree: &Path) -> io::Result<Vec<(String, u64, SystemTime)>> {
    let mut found = Vec::new();
    for (folder, ..) in entries(&tree.join(V2).join("blobs/sha256"))? {
        for (path, hex, _) in entries(&folder)? {
            if let Some(data) = file(&path.join("data"))? {
                found.push((hex, data.len(), data.modified()?));
            }
        }
    }
    Ok(found)
}

fn file(path: &Path) -> io::Result<Option<std::fs::Metadata>> {
    match fs_err::symlink_metadata(path) {
        Ok(found) => Ok(Some(found).filter(std::fs::Metadata::is_file)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Adds every digest that is in a manifest's text, whatever its kind. A manifest that is gone names nothing.
fn mark(manifest: &Path, named: &mut HashSet<String>) -> io::Result<()> {
    const SIGN: &[u8] = b"sha256:";
    let text = match fs_err::read(manifest) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    for (at, _) in text.windows(SIGN.len()).enumerate().filter(|(_, window)| *window == SIGN) {
        let hex = text.get(at + SIGN.len()..at + SIGN.len() + 64);
        named.extend(hex.and_then(|hex| str::from_utf8(hex).ok()).map(str::to_owned));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use super::{Collected, NEW, Trees, V2, blob, collect};

    const OLD: Duration = Duration::from_secs(7200);

    fn hex(letter: char) -> String {
        letter.to_string().repeat(64)
    }

    /// Writes a file that is so old.
    fn put(path: &Path, text: &str, age: Duration) {
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs_err::write(path, text).expect("written");
        let file = fs_err::OpenOptions::new().write(true).open(path).expect("opened");
        file.file().set_modified(SystemTime::now() - age).expect("set");
    }

    struct Storage {
        dir: tempfile::TempDir,
    }

    impl Storage {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().expect("a folder") }
        }

        /// Without overlayfs, things are removed where they were uploaded.
        fn trees(&self) -> Trees {
            let upper = self.dir.path().join("upper");
            Trees { whole: upper.clone(), upper, lower: self.dir.path().join("lower") }
        }

        fn blob(&self, letter: char, text: &str, age: Duration) {
            put(&blob(&self.trees().upper, &hex(letter)).join("data"), text, age);
        }

        fn link(&self, repository: &str, part: &str, letter: char, age: Duration) {
            let folder = self.trees().upper.join(V2).join("repositories").join(repository).join(part);
            put(&folder.join("sha256").join(hex(letter)).join("link"), &format!("sha256:{}", hex(letter)), age);
        }

        fn collect(&self) -> Collected {
            collect(&self.trees(), SystemTime::now()).expect("collected")
        }

        fn left(&self) -> String {
            let there = |letter: &char| blob(&self.trees().upper, &hex(*letter)).exists();
            ('a'..='f').filter(there).collect()
        }
    }

    #[test]
    fn what_a_manifest_names_stays_and_the_rest_goes_when_it_is_old() {
        let storage = Storage::new();
        // `a` is an index of `b`, which has `c`; `d` belongs to a manifest that is gone, `e` to a push on its way, and a
        // push has found `f`.
        storage.blob('a', &format!("{{\"manifests\":[{{\"digest\":\"sha256:{}\"}}]}}", hex('b')), OLD);
        storage.blob('b', &format!("{{\"layers\":[{{\"digest\" : \"sha256:{}\"}}]}}", hex('c')), OLD);
        storage.blob('c', "layer", OLD);
        storage.blob('d', "twelve bytes", OLD);
        storage.blob('e', "new", NEW / 2);
        storage.blob('f', "found", OLD);
        for letter in ['a', 'b'] {
            storage.link("org/app", "_manifests/revisions", letter, OLD);
        }
        storage.link("org/app", "_layers", 'c', OLD);
        storage.link("org", "_layers", 'd', OLD);
        storage.link("org/app", "_layers", 'd', OLD);
        storage.link("other", "_layers", 'f', NEW / 2);
        assert_eq!(storage.collect(), Collected { blobs: 1, bytes: 12 });
        assert_eq!(storage.left(), "abcef");
        let links = storage.trees().upper.join(V2).join("repositories/org/app/_layers/sha256");
        assert!(links.join(hex('c')).exists() && !links.join(hex('d')).exists());
        assert_eq!(storage.collect(), Collected::default());
        // A blob that both have is the release's.
        storage.blob('d', "carried", OLD);
        fs_err::create_dir_all(blob(&storage.trees().lower, &hex('d'))).expect("made");
        assert_eq!(storage.collect(), Collected::default());
    }

    #[test]
    fn a_manifest_that_cannot_be_read_keeps_everything() {
        let storage = Storage::new();
        storage.blob('d', "nobody's", OLD);
        storage.link("app", "_manifests/revisions", 'a', OLD);
        fs_err::create_dir_all(blob(&storage.trees().upper, &hex('a')).join("data")).expect("made");
        collect(&storage.trees(), SystemTime::now()).expect_err("a folder is no manifest");
        assert_eq!(storage.left(), "ad");
    }

    #[test]
    fn a_registry_that_took_nothing_has_nothing_to_give() {
        assert_eq!(Storage::new().collect(), Collected::default());
    }
}
