//! What the box holds for its site, by path: what came with the release, and what was uploaded since.
//!
//! ```text
//! release.json ─► Carried ──┐
//!                           ├─► Source ─► HTTP content, apt repository, operators
//! DATA         ─► uploads ──┘
//! ```
//! Who fetched what last is kept in a table, [`fetches::Fetches`].
//!
//! What servers become nodes of a cluster with lies in the box's own layers already, and is read out of them.
//!
//! A path is that of [`ContentFile`]: `images/debian-node.qcow2`, `files/tools.tar`.
//! The bytes are read where they lie: on the medium, in a layer, or in DATA.

pub mod fetches;
mod listing;
pub mod server;
pub mod space;

pub use listing::encode;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use agent_api::release::{ContentFile, ContentKind, Digest, InLayer, MEDIUM_ROOT, Release};

/// A file that can be read under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Path without a leading `/`.
    pub path: String,
    /// What it is for.
    pub kind: ContentKind,
    /// Where its bytes are. The file never changes while it is listed; once it is not, an open handle stays readable.
    pub file: PathBuf,
    /// Digest of the bytes.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
}

/// Where files come from. It is asked at each request, for its files may change at any time.
pub trait Source: Send + Sync {
    /// The file of that path.
    fn find(&self, path: &str) -> Option<Held>;
    /// Whether a file that it has is for who asks from that address.
    fn is_for(&self, _path: &str, _peer: IpAddr) -> bool {
        true
    }
    /// All files, by path.
    fn list(&self) -> Vec<Held>;
}

/// What came with the release, on the medium and in its layers.
#[derive(Clone, Debug, Default)]
pub struct Carried(BTreeMap<String, Held>);

impl Carried {
    /// The content of `release`, its medium mounted at `medium`, its layers in `layers`, each in a folder of its name.
    pub fn new(release: &Release, medium: &Path, layers: &Path) -> Self {
        let store = medium.join(MEDIUM_ROOT);
        let place = |file: &ContentFile| match &file.within {
            None => store.join(file.digest.store_path()),
            Some(InLayer { layer, path }) => layers.join(layer).join(path),
        };
        let held = release.content.iter().map(|file| Held {
            path: file.path.clone(),
            kind: file.kind,
            file: place(file),
            digest: file.digest.clone(),
            size: file.size,
        });
        Self(held.map(|held| (held.path.clone(), held)).collect())
    }
}

impl Source for Carried {
    fn find(&self, path: &str) -> Option<Held> {
        self.0.get(path).cloned()
    }

    fn list(&self) -> Vec<Held> {
        self.0.values().cloned().collect()
    }
}

/// Files that stay the same.
impl Source for Vec<Held> {
    fn find(&self, path: &str) -> Option<Held> {
        self.iter().find(|held| held.path == path).cloned()
    }

    fn list(&self) -> Vec<Held> {
        self.clone()
    }
}
