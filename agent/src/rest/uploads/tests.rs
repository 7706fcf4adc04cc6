//! The real server over TLS on loopback, asked as Akraino's clients ask it.

use std::path::Path;
use std::sync::Arc;

use agent_api::bpa::{Image, ImageList, Kind, Published, Storage};
use agent_api::rest::Problem;
use agent_api::site::{self, Access, Site};
use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair};
use reqwest::multipart::{Form, Part};
use reqwest::{Client, Identity, Method, RequestBuilder, StatusCode};
use rstest::rstest;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Options, start};
use crate::content::Source;
use crate::door::{Gate, body, own_certificate};
use crate::uploads::{UploadKey, UploadLimits, Uploads};

const TOKEN: &str = "a-token-of-this-test";

/// A running server on a free port.
pub(super) struct Fixture {
    port: u16,
    authority: String,
    client: Client,
    uploads: Uploads,
    site: watch::Sender<Option<Arc<Site>>>,
    dir: TempDir,
    _tasks: JoinSet<anyhow::Result<()>>,
}

/// Shares that any disk has: these tests are about other things.
fn limits() -> UploadLimits {
    let percent = Kind::ALL.map(|kind| (kind, 100)).into();
    UploadLimits { percent, reserve_percent: 0, images: 1000 }
}

impl Fixture {
    fn start() -> Self {
        Self::with(Site::default())
    }

    fn with(mut site: Site) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().expect("a folder");
        site.access.token_sha256 = Some(hex::encode(Sha256::digest(TOKEN)));
        let gate = Arc::new(Gate::new(&dir.path().join("access")));
        gate.set_site(&site.access);
        let uploads = Uploads::open(&dir.path().join("uploads"), limits()).expect("a store");
        let (certificate, authority) = own_certificate(&dir.path().join("web")).expect("a certificate");
        let site = watch::Sender::new(Some(Arc::new(site)));
        let options = Options {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            gate,
            site: site.subscribe(),
            certificate,
            uploads: uploads.clone(),
            limits: limits(),
        };
        let mut tasks = JoinSet::new();
        let addresses = start(&mut tasks, options, &CancellationToken::new()).expect("started");
        let client = client(&authority, None);
        Self { port: addresses[0].port(), authority, client, uploads, site, dir, _tasks: tasks }
    }

    fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    fn ask(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method");
        self.client.request(method, self.url(path)).bearer_auth(TOKEN)
    }

    /// POST or PUT as the interface has it.
    fn announce(&self, method: &str, path: &str, metadata: &Value) -> RequestBuilder {
        let form = Form::new().text("metadata", metadata.to_string()).part("file", Part::bytes(vec![0]).file_name("f"));
        self.ask(method, path).multipart(form)
    }

    async fn image(&self, path: &str) -> Image {
        let answer = self.ask("get", path).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        answer.json().await.expect("an image")
    }

    /// Announces and sends an image.
    async fn send(&self, collection: &str, name: &str, owner: &str, bytes: Vec<u8>) -> Image {
        let metadata = json!({"owner": owner, "image_name": name, "image_length": bytes.len()});
        let created = self.announce("post", collection, &metadata).send().await.expect("an answer");
        assert_eq!(created.status(), StatusCode::CREATED);
        let path = format!("{collection}/{name}");
        let sent = self.ask("patch", &path).header("Upload-Offset", 0).body(bytes).send().await.expect("an answer");
        assert_eq!(sent.status(), StatusCode::NO_CONTENT);
        self.image(&path).await
    }
}

fn client(authority: &str, identity: Option<Identity>) -> Client {
    let authority = reqwest::Certificate::from_pem(authority.as_bytes()).expect("the authority");
    let builder = Client::builder().tls_certs_only([authority]).no_proxy();
    let builder = identity.into_iter().fold(builder, reqwest::ClientBuilder::identity);
    builder.build().expect("a client")
}

fn metadata(name: &str, length: u64) -> Value {
    json!({
        "owner": "alpha", "cluster_name": "beta", "type": "container", "image_name": name, "image_offset": 0,
        "image_length": length, "upload_complete": false,
        "description": {"image_records": [{"image_record_name": "iuysdi", "repo": "icn", "tag": "2", "extra": "kept"}]},
    })
}

const KINDS: [&str; 3] = ["binary_images", "container_images", "os_images"];

fn collection(kind: &str) -> String {
    format!("/v1/baremetalcluster/alpha/beta/{kind}")
}

/// What a row of the table sends.
enum Send {
    Nothing,
    Form(Form),
    Bytes(Option<&'static str>, &'static [u8]),
    Chunked(&'static str),
}

fn form(metadata: &Value, file: bool) -> Send {
    let form = Form::new().text("metadata", metadata.to_string());
    Send::Form(if file { form.text("file", "x") } else { form })
}

fn without(mut metadata: Value, key: &str) -> Value {
    metadata.as_object_mut().expect("an object").remove(key);
    metadata
}

/// One row: what is asked, the status, the old status, the text.
type Row = (&'static str, &'static str, Send, u16, u16, &'static str);

/// The rows of the table, in an order that leads an image through its life. `new` is announced with 10 bytes.
fn rows() -> Vec<Row> {
    let new = || metadata("new", 10);
    let text = |text: &str| Send::Form(Form::new().text("metadata", text.to_owned()).text("file", "x"));
    let mut rows = announcing("post", "", "POST");
    rows.push(("post", "", form(&metadata("new", 0), true), 400, 400, "Improper upload length"));
    rows.push(("post", "", form(&without(new(), "image_length"), true), 400, 400, "Improper upload length"));
    rows.push(("post", "", form(&metadata("../new", 10), true), 400, 400, "*is not a name"));
    rows.push(("get", "/new", Send::Nothing, 404, 500, "Image doesn't exist"));
    rows.push(("put", "/new", form(&new(), true), 404, 500, "Update Error - Image doesn't exist"));
    rows.push(("patch", "/new", Send::Bytes(Some("0"), b"0123456789"), 404, 500, "Image doesn't exist"));
    rows.push(("delete", "/new", Send::Nothing, 404, 500, "Image doesn't exist"));
    rows.push(("post", "", form(&new(), true), 201, 201, "{"));
    rows.push(("post", "", form(&new(), true), 409, 500, "Image already exists"));
    rows.extend(announcing("put", "/new", "PUT"));
    rows.push(("put", "/new", text(r#"{"owner":"alpha","image_name":"new"}"#), 201, 201, "{"));
    rows.push(("patch", "/new", Send::Bytes(None, b"0123456789"), 400, 400, ""));
    rows.push(("patch", "/new", Send::Bytes(Some("x"), b"0123456789"), 400, 400, ""));
    rows.push(("patch", "/new", Send::Bytes(Some("3"), b"0123456"), 409, 409, "Expected Offset 0, actual offset 3"));
    rows.push(("patch", "/new", Send::Bytes(Some("-1"), b"0"), 409, 409, "Expected Offset 0, actual offset -1"));
    let short = "Content length doesn't match upload length. Expected content length 10 got 4";
    rows.push(("patch", "/new", Send::Bytes(Some("0"), b"0123"), 400, 400, short));
    let long = "Content length doesn't match upload length. Expected content length 10 got 12";
    rows.push(("patch", "/new", Send::Bytes(Some("0"), b"0123456789ab"), 400, 400, long));
    rows.push(("patch", "/new", Send::Chunked("0"), 500, 500, "unknown content length"));
    rows.push(("get", "/new", Send::Nothing, 200, 200, "{"));
    rows.push(("patch", "/new", Send::Bytes(Some("0"), b"0123456789"), 204, 204, ""));
    rows.push(("patch", "/new", Send::Bytes(Some("10"), b""), 422, 422, "Upload already completed"));
    rows.push(("put", "/new", form(&metadata("new", 11), true), 409, 409, "*length"));
    rows.push(("get", "", Send::Nothing, 200, 200, "{"));
    rows.push(("get", "?limit=x", Send::Nothing, 400, 400, "*"));
    rows.push(("delete", "/new", Send::Nothing, 204, 204, ""));
    rows.push(("get", "/new", Send::Nothing, 404, 500, "Image doesn't exist"));
    rows
}

/// What POST and PUT refuse alike.
fn announcing(method: &'static str, path: &'static str, word: &'static str) -> Vec<Row> {
    let new = || metadata("new", 10);
    let text = |text: &str| Send::Form(Form::new().text("metadata", text.to_owned()).text("file", "x"));
    let (name, owner) = match word {
        "POST" => ("Missing name in POST request", "Missing Owner in POST request"),
        _ => ("Missing name in PUT request", "Missing Owner in PUT request"),
    };
    let other = json!({"owner": "gamma", "image_name": "new", "image_length": 10});
    vec![
        (method, path, Send::Bytes(None, b"no form"), 422, 422, "*"),
        (method, path, text("{\"owner\":"), 422, 422, "*"),
        (method, path, text("[1]"), 422, 422, "*"),
        (method, path, text(""), 400, 400, "Empty body"),
        (method, path, Send::Form(Form::new().text("file", "x")), 400, 400, "Empty body"),
        (method, path, form(&without(new(), "image_name"), true), 400, 400, name),
        (method, path, form(&without(new(), "owner"), true), 400, 400, owner),
        (method, path, form(&new(), false), 422, 422, "Unable to process file"),
        (method, path, form(&other, true), 400, 400, "*`owner` is another one than in the path"),
        (
            method,
            path,
            text(r#"{"owner":"alpha","image_name":"new","image_length":9,"sha256":"z"}"#),
            400,
            400,
            "*sha256",
        ),
    ]
}

#[rstest]
#[tokio::test]
async fn every_row_of_the_table(#[values(false, true)] compat: bool, #[values(0, 1, 2)] kind: usize) {
    let uploads = site::Uploads { compat, ..site::Uploads::default() };
    let fixture = Fixture::with(Site { uploads, ..Site::default() });
    for (number, (method, path, send, status, old, text)) in rows().into_iter().enumerate() {
        let request = fixture.ask(method, &format!("{}{path}", collection(KINDS[kind])));
        let request = match send {
            Send::Nothing => request,
            Send::Form(form) => request.multipart(form),
            Send::Bytes(None, bytes) => request.body(bytes),
            Send::Bytes(Some(offset), bytes) => request.header("Upload-Offset", offset).body(bytes),
            Send::Chunked(offset) => {
                request.version(reqwest::Version::HTTP_11).header("Upload-Offset", offset).body(chunked().await)
            }
        };
        let answer = request.send().await.expect("an answer");
        let row = format!("row {number}: {method} {path}");
        assert_eq!(answer.status().as_u16(), if compat { old } else { status }, "{row}");
        let kind = answer.headers().get("content-type").map(|kind| kind.to_str().expect("text").to_owned());
        let offset = answer.headers().get("upload-offset").map(|offset| offset.to_str().expect("text").to_owned());
        let body = answer.text().await.expect("a body");
        match text {
            "" => assert_eq!(body, "", "{row}"),
            "{" => assert_eq!(kind.as_deref(), Some("application/json"), "{row}"),
            _ => assert_eq!(kind.as_deref(), Some("text/plain; charset=utf-8"), "{row}"),
        }
        if let Some(part) = text.strip_prefix('*') {
            assert!(body.contains(part) && !body.is_empty(), "{row}: {body}");
        } else if !matches!(text, "" | "{") {
            assert_eq!(body, text, "{row}");
        }
        if status == 204 && method == "patch" {
            assert_eq!(offset.as_deref(), Some("10"), "{row}");
        }
    }
}

/// A body of ten bytes whose length is not known before.
async fn chunked() -> reqwest::Body {
    let (sender, body) = body::pieces();
    sender.send("0123456789".into()).await.expect("room");
    reqwest::Body::wrap(body)
}

#[tokio::test]
async fn nothing_anonymous_reads_or_writes() {
    let fixture = Fixture::start();
    let image = format!("{}/a", collection("os_images"));
    let all = [
        ("post", collection("os_images")),
        ("get", collection("os_images")),
        ("get", image.clone()),
        ("head", image.clone()),
        ("put", image.clone()),
        ("patch", image.clone()),
        ("delete", image),
        ("get", "/v1/storage".to_owned()),
        ("get", "/openapi.json".to_owned()),
        ("get", "/elsewhere".to_owned()),
    ];
    for (method, path) in all {
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method");
        for token in [None, Some("wrong")] {
            let request = fixture.client.request(method.clone(), fixture.url(&path));
            let request = token.into_iter().fold(request, RequestBuilder::bearer_auth);
            let answer = request.send().await.expect("an answer");
            // After ten guesses the door stays closed.
            let closed = answer.status() == StatusCode::TOO_MANY_REQUESTS;
            assert!(closed || answer.status() == StatusCode::UNAUTHORIZED, "{method} {path}");
            if method != Method::HEAD {
                answer.json::<Problem>().await.expect("a problem in JSON");
            }
        }
    }
    assert_eq!(fixture.uploads.all().len(), 0);
}

#[tokio::test]
async fn what_is_told_about_an_image() {
    let fixture = Fixture::start();
    let bytes = vec![7; 100_000];
    let digest = hex::encode(Sha256::digest(&bytes));
    let image = fixture.send(&collection("os_images"), "node.raw", "alpha", bytes).await;
    assert_eq!((image.image_offset, image.image_length, image.upload_complete), (100_000, 100_000, true));
    assert_eq!(image.published, Published::Published);
    assert_eq!(image.sha256.as_deref(), Some(digest.as_str()));
    assert_eq!(image.url.as_deref(), Some("http://127.0.0.1:6180/images/alpha/beta/node.raw"));
    assert_eq!(fixture.uploads.find("images/node.raw").expect("served").digest.hex(), digest);
    let path = format!("{}/node.raw", collection("os_images"));
    let head = fixture.ask("head", &path).send().await.expect("an answer");
    assert_eq!(head.status(), StatusCode::OK);
    assert_eq!(head.headers()["upload-offset"], "100000");
    assert_eq!(head.headers()["upload-length"], "100000");
    assert_eq!(head.headers()["etag"], format!("\"sha256:{digest}\""));
    let missing = fixture.ask("head", &format!("{path}x")).send().await.expect("an answer");
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_description_comes_back_as_it_was_sent_and_put_changes_only_that() {
    let fixture = Fixture::start();
    let path = format!("{}/a", collection("container_images"));
    let announced = metadata("a", 10);
    let created =
        fixture.announce("post", &collection("container_images"), &announced).send().await.expect("an answer");
    let created: Value = created.json().await.expect("JSON");
    for (key, value) in announced.as_object().expect("an object") {
        assert_eq!(&created[key], value, "{key}");
    }
    let sent =
        fixture.ask("patch", &path).header("Upload-Offset", 0).body("0123456789").send().await.expect("an answer");
    assert_eq!(sent.status(), StatusCode::NO_CONTENT);
    let mut changed = announced;
    changed["type"] = json!("other");
    let put = fixture.announce("put", &path, &changed).send().await.expect("an answer");
    assert_eq!(put.status(), StatusCode::CREATED);
    let image = fixture.image(&path).await;
    assert_eq!((image.kind.as_str(), image.image_offset, image.upload_complete), ("other", 10, true));
}

#[tokio::test]
async fn the_list_is_paged_and_of_one_cluster() {
    let fixture = Fixture::start();
    for (owner, cluster, name) in [
        ("alpha", "beta", "c"),
        ("alpha", "beta", "a"),
        ("alpha", "beta", "b"),
        ("alpha", "zeta", "a"),
        ("gamma", "beta", "a"),
    ] {
        let path = format!("/v1/baremetalcluster/{owner}/{cluster}/os_images");
        let metadata = json!({"owner": owner, "image_name": name, "image_length": 1});
        let created = fixture.announce("post", &path, &metadata).send().await.expect("an answer");
        assert_eq!(created.status(), StatusCode::CREATED, "{path}");
    }
    let names = |list: &ImageList| list.images.iter().map(|image| image.image_name.clone()).collect::<Vec<_>>();
    let page = async |query: &str| -> ImageList {
        let path = format!("{}{query}", collection("os_images"));
        fixture.ask("get", &path).send().await.expect("an answer").json().await.expect("a list")
    };
    let first = page("?limit=2").await;
    assert_eq!((names(&first), first.next.as_deref()), (vec!["a".to_owned(), "b".to_owned()], Some("b")));
    let second = page("?limit=2&after=b").await;
    assert_eq!((names(&second), second.next), (vec!["c".to_owned()], None));
    assert_eq!(page("").await.images.len(), 3);
    let storage: Storage =
        fixture.ask("get", "/v1/storage").send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!((storage.kinds[&Kind::OsImages].images, storage.kinds[&Kind::OsImages].used_bytes), (5, 5));
}

#[tokio::test]
async fn a_client_certificate_acts_for_its_owner_only() {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("an authority").pem();
    let issuer = Issuer::from_ca_cert_pem(&authority, key).expect("an issuer");
    let identity = |kind: DnType, name: &str| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(kind, name);
        let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem();
        Identity::from_pem((key.serialize_pem() + &certificate).as_bytes()).expect("an identity")
    };
    let access = Access { client_ca: Some(authority.clone()), ..Access::default() };
    let fixture = Fixture::with(Site { access, ..Site::default() });
    let status = async |identity: Identity, owner: &str| {
        let path = format!("/v1/baremetalcluster/{owner}/beta/os_images");
        client(&fixture.authority, Some(identity))
            .get(fixture.url(&path))
            .send()
            .await
            .map(|answer| answer.status().as_u16())
    };
    let alpha = async || status(identity(DnType::OrganizationName, "alpha"), "alpha").await.ok();
    wait_until("Site's authority is trusted", async || alpha().await == Some(200)).await;
    for (kind, name, alpha, gamma) in [
        (DnType::OrganizationName, "alpha", 200, 403),
        (DnType::CommonName, "gamma", 403, 200),
        (DnType::OrganizationName, "foothold:admin", 200, 200),
        (DnType::CountryName, "XX", 403, 403),
    ] {
        assert_eq!(status(identity(kind.clone(), name), "alpha").await.expect("an answer"), alpha, "{name}");
        assert_eq!(status(identity(kind, name), "gamma").await.expect("an answer"), gamma, "{name}");
    }
    // Of another authority: no connection at all.
    let stranger = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::default().self_signed(&stranger).expect("a certificate").pem();
    let stranger = Identity::from_pem((stranger.serialize_pem() + &certificate).as_bytes()).expect("an identity");
    assert!(status(stranger, "alpha").await.is_err());
    // The authority goes with Site, for connections and sessions that are there already, too.
    let kept = client(&fixture.authority, Some(identity(DnType::OrganizationName, "alpha")));
    let ask = async || kept.get(fixture.url("/v1/baremetalcluster/alpha/beta/os_images")).send().await;
    assert_eq!(ask().await.expect("an answer").status(), StatusCode::OK);
    fixture.site.send_replace(Some(Arc::default()));
    wait_until("the authority is forgotten", async || alpha().await != Some(200)).await;
    assert_eq!(ask().await.expect("an answer").status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn bytes_that_are_not_those_of_the_sha256_are_not_published() {
    let fixture = Fixture::start();
    let path = format!("{}/a", collection("binary_images"));
    let metadata =
        json!({"owner": "alpha", "image_name": "a", "image_length": 5, "sha256": hex::encode(Sha256::digest("right"))});
    fixture.announce("post", &collection("binary_images"), &metadata).send().await.expect("an answer");
    let send = async |bytes: &'static str| {
        fixture.ask("patch", &path).header("Upload-Offset", 0).body(bytes).send().await.expect("an answer")
    };
    let wrong = send("wrong").await;
    assert_eq!(wrong.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(wrong.text().await.expect("text").contains(&hex::encode(Sha256::digest("wrong"))));
    let image = fixture.image(&path).await;
    assert_eq!((image.image_offset, image.published, image.url), (0, Published::Incomplete, None));
    assert!(fixture.uploads.find("files/a").is_none());
    assert_eq!(send("right").await.status(), StatusCode::NO_CONTENT);
    assert!(fixture.uploads.find("files/a").is_some());
}

#[tokio::test]
async fn what_is_in_use_is_not_deleted_and_its_users_are_named() {
    let fixture = Fixture::start();
    fixture.send(&collection("os_images"), "a", "alpha", vec![1; 10]).await;
    let path = format!("{}/a", collection("os_images"));
    let hold = fixture.uploads.hold("images/a", "BareMetalHost default/n1").expect("a hold");
    let refused = fixture.ask("delete", &path).send().await.expect("an answer");
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert_eq!(refused.text().await.expect("text"), "in use by BareMetalHost default/n1");
    drop(hold);
    assert_eq!(fixture.ask("delete", &path).send().await.expect("an answer").status(), StatusCode::NO_CONTENT);
}

/// A PATCH by hand, so that it can be cut anywhere.
async fn raw_patch(
    fixture: &Fixture,
    path: &str,
    offset: usize,
    length: usize,
) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(rustls::pki_types::CertificateDer::from_pem_slice(fixture.authority.as_bytes()).expect("PEM"))
        .expect("added");
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", fixture.port)).await.expect("connected");
    let name = "localhost".try_into().expect("a name");
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS");
    let head = format!(
        "PATCH {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nUpload-Offset: {offset}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream
}

#[tokio::test]
async fn one_upload_at_a_time_and_a_cut_one_keeps_what_came() {
    let fixture = Fixture::start();
    let whole: Vec<u8> = (0..1_000_000_u32).map(|at| u8::try_from(at % 253).unwrap_or(0)).collect();
    let path = format!("{}/a", collection("os_images"));
    let metadata = json!({"owner": "alpha", "image_name": "a", "image_length": whole.len()});
    fixture.announce("post", &collection("os_images"), &metadata).send().await.expect("an answer");
    let mut stream = raw_patch(&fixture, &path, 0, whole.len()).await;
    stream.write_all(&whole[..400_000]).await.expect("sent");
    stream.flush().await.expect("sent");
    let second = async || {
        fixture.ask("patch", &path).header("Upload-Offset", 0).body(whole.clone()).send().await.expect("an answer")
    };
    wait_until("the first upload has begun", async || {
        matches!(
            fixture.uploads.begin(
                &UploadKey::new(Kind::OsImages, "alpha", "beta", "a").expect("a name"),
                0,
                Some(1_000_000)
            ),
            Err(crate::uploads::UploadError::Busy)
        )
    })
    .await;
    let refused = second().await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert_eq!(refused.text().await.expect("text"), "Another upload of this image is in progress");
    drop(stream);
    wait_until("the cut is noticed", async || fixture.image(&path).await.image_offset > 0).await;
    let offset = usize::try_from(fixture.image(&path).await.image_offset).expect("a size");
    assert!(offset <= 400_000 && offset > 300_000, "{offset}");
    let rest = fixture.ask("patch", &path).header("Upload-Offset", offset).body(whole[offset..].to_vec());
    let done = rest.send().await.expect("an answer");
    assert_eq!(
        (done.status(), &done.headers()["upload-offset"]),
        (StatusCode::NO_CONTENT, &"1000000".parse().expect("a value"))
    );
    assert_eq!(fixture.image(&path).await.sha256, Some(hex::encode(Sha256::digest(&whole))));
}

async fn wait_until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if is().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("waited 5 s: {what}");
}

#[tokio::test]
async fn a_refused_upload_is_told_why_whatever_it_still_sends() {
    let fixture = Fixture::start();
    let mut stream = raw_patch(&fixture, &format!("{}/none", collection("os_images")), 0, 600_000).await;
    stream.write_all(&vec![0; 600_000]).await.expect("sent");
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 404") && answer.ends_with("Image doesn't exist"), "{answer}");
}

#[tokio::test]
async fn names_do_not_leave_the_store() {
    let fixture = Fixture::start();
    let before = names_below(fixture.dir.path());
    for name in ["..%2f..%2fx", "%2e%2e", ".x", "a%00b", "a%0ab", "x%2fy", "%ff", "a%5cb", "-x"] {
        for path in
            [format!("{}/{name}", collection("os_images")), format!("/v1/baremetalcluster/{name}/beta/os_images/a")]
        {
            for method in ["get", "put", "patch", "delete"] {
                let request = match method {
                    "put" => fixture.announce(method, &path, &json!({"owner": name, "image_name": "a"})),
                    _ => fixture.ask(method, &path).header("Upload-Offset", 0),
                };
                let status = request.send().await.expect("an answer").status();
                assert!(status.is_client_error(), "{method} {path}: {status}");
            }
        }
    }
    assert_eq!(names_below(fixture.dir.path()), before);
}

fn names_below(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs_err::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        names.push(path.display().to_string());
        if path.is_dir() {
            names.extend(names_below(&path));
        }
    }
    names.sort();
    names
}

#[tokio::test]
async fn the_document_is_served() {
    let fixture = Fixture::start();
    let document: Value =
        fixture.ask("get", "/openapi.json").send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(document, agent_api::bpa::openapi());
}
