//! One image as an archive of an OCI image layout (image-layout.md): what `ctr images import`, `skopeo copy oci-archive:` and
//! `podman load` read.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use agent_api::oci::{self, MANIFEST};
use agent_api::release::{Blob, Image};
use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::store::Cache;

/// Writes the archive of an image whose blobs lie in the cache. Every member has the same time; the same image gives the same
/// bytes. Of an index only the platform's image is there.
pub fn write(cache: &Cache, image: &Image, time: u64, into: impl Write) -> Result<()> {
    let manifest = image.blobs.iter().find(|blob| blob.digest == image.manifest);
    let manifest = manifest.with_context(|| format!("`{}` has no manifest", image.reference))?;
    let index = json!({
        "schemaVersion": 2,
        "mediaType": oci::INDEX,
        "manifests": [{
            "mediaType": media_type(cache, manifest)?,
            "digest": manifest.digest,
            "size": manifest.size,
            "platform": { "os": "linux", "architecture": "amd64" },
            "annotations": {
                "io.containerd.image.name": image.reference,
                "org.opencontainers.image.ref.name": image.reference,
            },
        }],
    });
    let blobs: BTreeMap<String, &Blob> = image.blobs.iter().map(|blob| (oci::blob_path(&blob.digest), blob)).collect();
    let mut tar = tar::Builder::new(into);
    let header = |kind: tar::EntryType, mode: u32, size: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mtime(time);
        header.set_mode(mode);
        header.set_size(size);
        header
    };
    for folder in ["blobs/", "blobs/sha256/"] {
        tar.append_data(&mut header(tar::EntryType::Directory, 0o755, 0), folder, std::io::empty())?;
    }
    for (path, blob) in blobs {
        ensure!(cache.holds(blob)?, "{} of `{}` is not in the cache", blob.digest, image.reference);
        let file = fs_err::File::open(cache.blob_path(&blob.digest))?;
        tar.append_data(&mut header(tar::EntryType::Regular, 0o644, blob.size), path, file)?;
    }
    for (path, text) in
        [(oci::LAYOUT_FILE, serde_json::to_vec(&index)?), ("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec())]
    {
        let size = u64::try_from(text.len())?;
        tar.append_data(&mut header(tar::EntryType::Regular, 0o644, size), path, text.as_slice())?;
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

/// The archive as a file.
pub fn write_file(cache: &Cache, image: &Image, time: u64, path: &Path) -> Result<()> {
    let file = fs_err::File::create(path)?;
    write(cache, image, time, std::io::BufWriter::new(file)).with_context(|| format!("writing `{}`", path.display()))
}

/// What a manifest says it is: Docker's are kept as they came.
fn media_type(cache: &Cache, manifest: &Blob) -> Result<String> {
    let text = fs_err::read(cache.blob_path(&manifest.digest))?;
    let read: serde_json::Value = serde_json::from_slice(&text).context("reading a manifest")?;
    Ok(read["mediaType"].as_str().unwrap_or(MANIFEST).to_owned())
}

/// Name of an image's archive: its reference, with `-` for what a file's name cannot have.
pub fn file_name(reference: &str) -> String {
    let name = reference.split('@').next().unwrap_or(reference);
    format!("{}.tar", name.replace(['/', ':'], "-"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use agent_api::release::Image;

    use super::{file_name, write_file};
    use crate::oci::recipe::{ImageLayer, Recipe};
    use crate::store::Cache;

    fn image(cache: &Cache, dir: &Path) -> Image {
        let root = dir.join("root");
        fs_err::create_dir_all(&root).expect("a folder");
        fs_err::write(root.join("file"), "x").expect("written");
        let work = cache.work_dir().expect("a folder");
        let layer = ImageLayer::of(cache, &work, &root, 7).expect("a layer");
        let recipe = Recipe { reference: "a.example/b/c:1".to_owned(), ..Recipe::default() };
        recipe.pack(cache, &[layer], 7, "").expect("packed").image
    }

    #[test]
    fn the_same_image_gives_the_same_bytes_and_every_blob_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
        let image = image(&cache, dir.path());
        let write = |name: &str| {
            let path = dir.path().join(name);
            write_file(&cache, &image, 7, &path).expect("written");
            fs_err::read(path).expect("read")
        };
        assert_eq!(write("one.tar"), write("two.tar"));
        let mut read = tar::Archive::new(fs_err::File::open(dir.path().join("one.tar")).expect("opened"));
        let members = read.entries().expect("a tar").map(|member| {
            let member = member.expect("a member");
            assert_eq!(member.header().mtime().expect("a time"), 7);
            (member.path().expect("a path").display().to_string(), member.size())
        });
        let members: BTreeMap<String, u64> = members.collect();
        for blob in &image.blobs {
            assert_eq!(members[&format!("blobs/sha256/{}", blob.digest.hex())], blob.size);
        }
        assert!(members.contains_key("index.json") && members.contains_key("oci-layout"));
    }

    #[test]
    fn a_blob_that_is_gone_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
        let image = image(&cache, dir.path());
        let gone = image.blobs.last().expect("a layer");
        fs_err::remove_file(cache.blob_path(&gone.digest)).expect("removed");
        let error = write_file(&cache, &image, 7, &dir.path().join("one.tar")).expect_err("refused");
        assert!(format!("{error:#}").contains(gone.digest.hex()), "{error:#}");
    }

    #[test]
    fn an_archive_is_named_as_kubesprays_script_names_it() {
        for (reference, file) in [
            ("registry.k8s.io/coredns/coredns:v1.14.2", "registry.k8s.io-coredns-coredns-v1.14.2.tar"),
            ("a.example:5000/b:1@sha256:00", "a.example-5000-b-1.tar"),
        ] {
            assert_eq!(file_name(reference), file);
        }
    }
}
