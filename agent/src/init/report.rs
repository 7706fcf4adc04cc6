//! Telling what happens: events to the file and the virtio port, lines to every console.
//!
//! Nothing here may hold up the boot: devices are opened non-blocking, and one that accepts no bytes is skipped.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_api::boot::EVENTS;
use agent_api::events::{EVENT_PORT, Event, Phase, State};
use fs_err::{File, OpenOptions};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::time::Timespec;
use serde_json::Value;

use super::fatal::Fatal;
use crate::host::{block, clock};

/// Longest wait for a console that is behind, for a line and for a message that must be seen.
const LINE_WAIT_MILLIS: u32 = 20;
const FRAME_WAIT_MILLIS: u32 = 2000;
/// The kernel's list of the consoles it writes to.
const ACTIVE_CONSOLES: &str = "/sys/class/tty/console/active";
const VIRTIO_PORTS: &str = "/sys/class/virtio-ports";

/// Everything that listens.
#[derive(Debug, Default)]
pub struct Report {
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    consoles: Vec<Console>,
    file: Option<File>,
    port: Option<File>,
    unsent: Vec<u8>,
}

#[derive(Debug)]
struct Console {
    device: File,
    behind: bool,
}

/// A step that began.
#[derive(Clone, Copy, Debug)]
pub struct InitStep {
    phase: Phase,
    name: &'static str,
    since: f64,
}

impl Report {
    /// Opens what there is by now: `/dev`, `/sys` and `/run` are mounted.
    pub fn open() -> Self {
        let report = Self::default();
        let mut listeners = report.lock();
        listeners.consoles = open_consoles();
        listeners.file = OpenOptions::new().create(true).append(true).open(EVENTS).ok();
        drop(listeners);
        report
    }

    /// Opens the consoles alone: for a process that is not the one that reports.
    pub fn consoles_only() -> Self {
        let report = Self::default();
        report.lock().consoles = open_consoles();
        report
    }

    /// A step begins.
    pub fn started(&self, phase: Phase, name: &'static str) -> InitStep {
        let since = clock::boot_secs();
        self.emit(&Event::of_box(since, phase, name, State::Started));
        InitStep { phase, name, since }
    }

    /// It ended well.
    pub fn done(&self, step: InitStep, message: &str) {
        self.done_with(step, message, &[]);
    }

    /// It ended well, with numbers.
    pub fn done_with(&self, step: InitStep, message: &str, detail: &[(&str, Value)]) {
        let now = clock::boot_secs();
        let secs = ((now - step.since) * 1000.0).round() / 1000.0;
        let mut event =
            Event::of_box(now, step.phase, step.name, State::Done).with("secs", secs).with("message", message);
        for (key, value) in detail {
            event = event.with(key, value.clone());
        }
        self.emit(&event);
        self.line(&format!("{}: {message}", step.phase));
    }

    /// It goes on.
    pub fn progress(&self, step: InitStep, message: &str, percent: u64) {
        let event = Event::of_box(clock::boot_secs(), step.phase, step.name, State::Progress);
        self.emit(&event.with("percent", percent).with("message", message));
        self.line(&format!("{}: {message}: {percent} %", step.phase));
    }

    /// It waits.
    pub fn waiting(&self, step: InitStep, what: &str, why: &str) {
        let event = Event::of_box(clock::boot_secs(), step.phase, step.name, State::Waiting);
        self.emit(&event.with("for", what).with("why", why));
        self.line(&format!("{}: waiting for {what}: {why}", step.phase));
    }

    /// The box cannot start unless somebody acts: an event, and the message on every console. A program that waits for
    /// the box may give up at this event, though the box would notice another medium.
    pub fn failed(&self, fatal: &Fatal, title: &str) {
        let event = Event::of_box(clock::boot_secs(), fatal.phase, fatal.step, State::Failed);
        let cause = format!("found {}; expected {}", fatal.found.replace('\n', "; "), fatal.expected);
        let event = event.with("fatal", true).with("cause", cause).with("next", fatal.next.as_str());
        self.emit(&event.with("log", "this console"));
        self.to_consoles(&fatal.frame(title), FRAME_WAIT_MILLIS);
    }

    /// Tells the host an event, unless somebody else has the port: only one process may.
    pub fn to_port_if_free(&self, event: &Event) {
        let Ok(mut line) = serde_json::to_vec(event) else { return };
        line.push(b'\n');
        let mut listeners = self.lock();
        listeners.unsent = line;
        listeners.send();
        // The next process finds the port free.
        listeners.port = None;
    }

    /// Sends the events that the host's port has not taken yet. Returns whether none is left.
    pub fn send_waiting(&self) -> bool {
        let mut listeners = self.lock();
        listeners.send();
        listeners.unsent.is_empty()
    }

    /// One line on every console.
    pub fn line(&self, text: &str) {
        self.to_consoles(&format!("[{:7.2}] {text}\n", clock::boot_secs()), LINE_WAIT_MILLIS);
    }

    /// A message that must be seen, as it is.
    pub fn message(&self, text: &str) {
        self.to_consoles(text, FRAME_WAIT_MILLIS);
    }

    fn to_consoles(&self, text: &str, wait_millis: u32) {
        let text = text.replace('\n', "\r\n");
        for console in &mut self.lock().consoles {
            console.write(text.as_bytes(), wait_millis);
        }
    }

    fn emit(&self, event: &Event) {
        let Ok(mut line) = serde_json::to_vec(event) else { return };
        line.push(b'\n');
        let mut listeners = self.lock();
        if let Some(file) = &mut listeners.file {
            let _ = file.write_all(&line);
        }
        listeners.unsent.extend_from_slice(&line);
        listeners.send();
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listeners {
    fn send(&mut self) {
        if self.port.is_none() {
            self.port = open_port();
        }
        let Some(port) = &mut self.port else { return };
        while !self.unsent.is_empty() {
            match port.write(&self.unsent) {
                Ok(0) | Err(_) => return,
                Ok(sent) => drop(self.unsent.drain(..sent)),
            }
        }
    }
}

impl Console {
    fn write(&mut self, mut bytes: &[u8], wait_millis: u32) {
        let patient = !self.behind || wait_millis >= FRAME_WAIT_MILLIS;
        self.behind = false;
        while !bytes.is_empty() {
            match self.device.write(bytes) {
                Ok(0) => return,
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !(patient && can_write(&self.device, wait_millis)) {
                        self.behind = true;
                        return;
                    }
                }
                // A port without a chip behind it.
                Err(_) => return,
            }
        }
    }
}

fn can_write(device: &File, wait_millis: u32) -> bool {
    let limit = Timespec { tv_sec: i64::from(wait_millis / 1000), tv_nsec: i64::from(wait_millis % 1000) * 1_000_000 };
    matches!(poll(&mut [PollFd::new(device, PollFlags::OUT)], Some(&limit)), Ok(ready) if ready > 0)
}

fn open_for_writing(path: &std::path::Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    Ok(File::from_parts(fd.into(), path))
}

fn open_consoles() -> Vec<Console> {
    let active = fs_err::read_to_string(ACTIVE_CONSOLES).unwrap_or_default();
    console_names(&active)
        .iter()
        .filter_map(|name| open_for_writing(&block::node(name)).ok())
        .map(|device| Console { device, behind: false })
        .collect()
}

/// The kernel's consoles, the screen and the first serial port, each once; `/dev/console` itself
/// only when the kernel names none, since it is one of them.
fn console_names(active: &str) -> Vec<&str> {
    let mut names: Vec<&str> = active.split_whitespace().collect();
    if names.is_empty() {
        names.push("console");
    }
    for name in ["tty0", "ttyS0"] {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn open_port() -> Option<File> {
    let entries = fs_err::read_dir(VIRTIO_PORTS).ok()?;
    let ours = entries
        .filter_map(Result::ok)
        .find(|entry| fs_err::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim() == EVENT_PORT))?;
    open_for_writing(&block::node(&ours.file_name().to_string_lossy())).ok()
}

#[cfg(test)]
mod tests {
    use agent_api::events::{Event, Phase};
    use fs_err::File;

    use super::{Report, console_names};
    use crate::init::fatal::Fatal;

    #[test]
    fn a_failure_of_the_initrd_is_fatal_in_the_file_and_on_the_port() {
        let dir = tempfile::tempdir().expect("a folder");
        let (file, port) = (dir.path().join("events"), dir.path().join("port"));
        let report = Report::default();
        let mut listeners = report.lock();
        listeners.file = Some(File::create(&file).expect("a file"));
        listeners.port = Some(File::create(&port).expect("a port"));
        drop(listeners);
        report.failed(&Fatal::medium("layers", "one\ntwo", "three", "four"), "a title");
        assert!(report.send_waiting());
        let sent = fs_err::read(&port).expect("what the port got");
        assert_eq!(sent, fs_err::read(&file).expect("what the file got"));
        let event: Event = serde_json::from_slice(&sent).expect("one event");
        assert!(event.is_fatal());
        assert_eq!(event.phase, Phase::Medium.name());
        let words = ["cause", "next", "log"].map(|key| event.text(key).unwrap_or_default());
        assert_eq!(words, ["found one; two; expected three", "four", "this console"]);
    }

    #[test]
    fn every_console_is_written_to_once() {
        assert_eq!(console_names("tty0 ttyS0\n"), ["tty0", "ttyS0"]);
        assert_eq!(console_names("ttyS1\n"), ["ttyS1", "tty0", "ttyS0"]);
        assert_eq!(console_names(""), ["console", "tty0", "ttyS0"]);
    }
}
