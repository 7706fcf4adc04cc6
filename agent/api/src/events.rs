//! Events of the build and of the box, and the status that follows from them.
//!
//! An event is one JSON line. The same lines go to the ledger, the journal, the virtio-serial port
//! [`EVENT_PORT`], REST and the console; `foothold --json` prints them unchanged.

use std::collections::VecDeque;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Name of the virtio-serial port that carries the events out of a virtual machine.
pub const EVENT_PORT: &str = "org.foothold.events";

/// Step of phase `content` under which refused image pulls are told.
pub const PULL_STEP: &str = "pull";
/// Step of phase `content` under which images are told that the box asked its own registry for, and got.
pub const SERVED_STEP: &str = "served";
/// Step of phase `services` that watches DHCP on the servers' network: `others` and `message` tell of other servers there.
pub const DHCP_STEP: &str = "dhcp";

/// How many past events a [`Status`] keeps for the console.
const RECENT: usize = 64;
/// How many different images a [`Status`] remembers as asked for.
const MOST_PULLS: usize = 256;

/// Where an event comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The builder on the user's machine.
    Build,
    /// The machine that runs the image.
    #[default]
    Box,
}

/// A durable position of first boot, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Find the medium, verify it, open its layers.
    Medium,
    /// Find or make DATA.
    Disk,
    /// Machine id, host name, site, keys.
    Identity,
    /// Interfaces, addresses, firewall, name service.
    Network,
    /// The clock and its sources.
    Time,
    /// The content store.
    Content,
    /// The container runtime.
    Runtime,
    /// Certificates, etcd, API server and its companions.
    ControlPlane,
    /// What kubeadm adds to a cluster: its configuration, RBAC, CoreDNS, kube-proxy.
    Addons,
    /// Everything the box offers on top.
    Services,
    /// Every declared service has answered a real request.
    Ready,
}

impl Phase {
    /// All phases in their order.
    pub const ALL: [Self; 11] = [
        Self::Medium,
        Self::Disk,
        Self::Identity,
        Self::Network,
        Self::Time,
        Self::Content,
        Self::Runtime,
        Self::ControlPlane,
        Self::Addons,
        Self::Services,
        Self::Ready,
    ];

    /// The name as it stands in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Medium => "medium",
            Self::Disk => "disk",
            Self::Identity => "identity",
            Self::Network => "network",
            Self::Time => "time",
            Self::Content => "content",
            Self::Runtime => "runtime",
            Self::ControlPlane => "control-plane",
            Self::Addons => "addons",
            Self::Services => "services",
            Self::Ready => "ready",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The word for a phase as it stands in events: one of the box's [`Phase`]s, or of those that another list of steps brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhaseWord(&'static str);

impl PhaseWord {
    /// That word, kebab-case.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The word as it stands in JSON.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl From<Phase> for PhaseWord {
    fn from(phase: Phase) -> Self {
        Self(phase.name())
    }
}

impl fmt::Display for PhaseWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// What a step just did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The step began.
    Started,
    /// Numbers changed.
    Progress,
    /// The step ended well.
    Done,
    /// The step was recorded and is still true.
    Skipped,
    /// The step waits; `detail` has `for` and `why`.
    Waiting,
    /// The step failed; `detail` has `cause`, `next` and `log`. It may be tried again. With `fatal: true` the box
    /// cannot be ready until somebody does what `next` says; with `workload: true` it is a workload that failed, and
    /// the box is as ready as before.
    Failed,
}

/// One line of the event stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Seconds since the start of the build, or since power-on of the box.
    pub t: f64,
    /// Who speaks.
    pub source: Source,
    /// Phase of the box, or of the build (`toolbox`, `layers`, ...).
    pub phase: String,
    /// Step in that phase, kebab-case.
    pub step: String,
    /// What the step did.
    pub state: State,
    /// Numbers and words; the keys depend on `state`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub detail: Map<String, Value>,
}

impl Event {
    /// An event of the box without detail.
    pub fn of_box(t: f64, phase: impl Into<PhaseWord>, step: &str, state: State) -> Self {
        Self {
            t: (t * 1000.0).round() / 1000.0,
            source: Source::Box,
            phase: phase.into().name().to_owned(),
            step: step.to_owned(),
            state,
            detail: Map::new(),
        }
    }

    /// The same event with one more detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.detail.insert(key.to_owned(), value.into());
        self
    }

    /// A detail as text, if it is there and is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.detail.get(key).and_then(Value::as_str)
    }

    /// Whether the box cannot go on until somebody does something: nobody needs to wait for it.
    pub fn is_fatal(&self) -> bool {
        self.state == State::Failed && is_true(&self.detail, "fatal")
    }

    /// The image that this event says was asked for and is not there.
    pub fn pull(&self) -> Option<Pull> {
        let told = self.phase == Phase::Content.name() && self.step == PULL_STEP && self.state == State::Failed;
        let image = self.text("image").filter(|_| told)?;
        Some(Pull { image: image.to_owned(), t: self.t })
    }

    /// Whether this is the event that says that the box is ready.
    pub fn is_ready(&self) -> bool {
        self.phase == "ready" && self.step == "ready" && self.state == State::Done
    }
}

fn is_true(detail: &Map<String, Value>, key: &str) -> bool {
    detail.get(key).and_then(Value::as_bool) == Some(true)
}

/// An image that a container runtime wanted to pull. The box pulls nothing: it is not in the release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pull {
    /// Reference as the runtime asked for it: `registry/name:tag` or `registry/name@digest`.
    pub image: String,
    /// When it was asked for first, seconds since power-on.
    pub t: f64,
}

/// One step as the console shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// Phase of the step.
    pub phase: String,
    /// Name of the step.
    pub step: String,
    /// Last state.
    pub state: State,
    /// When the step began, seconds since power-on.
    pub since: f64,
    /// How long it took, once it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secs: Option<f64>,
    /// Detail of the last event.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub detail: Map<String, Value>,
}

/// Everything that follows from the events so far. Console and REST read only this.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Whether the box has reported `ready` and nothing has failed since.
    pub ready: bool,
    /// Phase of the newest event.
    pub phase: String,
    /// Steps in the order in which they first appeared.
    pub steps: Vec<StepStatus>,
    /// Seconds since power-on of the newest event.
    pub t: f64,
    /// Addresses under which the box answers, from the `ready` event or the network phase.
    pub addresses: Vec<String>,
    /// Every image that was asked for and is not in the release, each once, oldest first; 256 at most.
    #[serde(default)]
    pub pulls: Vec<Pull>,
    /// The newest events, oldest first.
    pub recent: VecDeque<Event>,
}

impl Status {
    /// Folds one more event in.
    pub fn apply(&mut self, event: &Event) {
        self.t = event.t;
        self.phase.clone_from(&event.phase);
        if let Some(list) = event.detail.get("addresses").and_then(Value::as_array) {
            self.addresses = list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        }
        if let Some(pull) = event.pull()
            && self.pulls.len() < MOST_PULLS
            && self.pulls.iter().all(|known| known.image != pull.image)
        {
            self.pulls.push(pull);
        }
        self.fold_step(event);
        let own_failure = self.failed().any(|step| !is_true(&step.detail, "workload"));
        self.ready = self.ready && !own_failure || event.is_ready();
        self.recent.push_back(event.clone());
        while self.recent.len() > RECENT {
            self.recent.pop_front();
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

    fn fold_step(&mut self, event: &Event) {
        let found = self.steps.iter_mut().find(|step| step.phase == event.phase && step.step == event.step);
        let ended = matches!(event.state, State::Done | State::Skipped);
        if let Some(step) = found {
            if event.state == State::Started {
                step.since = event.t;
                step.secs = None;
            }
            step.state = event.state;
            step.detail.clone_from(&event.detail);
            if ended {
                step.secs = Some(((event.t - step.since) * 1000.0).round() / 1000.0);
            }
            return;
        }
        self.steps.push(StepStatus {
            phase: event.phase.clone(),
            step: event.step.clone(),
            state: event.state,
            since: event.t,
            secs: ended.then_some(0.0),
            detail: event.detail.clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, PULL_STEP, Phase, State, Status};

    fn event(t: f64, step: &str, state: State) -> Event {
        Event::of_box(t, Phase::ControlPlane, step, state)
    }

    #[test]
    fn an_event_is_one_line_of_the_documented_shape() {
        let line = serde_json::to_string(&event(12.3456, "kubelet", State::Waiting).with("for", "socket"))
            .expect("an event serializes");
        assert_eq!(
            line,
            r#"{"t":12.346,"source":"box","phase":"control-plane","step":"kubelet","state":"waiting","detail":{"for":"socket"}}"#
        );
    }

    #[test]
    fn a_step_knows_how_long_it_took() {
        let mut status = Status::default();
        status.apply(&event(1.0, "kubelet", State::Started));
        status.apply(&event(3.5, "kubelet", State::Done));
        assert_eq!(status.steps[0].secs, Some(2.5));
        assert_eq!(status.running().count(), 0);
    }

    #[test]
    fn a_refused_pull_is_remembered_once_and_leaves_the_box_ready() {
        let mut status = Status::default();
        status.apply(&Event::of_box(5.0, Phase::Ready, "ready", State::Done));
        let pull = |t, image: &str| {
            let event = Event::of_box(t, Phase::Content, PULL_STEP, State::Failed);
            event.with("image", image).with("workload", true)
        };
        for (t, image) in [(6.0, "example.org/a:1"), (7.0, "example.org/b:1"), (90.0, "example.org/a:1")] {
            status.apply(&pull(t, image));
        }
        let expected = [("example.org/a:1", 6.0), ("example.org/b:1", 7.0)];
        assert_eq!(status.pulls.iter().map(|pull| (pull.image.as_str(), pull.t)).collect::<Vec<_>>(), expected);
        assert!(status.ready);
        assert_eq!(status.failed().count(), 1);
        status.apply(&event(91.0, "kubelet", State::Failed));
        assert!(!status.ready);
    }

    #[test]
    fn only_a_failure_can_be_fatal() {
        let failed = event(1.0, "find", State::Failed);
        assert!(!failed.is_fatal());
        assert!(failed.with("fatal", true).is_fatal());
        assert!(!event(1.0, "find", State::Waiting).with("fatal", true).is_fatal());
    }

    #[test]
    fn ready_ends_with_a_failure_and_returns_with_the_next_ready() {
        let mut status = Status::default();
        let ready = Event::of_box(5.0, Phase::Ready, "ready", State::Done);
        status.apply(&ready);
        assert!(status.ready);
        status.apply(&event(6.0, "kubelet", State::Failed));
        assert!(!status.ready);
        status.apply(&event(7.0, "kubelet", State::Done));
        assert!(!status.ready);
        status.apply(&ready);
        assert!(status.ready);
    }
}
