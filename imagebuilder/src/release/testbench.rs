//! A small signed release and the plan of its images, for tests.

use std::path::Path;

use agent_api::menu::MenuEntry;
use agent_api::proof::{self, PROOF};
use agent_api::release::{Blob, BootEntry, DataPlace, Image, InitrdConfig, Kubernetes, Layer, Package, Release};

use super::{initrd, sign::Signer};
use crate::boot::{self, files};
use crate::config::SecretReference;
use crate::disk::testbench::Toolbox;
use crate::disk::{Content, SourceFile};
use crate::format::qcow2::Compression;
use crate::format::{Format, ImagePlan, write};
use crate::layer::verity;
use crate::store::{Cache, Made, hash};

/// Build time of the release.
pub const BUILT: u32 = 1_760_000_000;

/// A release, its key, and what its images are made of.
pub struct Sample {
    /// Its scratch folder, removed with it.
    dir: tempfile::TempDir,
    /// The manifest.
    pub release: Release,
    /// Its id.
    pub id: String,
    /// What starts it.
    pub boot_files: files::BootFiles,
    /// The plan of all formats.
    pub plan: ImagePlan,
    /// Text of the public key.
    pub public_key: String,
    /// Its key.
    pub signer: Signer,
}

/// Bytes that do not repeat and do not compress.
pub fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

impl Sample {
    /// Makes it.
    pub fn new() -> Self {
        Self::with_boot_files(|_| ())
    }

    /// Makes it with another list of what starts it.
    pub fn with_boot_files(change: impl FnOnce(&mut files::BootFiles)) -> Self {
        Self::make(None, change, |_| ())
    }

    /// Makes it with another manifest.
    pub fn changed(change: impl FnOnce(&mut Release)) -> Self {
        Self::make(None, |_| (), change)
    }

    /// Makes the next release of the same appliance, with the same key.
    pub fn next(&self, change: impl FnOnce(&mut Release)) -> Self {
        Self::make(Some(&self.dir.path().join("release.key")), |_| (), change)
    }

    fn make(
        key: Option<&Path>,
        change: impl FnOnce(&mut files::BootFiles),
        change_release: impl FnOnce(&mut Release),
    ) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
        let named = |path: &Path| Signer::open(Some(&SecretReference::File(path.to_owned()))).expect("a signer");
        let signer = key.map_or_else(|| signer(dir.path()), named);
        let layer = layer(&cache, dir.path());
        let adopt = |seed, length| cache.adopt_bytes(&noise(seed, length)).expect("a blob");
        let (manifest, own, shared) = (adopt(1, 700), adopt(2, 300_000), adopt(3, 5_000));
        let (kernel, initrd) = (adopt(4, 200_000), made_initrd(&cache, &signer));
        let image = |reference: &str, blobs: &[&Blob]| Image {
            reference: reference.to_owned(),
            index: None,
            inner: Vec::new(),
            manifest: manifest.digest.clone(),
            blobs: blobs.iter().map(|blob| (*blob).clone()).collect(),
        };
        let images = vec![image("example.org/a:1", &[&manifest, &own, &shared]), image("example.org/b:1", &[&shared])];
        let mut release = release(layer.clone(), kernel.clone(), initrd.clone(), images);
        change_release(&mut release);
        let json = serde_json::to_vec_pretty(&release).expect("JSON");
        let id = hash::bytes(&json).hex().to_owned();
        let signature = signer.sign(&json, "test").expect("a signature");
        let layer_blob = Blob { digest: layer.digest, size: layer.size };
        let mut store = vec![
            SourceFile { path: format!("foothold/releases/{id}/release.json"), content: Content::Bytes(json) },
            SourceFile {
                path: format!("foothold/releases/{id}/release.json.minisig"),
                content: Content::Bytes(signature.into_bytes()),
            },
        ];
        store.extend([&layer_blob, &manifest, &own, &shared].map(|blob| SourceFile {
            path: format!("foothold/{}", blob.digest.store_path()),
            content: Content::File { path: cache.blob_path(&blob.digest), bytes: blob.size },
        }));
        let current = boot::BootEntry {
            entry: MenuEntry {
                release_id: id.clone(),
                title: "edge 1.4.0".to_owned(),
                parameters: vec!["quiet".to_owned()],
            },
            kernel: cache.blob_path(&kernel.digest),
            initrd: cache.blob_path(&initrd.digest),
        };
        let mut plan = plan(dir.path(), &id, store, current);
        let mut boot_files = files::list(&plan.entries, &Toolbox::find(), &plan.cache).expect("a list");
        change(&mut boot_files);
        let list = serde_json::to_vec_pretty(&boot_files).expect("JSON");
        let signature = signer.sign(&list, "test").expect("a signature").into_bytes();
        let path = format!("foothold/releases/{id}/boot-files.json");
        plan.store.push(SourceFile { path: format!("{path}.minisig"), content: Content::Bytes(signature) });
        plan.store.push(SourceFile { path, content: Content::Bytes(list) });
        let (path, place) = (format!("foothold/releases/{id}/{PROOF}"), proof::reserve(&id));
        plan.store.push(SourceFile { path, content: Content::Reserved(place) });
        let public_key = signer.public_key.clone();
        Self { dir, release, id, boot_files, plan, public_key, signer }
    }

    /// Writes an image.
    pub fn write(&self, format: Format) -> std::path::PathBuf {
        write(format, &self.plan, &Toolbox::find(), &mut |_, _| ()).expect("an image").file
    }

    /// Files that a check of such an image reads: kernel, initrd, four blobs, and what starts them.
    pub fn files(&self, format: Format) -> usize {
        6 + self.boot_files.esp.len() + if format == Format::Iso { 3 } else { 2 }
    }

    /// Digest of the blob of that seed.
    pub fn digest(&self, number: usize) -> String {
        self.release.images[0].blobs[number].digest.to_string()
    }
}

/// A new key in a folder.
pub fn signer(dir: &Path) -> Signer {
    let path = dir.join("release.key");
    let pair = minisign::KeyPair::generate_unencrypted_keypair().expect("a key");
    fs_err::write(&path, pair.sk.to_box(None).expect("a box").to_string()).expect("written");
    Signer::open(Some(&SecretReference::File(path))).expect("a signer")
}

fn layer(cache: &Cache, dir: &Path) -> Layer {
    let path = dir.join("os.squashfs");
    fs_err::write(&path, noise(9, 300 * 4096)).expect("written");
    let verity = verity::append(&path, &verity::salt_for("os")).expect("a tree");
    let blob = cache.adopt(&path).expect("adopted");
    Layer {
        name: "os".to_owned(),
        digest: blob.digest,
        size: blob.size,
        data_bytes: verity.data_bytes,
        root_hash: verity.root_hash,
        salt: verity.salt,
    }
}

/// By the code that makes real ones.
fn made_initrd(cache: &Cache, signer: &Signer) -> Blob {
    let (mut agent, mut os) = (Made::default(), Made::default());
    agent.files.insert("foothold-agent".into(), cache.adopt_bytes(&noise(5, 50_000)).expect("a blob"));
    let tar = tar::Builder::new(Vec::new()).into_inner().expect("a tar");
    os.files.insert(crate::layer::os::INITRD_MODULES.into(), cache.adopt_bytes(&tar).expect("a blob"));
    let config = InitrdConfig { name: "edge".into(), version: "1.4.0".into(), built: BUILT.into() };
    let public_key = &signer.public_key;
    let input = initrd::Input { cache, agent: &agent, os: &os, public_key, config };
    initrd::make(&input).expect("an initrd").0.file("initrd").expect("the file").clone()
}

fn release(layer: Layer, kernel: Blob, initrd: Blob, images: Vec<Image>) -> Release {
    Release {
        api_version: "foothold.dev/v1".into(),
        kind: "Release".into(),
        name: "edge".into(),
        version: "1.4.0".into(),
        architecture: "amd64".into(),
        built: BUILT.into(),
        development_key: false,
        development_agent: false,
        layers: vec![layer],
        boot: vec![BootEntry {
            name: "default".into(),
            kernel,
            initrd,
            command_line: "quiet".into(),
            kernel_release: "6.12.0-test".into(),
        }],
        kubernetes: Kubernetes {
            version: "v1.36.4".into(),
            pod_cidr: "10.244.0.0/16".into(),
            service_cidr: "10.96.0.0/12".into(),
        },
        images,
        packages: vec![Package { name: "base-files".into(), version: "13.8".into() }],
        data: vec![DataPlace::BootDisk { min_bytes: 1 << 30 }, DataPlace::Ram],
        ntp_serve: true,
        ..Release::default()
    }
}

fn plan(dir: &Path, id: &str, store: Vec<SourceFile>, current: boot::BootEntry) -> ImagePlan {
    ImagePlan {
        release_id: id.to_owned(),
        built: BUILT,
        name: "edge".to_owned(),
        version: "1.4.0".to_owned(),
        store,
        entries: boot::BootEntries { current, previous: None, consoles: vec!["ttyS0".to_owned()] },
        site: Vec::new(),
        virtual_bytes: None,
        max_bytes: None,
        compression: Compression::Zstd(3),
        cache: dir.join("images"),
        out: dir.join("out"),
    }
}
