//! The box's REST interface, `https://BOX:8443/api/v1/...`: its routes, and the bodies that they take and give.
//!
//! [`routes`] lists them; [`openapi()`] is the document that the box serves. Everything but what [`routes::Who::Anybody`]
//! may ask wants `Authorization: Bearer TOKEN`. Whatever goes wrong is a [`Problem`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::boot::{DataFound, MediumFailure, Mode};
use crate::events::{State, Status};

mod openapi;
pub mod routes;

pub use openapi::openapi;

/// Body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What is wrong, one line.
    pub error: String,
    /// What to do about it, one line.
    pub hint: String,
    /// The box has no access token yet: it can be claimed with the code on its console.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claimable: bool,
}

/// `GET /healthz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The agent answers.
    pub ok: bool,
    /// The box has reported `ready` and nothing has failed since.
    pub ready: bool,
}

/// `GET /api/v1/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoxStatus {
    /// Name of the appliance.
    pub name: String,
    /// Version of the appliance.
    pub version: String,
    /// Release id, 64 hex digits; empty when the release is not known.
    pub release: String,
    /// The release is signed with a development key.
    pub development_key: bool,
    /// Host name.
    pub hostname: String,
    /// How the box was asked to start.
    pub mode: Mode,
    /// Where DATA is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<DataFound>,
    /// Seconds since power-on, now.
    pub uptime_secs: f64,
    /// Seconds since power-on at which the box was ready first in this boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<f64>,
    /// The box's clock, RFC 3339, UTC.
    pub clock: String,
    /// Memory, now.
    pub memory: Memory,
    /// Steps ended and steps known.
    pub progress: Progress,
    /// When it will be ready, as long as it is not, and when the release was proved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Eta>,
    /// State of the medium.
    pub medium: Medium,
    /// What takes space on DATA.
    #[serde(default)]
    pub space: Space,
    /// Objects that the release declares, in the order in which they are applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectStatus>,
    /// Servers of the site, and what was made of them.
    #[serde(default, skip_serializing_if = "SiteStatus::is_empty")]
    pub site: SiteStatus,
    /// SHA-256 of the certificate that signs the web certificate, upper-case hex with colons.
    pub web_fingerprint: String,
    /// Releases that are here: the one that runs, and those that were sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<HeldRelease>,
    /// What follows from the events.
    #[serde(flatten)]
    pub status: Status,
}

/// An object of the cluster that the release declares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStatus {
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Namespace; empty when it lies in none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The manifest or chart that it came with.
    pub set: String,
    /// Whether it does what it is for.
    pub healthy: bool,
    /// How far it is, or what is wrong, one line.
    pub message: String,
}

impl ObjectStatus {
    /// As a person would say it: `Deployment web/app`.
    pub fn title(&self) -> String {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{}", self.kind, self.namespace, self.name)
    }
}

/// Servers of the site, and the clusters, packages and releases that are made of them and on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteStatus {
    /// Number of servers, by state: `provisioned`, `inspecting`, `error`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<String, usize>,
    /// Servers with an error, and all `Provisioning`, `Software` and `Release`, by kind, namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<SiteObject>,
}

impl SiteStatus {
    /// Whether the site has nothing yet.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.objects.is_empty()
    }

    /// How many servers are in which state, in words: `1 error, 3 provisioned`.
    pub fn counts(&self) -> String {
        self.servers.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
    }
}

/// An object of the site: a server, a cluster, packages on it, a release on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteObject {
    /// Kind, such as `Provisioning`.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Whether it is as it was asked for.
    pub ready: bool,
    /// How far it is, a word: `Installing`, `provisioned`.
    pub state: String,
    /// What is waited for, or what is wrong, one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when it is Ready or is not, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When it will be done, by what earlier work took, RFC 3339. Absent where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    /// Whether its kubeconfig can be fetched: a cluster that was made, also while it is not as it was asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kubeconfig: bool,
    /// Its nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<SiteNode>,
}

/// A node of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteNode {
    /// Name.
    pub name: String,
    /// The step that runs, else its phase.
    pub state: String,
    /// Its address; empty when it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ip: String,
    /// What is wrong, one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it will be done, by what earlier nodes took, RFC 3339. Absent where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
}

/// An estimate in words, to be put behind a state: `, done about 12:03 UTC`. Empty without one.
pub fn done_about(eta: Option<&str>) -> String {
    let time = eta.and_then(|eta| eta.split_once('T')?.1.get(..5));
    time.map(|time| format!(", done about {time} UTC")).unwrap_or_default()
}

/// Memory of the box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// In use: total less available.
    pub used_mib: u64,
    /// Total.
    pub total_mib: u64,
}

/// DATA, and what takes space there for the site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Space {
    /// Bytes of DATA.
    pub total_bytes: u64,
    /// Bytes of DATA that are free.
    pub free_bytes: u64,
    /// By kind: `registry`, `volumes`, and the kinds of uploads.
    pub kinds: BTreeMap<String, Share>,
}

/// What one kind takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// Bytes that are taken.
    pub used_bytes: u64,
    /// Most of them.
    pub limit_bytes: u64,
    /// Why nothing more is taken now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
}

/// "step 6 of 14".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Steps that ended.
    pub done: usize,
    /// Steps that are known, those still to come included.
    pub total: usize,
}

/// "1 m 12 s of about 1 m 40 s": an estimate by the release's proof and the pace of this machine so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Eta {
    /// Seconds since power-on.
    pub elapsed_secs: f64,
    /// About when it will be ready, seconds since power-on.
    pub total_secs: f64,
    /// How many times as long as at the proof the steps take here.
    pub pace: f64,
    /// Steps that run more than three times as long as at the proof.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<SlowStep>,
}

/// A release that the box has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldRelease {
    /// Its id, 64 hex digits.
    pub id: String,
    /// Name of the appliance.
    pub name: String,
    /// Version.
    pub version: String,
    /// Whether it is the one that runs.
    pub running: bool,
}

/// `POST /api/v1/bundles`: a release was taken, whole and verified. It does not run yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taken {
    /// The release that runs.
    pub from: String,
    /// The release that is here now.
    pub to: String,
    /// Files that were new.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// A step that runs much longer than at the proof.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlowStep {
    /// Phase.
    pub phase: String,
    /// Step.
    pub step: String,
    /// Seconds so far.
    pub secs: f64,
    /// Seconds at the proof.
    pub proved_secs: f64,
}

/// What is known about the medium's health.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Medium {
    /// How much of it has been read and verified in this boot, once that began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_percent: Option<u8>,
    /// Damaged places.
    #[serde(default)]
    pub failures: Vec<MediumFailure>,
}

/// `GET /api/v1/timeline`: where the time went, from power-on to the first `ready`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// Phases in the order in which they began.
    pub phases: Vec<PhaseTime>,
    /// Seconds since power-on at which the box was first ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<f64>,
}

/// A phase on the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseTime {
    /// Name.
    pub phase: String,
    /// First event, seconds since power-on.
    pub start: f64,
    /// From the first event to the last one.
    pub secs: f64,
    /// How much of it a step of the phase was waiting.
    pub waiting_secs: f64,
    /// Steps in the order in which they began.
    pub steps: Vec<StepTime>,
}

/// A step on the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepTime {
    /// Name.
    pub step: String,
    /// Last state.
    pub state: State,
    /// First event, seconds since power-on.
    pub start: f64,
    /// From the first event to the end, or to the last event while it has not ended.
    pub secs: f64,
    /// How much of it was waiting.
    pub waiting_secs: f64,
    /// How often it failed on the way.
    pub failures: u32,
}

/// `POST /api/v1/site/report`: report, inventory and support bundle are going to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteReport {
    /// Kernel name of the partition, such as `sda5`.
    pub device: String,
}

/// `POST /api/v1/claim`: the first access to a box whose Site gives none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Claim {
    /// The code on the box's console. Case, spaces and dashes do not matter.
    pub code: String,
    /// SHA-256 (64 hex digits) of a token of the caller's own making; without it the box makes the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_sha256: Option<String>,
}

/// The box is claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claimed {
    /// The token, told this once, unless the caller brought its hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}
