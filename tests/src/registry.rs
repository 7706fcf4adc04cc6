//! A real registry on loopback: the box's own program, with small images in it.
//!
//! ```text
//! Registry::start()            a free port, its storage in a folder that goes with the handle
//!   .push("docker.io/library/a", "1", &TestImage::small("a"))
//!   .definition(&[...])        the lines of a definition that carries them, by their whole names
//! ```
//! Images of every host lie below `<host>/` in it: the definition names it as the mirror of each host.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use agent_api::image::ImageName;
use foothold::host::command::{Run, Running, pause};
use foothold::layer::agent;
use foothold::store::hash;
use serde_json::{Value, json};

use crate::appliance::builder;
use crate::programs::{place, program};
use crate::{free_port, noise};

/// How long the registry may take to answer at first.
const PATIENCE: Duration = Duration::from_secs(180);
/// A user of a registry that wants one: name, password, and the password as `htpasswd` writes it (bcrypt, cost 4).
pub const LOGIN: (&str, &str) = ("tester", "passwort");
const LOGIN_HASH: &str = "$2b$04$FN5IRC/gDjC57dV56WJE6exLpBOKKrCC8CwFFAQ5/7EOA/0J00jKC";

/// What a registry asks of its clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wants {
    /// TLS, with a certificate of a private authority ([`Registry::ca`]).
    pub tls: bool,
    /// The credentials [`LOGIN`].
    pub login: bool,
}

/// A running registry; ends with its handle.
pub struct Registry {
    dir: tempfile::TempDir,
    address: SocketAddr,
    wants: Wants,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
    process: Option<Running>,
}

impl Registry {
    /// Starts one that everybody may use.
    pub fn start() -> Self {
        Self::start_with(Wants::default())
    }

    /// Starts one.
    pub fn start_with(wants: Wants) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().expect("a folder");
        let address = (Ipv4Addr::LOCALHOST, free_port()).into();
        fs_err::write(dir.path().join("config.json"), configuration(dir.path(), address, wants).to_string())
            .expect("written");
        let process = run(dir.path(), address);
        let mut client = reqwest::Client::builder().no_proxy();
        if wants.tls {
            let ca = fs_err::read(dir.path().join("ca.pem")).expect("an authority");
            client = client.tls_certs_only([reqwest::Certificate::from_pem(&ca).expect("an authority")]);
        }
        let client = client.build().expect("a client");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { dir, address, wants, client, runtime, process: Some(process) }
    }

    /// Ends it; its storage stays.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it again, with the same port and storage.
    pub fn go_on(&mut self) {
        self.process = Some(run(self.dir.path(), self.address));
    }

    /// `127.0.0.1:<port>`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:<port>`, or `https`.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.wants.tls { "https" } else { "http" }, self.address)
    }

    /// The certificate of its authority.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// A docker configuration with its credentials.
    pub fn authfile(&self) -> PathBuf {
        use base64::Engine as _;
        let file = self.dir.path().join("auth.json");
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", LOGIN.0, LOGIN.1));
        let text = json!({ "auths": { self.address.to_string(): { "auth": auth } } });
        fs_err::write(&file, text.to_string()).expect("written");
        file
    }

    /// Where it keeps the bytes of a blob.
    pub fn blob_file(&self, digest: &str) -> PathBuf {
        let hex = digest.trim_start_matches("sha256:");
        self.dir.path().join(format!("storage/docker/registry/v2/blobs/sha256/{}/{hex}/data", &hex[..2]))
    }

    /// Pushes an image; `reference` is its whole name with a tag. Returns the digest that the tag stands for.
    pub fn push(&self, reference: &str, image: &TestImage) -> String {
        let name: ImageName = reference.parse().expect("a name");
        let repository = format!("{}/{}", name.host, name.path);
        for blob in &image.blobs {
            self.push_blob(&repository, blob);
        }
        let (top, others) = image.documents.split_last().expect("a manifest");
        for document in others {
            self.push_manifest(&repository, &hash::bytes(&document.1).to_string(), document);
        }
        self.push_manifest(&repository, &name.tag.expect("a tag"), top);
        hash::bytes(&top.1).to_string()
    }

    /// Deletes a manifest, and with it every tag of it; `repository` as here, with the host.
    pub fn delete(&self, repository: &str, digest: &str) {
        let url = format!("{}/v2/{repository}/manifests/{digest}", self.url());
        let done = self.runtime.block_on(self.request(reqwest::Method::DELETE, &url).send()).expect("an answer");
        assert_eq!(done.status(), 202, "deleting {repository}@{digest}");
    }

    /// Where it keeps everything.
    pub fn storage(&self) -> PathBuf {
        self.dir.path().join("storage")
    }

    fn push_blob(&self, repository: &str, blob: &[u8]) {
        let upload = self.request(reqwest::Method::POST, &format!("{}/v2/{repository}/blobs/uploads/", self.url()));
        let begun = self.runtime.block_on(upload.send()).expect("an answer");
        assert_eq!(begun.status(), 202, "beginning an upload to {repository}");
        let place = begun.headers()["location"].to_str().expect("text").to_owned();
        let joint = if place.contains('?') { '&' } else { '?' };
        let url = format!("{place}{joint}digest={}", hash::bytes(blob));
        let put = self.request(reqwest::Method::PUT, &url).body(blob.to_vec());
        let done = self.runtime.block_on(put.send()).expect("an answer");
        assert_eq!(done.status(), 201, "pushing a blob to {repository}");
    }

    fn push_manifest(&self, repository: &str, tag: &str, (media_type, bytes): &(String, Vec<u8>)) {
        let url = format!("{}/v2/{repository}/manifests/{tag}", self.url());
        let put = self.request(reqwest::Method::PUT, &url).header("content-type", media_type).body(bytes.clone());
        let done = self.runtime.block_on(put.send()).expect("an answer");
        let status = done.status();
        let said = self.runtime.block_on(done.text()).expect("a body");
        assert_eq!(status, 201, "pushing {repository}:{tag}: {said}");
    }

    fn request(&self, method: reqwest::Method, url: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, url);
        if self.wants.login { request.basic_auth(LOGIN.0, Some(LOGIN.1)) } else { request }
    }

    /// The part of a definition that carries these references from here: `content:` with two keys.
    pub fn definition(&self, references: &[&str]) -> String {
        self.definition_through(&self.url(), references)
    }

    /// The same, but through the address of something in front of it.
    pub fn definition_through(&self, url: &str, references: &[&str]) -> String {
        let mut hosts: Vec<String> =
            references.iter().map(|name| name.parse::<ImageName>().expect("a name").host).collect();
        hosts.sort();
        hosts.dedup();
        let ca = if self.wants.tls { format!(", ca: {}", self.ca().display()) } else { String::new() };
        let images: Vec<_> = references.iter().map(|name| format!("    - \"{name}\"")).collect();
        let hosts: Vec<_> =
            hosts.iter().map(|host| format!("    \"{host}\": {{ mirror: \"{url}/{host}\"{ca} }}")).collect();
        format!("content:\n  images:\n{}\n  registries:\n{}\n", images.join("\n"), hosts.join("\n"))
    }

    /// Pushes six images under the names of four registries: an index of two platforms, Docker's own kinds of manifests,
    /// two names without host that are the same. The first one runs: it is `pause`. Returns their references.
    pub fn push_six(&self) -> [&'static str; 6] {
        let images = [
            ("docker.io/library/hello:1", TestImage::runnable()),
            ("docker.io/org/app:1.2", TestImage::small("app").with_other_platform()),
            ("quay.io/org/app:2.0", TestImage::small("app 2").of_docker()),
            ("quay.io/org/tool:v3", TestImage::small("tool").of_docker().with_other_platform()),
            ("ghcr.io/team/worker:2026.1", TestImage::small("worker")),
            ("registry.example/deep/down/below/thing:a_b-c.d", TestImage::small("thing")),
        ];
        for (reference, image) in &images {
            self.push(reference, image);
        }
        images.map(|(reference, _)| reference)
    }
}

/// Runs it as its configuration says, until it answers.
fn run(dir: &Path, address: SocketAddr) -> Running {
    let run = Run::new(program("registry", "registry")).arg("serve").arg(dir.join("config.json")).clear_env();
    let mut process = run.env("OTEL_TRACES_EXPORTER", "none").start().expect("started");
    let started = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Some(said) = process.ended() {
            panic!("the registry ended:\n{said}");
        }
        assert!(started.elapsed() < PATIENCE, "the registry does not answer");
        pause(Duration::from_millis(20));
    }
    process
}

fn configuration(dir: &Path, address: SocketAddr, wants: Wants) -> Value {
    let mut config = json!({
        "version": 0.1,
        "log": { "level": "error", "accesslog": { "disabled": true } },
        "storage": { "filesystem": { "rootdirectory": dir.join("storage") }, "delete": { "enabled": true } },
        "http": { "addr": address.to_string(), "secret": "of a test" },
    });
    if wants.tls {
        certify(dir);
        config["http"]["tls"] = json!({ "certificate": dir.join("server.pem"), "key": dir.join("server.key") });
    }
    if wants.login {
        fs_err::write(dir.join("htpasswd"), format!("{}:{LOGIN_HASH}\n", LOGIN.0)).expect("written");
        config["auth"] = json!({ "htpasswd": { "realm": "test", "path": dir.join("htpasswd") } });
    }
    config
}

/// A private authority, and a certificate of it for loopback.
fn certify(dir: &Path) {
    let key = || rcgen::KeyPair::generate().expect("a key");
    let mut ca = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.distinguished_name.push(rcgen::DnType::CommonName, "an authority of a test");
    let issuer_key = key();
    let authority = ca.self_signed(&issuer_key).expect("signed");
    let issuer = rcgen::Issuer::new(ca, issuer_key);
    let (params, server) = (rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).expect("parameters"), key());
    let certificate = params.signed_by(&server, &issuer).expect("signed");
    for (file, text) in
        [("ca.pem", authority.pem()), ("server.pem", certificate.pem()), ("server.key", server.serialize_pem())]
    {
        fs_err::write(dir.join(file), text).expect("written");
    }
}

/// An image as it lies in a registry.
#[derive(Clone, Debug)]
pub struct TestImage {
    /// Configuration and layers.
    pub blobs: Vec<Vec<u8>>,
    /// Manifests and index with their media types; the last one is what the tag stands for.
    pub documents: Vec<(String, Vec<u8>)>,
}

impl TestImage {
    /// Two layers of a few KiB: one packed with gzip, one with zstd.
    pub fn small(word: &str) -> Self {
        let line = |n: u32| move |line: u32| format!("{word} {n} {line}\n").into_bytes();
        let text = |n: u32| (0..500).flat_map(line(n)).collect::<Vec<u8>>();
        let files = [vec![("first.txt", text(1), 0o644)], vec![("folder/second.txt", text(2), 0o644)]];
        Self::of(&files.map(|files| tarball(&files)), &json!({ "Cmd": ["/none"] }))
    }

    /// One layer of that many bytes that nothing makes smaller.
    pub fn large(bytes: usize) -> Self {
        Self::of(&[tarball(&[("noise", noise(1, bytes), 0o644)])], &json!({}))
    }

    /// One that runs, and does nothing until it is told to end: `pause`, compiled from this workspace.
    pub fn runnable() -> Self {
        let program = fs_err::read(pause_program()).expect("a program");
        Self::of(&[tarball(&[("pause", program, 0o755)])], &json!({ "Entrypoint": ["/pause"] }))
    }

    /// From layers as they are unpacked.
    pub fn of(plain: &[Vec<u8>], settings: &Value) -> Self {
        let ids: Vec<String> = plain.iter().map(|layer| hash::bytes(layer).to_string()).collect();
        let config = json!({ "architecture": "amd64", "os": "linux", "config": settings,
            "rootfs": { "type": "layers", "diff_ids": ids } });
        let mut blobs = vec![config.to_string().into_bytes()];
        let mut layers = Vec::new();
        for (n, layer) in plain.iter().enumerate() {
            let (kind, packed) = if n % 2 == 0 {
                ("application/vnd.oci.image.layer.v1.tar+gzip", gzip(layer))
            } else {
                ("application/vnd.oci.image.layer.v1.tar+zstd", zstd::encode_all(layer.as_slice(), 3).expect("packed"))
            };
            layers.push(descriptor(kind, &packed));
            blobs.push(packed);
        }
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let config = descriptor("application/vnd.oci.image.config.v1+json", &blobs[0]);
        let manifest = json!({ "schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers });
        Self { blobs, documents: vec![(kind.to_owned(), manifest.to_string().into_bytes())] }
    }

    /// The same with Docker's media types.
    #[must_use]
    pub fn of_docker(mut self) -> Self {
        let (kind, bytes) = self.documents.last_mut().expect("a manifest");
        let mut manifest: Value = serde_json::from_slice(bytes).expect("JSON");
        "application/vnd.docker.distribution.manifest.v2+json".clone_into(kind);
        manifest["mediaType"] = json!(kind);
        manifest["config"]["mediaType"] = json!("application/vnd.docker.container.image.v1+json");
        for layer in manifest["layers"].as_array_mut().expect("layers") {
            if layer["mediaType"].as_str().is_some_and(|kind| kind.ends_with("gzip")) {
                layer["mediaType"] = json!("application/vnd.docker.image.rootfs.diff.tar.gzip");
            }
        }
        *bytes = manifest.to_string().into_bytes();
        self
    }

    /// An index of this image and of one for arm64, with what builders add: an attestation.
    #[must_use]
    pub fn with_other_platform(mut self) -> Self {
        let (kind, manifest) = self.documents.last().expect("a manifest").clone();
        let mut other: Value = serde_json::from_slice(&manifest).expect("JSON");
        other["annotations"] = json!({ "for": "arm64" });
        let other = other.to_string().into_bytes();
        let mut entries = vec![descriptor(&kind, &other), descriptor(&kind, &manifest)];
        entries[0]["platform"] = json!({ "architecture": "arm64", "os": "linux", "variant": "v8" });
        entries[1]["platform"] = json!({ "architecture": "amd64", "os": "linux" });
        let index_kind = if kind.contains("docker") {
            "application/vnd.docker.distribution.manifest.list.v2+json"
        } else {
            "application/vnd.oci.image.index.v1+json"
        };
        let index = json!({ "schemaVersion": 2, "mediaType": index_kind, "manifests": entries });
        self.documents.push((kind, other));
        self.documents.push((index_kind.to_owned(), index.to_string().into_bytes()));
        self
    }

    /// Everything of it: blobs, then documents.
    pub fn parts(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.blobs.iter().chain(self.documents.iter().map(|(_, document)| document))
    }

    /// An OCI layout in a tar; `name` is what the image is called inside.
    pub fn archive(&self, name: &str) -> Vec<u8> {
        let (kind, top) = self.documents.last().expect("a manifest");
        let index = json!({ "schemaVersion": 2, "manifests": [{ "mediaType": kind, "digest": self.digest(),
            "size": top.len(), "annotations": { "io.containerd.image.name": name } }] });
        let blob = |bytes: &Vec<u8>| (format!("blobs/sha256/{}", hash::bytes(bytes).hex()), bytes.clone());
        let blobs: Vec<(String, Vec<u8>)> = self.parts().map(blob).collect();
        let mut files: Vec<_> = blobs.iter().map(|(path, bytes)| (path.as_str(), bytes.clone(), 0o644)).collect();
        files.push(("index.json", index.to_string().into(), 0o644));
        files.push(("oci-layout", b"{\"imageLayoutVersion\":\"1.0.0\"}".to_vec(), 0o644));
        tarball(&files)
    }

    /// Digest of what the tag stands for.
    pub fn digest(&self) -> String {
        hash::bytes(&self.documents.last().expect("a manifest").1).to_string()
    }

    /// Digest of the configuration (0) or a layer.
    pub fn blob_digest(&self, n: usize) -> String {
        hash::bytes(&self.blobs[n]).to_string()
    }
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": hash::bytes(bytes).to_string(), "size": bytes.len() })
}

/// A tar of files: path, bytes, mode.
pub fn tarball(files: &[(&str, Vec<u8>, u32)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, bytes, mode) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(*mode);
        header.set_mtime(1_700_000_000);
        tar.append_data(&mut header, path, bytes.as_slice()).expect("a tar in memory");
    }
    tar.into_inner().expect("a tar in memory")
}

/// What gzip makes of it.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).and_then(|()| packer.finish()).expect("packed in memory")
}

/// `pause`, built once.
fn pause_program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let at = builder()?;
        let (made, _) = agent::make(&at.cache, &at.workspace, at.agent, false, &|_| ())?;
        place(&at, "pause", made.file("pause")?)
    };
    BUILT.get_or_init(|| build().unwrap_or_else(|error: anyhow::Error| panic!("building `pause`: {error:#}")))
}
