//! What a running machine says: events, serial output, QEMU's own complaints; and waiting for it.
//!
//! Reader threads append, any number of callers read from a position of their own. The threads end when
//! QEMU does.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Serial output kept; when there is more the older half goes.
const SERIAL_KEPT: usize = 32 << 20;
/// How much of what was said goes into an error.
const TAIL_EVENTS: usize = 8;
const TAIL_LINES: usize = 25;
const TAIL_BYTES: usize = 16 << 10;

/// A line from the event port.
#[derive(Debug, Clone, PartialEq)]
pub struct EventLine {
    /// When it arrived, since the machine was switched on.
    pub at: Duration,
    /// The line as it came.
    pub text: String,
    /// The line as JSON; `None` if it is malformed.
    pub value: Option<Value>,
}

/// How long to wait: as long as there is progress.
///
/// Progress is an event that was not there before: another phase, step, state or detail. Repeating the
/// same is none, and neither is serial output once events have begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Longest time without progress.
    pub stall: Duration,
    /// Longest time at all.
    pub total: Duration,
}

impl Patience {
    /// `stall` without progress, ten times as long at all.
    pub const fn stall(stall: Duration) -> Self {
        Self { stall, total: stall.saturating_mul(10) }
    }

    /// No longer than `total`, whatever happens.
    pub const fn total(total: Duration) -> Self {
        Self { stall: total, total }
    }
}

/// What was waited for did not come.
#[derive(Debug, thiserror::Error)]
#[error("waiting for {wanted}: {why}\n{tail}")]
pub struct WaitError {
    /// In the caller's words.
    pub wanted: String,
    /// What happened instead.
    pub why: Why,
    /// The last events and lines of serial output.
    pub tail: String,
}

/// Why a wait ended without what was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Nothing new for too long.
    #[error("no progress for {0:.0?}")]
    Stalled(Duration),
    /// Progress, but not there in time.
    #[error("not there after {0:.0?}")]
    Overdue(Duration),
    /// The machine is off.
    #[error("the machine ended")]
    Ended,
}

/// Gets serial output as it comes.
pub type Mirror = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// A source that shows what passes through.
struct Mirrored<R> {
    source: R,
    mirror: Option<Mirror>,
}

impl<R: Read> Read for Mirrored<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.source.read(buffer)?;
        if let Some(mirror) = &self.mirror {
            mirror(&buffer[..length]);
        }
        Ok(length)
    }
}

/// Everything said so far. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    shared: Arc<(Mutex<Said>, Condvar)>,
    since: Instant,
}

#[derive(Debug, Default)]
struct Said {
    events: Vec<EventLine>,
    serial: Vec<u8>,
    /// Bytes of serial output no longer kept.
    serial_dropped: u64,
    stderr: String,
    ended: bool,
    readers: usize,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self { shared: Arc::default(), since: Instant::now() }
    }

    /// Counts from now: the machine is switched on.
    pub(crate) fn restart_clock(&mut self) {
        self.since = Instant::now();
    }

    pub(crate) fn since(&self) -> Duration {
        self.since.elapsed()
    }

    /// Reads event lines until the port closes.
    pub(crate) fn follow_events(&self, source: impl Read + Send + 'static) {
        let since = self.since;
        let mut partial = Vec::new();
        self.follow(source, move |said, bytes| {
            partial.extend_from_slice(bytes);
            while let Some(end) = partial.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = partial.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                if !text.is_empty() {
                    let value = serde_json::from_str(&text).ok();
                    said.events.push(EventLine { at: since.elapsed(), text, value });
                }
            }
        });
    }

    /// Reads serial output until the port closes; `mirror` gets it too.
    pub(crate) fn follow_serial(&self, source: impl Read + Send + 'static, mirror: Option<Mirror>) {
        let mirrored = Mirrored { source, mirror };
        self.follow(mirrored, |said, bytes| {
            said.serial.extend_from_slice(bytes);
            if said.serial.len() > SERIAL_KEPT {
                said.serial.drain(..SERIAL_KEPT / 2);
                said.serial_dropped += (SERIAL_KEPT / 2) as u64;
            }
        });
    }

    /// Reads what QEMU prints; its end is the end of QEMU.
    pub(crate) fn follow_stderr(&self, mut source: impl Read + Send + 'static) {
        let journal = self.clone();
        journal.lock().readers += 1;
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = source.read(&mut buffer) {
                journal.lock().stderr.push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
            journal.update(|said| {
                said.ended = true;
                said.readers -= 1;
            });
        });
    }

    fn follow(&self, mut source: impl Read + Send + 'static, mut take: impl FnMut(&mut Said, &[u8]) + Send + 'static) {
        let journal = self.clone();
        journal.lock().readers += 1;
        std::thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(length @ 1..) = source.read(&mut buffer) {
                journal.update(|said| take(said, &buffer[..length]));
            }
            journal.update(|said| said.readers -= 1);
        });
    }

    fn update(&self, change: impl FnOnce(&mut Said)) {
        change(&mut self.lock());
        self.shared.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until something is said or `until`; the guard of the state then.
    fn changed<'a>(&self, said: MutexGuard<'a, Said>, until: Instant) -> MutexGuard<'a, Said> {
        let left = until.saturating_duration_since(Instant::now());
        self.shared.1.wait_timeout(said, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Whether QEMU ended, waiting for that until `until`, and for the rest of what it said.
    pub(crate) fn wait_ended(&self, until: Instant) -> bool {
        let mut said = self.lock();
        while !(said.ended && said.readers == 0) && Instant::now() < until {
            said = self.changed(said, until);
        }
        said.ended
    }

    pub(crate) fn events(&self) -> Vec<EventLine> {
        self.lock().events.clone()
    }

    /// The event at `position`, waiting for it until `until`; `None` then, or when QEMU has ended.
    pub(crate) fn event(&self, position: usize, until: Instant) -> Option<EventLine> {
        let mut said = self.lock();
        loop {
            if let Some(event) = said.events.get(position) {
                return Some(event.clone());
            }
            if (said.ended && said.readers == 0) || Instant::now() >= until {
                return None;
            }
            said = self.changed(said, until);
        }
    }

    pub(crate) fn serial(&self) -> String {
        String::from_utf8_lossy(&self.lock().serial).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        self.lock().stderr.clone()
    }

    /// Looks at events from `position` on until `found`; leaves `position` behind the event found.
    pub(crate) fn wait_event(
        &self,
        position: &mut usize,
        patience: Patience,
        wanted: &str,
        mut found: impl FnMut(&Value) -> bool,
    ) -> Result<Value, WaitError> {
        let began = Instant::now();
        let mut progress = Progress::new(began);
        let mut said = self.lock();
        loop {
            while let Some(event) = said.events.get(*position) {
                *position += 1;
                let Some(value) = event.value.clone() else { continue };
                // The caller may take its time, and may look at the machine.
                drop(said);
                progress.saw_event(&value);
                if found(&value) {
                    return Ok(value);
                }
                said = self.lock();
            }
            progress.saw_serial(said.serial_dropped + said.serial.len() as u64);
            match progress.verdict(patience, said.ended && said.readers == 0) {
                Ok(until) => said = self.changed(said, until),
                Err(why) => {
                    let tail = tail(&said);
                    return Err(WaitError { wanted: wanted.to_owned(), why, tail });
                }
            }
        }
    }

    /// Waits until the serial output contains `text`.
    pub(crate) fn wait_serial(&self, patience: Patience, text: &str) -> Result<(), WaitError> {
        let mut progress = Progress::new(Instant::now());
        let mut said = self.lock();
        loop {
            if contains(&said.serial, text.as_bytes()) {
                return Ok(());
            }
            progress.saw_serial(said.serial_dropped + said.serial.len() as u64);
            match progress.verdict(patience, said.ended && said.readers == 0) {
                Ok(until) => said = self.changed(said, until),
                Err(why) => {
                    return Err(WaitError { wanted: format!("`{text}` on the serial line"), why, tail: tail(&said) });
                }
            }
        }
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || haystack.windows(needle.len()).any(|window| window == needle)
}

/// Decides whether a wait goes on.
#[derive(Debug)]
struct Progress {
    began: Instant,
    last: Instant,
    seen: std::collections::HashSet<String>,
    serial_length: u64,
}

impl Progress {
    fn new(now: Instant) -> Self {
        Self { began: now, last: now, seen: std::collections::HashSet::new(), serial_length: 0 }
    }

    /// An event is progress when it differs from all before in more than its time.
    fn saw_event(&mut self, event: &Value) {
        let keys = ["source", "phase", "step", "state", "detail"];
        let identity = keys.map(|key| event[key].to_string()).join("\0");
        if self.seen.insert(identity) {
            self.last = Instant::now();
        }
    }

    /// Before the first event (firmware, boot loader, kernel) serial output is all there is.
    fn saw_serial(&mut self, length: u64) {
        if length != self.serial_length && self.seen.is_empty() {
            self.last = Instant::now();
        }
        self.serial_length = length;
    }

    /// Until when to wait for more.
    fn verdict(&self, patience: Patience, ended: bool) -> Result<Instant, Why> {
        let now = Instant::now();
        let (stalled, overdue) = (self.last + patience.stall, self.began + patience.total);
        if ended {
            Err(Why::Ended)
        } else if now >= overdue {
            Err(Why::Overdue(patience.total))
        } else if now >= stalled {
            Err(Why::Stalled(patience.stall))
        } else {
            Ok(stalled.min(overdue))
        }
    }
}

/// The end of everything said, for an error message.
fn tail(said: &Said) -> String {
    let events = said.events[said.events.len().saturating_sub(TAIL_EVENTS)..].iter();
    let events = events.map(|event| format!("{:7.1} s  {}", event.at.as_secs_f64(), event.text));
    let serial = String::from_utf8_lossy(&said.serial[said.serial.len().saturating_sub(TAIL_BYTES)..]);
    let lines: Vec<String> = serial.lines().map(printable).filter(|line| !line.trim().is_empty()).collect();
    let lines = lines[lines.len().saturating_sub(TAIL_LINES)..].iter().cloned();
    let mut tail = vec!["last events:".to_owned()];
    tail.extend(indented(events));
    tail.push("end of the serial output:".to_owned());
    tail.extend(indented(lines));
    if !said.stderr.trim().is_empty() {
        tail.push("QEMU says:".to_owned());
        tail.extend(indented(said.stderr.trim().lines().map(str::to_owned)));
    }
    tail.join("\n")
}

fn indented(lines: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    lines.map(|line| format!("  {line}"))
}

/// A line of terminal output without its escape sequences.
pub(crate) fn printable(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            // CSI: ESC [ parameters, ended by a byte from @ to ~ (ECMA-48 5.4).
            if characters.next() == Some('[') {
                characters.by_ref().find(|c| ('@'..='~').contains(c));
            }
        } else if !character.is_control() || character == '\t' {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
