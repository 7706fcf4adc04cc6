//! The router, made of the [list](agent_api::rest::routes): each route with its handler, and what stands before it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use agent_api::rest::openapi;
use agent_api::rest::routes::{API, BODY_BYTES, Method, Operation, Pace, Route, Who};
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use tokio::sync::Semaphore;

use super::{Options, bundles, clusters, events, front, hosts, kubeconfig, page, rehearsals, site, status};
use crate::door::guard::{in_time, only_with_token, with_headers};
use crate::door::{Gate, Refusal};

/// What the handlers share.
pub(super) struct App {
    pub(super) options: Options,
    pub(super) page: page::Page,
    /// One support bundle at a time: each holds a few MiB.
    pub(super) bundle: Arc<Semaphore>,
    /// One rehearsal at a time: each keeps the BMCs of a whole site busy.
    pub(super) rehearsal: Semaphore,
}

/// The handler of each route.
fn handler(operation: Operation) -> MethodRouter<Arc<App>> {
    let method = match operation.route().method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
    };
    match operation {
        Operation::Page => on(method, front::page),
        Operation::Health => on(method, front::health),
        Operation::Authority => on(method, front::authority),
        Operation::Document => on(method, document),
        Operation::Claim => on(method, front::claim),
        Operation::Status => on(method, status::status),
        Operation::Events => on(method, events::events),
        Operation::Timeline => on(method, status::timeline),
        Operation::Hosts => on(method, hosts::list),
        Operation::Host => on(method, hosts::one),
        Operation::Clusters => on(method, clusters::list),
        Operation::Cluster => on(method, clusters::one),
        Operation::ClusterKubeconfig => on(method, clusters::kubeconfig),
        Operation::ClusterFile => on(method, clusters::file),
        Operation::Kubeconfig => on(method, kubeconfig::admin),
        Operation::SupportBundle => on(method, status::support_bundle),
        Operation::TakeBundle => on(method, bundles::take),
        Operation::Rehearse => on(method, rehearsals::rehearse),
        Operation::KeepSite => on(method, site::keep),
        Operation::ReportToSite => on(method, site::report),
    }
}

/// All routes with their limits.
pub(super) fn router(options: Options) -> Router {
    let (bundle, rehearsal) = (Arc::new(Semaphore::new(1)), Semaphore::new(1));
    let app = Arc::new(App { options, page: page::Page::new(), bundle, rehearsal });
    let gate = &app.options.gate;
    let mut paths: BTreeMap<&str, MethodRouter<Arc<App>>> = BTreeMap::new();
    for operation in Operation::ALL {
        let route = operation.route();
        let others = || behind(route, MethodRouter::new().fallback(not_that_way), gate);
        let known = paths.remove(route.path).unwrap_or_else(others);
        paths.insert(route.path, known.merge(behind(route, handler(*operation), gate)));
    }
    // Who has no token is not told what is below the API and what is not.
    let unknown =
        Router::new().fallback(nothing_here).layer(middleware::from_fn_with_state(Arc::clone(gate), only_with_token));
    let nowhere = Router::new().nest(API, unknown).fallback(nothing_here).layer(middleware::from_fn(in_time));
    let router = paths.into_iter().fold(nowhere, |router, (path, methods)| router.route(path, methods));
    router.with_state(app)
}

/// Puts before a handler what the list says of its route.
fn behind(route: &Route, handler: MethodRouter<Arc<App>>, gate: &Arc<Gate>) -> MethodRouter<Arc<App>> {
    let handler = match &route.takes {
        None => handler.layer(DefaultBodyLimit::max(BODY_BYTES)),
        Some(takes) => match takes.most_bytes {
            Some(most) => handler.layer(DefaultBodyLimit::max(most)),
            None => handler.layer(DefaultBodyLimit::disable()),
        },
    };
    let handler = match route.who {
        Who::Anybody => handler,
        Who::Token => handler.layer(middleware::from_fn_with_state(Arc::clone(gate), only_with_token)),
    };
    match route.pace {
        Pace::Soon => handler.layer(middleware::from_fn(in_time)),
        Pace::Slow => handler.layer(middleware::from_fn(with_headers)),
    }
}

async fn document() -> Response {
    // Made when somebody wants it: a start has better things to do.
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| Bytes::from(openapi().to_string()));
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], document.clone()).into_response()
}

async fn nothing_here(uri: Uri) -> Refusal {
    let routes = Operation::ALL.iter().map(|operation| operation.route()).filter(|route| route.who == Who::Token);
    let below = routes.filter_map(|route| route.path.strip_prefix(API)?.strip_prefix('/'));
    let mut below: Vec<&str> = below.filter(|path| !path.contains('{')).collect();
    below.dedup();
    let hint = format!("see {API}/{{{}}}, /openapi.json, /healthz and /", below.join(","));
    Refusal::new(StatusCode::NOT_FOUND, format!("nothing at `{}`", uri.path()), hint)
}

async fn not_that_way() -> Refusal {
    let (post, put) = (paths_of(Method::Post), paths_of(Method::Put));
    let hint = format!("POST to {post}, PUT to {put}, GET everything else");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "not with this method", hint)
}

/// `a, b and c`.
fn paths_of(method: Method) -> String {
    let routes = Operation::ALL.iter().map(|operation| operation.route()).filter(|route| route.method == method);
    let paths: Vec<&str> = routes.map(|route| route.path).collect();
    match paths.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => paths.concat(),
    }
}

/// A query that is not one of the route.
pub(super) fn bad_query(rejection: &QueryRejection, hint: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, rejection.body_text(), hint)
}
