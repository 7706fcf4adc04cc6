//! What is known about one image, as it lies in the index.

use std::path::PathBuf;

use agent_api::bpa::{Description, Image, InvalidName, Kind, Published, check_image, check_owner};
use agent_api::ports;
use agent_api::release::Digest;
use serde::{Deserialize, Serialize};

use super::hashes::Saved;

/// Identifies an image. Two owners, or two clusters of one owner, may have images of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UploadKey {
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub owner: String,
    /// The cluster of the path.
    pub cluster: String,
    /// Its name.
    pub name: String,
}

impl UploadKey {
    /// Checks the names: none of them can lead out of its folder.
    pub fn new(kind: Kind, owner: &str, cluster: &str, name: &str) -> Result<Self, InvalidName> {
        check_owner("the owner", owner)?;
        check_owner("the cluster", cluster)?;
        check_image(kind, name)?;
        Ok(Self { kind, owner: owner.to_owned(), cluster: cluster.to_owned(), name: name.to_owned() })
    }

    /// Place in the index, relative to the store.
    pub(super) fn index_path(&self) -> PathBuf {
        let Self { kind, owner, cluster, name } = self;
        PathBuf::from(format!("index/{kind}/{owner}/{cluster}/{name}.json"))
    }
}

/// How many bytes are durable, and the state of the digests at that offset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub(super) offset: u64,
    pub(super) hashes: Saved,
}

/// One image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Which.
    pub key: UploadKey,
    /// The client's word for its type.
    pub word: String,
    /// The client's description.
    pub description: Description,
    /// Bytes it will have.
    pub length: u64,
    /// SHA-256 that the client said, hex.
    pub expected: Option<String>,
    /// Name of the file of the bytes while they are not all there.
    pub(super) partial: String,
    pub(super) checkpoint: Checkpoint,
    /// Digest, once all bytes are there.
    pub digest: Option<Digest>,
    /// MD5, hex, once all bytes are there.
    pub md5: Option<String>,
    /// When bytes came last, seconds since 1970.
    pub touched: u64,
    /// Whether the site can use it.
    pub published: Published,
    /// Names in the registry, or where the package lies in the apt repository.
    pub references: Vec<String>,
    /// Why it is not published.
    pub problem: Option<String>,
    /// How often its reading was begun and did not end.
    #[serde(default)]
    pub(super) attempts: u32,
    /// What a package says about itself, once it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) control: Option<String>,
}

impl Record {
    /// Bytes that are on the disk for good.
    pub fn offset(&self) -> u64 {
        self.checkpoint.offset
    }

    /// Bytes that are still to come.
    pub fn remaining(&self) -> u64 {
        self.length.saturating_sub(self.checkpoint.offset)
    }

    /// Path under which the content server has it; images of containers are in the registry only.
    pub fn path(&self) -> Option<String> {
        let UploadKey { kind, owner, cluster, name } = &self.key;
        let folder = folder(*kind)?;
        Some(format!("{folder}/{owner}/{cluster}/{name}"))
    }

    /// As REST tells it; `host` is the box as the client calls it.
    pub fn image(&self, host: &str) -> Image {
        let http = self.path().map(|path| format!("http://{host}:{}/{path}", ports::CONTENT));
        let registry = || self.references.first().map(|name| format!("{host}:{}/{name}", ports::REGISTRY));
        let url = http.filter(|_| self.digest.is_some()).or_else(|| {
            (self.key.kind == Kind::ContainerImages && self.published == Published::Published).then(registry).flatten()
        });
        Image {
            owner: self.key.owner.clone(),
            cluster_name: self.key.cluster.clone(),
            kind: self.word.clone(),
            image_name: self.key.name.clone(),
            image_offset: self.offset(),
            image_length: self.length,
            upload_complete: self.digest.is_some(),
            description: self.description.clone(),
            sha256: self.digest.as_ref().map(|digest| digest.hex().to_owned()).or_else(|| self.expected.clone()),
            url,
            published: self.published,
            references: self.references.clone(),
            problem: self.problem.clone(),
        }
    }
}

/// The folder of the content server.
pub(super) const fn folder(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::BinaryImages => Some("files"),
        Kind::OsImages => Some("images"),
        Kind::ContainerImages => None,
    }
}
