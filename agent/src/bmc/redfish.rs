//! Redfish, as much as reading takes: GET with basic authentication, so that not even a session is made.
//!
//! By DMTF's DSP0266 ("Redfish Specification").

use std::error::Error as _;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_api::metal3::bmc_address::Credentials;
use reqwest::{Certificate, Client, StatusCode, Url, header, redirect};
use serde_json::Value;

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

/// Which certificates a BMC may have.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Any.
    Anybody,
    /// Signed by those the system knows.
    System,
    /// Signed by (or being) one of these.
    Authorities(Vec<Certificate>),
}

impl Trust {
    /// Those of a PEM text.
    pub fn authorities(pem: &str) -> Result<Self, RedfishError> {
        let certificates = Certificate::from_pem_bundle(pem.as_bytes()).map_err(RedfishError::Client)?;
        Ok(Self::Authorities(certificates))
    }
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RedfishError {
    /// Our client cannot be made: certificates that are none.
    #[error("making the HTTPS client")]
    Client(#[source] reqwest::Error),
    /// Nobody listens there.
    #[error("no connection")]
    Unreachable(#[source] reqwest::Error),
    /// The certificate is not trusted.
    #[error("the certificate is not trusted: {0}")]
    Untrusted(String),
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
    within: Duration,
    heard: Mutex<Heard>,
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
        let client = match builder(trust, &base, within).build() {
            // A system without any authority trusts nobody.
            Err(_) if matches!(trust, Trust::System) => {
                builder(&Trust::Authorities(Vec::new()), &base, within).build().map_err(RedfishError::Client)?
            }
            built => built.map_err(RedfishError::Client)?,
        };
        Ok(Self { client, base, credentials, within, heard: Mutex::default() })
    }

    /// The service root, which needs no credentials (DSP0266, "Authentication"). With some vendors it does.
    pub async fn root(&self) -> Result<Answer, RedfishError> {
        self.ask(ROOT, false).await
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
                    return Err(self.lost(path, error, tries));
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

    async fn ask_once(&self, path: &str, known: bool) -> Result<Told, Lost> {
        // DSP0266, "Request headers".
        let mut request = self.client.get(format!("{}{path}", self.base)).header("OData-Version", "4.0");
        request = request.header(header::ACCEPT, "application/json");
        if let Some(credentials) = self.credentials.as_ref().filter(|_| known) {
            request = request.basic_auth(&credentials.username, Some(&credentials.password));
        }
        let mut answer = request.send().await.map_err(Lost::of)?;
        let (status, date) = (answer.status(), answer.headers().get(header::DATE));
        let date = date.and_then(|date| date.to_str().ok()).map(str::to_owned);
        let mut bytes = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(Lost::of)? {
            if bytes.len() + part.len() > ANSWER_BYTES {
                return Err(Lost::Endless);
            }
            bytes.extend_from_slice(&part);
        }
        Ok(Told { status, date, body: serde_json::from_slice(&bytes).ok() })
    }

    fn lost(&self, path: &str, lost: Lost, tries: u32) -> RedfishError {
        match lost {
            Lost::Untrusted(why) => RedfishError::Untrusted(why),
            Lost::Endless => RedfishError::Form { path: path.to_owned(), what: "longer than 4 MiB" },
            Lost::Sent(error) if error.is_timeout() => RedfishError::Late { secs: self.within.as_secs_f64(), tries },
            Lost::Sent(error) if error.is_connect() => RedfishError::Unreachable(error),
            Lost::Sent(source) => RedfishError::Dropped { tries, source },
        }
    }
}

/// What came back.
struct Told {
    status: StatusCode,
    date: Option<String>,
    /// `None` when it is no JSON.
    body: Option<Value>,
}

/// What became of a question without an answer.
enum Lost {
    Untrusted(String),
    Endless,
    Sent(reqwest::Error),
}

impl Lost {
    fn of(error: reqwest::Error) -> Self {
        untrusted(&error).map_or(Self::Sent(error), Self::Untrusted)
    }
}

/// What is wrong with the certificate, if that is why.
fn untrusted(error: &reqwest::Error) -> Option<String> {
    let mut cause = error.source();
    while let Some(error) = cause {
        // An I/O error that wraps another error does not name it as its source, but that one's.
        let mut inner: &(dyn std::error::Error + 'static) = error;
        while let Some(next) = inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            inner = next;
        }
        if let Some(rustls::Error::InvalidCertificate(why)) = inner.downcast_ref() {
            return Some(why.to_string());
        }
        cause = error.source();
    }
    None
}

fn builder(trust: &Trust, base: &str, within: Duration) -> reqwest::ClientBuilder {
    // The password goes where it belongs, and nowhere else.
    let ours = Url::parse(base).map(|url| url.origin()).ok();
    let policy = redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS || Some(attempt.url().origin()) != ours {
            attempt.stop()
        } else {
            attempt.follow()
        }
    });
    let builder = Client::builder().no_proxy().redirect(policy).timeout(within).connect_timeout(within);
    match trust {
        Trust::Anybody => builder.tls_danger_accept_invalid_certs(true),
        Trust::System => builder,
        Trust::Authorities(certificates) => builder.tls_certs_only(certificates.clone()),
    }
}

/// A success that is a JSON object, or why not: DSP0266, "Error responses".
fn judge(path: &str, status: StatusCode, body: Option<Value>) -> Result<Value, RedfishError> {
    if !status.is_success() {
        let error = &body.unwrap_or_default()["error"];
        let told = error["@Message.ExtendedInfo"][0]["Message"].as_str().or_else(|| error["message"].as_str());
        let message = told.map(|told| format!(": {told}")).unwrap_or_default();
        return Err(RedfishError::Status { path: path.to_owned(), status, message });
    }
    let form = |what| RedfishError::Form { path: path.to_owned(), what };
    body.ok_or_else(|| form("no JSON"))
        .and_then(|body| if body.is_object() { Ok(body) } else { Err(form("no object")) })
}
