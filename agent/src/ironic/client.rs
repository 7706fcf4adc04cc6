//! The client of the API: one method for each call.

use std::error::Error as _;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context as _;
use reqwest::{Certificate, Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::firmware::{BiosSetting, FirmwareComponent};
use super::node::{Node, Patch, Port};

/// Header that says which version of the API is spoken.
const VERSION_HEADER: &str = "X-OpenStack-Ironic-API-Version";
/// An answer comes within this time, or Ironic is busy or away: a deletion must not wait for it longer than 30 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection is made within this time.
const CONNECT: Duration = Duration::from_secs(5);
/// Nodes of one answer of a listing.
const PAGE: usize = 1000;

/// A version of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

impl Version {
    /// The least that the operator can work with: firmware components.
    pub const LEAST: Self = Self(1, 89);
    /// The first version that shows what is in a node's virtual drives.
    pub const MEDIA: Self = Self(1, 93);
    /// The newest that is known here; it has `disable_power_off`.
    pub const NEWEST: Self = Self(1, 95);

    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once('.')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum IronicError {
    /// Our client cannot be made.
    #[error("making the HTTP client for Ironic")]
    Client(#[source] reqwest::Error),
    /// No answer.
    #[error("{method} {path}: {why}")]
    Away {
        /// Method.
        method: Method,
        /// Path.
        path: String,
        /// What happened instead.
        why: String,
        /// It took the question and said nothing in time.
        slow: bool,
    },
    /// It is too old, or too new.
    #[error("Ironic speaks versions {offered} of its API, the operator needs {} or later", Version::LEAST)]
    Versions {
        /// Oldest and newest.
        offered: String,
    },
    /// It has something else to do with the node: to be asked again.
    #[error("{0}")]
    Busy(String),
    /// There is something by that name or address already.
    #[error("{0}")]
    Taken(String),
    /// It is not there.
    #[error("{0}")]
    NotFound(String),
    /// It says no, in its own words.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        status: StatusCode,
        /// The words.
        message: String,
    },
    /// What it says is not what was asked for.
    #[error("{method} {path}: the answer is not as expected: {why}")]
    Form {
        /// Method.
        method: Method,
        /// Path.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

impl IronicError {
    /// Whether Ironic as a whole cannot be worked with now, whatever the node.
    pub fn is_away(&self) -> bool {
        match self {
            Self::Client(_) | Self::Away { .. } | Self::Versions { .. } => true,
            // The proxy before it, and credentials that are not ours.
            Self::Refused { status, .. } => status.is_server_error() || *status == StatusCode::UNAUTHORIZED,
            Self::Busy(_) | Self::Taken(_) | Self::NotFound(_) | Self::Form { .. } => false,
        }
    }

    /// Whether it says nothing of what was asked for: Ironic is busy, away or just starting, and is to be asked again.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Client(_) | Self::Away { .. } | Self::Versions { .. } | Self::Busy(_) => true,
            // What stands before Ironic says these; Ironic's own errors, and those of a BMC, are others.
            Self::Refused { status, .. } => matches!(
                *status,
                StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT
                    | StatusCode::UNAUTHORIZED
            ),
            Self::Taken(_) | Self::NotFound(_) | Self::Form { .. } => false,
        }
    }

    /// Whether it may only be busy: it took the question.
    pub const fn is_slow(&self) -> bool {
        matches!(self, Self::Away { slow: true, .. })
    }
}

/// Where Ironic is, and who we are to it.
#[derive(Clone)]
pub struct Settings {
    /// URL, such as `https://10.0.0.1:6385`.
    pub url: String,
    /// Authorities that may sign its certificate, in PEM; those of the system when `None`.
    pub ca: Option<String>,
    /// User and password; none when it asks for none.
    pub user: Option<(String, String)>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Settings({})", self.url)
    }
}

impl Settings {
    /// From files: `auth` is a folder with the files `username` and `password`, as a Secret is mounted.
    pub fn from_files(url: &str, ca: Option<&Path>, auth: Option<&Path>) -> anyhow::Result<Self> {
        let word = |dir: &Path, name: &str| -> anyhow::Result<String> {
            let text = fs_err::read_to_string(dir.join(name)).context("reading Ironic's credentials")?;
            Ok(text.trim().to_owned())
        };
        let user = auth.map(|dir| anyhow::Ok((word(dir, "username")?, word(dir, "password")?))).transpose()?;
        let ca = ca.map(fs_err::read_to_string).transpose().context("reading Ironic's authority")?;
        Ok(Self { url: url.to_owned(), ca, user })
    }

    /// A client of HTTP that trusts whom Ironic's certificate must be from, and waits so long for an answer.
    pub fn http(&self, patience: Duration) -> Result<reqwest::Client, IronicError> {
        let mut builder = reqwest::Client::builder().no_proxy().timeout(patience).connect_timeout(CONNECT);
        builder = builder.user_agent(concat!("foothold-agent/", env!("CARGO_PKG_VERSION")));
        // Without an authority of its own, plain HTTP must work on a system that knows none.
        let pem = self.ca.as_deref().unwrap_or_default();
        if self.ca.is_some() || self.url.starts_with("http://") {
            let authorities = Certificate::from_pem_bundle(pem.as_bytes()).map_err(IronicError::Client)?;
            builder = builder.tls_certs_only(authorities);
        }
        builder.build().map_err(IronicError::Client)
    }
}

/// A client of Ironic.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    patience: Duration,
    base: String,
    user: Option<(String, String)>,
    version: RwLock<Option<Version>>,
}

/// The first answer: which versions there are.
#[derive(Deserialize)]
struct Root {
    #[serde(default)]
    versions: Vec<Offer>,
    default_version: Option<Offer>,
}

/// Where hardware types are listed.
const DRIVERS: &str = "/v1/drivers";

#[derive(Deserialize)]
struct Drivers {
    drivers: Vec<Value>,
}

impl Drivers {
    fn names(&self) -> Vec<String> {
        self.drivers.iter().filter_map(|driver| Some(driver["name"].as_str()?.to_owned())).collect()
    }
}

/// What an answer to the question for hardware types says.
#[cfg(test)]
pub fn drivers(status: StatusCode, body: &[u8]) -> Result<Vec<String>, IronicError> {
    let answered = Answer::judged(Method::GET, DRIVERS, status, body.to_vec())?;
    Ok(answered.json::<Drivers>()?.names())
}

#[derive(Deserialize)]
struct Offer {
    min_version: String,
    version: String,
}

impl Client {
    /// A client. Nothing is asked yet.
    pub fn new(settings: &Settings) -> Result<Self, IronicError> {
        Self::patient(settings, PATIENCE)
    }

    /// A client that waits so long for an answer. Nothing is asked yet.
    pub fn patient(settings: &Settings, patience: Duration) -> Result<Self, IronicError> {
        let http = settings.http(patience)?;
        let base = settings.url.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base).to_owned();
        Ok(Self { http, patience, base, user: settings.user.clone(), version: RwLock::new(None) })
    }

    /// The version that is spoken, agreed upon at the first call and after Ironic was away.
    pub async fn version(&self) -> Result<Version, IronicError> {
        let known = *self.version.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(version) = known {
            return Ok(version);
        }
        let root: Root = self.send(Method::GET, "/", None, None).await.and_then(Answer::json)?;
        let offer = root.default_version.or_else(|| root.versions.into_iter().next());
        let offered = offer.as_ref().map_or_else(String::new, |it| format!("{} to {}", it.min_version, it.version));
        let range = offer.and_then(|it| Some((Version::parse(&it.min_version)?, Version::parse(&it.version)?)));
        let agreed = range.filter(|(min, max)| *max >= Version::LEAST && *min <= Version::NEWEST);
        let Some((_, newest)) = agreed else { return Err(IronicError::Versions { offered }) };
        let version = newest.min(Version::NEWEST);
        *self.version.write().unwrap_or_else(PoisonError::into_inner) = Some(version);
        Ok(version)
    }

    /// Whether it can be worked with: it answers, we are let in, it has a hardware type.
    pub async fn ready(&self) -> Result<(), IronicError> {
        let found: Drivers = self.get(DRIVERS).await?;
        if found.drivers.is_empty() {
            let why = "no conductor has a hardware type yet".to_owned();
            return Err(IronicError::Away { method: Method::GET, path: DRIVERS.to_owned(), why, slow: false });
        }
        Ok(())
    }

    /// Names of its hardware types, asked for in whatever version it speaks; none as long as no conductor has any.
    pub async fn drivers(&self) -> Result<Vec<String>, IronicError> {
        let found: Drivers = self.send(Method::GET, DRIVERS, None, None).await?.json()?;
        Ok(found.names())
    }

    /// A node by UUID or name.
    pub async fn node(&self, ident: &str) -> Result<Option<Node>, IronicError> {
        absent(self.get(&format!("/v1/nodes/{ident}")).await)
    }

    /// All nodes, with these fields only.
    pub async fn nodes(&self, fields: &str) -> Result<Vec<Node>, IronicError> {
        #[derive(Deserialize)]
        struct Nodes {
            nodes: Vec<Node>,
            next: Option<String>,
        }
        let mut all: Vec<Node> = Vec::new();
        loop {
            let after = all.last().map_or_else(String::new, |node| format!("&marker={}", node.uuid));
            let page: Nodes = self.get(&format!("/v1/nodes?fields={fields}&limit={PAGE}{after}")).await?;
            let end = page.next.is_none() || page.nodes.is_empty();
            all.extend(page.nodes);
            if end {
                return Ok(all);
            }
        }
    }

    /// Makes a node known.
    pub async fn create_node(&self, node: &Value) -> Result<Node, IronicError> {
        self.call(Method::POST, "/v1/nodes", Some(node)).await?.json()
    }

    /// Changes a node.
    pub async fn patch_node(&self, uuid: &str, changes: &[Patch]) -> Result<Node, IronicError> {
        // Interfaces of another driver are those of its own, but for what is told with it ("Update Node").
        let reset = if changes.iter().any(|it| it.path() == "/driver") { "?reset_interfaces=true" } else { "" };
        self.call(Method::PATCH, &format!("/v1/nodes/{uuid}{reset}"), Some(&json!(changes))).await?.json()
    }

    /// Forgets a node; one that is not there is as good.
    pub async fn delete_node(&self, uuid: &str) -> Result<(), IronicError> {
        absent(self.call(Method::DELETE, &format!("/v1/nodes/{uuid}"), None).await).map(drop)
    }

    /// The ports of a node.
    pub async fn ports_of(&self, uuid: &str) -> Result<Vec<Port>, IronicError> {
        self.ports(&format!("node={uuid}")).await
    }

    /// The port with a MAC address, and whose it is.
    pub async fn port_by_address(&self, mac: &str) -> Result<Option<Port>, IronicError> {
        Ok(self.ports(&format!("address={}", mac.to_lowercase())).await?.into_iter().next())
    }

    async fn ports(&self, which: &str) -> Result<Vec<Port>, IronicError> {
        #[derive(Deserialize)]
        struct Ports {
            ports: Vec<Port>,
        }
        let found: Ports = self.get(&format!("/v1/ports?{which}&fields=uuid,address,node_uuid,pxe_enabled")).await?;
        Ok(found.ports)
    }

    /// Makes a port known.
    pub async fn create_port(&self, node: &str, mac: &str, pxe: bool) -> Result<(), IronicError> {
        let port = json!({"node_uuid": node, "address": mac.to_lowercase(), "pxe_enabled": pxe});
        self.call(Method::POST, "/v1/ports", Some(&port)).await.map(drop)
    }

    /// Asks for another provision state; `body` has `target` and what belongs to it.
    pub async fn set_provision_state(&self, uuid: &str, body: &Value) -> Result<(), IronicError> {
        self.call(Method::PUT, &format!("/v1/nodes/{uuid}/states/provision"), Some(body)).await.map(drop)
    }

    /// Asks for another power state, within `seconds`.
    pub async fn set_power_state(&self, uuid: &str, target: &str, seconds: Option<u32>) -> Result<(), IronicError> {
        let mut body = json!({"target": target});
        if let Some(seconds) = seconds {
            body["timeout"] = json!(seconds);
        }
        self.call(Method::PUT, &format!("/v1/nodes/{uuid}/states/power"), Some(&body)).await.map(drop)
    }

    /// Says which RAID volumes the next cleaning shall make.
    pub async fn set_raid(&self, uuid: &str, target: &Value) -> Result<(), IronicError> {
        self.call(Method::PUT, &format!("/v1/nodes/{uuid}/states/raid"), Some(target)).await.map(drop)
    }

    /// What is missing for a deployment, in Ironic's words; nothing when all is there.
    pub async fn validate(&self, uuid: &str) -> Result<Option<String>, IronicError> {
        let found: Value = self.get(&format!("/v1/nodes/{uuid}/validate")).await?;
        let missing = ["boot", "deploy"].into_iter().filter_map(|interface| {
            let one = &found[interface];
            let reason = one["reason"].as_str().unwrap_or("no reason given");
            (one["result"] == false).then(|| format!("{interface} validation failed: {reason}"))
        });
        let missing: Vec<String> = missing.collect();
        Ok((!missing.is_empty()).then(|| missing.join("; ")))
    }

    /// What inspection found.
    pub async fn inventory(&self, uuid: &str) -> Result<Value, IronicError> {
        self.get(&format!("/v1/nodes/{uuid}/inventory")).await
    }

    /// BIOS settings, with what they may be.
    pub async fn bios(&self, uuid: &str) -> Result<Vec<BiosSetting>, IronicError> {
        #[derive(Deserialize)]
        struct Bios {
            bios: Vec<BiosSetting>,
        }
        let found: Bios = self.get(&format!("/v1/nodes/{uuid}/bios?detail=true")).await?;
        Ok(found.bios)
    }

    /// Versions of the firmware.
    pub async fn firmware(&self, uuid: &str) -> Result<Vec<FirmwareComponent>, IronicError> {
        #[derive(Deserialize)]
        struct Firmware {
            firmware: Vec<FirmwareComponent>,
        }
        let found: Firmware = self.get(&format!("/v1/nodes/{uuid}/firmware")).await?;
        Ok(found.firmware)
    }

    /// Whether Ironic shall leave a node alone, and why.
    pub async fn set_maintenance(&self, uuid: &str, reason: Option<&str>) -> Result<(), IronicError> {
        let path = format!("/v1/nodes/{uuid}/maintenance");
        match reason {
            Some(reason) => self.call(Method::PUT, &path, Some(&json!({"reason": reason}))).await.map(drop),
            None => self.call(Method::DELETE, &path, None).await.map(drop),
        }
    }

    /// Something that only this vendor can do.
    pub async fn vendor_passthru(
        &self,
        uuid: &str,
        method: &str,
        verb: Method,
        body: Option<&Value>,
    ) -> Result<Option<Value>, IronicError> {
        let path = format!("/v1/nodes/{uuid}/vendor_passthru?method={method}");
        let answer = self.call(verb, &path, body).await?;
        if answer.body.is_empty() { Ok(None) } else { answer.json().map(Some) }
    }

    /// Whether anything is in any of the node's virtual drives (since 1.93).
    pub async fn media_inserted(&self, uuid: &str) -> Result<bool, IronicError> {
        #[derive(Deserialize)]
        struct Medium {
            #[serde(default)]
            inserted: Option<bool>,
        }
        let version = self.version().await?;
        if version < Version::MEDIA {
            let message =
                format!("Ironic speaks version {version} of its API; virtual media are told since {}", Version::MEDIA);
            return Err(IronicError::Refused { status: StatusCode::NOT_ACCEPTABLE, message });
        }
        let media: Vec<Medium> = self.get(&format!("/v1/nodes/{uuid}/vmedia")).await?;
        Ok(media.iter().any(|medium| medium.inserted == Some(true)))
    }

    /// Puts an image into the node's drive.
    pub async fn attach_media(&self, uuid: &str, device: &str, url: &str) -> Result<(), IronicError> {
        let body = json!({"device_type": device, "image_url": url});
        self.call(Method::POST, &format!("/v1/nodes/{uuid}/vmedia"), Some(&body)).await.map(drop)
    }

    /// Takes an image out of the node's drive.
    pub async fn detach_media(&self, uuid: &str, device: &str) -> Result<(), IronicError> {
        let path = format!("/v1/nodes/{uuid}/vmedia?device_types={device}");
        self.call(Method::DELETE, &path, None).await.map(drop)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, IronicError> {
        self.call(Method::GET, path, None).await?.json()
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, IronicError> {
        let version = self.version().await?;
        let answered = self.send(method, path, body, Some(version)).await;
        if answered.as_ref().is_err_and(|error| error.is_away() && !error.is_slow()) {
            // It may come back as another one.
            *self.version.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        answered
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        version: Option<Version>,
    ) -> Result<Answer, IronicError> {
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.base));
        if let Some((user, password)) = &self.user {
            request = request.basic_auth(user, Some(password));
        }
        if let Some(version) = version {
            request = request.header(VERSION_HEADER, version.to_string());
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let away = |error: reqwest::Error| IronicError::Away {
            method: method.clone(),
            path: path.to_owned(),
            why: told(&error, self.patience),
            slow: error.is_timeout() && !error.is_connect(),
        };
        let response = request.send().await.map_err(away)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(away)?.to_vec();
        Answer::judged(method, path, status, bytes)
    }
}

struct Answer {
    method: Method,
    path: String,
    body: Vec<u8>,
}

impl Answer {
    /// An answer of success; else what went wrong.
    fn judged(method: Method, path: &str, status: StatusCode, body: Vec<u8>) -> Result<Self, IronicError> {
        if status.is_success() {
            return Ok(Self { method, path: path.to_owned(), body });
        }
        let message = words(&body).unwrap_or_else(|| format!("{method} {path}: {status}{}", plain(&body)));
        Err(match status {
            StatusCode::NOT_FOUND => IronicError::NotFound(message),
            // A lock, or a change of state under way.
            StatusCode::CONFLICT if ["locked", "in progress", "retry"].iter().any(|it| message.contains(it)) => {
                IronicError::Busy(message)
            }
            // What exists already cannot be made by waiting, nor does a state end that forbids a change.
            StatusCode::CONFLICT if method == Method::POST => IronicError::Taken(message),
            // No thread of the conductor is free.
            StatusCode::SERVICE_UNAVAILABLE if message.contains("worker") => IronicError::Busy(message),
            // SQLite has one writer.
            StatusCode::INTERNAL_SERVER_ERROR if message.contains("database is locked") => IronicError::Busy(message),
            status => IronicError::Refused { status, message },
        })
    }

    fn json<T: DeserializeOwned>(self) -> Result<T, IronicError> {
        serde_json::from_slice(&self.body).map_err(|error| IronicError::Form {
            method: self.method,
            path: self.path,
            why: error.to_string(),
        })
    }
}

/// Nothing when it is not there.
fn absent<T>(answer: Result<T, IronicError>) -> Result<Option<T>, IronicError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(IronicError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The innermost cause says most: `connection refused`.
fn told(error: &reqwest::Error, patience: Duration) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", patience.as_secs());
    }
    let mut cause = error.source();
    while let Some(next) = cause.and_then(std::error::Error::source) {
        cause = Some(next);
    }
    cause.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Ironic's own text: `{"error_message": {"faultstring": TEXT}}`, the inner object often written as a string.
fn words(body: &[u8]) -> Option<String> {
    let outer: Value = serde_json::from_slice(body).ok()?;
    let message = &outer["error_message"];
    let inner: Option<Value> = message.as_str().and_then(|text| serde_json::from_str(text).ok());
    let inner = inner.as_ref().unwrap_or(message);
    let text = inner["faultstring"].as_str().or_else(|| message.as_str());
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The beginning of an error that is neither Ironic's JSON nor a page.
fn plain(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.is_empty() || text.starts_with(['<', '{']) {
        return String::new();
    }
    format!(": {}", text.chars().take(300).collect::<String>())
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
