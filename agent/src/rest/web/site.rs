//! `PUT /api/v1/site` and `POST /api/v1/site/report`: a Site comes in, a report goes out.

use std::path::Path;
use std::sync::Arc;

use agent_api::boot::RELEASE;
use agent_api::net::Cidr;
use agent_api::release::Release;
use agent_api::rest::SiteReport;
use agent_api::site::{MOST_BYTES, Site};
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::StringRejection;
use axum::http::StatusCode;
use tokio::task::spawn_blocking;

use super::routes::App;
use crate::door::Refusal;
use crate::host::files;

/// Keeps a Site for the next start. Wrong ones are refused with the line and the key that is wrong.
pub(super) async fn keep(
    State(app): State<Arc<App>>,
    text: Result<String, StringRejection>,
) -> Result<StatusCode, Refusal> {
    let text = text.map_err(|rejection| {
        let hint = format!("send the YAML text of a Site, at most {} KiB", MOST_BYTES / 1024);
        Refusal::new(rejection.status(), rejection.body_text(), hint)
    })?;
    let wrong = |error: &dyn std::fmt::Display| {
        Refusal::new(StatusCode::BAD_REQUEST, error.to_string(), "kind: Site, apiVersion: foothold.dev/v1")
    };
    let clusters = clusters(&app.options.root);
    Site::parse_beside(&text, &clusters).map_err(|error| wrong(&error))?;
    let path = app.options.stored_site.clone();
    let kept = spawn_blocking(move || files::write_durably(&path, text.as_bytes(), files::SECRET)).await;
    let failed = |error: &dyn std::fmt::Display| {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), "look at the box's disk")
    };
    kept.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    // It is read at the next start, before whatever lies on volumes.
    Ok(StatusCode::ACCEPTED)
}

/// Networks of the box's cluster. A box that does not know its own release has none yet.
fn clusters(root: &Path) -> Vec<(&'static str, Cidr)> {
    let release = fs_err::read(root.join(RELEASE.trim_start_matches('/'))).unwrap_or_default();
    serde_json::from_slice::<Release>(&release).map(|release| release.kubernetes.networks()).unwrap_or_default()
}

/// Asks for a report on the SITE partition. How that ends is told as the event `services/site-report`.
pub(super) async fn report(State(app): State<Arc<App>>) -> Result<(StatusCode, Json<SiteReport>), Refusal> {
    let site_out = Arc::clone(&app.options.site_out);
    let place = spawn_blocking(move || site_out.place().inspect(|_| site_out.ask())).await;
    let failed = |error: &dyn std::fmt::Display| {
        let hint = "images written to a disk or stick have a partition SITE; a CD has none";
        Refusal::new(StatusCode::CONFLICT, error.to_string(), hint)
    };
    let place = place.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    Ok((StatusCode::ACCEPTED, Json(SiteReport { device: place.device })))
}
