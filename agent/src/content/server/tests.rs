//! The whole server on loopback, asked by a real client and by hand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use agent_api::release::{Blob, ContentFile, ContentKind, Digest, InLayer, MEDIUM_ROOT, Release};
use reqwest::{Client, StatusCode};
use rstest::rstest;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::fetches::Fetches;
use super::super::{Carried, Held, Source};
use super::Content;
use crate::door::testing;
use crate::http;

const BUILT: u64 = 1_790_000_000;
/// More than fits into any socket's buffer.
const BIG: usize = 20 << 20;

struct Fixture {
    address: SocketAddr,
    client: Client,
    fetches: Fetches,
    _dir: TempDir,
    _tasks: JoinSet<anyhow::Result<()>>,
}

fn big() -> Vec<u8> {
    (0..BIG).map(|n| u8::try_from(n * 31 % 251).unwrap_or(0)).collect()
}

fn held(dir: &Path, path: &str, bytes: &[u8]) -> Held {
    let digest = Digest::of(bytes);
    let file = dir.join(digest.hex());
    fs_err::write(&file, bytes).expect("a file");
    Held { path: path.to_owned(), kind: ContentKind::File, file, digest, size: bytes.len() as u64 }
}

impl Fixture {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let at = dir.path();
        let carried = vec![
            held(at, "images/big.raw", &big()),
            held(at, "images/big.raw.sha256", b"digest  big.raw\n"),
            held(at, "files/empty", b""),
            held(at, "files/ü 1.txt", b"first"),
            held(at, "debian/dists/site/by-hash/SHA256/ab", b"Packages"),
        ];
        let uploaded = vec![held(at, "files/ü 1.txt", b"second"), held(at, "files/new", b"new")];
        let mut gone = held(at, "files/gone", b"gone");
        gone.file = at.join("none");
        let sources: Vec<Arc<dyn Source>> = vec![Arc::new(carried), Arc::new(uploaded), Arc::new(vec![gone])];
        Self::of(dir, sources)
    }

    fn of(dir: TempDir, sources: Vec<Arc<dyn Source>>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (tls, authority) = testing::tls();
        let mut tasks = JoinSet::new();
        let fetches = Fetches::default();
        let content = Arc::new(Content::new(sources, dir.path(), BUILT).noting(fetches.clone()));
        let listen = ["127.0.0.1:0".parse().expect("an address")];
        let started = http::start(&mut tasks, &listen, content, tls, &CancellationToken::new());
        let authority = reqwest::Certificate::from_pem(authority.as_bytes()).expect("the authority");
        let client = Client::builder().no_proxy().tls_certs_only([authority]).build().expect("a client");
        Self { address: started[0], client, fetches, _dir: dir, _tasks: tasks }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> reqwest::Response {
        let mut request = self.client.get(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.expect("an answer")
    }

    /// Writes `text` as it is, and reads until the server closes.
    async fn by_hand(&self, text: &str) -> String {
        let (address, text) = (self.address, text.to_owned());
        let ask = move || {
            let mut stream = TcpStream::connect(address).expect("connected");
            stream.write_all(text.as_bytes()).expect("written");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("read");
            String::from_utf8_lossy(&answer).into_owned()
        };
        tokio::task::spawn_blocking(ask).await.expect("asked")
    }
}

#[tokio::test]
async fn what_servers_lack_is_read_out_of_the_store_or_out_of_the_layer_that_has_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let (medium, layers) = (dir.path().join("medium"), dir.path().join("layers"));
    let (crictl, kubelet) = (b"crictl of the store".as_slice(), b"kubelet of the layer".as_slice());
    let of = |name: &str, bytes: &[u8]| {
        let blob = Blob { digest: Digest::of(bytes), size: bytes.len() as u64 };
        ContentFile::stored(format!("kubernetes/v1.36.4/{name}"), ContentKind::Kubernetes, &blob)
    };
    let place = InLayer { layer: "kubernetes".to_owned(), path: "usr/bin/kubelet".to_owned() };
    let in_layer = ContentFile { within: Some(place), ..of("kubelet", kubelet) };
    let stored = of("crictl", crictl);
    let write = |path: &Path, bytes: &[u8]| {
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs_err::write(path, bytes).expect("written");
    };
    write(&medium.join(MEDIUM_ROOT).join(stored.digest.store_path()), crictl);
    write(&layers.join("kubernetes/usr/bin/kubelet"), kubelet);
    let release = Release { content: vec![stored, in_layer], ..Release::default() };
    let fixture = Fixture::of(dir, vec![Arc::new(Carried::new(&release, &medium, &layers))]);
    for (name, expected) in [("crictl", crictl), ("kubelet", kubelet)] {
        let answer = fixture.get(&format!("/kubernetes/v1.36.4/{name}"), &[]).await;
        assert_eq!(answer.status(), StatusCode::OK, "{name}");
        assert_eq!(answer.headers()["ETag"], format!("\"{}\"", Digest::of(expected)));
        assert_eq!(answer.bytes().await.expect("a body"), expected, "{name}");
    }
    let part = fixture.get("/kubernetes/v1.36.4/kubelet", &[("Range", "bytes=8-")]).await;
    assert_eq!(part.text().await.expect("a part"), "of the layer");
    let list = fixture.get("/kubernetes/v1.36.4/", &[("Accept", "application/json")]).await;
    let list = list.text().await.expect("a listing");
    assert!(list.contains("\"crictl\"") && list.contains(&Digest::of(kubelet).to_string()), "{list}");
}

#[rstest]
#[case::whole("http", None)]
#[case::middle("http", Some((1_000_000, 9_000_000)))]
#[case::whole_with_tls("https", None)]
#[case::middle_with_tls("https", Some((1_000_000, 9_000_000)))]
#[tokio::test]
async fn every_byte_of_a_big_file_arrives(#[case] scheme: &str, #[case] range: Option<(usize, usize)>) {
    let fixture = Fixture::start();
    let url = format!("{scheme}://{}/images/big.raw", fixture.address);
    let mut request = fixture.client.get(url);
    if let Some((first, last)) = range {
        request = request.header("Range", format!("bytes={first}-{last}"));
    }
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), if range.is_some() { 206 } else { 200 });
    let body = answer.bytes().await.expect("a body");
    let all = big();
    let expected = range.map_or(&all[..], |(first, last)| &all[first..=last]);
    assert!(body == expected, "{} bytes instead of {}", body.len(), expected.len());
}

#[rstest]
#[case::of_two_sources_the_first("/files/%C3%BC%201.txt", 200, "first")]
#[case::of_the_second("/files/new", 200, "new")]
#[case::empty("/files/empty", 200, "")]
#[case::listed_and_gone("/files/gone", 500, "the file is listed")]
#[case::none("/files/none", 404, "nothing at `/files/none`")]
#[case::up("/files/../files/new", 404, "nothing at")]
#[case::up_encoded("/files/%2e%2e/%2e%2e/etc/passwd", 404, "nothing at")]
#[case::absolute("//etc/passwd", 404, "nothing at")]
#[case::folder_that_is_none("/none/", 404, "nothing at")]
#[tokio::test]
async fn every_path_is_looked_up(#[case] path: &str, #[case] status: u16, #[case] body: &str) {
    let fixture = Fixture::start();
    let asked = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = fixture.by_hand(&asked).await;
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    assert!(text.starts_with(body), "{text}");
    assert!(body.len() == text.len() || status != 200, "{text}");
}

#[tokio::test]
async fn what_a_client_has_is_not_sent_again() {
    let fixture = Fixture::start();
    let first = fixture.get("/files/new", &[]).await;
    let header = |name: &str| first.headers()[name].to_str().expect("text").to_owned();
    let (tag, date) = (header("etag"), header("last-modified"));
    assert_eq!(fixture.get("/files/new", &[("If-None-Match", &tag)]).await.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(fixture.get("/files/new", &[("If-Modified-Since", &date)]).await.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(header("cache-control"), "public, no-cache");
    let by_hash = fixture.get("/debian/dists/site/by-hash/SHA256/ab", &[]).await;
    assert!(by_hash.headers()["cache-control"].to_str().expect("text").contains("immutable"));
}

#[tokio::test]
async fn folders_are_listed_for_people_and_for_programs() {
    let fixture = Fixture::start();
    let page = fixture.get("/images", &[]).await;
    assert_eq!(page.url().path(), "/images/", "a folder's own address ends with a slash");
    assert!(page.text().await.expect("text").contains("<a href=\"./big.raw.sha256\">"));
    let root = fixture.get("/", &[("Accept", "application/json")]).await;
    let root: serde_json::Value = root.json().await.expect("JSON");
    let names: Vec<_> = root.as_array().expect("a list").iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(names, ["debian", "files", "images"]);
}

#[tokio::test]
async fn requests_that_wait_in_line_are_answered_in_order_on_one_connection() {
    let fixture = Fixture::start();
    let ask = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n");
    let text = ask("/files/new", "") + &ask("/images/", "") + &ask("/files/new", "Connection: close\r\n");
    let answer = fixture.by_hand(&text).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3);
    assert!(answer.ends_with("\r\n\r\nnew"), "{answer}");
}

#[rstest]
#[case::write("POST /files/new HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 405)]
#[case::noise("\u{1}\u{2}\r\n\r\n", 400)]
#[case::no_host("GET / HTTP/1.1\r\n\r\n", 400)]
#[tokio::test]
async fn what_is_no_question_for_a_file_is_refused(#[case] text: &str, #[case] status: u16) {
    let answer = Fixture::start().by_hand(text).await;
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
}

#[rstest]
#[case::body("PUT /files/new HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n", 405)]
#[case::long_path("GET /", 431)]
#[tokio::test]
async fn who_sends_much_sees_the_answer(#[case] head: &str, #[case] status: u16) {
    let text = head.to_owned() + &"x".repeat(900_000);
    let answer = Fixture::start().by_hand(&text).await;
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
}

#[rstest]
#[case::by_name("box.site:6180", "http://box.site:5000")]
#[case::by_address("192.0.2.7", "http://192.0.2.7:5000")]
#[case::by_address_6("[2001:db8::7]:6180", "http://[2001:db8::7]:5000")]
#[case::by_noise("a\"b", "http://127.0.0.1:5000")]
#[tokio::test]
async fn other_nodes_learn_where_to_pull_from(#[case] host: &str, #[case] url: &str) {
    let text = format!("GET /containerd/hosts.toml HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = Fixture::start().by_hand(&text).await;
    assert!(answer.contains(&format!("server = \"{url}\"\n\n[host.\"{url}\"]\n")), "{answer}");
}

#[rstest]
#[case::whole("GET /images/big.raw.sha256", "", Some(200), 16, false)]
#[case::part("GET /images/big.raw.sha256", "Range: bytes=0-5\r\n", Some(206), 6, false)]
#[case::only_its_head("HEAD /images/big.raw.sha256", "", Some(200), 0, false)]
#[case::none("GET /provisioning/pxelinux.cfg/01-52-54-00-00-00-01", "", Some(404), 86, false)]
#[tokio::test]
async fn the_last_fetch_of_a_client_is_noted(
    #[case] asked: &str,
    #[case] header: &str,
    #[case] status: Option<u16>,
    #[case] bytes: u64,
    #[case] cut: bool,
) {
    let fixture = Fixture::start();
    fixture.by_hand(&format!("{asked} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{header}\r\n")).await;
    let all = fixture.fetches.all();
    assert_eq!(all.len(), 1);
    let path = asked.split(' ').nth(1).expect("a path");
    assert_eq!((&*all[0].path, all[0].client), (path, std::net::Ipv4Addr::LOCALHOST.into()));
    assert_eq!((all[0].status, all[0].bytes, all[0].cut), (status, Some(bytes), cut));
    assert!(all[0].ended.is_some_and(|ended| ended >= all[0].at));
}

/// A server that is reset while it fetches its image.
#[tokio::test]
async fn a_fetch_that_its_client_leaves_is_noted_as_cut() {
    let fixture = Fixture::start();
    let address = fixture.address;
    let leave = move || {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.write_all(b"GET /images/big.raw HTTP/1.1\r\nHost: a\r\n\r\n").expect("written");
        stream.read_exact(&mut [0; 1000]).expect("its beginning");
    };
    tokio::task::spawn_blocking(leave).await.expect("left");
    let ended = || fixture.fetches.all().into_iter().find(|fetch| fetch.ended.is_some());
    let fetch = loop {
        match ended() {
            Some(fetch) => break fetch,
            None => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    };
    assert!(fetch.cut && fetch.bytes == Some(BIG as u64), "{fetch:?}");
}

#[tokio::test]
async fn silent_connections_close_the_door_to_nobody() {
    let fixture = Fixture::start();
    let mut silent = Vec::new();
    for _ in 0..600 {
        silent.push(tokio::net::TcpStream::connect(fixture.address).await.expect("connected"));
    }
    let asked = fixture.client.get(format!("http://{}/files/new", fixture.address)).send();
    let answer = tokio::time::timeout(std::time::Duration::from_secs(5), asked).await.expect("at once");
    assert_eq!(answer.expect("an answer").status(), StatusCode::OK);
}
