//! Container images in the lock: everything from the reference down to the layers.

use agent_api::oci::Descriptor;
use agent_api::release::{Blob, Digest, Image};
use serde::{Deserialize, Serialize};

/// A blob as an image names it (OCI image specification, descriptor.md).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Piece {
    /// What kind of bytes they are.
    pub media_type: String,
    /// What they hash to.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
}

impl From<&Descriptor> for Piece {
    fn from(named: &Descriptor) -> Self {
        Self { media_type: named.media_type.clone(), digest: named.digest.clone(), size: named.size }
    }
}

impl Piece {
    /// The file of the store.
    pub fn blob(&self) -> Blob {
        Blob { digest: self.digest.clone(), size: self.size }
    }
}

/// A Helm chart of a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LockedChart {
    /// The manifest that its reference stands for.
    pub manifest: Piece,
    /// Its archive.
    pub content: Piece,
}

/// An image: reference -> index, if there is one -> manifest of the platform -> configuration and layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LockedImage {
    /// The index that the reference stands for. It may name other platforms' manifests, which are not carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Piece>,
    /// Indexes that the first one names, down to the manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<Piece>,
    /// The manifest for linux/amd64.
    pub manifest: Piece,
    /// Its configuration.
    pub config: Piece,
    /// Its layers, bottom first.
    pub layers: Vec<Piece>,
}

impl LockedImage {
    /// All of it, top down.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.index.iter().chain(&self.inner).chain([&self.manifest, &self.config]).chain(&self.layers)
    }

    /// What the reference stands for: the index, where there is one, or the manifest.
    pub fn top(&self) -> &Piece {
        self.index.as_ref().unwrap_or(&self.manifest)
    }

    /// What a release says of it. A layer that is there twice is one blob.
    pub fn image(&self, reference: String) -> Image {
        let mut blobs: Vec<Blob> = Vec::new();
        for blob in self.pieces().map(Piece::blob) {
            if !blobs.contains(&blob) {
                blobs.push(blob);
            }
        }
        let index = self.index.as_ref().map(|index| index.digest.clone());
        let inner = self.inner.iter().map(|index| index.digest.clone()).collect();
        Image { reference, index, inner, manifest: self.manifest.digest.clone(), blobs }
    }
}
