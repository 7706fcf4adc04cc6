//! Archives as tools of the field write them.

use std::path::{Path, PathBuf};

use agent_api::image::ImageName;
use serde_json::{Value, json};

use super::{Imported, import};
use crate::store::{Cache, hash};
use agent_api::oci;

/// A folder with an OCI layout that grows.
struct Layout {
    dir: tempfile::TempDir,
}

impl Layout {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        fs_err::create_dir_all(dir.path().join("layout/blobs/sha256")).expect("made");
        Self { dir }
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("layout")
    }

    fn add(&self, kind: &str, value: &Value) -> Value {
        let bytes = value.to_string().into_bytes();
        let digest = hash::bytes(&bytes);
        fs_err::write(self.folder().join("blobs/sha256").join(digest.hex()), &bytes).expect("written");
        json!({"mediaType": kind, "digest": digest, "size": bytes.len()})
    }

    /// An image without layers that `mark` tells from others.
    fn image(&self, architecture: &str, mark: &str) -> Value {
        let config = json!({"os": "linux", "architecture": architecture, "author": mark, "rootfs": {"diff_ids": []}});
        let config = self.add("application/vnd.oci.image.config.v1+json", &config);
        self.add(oci::MANIFEST, &json!({"schemaVersion": 2, "config": config, "layers": []}))
    }

    fn index(&self, entries: &[Value]) -> Value {
        self.add(oci::INDEX, &json!({"schemaVersion": 2, "manifests": entries}))
    }

    fn import(&self, entries: &[Value], name: &str) -> anyhow::Result<Imported> {
        let index = json!({"schemaVersion": 2, "manifests": entries}).to_string();
        fs_err::write(self.folder().join("index.json"), index).expect("written");
        let cache = Cache::open(&self.dir.path().join("cache")).expect("a cache");
        import(&cache, &self.folder(), &named(name))
    }
}

fn named(name: &str) -> ImageName {
    name.parse().expect("a name")
}

/// The entry with containerd's name, and with OCI's, which is the tag alone.
fn called(mut entry: Value, name: &str) -> Value {
    let tag = name.rsplit(':').next().unwrap_or_default();
    entry["annotations"] = json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag});
    entry
}

fn on(mut entry: Value, architecture: &str) -> Value {
    entry["platform"] = json!({"os": "linux", "architecture": architecture});
    entry
}

#[test]
fn two_images_with_one_tag_are_told_apart_by_their_whole_names() {
    let layout = Layout::new();
    let (app, other) = (layout.image("amd64", "app"), layout.image("amd64", "other"));
    let entries = [called(other.clone(), "docker.io/org/other:1.2"), called(app.clone(), "quay.io/org/app:1.2")];
    for (name, entry) in [("quay.io/org/app:1.2", &app), ("org/other:1.2", &other)] {
        let imported = layout.import(&entries, name).expect("an image");
        assert_eq!(json!(imported.image.manifest.digest), entry["digest"], "{name}");
        assert_eq!(imported.called, [""; 0]);
    }
    let error = format!("{:#}", layout.import(&entries, "quay.io/org/third:1.2").expect_err("which one?"));
    assert!(error.contains("2 images") && error.contains("`docker.io/org/other:1.2`"), "{error}");
    let digest = app["digest"].as_str().expect("a digest");
    let by_digest = layout.import(&entries, &format!("quay.io/org/third@{digest}")).expect("an image");
    assert_eq!(json!(by_digest.image.manifest.digest), app["digest"]);
}

#[test]
fn entries_for_several_platforms_are_one_image() {
    let layout = Layout::new();
    let (ours, arm) = (layout.image("amd64", "x"), layout.image("arm64", "x"));
    let attestation = layout.add(oci::MANIFEST, &json!({"schemaVersion": 2}));
    let mut attestation = on(attestation, "unknown");
    attestation["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
    let with = [on(arm.clone(), "arm64"), attestation, on(ours.clone(), "amd64")];
    let without = [arm.clone(), ours.clone()];
    let nested = [layout.index(&[layout.index(&[on(arm, "arm64")]), layout.index(&without)])];
    for entries in [with.as_slice(), &without, &nested] {
        let imported = layout.import(entries, "quay.io/org/app:1").expect("an image");
        assert_eq!(json!(imported.image.manifest.digest), ours["digest"]);
    }
    assert_eq!(layout.import(&nested, "quay.io/org/app:1").expect("an image").image.inner.len(), 1);
}

#[test]
fn what_the_archive_calls_its_image_is_told_where_it_is_something_else() {
    let layout = Layout::new();
    let image = layout.image("amd64", "x");
    for (archive, definition, told) in [
        ("docker.io/library/app:1", "app:1", false),
        ("quay.io/org/app:1", "quay.io/org/app:2", true),
        ("quay.io/org/app:1", "quay.io/org/other:1", true),
        ("latest", "quay.io/org/app:latest", false),
        ("v1", "quay.io/org/app:latest", true),
    ] {
        let mut entry = called(image.clone(), archive);
        if !archive.contains(':') {
            entry["annotations"] = json!({"org.opencontainers.image.ref.name": archive});
        }
        let imported = layout.import(&[entry], definition).expect("an image");
        assert_eq!(!imported.called.is_empty(), told, "{archive} {definition}: {:?}", imported.called);
    }
}

/// What `docker save` writes of images without layers.
fn saved(folder: &Path, images: &[(&str, &str, Option<&str>)]) {
    let mut all = Vec::new();
    for (file, architecture, name) in images {
        let config = json!({"os": "linux", "architecture": architecture, "author": file, "rootfs": {"diff_ids": []}});
        fs_err::write(folder.join(file), config.to_string()).expect("written");
        all.push(json!({"Config": file, "RepoTags": name.map(|name| vec![name]), "Layers": []}));
    }
    fs_err::write(folder.join("manifest.json"), json!(all).to_string()).expect("written");
}

#[test]
fn an_archive_of_docker_with_several_images_gives_the_one_that_is_meant() {
    let dir = tempfile::tempdir().expect("a folder");
    let (cache, folder) = (Cache::open(&dir.path().join("cache")).expect("a cache"), dir.path().join("saved"));
    fs_err::create_dir(&folder).expect("made");
    saved(&folder, &[("a.json", "amd64", Some("org/app:1")), ("b.json", "amd64", Some("org/other:1"))]);
    let take = |name: &str| import(&cache, &folder, &named(name));
    let (app, other) = (take("org/app:1").expect("an image"), take("docker.io/org/other:1").expect("an image"));
    assert_ne!(app.image, other.image);
    assert_eq!(app.called, [""; 0]);
    assert!(take("org/third:1").is_err());
    saved(&folder, &[("a.json", "arm64", None), ("b.json", "amd64", None)]);
    assert_eq!(take("org/app:1").expect("the one for a box").image, other.image);
}

#[test]
fn an_archive_that_is_packed_in_another_way_is_refused_in_words() {
    let dir = tempfile::tempdir().expect("a folder");
    let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
    for (start, name) in
        [(&b"\xfd7zXZ\0"[..], "xz"), (b"BZh9", "bzip2"), (b"\x04\x22\x4d\x18", "lz4"), (b"PK\x03\x04", "zip")]
    {
        let file = dir.path().join("app.tar.x");
        fs_err::write(&file, [start, b"..."].concat()).expect("written");
        let error = format!("{:#}", import(&cache, &file, &named("app:1")).expect_err("refused"));
        assert!(error.contains(&format!("is packed with {name}, which is not read")), "{error}");
    }
}
