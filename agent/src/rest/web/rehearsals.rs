//! `POST /api/v1/rehearsals`: asks the BMCs of a site, and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use agent_api::rehearsal::Rehearsal;
use axum::extract::rejection::StringRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use tokio::sync::Semaphore;

use super::routes::not_that_way;
use crate::bmc::manifests;
use crate::bmc::rehearsal::{Plan, rehearse};
use crate::door::Refusal;
use crate::door::refusal::too_many;

/// Most bytes of manifests: a thousand hosts and their Secrets.
const BODY_BYTES: usize = 1 << 20;
/// For one host: whoever asks waits for all of them.
const DEADLINE: Duration = Duration::from_secs(30);

/// The route, for those with the token.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    // One at a time: each keeps the BMCs of a whole site busy.
    let one = Arc::new(Semaphore::new(1));
    Router::new()
        .route("/api/v1/rehearsals", post(ask).fallback(not_that_way))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(one)
}

async fn ask(
    State(one): State<Arc<Semaphore>>,
    text: Result<String, StringRejection>,
) -> Result<Json<Rehearsal>, Refusal> {
    let text = text.map_err(|rejection| {
        Refusal::new(
            rejection.status(),
            rejection.body_text(),
            "send BareMetalHosts and Secrets in YAML, at most 1 MiB",
        )
    })?;
    let hosts = manifests::read(&text).map_err(|error| {
        let hint = "send BareMetalHosts and their Secrets in YAML, as `kubectl apply -f` takes them";
        Refusal::new(StatusCode::BAD_REQUEST, error.to_string(), hint)
    })?;
    let _one = one.try_acquire().map_err(|_| too_many("another rehearsal is under way", 10))?;
    let (rehearsal, _) = rehearse(hosts, &Plan { deadline: DEADLINE, keep_answers: false, ..Plan::default() }).await;
    Ok(Json(rehearsal))
}
