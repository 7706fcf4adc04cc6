//! Events of this boot: one [`Bus`] carries each of them to all who show or keep them.
//!
//! ```text
//! initrd -> /run/foothold/events.jsonl --replay--+
//!                                                v
//! steps --emit--> Bus --+-- Status (watch) ------> console, REST
//!                       +-- history (since n) ---> REST's event stream
//!                       +-- /run/foothold/events.jsonl        at once: a restarted agent continues here
//!                       +-- sink thread: DATA, org.foothold.events, journal
//! ```
//!
//! `emit` never waits for a device: what goes to DATA, the host's port or the journal passes through
//! a bounded queue, and what does not fit is dropped and counted.

mod lossy;
mod sink;

use std::collections::VecDeque;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_api::boot;
use agent_api::events::{EVENT_PORT, Event, PhaseWord, State, Status};
use agent_api::rest::{ObjectStatus, SiteStatus};
use serde_json::{Map, Value};
use tokio::sync::{broadcast, watch};

pub use lossy::LossyWriter;
pub use sink::Dropped;

/// How many of the newest events of this boot stay in memory. A first boot makes about 200.
const HISTORY: usize = 2048;
/// How many of the first ones stay too: the way to `ready`, for the timeline.
const BEGINNING: usize = 1024;
/// Bytes of this boot's file in /run, above which it is written anew with what is in memory.
const FILE_BYTES: u64 = 4 * 1024 * 1024;
/// How many events a slow subscriber may lag behind before it misses some.
const BROADCAST: usize = 256;

/// Seconds since power-on, as events tell them.
pub use crate::host::clock::boot_secs as uptime;

/// Where the events of a box go.
#[derive(Clone, Debug)]
pub struct Paths {
    /// This boot's events, one a line; what the initrd wrote is read back from here.
    pub events: PathBuf,
    /// Remembers this boot's number, so that a restarted agent continues in the same file of DATA.
    pub boot_number: PathBuf,
    /// Folder of DATA with one `boot-<n>.jsonl` a boot.
    pub durable: PathBuf,
    /// Character device of the virtio-serial port, if the machine has it.
    pub port: Option<PathBuf>,
}

impl Paths {
    /// The paths of a real box.
    pub fn of_box() -> Self {
        Self {
            events: PathBuf::from(boot::EVENTS),
            boot_number: PathBuf::from("/run/foothold/boot-number"),
            durable: PathBuf::from("/var/lib/foothold/events"),
            port: find_port(Path::new("/sys/class/virtio-ports"), EVENT_PORT),
        }
    }
}

/// The device of the virtio-serial port of that name, looked up below `class` (`/sys/class/virtio-ports`).
pub fn find_port(class: &Path, name: &str) -> Option<PathBuf> {
    let ports = fs_err::read_dir(class).ok()?;
    ports.flatten().find_map(|port| {
        let found = fs_err::read_to_string(port.path().join("name")).ok()?;
        (found.trim() == name).then(|| Path::new("/dev").join(port.file_name()))
    })
}

/// The step plan: what first boot is going to do, so that progress has a total.
pub type StepPlan = Vec<(PhaseWord, String)>;

/// Carries events from steps and tasks to console, REST and files. Cheap to clone.
#[derive(Clone)]
pub struct Bus {
    inner: Arc<Inner>,
}

struct Inner {
    log: Mutex<Log>,
    status: watch::Sender<Arc<Status>>,
    plan: watch::Sender<Arc<StepPlan>>,
    objects: watch::Sender<Arc<[ObjectStatus]>>,
    site: watch::Sender<Arc<SiteStatus>>,
    live: broadcast::Sender<Event>,
    sink: sink::Sink,
}

/// What is guarded together, so that all readers see the same order.
#[derive(Default)]
struct Log {
    /// Number of the first event in `kept`; events are numbered from 0 in each boot.
    first: u64,
    kept: VecDeque<Event>,
    /// Events 0 and following, up to the first `ready`.
    beginning: Vec<Event>,
    ready_at: Option<f64>,
    file: Option<RunFile>,
}

/// This boot's file in /run.
struct RunFile {
    path: PathBuf,
    file: fs_err::File,
    bytes: u64,
    /// More bytes than this make it be written anew.
    most: u64,
}

impl Bus {
    /// Opens the bus of a box: what this boot has already told is read back and not told again.
    pub fn open(paths: &Paths) -> io::Result<Self> {
        if let Some(dir) = paths.events.parent() {
            fs_err::create_dir_all(dir)?;
        }
        let mut file = fs_err::OpenOptions::new().create(true).read(true).append(true).open(&paths.events)?;
        let (past, bytes) = replay(&mut file)?;
        let sink = sink::Sink::start(paths, &past);
        Ok(Self::with(
            past,
            Some(RunFile { path: paths.events.clone(), file, bytes, most: FILE_BYTES.max(bytes) }),
            sink,
        ))
    }

    /// A bus that only remembers: for tests and for commands that do not run the box.
    pub fn in_memory() -> Self {
        Self::with(Vec::new(), None, sink::Sink::none())
    }

    fn with(past: Vec<Event>, file: Option<RunFile>, sink: sink::Sink) -> Self {
        let mut status = Status::default();
        let mut log = Log { file, ..Log::default() };
        for event in past {
            status.apply(&event);
            log.keep(event);
        }
        Self {
            inner: Arc::new(Inner {
                log: Mutex::new(log),
                status: watch::Sender::new(Arc::new(status)),
                plan: watch::Sender::new(Arc::default()),
                objects: watch::Sender::new(Arc::default()),
                site: watch::Sender::new(Arc::default()),
                live: broadcast::Sender::new(BROADCAST),
                sink,
            }),
        }
    }

    /// Tells one event to everybody. Never waits for a device.
    pub fn emit(&self, event: Event) {
        self.emit_locked(&mut self.lock(), event);
    }

    /// Emits the event that `decide` makes of the status, if it makes one; no other event comes between. Returns whether
    /// there was one.
    pub fn tell_if(&self, decide: impl FnOnce(&Status) -> Option<Event>) -> bool {
        let mut log = self.lock();
        let event = decide(&self.now());
        event.map(|event| self.emit_locked(&mut log, event)).is_some()
    }

    fn emit_locked(&self, log: &mut Log, event: Event) {
        log.keep(event.clone());
        // A full /run must not stop the box; the event still reaches everybody else.
        let _ = log.write(&event);
        self.inner.status.send_modify(|status| Arc::make_mut(status).apply(&event));
        self.inner.sink.send(&event);
        let _ = self.inner.live.send(event);
    }

    /// The step began.
    pub fn started(&self, phase: impl Into<PhaseWord>, step: &str) {
        self.emit(Event::of_box(uptime(), phase, step, State::Started));
    }

    /// Numbers changed; `detail` is an object.
    pub fn progress(&self, phase: impl Into<PhaseWord>, step: &str, detail: Value) {
        self.tell(phase, step, State::Progress, detail);
    }

    /// The step ended well; `secs` since it started is added.
    pub fn done(&self, phase: impl Into<PhaseWord>, step: &str) {
        self.done_with(phase, step, Value::Null);
    }

    /// The step ended well, with more to say; `secs` since it started is added.
    pub fn done_with(&self, phase: impl Into<PhaseWord>, step: &str, detail: Value) {
        let (now, phase) = (uptime(), phase.into());
        let begun = self.now().steps.iter().find(|s| s.phase == phase.name() && s.step == step).map(|s| s.since);
        let mut event = with_detail(Event::of_box(now, phase, step, State::Done), detail);
        let secs = begun.map_or(0.0, |begun| (now - begun).max(0.0));
        event.detail.entry("secs").or_insert_with(|| Value::from((secs * 1000.0).round() / 1000.0));
        self.emit(event);
    }

    /// The step was recorded earlier and is still true.
    pub fn skipped(&self, phase: impl Into<PhaseWord>, step: &str) {
        self.emit(Event::of_box(uptime(), phase, step, State::Skipped));
    }

    /// The step waits for something, and why that takes time.
    pub fn waiting(&self, phase: impl Into<PhaseWord>, step: &str, what: &str, why: &str) {
        let event = Event::of_box(uptime(), phase, step, State::Waiting).with("for", what).with("why", why);
        self.emit(event);
    }

    /// The step failed: the cause, what to do (or what happens) next, and where the log is.
    pub fn failed(&self, phase: impl Into<PhaseWord>, step: &str, cause: &str, next: &str, log: &str) {
        let event = Event::of_box(uptime(), phase, step, State::Failed);
        self.emit(event.with("cause", cause).with("next", next).with("log", log));
    }

    /// Every event from now on. A receiver that lags more than 256 events misses some; [`Bus::since`] does not.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.inner.live.subscribe()
    }

    /// Events from number `n` on, and the number of the first of them: more than `n` if older ones are forgotten,
    /// less if there are not so many yet.
    pub fn since(&self, n: u64) -> (u64, Vec<Event>) {
        let log = self.lock();
        let from = n.clamp(log.first, log.first + log.kept.len() as u64);
        let skip = usize::try_from(from - log.first).unwrap_or(usize::MAX);
        (from, log.kept.iter().skip(skip).cloned().collect())
    }

    /// The events from power-on to the first `ready`, at most 1024.
    pub fn beginning(&self) -> Vec<Event> {
        self.lock().beginning.clone()
    }

    /// When the box was ready first, seconds since power-on.
    pub fn ready_at(&self) -> Option<f64> {
        self.lock().ready_at
    }

    /// What follows from the events so far; changes with every event.
    pub fn status(&self) -> watch::Receiver<Arc<Status>> {
        self.inner.status.subscribe()
    }

    /// What follows from the events so far, at this moment.
    pub fn now(&self) -> Arc<Status> {
        self.inner.status.borrow().clone()
    }

    /// Declares the steps that are going to be run, in order. Not an event: it only gives progress a total.
    pub fn set_plan<'a>(&self, steps: impl IntoIterator<Item = (impl Into<PhaseWord>, &'a str)>) {
        let plan = steps.into_iter().map(|(phase, step)| (phase.into(), step.to_owned())).collect();
        self.inner.plan.send_replace(Arc::new(plan));
    }

    /// The declared steps.
    pub fn plan(&self) -> Arc<StepPlan> {
        self.inner.plan.borrow().clone()
    }

    /// Sets the state of the objects that the release declares. Not an event: waits for them are told as events.
    pub fn set_objects(&self, objects: Vec<ObjectStatus>) {
        self.inner.objects.send_if_modified(|known| {
            let news = known[..] != objects[..];
            if news {
                *known = objects.into();
            }
            news
        });
    }

    /// The state of the objects that the release declares.
    pub fn objects(&self) -> Arc<[ObjectStatus]> {
        self.inner.objects.borrow().clone()
    }

    /// Changes what is known of the site. Not an event: its objects have events of their own. Returns whether it is news.
    pub fn change_site(&self, change: impl FnOnce(&mut SiteStatus)) -> bool {
        self.inner.site.send_if_modified(|known| {
            let mut next = SiteStatus::clone(known);
            change(&mut next);
            let news = **known != next;
            if news {
                *known = Arc::new(next);
            }
            news
        })
    }

    /// What is known of the site.
    pub fn site(&self) -> Arc<SiteStatus> {
        self.inner.site.borrow().clone()
    }

    /// How many events did not reach DATA or the host's port.
    pub fn dropped(&self) -> Dropped {
        self.inner.sink.dropped()
    }

    fn tell(&self, phase: impl Into<PhaseWord>, step: &str, state: State, detail: Value) {
        self.emit(with_detail(Event::of_box(uptime(), phase, step, state), detail));
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        // The log is valid after each single push: a panic elsewhere does not make it unusable.
        self.inner.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn keep(&mut self, event: Event) {
        if self.ready_at.is_none() && self.beginning.len() < BEGINNING {
            self.beginning.push(event.clone());
        }
        if event.is_ready() {
            self.ready_at.get_or_insert(event.t);
        }
        self.kept.push_back(event);
        if self.kept.len() > HISTORY {
            self.kept.pop_front();
            self.first += 1;
        }
    }

    /// Appends the newest event to the file, or writes the file anew with what is kept when it has grown too long.
    fn write(&mut self, event: &Event) -> io::Result<()> {
        let Some(run) = &mut self.file else { return Ok(()) };
        let text = line(event);
        if run.bytes + text.len() as u64 <= run.most {
            run.bytes += text.len() as u64;
            return run.file.write_all(&text);
        }
        let forgotten = usize::try_from(self.first).unwrap_or(usize::MAX);
        let kept = self.beginning.iter().take(forgotten).chain(&self.kept);
        let text: Vec<u8> = kept.flat_map(line).collect();
        let draft = run.path.with_extension("new");
        fs_err::write(&draft, &text)?;
        fs_err::rename(&draft, &run.path)?;
        run.file = fs_err::OpenOptions::new().append(true).open(&run.path)?;
        run.bytes = text.len() as u64;
        // Very long events must not make each next one write it all again.
        run.most = FILE_BYTES.max(2 * run.bytes);
        Ok(())
    }
}

fn with_detail(mut event: Event, detail: Value) -> Event {
    match detail {
        Value::Null => {}
        Value::Object(map) => event.detail = map,
        other => event.detail = Map::from_iter([("value".to_owned(), other)]),
    }
    event
}

/// One event as it stands in a file, newline included.
fn line(event: &Event) -> Vec<u8> {
    // A map with string keys and finite numbers always serializes.
    let mut bytes = serde_json::to_vec(event).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Reads the events of this boot back. A line cut off by a crash is removed, one that is no event is passed over.
fn replay(file: &mut fs_err::File) -> io::Result<(Vec<Event>, u64)> {
    let mut text = Vec::new();
    io::Read::read_to_end(file, &mut text)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < text.len() {
        file.set_len(whole as u64)?;
        file.seek(io::SeekFrom::End(0))?;
    }
    let lines = text[..whole].split(|byte| *byte == b'\n');
    Ok((lines.filter_map(|line| serde_json::from_slice(line).ok()).collect(), whole as u64))
}

#[cfg(test)]
mod tests;
