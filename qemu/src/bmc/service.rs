//! One request: who asks, what for, what is answered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State as Shared};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::Asked;
use super::change::{Change, Guard, Outcome, hex};
use super::console::Offer;
use super::document::Facts;
use super::events::{Letter, changed, envelope};
use super::faults::{self, Faults};
use super::images::Images;
use super::place::{Place, ROOT};
use super::power::{Act, Power};
use super::profile::{Owner, Profile};
use super::refusal::Refusal;
use super::state::{Machine, Medium, State};

/// Most bytes of a request's body.
const BODY_BYTES: usize = 1 << 20;
/// Header of a session's token (DSP0266, "Session-based authentication").
const TOKEN: &str = "x-auth-token";

/// All that a BMC is.
pub(super) struct Service {
    pub profile: Profile,
    pub guard: Arc<dyn Guard>,
    pub machine: Machine,
    pub power: Arc<dyn Power>,
    pub images: Images,
    /// How its serial console is reached, if it has one.
    pub console: Option<Offer>,
    pub state: Mutex<State>,
    pub faults: Mutex<Faults>,
    pub asked: Mutex<Vec<Asked>>,
    /// Answers so far, for faults that come and go.
    pub answers: AtomicU64,
    pub letters: mpsc::UnboundedSender<Letter>,
    /// What takes a system's own time: done behind the answer.
    pub later: mpsc::UnboundedSender<&'static [Act]>,
    pub client: reqwest::Client,
    /// One change of power or media at a time.
    pub switch: tokio::sync::Mutex<()>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one assignment: the value is valid whoever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers one request.
pub(super) async fn answer(Shared(service): Shared<Arc<Service>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    lock(&service.asked).push(Asked { method: request.method().to_string(), path });
    let delay = lock(&service.faults).delay();
    sleep(delay).await;
    let mut response = service.respond(request).await.unwrap_or_else(IntoResponse::into_response);
    response.headers_mut().insert("odata-version", HeaderValue::from_static("4.0"));
    response
}

impl Service {
    pub(super) async fn respond(&self, request: Request) -> Result<Response, Refusal> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let place = self.place(path);
        let opens = parts.method == Method::POST && place == Some(Place::Sessions);
        if opens {
            self.may_open()?;
        } else if !place.as_ref().is_some_and(Place::is_open) {
            self.let_in(&parts.headers)?;
        }
        self.respond_to(place, parts, body).await
    }

    /// What lies at a path.
    fn place(&self, path: &str) -> Option<Place> {
        Place::of(&self.profile, self.machine.macs.len(), path)
    }

    /// Answers a request of somebody who was let in already.
    pub async fn answer_inside(&self, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let place = self.place(parts.uri.path());
        self.respond_to(place, parts, body).await.unwrap_or_else(IntoResponse::into_response)
    }

    async fn respond_to(&self, place: Option<Place>, parts: Parts, body: Body) -> Result<Response, Refusal> {
        let path = parts.uri.path();
        let place = place.ok_or_else(|| Refusal::missing(path))?;
        if self.profile.slashes && !path.ends_with('/') {
            let to = HeaderValue::from_str(&format!("{path}/")).map_err(|_| Refusal::missing(path))?;
            return Ok((StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, to)]).into_response());
        }
        if matches!(parts.method, Method::GET | Method::HEAD) {
            return self.read(&place, path, &parts.headers).await;
        }
        self.check_precondition(&place, &parts.headers).await?;
        let bytes = to_bytes(body, BODY_BYTES).await.map_err(|_| Refusal::json())?;
        let body = if bytes.is_empty() {
            Value::Object(serde_json::Map::new())
        } else {
            serde_json::from_slice(&bytes).map_err(|_| Refusal::json())?
        };
        let on = self.is_on().await;
        let change = Change { profile: &self.profile, guard: &*self.guard, place, body, on, now: Timestamp::now() };
        let outcome = {
            let mut state = lock(&self.state);
            match parts.method {
                Method::PATCH => change.patch(&mut state)?,
                Method::POST => change.post(&mut state)?,
                Method::DELETE => change.delete(&mut state)?,
                _ => return Err(Refusal::method()),
            }
        };
        let finished = self.finish(outcome).await;
        self.keep().await;
        finished
    }

    /// Has the machine keep what must outlive this service.
    async fn keep(&self) {
        let (power, kept) = (Arc::clone(&self.power), lock(&self.state).kept());
        if let Err(error) = spawn_blocking(move || power.keep(&kept)).await.unwrap_or(Ok(())) {
            log::warn!("BMC of `{}`: {error}: {}", self.machine.name, error.source);
        }
    }

    /// Whether a session can be opened at all.
    fn may_open(&self) -> Result<(), Refusal> {
        let faults = lock(&self.faults);
        match (faults.refuse_credentials, faults.refuse_sessions) {
            (true, _) => Err(Refusal::no_session()),
            (_, true) => Err(Refusal::too_many_sessions()),
            _ => Ok(()),
        }
    }

    /// Basic authentication, or a session's token (DSP0266, "Authentication").
    pub(super) fn let_in(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if lock(&self.faults).refuse_credentials {
            return Err(Refusal::no_session());
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(token) = text(TOKEN) {
            let known = lock(&self.state).sessions.values().any(|session| session.token == token);
            return if known { Ok(()) } else { Err(Refusal::no_session()) };
        }
        if lock(&self.faults).refuse_basic {
            return Err(Refusal::no_session());
        }
        let basic = text(header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Basic "));
        let plain = basic.and_then(|coded| STANDARD.decode(coded.trim()).ok());
        let plain = plain.and_then(|plain| String::from_utf8(plain).ok());
        let known = plain.as_deref().and_then(|plain| plain.split_once(':'));
        if known.is_some_and(|(user, password)| self.guard.lets_in(user, password)) {
            Ok(())
        } else {
            Err(Refusal::no_session())
        }
    }

    async fn is_on(&self) -> bool {
        let power = Arc::clone(&self.power);
        spawn_blocking(move || power.is_on()).await.unwrap_or(false)
    }

    pub(super) async fn document(&self, place: &Place) -> Option<Value> {
        let on = self.is_on().await;
        let number = self.answers.load(Ordering::Relaxed);
        let state = lock(&self.state).clone();
        let on = lock(&self.faults).told(on, number);
        let (profile, machine, console) = (&self.profile, &self.machine, self.console.as_ref());
        let facts = Facts { profile, machine, console, state: &state, on, now: Timestamp::now() };
        facts.document(place)
    }

    async fn read(&self, place: &Place, path: &str, headers: &HeaderMap) -> Result<Response, Refusal> {
        let refusal = || if place.is_action() { Refusal::method() } else { Refusal::missing(path) };
        let document = self.document(place).await.ok_or_else(refusal)?;
        if !self.profile.etags {
            return Ok(Json(document).into_response());
        }
        let tag = etag(&document);
        if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
            return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
        }
        Ok(([(header::ETAG, tag)], Json(document)).into_response())
    }

    /// `If-Match` (DSP0266, "ETags"): a change of something that has changed since it was read is refused.
    async fn check_precondition(&self, place: &Place, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(wanted) = headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok()) else { return Ok(()) };
        if !self.profile.etags || wanted == "*" {
            return Ok(());
        }
        let Some(document) = self.document(place).await else { return Ok(()) };
        let tag = etag(&document);
        if wanted.split(',').any(|one| one.trim() == tag) { Ok(()) } else { Err(Refusal::precondition()) }
    }

    async fn finish(&self, outcome: Outcome) -> Result<Response, Refusal> {
        match outcome {
            Outcome::Done(place, status) => {
                let document = self.document(&place).await.unwrap_or_default();
                let location = document["@odata.id"].as_str().and_then(|path| HeaderValue::from_str(path).ok());
                let mut response = (status, Json(document)).into_response();
                let made = matches!(status, StatusCode::CREATED | StatusCode::ACCEPTED);
                if let Some(location) = location.filter(|_| made) {
                    response.headers_mut().insert(header::LOCATION, location);
                }
                Ok(response)
            }
            Outcome::Opened { id, token } => {
                let document = self.document(&Place::Session(id.clone())).await.unwrap_or_default();
                let location = format!("{ROOT}/SessionService/Sessions/{id}");
                let headers = [(header::LOCATION.as_str(), location), (TOKEN, token)];
                Ok((StatusCode::CREATED, headers, Json(document)).into_response())
            }
            Outcome::Power(acts) if acts.contains(&Act::ShutDown) => {
                // The task that does it ends with the BMC only.
                let _ = self.later.send(acts);
                Ok(done())
            }
            Outcome::Power(acts) => self.switch(acts).await,
            Outcome::Medium(index, medium) => self.change_medium(index, medium).await,
            Outcome::Tell(event) => {
                self.tell(&event);
                Ok(done())
            }
            Outcome::Empty => Ok(done()),
        }
    }

    /// Does what was put off, until nobody asks any more.
    pub async fn switch_later(&self, mut acts: mpsc::UnboundedReceiver<&'static [Act]>) {
        while let Some(acts) = acts.recv().await {
            // Why it failed is logged; nobody waits for an answer.
            let _ = self.switch(acts).await;
            self.keep().await;
        }
    }

    async fn switch(&self, acts: &'static [Act]) -> Result<Response, Refusal> {
        let _one = self.switch.lock().await;
        if lock(&self.faults).power == faults::PowerFault::Deaf {
            return Ok(done());
        }
        for &act in acts {
            let boot = lock(&self.state).next_boot();
            let power = Arc::clone(&self.power);
            let acted = spawn_blocking(move || power.act(act, boot)).await;
            acted.map_err(|error| Refusal::internal(&error.to_string()))?.map_err(|error| {
                log::warn!("BMC of `{}`: {error}: {}", self.machine.name, error.source);
                Refusal::internal(&error.to_string())
            })?;
            if matches!(act, Act::On | Act::Reset) {
                lock(&self.state).booted();
            }
        }
        if !acts.is_empty() {
            let system = format!("{ROOT}/Systems/{}", self.profile.ids.system);
            self.tell(&changed(&system, "The power state of the system has changed."));
        }
        Ok(done())
    }

    async fn change_medium(&self, index: usize, medium: Option<Medium>) -> Result<Response, Refusal> {
        let _one = self.switch.lock().await;
        let file = match &medium {
            None => None,
            Some(medium) => {
                let fetched = self.images.fetch(&self.client, &medium.image, index).await;
                fetched.map_err(|why| Refusal::parameter_value("InsertMedia", "Image", &why))?
            }
        };
        let power = Arc::clone(&self.power);
        let disc = |types: &[String]| types.iter().any(|kind| kind == "CD" || kind == "DVD");
        if self.profile.media.drives.get(index).is_some_and(|drive| disc(&drive.types)) {
            let inserted = spawn_blocking(move || power.insert(file.as_deref())).await;
            let inserted = inserted.map_err(|error| Refusal::internal(&error.to_string()))?;
            inserted.map_err(|error| Refusal::internal(&error.to_string()))?;
        }
        if let Some(place) = lock(&self.state).media.get_mut(index) {
            *place = medium;
        }
        let owner = self.profile.media.under.first().copied().unwrap_or(Owner::Manager);
        if let Some(document) = self.document(&Place::Medium(owner, index)).await {
            self.tell(&changed(document["@odata.id"].as_str().unwrap_or_default(), "The medium has changed."));
        }
        Ok(done())
    }

    fn tell(&self, event: &Value) {
        let mut state = lock(&self.state);
        let id = state.next();
        for to in state.subscriptions.values() {
            let event = envelope(id, event.clone(), &to.context, Timestamp::now());
            // The task that delivers ends with the BMC only.
            let _ = self.letters.send(Letter { to: to.clone(), event });
        }
    }
}

fn done() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Of what is told, but for the time.
fn etag(document: &Value) -> String {
    let mut document = document.clone();
    if let Some(map) = document.as_object_mut() {
        map.remove("DateTime");
    }
    let hash = Sha256::digest(document.to_string());
    format!("\"{}\"", &hex(&hash)[..16])
}
