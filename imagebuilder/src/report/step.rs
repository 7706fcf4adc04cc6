//! One action of the build while it runs.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use agent_api::events::State;
use serde_json::{Map, Value};

use super::{Report, details, lock, round};

/// Least time between two progress events of a step.
const PACE: Duration = Duration::from_millis(250);

/// A running step. Dropping it before it is ended says that it failed, so `?` needs no care.
pub struct Step {
    report: Report,
    phase: String,
    name: String,
    started: Instant,
    last_progress: Mutex<Option<Instant>>,
    ended: bool,
}

impl Step {
    pub(super) fn start(report: Report, phase: &str, step: &str) -> Self {
        report.build_event(phase, step, State::Started, Map::new());
        let (phase, name) = (phase.to_owned(), step.to_owned());
        Self { report, phase, name, started: Instant::now(), last_progress: Mutex::new(None), ended: false }
    }

    /// How far it is, in bytes, and of how many if that is known. Call it as often as you like.
    pub fn bytes(&self, done: u64, total: Option<u64>) {
        if !self.is_due(total == Some(done)) {
            return;
        }
        let secs = self.started.elapsed().as_secs_f64();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate for people"
        )]
        let rate = if secs > 0.05 { (done as f64 / secs) as u64 } else { 0 };
        let mut detail = details([("bytes", done.into())]);
        detail.extend(total.map(|total| ("totalBytes".to_owned(), total.into())));
        detail.extend((rate > 0).then(|| ("bytesPerSec".to_owned(), rate.into())));
        self.emit(State::Progress, detail);
    }

    /// How far it is, in things of that name: `step.count(3, 12, "modules")`.
    pub fn count(&self, done: u64, total: u64, unit: &str) {
        if self.is_due(done == total) {
            self.emit(State::Progress, counted(done, total, unit));
        }
    }

    /// How far it is, and more in words. It is always said.
    pub fn count_noting(&self, done: u64, total: u64, unit: &str, note: &str) {
        let mut detail = counted(done, total, unit);
        detail.insert("note".to_owned(), note.into());
        self.emit(State::Progress, detail);
    }

    /// What it is doing, such as the last line of a tool.
    pub fn note(&self, text: &str) {
        if self.is_due(false) {
            self.emit(State::Progress, details([("note", text.into())]));
        }
    }

    /// What it waits for, and why.
    pub fn waiting(&self, what: &str, why: &str) {
        self.emit(State::Waiting, details([("for", what.into()), ("why", why.into())]));
    }

    /// It ended well.
    pub fn done(self) {
        self.done_with(Map::new());
    }

    /// It ended well, with numbers.
    pub fn done_with(mut self, mut detail: Map<String, Value>) {
        detail.insert("secs".to_owned(), round(self.started.elapsed().as_secs_f64()).into());
        self.end(State::Done, detail);
    }

    /// It need not be done, and why (`cached`).
    pub fn skipped(mut self, why: &str) {
        self.end(State::Skipped, details([("why", why.into())]));
    }

    /// It failed.
    pub fn failed(mut self, cause: &str) {
        self.end(State::Failed, details([("cause", cause.into())]));
    }

    /// Runs `work` and ends the step with its result.
    pub fn run<T, E: std::fmt::Display>(self, work: impl FnOnce(&Self) -> Result<T, E>) -> Result<T, E> {
        let result = work(&self);
        match &result {
            Ok(_) => self.done(),
            Err(error) => self.failed(&error.to_string()),
        }
        result
    }

    /// Whether to say something now; the last word is always said.
    fn is_due(&self, last: bool) -> bool {
        let mut before = lock(&self.last_progress);
        let due = last || before.is_none_or(|before| before.elapsed() >= PACE);
        if due {
            *before = Some(Instant::now());
        }
        due
    }

    fn emit(&self, state: State, detail: Map<String, Value>) {
        self.report.build_event(&self.phase, &self.name, state, detail);
    }

    fn end(&mut self, state: State, detail: Map<String, Value>) {
        self.ended = true;
        self.emit(state, detail);
    }
}

fn counted(done: u64, total: u64, unit: &str) -> Map<String, Value> {
    details([("done", done.into()), ("total", total.into()), ("unit", unit.into())])
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.ended {
            let cause = if self.report.cancel().is_cancelled() { "interrupted" } else { "stopped before it was done" };
            self.end(State::Failed, details([("cause", cause.into())]));
        }
    }
}
