//! What is told without the token: the page, whether the agent lives, the authority, and the claim.

use std::sync::Arc;

use agent_api::rest::{Claim, Claimed, Health};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::routes::App;
use crate::door::refusal::too_many;
use crate::door::server::Peer;
use crate::door::{ClaimError, Refusal};

pub(super) async fn page(State(app): State<Arc<App>>) -> Response {
    let policy = (header::CONTENT_SECURITY_POLICY, app.page.policy.clone());
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    ([kind, policy], app.page.html.clone()).into_response()
}

pub(super) async fn health(State(app): State<Arc<App>>) -> Json<Health> {
    Json(Health { ok: true, ready: app.options.bus.now().ready })
}

pub(super) async fn authority(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "application/x-x509-ca-cert")], app.options.certificate.authority.clone()).into_response()
}

pub(super) async fn claim(
    State(app): State<Arc<App>>,
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
            ClaimError::NoHash(_) => Refusal::new(StatusCode::BAD_REQUEST, told, "printf %s \"$TOKEN\" | sha256sum"),
            ClaimError::TooMany(secs) => too_many(&told, secs),
            ClaimError::Keep(cause) => {
                Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{told}: {cause}"), "look at the box's disk")
            }
        }
    })
}
