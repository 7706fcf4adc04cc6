//! Container images from a real registry: locked, fetched, verified, and what is said when they cannot be.

mod common;

use std::time::{Duration, SystemTime};

use common::{Bench, FlakyProxy};
use foothold::commands::common::Job;
use foothold::lock::Lock;
use foothold::pipeline;
use foothold::store::hash;
use foothold_agent::registry::collect::{Collected, Trees, collect};
use foothold_tests::registry::{TestImage, Wants, tarball};
use foothold_tests::{Registry, appliance};
use rstest::rstest;
use serde_json::{Value, json};

const APP: &str = "quay.io/org/app:1.2";

/// OCI's and Docker's kinds of documents, with and without an index.
fn push_every_kind(registry: &Registry) -> [&'static str; 4] {
    let images = [
        ("docker.io/org/app:1.2", TestImage::small("app").with_other_platform()),
        ("ghcr.io/team/worker:2026.1", TestImage::small("worker")),
        ("quay.io/org/app:2.0", TestImage::small("app 2").of_docker()),
        ("quay.io/org/tool:v3", TestImage::small("tool").of_docker().with_other_platform()),
    ];
    images.map(|(reference, image)| {
        registry.push(reference, &image);
        reference
    })
}

#[test]
fn images_of_every_kind_are_locked_and_carried_by_digest() {
    let registry = Registry::start();
    let references = push_every_kind(&registry);
    let bench = Bench::new(&registry.definition(&references));
    let lock = bench.lock().expect("a lock");
    let images = bench.make(&lock).expect("images");
    assert_eq!(images.len(), references.len());
    for image in &images {
        for blob in &image.blobs {
            assert!(bench.at.cache.is_whole(blob).expect("readable"), "{} of {}", blob.digest, image.reference);
        }
        let top = image.index.as_ref().unwrap_or(&image.manifest);
        assert!(
            image.blobs.iter().any(|blob| blob.digest == *top),
            "what a tag stands for is carried: {}",
            image.reference
        );
    }
    let app = images.iter().find(|image| image.reference == "docker.io/org/app:1.2").expect("it is there");
    assert_eq!(app.top().to_string(), TestImage::small("app").with_other_platform().digest());
    assert_eq!(app.manifest.to_string(), TestImage::small("app").digest(), "the one for linux/amd64");
    // Another cache, the same lock: the same, and nothing is asked for by a tag that may have moved.
    registry.push("docker.io/org/app:1.2", &TestImage::small("another"));
    let again = Bench::new(&registry.definition(&references));
    assert_eq!(again.make(&lock).expect("images"), images);
    assert_ne!(again.lock().expect("a lock"), lock, "a new lock sees what moved");
}

#[test]
fn what_the_boxs_registry_gives_back_is_what_no_manifest_names() {
    let registry = Registry::start();
    let (gone, kept) = (TestImage::small("gone").with_other_platform(), TestImage::small("kept"));
    registry.push("quay.io/org/app:1", &gone);
    registry.push("quay.io/org/app:2", &kept);
    registry.push("ghcr.io/org/same:2", &kept);
    let storage = registry.storage();
    let trees = Trees { upper: storage.clone(), lower: storage.join("none"), whole: storage };
    let collect = || collect(&trees, SystemTime::now() + Duration::from_secs(7200)).expect("collected");
    assert_eq!(collect(), Collected::default(), "tags lead to everything");
    registry.delete("quay.io/org/app", &gone.digest());
    assert_eq!(collect().blobs, 1, "the index; its manifests may be pulled by digest");
    for (_, manifest) in gone.documents.split_last().expect("an index").1 {
        registry.delete("quay.io/org/app", &hash::bytes(manifest).to_string());
    }
    registry.delete("ghcr.io/org/same", &kept.digest());
    assert_eq!(collect().blobs, gone.blobs.len() + gone.documents.len() - 1);
    for blob in &gone.blobs {
        assert!(!registry.blob_file(&hash::bytes(blob).to_string()).exists());
    }
    // What is left is whole, and what went can come again.
    registry.push("quay.io/org/app:1", &gone);
    let bench = Bench::new(&registry.definition(&["quay.io/org/app:1", "quay.io/org/app:2"]));
    assert_eq!(bench.make(&bench.lock().expect("a lock")).expect("images").len(), 2);
}

fn told(result: anyhow::Result<impl Sized>) -> String {
    format!("{:#}", result.err().expect("it fails"))
}

/// A registry with one image, and the lock of a definition that carries it.
fn locked(image: &TestImage) -> (Registry, Bench, Lock) {
    let registry = Registry::start();
    registry.push(APP, image);
    let bench = Bench::new(&registry.definition(&[APP]));
    let lock = bench.lock().expect("a lock");
    (registry, bench, lock)
}

#[test]
fn no_byte_is_fetched_twice_over_a_line_that_breaks() {
    let registry = Registry::start();
    let image = TestImage::large(3_000_000);
    registry.push(APP, &image);
    let proxy = FlakyProxy::start(registry.address());
    let bench = Bench::new(&registry.definition_through(&proxy.url(), &[APP]));
    let lock = bench.lock().expect("a lock");
    proxy.cut_after(&[1_000_000, 0, 500_000]);
    bench.make(&lock).expect("images");
    let seen = proxy.seen(&image.blob_digest(1));
    let first: Vec<u64> = seen.iter().map(|(from, _)| *from).collect();
    assert_eq!(first, [0, 1_000_000, 1_000_000, 1_500_000]);
    let bytes: u64 = seen.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(bytes, image.blobs[1].len() as u64);
}

#[test]
fn a_build_that_gave_up_is_gone_on_with_by_the_next_one() {
    let registry = Registry::start();
    let image = TestImage::large(1_000_000);
    registry.push(APP, &image);
    let proxy = FlakyProxy::start(registry.address());
    let bench = Bench::new(&registry.definition_through(&proxy.url(), &[APP]));
    let lock = bench.lock().expect("a lock");
    proxy.cut_after(&[300_000, 0, 0, 0, 0]);
    let text = told(bench.make(&lock));
    assert!(text.contains(&image.blob_digest(1)) && text.contains(APP) && text.contains(&proxy.url()), "{text}");
    bench.make(&lock).expect("images");
    assert_eq!(proxy.seen(&image.blob_digest(1)).last(), Some(&(300_000, image.blobs[1].len() as u64 - 300_000)));
}

#[test]
fn a_registry_of_a_private_authority_is_reached_with_the_credentials_of_docker() {
    let registry = Registry::start_with(Wants { tls: true, login: true });
    registry.push(APP, &TestImage::small("app"));
    let mut bench = Bench::new(&registry.definition(&[APP]));
    let file = bench.dir.path().join("empty.json");
    fs_err::write(&file, "{}").expect("written");
    bench.at.network.authfile = Some(file);
    let text = told(bench.lock());
    assert!(text.contains("401") && text.contains("`docker login 127.0.0.1:"), "{text}");
    bench.at.network.authfile = Some(registry.authfile());
    let lock = bench.lock().expect("a lock");
    assert_eq!(bench.make(&lock).expect("images").len(), 1);

    let without = registry.definition(&[APP]).replace(&format!(", ca: {}", registry.ca().display()), "");
    let mut bench = Bench::new(&without);
    bench.at.network.authfile = Some(registry.authfile());
    let text = told(bench.lock());
    assert!(text.contains("certificate is not trusted") && text.contains("content.registries.<host>.ca"), "{text}");
    let insecure = without.replace(" }", ", insecure: true }");
    let mut bench = Bench::new(&insecure);
    bench.at.network.authfile = Some(registry.authfile());
    bench.lock().expect("a lock");
}

#[test]
fn a_blob_that_the_registry_lost_is_named_with_its_image_and_source() {
    let image = TestImage::small("app");
    let (registry, bench, lock) = locked(&image);
    fs_err::remove_file(registry.blob_file(&image.blob_digest(2))).expect("removed");
    let text = told(bench.make(&lock));
    for part in [APP, &image.blob_digest(2), &registry.url()] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_blob_that_the_registry_damaged_is_refused() {
    let image = TestImage::small("app");
    let (registry, bench, lock) = locked(&image);
    let file = registry.blob_file(&image.blob_digest(2));
    let mut bytes = fs_err::read(&file).expect("a blob");
    bytes[100] ^= 1;
    fs_err::write(&file, &bytes).expect("written");
    let text = told(bench.make(&lock));
    for part in [APP, &image.blob_digest(2), &registry.url(), &foothold::store::hash::bytes(&bytes).to_string()] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The image with a change of its configuration (before it is hashed) and its manifest.
fn changed(change: impl Fn(&mut Value, &mut Value)) -> TestImage {
    let mut image = TestImage::small("app");
    let mut config: Value = serde_json::from_slice(&image.blobs[0]).expect("JSON");
    let mut manifest: Value = serde_json::from_slice(&image.documents[0].1).expect("JSON");
    change(&mut config, &mut manifest);
    image.blobs[0] = config.to_string().into_bytes();
    manifest["config"]["digest"] = image.blob_digest(0).into();
    manifest["config"]["size"] = image.blobs[0].len().into();
    image.documents[0].1 = manifest.to_string().into_bytes();
    image
}

#[test]
fn layers_that_are_not_what_the_image_says_of_them_fail_the_build() {
    let wrong_id = changed(|config, _| config["rootfs"]["diff_ids"].as_array_mut().expect("ids").swap(0, 1));
    let (_registry, bench, lock) = locked(&wrong_id);
    let text = told(bench.make(&lock));
    assert!(text.contains(APP) && text.contains("when unpacked, the configuration says"), "{text}");

    let wrong_kind = changed(|_, manifest| {
        manifest["layers"][0]["mediaType"] = json!("application/vnd.oci.image.layer.v1.tar+zstd");
    });
    let (_registry, bench, lock) = locked(&wrong_kind);
    let text = told(bench.make(&lock));
    assert!(text.contains(&format!("unpacking the layer {}", wrong_kind.blob_digest(1))), "{text}");
}

#[rstest]
#[case::platform(changed(|config, _| config["architecture"] = json!("arm64")), "an image for linux/arm64, linux/amd64 is expected")]
#[case::layers(changed(|config, _| config["rootfs"]["diff_ids"] = json!([])), "it has 2 layers, its configuration names 0")]
#[case::artifact(changed(|_, manifest| manifest["config"]["mediaType"] = json!("application/vnd.cncf.helm.config.v1+json")), "it is no container image")]
#[case::layer(changed(|_, manifest| manifest["layers"][1]["mediaType"] = json!("application/x-other")), "`application/x-other`, which cannot be carried")]
fn what_no_box_could_run_is_told_when_it_is_locked(#[case] image: TestImage, #[case] expected: &str) {
    let registry = Registry::start();
    registry.push(APP, &image);
    let text = told(Bench::new(&registry.definition(&[APP])).lock());
    assert!(text.contains(expected) && text.contains(APP), "{text}");
}

#[test]
fn an_image_that_is_not_there_is_told_with_where_it_was_looked_for() {
    let registry = Registry::start();
    let text = told(Bench::new(&registry.definition(&[APP])).lock());
    assert!(text.contains(APP) && text.contains(&format!("{}/quay.io/org/app", registry.url())), "{text}");
}

#[test]
fn without_the_network_the_cache_alone_must_do() {
    let (registry, mut bench, lock) = locked(&TestImage::small("app"));
    bench.at.network.offline = true;
    let text = told(bench.make(&lock));
    assert!(text.contains(APP) && text.contains("`--offline` was given"), "{text}");
    bench.at.network.offline = false;
    let images = bench.make(&lock).expect("images");
    drop(registry);
    bench.at.network.offline = true;
    assert_eq!(bench.make(&lock).expect("images"), images);
}

#[test]
fn a_lock_of_other_images_is_refused_by_name() {
    let (registry, bench, lock) = locked(&TestImage::small("app"));
    let other = Bench::new(&registry.definition(&[APP, "quay.io/org/more:1"]));
    assert_eq!(
        told(other.make(&lock)),
        "the lock does not name the image `quay.io/org/more:1`\nhint: `foothold lock --update`"
    );
    let none = Bench::new("");
    assert!(told(none.make(&lock)).starts_with(&format!("the lock names the image `{APP}`, which the definition")));
    let other_digest = format!("{APP}@sha256:{}", "0".repeat(64));
    let mut moved = lock.clone();
    moved.images.insert(other_digest.clone(), lock.images[APP].clone());
    moved.images.remove(APP);
    let by_digest = Bench::new(&registry.definition(&[&other_digest]));
    assert!(told(by_digest.make(&moved)).contains("the lock has sha256:"));
    assert!(told(by_digest.lock()).contains(&other_digest), "the registry has no such manifest");
    drop(bench);
}

#[test]
fn a_lock_whose_packages_are_of_another_recipe_is_refused_before_anything_is_made() {
    let at = appliance::builder().expect("a builder");
    let mut job = Job::load("images/simulation/cluster-appliance.yaml".as_ref()).expect("a definition");
    let mut lock = appliance::locked(&at, &job).expect("a lock");
    // It has all kinds of recipes but one.
    let recipe = "debian: [jq]\nentrypoint: [/usr/bin/jq]\n";
    let carrying = from_here("app", |dir| {
        fs_err::create_dir(dir.join("app")).expect("made");
        fs_err::write(dir.join("app/image.yaml"), recipe).expect("written");
    });
    job.appliance.content.images.clone_from(&carrying.appliance.content.images);
    let set = format!("image/{APP}");
    lock.asked.insert(set.clone(), vec!["jq".to_owned()]);
    lock.debian.insert(set, Vec::new());
    pipeline::check(&at, &job.appliance, &lock).expect("nothing has changed");
    let mut kinds: Vec<_> = lock.asked.keys().map(|set| set.split_once('/').map_or(&**set, |(kind, _)| kind)).collect();
    kinds.dedup();
    assert_eq!(kinds, ["image", "kernel", "os", "os-image", "ramdisk", "repository", "service-image", "toolbox"]);
    for set in lock.asked.keys() {
        let mut other = lock.clone();
        other.asked.insert(set.clone(), vec!["another".to_owned()]);
        assert_eq!(
            told(pipeline::check(&at, &job.appliance, &other)),
            format!(
                "the lock's package set `{set}` was not made for what is asked for now\nhint: `foothold lock --update`"
            )
        );
    }
}

/// An OCI layout of an image, in a folder.
fn layout(image: &TestImage, folder: &std::path::Path) {
    let blobs = folder.join("blobs/sha256");
    fs_err::create_dir_all(&blobs).expect("a folder");
    let put =
        |bytes: &[u8]| fs_err::write(blobs.join(foothold::store::hash::bytes(bytes).hex()), bytes).expect("written");
    image.blobs.iter().for_each(|blob| put(blob));
    image.documents.iter().for_each(|(_, bytes)| put(bytes));
    let (kind, top) = image.documents.last().expect("a manifest");
    let entry = json!({ "mediaType": kind, "digest": image.digest(), "size": top.len() });
    fs_err::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
    fs_err::write(folder.join("index.json"), json!({ "schemaVersion": 2, "manifests": [entry] }).to_string())
        .expect("written");
}

/// What `docker save` writes of an image: plain layers and a configuration that names them.
fn saved(plain: &[Vec<u8>], tag: &str) -> Vec<u8> {
    let config = TestImage::of(plain, &json!({})).blobs.remove(0);
    let names: Vec<String> = (0..plain.len()).map(|n| format!("{n}/layer.tar")).collect();
    let manifest = json!([{ "Config": "config.json", "RepoTags": [tag], "Layers": names }]);
    let mut files: Vec<(&str, Vec<u8>, u32)> =
        names.iter().zip(plain).map(|(name, layer)| (&**name, layer.clone(), 0o644)).collect();
    files.push(("config.json", config, 0o644));
    files.push(("manifest.json", manifest.to_string().into_bytes(), 0o644));
    tarball(&files)
}

/// A definition beside these files, which says that `APP` is in `from`.
fn from_here(from: &str, lay_out: impl Fn(&std::path::Path)) -> Bench {
    let dir = tempfile::tempdir().expect("a folder");
    lay_out(dir.path());
    Bench::in_folder(dir, &format!("content: {{ images: [{{ name: \"{APP}\", from: {from} }}] }}\n"))
}

#[test]
fn a_layout_is_carried_as_it_is_from_a_folder_and_from_an_archive() {
    let image = TestImage::small("app").with_other_platform();
    let folder = from_here("layout", |dir| layout(&image, &dir.join("layout")));
    let archive = from_here("image.tar", |dir| {
        layout(&image, &dir.join("layout"));
        let mut tar = tar::Builder::new(fs_err::File::create(dir.join("image.tar")).expect("a file"));
        tar.append_dir_all("", dir.join("layout")).and_then(|()| tar.finish()).expect("a tar");
    });
    let lock = folder.lock().expect("a lock");
    assert_eq!(archive.lock().expect("a lock"), lock);
    let images = folder.make(&lock).expect("images");
    assert_eq!(images[0].top().to_string(), image.digest());
    assert_eq!(archive.make(&lock).expect("images"), images);
}

#[test]
fn an_archive_of_docker_becomes_the_same_image_wherever_it_is_read() {
    let plain = [tarball(&[("a", vec![1; 5000], 0o644)]), tarball(&[("b", vec![2; 5000], 0o755)])];
    let benches: Vec<Bench> = (0..2)
        .map(|_| {
            from_here("saved.tar", |dir| {
                fs_err::write(dir.join("saved.tar"), saved(&plain, "org/app:1.2")).expect("written");
            })
        })
        .collect();
    let lock = benches[0].lock().expect("a lock");
    assert_eq!(benches[1].lock().expect("a lock"), lock);
    let images = benches[0].make(&lock).expect("images");
    assert_eq!(images[0].blobs.len(), 4, "manifest, configuration, two layers");
    assert_eq!(benches[1].make(&lock).expect("images"), images);
}

#[test]
fn what_is_wrong_with_an_archive_is_told_with_its_path() {
    let image = TestImage::small("app");
    let layer = image.blob_digest(2);
    let missing = from_here("layout", |dir| {
        layout(&image, &dir.join("layout"));
        fs_err::remove_file(dir.join("layout/blobs/sha256").join(&layer[7..])).expect("removed");
    });
    let text = told(missing.lock());
    assert!(text.contains(APP) && text.contains("/layout`") && text.contains(&format!("{layer} is missing")), "{text}");

    let damaged = from_here("layout", |dir| {
        layout(&image, &dir.join("layout"));
        fs_err::write(dir.join("layout/blobs/sha256").join(&layer[7..]), "x").expect("written");
    });
    let text = told(damaged.lock());
    assert!(text.contains(&layer) && text.contains("is sha256:2d711642"), "{text}");

    let other = from_here("saved.tar", |dir| {
        fs_err::write(dir.join("saved.tar"), tarball(&[("x", vec![1], 0o644)])).expect("written");
    });
    let text = told(other.lock());
    assert!(text.contains("saved.tar` is neither an OCI layout nor an archive of `docker save`"), "{text}");
}

#[test]
fn an_archive_that_changed_after_it_was_locked_is_refused() {
    let plain = |n: u8| [tarball(&[("a", vec![n; 5000], 0o644)])];
    let bench =
        from_here("saved.tar", |dir| fs_err::write(dir.join("saved.tar"), saved(&plain(1), "a:1")).expect("written"));
    let lock = bench.lock().expect("a lock");
    let later =
        from_here("saved.tar", |dir| fs_err::write(dir.join("saved.tar"), saved(&plain(2), "a:1")).expect("written"));
    let text = told(later.make(&lock));
    assert!(text.contains("saved.tar` holds sha256:") && text.contains("the lock expects sha256:"), "{text}");
}
