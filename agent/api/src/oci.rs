//! Documents of container images, as registries and archives hold them: OCI's and Docker's (schema 2). What a reader does
//! with them is its own: the builder takes one platform's image apart, the box takes whole archives of strangers, with limits.
//!
//! The types are written by hand because those of the crate `oci-spec` refuse a descriptor without a media type, which is
//! taken here, lack `docker save`'s list, and would bring 12 crates into the agent.
//!
//! Source: OCI image specification 1.1 (descriptor.md, image-index.md, image-layout.md, annotations.md); Docker's image
//! manifest version 2, schema 2, and image specification 1.2 (`docker save`).

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::release::Digest;

/// Media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of a manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of a configuration.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Media type of a layer that is not packed; `+gzip` and `+zstd` follow where it is.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Docker's index.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's manifest.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// The file at the top of an OCI layout.
pub const LAYOUT_FILE: &str = "index.json";
/// The file at the top of what `docker save` writes: a list of [`Saved`].
pub const SAVED_FILE: &str = "manifest.json";

/// Annotations that name an image in a layout: containerd's, and OCI's.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// What a document names: where the bytes are is for its reader to know.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its media type; empty where it is not said.
    #[serde(default)]
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// What it is for.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// What tools say of it.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// What it is called in a layout: containerd's word first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        NAMES.iter().filter_map(|key| self.annotations.get(*key)).map(String::as_str)
    }
}

/// Whether documents of this media type name others of several platforms.
pub fn is_index(media_type: &str) -> bool {
    [INDEX, DOCKER_LIST].contains(&media_type)
}

/// A platform.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// `linux`.
    #[serde(default)]
    pub os: String,
    /// `amd64`.
    #[serde(default)]
    pub architecture: String,
    /// `v2` and later need newer processors.
    #[serde(default)]
    pub variant: Option<String>,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

/// Manifests of several platforms, or of a layout.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ImageIndex {
    /// All of them.
    pub manifests: Vec<Descriptor>,
}

/// One platform's image.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ImageManifest {
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, bottom first.
    pub layers: Vec<Descriptor>,
}

/// An image of `docker save`: files of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Saved {
    /// Its configuration.
    pub config: String,
    /// What it is called; `null` for none.
    #[serde(default)]
    pub repo_tags: Option<Vec<String>>,
    /// Its layers, bottom first.
    pub layers: Vec<String>,
}

/// Where a layout has a blob.
pub fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

#[cfg(test)]
mod tests {
    use super::{DOCKER_LIST, Descriptor, INDEX, MANIFEST, Saved, is_index};

    #[test]
    fn an_image_is_called_as_its_annotations_say() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let of = |annotations: &str| -> Vec<String> {
            let text = format!("{{\"digest\": \"{digest}\", \"size\": 1, \"annotations\": {annotations}}}");
            let descriptor: Descriptor = serde_json::from_str(&text).expect("a descriptor");
            descriptor.names().map(str::to_owned).collect()
        };
        assert_eq!(of(r#"{"org.opencontainers.image.ref.name": "1.2"}"#), ["1.2"]);
        let both = r#"{"org.opencontainers.image.ref.name": "1.2", "io.containerd.image.name": "a.example/b:1.2"}"#;
        assert_eq!(of(both), ["a.example/b:1.2", "1.2"]);
        assert_eq!(of("{}"), [""; 0]);
    }

    #[test]
    fn images_of_docker_may_have_no_name() {
        let saved: Vec<Saved> =
            serde_json::from_str(r#"[{"Config": "c.json", "RepoTags": null, "Layers": ["a/layer.tar"]}]"#)
                .expect("a list");
        assert_eq!((saved[0].repo_tags.as_ref(), &*saved[0].layers[0]), (None, "a/layer.tar"));
        assert!(is_index(INDEX) && is_index(DOCKER_LIST) && !is_index(MANIFEST));
    }
}
