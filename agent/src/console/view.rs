//! What the consoles show, as plain data.

use std::net::IpAddr;

use agent_api::boot::{DataFound, Mode};
use agent_api::events::{Event, State, StepStatus};
use agent_api::ports;
use agent_api::rest::{BoxStatus, Eta, Medium, Memory, ObjectStatus, Progress, SiteStatus};

/// Everything that is on the screen. Made anew for each drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Name and version of the appliance.
    pub title: String,
    /// First 16 digits of the release id; empty when not known.
    pub release: String,
    /// Signed with a development key.
    pub development_key: bool,
    /// How the box was asked to start.
    pub mode: Mode,
    /// Host name.
    pub hostname: String,
    /// Where DATA is, in words.
    pub data: String,
    /// Web addresses, best first.
    pub web: Vec<String>,
    /// Fingerprint of the web authority.
    pub fingerprint: String,
    /// One-time claim code, while nobody has access.
    pub claim: Option<String>,
    /// `2026-03-01 12:00:05 UTC`.
    pub clock: String,
    /// Seconds since power-on.
    pub uptime: f64,
    /// Memory.
    pub memory: Memory,
    /// Steps ended and known.
    pub progress: Progress,
    /// When it will be ready, by the release's proof.
    pub eta: Option<Eta>,
    /// Health of the medium.
    pub medium: Medium,
    /// Objects that the release declares.
    pub objects: Vec<ObjectStatus>,
    /// Servers of the site, and what was made of them.
    pub site: SiteStatus,
    /// Every declared service has answered.
    pub ready: bool,
    /// Seconds since power-on at which the box became ready.
    pub ready_at: Option<f64>,
    /// Name of the newest event's phase.
    pub phase: String,
    /// All steps so far.
    pub steps: Vec<StepStatus>,
    /// The newest events, oldest first.
    pub recent: Vec<Event>,
}

impl View {
    /// From what REST tells, the addresses, and the claim code.
    pub fn of(status: &BoxStatus, addresses: &[IpAddr], claim: Option<String>) -> Self {
        let BoxStatus { name, version, status: inner, .. } = status;
        let data = match &status.data {
            Some(DataFound::Partition { device, .. }) => format!("on {device}"),
            Some(DataFound::Ram { reason }) => format!("in memory only: {reason}"),
            None => String::new(),
        };
        Self {
            title: format!("{name} {version}").trim().to_owned(),
            release: status.release.chars().take(16).collect(),
            development_key: status.development_key,
            mode: status.mode,
            hostname: status.hostname.clone(),
            data,
            web: addresses.iter().map(|ip| web_address(*ip)).collect(),
            fingerprint: status.web_fingerprint.clone(),
            claim,
            clock: status.clock.replace('T', " ").replace('Z', " UTC"),
            uptime: status.uptime_secs,
            memory: status.memory,
            progress: status.progress,
            eta: status.eta.clone(),
            medium: status.medium.clone(),
            objects: status.objects.clone(),
            site: status.site.clone(),
            ready: inner.ready,
            ready_at: status.ready_at,
            phase: inner.phase.clone(),
            steps: inner.steps.clone(),
            recent: inner.recent.iter().cloned().collect(),
        }
    }

    /// Steps that failed and have not ended well since.
    pub fn failed(&self) -> impl Iterator<Item = &StepStatus> {
        self.steps.iter().filter(|step| step.state == State::Failed)
    }

    /// Steps that have begun and not ended.
    pub fn running(&self) -> impl Iterator<Item = &StepStatus> {
        self.steps.iter().filter(|step| matches!(step.state, State::Started | State::Progress | State::Waiting))
    }

    /// What the step took at the proof, when it runs much longer here.
    pub fn slow(&self, step: &StepStatus) -> Option<f64> {
        let slow = self.eta.iter().flat_map(|eta| &eta.slow);
        let found = slow.into_iter().find(|slow| slow.phase == step.phase && slow.step == step.step);
        found.map(|slow| slow.proved_secs)
    }

    /// Whether a person is needed.
    pub fn in_trouble(&self) -> bool {
        self.failed().next().is_some() || !self.medium.failures.is_empty()
    }
}

fn web_address(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) => format!("https://{v4}:{}/", ports::WEB),
        IpAddr::V6(v6) => format!("https://[{v6}]:{}/", ports::WEB),
    }
}

/// `3.2 s`, `2 min 5 s`, `3 h 7 min`, `2 d 4 h`.
pub(super) fn duration(secs: f64) -> String {
    if secs < 59.95 {
        return format!("{:.1} s", secs.max(0.0));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "uptimes are small and not negative")]
    let whole = secs.round() as u64;
    match whole {
        0..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..172_800 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86400, whole / 3600 % 24),
    }
}

/// `1 m 12 s of about 1 m 40 s`, of an estimate.
pub(super) fn estimate(eta: &Eta, now: f64) -> String {
    format!("{} of about {}", estimated(now), estimated(eta.total_secs.max(now)))
}

/// `48 s`, `1 m 12 s`: whole seconds are all that an estimate knows.
fn estimated(secs: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are small and not negative")]
    let whole = secs.round() as u64;
    if whole < 60 { format!("{whole} s") } else { format!("{} m {} s", whole / 60, whole % 60) }
}

/// The same in seven letters at most: `3.2 s`, `2m 05s`, `3h 07m`, `52d 4h`.
pub(super) fn short_duration(secs: f64) -> String {
    if secs < 59.95 {
        return duration(secs);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "uptimes are small and not negative")]
    let whole = secs.round() as u64;
    match whole {
        0..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h {:02}m", whole / 3600, whole / 60 % 60),
        _ => format!("{}d {}h", whole / 86400, whole / 3600 % 24),
    }
}

/// Keys that are shown elsewhere.
const BESIDE: [&str; 3] = ["secs", "slow", "provedSecs"];

/// What an event or step says, in words: the important keys first, numbers as they are.
pub(super) fn words(state: State, detail: &serde_json::Map<String, serde_json::Value>) -> String {
    let said = said(state, detail);
    let proved = detail.get("provedSecs").and_then(serde_json::Value::as_f64);
    match proved.filter(|_| detail.get("slow").is_some_and(|slow| slow == true)) {
        Some(proved) if said.is_empty() => format!("slow: {} at the proof", duration(proved)),
        Some(proved) => format!("{said}; slow: {} at the proof", duration(proved)),
        None => said,
    }
}

fn said(state: State, detail: &serde_json::Map<String, serde_json::Value>) -> String {
    let text = |key: &str| detail.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
    match state {
        State::Waiting if text("why").is_empty() => format!("waits for {}", text("for")),
        State::Waiting => format!("waits for {} ({})", text("for"), text("why")),
        State::Failed => text("cause").to_owned(),
        State::Started | State::Progress | State::Done | State::Skipped => {
            let shown = detail.iter().filter(|(key, value)| !BESIDE.contains(&key.as_str()) && is_plain(value));
            shown.map(|(key, value)| format!("{key} {}", plain(value))).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Whether a value can be shown in one line: a number, a word, or a list of them.
fn is_plain(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Array(list) => !list.is_empty() && list.iter().all(is_plain),
        other => !other.is_object(),
    }
}

fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}
