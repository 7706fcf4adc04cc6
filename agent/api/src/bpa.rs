//! Bodies and routes of the Binary Provisioning Agent's REST interface, `https://BOX:9015/v1/...`.
//!
//! ```text
//! POST   .../T           announces an image      PATCH  .../T/{imgname}   sends (the rest of) its bytes
//! GET    .../T           lists                   PUT    .../T/{imgname}   changes what is said about it
//! GET, HEAD .../T/{imgname}   tells              DELETE .../T/{imgname}   forgets it
//! ```
//! `...` is `/v1/baremetalcluster/{owner}/{clustername}`, `T` a [`Kind`]. The names of the fields, the states and the
//! texts of the errors are those of Akraino ICN's agent, whose clients must go on working; [`routes`] holds them all,
//! and the document that is served at `/openapi.json` is made from it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod openapi;
pub mod routes;

pub use openapi::openapi;

/// Most bytes of an owner's or a cluster's name.
pub const LONGEST_OWNER: usize = 100;
/// Most bytes of an image's name.
pub const LONGEST_NAME: usize = 200;
/// Most bytes of the form of POST and PUT.
pub const FORM_BYTES: usize = 16 * 1024 * 1024;
/// Most bytes of its part `metadata`.
pub const METADATA_BYTES: usize = 256 * 1024;
/// Images in one answer of the list, unless fewer are asked for.
pub const PAGE: usize = 500;

/// What is uploaded: the last folder of the path of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Any file: served below `files/`, a Debian package also in the site's apt repository.
    BinaryImages,
    /// A docker or OCI archive: pushed into the box's registry.
    ContainerImages,
    /// An operating system's image: served below `images/` with its checksums.
    OsImages,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::BinaryImages, Self::ContainerImages, Self::OsImages];

    /// The name as it stands in paths.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BinaryImages => "binary_images",
            Self::ContainerImages => "container_images",
            Self::OsImages => "os_images",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(())
    }
}

/// What a client says about an image: the part `metadata` of POST and PUT. Other keys are ignored, as they always were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Metadata {
    /// Whose image it is; the owner of the path.
    #[serde(deserialize_with = "or_default")]
    pub owner: String,
    /// The cluster of the path; may be absent.
    #[serde(deserialize_with = "or_default")]
    pub cluster_name: String,
    /// Any word of the client's.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    /// Name of the image.
    #[serde(deserialize_with = "or_default")]
    pub image_name: String,
    /// Ignored: the box knows what it has.
    pub image_offset: Option<i64>,
    /// Bytes that will be sent.
    #[serde(deserialize_with = "or_default")]
    pub image_length: i64,
    /// Ignored: the box knows what it has.
    pub upload_complete: Option<bool>,
    /// What is in it.
    #[serde(deserialize_with = "or_default")]
    pub description: Description,
    /// What the bytes must hash to: 64 hex digits. Another image is not published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// `null` and an absent key mean the same to the clients that there are.
fn or_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// What is in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Description {
    /// One record for each image: `image_record_name`, `repo`, `tag`, and whatever else the client wants to keep.
    #[serde(deserialize_with = "or_default")]
    pub image_records: Vec<BTreeMap<String, String>>,
}

/// An image as the box knows it: the body of every answer that tells one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// Whose image it is.
    pub owner: String,
    /// The cluster of the path.
    pub cluster_name: String,
    /// The client's word.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the image.
    pub image_name: String,
    /// Bytes that are on the box's disk for good: where PATCH goes on.
    pub image_offset: u64,
    /// Bytes it will have.
    pub image_length: u64,
    /// All bytes are there and were checked.
    pub upload_complete: bool,
    /// What is in it.
    pub description: Description,
    /// SHA-256 of the bytes once they are all there, before that what the client said: 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Where the box serves it, once it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whether the site can use it.
    pub published: Published,
    /// Names in the registry, or where the package lies in the apt repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// Why it is not published, one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Whether the site can use an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Published {
    /// Not all bytes are there.
    #[default]
    Incomplete,
    /// All bytes are there; the registry or the apt repository takes it in now.
    Pending,
    /// It is served.
    Published,
    /// The registry or the apt repository did not take it, or nobody could use it: see `problem`. Tried again where that can
    /// help.
    Failed,
}

/// `GET .../T`: images in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageList {
    /// One page of them.
    pub images: Vec<Image>,
    /// `?after=` for the next page, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// `GET /v1/storage`: what uploads take of the box's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Storage {
    /// Bytes of DATA.
    pub total_bytes: u64,
    /// Bytes of DATA that are free.
    pub free_bytes: u64,
    /// Bytes that stay free for the cluster: an upload that would need them is refused.
    pub reserve_bytes: u64,
    /// By kind.
    pub kinds: BTreeMap<Kind, KindStorage>,
}

/// What one kind takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KindStorage {
    /// Images.
    pub images: usize,
    /// Bytes that they have or have announced.
    pub used_bytes: u64,
    /// Most of them.
    pub quota_bytes: u64,
}

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} is not a name: expected 1 to {longest} of A-Z a-z 0-9 . _ + ~ @ : = , - that begin with a letter or digit, without `..`"
)]
pub struct InvalidName {
    what: &'static str,
    longest: usize,
}

/// Checks an owner's or a cluster's name; `what` is told when it is none.
pub fn check_owner(what: &'static str, name: &str) -> Result<(), InvalidName> {
    check(what, name, LONGEST_OWNER)
}

/// Checks the name of an image. `.sha256` and `.md5sum` beside OS images are the box's own.
pub fn check_image(kind: Kind, name: &str) -> Result<(), InvalidName> {
    let taken = kind == Kind::OsImages && (name.ends_with(".sha256") || name.ends_with(".md5sum"));
    let invalid = InvalidName { what: "a name that the box makes itself", longest: LONGEST_NAME };
    if taken { Err(invalid) } else { check("the image's name", name, LONGEST_NAME) }
}

fn check(what: &'static str, name: &str, longest: usize) -> Result<(), InvalidName> {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b"._+~@:=,-".contains(&b);
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let good = first && name.len() <= longest && name.bytes().all(letter) && !name.contains("..");
    if good { Ok(()) } else { Err(InvalidName { what, longest }) }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Metadata, check_image, check_owner};

    #[test]
    fn names_never_leave_their_folder() {
        for name in ["debian-13.qcow2", "a", "7", "pkg_1.0~rc1+b2_amd64.deb", "org@x=1,y:z"] {
            assert_eq!(check_image(Kind::BinaryImages, name), Ok(()), "{name}");
        }
        let long = "a".repeat(201);
        for name in ["", ".", "..", ".hidden", "a/b", "a..b", "a\\b", "a\nb", "a\0b", "a b", "é", "-a", "%2e", &long] {
            assert!(check_image(Kind::BinaryImages, name).is_err(), "{name:?}");
        }
        assert!(check_owner("the owner", &"a".repeat(101)).is_err());
        assert!(check_image(Kind::OsImages, "a.sha256").is_err() && check_image(Kind::OsImages, "a.md5sum").is_err());
    }

    #[test]
    fn metadata_may_leave_out_and_add_what_it_wants() {
        let text =
            r#"{"owner":"alpha","image_name":"x","image_length":5,"image_offset":null,"description":null,"new":1}"#;
        let metadata: Metadata = serde_json::from_str(text).expect("metadata");
        assert_eq!((metadata.owner.as_str(), metadata.image_length, metadata.upload_complete), ("alpha", 5, None));
        assert!(serde_json::from_str::<Metadata>(r#"{"owner":1}"#).is_err());
    }
}
