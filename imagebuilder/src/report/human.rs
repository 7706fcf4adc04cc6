//! Events for people: bars on a terminal, plain lines elsewhere.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use agent_api::events::{Event, Source, State};
use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};

use super::lock;

/// Least time between two plain progress lines of a step.
const LINE_PACE: Duration = Duration::from_secs(5);

/// The three ways to show an event.
pub(super) enum Human {
    Silent,
    Lines { out: Mutex<Box<dyn Write + Send>>, progress: Mutex<HashMap<Key, Instant>> },
    Bars { all: MultiProgress, open: Mutex<HashMap<Key, ProgressBar>> },
}

/// Whose step it is.
type Key = (bool, String, String);

impl Human {
    pub fn silent() -> Self {
        Self::Silent
    }

    pub fn lines(out: Box<dyn Write + Send>) -> Self {
        Self::Lines { out: Mutex::new(out), progress: Mutex::default() }
    }

    pub fn bars() -> Self {
        Self::Bars { all: MultiProgress::new(), open: Mutex::default() }
    }

    pub fn event(&self, event: &Event) {
        let key = (event.source == Source::Box, event.phase.clone(), event.step.clone());
        match self {
            Self::Silent => {}
            Self::Lines { progress, .. } => {
                let mut seen = lock(progress);
                if event.state == State::Progress {
                    let before = seen.entry(key).or_insert_with(Instant::now);
                    if before.elapsed() < LINE_PACE {
                        return;
                    }
                    *before = Instant::now();
                } else {
                    seen.insert(key, Instant::now());
                }
                drop(seen);
                self.line(&sentence(event));
            }
            Self::Bars { all, open } => {
                let mut open = lock(open);
                match event.state {
                    State::Done | State::Skipped | State::Failed => {
                        if let Some(bar) = open.remove(&key) {
                            bar.finish_and_clear();
                        }
                        // A failed terminal must not end a build.
                        let _ = all.println(sentence(event));
                    }
                    State::Started | State::Progress | State::Waiting => {
                        let bar = open.entry(key).or_insert_with(|| new_bar(all, event));
                        update(bar, event);
                    }
                }
            }
        }
    }

    /// Shows a line; false when nothing is shown at all.
    pub fn line(&self, text: &str) -> bool {
        match self {
            Self::Silent => return false,
            Self::Lines { out, .. } => {
                let _ = lock(out).write_all(format!("{text}\n").as_bytes());
            }
            Self::Bars { all, .. } => {
                let _ = all.println(text);
            }
        }
        true
    }

    /// Runs `work` while no bar is on the screen.
    pub fn suspend(&self, work: impl FnOnce()) {
        match self {
            Self::Bars { all, .. } => all.suspend(work),
            Self::Silent | Self::Lines { .. } => work(),
        }
    }

    /// Takes all bars off the screen.
    pub fn clear(&self) {
        if let Self::Bars { all, open } = self {
            lock(open).drain().for_each(|(_, bar)| bar.finish_and_clear());
            let _ = all.clear();
        }
    }
}

fn new_bar(all: &MultiProgress, event: &Event) -> ProgressBar {
    // Complete before it is added: adding draws.
    let plain = style("{spinner} {prefix:<26!} {elapsed:>4} {wide_msg}");
    let bar = all.add(ProgressBar::no_length().with_style(plain).with_prefix(name(event)));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn update(bar: &ProgressBar, event: &Event) {
    let number = |key: &str| event.detail.get(key).and_then(serde_json::Value::as_u64);
    let pair = number("bytes").zip(number("totalBytes")).or_else(|| number("done").zip(number("total")));
    if let Some((done, total)) = pair {
        if bar.length() != Some(total) {
            bar.set_style(style("{spinner} {prefix:<26!} {elapsed:>4} {bar:20} {percent:>3} % {wide_msg}"));
            bar.set_length(total);
        }
        bar.set_position(done);
    }
    bar.set_message(words(event));
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Phase and step; what the box says is marked.
fn name(event: &Event) -> String {
    let place = if event.phase == event.step { event.phase.clone() } else { format!("{} {}", event.phase, event.step) };
    match event.source {
        Source::Build => place,
        Source::Box => format!("box: {place}"),
    }
}

/// One plain line: time, name, what happened.
fn sentence(event: &Event) -> String {
    let words = words(event);
    let what = match event.state {
        State::Started => "started".to_owned(),
        State::Done => done(event),
        State::Skipped if words.is_empty() => "skipped".to_owned(),
        State::Progress | State::Waiting | State::Skipped => words,
        State::Failed => format!("failed: {words}"),
    };
    format!("{:8.1} s  {:<26}  {what}", event.t, name(event))
}

fn done(event: &Event) -> String {
    let mut text = "done".to_owned();
    if let Some(secs) = event.detail.get("secs").and_then(serde_json::Value::as_f64) {
        let _ = write!(text, " in {secs:.1} s");
    }
    if let Some(bytes) = event.detail.get("bytes").and_then(serde_json::Value::as_u64) {
        let _ = write!(text, ", {}", HumanBytes(bytes));
    }
    text
}

/// The details as a phrase.
fn words(event: &Event) -> String {
    let number = |key: &str| event.detail.get(key).and_then(serde_json::Value::as_u64);
    if event.state == State::Waiting {
        let mut text = format!("waiting for {}", event.text("for").unwrap_or("something"));
        if let Some(why) = event.text("why").filter(|why| !why.is_empty()) {
            let _ = write!(text, " ({why})");
        }
        return text;
    }
    if event.state == State::Failed {
        let mut text = event.text("cause").unwrap_or("for an unknown reason").to_owned();
        for (key, label) in [("next", "next"), ("log", "log")] {
            if let Some(more) = event.text(key) {
                let _ = write!(text, "; {label}: {more}");
            }
        }
        return text;
    }
    let mut parts: Vec<String> = Vec::new();
    match (number("bytes"), number("totalBytes")) {
        (Some(done), Some(total)) => parts.push(format!("{} of {}", HumanBytes(done), HumanBytes(total))),
        (Some(done), None) => parts.push(HumanBytes(done).to_string()),
        (None, _) => {}
    }
    parts.extend(number("bytesPerSec").map(|rate| format!("{}/s", HumanBytes(rate))));
    if let (Some(done), Some(total)) = (number("done"), number("total")) {
        parts.push(format!("{done} of {total} {}", event.text("unit").unwrap_or_default()));
    }
    parts.extend(["note", "why"].iter().filter_map(|key| event.text(key)).map(str::to_owned));
    parts.join(", ")
}
