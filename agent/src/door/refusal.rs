//! Error answers in JSON: what is wrong, and what to do about it.

use agent_api::rest::Problem;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::access::Verdict;

/// An error answer.
pub(crate) struct Refusal {
    status: StatusCode,
    problem: Problem,
    retry_after: Option<u64>,
}

impl Refusal {
    /// An answer with this status; `hint` says what the client can do.
    pub(crate) fn new(status: StatusCode, error: impl Into<String>, hint: impl Into<String>) -> Self {
        let problem = Problem { error: error.into(), hint: hint.into(), claimable: false };
        Self { status, problem, retry_after: None }
    }

    /// Says when to ask again.
    pub(crate) fn again_in(mut self, secs: u64) -> Self {
        self.retry_after = Some(secs);
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.problem)).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"foothold\""));
        }
        if let Some(secs) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// The answer to a request that is not let in.
pub(crate) fn refuse(verdict: Verdict) -> Refusal {
    match verdict {
        Verdict::Unclaimed => {
            let hint =
                "POST the code on the box's console to /api/v1/claim, or put `access.tokenSha256` into site.yaml";
            let mut refusal = Refusal::new(StatusCode::UNAUTHORIZED, "this box has no access token yet", hint);
            refusal.problem.claimable = true;
            refusal
        }
        Verdict::NotYet => {
            let hint = "the box has not read its Site yet; try again in a second";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "access is not known yet", hint).again_in(1)
        }
        Verdict::TooMany(secs) => too_many("too many wrong tokens from this address", secs),
        Verdict::Denied | Verdict::Allowed => {
            let hint = "send `Authorization: Bearer TOKEN`, the token whose hash is in Site or that the claim gave";
            Refusal::new(StatusCode::UNAUTHORIZED, "a valid token is needed", hint)
        }
    }
}

/// The answer to a client that asks too often.
pub(crate) fn too_many(error: &str, secs: u64) -> Refusal {
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, error, format!("try again in {secs} s")).again_in(secs)
}
