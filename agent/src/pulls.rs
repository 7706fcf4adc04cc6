//! Every image pull that finds nothing on the box, recorded where none can be missed.
//!
//! ```text
//! kubelet, crictl --CRI--> containerd --certs.d/_default--> 127.0.0.1:5000 = this module --> Bus
//! ```
//! The image's containerd configuration sends each request of each pull, whatever its registry, to this address and to
//! no other. So what is asked here is what was pulled: a pull of an image that is there resolves its name here, too,
//! and one that is not the kubelet's comes the same way. Kubernetes' events need an API server that answers, are
//! thinned out, and know only pods; the journals of kubelet and containerd are text, and thinned out as well. While the
//! agent itself is being restarted (a second) nobody listens: the pull fails, and the kubelet's next try is recorded.
//!
//! The answer is the registry protocol's 404 (OCI distribution specification, "Error Codes"): the pull fails at once,
//! and the pod's own events say `not found`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_api::events::{Event, PULL_STEP, Phase, State};
use agent_api::ports;
use axum::body::Body;
use axum::extract::Query;
use axum::http::{Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::events::{Bus, uptime};

/// Where the image's containerd configuration sends every pull.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), ports::REGISTRY);

/// The same image is told again after a minute: the kubelet asks every few seconds at first, then every five minutes.
/// When nothing was asked for in ten minutes, nobody wants it any more.
const PACE: Pace =
    Pace { tell_again: Duration::from_secs(60), quiet: Duration::from_secs(600), bind_again: Duration::from_secs(2) };
/// How many images are told apart.
const MOST_IMAGES: usize = 256;
/// A request's head in this time, and so many requests at a time.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
const CONNECTIONS: usize = 64;
/// Pause after the process ran out of file descriptors.
const AGAIN: Duration = Duration::from_secs(2);
/// Longest name and reference that are taken: the specification's 255 and 128, a digest of SHA-512 within it.
const MOST_NAME: usize = 255;
const MOST_REFERENCE: usize = 160;

/// How patient the recorder is.
#[derive(Clone, Copy, Debug)]
struct Pace {
    tell_again: Duration,
    quiet: Duration,
    bind_again: Duration,
}

/// Binds `listen` and answers there until told to stop. Needs a tokio runtime. Returns the bound address, if it could
/// be bound at once; otherwise that is told, and tried again.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    listen: SocketAddr,
    bus: &Bus,
    stop: &CancellationToken,
) -> Option<SocketAddr> {
    start_at(tasks, listen, bus, stop, PACE)
}

fn start_at(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    listen: SocketAddr,
    bus: &Bus,
    stop: &CancellationToken,
    pace: Pace,
) -> Option<SocketAddr> {
    let recorder = Arc::new(Recorder::new(bus.clone(), pace));
    let bound = bind(listen);
    let address = bound.as_ref().ok().and_then(|listener| listener.local_addr().ok());
    let stop = stop.clone();
    tasks.spawn(async move {
        let quiet = Arc::clone(&recorder);
        let both = async { tokio::join!(serve(listen, bound, recorder), quiet.forget_in_time()) };
        stop.run_until_cancelled(both).await;
        Ok(())
    });
    address
}

/// What was asked for, and when last.
struct Recorder {
    bus: Bus,
    pace: Pace,
    asked: Mutex<Asked>,
}

struct Asked {
    told: BTreeMap<String, Instant>,
    last: Instant,
    /// Whether the step stands as failed.
    failed: bool,
}

impl Recorder {
    fn new(bus: Bus, pace: Pace) -> Self {
        let failed = bus.now().failed().any(|step| step.phase == Phase::Content.name() && step.step == PULL_STEP);
        Self { bus, pace, asked: Mutex::new(Asked { told: BTreeMap::new(), last: Instant::now(), failed }) }
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a pull; tells it unless that was done a moment ago.
    fn record(&self, image: &str) {
        let mut asked = self.lock();
        let now = Instant::now();
        asked.last = now;
        asked.failed = true;
        if asked.told.get(image).is_some_and(|told| now.duration_since(*told) < self.pace.tell_again) {
            return;
        }
        if asked.told.len() >= MOST_IMAGES {
            asked.told.retain(|_, told| now.duration_since(*told) < self.pace.tell_again);
        }
        if asked.told.len() >= MOST_IMAGES {
            return;
        }
        asked.told.insert(image.to_owned(), now);
        let event = Event::of_box(uptime(), Phase::Content, PULL_STEP, State::Failed)
            .with("image", image)
            .with("workload", true)
            .with("cause", format!("image `{image}` is not in this release, and the box pulls nothing from outside"))
            .with(
                "next",
                "add it to `content.images` of the definition and build again, or correct the name in the pod",
            )
            .with("log", "journalctl -u kubelet -u containerd");
        self.bus.emit(event);
    }

    /// Takes the failure back when nobody asks any more.
    async fn forget_in_time(&self) {
        loop {
            sleep(self.pace.quiet / 10).await;
            let mut asked = self.lock();
            if asked.failed && asked.last.elapsed() >= self.pace.quiet {
                asked.failed = false;
                let message = format!("no image was asked for in {} minutes", self.pace.quiet.as_secs() / 60);
                self.bus.done_with(Phase::Content, PULL_STEP, json!({ "message": message }));
            }
        }
    }

    fn answer(&self, method: &Method, uri: &Uri) -> Response<Body> {
        if uri.path() == "/v2/" || uri.path() == "/v2" {
            return response(StatusCode::OK, "{}".to_owned());
        }
        if method != Method::GET && method != Method::HEAD {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", "this box takes no images");
        }
        match image_of(uri) {
            Some(image) => {
                self.record(&image);
                let message = format!("`{image}` is not in this release; the box pulls nothing from outside");
                refusal(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN", &message)
            }
            None => refusal(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "nothing is here"),
        }
    }
}

/// containerd's parameter: the registry that the image's name begins with.
#[derive(Deserialize)]
struct Namespace {
    #[serde(default)]
    ns: String,
}

/// The image that a request is about: `/v2/<name>/manifests|blobs/<tag or digest>?ns=<registry>`.
fn image_of(uri: &Uri) -> Option<String> {
    let rest = uri.path().strip_prefix("/v2/")?;
    let (rest, reference) = rest.rsplit_once('/')?;
    let (name, kind) = rest.rsplit_once('/')?;
    let is_of = |text: &str, most: usize, more: &str| {
        (1..=most).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(char::from(b)))
    };
    let Query(Namespace { ns }) = Query::try_from_uri(uri).ok()?;
    let registry = if ns.is_empty() { format!("{}:{}", ADDRESS.ip(), ADDRESS.port()) } else { ns };
    let good = matches!(kind, "manifests" | "blobs")
        && is_of(name, MOST_NAME, "._-/")
        && is_of(reference, MOST_REFERENCE, "._-:+=")
        && is_of(&registry, MOST_NAME, ".-:[]");
    let sign = if reference.contains(':') { '@' } else { ':' };
    good.then(|| format!("{registry}/{name}{sign}{reference}"))
}

/// An error as the distribution specification has it.
fn refusal(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    response(status, json!({ "errors": [{ "code": code, "message": message }] }).to_string())
}

fn response(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // A restarted agent gets its port at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(64)
}

/// Binds in the end. That nothing is recorded meanwhile is a failure of the box.
async fn bind_at_last(address: SocketAddr, first: io::Result<TcpListener>, recorder: &Recorder) -> TcpListener {
    let Recorder { bus, pace, .. } = recorder;
    let mut found = first;
    let mut told = false;
    loop {
        match found {
            Ok(listener) => {
                if told {
                    bus.done(Phase::Content, PULL_STEP);
                }
                return listener;
            }
            Err(error) => {
                let cause = format!("image pulls are not recorded: listening on {address}: {error}");
                if !told {
                    let log = "journalctl -u foothold-agent";
                    bus.failed(Phase::Content, PULL_STEP, &cause, "it is tried again", log);
                    told = true;
                }
            }
        }
        sleep(pace.bind_again).await;
        found = bind(address);
    }
}

async fn serve(address: SocketAddr, bound: io::Result<TcpListener>, recorder: Arc<Recorder>) {
    let listener = bind_at_last(address, bound, &recorder).await;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, Arc::clone(&recorder)))),
                Err(error) => {
                    log::warn!("accepting on {address}: {error}");
                    sleep(AGAIN).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers one request. Its errors are the client's.
async fn connection(stream: tokio::net::TcpStream, recorder: Arc<Recorder>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let answer = recorder.answer(request.method(), request.uri());
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).keep_alive(false);
    let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_api::events::PULL_STEP;
    use tokio::task::JoinSet;
    use tokio_util::sync::CancellationToken;

    use super::{PACE, Pace, Recorder, image_of, start, start_at};
    use crate::events::Bus;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn the_image_is_named_as_it_was_asked_for() {
        let (by_digest, long) = (format!("example.org/a@{DIGEST}"), "a".repeat(300));
        let table = [
            ("library/busybox/manifests/1.36?ns=example.org", Some("example.org/library/busybox:1.36")),
            ("a/b/c/manifests/v1?ns=example.org%3A5001", Some("example.org:5001/a/b/c:v1")),
            (&format!("a/manifests/{DIGEST}?ns=example.org"), Some(&by_digest)),
            (&format!("a/blobs/{DIGEST}?ns=example.org"), Some(&by_digest)),
            ("own/manifests/1", Some("127.0.0.1:5000/own:1")),
            ("a/tags/list?ns=example.org", None),
            ("a/manifests/?ns=example.org", None),
            ("a%0a/manifests/1?ns=example.org", None),
            ("a/manifests/1?ns=example.org%0Ab", None),
            (&format!("{long}/manifests/1"), None),
        ];
        for (path, expected) in table {
            let uri = format!("/v2/{path}").parse().expect("an address");
            assert_eq!(image_of(&uri).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn an_image_is_told_again_only_after_a_while() {
        let told = |tell_again: Duration| {
            let bus = Bus::in_memory();
            let recorder = Recorder::new(bus.clone(), Pace { tell_again, ..PACE });
            for image in ["example.org/a:1", "example.org/a:1", "example.org/b:1"] {
                recorder.record(image);
            }
            let images: Vec<String> = bus.now().pulls.iter().map(|pull| pull.image.clone()).collect();
            assert_eq!(images, ["example.org/a:1", "example.org/b:1"]);
            bus.since(0).1.len()
        };
        assert_eq!(told(PACE.tell_again), 2);
        assert_eq!(told(Duration::ZERO), 3);
    }

    #[tokio::test]
    async fn the_failure_is_taken_back_when_nobody_asks_and_the_pull_stays_known() {
        let bus = Bus::in_memory();
        let recorder = Recorder::new(bus.clone(), Pace { quiet: Duration::from_millis(10), ..PACE });
        recorder.record("example.org/a:1");
        assert_eq!(bus.now().failed().count(), 1);
        let mut news = bus.status();
        news.mark_unchanged();
        tokio::select! {
            () = recorder.forget_in_time() => {}
            changed = news.changed() => changed.expect("the bus is there"),
        }
        assert_eq!(bus.now().failed().count(), 0);
        assert_eq!(bus.now().pulls.len(), 1);
    }

    #[tokio::test]
    async fn a_pull_gets_the_registrys_own_error_and_is_in_the_status() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (bus, stop) = (Bus::in_memory(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        let address = start(&mut tasks, ([127, 0, 0, 1], 0).into(), &bus, &stop).expect("a free port");
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let url = format!("http://{address}/v2/a/b/manifests/1?ns=example.org");
        let head = client.head(&url).send().await.expect("an answer");
        assert_eq!(head.status(), 404);
        let get = client.get(&url).send().await.expect("an answer");
        let body: serde_json::Value = get.json().await.expect("JSON");
        assert_eq!(body["errors"][0]["code"], "MANIFEST_UNKNOWN");
        let ping = client.get(format!("http://{address}/v2/")).send().await.expect("an answer");
        assert_eq!(ping.status(), 200);
        let push = client.post(format!("http://{address}/v2/a/blobs/uploads/")).send().await.expect("an answer");
        assert_eq!(push.status(), 405);
        let (_, events) = bus.since(0);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((events[0].step.as_str(), events[0].text("image")), (PULL_STEP, Some("example.org/a/b:1")));
        assert!(events[0].text("cause").is_some_and(|cause| cause.contains("not in this release")));
        assert_eq!(bus.now().pulls[0].image, "example.org/a/b:1");
        stop.cancel();
        while tasks.join_next().await.is_some() {}
    }

    #[tokio::test]
    async fn a_taken_port_is_told_and_tried_again() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = taken.local_addr().expect("an address");
        let (bus, stop) = (Bus::in_memory(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        let mut news = bus.status();
        let pace = Pace { bind_again: Duration::from_millis(1), ..PACE };
        assert_eq!(start_at(&mut tasks, address, &bus, &stop, pace), None);
        news.wait_for(|status| status.failed().count() == 1).await.expect("it is told");
        drop(taken);
        news.wait_for(|status| status.failed().count() == 0).await.expect("it is bound");
        stop.cancel();
        while tasks.join_next().await.is_some() {}
    }
}
