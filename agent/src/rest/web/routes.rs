//! The routes and their limits.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::QueryRejection;
use axum::http::{StatusCode, Uri};
use axum::middleware;
use axum::routing::{get, post, put};

use super::{Options, bundles, events, front, hosts, kubeconfig, page, rehearsals, site, status};
use crate::door::Refusal;
use crate::door::guard::{in_time, only_with_token, with_headers};

/// Most bytes of a request's body.
const BODY_BYTES: usize = 16 * 1024;

/// What the handlers share.
pub(super) struct App {
    pub(super) options: Options,
    pub(super) page: page::Page,
    /// One support bundle at a time: each holds a few MiB.
    pub(super) bundle: Arc<tokio::sync::Semaphore>,
}

/// All routes with their limits.
pub(super) fn router(options: Options) -> Router {
    let bundle = Arc::new(tokio::sync::Semaphore::new(1));
    let app = Arc::new(App { options, page: page::Page::new(), bundle });
    let gate = &app.options.gate;
    let guarded = Router::new()
        .route("/status", get(status::status))
        .route("/events", get(events::events))
        .route("/timeline", get(status::times))
        .route("/hosts", get(hosts::list))
        .route("/hosts/{namespace}/{name}", get(hosts::one))
        .route("/kubeconfig", get(kubeconfig::admin))
        .route("/support-bundle", get(status::support))
        .route("/site", put(site::keep))
        .route("/site/report", post(site::report))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_that_way)
        .layer(middleware::from_fn_with_state(Arc::clone(gate), only_with_token));
    // What takes as long as its sender needs.
    let slow = Router::new()
        .route("/api/v1/bundles", post(bundles::take).fallback(not_that_way))
        .merge(rehearsals::router())
        .layer(middleware::from_fn_with_state(Arc::clone(gate), only_with_token))
        .layer(middleware::from_fn(with_headers))
        .with_state(Arc::clone(&app));
    Router::new()
        .route("/", get(front::front))
        .route("/healthz", get(front::health))
        .route("/ca.crt", get(front::authority_certificate))
        .route("/api/v1/claim", post(front::claim))
        .nest("/api/v1", guarded)
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_that_way)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn(in_time))
        .with_state(app)
        .merge(slow)
}

async fn nothing_here(uri: Uri) -> Refusal {
    let hint = "see /api/v1/{status,events,timeline,hosts,kubeconfig,support-bundle,bundles,site,site/report,rehearsals}, /healthz and /";
    Refusal::new(StatusCode::NOT_FOUND, format!("nothing at `{}`", uri.path()), hint)
}

pub(super) async fn not_that_way() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "not with this method",
        "POST to /api/v1/claim, /api/v1/bundles, /api/v1/rehearsals and /api/v1/site/report, PUT to /api/v1/site, GET \
         everything else",
    )
}

/// A query that is not one of the route.
pub(super) fn bad_query(rejection: &QueryRejection, hint: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, rejection.body_text(), hint)
}
