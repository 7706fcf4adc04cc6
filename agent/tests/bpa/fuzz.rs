//! Requests by the list of routes, sound ones and spoilt ones, and plain noise, at the real server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use agent_api::bpa::Kind;
use agent_api::bpa::routes::Operation;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::multipart::Form;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::server::{Server, TOKEN};

const WORKERS: u64 = 16;
/// One in so many requests is noise on a connection of its own.
const NOISE: u32 = 500;
/// In place of a status: the connection was closed before the request was read.
const LOST: u16 = 0;
/// Names that are ones.
const NAMES: [&str; 6] = ["a", "b.deb", "node.qcow2", "x-1_2~3+4", "c.tar", "d"];
const OWNERS: [&str; 2] = ["alpha", "gamma"];
/// Names that are none, as they stand in a path.
const SPOILT: [&str; 16] = [
    "%2e%2e",
    "..%2f..%2fetc%2fpasswd",
    ".hidden",
    "a%00b",
    "%ff%fe",
    "a%5cb",
    "%0d%0aX:%20y",
    "%F0%9F%92%BE",
    "a%20b",
    "-",
    "~",
    "%25",
    "a.sha256",
    "a.md5sum",
    "*",
    "%24%28id%29",
];

/// What one worker knows.
struct Worker {
    random: StdRng,
    server: Arc<Server>,
    statuses: BTreeMap<(String, u16), u64>,
}

/// A path, and whether each part of it reaches its route.
struct Target {
    path: String,
    owner: &'static str,
    name: &'static str,
    known: bool,
}

impl Worker {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())]
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.random.random_range(0..n) == 0
    }

    fn target(&mut self, operation: Operation) -> Target {
        let kind = self.pick(&Kind::ALL);
        let (owner, name) = (self.pick(&OWNERS), self.pick(&NAMES));
        let spoil =
            |worker: &mut Self, sound: &'static str| if worker.one_in(20) { worker.pick(&SPOILT) } else { sound };
        let (in_path, cluster, image) = (spoil(self, owner), spoil(self, "beta"), spoil(self, name));
        let path = operation.path(kind).replace("{owner}", in_path).replace("{clustername}", cluster);
        let mut path = path.replace("{imgname}", image);
        // `%ff` is no text: the router refuses it before any route. `%2e%2e` the client takes away itself.
        let mut known = !path.contains("%ff") && !path.contains("%2e%2e");
        if self.one_in(100) {
            path = path.replace("images", self.pick(&["image", "images/", "images//", "IMAGES"]));
            known = false;
        }
        if operation == Operation::List && self.one_in(2) {
            path += self.pick(&[
                "?limit=2",
                "?limit=0",
                "?after=b",
                "?limit=-1",
                "?limit=99999999999999999999",
                "?x=y",
                "?after=%ff",
            ]);
        }
        Target { path, owner, name, known }
    }

    /// Metadata as the schema has it, with something spoilt now and then.
    fn metadata(&mut self, target: &Target) -> String {
        let length = self.random.random_range(1..2000_u64);
        let mut metadata = json!({
            "owner": target.owner, "cluster_name": "beta", "type": "t", "image_name": target.name, "image_offset": 0,
            "image_length": length, "upload_complete": false,
            "description": {"image_records": [{"image_record_name": "r", "repo": "icn", "tag": "2"}]},
        });
        if self.one_in(4) {
            metadata["sha256"] = json!("0".repeat(64));
        }
        let keys: Vec<String> = metadata.as_object().expect("an object").keys().cloned().collect();
        if self.one_in(3) {
            let key = keys[self.random.random_range(0..keys.len())].clone();
            let odd = [
                Value::Null,
                json!(-1),
                json!(0),
                json!(1.5),
                json!(i64::MAX),
                json!(u64::MAX),
                json!(""),
                json!("../../x"),
                json!("a\u{0}b"),
                json!([]),
                json!({}),
                json!([[[[]]]]),
                json!(true),
                json!("x".repeat(5000)),
                json!({"image_records": [{"repo": 1}]}),
            ];
            metadata[key] = odd[self.random.random_range(0..odd.len())].clone();
        }
        let mut text = metadata.to_string();
        if self.one_in(20) {
            text.truncate(self.random.random_range(0..text.len()));
        }
        if self.one_in(200) {
            text = "[".repeat(self.random.random_range(0..50_000));
        }
        text
    }

    async fn request(&mut self) {
        let operation = self.pick(&Operation::ALL);
        let target = self.target(operation);
        let mut request = self.server.ask(&operation.method().to_uppercase(), &target.path);
        match operation {
            Operation::Create | Operation::Update if self.one_in(10) => {
                let bytes: Vec<u8> = (0..self.random.random_range(0..500)).map(|_| self.random.random()).collect();
                request = request
                    .header(
                        "Content-Type",
                        self.pick(&["multipart/form-data; boundary=b", "multipart/form-data", "text/plain", "a"]),
                    )
                    .body(bytes);
            }
            Operation::Create | Operation::Update => {
                let mut form = Form::new().text("metadata", self.metadata(&target));
                if !self.one_in(20) {
                    form = form.text("file", "x");
                }
                request = request.multipart(form);
            }
            Operation::Upload => request = self.upload(request, &target).await,
            Operation::List
            | Operation::Get
            | Operation::Head
            | Operation::Delete
            | Operation::Storage
            | Operation::Document => {}
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            // Headers that no client library sends.
            Err(error) if error.is_builder() => return,
            // A kept connection that the server closed behind a body it did not want; it tells panics in its log.
            Err(error) if error.is_request() && !error.is_connect() => {
                *self.statuses.entry((format!("{operation:?}"), LOST)).or_default() += 1;
                return;
            }
            Err(error) => panic!("{operation:?} {}: {error:?}", target.path),
        };
        let status = answer.status().as_u16();
        let declared = operation.answers().iter().any(|answer| answer.status == status);
        let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap_or_default().to_owned());
        let body = answer.bytes().await.expect("a whole answer");
        let told = String::from_utf8_lossy(&body).into_owned();
        assert!(declared || (!target.known && status < 500), "{operation:?} {}: {status} {told}", target.path);
        // The only 500s that are no fault of the disk.
        assert!(status != 500 || told == "unknown content length", "{operation:?} {}: {told}", target.path);
        assert!(status != 503 && status != 401, "{operation:?} {}: {status} {told}", target.path);
        if kind.is_some_and(|kind| kind.starts_with("application/json")) && operation != Operation::Head {
            serde_json::from_slice::<Value>(&body).expect("JSON");
        }
        *self.statuses.entry((format!("{operation:?}"), status)).or_default() += 1;
    }

    /// The rest of the image as it should be, or not quite.
    async fn upload(&mut self, request: reqwest::RequestBuilder, target: &Target) -> reqwest::RequestBuilder {
        let (mut offset, mut rest) = (0, 10);
        let told = self.server.ask("GET", &target.path).send().await;
        if let Ok(told) = told
            && let Ok(image) = told.json::<Value>().await
        {
            offset = image["image_offset"].as_i64().unwrap_or(0);
            rest = image["image_length"].as_i64().unwrap_or(0) - offset;
        }
        if self.one_in(5) {
            offset += self.pick(&[-1, 1, i64::from(i32::MAX)]);
        }
        if self.one_in(5) {
            rest += self.pick(&[-1, 1, 70_000]);
        }
        let request = match self.random.random_range(0..30) {
            0 => request,
            1 => request.header("Upload-Offset", self.pick(&["", "x", "1e3", "99999999999999999999", "0x0", " 0"])),
            _ => request.header("Upload-Offset", offset),
        };
        let fill = self.random.random::<u8>();
        request.body(vec![fill; usize::try_from(rest.clamp(0, 100_000)).expect("a size")])
    }

    /// Bytes on a TLS connection that are no request, or nearly one.
    async fn noise(&mut self, tls: &tokio_rustls::TlsConnector) {
        let stream = tokio::net::TcpStream::connect(&self.server.address).await.expect("connected");
        let Ok(mut stream) = tls.connect("localhost".try_into().expect("a name"), stream).await else { return };
        let target = self.target(Operation::Upload);
        let length = self.random.random_range(0..100_000_u64);
        let head = format!(
            "{} {} HTTP/1.{}\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nUpload-Offset: 0\r\n{}: {length}\r\nTransfer-Encoding: {}\r\n\r\n",
            self.pick(&["PATCH", "POST", "PRI", "GET", "\u{1}"]),
            target.path,
            self.random.random_range(0..3),
            self.pick(&["localhost", "", "a b", "[::1"]),
            self.pick(&["Content-Length", "content-length ", "X"]),
            self.pick(&["chunked", "identity", "", "gzip, chunked"]),
        );
        let mut bytes = head.into_bytes();
        bytes.extend((0..self.random.random_range(0..2000)).map(|_| self.random.random::<u8>()));
        for _ in 0..self.random.random_range(0..4) {
            let at = self.random.random_range(0..bytes.len());
            bytes[at] = self.random.random();
        }
        let _ = stream.write_all(&bytes).await;
        let mut answer = vec![0; 512];
        let wait = std::time::Duration::from_millis(20);
        if let Ok(Ok(read)) = tokio::time::timeout(wait, stream.read(&mut answer)).await {
            let answer = String::from_utf8_lossy(&answer[..read]);
            let status = answer.split(' ').nth(1).unwrap_or_default();
            assert!(
                !status.starts_with('5') || status == "500" && answer.contains("unknown content length"),
                "{answer}"
            );
        }
    }
}

/// Sends so many requests; tells how many a second, and which answers came how often.
async fn fuzz(requests: u64, seed: u64) -> String {
    let outer = tempfile::tempdir().expect("a folder");
    let dir = outer.path().join("server");
    fs_err::create_dir(&dir).expect("made");
    fs_err::write(outer.path().join("canary"), "untouched").expect("written");
    fs_err::write(dir.join("canary"), "untouched").expect("written");
    let server = Arc::new(Server::start(&dir).await);
    let before = outside(outer.path(), &dir.join("uploads"));
    let tls = connector(&dir);
    let (sent, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let random = StdRng::seed_from_u64(seed + number);
        let mut worker = Worker { random, server: Arc::clone(&server), statuses: BTreeMap::new() };
        let (sent, tls) = (Arc::clone(&sent), tls.clone());
        workers.spawn(async move {
            while sent.fetch_add(1, Ordering::Relaxed) < requests {
                if worker.one_in(NOISE) { worker.noise(&tls).await } else { worker.request().await }
            }
            worker.statuses
        });
    }
    let mut statuses: BTreeMap<(String, u16), u64> = BTreeMap::new();
    while let Some(ended) = workers.join_next().await {
        for (answer, count) in ended.expect("no answer that is not declared") {
            *statuses.entry(answer).or_default() += count;
        }
    }
    let time = begun.elapsed();
    let mut server = Arc::into_inner(server).expect("the workers are done");
    assert!(server.is_alive(), "the server ended");
    assert_eq!(outside(outer.path(), &dir.join("uploads")), before, "something outside of the store changed");
    only_own_names(&dir.join("uploads"));
    let log = fs_err::read_to_string(dir.join("log")).expect("the log");
    assert!(!log.contains("panicked"), "{log}");
    let lost: u64 = statuses.iter().filter(|((_, status), _)| *status == LOST).map(|(_, count)| count).sum();
    assert!(lost <= requests / 50, "{lost} requests got no answer");
    let peak = server.peak_kib();
    let rate = u128::from(requests) * 1000 / time.as_millis().max(1);
    let mut told = format!("{requests} requests in {} s: {rate} a second; peak {peak} KiB\n", time.as_secs());
    for ((operation, status), count) in statuses {
        let _ = writeln!(told, "{operation:<9} {status} {count}");
    }
    told
}

fn connector(dir: &Path) -> tokio_rustls::TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    let authority = fs_err::read(dir.join("web/ca.crt")).expect("the authority");
    roots.add(CertificateDer::from_pem_slice(&authority).expect("PEM")).expect("added");
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tokio_rustls::TlsConnector::from(Arc::new(config))
}

/// Every file that is not in the store, with its bytes.
fn outside(dir: &Path, store: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs_err::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path == store || path.file_name().is_some_and(|name| name == "log") {
            continue;
        }
        if path.is_dir() {
            files.extend(outside(&path, store));
        } else {
            files.insert(path.display().to_string(), fs_err::read(&path).expect("read"));
        }
    }
    files
}

/// In the store are names that the box makes, and below `index` those that are names.
fn only_own_names(store: &Path) {
    let mut top: Vec<String> = fs_err::read_dir(store)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    top.sort();
    top.retain(|name| name != "apt.key");
    assert_eq!(top, ["index", "partial", "sha256", "sums"]);
    for folder in ["partial", "sha256", "sums"] {
        for entry in fs_err::read_dir(store.join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            assert!(matches!(name.len(), 24 | 64) && name.bytes().all(|b| b.is_ascii_hexdigit()), "{folder}/{name}");
        }
    }
    for (path, _) in outside(&store.join("index"), Path::new("")) {
        let name = path.rsplit('/').next().unwrap_or_default().trim_end_matches(".json").to_owned();
        assert!(NAMES.contains(&name.as_str()), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_makes_it_crash_or_leave_its_place() {
    fuzz(20_000, 1).await;
}

/// `FOOTHOLD_FUZZ=200000 cargo test -p foothold-agent --test bpa -- --ignored --nocapture a_million`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
#[expect(clippy::print_stderr, reason = "the figures are what it is for")]
async fn a_million_requests_do_not_either() {
    let requests = std::env::var("FOOTHOLD_FUZZ").map_or(1_000_000, |number| number.parse().expect("a number"));
    eprintln!("{}", fuzz(requests, rand::random::<u64>() >> 1).await);
}
