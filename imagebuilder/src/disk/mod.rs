//! Disks: where everything lies, down to the byte.
//!
//! ```text
//! sizes ──layout──▶ DiskLayout ──gpt──▶ tables ─┐
//! files ──ext4────▶ STORE  ─────────────────────┼─▶ Extents (what lies where, nothing copied yet) ──▶ format/
//! files ──fat─────▶ ESP, SITE ──────────────────┘
//! ```
//!
//! All but [`fat`] and [`extents`] are pure: numbers and names in, bytes out. Identifiers are derived from the
//! release id ([`ids`]) and times are the release's build time, so equal input gives equal bytes.

pub mod ext4;
pub mod extents;
pub mod fat;
pub mod gpt;
pub mod ids;
pub mod layout;
pub mod site;
#[cfg(test)]
pub(crate) mod testbench;

use std::path::{Path, PathBuf};

/// Runs programs of the toolbox tree, the one way from here to foreign tools.
pub trait Tools: Sync {
    /// Runs `argv` inside the tree and returns its standard output. Each path of `binds` is visible inside, writable,
    /// at the same path.
    fn run(&self, argv: &[&str], binds: &[&Path]) -> Result<Vec<u8>, ToolError>;
    /// Where a file of the tree lies on the host, for reading.
    fn file(&self, path_in_tree: &str) -> PathBuf;
}

/// A tool of the toolbox could not be started or failed.
#[derive(Debug, thiserror::Error)]
#[error("`{tool}` failed: {reason}")]
pub struct ToolError {
    /// The program that was run.
    pub tool: String,
    /// Exit status and the last lines of standard error, or why it could not be started.
    pub reason: String,
}

/// A file that goes into an image, under a path of its own there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Path in the image's tree, relative, `/` between the parts.
    pub path: String,
    /// Its bytes.
    pub content: Content,
}

/// Where bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A file on the host, whole.
    File {
        /// Its path.
        path: PathBuf,
        /// Its size; another size found while writing is an error.
        bytes: u64,
    },
    /// Bytes that are replaced in the finished image: no format packs them.
    Reserved(Vec<u8>),
}

impl Content {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::Reserved(bytes) => bytes.len() as u64,
            Self::File { bytes, .. } => *bytes,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
