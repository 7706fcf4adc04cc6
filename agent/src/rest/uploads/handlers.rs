//! The routes, and the handlers of all but PATCH.

use std::sync::{Arc, OnceLock};

use agent_api::bpa::routes::Operation;
use agent_api::bpa::{FORM_BYTES, ImageList, PAGE, openapi};
use agent_api::site::Site;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter};
use axum::{Json, Router, middleware};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::access::{Caller, Clients, only_known};
use super::answers::Answer;
use super::form;
use super::upload::{kind_of, upload};
use crate::door::guard::in_time;
use crate::door::{Gate, Refusal};
use crate::uploads::{Record, UploadError, UploadKey, Uploads};

pub(super) const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");

/// What the handlers share.
pub(super) struct App {
    pub(super) uploads: Uploads,
    pub(super) gate: Arc<Gate>,
    pub(super) clients: Arc<Clients>,
    pub(super) site: watch::Receiver<Option<Arc<Site>>>,
}

impl App {
    /// Whether the client wants the old statuses.
    pub(super) fn compat(&self) -> bool {
        self.site.borrow().as_ref().is_some_and(|site| site.uploads.compat)
    }
}

type Shared = State<Arc<App>>;
type OfImage = Path<(String, String, String, String)>;
type OfCluster = Path<(String, String, String)>;

/// The handler of each route.
fn handler(operation: Operation) -> MethodRouter<Arc<App>> {
    match operation {
        Operation::Create => routing::post(create),
        Operation::List => routing::get(list),
        Operation::Get => routing::get(tell),
        Operation::Head => routing::head(tell),
        Operation::Update => routing::put(update),
        Operation::Upload => routing::patch(upload),
        Operation::Delete => routing::delete(remove),
        Operation::Storage => routing::get(storage),
        Operation::Document => routing::get(document),
    }
}

/// All routes with their limits.
pub(super) fn router(app: App) -> Router {
    let app = Arc::new(app);
    let (mut quick, mut slow) = (Router::new(), Router::new());
    for operation in Operation::ALL {
        let to = if operation.is_slow() { &mut slow } else { &mut quick };
        *to = std::mem::take(to).route(operation.template(), handler(operation));
    }
    slow.merge(quick.layer(middleware::from_fn(in_time)))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_that_way)
        .layer(DefaultBodyLimit::max(FORM_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), only_known))
        .with_state(app)
}

async fn nothing_here(uri: Uri) -> Refusal {
    let hint = "see /openapi.json: /v1/baremetalcluster/{owner}/{clustername}/{binary,container,os}_images";
    Refusal::new(StatusCode::NOT_FOUND, format!("nothing at `{}`", uri.path()), hint)
}

async fn not_that_way() -> Refusal {
    let hint = "POST and GET on a collection; GET, HEAD, PUT, PATCH and DELETE on an image";
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "not with this method", hint)
}

/// The image of a path, for a client that may have it.
pub(super) fn key_of(caller: &Caller, kind: &str, owner: &str, cluster: &str, name: &str) -> Result<UploadKey, Answer> {
    caller.may(owner)?;
    UploadKey::new(kind_of(kind)?, owner, cluster, name)
        .map_err(|error| Answer::text(StatusCode::BAD_REQUEST, error.to_string()))
}

/// The box as the client calls it.
fn host_of(uri: &Uri, headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = uri.authority().cloned().or_else(|| host?.parse().ok());
    authority.map_or_else(|| "localhost".to_owned(), |authority| authority.host().to_owned())
}

/// Runs what may wait for the disk on a thread where it blocks nothing else.
async fn on_disk<T: Send + 'static>(
    app: &Arc<App>,
    act: impl FnOnce(&Uploads) -> Result<T, UploadError> + Send + 'static,
) -> Result<T, Answer> {
    let uploads = app.uploads.clone();
    let acted = spawn_blocking(move || act(&uploads)).await;
    acted.map_err(|error| Answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?.map_err(Answer::from)
}

fn answer(app: &App, result: Result<Response, Answer>) -> Response {
    result.unwrap_or_else(|answer| answer.compat(app.compat()).into_response())
}

fn told(status: StatusCode, record: &Record, host: &str) -> Response {
    let mut response = (status, Json(record.image(host))).into_response();
    let headers = response.headers_mut();
    headers.insert(UPLOAD_OFFSET, HeaderValue::from(record.offset()));
    headers.insert(UPLOAD_LENGTH, HeaderValue::from(record.length));
    let tag = record.digest.as_ref().and_then(|digest| HeaderValue::from_str(&format!("\"{digest}\"")).ok());
    tag.map(|tag| headers.insert(header::ETAG, tag));
    response
}

async fn create(
    State(app): Shared,
    Extension(caller): Extension<Caller>,
    Path((owner, cluster, kind)): OfCluster,
    request: Request,
) -> Response {
    let host = host_of(request.uri(), request.headers());
    let created = async {
        caller.may(&owner)?;
        kind_of(&kind)?;
        let (name, announced) = form::read(request).await?.check(&owner, &cluster, None)?;
        let key = key_of(&caller, &kind, &owner, &cluster, &name)?;
        let record = on_disk(&app, move |uploads| uploads.create(key, announced)).await?;
        Ok(told(StatusCode::CREATED, &record, &host))
    };
    answer(&app, created.await)
}

async fn update(
    State(app): Shared,
    Extension(caller): Extension<Caller>,
    Path((owner, cluster, kind, name)): OfImage,
    request: Request,
) -> Response {
    let host = host_of(request.uri(), request.headers());
    let updated = async {
        caller.may(&owner)?;
        kind_of(&kind)?;
        let (_, announced) = form::read(request).await?.check(&owner, &cluster, Some(&name))?;
        let key = key_of(&caller, &kind, &owner, &cluster, &name)?;
        let updated = on_disk(&app, move |uploads| uploads.update(&key, announced)).await;
        let record = updated.map_err(|answer| match answer {
            Answer::Old(status, text) => Answer::Old(status, format!("Update Error - {text}")),
            other @ (Answer::Text(..) | Answer::Bare(_) | Answer::Door(_)) => other,
        })?;
        Ok(told(StatusCode::CREATED, &record, &host))
    };
    answer(&app, updated.await)
}

async fn tell(
    State(app): Shared,
    Extension(caller): Extension<Caller>,
    Path((owner, cluster, kind, name)): OfImage,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let found = key_of(&caller, &kind, &owner, &cluster, &name)
        .and_then(|key| app.uploads.get(&key).ok_or_else(|| UploadError::Missing.into()));
    answer(&app, found.map(|record| told(StatusCode::OK, &record, &host_of(&uri, &headers))))
}

async fn remove(
    State(app): Shared,
    Extension(caller): Extension<Caller>,
    Path((owner, cluster, kind, name)): OfImage,
) -> Response {
    let removed = async {
        let key = key_of(&caller, &kind, &owner, &cluster, &name)?;
        on_disk(&app, move |uploads| uploads.remove(&key)).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    answer(&app, removed.await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    after: String,
    limit: Option<usize>,
}

async fn list(
    State(app): Shared,
    Extension(caller): Extension<Caller>,
    Path((owner, cluster, kind)): OfCluster,
    query: Result<Query<Page>, QueryRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let host = host_of(&uri, &headers);
    let listed = || {
        caller.may(&owner)?;
        let kind = kind_of(&kind)?;
        let wrong = |text: String| Answer::text(StatusCode::BAD_REQUEST, text);
        let Query(page) = query.map_err(|rejection| wrong(rejection.body_text()))?;
        let limit = page.limit.unwrap_or(PAGE).clamp(1, PAGE);
        // The names of owner and cluster are checked as for any image.
        UploadKey::new(kind, &owner, &cluster, "any").map_err(|error| wrong(error.to_string()))?;
        let mut records = app.uploads.page(kind, &owner, &cluster, &page.after, limit + 1);
        let more = records.len() > limit;
        records.truncate(limit);
        let next = records.last().filter(|_| more).map(|last| last.key.name.clone());
        let images = records.iter().map(|record| record.image(&host)).collect();
        Ok(Json(ImageList { images, next }).into_response())
    };
    answer(&app, listed())
}

async fn document() -> Response {
    // Made when somebody wants it: a start has better things to do.
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| Bytes::from(openapi().to_string()));
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], document.clone()).into_response()
}

async fn storage(State(app): Shared) -> Response {
    let told = on_disk(&app, |uploads| Ok(uploads.storage()?)).await;
    answer(&app, told.map(|storage| Json(storage).into_response()))
}
