//! Requests that `distribution` answers: sent on over its socket, with the name under which it knows the image.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::front::{Asked, AskedKind, Front, mapped};
use super::storage::Full;
use super::{RegistryStorage, login, manifest};
use crate::door::Fed;
use crate::http::{Peer, hop};

/// The registry begins to answer within this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// When a registry that does not answer yet may be asked again.
const AGAIN_SECS: u64 = 2;
/// Answers one request.
pub(super) async fn answer(
    front: Arc<Front>,
    request: Request<Incoming>,
    peer: Peer,
) -> Result<Response<Body>, Infallible> {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let host = text_of(request.headers(), header::HOST).map(str::to_owned);
    let path = crate::http::decode(uri.path()).unwrap_or_default();
    let asked = Asked::parse(&path, uri.query().unwrap_or_default(), host.as_deref());
    let carried = match &asked {
        Some(asked) if method == Method::GET || method == Method::HEAD => {
            carried(&front, asked, request.headers()).await
        }
        _ => None,
    };
    let reads = method == Method::GET || method == Method::HEAD;
    let response = match (&front.storage, carried) {
        (_, Some(manifest)) => manifest,
        _ if reads && (path == "/v2" || path == "/v2/") => login::base(&front, request.headers(), &peer),
        _ if reads && path == login::TOKENS => login::token(&front, request.headers(), &peer),
        _ if !path.starts_with("/v2/") => {
            refusal(StatusCode::NOT_FOUND, "NAME_UNKNOWN", &format!("nothing at `{path}`: images are below `/v2/`"))
        }
        (Some(_), None) if changes_release(&front, &method, asked.as_ref()) => refusal(
            StatusCode::FORBIDDEN,
            "DENIED",
            "it is part of the release, which stays as it is: take another tag",
        ),
        (Some(storage), None) => with_registry(&front, storage, request, &peer, host.as_deref()).await,
        (None, None) => without_registry(reads, asked.as_ref()),
    };
    // Only requests of the box itself are recorded: other nodes of the site have their own journals.
    if let Some(asked) = asked.filter(|asked| asked.kind == AskedKind::Manifest && peer.ip.is_loopback()) {
        match response.status() {
            StatusCode::NOT_FOUND => front.recorder.missed(&asked.image),
            status if status.is_success() && asked.mirrored => front.recorder.served(&asked.image),
            _ => {}
        }
    }
    Ok(response)
}

/// The answer to a request for a manifest of the release. One that cannot be read is an error: nobody else is asked.
async fn carried(front: &Arc<Front>, asked: &Asked, headers: &HeaderMap) -> Option<Response<Body>> {
    if asked.kind != AskedKind::Manifest {
        return None;
    }
    let digest = front.catalog.manifest(&asked.repository, &asked.reference)?.clone();
    let (front, headers) = (Arc::clone(front), headers.clone());
    let read = tokio::task::spawn_blocking(move || manifest::answer(front.store(), &digest, &headers)).await;
    let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
    Some(read.unwrap_or_else(|error| refusal(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", &error.to_string())))
}

/// Whether the request would move a tag of the release, or hide a part of the release.
fn changes_release(front: &Front, method: &Method, asked: Option<&Asked>) -> bool {
    let Some(asked) = asked else { return false };
    let known = || front.catalog.has(&asked.repository, &asked.reference);
    // A push by digest cannot change anything.
    let is_tag = !asked.reference.contains(':');
    (*method == Method::DELETE || *method == Method::PUT && is_tag) && known()
}

/// A release without a registry: whatever is asked for is not there.
fn without_registry(reads: bool, asked: Option<&Asked>) -> Response<Body> {
    if !reads {
        return read_only("this box takes no images");
    }
    let unknown = |code: &str, what: &str| {
        refusal(
            StatusCode::NOT_FOUND,
            code,
            &format!("`{what}` is not in this release; the box pulls nothing from outside"),
        )
    };
    match asked {
        Some(asked) if asked.kind == AskedKind::Blob => unknown("BLOB_UNKNOWN", &asked.reference),
        Some(asked) => unknown("MANIFEST_UNKNOWN", &asked.image),
        None => refusal(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "nothing is here"),
    }
}

pub(super) fn read_only(message: &str) -> Response<Body> {
    let mut refused = refusal(StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", message);
    refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    refused
}

async fn with_registry(
    front: &Front,
    storage: &Arc<RegistryStorage>,
    request: Request<Incoming>,
    peer: &Peer,
    host: Option<&str>,
) -> Response<Body> {
    let method = request.method().clone();
    let writes = !matches!(method, Method::GET | Method::HEAD | Method::OPTIONS);
    if writes && let Err(refused) = admit(front, storage, request.headers(), peer).await {
        return refused;
    }
    if method != Method::GET {
        storage.touch();
    }
    let writing = if writes { Some(storage.writing().await) } else { None };
    let passed = pass(front, storage, request, host, writes).await;
    if writing.is_some() {
        storage.touch();
    }
    match passed {
        Ok(response) => {
            if method == Method::DELETE && response.status().is_success() {
                storage.note_deleted();
            }
            response
        }
        Err(error) => {
            // It was this end that stopped: no more bytes fit.
            if writes && let Err(full) = storage.count(0) {
                return no_room(&full);
            }
            log::warn!("the registry does not answer: {error:#}");
            let mut response =
                refusal(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "the registry is starting: ask again");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(AGAIN_SECS));
            response
        }
    }
}

pub(super) fn text_of(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok())
}

fn no_room(full: &Full) -> Response<Body> {
    refusal(StatusCode::INSUFFICIENT_STORAGE, "DENIED", &full.to_string())
}

/// Whether a request that changes something is allowed.
async fn admit(
    front: &Front,
    storage: &Arc<RegistryStorage>,
    headers: &HeaderMap,
    peer: &Peer,
) -> Result<(), Response<Body>> {
    if let Some(refused) = login::refused(front.may_write(peer, text_of(headers, header::AUTHORIZATION))) {
        return Err(refused);
    }
    let wanted = text_of(headers, header::CONTENT_LENGTH).and_then(|length| length.parse().ok()).unwrap_or(0);
    let measured = Arc::clone(storage);
    let admitted = tokio::task::spawn_blocking(move || measured.admit(wanted)).await;
    match admitted {
        Ok(Ok(())) => Ok(()),
        Ok(Err(full)) => Err(no_room(&full)),
        Err(error) => Err(refusal(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", &error.to_string())),
    }
}

/// Sends the request on. The answer's body drives the connection from which it comes.
async fn pass(
    front: &Front,
    storage: &Arc<RegistryStorage>,
    request: Request<Incoming>,
    host: Option<&str>,
    writes: bool,
) -> anyhow::Result<Response<Body>> {
    let stream = UnixStream::connect(&front.socket).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let (mut head, body) = request.into_parts();
    hop::strip(&mut head.headers);
    // `distribution` checks no tokens.
    head.headers.remove(header::AUTHORIZATION);
    if let Some(path) = mapped(head.uri.path(), head.uri.query().unwrap_or_default(), host) {
        head.uri = path.parse()?;
    } else if let Some(path) = head.uri.path_and_query() {
        head.uri = Uri::from(path.clone());
    }
    let body = if writes { Body::new(Counted { body, storage: Arc::clone(storage) }) } else { Body::empty() };
    let mut connection = Box::pin(connection);
    let answered = async {
        tokio::select! {
            answer = sender.send_request(Request::from_parts(head, body)) => Ok(answer?),
            ended = &mut connection => Err(anyhow::anyhow!("it closed the connection: {ended:?}")),
        }
    };
    // An upload has no deadline; the limits of the connection end one whose client is gone.
    let response = if writes { answered.await? } else { timeout(ANSWER_WITHIN, answered).await?? };
    let (mut head, body) = response.into_parts();
    hop::strip(&mut head.headers);
    let feed = async move {
        let _ = connection.await;
        drop(sender);
    };
    Ok(Response::from_parts(head, Body::new(Fed::new(Body::new(body), feed))))
}

/// A body that is counted while it arrives, and ends in an error when there is no room for more.
struct Counted {
    body: Incoming,
    storage: Arc<RegistryStorage>,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else { return Poll::Pending };
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame.map(|frame| frame.map_err(Into::into))) };
        let arrived = frame.data_ref().map_or(0, |data| data.len() as u64);
        match self.storage.count(arrived) {
            Ok(()) => Poll::Ready(Some(Ok(frame))),
            Err(full) => Poll::Ready(Some(Err(Box::new(full) as axum::BoxError))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

/// An error as the distribution specification has it ("Error Codes").
pub(super) fn refusal(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    response(status, json!({ "errors": [{ "code": code, "message": message }] }).to_string())
}

pub(super) fn response(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("docker-distribution-api-version", HeaderValue::from_static("registry/2.0"));
    response
}
