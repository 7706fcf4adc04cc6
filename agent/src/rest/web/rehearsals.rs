//! `POST /api/v1/rehearsals`: asks the BMCs of a site, and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use agent_api::rehearsal::Rehearsal;
use agent_api::rest::routes::REHEARSAL_BYTES;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::StringRejection;
use axum::http::StatusCode;

use super::routes::App;
use crate::bmc::manifests;
use crate::bmc::rehearsal::{self, Plan};
use crate::door::Refusal;
use crate::door::refusal::too_many;

/// Deadline for one host: the client waits for all of them.
const DEADLINE: Duration = Duration::from_secs(30);

pub(super) async fn rehearse(
    State(app): State<Arc<App>>,
    text: Result<String, StringRejection>,
) -> Result<Json<Rehearsal>, Refusal> {
    let text = text.map_err(|rejection| {
        Refusal::new(
            rejection.status(),
            rejection.body_text(),
            format!("send BareMetalHosts and Secrets in YAML, at most {} MiB", REHEARSAL_BYTES >> 20),
        )
    })?;
    // Before it is read: one such text at a time is enough for the box's memory.
    let _one = app.rehearsal.try_acquire().map_err(|_| too_many("another rehearsal is under way", 10))?;
    let read = tokio::task::spawn_blocking(move || manifests::read(&text)).await;
    // It is never cancelled.
    let read = read.unwrap_or_else(|ended| std::panic::resume_unwind(ended.into_panic()));
    let hosts = read.map_err(|error| {
        let hint = "send BareMetalHosts and their Secrets in YAML, as `kubectl apply -f` takes them";
        Refusal::new(StatusCode::BAD_REQUEST, error.to_string(), hint)
    })?;
    let (rehearsal, _) =
        rehearsal::rehearse(hosts, &Plan { deadline: DEADLINE, keep_answers: false, ..Plan::default() }).await;
    Ok(Json(rehearsal))
}
