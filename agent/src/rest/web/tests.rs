//! The whole server on loopback, asked by a real client over TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_api::events::{Event, Phase, State};
use agent_api::rest::routes::{Operation, Route};
use agent_api::rest::{BoxStatus, Claimed, Health, Problem, Timeline};
use agent_api::site::{Access, MOST_BYTES, Site};
use reqwest::{Client, Method, StatusCode};
use rstest::rstest;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Options, start};
use crate::content::fetches::Fetches;
use crate::door::{self, Certificate, Gate};
use crate::events::Bus;
use crate::host::runner::{Output, RunError, Runner};
use crate::releases::Releases;
use crate::support::SiteOut;
use crate::vitals::Vitals;

pub(super) const TOKEN: &str = "a-token-of-this-test";

/// Prints what it was asked, and a secret.
#[derive(Debug)]
struct Echo;

impl Runner for Echo {
    fn run(&self, argv: &[&str], _: &[u8], _: Duration) -> Result<Output, RunError> {
        Ok(Output { stdout: format!("{argv:?}\npassword=hunter2\n").into_bytes(), stderr: Vec::new() })
    }
}

/// A running server on a free port.
pub(super) struct Fixture {
    address: SocketAddr,
    certificate: Certificate,
    client: Client,
    bus: Bus,
    gate: Arc<Gate>,
    pub(super) dir: TempDir,
    site: watch::Sender<Option<Arc<Site>>>,
    _tasks: JoinSet<anyhow::Result<()>>,
}

impl Fixture {
    fn start() -> Self {
        Self::of(tempfile::tempdir().expect("a folder"), |_| {})
    }

    /// The box whose files are in `dir`.
    fn of(dir: TempDir, change: impl FnOnce(&mut Options)) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let bus = Bus::in_memory();
        let gate = Arc::new(Gate::new(&dir.path().join("access")));
        let site = watch::Sender::new(None);
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        let certificate = door::certificate::start(&mut tasks, &dir.path().join("web"), 0, &stop).expect("made");
        tasks.spawn(door::follow_site(Arc::clone(&gate), site.subscribe(), stop.clone()));
        let mut options = Options {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            bus: bus.clone(),
            gate: Arc::clone(&gate),
            certificate: certificate.clone(),
            stored_site: dir.path().join("site.yaml"),
            vitals: Vitals::below(dir.path(), Path::new("/proc")),
            kubeconfig: dir.path().join("admin.conf"),
            runner: Arc::new(Echo),
            releases: Releases::below(&dir.path().join("data"), &dir.path().join("medium"), dir.path()),
            root: dir.path().to_owned(),
            site_out: Arc::new(SiteOut::new(dir.path())),
            fetches: Fetches::default(),
            ironic: "http://127.0.0.1:1".to_owned(),
        };
        change(&mut options);
        let address = start(&mut tasks, options, &stop).expect("started")[0];
        let client = client_of(&certificate);
        Self { address, certificate, client, bus, gate, dir, site, _tasks: tasks }
    }

    fn with_token() -> Self {
        Self::start().known()
    }

    /// The box whose files are in `dir`, for who has the token.
    pub(super) fn with_files(dir: TempDir, change: impl FnOnce(&mut Options)) -> Self {
        Self::of(dir, change).known()
    }

    fn known(self) -> Self {
        let fixture = self;
        let token_sha256 = Some(hex::encode(Sha256::digest(TOKEN)));
        fixture.gate.set_site(&Access { token_sha256, ..Access::default() });
        fixture
    }

    fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.address.port())
    }

    pub(super) async fn ask(&self, path: &str) -> reqwest::Response {
        self.client.get(self.url(path)).bearer_auth(TOKEN).send().await.expect("an answer")
    }
}

fn client_of(certificate: &Certificate) -> Client {
    let authority = reqwest::Certificate::from_pem(certificate.authority.as_bytes()).expect("the authority");
    let builder = Client::builder().tls_certs_only([authority]).no_proxy();
    builder.build().expect("a client")
}

#[rstest]
#[case::page(Method::GET, "/", 200, 200)]
#[case::health(Method::GET, "/healthz", 200, 200)]
#[case::authority(Method::GET, "/ca.crt", 200, 200)]
#[case::document(Method::GET, "/openapi.json", 401, 200)]
#[case::status(Method::GET, "/api/v1/status", 401, 200)]
#[case::events(Method::GET, "/api/v1/events", 401, 200)]
#[case::timeline(Method::GET, "/api/v1/timeline", 401, 200)]
#[case::kubeconfig(Method::GET, "/api/v1/kubeconfig", 401, 503)]
#[case::bundle(Method::GET, "/api/v1/support-bundle", 401, 200)]
#[case::bundle_without_a_body(Method::POST, "/api/v1/bundles", 401, 503)]
#[case::bundles_are_not_read(Method::GET, "/api/v1/bundles", 401, 405)]
#[case::rehearsal_of_nothing(Method::POST, "/api/v1/rehearsals", 401, 400)]
#[case::rehearsals_are_not_read(Method::GET, "/api/v1/rehearsals", 401, 405)]
#[case::hosts_of_a_box_that_provisions_none(Method::GET, "/api/v1/hosts", 401, 404)]
#[case::a_host_of_such_a_box(Method::GET, "/api/v1/hosts/metal3/a", 401, 404)]
#[case::hosts_are_not_written(Method::POST, "/api/v1/hosts", 401, 405)]
#[case::unknown_below_the_door(Method::GET, "/api/v1/secrets", 401, 404)]
#[case::wrong_method(Method::DELETE, "/api/v1/status", 401, 405)]
#[case::escape(Method::GET, "/api/v1/../v1/status/", 401, 404)]
#[case::elsewhere(Method::GET, "/etc/passwd", 404, 404)]
#[case::claimed(Method::POST, "/api/v1/claim", 415, 415)]
#[case::bad_query(Method::GET, "/api/v1/events?since=x", 401, 400)]
#[case::unknown_query(Method::GET, "/api/v1/events?from=1", 401, 400)]
#[case::bad_server(Method::GET, "/api/v1/kubeconfig?server=ftp://x", 401, 400)]
#[tokio::test]
async fn every_path_without_and_with_the_token(
    #[case] method: Method,
    #[case] path: &str,
    #[case] without: u16,
    #[case] with: u16,
) {
    let fixture = Fixture::with_token();
    let ask = |token: Option<&str>| {
        let request = fixture.client.request(method.clone(), fixture.url(path));
        match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    };
    for wrong in [None, Some("wrong"), Some("")] {
        let answer = ask(wrong).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), without, "with {wrong:?}");
        if without == 401 {
            assert_eq!(answer.headers()["www-authenticate"], "Bearer realm=\"foothold\"");
            let problem: Problem = answer.json().await.expect("a problem");
            assert!(!problem.hint.is_empty() && !problem.claimable);
        }
    }
    let answer = ask(Some(TOKEN)).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), with);
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    if with >= 400 {
        answer.json::<Problem>().await.expect("a problem in JSON");
    }
}

#[tokio::test]
async fn each_route_of_the_list_is_served_and_no_other_method() {
    let fixture = Fixture::with_token();
    for path in Operation::ALL.iter().map(|operation| operation.route().path) {
        let url = fixture.url(&path.replace("{namespace}", "metal3").replace("{name}", "a"));
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let is_it = |route: &Route| route.path == path && route.method.name() == method.as_str();
            let listed = Operation::ALL.iter().find(|operation| is_it(operation.route()));
            let answer =
                fixture.client.request(method.clone(), &url).bearer_auth(TOKEN).send().await.expect("an answer");
            let status = answer.status().as_u16();
            match listed {
                Some(operation) => {
                    let known = operation.answers().iter().any(|answer| answer.status == status);
                    assert!(known, "{method} {path}: {status} is not in the list");
                }
                None => assert_eq!(status, 405, "{method} {path}"),
            }
        }
    }
}

#[tokio::test]
async fn the_document_is_that_of_the_list() {
    let fixture = Fixture::with_token();
    let document: serde_json::Value = fixture.ask("/openapi.json").await.json().await.expect("JSON");
    assert_eq!(document, agent_api::rest::openapi());
}

#[tokio::test]
async fn other_schemes_are_no_token() {
    let fixture = Fixture::with_token();
    for header in [format!("Basic {TOKEN}"), TOKEN.to_owned(), format!("Bearer{TOKEN}")] {
        let request = fixture.client.get(fixture.url("/api/v1/status")).header("authorization", header);
        assert_eq!(request.send().await.expect("an answer").status(), StatusCode::UNAUTHORIZED);
    }
    let lower = fixture.client.get(fixture.url("/api/v1/status")).header("authorization", format!("bearer {TOKEN}"));
    assert_eq!(lower.send().await.expect("an answer").status(), StatusCode::OK);
}

#[tokio::test]
async fn guessing_ends_in_429_with_the_time_to_wait_and_locks_nobody_out() {
    let fixture = Fixture::with_token();
    for _ in 0..10 {
        let guess = fixture.client.get(fixture.url("/api/v1/status")).bearer_auth("guess");
        assert_eq!(guess.send().await.expect("an answer").status(), StatusCode::UNAUTHORIZED);
    }
    let guess = fixture.client.get(fixture.url("/api/v1/status")).bearer_auth("guess").send();
    let answer = guess.await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(answer.headers().contains_key("retry-after"));
    assert_eq!(fixture.ask("/api/v1/status").await.status(), StatusCode::OK, "the right one is let in all the same");
    let health: Health = fixture.ask("/healthz").await.json().await.expect("health");
    assert!(health.ok);
}

/// Connections that send nothing: half of them after the handshake of TLS.
async fn silent(fixture: &Fixture, count: usize) -> Vec<Box<dyn std::any::Any>> {
    let mut roots = rustls::RootCertStore::empty();
    let authority = rustls::pki_types::pem::PemObject::from_pem_slice(fixture.certificate.authority.as_bytes());
    roots.add(authority.expect("PEM")).expect("the authority");
    let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
    for number in 0..count {
        let stream = tokio::net::TcpStream::connect(fixture.address).await.expect("connected");
        if number % 2 == 0 {
            held.push(Box::new(stream));
        } else {
            let name = "localhost".try_into().expect("a name");
            held.push(Box::new(tls.connect(name, stream).await.expect("the handshake")));
        }
    }
    held
}

#[tokio::test]
async fn silent_connections_close_the_door_to_nobody() {
    let fixture = Fixture::with_token();
    let held = silent(&fixture, 100).await;
    for _ in 0..3 {
        let client = client_of(&fixture.certificate);
        let asked = client.get(fixture.url("/healthz")).send();
        let answer = tokio::time::timeout(Duration::from_secs(5), asked).await.expect("at once").expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
    }
    drop(held);
}

#[tokio::test]
async fn before_site_is_read_the_answer_is_503_and_then_the_box_is_claimed_over_the_wire() {
    let fixture = Fixture::start();
    let early = fixture.ask("/api/v1/status").await;
    assert_eq!(early.status(), StatusCode::SERVICE_UNAVAILABLE);
    let mut code = fixture.gate.claim_code();
    fixture.site.send_replace(Some(Arc::default()));
    let code = code.wait_for(Option::is_some).await.expect("a gate").clone().expect("a code");
    let unclaimed = fixture.ask("/api/v1/status").await;
    assert_eq!(unclaimed.status(), StatusCode::UNAUTHORIZED);
    assert!(unclaimed.json::<Problem>().await.expect("a problem").claimable);
    let claim = |code: &str| {
        let body = serde_json::json!({ "code": code });
        fixture.client.post(fixture.url("/api/v1/claim")).json(&body).send()
    };
    let wrong = claim("AAAAA-AAAAA").await.expect("an answer");
    assert_eq!(wrong.status(), StatusCode::FORBIDDEN);
    let claimed: Claimed = claim(&code).await.expect("an answer").json().await.expect("claimed");
    let token = claimed.token.expect("a token");
    let request = fixture.client.get(fixture.url("/api/v1/status")).bearer_auth(&token);
    assert_eq!(request.send().await.expect("an answer").status(), StatusCode::OK);
    assert_eq!(claim(&code).await.expect("an answer").status(), StatusCode::CONFLICT);
}

#[tokio::test]
async fn status_and_timeline_follow_the_events() {
    let fixture = Fixture::with_token();
    fixture.bus.emit(Event::of_box(1.0, Phase::Runtime, "containerd", State::Started));
    fixture.bus.emit(Event::of_box(3.0, Phase::Runtime, "containerd", State::Done));
    fixture.bus.emit(Event::of_box(4.0, Phase::Ready, "ready", State::Done).with("addresses", vec!["192.0.2.7"]));
    let status: BoxStatus = fixture.ask("/api/v1/status").await.json().await.expect("a status");
    assert!(status.status.ready);
    assert_eq!(status.status.addresses, ["192.0.2.7"]);
    assert_eq!(status.progress.done, 2);
    assert_eq!(status.web_fingerprint, fixture.certificate.fingerprint);
    assert!(status.memory.total_mib > 0);
    let timeline: Timeline = fixture.ask("/api/v1/timeline").await.json().await.expect("a timeline");
    assert_eq!(timeline.ready, Some(4.0));
    assert!((timeline.phases[0].secs - 2.0).abs() < 0.001);
}

#[tokio::test]
async fn events_are_told_from_any_number_on_and_followed() {
    let fixture = Fixture::with_token();
    for n in 0..5 {
        fixture.bus.emit(Event::of_box(f64::from(n), Phase::Runtime, "a", State::Progress));
    }
    let answer = fixture.ask("/api/v1/events?since=3").await;
    assert_eq!(answer.headers()["x-foothold-first"], "3");
    let text = answer.text().await.expect("lines");
    let told: Vec<Event> = text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    assert_eq!(told.iter().map(|event| event.t).collect::<Vec<_>>(), [3.0, 4.0]);

    let mut stream = fixture.ask("/api/v1/events?since=4&follow=true").await;
    let first = stream.chunk().await.expect("a stream").expect("a piece");
    assert!(first.starts_with(b"{\"t\":4.0"), "{first:?}");
    fixture.bus.emit(Event::of_box(9.0, Phase::Ready, "ready", State::Done));
    let next = stream.chunk().await.expect("a stream").expect("a piece");
    assert_eq!(
        &next[..],
        b"{\"t\":9.0,\"source\":\"box\",\"phase\":\"ready\",\"step\":\"ready\",\"state\":\"done\"}\n"
    );

    let request = fixture.client.get(fixture.url("/api/v1/events")).bearer_auth(TOKEN);
    let request = request.header("accept", "text/event-stream").header("last-event-id", "4");
    let mut sent = request.send().await.expect("an answer");
    assert_eq!(sent.headers()["content-type"], "text/event-stream");
    let piece = sent.chunk().await.expect("a stream").expect("a piece");
    assert!(piece.starts_with(b"id: 5\ndata: {\"t\":9.0"), "{piece:?}");
}

#[tokio::test]
async fn the_kubeconfig_names_the_address_the_client_used() {
    let fixture = Fixture::with_token();
    let missing = fixture.ask("/api/v1/kubeconfig").await;
    assert_eq!(missing.status(), StatusCode::SERVICE_UNAVAILABLE);
    let config = "apiVersion: v1\nkind: Config\nclusters:\n- name: kubernetes\n  cluster:\n    server: https://198.18.0.1:6443\n";
    fs_err::write(fixture.dir.path().join("admin.conf"), config).expect("a file");
    let answer = fixture.ask("/api/v1/kubeconfig").await;
    assert_eq!(answer.headers()["content-type"], "application/yaml");
    let text = answer.text().await.expect("YAML");
    assert!(text.contains("server: https://127.0.0.1:6443"), "{text}");
    let text = fixture.ask("/api/v1/kubeconfig?server=https://edge:16443").await.text().await.expect("YAML");
    assert!(text.contains("server: https://edge:16443"), "{text}");
}

#[tokio::test]
async fn a_site_is_checked_and_kept_for_the_next_start() {
    let fixture = Fixture::with_token();
    let put = |text: &str| {
        let request = fixture.client.put(fixture.url("/api/v1/site")).bearer_auth(TOKEN);
        request.body(text.to_owned()).send()
    };
    let wrong = put("apiVersion: foothold.dev/v1\nkind: Site\nhostname: A_b\n").await.expect("an answer");
    assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
    assert!(wrong.json::<Problem>().await.expect("a problem").error.contains("`hostname`"));
    let right = "apiVersion: foothold.dev/v1\nkind: Site\nhostname: edge-7\n";
    assert_eq!(put(right).await.expect("an answer").status(), StatusCode::ACCEPTED);
    assert_eq!(fs_err::read_to_string(fixture.dir.path().join("site.yaml")).expect("kept"), right);
    // As long as from every other source.
    let of = |bytes: usize| format!("{right}{:#<1$}", "", bytes - right.len());
    assert_eq!(put(&of(MOST_BYTES)).await.expect("an answer").status(), StatusCode::ACCEPTED);
    let long = put(&of(MOST_BYTES + 1)).await.expect("an answer");
    assert_eq!(long.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(long.json::<Problem>().await.expect("a problem").hint.contains("at most 64 KiB"));
}

#[tokio::test]
async fn the_support_bundle_has_what_is_named_and_no_secret() {
    let fixture = Fixture::with_token();
    let root = fixture.dir.path();
    for (path, text) in [
        ("etc/kubernetes/manifests/etcd.yaml", "kind: Pod\n"),
        ("etc/kubernetes/admin.conf", "client-key-data: SECRET-1\n"),
        ("etc/kubernetes/pki/ca.key", "-----BEGIN EC PRIVATE KEY-----\nSECRET-2\n-----END EC PRIVATE KEY-----\n"),
        ("var/lib/foothold/site.yaml", "access: {tokenSha256: SECRET-3}\n"),
        ("var/lib/foothold/access/token.sha256", "SECRET-4\n"),
        ("proc/cmdline", "quiet foothold.site=SECRET-5 ro\n"),
        ("var/log/pods/kube-system_etcd_1/etcd/0.log", "started token=SECRET-6 ok\n"),
        ("dev/kmsg", "6,1,5,-;hello\n"),
    ] {
        let path = root.join(path);
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs_err::write(path, text).expect("a file");
    }
    let answer = fixture.ask("/api/v1/support-bundle").await;
    let bytes = answer.bytes().await.expect("a bundle");
    let mut names = Vec::new();
    let mut all = String::new();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
    for entry in archive.entries().expect("a tar") {
        let mut entry = entry.expect("an entry");
        names.push(entry.path().expect("a name").to_string_lossy().into_owned());
        std::io::Read::read_to_string(&mut entry, &mut all).expect("text");
    }
    insta::assert_snapshot!(names.join("\n"));
    assert!(!all.contains("SECRET-") && !all.contains("hunter2"), "{all}");
    assert!(all.contains("kind: Pod") && all.contains("started token=[redacted] ok"), "{all}");
}

#[tokio::test]
async fn a_report_is_only_asked_for_where_it_can_be_written() {
    let fixture = Fixture::with_token();
    let ask = || fixture.client.post(fixture.url("/api/v1/site/report"));
    assert_eq!(ask().send().await.expect("an answer").status(), StatusCode::UNAUTHORIZED);
    let refused = ask().bearer_auth(TOKEN).send().await.expect("an answer");
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    let problem: Problem = refused.json().await.expect("a problem");
    assert!(problem.error.ends_with("has no partition SITE"), "{problem:?}");
}

#[tokio::test]
async fn http_1_and_http_2_are_both_spoken_and_large_heads_and_bodies_refused() {
    let fixture = Fixture::with_token();
    assert_eq!(fixture.ask("/healthz").await.version(), reqwest::Version::HTTP_11);
    let long = "x".repeat(40_000);
    let body = format!("{{\"code\":\"{long}\"}}");
    let claim = fixture.client.post(fixture.url("/api/v1/claim")).header("content-type", "application/json").body(body);
    assert_eq!(claim.send().await.expect("an answer").status(), StatusCode::PAYLOAD_TOO_LARGE);
    let head = fixture.client.get(fixture.url("/healthz")).header("x-long", &long).send().await;
    let refused = head.map_or(true, |answer| answer.status() == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    assert!(refused);
}

#[tokio::test]
async fn one_peer_cannot_take_all_connections() {
    let fixture = Fixture::with_token();
    let address = fixture.address;
    let mut held = Vec::new();
    for _ in 0..40 {
        held.push(tokio::net::TcpStream::connect(address).await.expect("connected"));
    }
    // Those beyond the limit are closed at once; the others are held until the handshake's deadline.
    let mut closed = 0;
    for stream in &mut held {
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_millis(200), tokio::io::AsyncReadExt::read(stream, &mut byte));
        closed += usize::from(read.await.is_ok());
        if closed > 0 {
            break;
        }
    }
    assert!(closed > 0, "nobody was refused");
    drop(held);
    let mut asked = fixture.client.get(fixture.url("/healthz")).send().await;
    while asked.is_err() {
        asked = fixture.client.get(fixture.url("/healthz")).send().await;
    }
}

/// As large as `kubectl get bmh -o yaml` of a large site is. Nobody is asked: no host says where its BMC is.
#[tokio::test]
async fn a_rehearsal_takes_the_inventories_of_a_large_site() {
    let fixture = Fixture::with_token();
    let flags = "      - avx512\n".repeat(400);
    let items: Vec<String> = (0..600)
        .map(|number| {
            format!(
                "- kind: BareMetalHost\n  metadata: {{ name: h{number} }}\n  status:\n    hardware:\n      flags:\n{flags}"
            )
        })
        .collect();
    let yaml = format!("kind: List\nitems:\n{}", items.concat());
    assert!(yaml.len() > 3 << 20);
    let send = |body: String| fixture.client.post(fixture.url("/api/v1/rehearsals")).bearer_auth(TOKEN).body(body);
    let answer = send(yaml).send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let rehearsal: agent_api::rehearsal::Rehearsal = answer.json().await.expect("the matrix");
    assert_eq!(rehearsal.hosts.len(), 600);
    let nested = send(format!("a: {}{}", "[".repeat(100), "]".repeat(100))).send().await.expect("an answer");
    assert_eq!(nested.status(), StatusCode::BAD_REQUEST);
    let said = nested.text().await.expect("a text");
    assert!(said.contains("at most 64 levels"), "{said}");
}

#[tokio::test]
async fn a_rehearsal_asks_bmcs_without_changing_them_and_answers_the_matrix() {
    use foothold_qemu::bmc;
    let fixture = Fixture::with_token();
    let profile = bmc::Profile::known("idrac").expect("a profile");
    let power = Arc::new(bmc::MemoryPower::new(true));
    let mut tasks = JoinSet::new();
    let options = bmc::Options::on_loopback(profile, "secret", power);
    let server = bmc::Bmc::start(&mut tasks, options, &CancellationToken::new()).expect("started");
    let yaml = format!(
        "kind: Secret\nmetadata: {{name: bmc}}\nstringData: {{username: admin, password: secret}}\n---\n\
         kind: BareMetalHost\nmetadata: {{name: one}}\nspec: {{bmc: {{address: 'idrac-virtualmedia://{}', \
         credentialsName: bmc, disableCertificateVerification: true}}}}\n",
        server.address()
    );
    let request = fixture.client.post(fixture.url("/api/v1/rehearsals")).bearer_auth(TOKEN).body(yaml);
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let rehearsal: agent_api::rehearsal::Rehearsal = answer.json().await.expect("the matrix");
    assert!(rehearsal.good, "{rehearsal:#?}");
    assert_eq!(rehearsal.hosts[0].vendor.as_deref(), Some("Dell"));
    // But for a session, which is ended.
    assert!(server.asked().iter().all(|asked| asked.method == "GET" || asked.path.contains("/Sessions")));
}
