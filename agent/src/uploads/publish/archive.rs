//! An archive of images, as a reader found it: what to push, and where its bytes lie.
//!
//! The archive stays where it is; only its manifests and nothing of its layers is held in memory.

use std::io::{self, Read};

use agent_api::release::Digest;
use serde::{Deserialize, Serialize};

/// Where bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Section {
    pub(super) at: u64,
    pub(super) size: u64,
}

/// A blob to push.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Blob {
    pub(super) digest: Digest,
    pub(super) section: Section,
}

/// A manifest to push after its blobs and the manifests it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) media_type: String,
    pub(super) text: String,
    pub(super) blobs: Vec<Blob>,
    pub(super) children: Vec<Manifest>,
}

/// An image of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Image {
    /// Names that the archive gives it, such as `docker.io/library/nginx:1.2`.
    pub(super) names: Vec<String>,
    pub(super) manifest: Manifest,
}

/// An open archive.
pub(super) struct Archive {
    file: std::fs::File,
}

impl Archive {
    /// The archive that lies in this file, not compressed.
    pub(super) fn new(file: std::fs::File) -> Self {
        Self { file }
    }

    /// The bytes of a section, with a position of its own.
    pub(super) fn reader(&self, section: Section) -> io::Result<SectionReader> {
        Ok(SectionReader { file: self.file.try_clone()?, at: section.at, left: section.size })
    }
}

/// A part of a file, read at its own position: others may read the same file.
pub(super) struct SectionReader {
    file: std::fs::File,
    at: u64,
    left: u64,
}

impl Read for SectionReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let most = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut into[..most], self.at)?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}
