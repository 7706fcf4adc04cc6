//! What stands before the routes: the token, the time that an answer has, the headers of each answer.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use super::access::{Gate, Verdict};
use super::refusal::{Refusal, refuse};
use super::server::Peer;
use crate::listen::Seat;

/// An answer begins within this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Lets in whoever has the token.
pub(crate) async fn only_with_token(
    State(gate): State<Arc<Gate>>,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    match gate.check(peer, bearer(request.headers())) {
        Verdict::Allowed => {
            prove(&request);
            next.run(request).await
        }
        verdict => refuse(verdict).into_response(),
    }
}

/// Whoever sent this belongs here: the connection is not closed for another's sake.
pub(crate) fn prove(request: &Request) {
    if let Some(seat) = request.extensions().get::<Arc<Seat>>() {
        seat.prove();
    }
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750, 2.1; the scheme's case does not matter).
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Answers in time, or says that there is no answer.
pub(crate) async fn in_time(request: Request, next: Next) -> Response {
    let response = match timeout(ANSWER_WITHIN, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "no answer in time", "try again").into_response(),
    };
    dressed(response)
}

/// [`in_time`] for what takes as long as its sender needs: the headers alone.
pub(crate) async fn with_headers(request: Request, next: Next) -> Response {
    dressed(next.run(request).await)
}

/// Headers of every answer: nothing is guessed, framed, told elsewhere or kept.
fn dressed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
