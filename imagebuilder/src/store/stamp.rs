//! What a file's inode says about it: whoever changes the file changes this.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The state of a file at the time its content was known. Its content is the same as long as this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stamp {
    /// Its inode: another one is another file.
    pub inode: u64,
    /// Its size.
    pub bytes: u64,
    /// When its content changed, in seconds and nanoseconds since 1970.
    pub modified: (i64, i64),
    /// When its content, name or mode changed. Unlike `modified`, no program can set it.
    pub changed: (i64, i64),
}

impl Stamp {
    /// The stamp of a file itself; a link has one of its own.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&fs_err::symlink_metadata(path)?))
    }
}

impl Stamp {
    /// The same; `None` where nothing is there, or nothing any more.
    pub fn of_any(path: &Path) -> io::Result<Option<Self>> {
        match Self::of(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            stamp => stamp.map(Some),
        }
    }
}

impl From<&Metadata> for Stamp {
    fn from(found: &Metadata) -> Self {
        Self {
            inode: found.ino(),
            bytes: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}
