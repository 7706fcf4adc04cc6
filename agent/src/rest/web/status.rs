//! `GET /api/v1/status`, `/timeline` and `/support-bundle`: how the box is, briefly and at length.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::routes::App;
use crate::door::refusal::too_many;
use crate::door::{Refusal, body};
use crate::events::uptime;
use crate::support::{bundle, timeline};

pub(super) async fn status(State(app): State<Arc<App>>) -> Response {
    let mut status = app.options.vitals.box_status(&app.options.bus, &app.options.certificate.fingerprint);
    status.releases = app.options.releases.list();
    Json(status).into_response()
}

pub(super) async fn timeline(State(app): State<Arc<App>>) -> Response {
    Json(timeline::timeline(&app.options.bus.beginning(), uptime())).into_response()
}

pub(super) async fn support_bundle(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let one = Arc::clone(&app.bundle).try_acquire_owned();
    let one = one.map_err(|_| too_many("another support bundle is being made", 10))?;
    let (sender, body) = body::channel();
    let sources = bundle::BundleSources {
        status: app.options.vitals.box_status(&app.options.bus, &app.options.certificate.fingerprint),
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
fn start_bundle(sources: bundle::BundleSources, sender: mpsc::Sender<Bytes>, one: tokio::sync::OwnedSemaphorePermit) {
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
