//! Serial consoles: one line an event, and a block that sums up when what matters changed. Nothing is ever
//! drawn over, so that a log of the line reads well.

use std::collections::HashMap;
use std::fmt::Write as _;

use agent_api::boot::Mode;
use agent_api::events::{Event, State};

use super::View;
use super::view::{duration, estimate, words};

/// A step that still waits is named again after so many seconds, then after twice as many, and so on.
const REMIND_AFTER: f64 = 30.0;
/// Longest pause between two reminders.
const REMIND_AT_MOST: f64 = 600.0;
/// Progress of a step is told at most so often.
const PROGRESS_EVERY: f64 = 5.0;
/// The estimate is told at most so often.
const ESTIMATE_EVERY: f64 = 10.0;
const RULE: &str = "------------------------------------------------------------------------------";

/// Turns events and views into text for one console; remembers what it has told. Lines end with CR LF.
#[derive(Debug, Default)]
pub struct Narrator {
    summary: Option<Summary>,
    reminders: HashMap<(String, String), (f64, f64)>,
    progress: HashMap<(String, String), f64>,
    /// When the estimate was told last.
    estimated: f64,
}

/// When this changes, a new block is written.
#[derive(Clone, Debug, PartialEq)]
struct Summary {
    ready: bool,
    failed: usize,
    web: Vec<String>,
    claim: Option<String>,
}

impl Narrator {
    /// A narrator that has written nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The lines of one event, if it is worth any.
    pub fn event(&mut self, event: &Event) -> Option<String> {
        if event.state == State::Progress {
            let key = (event.phase.clone(), event.step.clone());
            let last = self.progress.get(&key).copied();
            if last.is_some_and(|last| event.t - last < PROGRESS_EVERY) {
                return None;
            }
            self.progress.insert(key, event.t);
        }
        let said = words(event.state, &event.detail);
        let secs = event.detail.get("secs").and_then(serde_json::Value::as_f64);
        let what = match event.state {
            State::Started => "started".to_owned(),
            State::Done => {
                let took = secs.map_or_else(String::new, |secs| format!(" in {}", duration(secs)));
                if said.is_empty() { format!("done{took}") } else { format!("done{took}: {said}") }
            }
            State::Skipped => "still done".to_owned(),
            State::Progress | State::Waiting => said,
            State::Failed => format!("FAILED: {said}"),
        };
        let mut text = line(event.t, &format!("{}/{}: {what}", event.phase, event.step));
        if event.state == State::Failed {
            for (word, key) in [("next", "next"), ("log", "log")] {
                if let Some(value) = event.text(key).filter(|value| !value.is_empty()) {
                    text += &line(event.t, &format!("    {word}: {value}"));
                }
            }
        }
        Some(text)
    }

    /// What the view adds: reminders of what still waits, and the block.
    pub fn look(&mut self, view: &View) -> Option<String> {
        let mut text = self.remind(view);
        if let Some(eta) = view.eta.as_ref().filter(|_| view.uptime - self.estimated >= ESTIMATE_EVERY) {
            self.estimated = view.uptime;
            let total = view.progress.total.max(1);
            let step = (view.progress.done + 1).min(total);
            text += &line(view.uptime, &format!("step {step} of {total}, {}", estimate(eta, view.uptime)));
        }
        let summary = Summary {
            ready: view.ready,
            failed: view.failed().count(),
            web: view.web.clone(),
            claim: view.claim.clone(),
        };
        if self.summary.as_ref() != Some(&summary) {
            text += &block(view);
            self.summary = Some(summary);
        }
        (!text.is_empty()).then_some(text)
    }

    fn remind(&mut self, view: &View) -> String {
        let mut text = String::new();
        let waits = |key: &(String, String)| {
            view.running().any(|step| step.state == State::Waiting && step.phase == key.0 && step.step == key.1)
        };
        self.reminders.retain(|key, _| waits(key));
        for step in view.running().filter(|step| step.state == State::Waiting) {
            let key = (step.phase.clone(), step.step.clone());
            let (told, pause) = self.reminders.entry(key).or_insert((view.uptime, REMIND_AFTER));
            if view.uptime - *told >= *pause {
                *told = view.uptime;
                *pause = (*pause * 2.0).min(REMIND_AT_MOST);
                let so_far = duration(view.uptime - step.since);
                let said = words(step.state, &step.detail);
                text += &line(view.uptime, &format!("{}/{}: still {said}, {so_far} now", step.phase, step.step));
            }
        }
        text
    }
}

fn line(t: f64, text: &str) -> String {
    format!("[{t:>10.3}] {}\r\n", ascii(text))
}

/// What any terminal shows: other letters become `?`, control characters a blank.
pub(super) fn ascii(text: &str) -> String {
    let safe = |letter: char| match letter {
        ' '..='~' => letter,
        '–' | '—' => '-',
        '…' => '.',
        letter if letter.is_control() => ' ',
        _ => '?',
    };
    text.chars().map(safe).collect()
}

fn block(view: &View) -> String {
    let mut text = format!("{RULE}\r\n");
    let mut row = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = write!(text, " {name:<11} {}\r\n", ascii(value));
        }
    };
    row("box", &[view.title.as_str(), &view.hostname].join("  "));
    let mut release = view.release.clone();
    if view.development_key {
        release += "  (signed with a development key)";
    }
    row("release", &release);
    match view.mode {
        Mode::Run => {}
        Mode::Safe => row("mode", "safe: only console and web, no cluster"),
        Mode::Check => row("mode", "check: the medium is verified, nothing else"),
    }
    let trouble = if view.in_trouble() { "needs attention, " } else { "" };
    row("state", &format!("{trouble}{}", state_of(view)));
    for web in &view.web {
        row("web", web);
    }
    if view.web.is_empty() {
        row("web", "no address yet: no cable, or no DHCP answer");
    }
    row("authority", &view.fingerprint);
    match (&view.claim, view.web.first()) {
        (Some(code), _) => {
            row("claim code", code);
            row("", "enter it on the web page: it gives the token for everything else");
        }
        (None, Some(web)) => row("kubeconfig", &format!("{web}api/v1/kubeconfig  (with the access token)")),
        (None, None) => {}
    }
    row("memory", &format!("{} of {} MiB in use", view.memory.used_mib, view.memory.total_mib));
    for step in view.failed() {
        row("failed", &format!("{}/{}: {}", step.phase, step.step, words(step.state, &step.detail)));
    }
    text + RULE + "\r\n"
}

/// `ready after 48.2 s`, `step 6 of 14: control-plane/kubelet`.
pub(super) fn state_of(view: &View) -> String {
    match (view.ready, view.ready_at) {
        (true, Some(at)) => format!("ready after {}", duration(at)),
        (true, None) => "ready".to_owned(),
        (false, _) => {
            let at = view.running().last().map_or_else(String::new, |step| format!(": {}/{}", step.phase, step.step));
            let next = (view.progress.done + 1).min(view.progress.total.max(1));
            format!("step {next} of {}{at}", view.progress.total.max(1))
        }
    }
}
