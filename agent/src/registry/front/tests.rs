//! The front on loopback, before a registry that tells what it was asked.

use std::net::SocketAddr;
use std::sync::Arc;

use agent_api::events::{PULL_STEP, SERVED_STEP};
use agent_api::release::{Blob, Digest, Image};
use agent_api::site::Access;
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use reqwest::Client;
use rstest::rstest;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Asked, AskedKind, Front, RegistryStorage, mapped, token_of};
use crate::door::{Gate, body, testing};
use crate::events::Bus;
use crate::fixtures::release;
use crate::http;
use crate::pulls;

const LAYER: &[u8] = b"a layer";
const MANIFEST: &[u8] = br#"{"schemaVersion":2,"config":{},"layers":[]}"#;
const TOKEN: &str = "a-token-of-this-test";
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn the_image_is_named_as_it_was_asked_for_and_found_where_it_is() {
    let (by_digest, long) = (format!("example.org/a@{DIGEST}"), "a".repeat(300));
    let table = [
        ("library/busybox/manifests/1.36", "ns=docker.io", Some(("docker.io/library/busybox:1.36", true))),
        ("a/b/c/manifests/v1", "ns=example.org%3A5001", Some(("example.org:5001/a/b/c:v1", true))),
        (&format!("a/manifests/{DIGEST}"), "x=1&ns=example.org", Some((by_digest.as_str(), true))),
        (&format!("a/blobs/{DIGEST}"), "ns=example.org", Some((by_digest.as_str(), true))),
        ("own/manifests/1", "", Some(("127.0.0.1:5000/own:1", false))),
        ("own/manifests/1", "ns=box.site:5000", Some(("box.site:5000/own:1", false))),
        ("own/manifests/1", "ns=box.site", Some(("box.site/own:1", false))),
        ("a/tags/list", "ns=example.org", None),
        ("a/manifests/", "ns=example.org", None),
        ("a\n/manifests/1", "ns=example.org", None),
        ("a/manifests/1", "ns=example.org%0Ab", None),
        (&format!("{long}/manifests/1"), "", None),
    ];
    for (path, query, expected) in table {
        let asked = Asked::parse(&format!("/v2/{path}"), query, Some("box.site"));
        let found = asked.as_ref().map(|asked| (asked.image.as_str(), asked.mirrored));
        assert_eq!(found, expected, "{path} {query}");
        if let Some(asked) = asked.filter(|asked| asked.kind == AskedKind::Manifest) {
            let to = mapped(&format!("/v2/{path}"), query, Some("box.site"));
            let expected = format!("/v2/{}/manifests/", asked.repository);
            assert_eq!(to.is_some_and(|to| to.starts_with(&expected)), asked.mirrored, "{path} {query}");
        }
    }
}

#[test]
fn a_token_comes_as_bearer_or_as_a_password_and_an_empty_one_is_none() {
    for (authorization, token) in [
        ("Bearer abc", Some("abc")),
        ("bearer  abc ", Some("abc")),
        ("Basic YW55OmFiYw==", Some("abc")),
        ("Basic YW55Og==", None),
        ("Basic Og==", None),
        ("Bearer ", None),
        ("Bearer", None),
        ("Digest abc", None),
    ] {
        assert_eq!(token_of(authorization).as_deref(), token, "{authorization}");
    }
}

struct Fixture {
    dir: TempDir,
    address: SocketAddr,
    client: Client,
    bus: Bus,
    front: Arc<Front>,
    tasks: JoinSet<anyhow::Result<()>>,
}

/// `images`, and space for uploads.
fn fixture(images: &[&str], writable: Option<u64>) -> Fixture {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = tempfile::tempdir().expect("a folder");
    let digest = |bytes: &[u8]| Digest::of(bytes);
    let blobs: Vec<Blob> =
        [LAYER, MANIFEST].map(|bytes| Blob { digest: digest(bytes), size: bytes.len() as u64 }).to_vec();
    let image = |reference: &&str| Image {
        reference: (*reference).to_owned(),
        index: None,
        inner: Vec::new(),
        manifest: digest(MANIFEST),
        blobs: blobs.clone(),
    };
    let mut release = release();
    release.images = images.iter().map(image).collect();
    release.registry_writable_bytes = writable;
    let (bus, stop, mut tasks) = (Bus::in_memory(), CancellationToken::new(), JoinSet::new());
    let gate = Arc::new(Gate::new(&dir.path().join("access")));
    gate.set_site(&Access { token_sha256: Some(Digest::of(TOKEN).hex().to_owned()), ..Access::default() });
    let recorder = pulls::start(&mut tasks, &bus, &stop);
    let mut front = Front::new(&release, dir.path(), gate, recorder);
    front.storage = front.storage.map(|_| Arc::new(RegistryStorage::new(dir.path(), writable).greedy()));
    let front = Arc::new(front);
    fs_err::create_dir_all(front.store()).expect("a store");
    for (blob, bytes) in blobs.iter().zip([LAYER, MANIFEST]) {
        fs_err::write(front.store().join(blob.digest.hex()), bytes).expect("a blob");
    }
    let (tls, authority) = testing::tls();
    let listen = ["127.0.0.1:0".parse().expect("an address")];
    let address = http::start(&mut tasks, &listen, Arc::clone(&front), tls, &stop)[0];
    let authority = reqwest::Certificate::from_pem(authority.as_bytes()).expect("the authority");
    let client = Client::builder().no_proxy().tls_certs_only([authority]).build().expect("a client");
    Fixture { dir, address, client, bus, front, tasks }
}

impl Fixture {
    /// Starts what stands for `distribution`: it knows one image, takes everything, and tells what it was asked.
    fn start_registry(&mut self) {
        let socket = self.front.socket.clone();
        fs_err::create_dir_all(socket.parent().expect("a folder")).expect("made");
        let listener = UnixListener::bind(socket).expect("bound");
        let answer = |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| async move {
            let known = uri.path() == "/v2/" || uri.path().contains("/library/app/") || method == Method::PUT;
            let status = if known { StatusCode::OK } else { StatusCode::NOT_FOUND };
            let token = if headers.contains_key("authorization") { "with token" } else { "without token" };
            (status, format!("{method} {} {token} {}", uri, body.len()))
        };
        let router = Router::new().fallback(answer);
        self.tasks.spawn(async move { Ok(axum::serve(listener, router).await?) });
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        let answer = self.client.get(self.url(path)).send().await.expect("an answer");
        (answer.status(), answer.text().await.expect("text"))
    }

    fn told(&self, step: &str) -> Vec<String> {
        let (_, events) = self.bus.since(0);
        let of_step = events.iter().filter(|event| event.step == step);
        of_step.filter_map(|event| event.text("image").map(str::to_owned)).collect()
    }
}

const REGISTRY: &str = "foothold.dev/registry:3";

#[tokio::test]
async fn a_release_without_a_registry_has_nothing_and_records_what_was_asked_for() {
    let fixture = fixture(&[], None);
    let (status, body) = fixture.get("/v2/a/b/manifests/1?ns=example.org").await;
    assert_eq!(status, 404);
    assert!(body.contains("MANIFEST_UNKNOWN"), "{body}");
    assert_eq!(fixture.get("/v2/").await.0, 200);
    let push = fixture.client.post(fixture.url("/v2/a/blobs/uploads/")).send().await.expect("an answer");
    assert_eq!((push.status().as_u16(), push.headers()["allow"].as_bytes()), (405, &b"GET, HEAD"[..]));
    for (path, code) in [
        (format!("/v2/a/blobs/{DIGEST}"), "BLOB_UNKNOWN"),
        ("/v2/a/tags/list".to_owned(), "NAME_UNKNOWN"),
        ("/v1/search".to_owned(), "images are below `/v2/`"),
    ] {
        let (status, body) = fixture.get(&path).await;
        assert!(status == 404 && body.contains(code), "{path}: {body}");
    }
    assert_eq!(fixture.told(PULL_STEP), ["example.org/a/b:1"]);
    assert_eq!(fixture.bus.now().pulls[0].image, "example.org/a/b:1");
}

#[tokio::test]
async fn images_of_the_release_are_there_before_the_registry_is() {
    let fixture = fixture(&[REGISTRY, "docker.io/library/app:1"], None);
    let digest = Digest::of(MANIFEST).to_string();
    for path in ["library/app/manifests/1?ns=docker.io", &format!("docker.io/library/app/manifests/{digest}")] {
        let answer = fixture.client.get(fixture.url(&format!("/v2/{path}"))).send().await.expect("an answer");
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(answer.headers()["docker-content-digest"], digest.as_str());
        assert_eq!(answer.headers()["content-type"], "application/vnd.oci.image.manifest.v1+json");
        assert_eq!(answer.bytes().await.expect("bytes"), MANIFEST);
    }
    let url = fixture.url("/v2/library/app/manifests/1");
    let head = fixture.client.head(&url).send().await.expect("an answer");
    assert_eq!(head.headers()["content-length"], MANIFEST.len().to_string().as_str());
    let again = fixture.client.get(&url).header("if-none-match", format!("\"{digest}\"")).send().await;
    assert_eq!(again.expect("an answer").status(), 304);
    assert_eq!(fixture.told(SERVED_STEP), ["docker.io/library/app:1"]);
    fs_err::remove_file(fixture.front.store().join(digest.trim_start_matches("sha256:"))).expect("gone");
    assert_eq!(fixture.get("/v2/library/app/manifests/1").await.0, 500);
}

#[tokio::test]
async fn a_registry_that_starts_has_missed_nothing_and_is_asked_for_what_is_not_of_the_release() {
    let mut fixture = fixture(&[REGISTRY, "docker.io/library/app:1"], None);
    let (status, body) = fixture.get("/v2/library/app/manifests/2?ns=docker.io").await;
    assert_eq!(status, 503, "{body}");
    assert_eq!(fixture.told(PULL_STEP), Vec::<String>::new());
    fixture.start_registry();
    let (status, body) = fixture.get("/v2/library/app/manifests/2?ns=docker.io").await;
    assert_eq!((status.as_u16(), body.as_str()), (200, "GET /v2/docker.io/library/app/manifests/2 without token 0"));
    assert_eq!(fixture.get("/v2/library/other/manifests/1?ns=docker.io").await.0, 404);
    assert_eq!(fixture.told(SERVED_STEP), ["docker.io/library/app:2"]);
    assert_eq!(fixture.told(PULL_STEP), ["docker.io/library/other:1"]);
}

#[tokio::test]
async fn blobs_of_the_release_come_from_the_medium_and_only_where_they_belong() {
    let fixture = fixture(&[REGISTRY, "docker.io/library/app:1"], None);
    let digest = Digest::of(LAYER).to_string();
    for repository in ["library/app", "docker.io/library/app"] {
        let (status, body) = fixture.get(&format!("/v2/{repository}/blobs/{digest}")).await;
        assert_eq!((status.as_u16(), body.as_bytes()), (200, LAYER), "{repository}");
    }
    assert_eq!(fixture.get(&format!("/v2/library/app/blobs/{digest}?ns=docker.io")).await.0, 200);
    assert_eq!(fixture.get(&format!("/v2/library/none/blobs/{digest}")).await.0, 503, "the registry is asked");
}

#[rstest]
#[case::anonymous(None, 401)]
#[case::wrong(Some("wrong"), 401)]
#[case::right(Some(TOKEN), 200)]
#[tokio::test]
async fn writing_needs_the_token(#[case] password: Option<&str>, #[case] status: u16) {
    let mut fixture = fixture(&[REGISTRY], Some(1 << 20));
    fixture.start_registry();
    for scheme in ["http", "https"] {
        let url = format!("{scheme}://{}/v2/org/app/manifests/1", fixture.address);
        let mut request = fixture.client.put(url).body("a manifest");
        if let Some(password) = password {
            request = request.basic_auth("anybody", Some(password));
        }
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), status);
        assert_eq!(answer.headers().contains_key("www-authenticate"), status == 401);
        let body = answer.text().await.expect("text");
        assert!(status != 200 || body == "PUT /v2/org/app/manifests/1 without token 10", "{body}");
    }
}

/// Podman, Skopeo and Buildah look for the challenge here, and `login` tries the token here.
#[rstest]
#[case::nobody("https", None, 200, true)]
#[case::an_empty_login("https", Some(""), 200, true)]
#[case::wrong("https", Some("wrong"), 401, true)]
#[case::right("https", Some(TOKEN), 200, false)]
#[case::right_from_the_box("http", Some(TOKEN), 200, false)]
#[tokio::test]
async fn a_login_is_asked_for_and_tried_at_the_base_and_nobody_needs_one(
    #[case] scheme: &str,
    #[case] password: Option<&str>,
    #[case] status: u16,
    #[case] asks: bool,
) {
    let fixture = fixture(&[REGISTRY], Some(1 << 20));
    let mut request = fixture.client.get(format!("{scheme}://{}/v2/", fixture.address));
    if let Some(password) = password {
        request = request.basic_auth("", Some(password));
    }
    let answer = request.send().await.expect("an answer, also before the registry is there");
    assert_eq!((answer.status().as_u16(), answer.headers().contains_key("www-authenticate")), (status, asks));
    assert_eq!(answer.headers()["docker-distribution-api-version"], "registry/2.0");
}

/// Docker and crane send a login only where the first answer is a 401.
#[tokio::test]
async fn docker_gets_a_token_with_a_login_and_without_one() {
    let mut fixture = fixture(&[REGISTRY, "docker.io/library/app:1"], Some(1 << 20));
    fixture.start_registry();
    let of = |path: &str| format!("https://{}{path}", fixture.address);
    let get = |url: String| fixture.client.get(url).header("user-agent", "docker/27.0 go/go1.22");
    let base = get(of("/v2/")).send().await.expect("an answer");
    let challenge = format!("Bearer realm=\"{}\",service=\"foothold\"", of("/token"));
    assert_eq!((base.status().as_u16(), base.headers()["www-authenticate"].as_bytes()), (401, challenge.as_bytes()));
    let url = of("/token?service=foothold&scope=repository:org/app:push");
    let wrong = get(url.clone()).basic_auth("any", Some("wrong")).send().await.expect("an answer");
    assert_eq!(wrong.status(), 401);
    for (password, status) in [(None, 401), (Some(TOKEN), 200)] {
        let asked = password.iter().fold(get(url.clone()), |asked, it| asked.basic_auth("any", Some(it)));
        let told: serde_json::Value = asked.send().await.expect("an answer").json().await.expect("JSON");
        let token = told["token"].as_str().expect("a token").to_owned();
        let pulled = get(of("/v2/library/app/manifests/1")).bearer_auth(&token).send().await.expect("an answer");
        assert_eq!(pulled.status(), 200, "whoever asks pulls");
        let pushed = fixture.client.put(of("/v2/org/app/manifests/1")).bearer_auth(&token).body("a manifest");
        assert_eq!(pushed.send().await.expect("an answer").status(), status);
    }
}

#[tokio::test]
async fn an_upload_that_outgrows_its_share_is_told_so() {
    let mut fixture = fixture(&[REGISTRY], Some(1000));
    fixture.start_registry();
    fs_err::create_dir_all(fixture.dir.path().join("var/lib/foothold/registry/upper")).expect("a folder");
    let (sender, pieces) = body::pieces();
    for _ in 0..4 {
        sender.try_send(Bytes::from(vec![b'x'; 500])).expect("room for a few");
    }
    drop(sender);
    let request = fixture.client.patch(fixture.url("/v2/org/app/blobs/uploads/1"));
    let request = request.bearer_auth(fixture.front.own_token()).body(reqwest::Body::wrap(pieces));
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), 507);
    assert!(answer.text().await.expect("text").contains("services.registry.writable"));
}

#[tokio::test]
async fn a_method_that_nobody_reads_with_is_taken_for_writing() {
    let mut fixture = fixture(&[REGISTRY], Some(1 << 20));
    fixture.start_registry();
    let answer = fixture.client.request(Method::TRACE, fixture.url("/v2/library/app/manifests/2")).send().await;
    assert_eq!(answer.expect("an answer").status(), 401);
}

#[tokio::test]
async fn what_the_release_brought_stays_as_it_is() {
    let mut fixture = fixture(&[REGISTRY, "docker.io/library/app:1"], Some(1 << 20));
    fixture.start_registry();
    let layer = Digest::of(LAYER).to_string();
    let table = [
        (Method::PUT, "library/app/manifests/1".to_owned(), 403),
        (Method::PUT, "library/app/manifests/2".to_owned(), 200),
        (Method::DELETE, "docker.io/library/app/manifests/1".to_owned(), 403),
        (Method::DELETE, format!("library/app/blobs/{layer}"), 403),
        (Method::DELETE, format!("org/other/blobs/{layer}"), 404),
    ];
    for (method, path, status) in table {
        let request = fixture.client.request(method.clone(), fixture.url(&format!("/v2/{path}")));
        let answer = request.bearer_auth(TOKEN).send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{method} {path}");
    }
}

#[tokio::test]
async fn the_agent_itself_writes_and_nobody_does_without_space_or_into_a_read_only_registry() {
    let mut fixture = fixture(&[REGISTRY], Some(1000));
    fixture.start_registry();
    fs_err::create_dir_all(fixture.dir.path().join("var/lib/foothold/registry/upper")).expect("a folder");
    let put = |fixture: &Fixture, length: usize| {
        let request = fixture.client.put(fixture.url("/v2/org/app/blobs/uploads/1")).body("x".repeat(length));
        request.bearer_auth(fixture.front.own_token()).send()
    };
    assert_eq!(put(&fixture, 900).await.expect("an answer").status(), 200);
    let full = put(&fixture, 900).await.expect("an answer");
    assert_eq!(full.status(), 507);
    assert!(full.text().await.expect("text").contains("services.registry.writable"));
    let read_only = self::fixture(&[REGISTRY], None);
    assert_eq!(put(&read_only, 1).await.expect("an answer").status(), 405);
}
