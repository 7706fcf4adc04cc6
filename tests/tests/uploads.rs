//! Container images that are uploaded by the REST of the Binary Provisioning Agent are in the real registry.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_api::bpa::{Image, Kind, Published};
use agent_api::site::{Access, Site};
use clap::Parser as _;
use foothold::store::hash;
use foothold_agent::door::{Gate, own_certificate};
use foothold_agent::events::Bus;
use foothold_agent::rest;
use foothold_agent::rest::uploads::Options;
use foothold_agent::uploads::publish::{ReadUpload, Reader};
use foothold_agent::uploads::{UploadLimits, Uploads, publish};
use foothold_tests::Registry;
use foothold_tests::client::with_metadata;
use foothold_tests::registry::{TestImage, gzip, tarball};
use reqwest::header::ACCEPT;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const COLLECTION: &str = "/v1/baremetalcluster/alpha/beta/container_images";
const TOKEN: &str = "a-token-of-this-test";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const PATIENCE: Duration = Duration::from_secs(180);

/// What reads uploads: this program again, asked for one "test".
fn reader() -> Reader {
    let exe = std::env::current_exe().expect("this program").display().to_string();
    let words = [&exe, "--ignored", "--exact", "--nocapture", "--test-threads=1", "the_reader"];
    Reader::new(words.map(str::to_owned).to_vec())
}

/// It returns, and does not call `exit`: that takes away the stack on which the main thread may still be handling glibc's
/// signal for the change of users.
#[test]
#[ignore = "it is what reads uploads for the server, which starts it"]
fn the_reader() {
    let mut words = std::env::args().skip_while(|word| word != "the_reader").peekable();
    if words.peek().is_some() {
        ReadUpload::parse_from(words).run().expect("told");
    }
}

/// The agent's server for uploads, with a registry behind it. Its tasks end with its handle.
struct Server {
    runtime: Runtime,
    client: Client,
    url: String,
    _site: watch::Sender<Option<Arc<Site>>>,
    _tasks: JoinSet<anyhow::Result<()>>,
}

impl Server {
    fn start(dir: &Path, registry: &Registry) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let token = hash::bytes(TOKEN.as_bytes()).hex().to_owned();
        let access = Access { token_sha256: Some(token), ..Access::default() };
        let gate = Arc::new(Gate::new(&dir.join("access")));
        gate.set_site(&access);
        let limits =
            UploadLimits { percent: Kind::ALL.map(|kind| (kind, 100)).into(), reserve_percent: 0, images: 10_000 };
        let uploads = Uploads::open(&dir.join("uploads"), limits.clone()).expect("a folder for uploads");
        let (certificate, _) = own_certificate(&dir.join("web")).expect("a certificate");
        let site = watch::Sender::new(Some(Arc::new(Site { access, ..Site::default() })));
        let listen = vec!["127.0.0.1:0".parse().expect("an address")];
        let options = Options { listen, gate, site: site.subscribe(), certificate, uploads: uploads.clone(), limits };
        let registry = publish::Registry::new(registry.url().parse().expect("an address"), None).expect("a client");
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        let inside = runtime.enter();
        let addresses = rest::uploads::start(&mut tasks, options, &stop).expect("a server");
        publish::start(&mut tasks, uploads, reader(), Some(registry), Bus::in_memory(), &stop);
        drop(inside);
        let authority = fs_err::read(dir.join("web/ca.crt")).expect("the authority");
        let authority = reqwest::Certificate::from_pem(&authority).expect("a certificate");
        let client = Client::builder().tls_certs_only([authority]).no_proxy().build().expect("a client");
        Self { runtime, client, url: format!("https://{}", addresses[0]), _site: site, _tasks: tasks }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(TOKEN)
    }

    fn send(&self, request: RequestBuilder) -> StatusCode {
        self.runtime.block_on(request.send()).expect("an answer").status()
    }

    /// A document about an image, as BPA wants it.
    fn tell(&self, method: Method, path: &str, metadata: &Value) -> StatusCode {
        self.send(with_metadata(self.request(method, path), metadata))
    }

    fn upload(&self, name: &str, description: &Value, bytes: Vec<u8>) {
        let metadata =
            json!({ "owner": "alpha", "image_name": name, "image_length": bytes.len(), "description": description });
        assert_eq!(self.tell(Method::POST, COLLECTION, &metadata), StatusCode::CREATED);
        let patch = self.request(Method::PATCH, &format!("{COLLECTION}/{name}")).header("Upload-Offset", 0);
        assert_eq!(self.send(patch.body(bytes)), StatusCode::NO_CONTENT);
    }

    fn image(&self, name: &str) -> Image {
        let get = self.request(Method::GET, &format!("{COLLECTION}/{name}"));
        self.runtime.block_on(async { get.send().await?.json().await }).expect("an image")
    }

    fn wait_until(&self, what: &str, mut is: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is() {
            assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?}: {what}");
            self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
        }
    }

    /// Waits until the registry has it, or has refused it for good.
    fn ends(&self, name: &str, as_what: Published) {
        self.wait_until(name, || self.image(name).published != Published::Pending);
        let image = self.image(name);
        assert_eq!(image.published, as_what, "{:?}", image.problem);
    }

    /// What the registry answers.
    fn status(&self, registry: &Registry, path: &str) -> StatusCode {
        self.send(self.client.get(format!("{}/v2/{path}", registry.url())))
    }

    /// Pulls everything that a tag leads to; digests of what came.
    fn pull(&self, registry: &Registry, repository: &str, tag: &str) -> BTreeSet<String> {
        let mut waiting = vec![format!("manifests/{tag}")];
        let mut pulled = BTreeSet::new();
        while let Some(path) = waiting.pop() {
            let url = format!("{}/v2/{repository}/{path}", registry.url());
            let get = self.client.get(url).header(ACCEPT, format!("{MANIFEST}, {INDEX}"));
            let answer = self.runtime.block_on(get.send()).expect("an answer");
            assert_eq!(answer.status(), StatusCode::OK, "{repository}/{path}");
            let bytes = self.runtime.block_on(answer.bytes()).expect("a body");
            let digest = hash::bytes(&bytes).to_string();
            assert!(!path.contains("sha256:") || path.ends_with(&digest), "{path} is {digest}");
            if path.starts_with("manifests/") {
                let manifest: Value = serde_json::from_slice(&bytes).expect("JSON");
                for (list, kind) in [("manifests", "manifests"), ("layers", "blobs")] {
                    let parts = manifest[list].as_array().into_iter().flatten();
                    waiting.extend(parts.filter_map(|part| Some(format!("{kind}/{}", part["digest"].as_str()?))));
                }
                waiting.extend(manifest["config"]["digest"].as_str().map(|digest| format!("blobs/{digest}")));
            }
            pulled.insert(digest);
        }
        pulled
    }
}

/// As `docker save` of old writes it; and the digest of its configuration, which is the image's id.
fn docker_archive() -> (Vec<u8>, String) {
    let layer = tarball(&[("hello", vec![b'x'; 300_000], 0o644)]);
    let config = json!({ "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [hash::bytes(&layer).to_string()] } });
    let config = config.to_string().into_bytes();
    let list = json!([{ "Config": "c.json", "RepoTags": ["docker.io/org/app:1.2"], "Layers": ["l/layer.tar"] }]);
    let id = hash::bytes(&config).to_string();
    let files =
        [("l/layer.tar", layer, 0o644), ("c.json", config, 0o644), ("manifest.json", list.to_string().into(), 0o644)];
    (tarball(&files), id)
}

/// Digests of everything of an image.
fn digests(image: &TestImage) -> BTreeSet<String> {
    image.parts().map(|bytes| hash::bytes(bytes).to_string()).collect()
}

/// Manifests that a repository has, under a tag or not.
fn revisions(registry: &Registry, repository: &str) -> usize {
    let folder = format!("docker/registry/v2/repositories/{repository}/_manifests/revisions/sha256");
    let entries = fs_err::read_dir(registry.storage().join(folder)).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.path().join("link")).filter(|link: &PathBuf| link.exists()).count()
}

#[test]
fn an_archive_is_in_the_registry_under_its_owners_names() {
    let (dir, registry) = (tempfile::tempdir().expect("a folder"), Registry::start());
    let server = Server::start(dir.path(), &registry);
    let said = json!({ "image_records": [{ "image_record_name": "r", "repo": "icn", "tag": "2" }] });
    let ((docker, id), image) = (docker_archive(), TestImage::small("app").with_other_platform());
    server.upload("docker.tar", &said, docker.clone());
    server.upload("oci.tar", &json!({}), image.archive("quay.io/org/app:2.0"));
    server.upload("docker.tar.gz", &json!({}), gzip(&docker));
    server.upload("broken.tar", &said, vec![7; 2000]);
    for name in ["docker.tar", "oci.tar", "docker.tar.gz"] {
        server.ends(name, Published::Published);
    }
    server.ends("broken.tar", Published::Failed);
    assert_eq!(server.pull(&registry, "alpha/org/app", "2.0"), digests(&image));
    for (repository, tag) in [("alpha/icn", "2"), ("alpha/org/app", "1.2")] {
        let pulled = server.pull(&registry, repository, tag);
        assert!(pulled.len() == 3 && pulled.contains(&id), "manifest, configuration and layer: {pulled:?}");
    }
    let told = server.image("docker.tar");
    assert_eq!(told.references, ["alpha/icn:2"]);
    assert_eq!(told.url.as_deref(), Some("127.0.0.1:5000/alpha/icn:2"));

    // Another description is another name, and the old one goes.
    let changed = json!({ "owner": "alpha", "image_name": "docker.tar",
        "description": { "image_records": [{ "repo": "new", "tag": "3" }] } });
    let path = format!("{COLLECTION}/docker.tar");
    assert_eq!(server.tell(Method::PUT, &path, &changed), StatusCode::CREATED);
    server.ends("docker.tar", Published::Published);
    assert!(server.pull(&registry, "alpha/new", "3").contains(&id));
    let is_gone = |path: &str| server.status(&registry, path) == StatusCode::NOT_FOUND;
    server.wait_until("the old name is gone", || is_gone("alpha/icn/manifests/2"));
    assert_eq!(server.send(server.request(Method::DELETE, &path)), StatusCode::NO_CONTENT);
    server.wait_until("the new name is gone", || is_gone("alpha/new/manifests/3"));
    // Its manifest goes with it, so that its blobs can be collected; another image's is still there.
    for repository in ["alpha/new", "alpha/icn"] {
        server.wait_until("its manifest is gone", || revisions(&registry, repository) == 0);
    }
    assert!(revisions(&registry, "alpha/org/app") > 0);
}

#[test]
fn a_registry_that_comes_late_gets_it_all_the_same() {
    let (dir, mut registry) = (tempfile::tempdir().expect("a folder"), Registry::start());
    registry.stop();
    let server = Server::start(dir.path(), &registry);
    let image = TestImage::small("app");
    server.upload("oci.tar", &json!({}), image.archive("app:1"));
    server.wait_until("it is told why", || server.image("oci.tar").problem.is_some());
    let told = server.image("oci.tar");
    assert_eq!(told.published, Published::Pending);
    assert!(told.problem.expect("a problem").starts_with("the registry does not answer"));
    registry.go_on();
    server.ends("oci.tar", Published::Published);
    assert_eq!(server.pull(&registry, "alpha/app", "1"), digests(&image));
}
