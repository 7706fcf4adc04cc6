//! `POST /api/v1/bundles`: a release that is to run next is sent.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::routes::App;
use crate::door::refusal::too_many;
use crate::door::{Refusal, incoming};
use crate::releases::BundleRefused;

/// A bundle: what turns the release that runs into another. Whole, or not at all.
pub(super) async fn take(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refusal> {
    let releases = app.options.releases.clone();
    let taken = incoming::with_body(request.into_body(), move |body| releases.take(body)).await;
    let taken = taken.map_err(|error| {
        let hint = "the box has taken nothing; see its journal";
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), hint)
    })?;
    Ok((StatusCode::CREATED, Json(taken.map_err(|refused| refused_bundle(&refused))?)).into_response())
}

fn refused_bundle(refused: &BundleRefused) -> Refusal {
    let (status, hint) = match refused {
        BundleRefused::Shape(_) => (StatusCode::BAD_REQUEST, "send the file that `foothold diff --bundle` wrote"),
        BundleRefused::Signature(_) => {
            (StatusCode::FORBIDDEN, "sign both releases and the bundle with one key (`sign.key` of the definition)")
        }
        BundleRefused::Base { .. } => (StatusCode::CONFLICT, "make the bundle from the image that this box runs"),
        BundleRefused::Damaged { .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, "send it again; if that fails, make it again")
        }
        BundleRefused::Incomplete { .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, "make the bundle again from whole images")
        }
        BundleRefused::NoRoom { .. } => (StatusCode::INSUFFICIENT_STORAGE, "make room on DATA"),
        BundleRefused::Cut(_) => (StatusCode::BAD_REQUEST, "send it again: the box has kept nothing of it"),
        BundleRefused::Disk(_) => (StatusCode::INTERNAL_SERVER_ERROR, "look at the box's disk"),
        BundleRefused::Unknown(_) => (StatusCode::SERVICE_UNAVAILABLE, "start the box from its medium"),
        BundleRefused::Busy => return too_many("another bundle is being taken", 10),
    };
    Refusal::new(status, refused.to_string(), hint)
}
