//! Redfish, as much as reading takes: a session, GET, and the end of the session.
//!
//! Who asks is let in as sushy is, Ironic's library: by a session, and where none opens, by basic authentication. By DMTF's
//! DSP0266 ("Redfish Specification").
//!
//! It is written by hand because clients such as the crates `redfish` and `nv-redfish` bring typed models and actions that
//! nobody here calls, and hide what a rehearsal judges: how a session opens, which links are there, what TLS says.

use std::error::Error as _;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_api::metal3::bmc_address::Credentials;
use reqwest::{Client, Method, StatusCode, Url, header, redirect};
use serde_json::{Value, json};

use super::answer;
use super::hello::{self, Spoken};
use super::trust::{self, AuthorityError, CertificateProblem, Trust};

/// DSP0266, "Redfish-defined URIs": where a service begins.
pub const ROOT: &str = "/redfish/v1/";
/// How often a question is asked before it counts as unanswered.
const TRIES: u32 = 3;
/// Between two tries.
const BETWEEN: Duration = Duration::from_millis(200);
/// Most bytes of an answer: real ones are a few KiB.
const ANSWER_BYTES: usize = 4 << 20;
/// iLO has paths without a slash at their end answered with 308.
const REDIRECTS: usize = 3;

/// Header of a session's token (DSP0266, "Session-based authentication").
const TOKEN: &str = "X-Auth-Token";
/// Most members of a collection that are looked at.
const MEMBERS: usize = 32;

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RedfishError {
    /// Our client cannot be made.
    #[error("making the HTTPS client")]
    Client(#[source] reqwest::Error),
    /// The text that was given as certificates cannot be read.
    #[error("reading `ca.crt`")]
    Authorities(#[from] AuthorityError),
    /// Nobody listens there.
    #[error("no connection")]
    Unreachable(#[source] reqwest::Error),
    /// The certificate is not trusted.
    #[error("the certificate is not trusted: {problem}")]
    Untrusted {
        /// Why.
        problem: CertificateProblem,
        /// Whether certificates to trust were given.
        given: bool,
    },
    /// There is somebody, but no TLS comes about.
    #[error("{0}")]
    Tls(Spoken),
    /// It takes too long.
    #[error("no answer within {secs:.1} s, asked {tries} times")]
    Late {
        /// Seconds waited for each.
        secs: f64,
        /// How often it was asked.
        tries: u32,
    },
    /// The connection ended without an answer.
    #[error("the connection was closed without an answer, {tries} times")]
    Dropped {
        /// How often it was asked.
        tries: u32,
        /// The last time's cause.
        #[source]
        source: reqwest::Error,
    },
    /// It says no.
    #[error("`{path}`: {status}{message}")]
    Status {
        /// What was asked.
        path: String,
        /// HTTP status.
        status: StatusCode,
        /// `: ` and the BMC's own words, or nothing.
        message: String,
    },
    /// What it says is no Redfish.
    #[error("`{path}`: the answer is {what}")]
    Form {
        /// What was asked.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl RedfishError {
    /// HTTP status, if there was an answer.
    pub const fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether it is in vain to ask for anything else.
    pub const fn is_final(&self) -> bool {
        !matches!(self, Self::Status { .. } | Self::Form { .. })
    }
}

/// One question and its answer, for the export.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Path.
    pub path: String,
    /// HTTP status.
    pub status: u16,
    /// Body; `null` when it is no JSON.
    pub body: Value,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Body.
    pub body: Value,
    /// The header `Date`.
    pub date: Option<String>,
    /// From the question to the end of the answer.
    pub took: Duration,
}

/// A Redfish service that is only read.
pub struct Redfish {
    client: Client,
    base: String,
    credentials: Option<Credentials>,
    /// Whether certificates to trust were given.
    given: bool,
    within: Duration,
    session: Mutex<Option<Session>>,
    heard: Mutex<Heard>,
}

/// An open session.
#[derive(Clone)]
struct Session {
    token: String,
    /// Path of it, to end it.
    path: Option<String>,
}

#[derive(Default)]
struct Heard {
    asked: u32,
    unanswered: u32,
    slowest: Duration,
    exchanges: Vec<Exchange>,
}

impl Redfish {
    /// A service at `base` (`https://HOST:PORT`). `within`: for each answer.
    pub fn new(
        base: &str,
        credentials: Option<Credentials>,
        trust: &Trust,
        within: Duration,
    ) -> Result<Self, RedfishError> {
        let base = base.trim_end_matches('/').to_owned();
        let (given, unbuilt) = match trust {
            Trust::Anybody => (false, builder(&base, within).tls_danger_accept_invalid_certs(true)),
            Trust::System => (false, builder(&base, within)),
            Trust::Authorities(known) => (true, trusting(builder(&base, within), known)?),
        };
        let client = match unbuilt.build() {
            // A system without any authority trusts nobody.
            Err(_) if matches!(trust, Trust::System) => {
                trusting(builder(&base, within), &[])?.build().map_err(RedfishError::Client)?
            }
            made => made.map_err(RedfishError::Client)?,
        };
        let (session, heard) = (Mutex::default(), Mutex::default());
        Ok(Self { client, base, credentials, given, within, session, heard })
    }

    /// The service root, which needs no credentials (DSP0266, "Authentication"). With some vendors it does.
    pub async fn root(&self) -> Result<Answer, RedfishError> {
        self.ask(ROOT, false).await
    }

    /// Opens a session at the service with this root, or says why there is none: then it is asked by basic authentication.
    pub async fn open(&self, root: &Value) -> Result<(), RedfishError> {
        let Some(Credentials { username, password }) = &self.credentials else { return Ok(()) };
        let service = || link(root, "SessionService").map(|path| format!("{}/Sessions", path.trim_end_matches('/')));
        let path = link(&root["Links"], "Sessions").or_else(service);
        let path = path.unwrap_or_else(|| "/redfish/v1/SessionService/Sessions".to_owned());
        let body = json!({"UserName": username, "Password": password});
        let asked = self.request(Method::POST, &path).json(&body).send().await;
        let answer = match asked {
            Ok(answer) => answer,
            Err(error) => return Err(self.lost(&path, Lost::of(error), 1).await),
        };
        let (status, headers) = (answer.status(), answer.headers().clone());
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = self.body(answer).await.unwrap_or(Err(answer::NO_JSON));
        if !status.is_success() {
            return judge(&path, status, body).map(drop);
        }
        let Some(token) = text(TOKEN) else {
            return Err(RedfishError::Form { path, what: "a session without a token" });
        };
        let path = text("Location").and_then(|place| {
            let place = Url::parse(&self.base).ok()?.join(&place).ok()?;
            Some(place.path().to_owned())
        });
        let path = path.or_else(|| link(&body.unwrap_or_default(), ""));
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(Session { token, path });
        Ok(())
    }

    /// Ends the session, if there is one. The BMC ends it after a while anyway.
    pub async fn close(&self) {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Session { token, path: Some(path) }) = session {
            let _ = self.request(Method::DELETE, &path).header(TOKEN, token).send().await;
        }
    }

    /// A resource, as whom the credentials say.
    pub async fn get(&self, path: &str) -> Result<Answer, RedfishError> {
        self.ask(path, true).await
    }

    /// Questions so far, how many tries of them went unanswered, and how long the slowest answer took.
    pub fn count(&self) -> (u32, u32, Duration) {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        (heard.asked, heard.unanswered, heard.slowest)
    }

    /// All answers so far.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).exchanges.clone()
    }

    async fn ask(&self, path: &str, known: bool) -> Result<Answer, RedfishError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let begun = Instant::now();
            let asked = self.ask_once(path, known).await;
            let took = begun.elapsed();
            self.remember(path, asked.as_ref().ok(), took);
            match asked {
                Ok(Told { status, date, body }) => {
                    return judge(path, status, body).map(|body| Answer { body, date, took });
                }
                Err(error) if tries == TRIES || matches!(error, Lost::Untrusted(_) | Lost::Endless) => {
                    return Err(self.lost(path, error, tries).await);
                }
                Err(_) => tokio::time::sleep(BETWEEN).await,
            }
        }
    }

    /// Writes down that it was asked, and what was told.
    fn remember(&self, path: &str, told: Option<&Told>, took: Duration) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.asked += 1;
        let Some(told) = told else {
            heard.unanswered += 1;
            return;
        };
        heard.slowest = heard.slowest.max(took);
        let body = told.body.clone().unwrap_or_default();
        heard.exchanges.push(Exchange { path: path.to_owned(), status: told.status.as_u16(), body });
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        // DSP0266, "Request headers".
        let request = self.client.request(method, format!("{}{path}", self.base)).header("OData-Version", "4.0");
        request.header(header::ACCEPT, "application/json")
    }

    async fn ask_once(&self, path: &str, known: bool) -> Result<Told, Lost> {
        let mut request = self.request(Method::GET, path);
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (session, self.credentials.as_ref()) {
            (Some(session), _) if known => request = request.header(TOKEN, session.token),
            (None, Some(Credentials { username, password })) if known => {
                request = request.basic_auth(username, Some(password));
            }
            _ => {}
        }
        let answer = request.send().await.map_err(Lost::of)?;
        let (status, date) = (answer.status(), answer.headers().get(header::DATE));
        let date = date.and_then(|date| date.to_str().ok()).map(str::to_owned);
        Ok(Told { status, date, body: self.body(answer).await? })
    }

    /// The body of an answer, or what it is instead of JSON.
    async fn body(&self, mut answer: reqwest::Response) -> Result<Result<Value, &'static str>, Lost> {
        let mut bytes = Vec::new();
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
        while let Some(part) = answer.chunk().await.map_err(Lost::of)? {
            if bytes.len() + part.len() > ANSWER_BYTES {
                return Err(Lost::Endless);
            }
            bytes.extend_from_slice(&part);
        }
        Ok(answer::read(&bytes, kind.as_deref()))
    }

    async fn lost(&self, path: &str, lost: Lost, tries: u32) -> RedfishError {
        match lost {
            Lost::Untrusted(problem) => RedfishError::Untrusted { problem, given: self.given },
            Lost::Endless => RedfishError::Form { path: path.to_owned(), what: "longer than 4 MiB" },
            Lost::Handshake(error) => self.spoken().await.map_or(RedfishError::Unreachable(error), RedfishError::Tls),
            Lost::Sent(error) if error.is_timeout() => RedfishError::Late { secs: self.within.as_secs_f64(), tries },
            Lost::Sent(error) if error.is_connect() => RedfishError::Unreachable(error),
            Lost::Sent(source) => RedfishError::Dropped { tries, source },
        }
    }

    /// What is spoken where no TLS comes about.
    async fn spoken(&self) -> Option<Spoken> {
        let base = Url::parse(&self.base).ok()?;
        let host = base.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        hello::ask(&host, base.port_or_known_default()?, self.within).await.ok()
    }
}

/// What came back.
struct Told {
    status: StatusCode,
    date: Option<String>,
    /// What it is instead, when it is no JSON.
    body: Result<Value, &'static str>,
}

/// What became of a question without an answer.
enum Lost {
    Untrusted(CertificateProblem),
    Handshake(reqwest::Error),
    Endless,
    Sent(reqwest::Error),
}

impl Lost {
    fn of(error: reqwest::Error) -> Self {
        let mut ended = false;
        let mut cause = error.source();
        while let Some(one) = cause {
            // An I/O error that wraps another error does not name it as its source, but that one's.
            let mut inner: &(dyn std::error::Error + 'static) = one;
            while let Some(io) = inner.downcast_ref::<io::Error>() {
                use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
                ended |= matches!(io.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe);
                let Some(next) = io.get_ref() else { break };
                inner = next;
            }
            match inner.downcast_ref() {
                Some(rustls::Error::InvalidCertificate(why)) => return Self::Untrusted(CertificateProblem::of(why)),
                Some(_) => return Self::Handshake(error),
                None => {}
            }
            cause = one.source();
        }
        // Connected, and closed before TLS was there.
        if ended && error.is_connect() { Self::Handshake(error) } else { Self::Sent(error) }
    }
}

/// A client that trusts these alone.
fn trusting(
    builder: reqwest::ClientBuilder,
    known: &[rustls::pki_types::CertificateDer<'static>],
) -> Result<reqwest::ClientBuilder, RedfishError> {
    Ok(builder.tls_backend_preconfigured(trust::client(known).map_err(AuthorityError::from)?))
}

fn builder(base: &str, within: Duration) -> reqwest::ClientBuilder {
    // The password goes where it belongs, and nowhere else.
    let ours = Url::parse(base).map(|url| url.origin()).ok();
    let policy = redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS || Some(attempt.url().origin()) != ours {
            attempt.stop()
        } else {
            attempt.follow()
        }
    });
    Client::builder().no_proxy().redirect(policy).timeout(within).connect_timeout(within)
}

/// The path of the collection of systems, as the service's root names it.
pub fn systems(root: &Value) -> String {
    link(root, "Systems").unwrap_or_else(|| "/redfish/v1/Systems".to_owned())
}

/// Paths of the members of a collection.
pub fn members(collection: &Value) -> Vec<String> {
    let members = collection["Members"].as_array().into_iter().flatten();
    members.filter_map(|member| link(member, "")).take(MEMBERS).collect()
}

/// The path behind a property, or of the document itself.
pub fn link(document: &Value, property: &str) -> Option<String> {
    let target = if property.is_empty() { document } else { &document[property] };
    target["@odata.id"].as_str().filter(|path| path.starts_with('/')).map(str::to_owned)
}

/// A success that is a JSON object, or why not: DSP0266, "Error responses".
fn judge(path: &str, status: StatusCode, body: Result<Value, &'static str>) -> Result<Value, RedfishError> {
    if !status.is_success() {
        let error = &body.unwrap_or_default()["error"];
        let told = error["@Message.ExtendedInfo"][0]["Message"].as_str().or_else(|| error["message"].as_str());
        let message = told.map(|told| format!(": {told}")).unwrap_or_default();
        return Err(RedfishError::Status { path: path.to_owned(), status, message });
    }
    let form = |what| RedfishError::Form { path: path.to_owned(), what };
    body.map_err(form).and_then(|body| if body.is_object() { Ok(body) } else { Err(form("no object")) })
}
