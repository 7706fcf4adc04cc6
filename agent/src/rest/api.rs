//! The routes.

use std::sync::Arc;
use std::time::Duration;

use agent_api::events::Event;
use agent_api::rest::{Claim, Claimed, Health, SiteReport};
use agent_api::site::Site;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{JsonRejection, QueryRejection, StringRejection};
use axum::extract::{DefaultBodyLimit, Extension, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::kubeconfig::{KubeconfigError, kubeconfig, server_for};
use super::{Options, hosts, page, rehearsals};
use crate::cluster::files;
use crate::door::guard::{in_time, only_with_token, with_headers};
use crate::door::refusal::too_many;
use crate::door::server::Peer;
use crate::door::{ClaimError, Refusal, body, incoming};
use crate::events::uptime;
use crate::releases::Refused;
use crate::support::{bundle, timeline};
use crate::vitals;

/// A quiet event stream says that it lives, so that nobody between cuts it.
const STREAM_SIGN: Duration = Duration::from_secs(15);
/// Most bytes of a request's body.
const BODY_BYTES: usize = 16 * 1024;

/// What the handlers share.
pub(super) struct App {
    pub(super) options: Options,
    fingerprint: String,
    authority: String,
    page: page::Page,
    /// One support bundle at a time: each holds a few MiB.
    bundle: Arc<tokio::sync::Semaphore>,
}

type Shared = State<Arc<App>>;

/// All routes with their limits.
pub(super) fn router(options: Options, fingerprint: String, authority: String) -> Router {
    let bundle = Arc::new(tokio::sync::Semaphore::new(1));
    let app = Arc::new(App { options, fingerprint, authority, page: page::Page::new(), bundle });
    let gate = &app.options.gate;
    let guarded = Router::new()
        .route("/status", get(status))
        .route("/events", get(events))
        .route("/timeline", get(times))
        .route("/hosts", get(hosts::list))
        .route("/hosts/{namespace}/{name}", get(hosts::one))
        .route("/kubeconfig", get(admin))
        .route("/support-bundle", get(support))
        .route("/site", put(site))
        .route("/site/report", post(site_report))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_that_way)
        .layer(middleware::from_fn_with_state(Arc::clone(gate), only_with_token));
    // What takes as long as its sender needs.
    let slow = Router::new()
        .route("/api/v1/bundles", post(take_bundle).fallback(not_that_way))
        .merge(rehearsals::router())
        .layer(middleware::from_fn_with_state(Arc::clone(gate), only_with_token))
        .layer(middleware::from_fn(with_headers))
        .with_state(Arc::clone(&app));
    Router::new()
        .route("/", get(front))
        .route("/healthz", get(health))
        .route("/ca.crt", get(authority_certificate))
        .route("/api/v1/claim", post(claim))
        .nest("/api/v1", guarded)
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_that_way)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn(in_time))
        .with_state(app)
        .merge(slow)
}

async fn nothing_here(uri: Uri) -> Refusal {
    let hint = "see /api/v1/{status,events,timeline,hosts,kubeconfig,support-bundle,bundles,site,site/report,rehearsals}, /healthz and /";
    Refusal::new(StatusCode::NOT_FOUND, format!("nothing at `{}`", uri.path()), hint)
}

pub(super) async fn not_that_way() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "not with this method",
        "POST to /api/v1/claim, /api/v1/bundles, /api/v1/rehearsals and /api/v1/site/report, PUT to /api/v1/site, GET \
         everything else",
    )
}

async fn front(State(app): Shared) -> Response {
    let policy = (header::CONTENT_SECURITY_POLICY, app.page.policy.clone());
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    ([kind, policy], app.page.html.clone()).into_response()
}

async fn health(State(app): Shared) -> Json<Health> {
    Json(Health { ok: true, ready: app.options.bus.now().ready })
}

async fn authority_certificate(State(app): Shared) -> Response {
    ([(header::CONTENT_TYPE, "application/x-x509-ca-cert")], app.authority.clone()).into_response()
}

async fn claim(
    State(app): Shared,
    Extension(Peer(peer)): Extension<Peer>,
    body: Result<Json<Claim>, JsonRejection>,
) -> Result<Json<Claimed>, Refusal> {
    let Json(body) = body.map_err(|rejection| {
        let hint = r#"send {"code":"XXXXX-XXXXX"} as application/json"#;
        Refusal::new(rejection.status(), rejection.body_text(), hint)
    })?;
    let claimed = app.options.gate.claim(peer, &body);
    claimed.map(Json).map_err(|error| {
        let told = error.to_string();
        match error {
            ClaimError::NotClaimable => {
                Refusal::new(StatusCode::CONFLICT, told, "ask for the token, or set `access.tokenSha256` in site.yaml")
            }
            ClaimError::WrongCode => {
                Refusal::new(StatusCode::FORBIDDEN, told, "the code is on the box's own screen and serial console")
            }
            ClaimError::NoHash => Refusal::new(StatusCode::BAD_REQUEST, told, "printf %s \"$TOKEN\" | sha256sum"),
            ClaimError::TooMany(secs) => too_many(&told, secs),
            ClaimError::Keep(cause) => {
                Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{told}: {cause}"), "look at the box's disk")
            }
        }
    })
}

/// Keeps a Site for the next start. Wrong ones are refused with the line and the key that is wrong.
async fn site(State(app): Shared, text: Result<String, StringRejection>) -> Result<StatusCode, Refusal> {
    let text = text.map_err(|rejection| {
        Refusal::new(rejection.status(), rejection.body_text(), "send the YAML text of a Site, at most 16 KiB")
    })?;
    let wrong = |error: &dyn std::fmt::Display| {
        Refusal::new(StatusCode::BAD_REQUEST, error.to_string(), "kind: Site, apiVersion: foothold.dev/v1")
    };
    Site::parse(&text).map_err(|error| wrong(&error))?;
    let path = app.options.stored_site.clone();
    let kept = spawn_blocking(move || files::write_durably(&path, text.as_bytes(), files::SECRET)).await;
    let failed = |error: &dyn std::fmt::Display| {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), "look at the box's disk")
    };
    kept.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    // It is read at the next start; a SITE volume or the kernel command line still come before it.
    Ok(StatusCode::ACCEPTED)
}

/// Asks for a report on the SITE partition. How that ends is told as the event `services/site-report`.
async fn site_report(State(app): Shared) -> Result<(StatusCode, Json<SiteReport>), Refusal> {
    let site_out = Arc::clone(&app.options.site_out);
    let place = spawn_blocking(move || site_out.place().inspect(|_| site_out.ask())).await;
    let failed = |error: &dyn std::fmt::Display| {
        let hint = "images written to a disk or stick have a partition SITE; a CD has none";
        Refusal::new(StatusCode::CONFLICT, error.to_string(), hint)
    };
    let place = place.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    Ok((StatusCode::ACCEPTED, Json(SiteReport { device: place.device })))
}

async fn status(State(app): Shared) -> Response {
    let mut status = app.options.vitals.box_status(&app.options.bus, &app.fingerprint);
    status.releases = app.options.releases.list();
    Json(status).into_response()
}

/// A bundle: what turns the release that runs into another. Whole, or not at all.
async fn take_bundle(State(app): Shared, request: Request) -> Result<Response, Refusal> {
    let releases = app.options.releases.clone();
    let taken = incoming::with_body(request.into_body(), move |body| releases.take(body)).await;
    let taken = taken.map_err(|error| {
        let hint = "the box has taken nothing; see its journal";
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), hint)
    })?;
    Ok((StatusCode::CREATED, Json(taken.map_err(|refused| refused_bundle(&refused))?)).into_response())
}

fn refused_bundle(refused: &Refused) -> Refusal {
    let (status, hint) = match refused {
        Refused::Shape(_) => (StatusCode::BAD_REQUEST, "send the file that `foothold diff --bundle` wrote"),
        Refused::Signature(_) => {
            (StatusCode::FORBIDDEN, "sign both releases and the bundle with one key (`sign.key` of the definition)")
        }
        Refused::Base { .. } => (StatusCode::CONFLICT, "make the bundle from the image that this box runs"),
        Refused::Damaged { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "send it again; if that fails, make it again"),
        Refused::Incomplete { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "make the bundle again from whole images"),
        Refused::NoRoom { .. } => (StatusCode::INSUFFICIENT_STORAGE, "make room on DATA"),
        Refused::Cut(_) => (StatusCode::BAD_REQUEST, "send it again: the box has kept nothing of it"),
        Refused::Disk(_) => (StatusCode::INTERNAL_SERVER_ERROR, "look at the box's disk"),
        Refused::Unknown(_) => (StatusCode::SERVICE_UNAVAILABLE, "start the box from its medium"),
        Refused::Busy => return too_many("another bundle is being taken", 10),
    };
    Refusal::new(status, refused.to_string(), hint)
}

async fn times(State(app): Shared) -> Response {
    Json(timeline::timeline(&app.options.bus.beginning(), uptime())).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    server: Option<String>,
}

async fn admin(
    State(app): Shared,
    query: Result<Query<Server>, QueryRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(|rejection| bad_query(&rejection, "?server=https://HOST:PORT"))?;
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(axum::http::uri::Authority::as_str).or(host);
    let yaml = server_for(query.server.as_deref(), host)
        .and_then(|server| kubeconfig(&app.options.kubeconfig, server.as_deref(), &vitals::addresses()))
        .map_err(|error| no_kubeconfig(&app, &error))?;
    let name = HeaderValue::from_static("attachment; filename=\"kubeconfig.yaml\"");
    let kind = HeaderValue::from_static("application/yaml");
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], yaml).into_response())
}

fn no_kubeconfig(app: &App, error: &KubeconfigError) -> Refusal {
    match error {
        KubeconfigError::NotYet(_) => {
            let status = app.options.bus.now();
            let at = status.running().last().or_else(|| status.failed().last());
            let hint = at.map_or_else(
                || "see /api/v1/status".to_owned(),
                |step| format!("the box is at {}/{}; see /api/v1/status", step.phase, step.step),
            );
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), hint).again_in(2)
        }
        KubeconfigError::Server(_) => {
            Refusal::new(StatusCode::BAD_REQUEST, error.to_string(), "?server=https://HOST:PORT")
        }
        KubeconfigError::Shape(_) => {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), "see /api/v1/support-bundle")
        }
    }
}

fn bad_query(rejection: &QueryRejection, hint: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, rejection.body_text(), hint)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    #[serde(default)]
    since: u64,
    #[serde(default)]
    follow: bool,
}

async fn events(
    State(app): Shared,
    query: Result<Query<Stream>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(|rejection| bad_query(&rejection, "?since=N&follow=true"))?;
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let form = if text(header::ACCEPT).is_some_and(|kinds| kinds.contains("text/event-stream")) {
        Form::ServerSent
    } else {
        Form::Lines
    };
    // A browser that lost its stream says which event it had last.
    let last = text(HeaderName::from_static("last-event-id")).and_then(|id| id.parse::<u64>().ok());
    let since = last.map_or(query.since, |last| last.saturating_add(1));
    let follow = query.follow || form == Form::ServerSent;
    let (first, _) = app.options.bus.since(since);
    let kind = match form {
        Form::Lines => "application/jsonl",
        Form::ServerSent => "text/event-stream",
    };
    let body = if follow { follow_events(&app, since, form) } else { past_events(&app, since, form) };
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(HeaderName::from_static("x-foothold-first"), HeaderValue::from(first));
    Ok(response)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// JSON Lines.
    Lines,
    /// `text/event-stream`, the number of the event as its id.
    ServerSent,
}

impl Form {
    fn write(self, number: u64, event: &Event, into: &mut Vec<u8>) {
        let json = serde_json::to_string(event).unwrap_or_default();
        let text = match self {
            Self::Lines => json + "\n",
            Self::ServerSent => format!("id: {number}\ndata: {json}\n\n"),
        };
        into.extend_from_slice(text.as_bytes());
    }

    const fn sign_of_life(self) -> &'static [u8] {
        match self {
            // An empty line is no event, and readers of JSON Lines pass over it.
            Self::Lines => b"\n",
            Self::ServerSent => b": still here\n\n",
        }
    }
}

fn past_events(app: &App, since: u64, form: Form) -> Body {
    let (first, events) = app.options.bus.since(since);
    let mut text = Vec::new();
    for (number, event) in (first..).zip(&events) {
        form.write(number, event, &mut text);
    }
    Body::from(text)
}

/// A stream that misses nothing: the status wakes it, the history tells what is new.
fn follow_events(app: &App, since: u64, form: Form) -> Body {
    let (sender, body) = body::channel();
    let bus = app.options.bus.clone();
    let feed = async move {
        let mut news = bus.status();
        let mut next = since;
        loop {
            news.mark_unchanged();
            let (first, events) = bus.since(next);
            let mut text = Vec::new();
            for (number, event) in (first..).zip(&events) {
                form.write(number, event, &mut text);
            }
            next = first + events.len() as u64;
            if text.is_empty() && timeout(STREAM_SIGN, news.changed()).await.is_err() {
                text = form.sign_of_life().to_vec();
            }
            if !text.is_empty() && sender.send(Bytes::from(text)).await.is_err() {
                return;
            }
            if sender.is_closed() {
                return;
            }
        }
    };
    Body::new(body::Fed::new(body, feed))
}

async fn support(State(app): Shared) -> Result<Response, Refusal> {
    let one = Arc::clone(&app.bundle).try_acquire_owned();
    let one = one.map_err(|_| too_many("another support bundle is being made", 10))?;
    let (sender, body) = body::channel();
    let sources = bundle::Sources {
        status: app.options.vitals.box_status(&app.options.bus, &app.fingerprint),
        timeline: timeline::timeline(&app.options.bus.beginning(), uptime()),
        events: app.options.bus.since(0).1,
        root: app.options.root.clone(),
        runner: Arc::clone(&app.options.runner),
    };
    let name = format!("foothold-{}-support.tar.gz", file_name(&sources.status.hostname));
    start_bundle(sources, sender, one);
    let name = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""))
        .unwrap_or(HeaderValue::from_static("attachment"));
    let kind = HeaderValue::from_static("application/gzip");
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], body).into_response())
}

/// Makes the bundle on a thread of its own, which ends with the bundle or with the client.
fn start_bundle(sources: bundle::Sources, sender: mpsc::Sender<Bytes>, one: tokio::sync::OwnedSemaphorePermit) {
    spawn_blocking(move || {
        if let Err(error) = bundle::write(&sources, body::BlockingWriter(sender)) {
            log::warn!("the support bundle was not finished: {error}");
        }
        drop(one);
    });
}

fn file_name(hostname: &str) -> String {
    hostname.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').take(63).collect()
}
