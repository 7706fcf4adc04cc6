//! How a client logs in, and what it is told that may not write. Nobody needs a login to pull.
//!
//! ```text
//! GET /v2/ ─┬─ Podman, Skopeo, Buildah: 200, with the challenge that they look for
//!           ├─ Docker, crane: they look for it in a 401 only ─► GET /token ─► a token, for whoever has none an empty word
//!           └─ with a login: it is tried
//! ```
//! Others (containerd, oras) log in when a push is refused. The token of a login is the box's own.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::front::{Front, MayWrite, NOBODY, token_of};
use super::proxy::{read_only, refusal, response, text_of};
use crate::door::Verdict;
use crate::http::Peer;

/// Where tokens are given (distribution's "Token Authentication Specification").
pub(super) const TOKENS: &str = "/token";
/// Programs that send no login unless the first answer is a 401.
const WANT_401: [&str; 3] = ["docker/", "Docker-Client/", "go-containerregistry/"];

/// Whether this is a registry (OCI distribution specification, "Determining Support").
pub(super) fn base(front: &Front, headers: &HeaderMap, peer: &Peer) -> Response<Body> {
    let (may, refused) = tried(front, headers, peer);
    if let Some(refused) = refused {
        return refused;
    }
    let asks = matches!(may, MayWrite::Token(_));
    let agent = text_of(headers, header::USER_AGENT).unwrap_or_default();
    let wants = asks && !headers.contains_key(header::AUTHORIZATION);
    if wants && WANT_401.iter().any(|program| agent.starts_with(program)) {
        let host = text_of(headers, header::HOST).unwrap_or_default();
        let scheme = if peer.tls { "https" } else { "http" };
        let challenge = format!("Bearer realm=\"{scheme}://{host}{TOKENS}\",service=\"foothold\"");
        let mut answer = refusal(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "ask for a token; pulling needs no login");
        if let Ok(challenge) = HeaderValue::from_str(&challenge) {
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        return answer;
    }
    let answer = response(StatusCode::OK, "{}".to_owned());
    if asks { challenging(answer) } else { answer }
}

/// The token of a login: its password, if that is right.
pub(super) fn token(front: &Front, headers: &HeaderMap, peer: &Peer) -> Response<Body> {
    if let (_, Some(refused)) = tried(front, headers, peer) {
        return refused;
    }
    let given = text_of(headers, header::AUTHORIZATION).and_then(token_of).unwrap_or_else(|| NOBODY.to_owned());
    let mut answer = response(StatusCode::OK, json!({ "token": given, "access_token": given }).to_string());
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// What a client may do, and the answer to a login that is not good. Where nobody writes, none is needed.
fn tried(front: &Front, headers: &HeaderMap, peer: &Peer) -> (MayWrite, Option<Response<Body>>) {
    let authorization = text_of(headers, header::AUTHORIZATION);
    let may = front.may_write(peer, authorization);
    let is_login = authorization.and_then(token_of).is_some() && may != MayWrite::ReadOnly;
    (may, refused(may).filter(|_| is_login))
}

/// Why a request that would change something is refused, if it is.
pub(super) fn refused(may: MayWrite) -> Option<Response<Body>> {
    let (status, code, message) = match may {
        MayWrite::Yes => return None,
        MayWrite::ReadOnly => return Some(read_only("this registry is read-only")),
        MayWrite::NotSoOpenly => {
            (StatusCode::FORBIDDEN, "DENIED", "the box's token is taken over https only, on this same port")
        }
        MayWrite::Token(Verdict::TooMany(_)) => {
            (StatusCode::TOO_MANY_REQUESTS, "TOOMANYREQUESTS", "too many wrong tokens from this address")
        }
        MayWrite::Token(_) => {
            let message = "writing needs the box's access token as the password, with any user name";
            return Some(challenging(refusal(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", message)));
        }
    };
    Some(refusal(status, code, message))
}

/// The same answer, which says how to log in.
fn challenging(mut response: Response<Body>) -> Response<Body> {
    let challenge = HeaderValue::from_static("Basic realm=\"foothold\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}
