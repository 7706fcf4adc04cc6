//! The slow ends of the bus: DATA, the host's virtio-serial port, the journal. One thread owns them, so that
//! no step ever waits for a disk or a device.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent_api::events::{Event, State};

use super::{LossyWriter, Paths, line};

/// Events that may wait for the thread.
const QUEUE: usize = 1024;
/// Bytes that may wait for a host that does not read its port: a whole first boot.
const PORT_PENDING: usize = 128 * 1024;
/// Boots whose events are kept on DATA.
const KEPT_BOOTS: usize = 8;
/// Most bytes of one file of events on DATA; a boot has two of them at most, the newest events.
const BOOT_BYTES: u64 = 2 * 1024 * 1024;
/// Events are on DATA for certain within this time. Sooner would make etcd's own syncs wait while the box comes up.
const SYNC_WITHIN: Duration = Duration::from_secs(2);
/// Shortest and longest pause between two tries to write to a port that takes nothing.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// How many events got lost on the way to the slow ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Did not reach the queue at all.
    pub queue: u64,
    /// Did not reach the host's port.
    pub port: u64,
    /// Did not reach DATA.
    pub durable: u64,
}

#[derive(Default)]
struct Counters {
    queue: AtomicU64,
    port: AtomicU64,
    durable: AtomicU64,
}

/// The bus's end of the queue. Dropping it writes out what waits and ends the thread.
pub(super) struct Sink {
    queue: Option<SyncSender<Event>>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
}

impl Sink {
    pub(super) fn none() -> Self {
        Self { queue: None, thread: None, counters: Arc::default() }
    }

    /// Starts the thread. DATA first catches up with `past`, this boot's events so far.
    pub(super) fn start(paths: &Paths, past: &[Event]) -> Self {
        let counters = Arc::<Counters>::default();
        let durable = match Durable::open(paths, past) {
            Ok(durable) => Some(durable),
            Err(error) => {
                log::warn!("events are not kept on DATA: {error}");
                None
            }
        };
        let port = paths.port.as_deref().and_then(|path| LossyWriter::open(path, PORT_PENDING).ok());
        let mut ends = Ends { durable, port, counters: Arc::clone(&counters) };
        let (queue, events) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("events".to_owned()).stack_size(256 * 1024);
        let thread = thread.spawn(move || ends.run(&events)).ok();
        Self { queue: thread.is_some().then_some(queue), thread, counters }
    }

    pub(super) fn send(&self, event: &Event) {
        if let Some(queue) = &self.queue
            && queue.try_send(event.clone()).is_err()
        {
            self.counters.queue.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn dropped(&self) -> Dropped {
        Dropped {
            queue: self.counters.queue.load(Ordering::Relaxed),
            port: self.counters.port.load(Ordering::Relaxed),
            durable: self.counters.durable.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.queue.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Ends {
    durable: Option<Durable>,
    port: Option<LossyWriter>,
    counters: Arc<Counters>,
}

impl Ends {
    fn run(&mut self, events: &Receiver<Event>) {
        let mut retry = RETRY.0;
        loop {
            let port_idle = self.port.as_mut().is_none_or(LossyWriter::flush);
            let sync_due = self.durable.as_ref().and_then(Durable::sync_due);
            let pause = [sync_due, (!port_idle).then_some(retry)].into_iter().flatten().min();
            let event = match pause {
                Some(pause) => events.recv_timeout(pause),
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(event) => {
                    retry = RETRY.0;
                    self.take(&event);
                    for more in events.try_iter() {
                        self.take(&more);
                    }
                }
                Err(RecvTimeoutError::Timeout) => retry = (retry * 2).min(RETRY.1),
                Err(RecvTimeoutError::Disconnected) => return self.sync(true),
            }
            self.sync(false);
        }
    }

    fn sync(&mut self, now: bool) {
        if let Some(durable) = &mut self.durable
            && (now || durable.sync_due().is_some_and(|due| due.is_zero()))
        {
            durable.sync();
        }
    }

    fn take(&mut self, event: &Event) {
        let text = line(event);
        if let Some(port) = &mut self.port {
            port.write(&text);
            self.counters.port.store(port.dropped(), Ordering::Relaxed);
        }
        if self.durable.as_mut().is_none_or(|durable| durable.append(&text).is_err()) {
            self.counters.durable.fetch_add(1, Ordering::Relaxed);
        }
        to_journal(event);
    }
}

fn to_journal(event: &Event) {
    let level = match event.state {
        State::Failed => log::Level::Error,
        State::Progress => log::Level::Debug,
        State::Started | State::Done | State::Skipped | State::Waiting => log::Level::Info,
    };
    let detail =
        if event.detail.is_empty() { String::new() } else { serde_json::to_string(&event.detail).unwrap_or_default() };
    let state = state_name(event.state);
    let (phase, step) = (event.phase.as_str(), event.step.as_str());
    log::log!(
        target: "foothold::events",
        level,
        foothold_phase = phase, foothold_step = step, foothold_state = state, foothold_detail = detail.as_str();
        "{phase}/{step}: {state}{}{detail}", if detail.is_empty() { "" } else { " " }
    );
}

pub(super) const fn state_name(state: State) -> &'static str {
    match state {
        State::Started => "started",
        State::Progress => "progress",
        State::Done => "done",
        State::Skipped => "skipped",
        State::Waiting => "waiting",
        State::Failed => "failed",
    }
}

/// This boot's file on DATA, `boot-<n>.jsonl`; the one before it, when it grew too long, is `boot-<n>.old`.
struct Durable {
    path: PathBuf,
    file: fs_err::File,
    bytes: u64,
    /// Since when something waits to be made durable.
    unsynced: Option<Instant>,
}

impl Durable {
    fn open(paths: &Paths, past: &[Event]) -> io::Result<Self> {
        fs_err::create_dir_all(&paths.durable)?;
        let number = boot_number(paths)?;
        let path = file_of(&paths.durable, number);
        let last = keep_whole_lines(&path)?;
        let file = fs_err::OpenOptions::new().create(true).append(true).open(&path)?;
        let bytes = file.metadata()?.len();
        let mut durable = Self { path, file, bytes, unsynced: None };
        let told = past.iter().rposition(|event| line(event) == last).map_or(0, |at| at + 1);
        for event in &past[told..] {
            durable.append(&line(event))?;
        }
        durable.sync();
        forget_old(&paths.durable);
        Ok(durable)
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if self.bytes + text.len() as u64 > BOOT_BYTES {
            fs_err::rename(&self.path, self.path.with_extension("old"))?;
            self.file = fs_err::OpenOptions::new().create(true).append(true).open(&self.path)?;
            self.bytes = 0;
        }
        self.file.write_all(text)?;
        self.bytes += text.len() as u64;
        self.unsynced.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Time left until what was written should be made durable; none if all is.
    fn sync_due(&self) -> Option<Duration> {
        self.unsynced.map(|since| SYNC_WITHIN.saturating_sub(since.elapsed()))
    }

    fn sync(&mut self) {
        if self.unsynced.take().is_some() {
            // DATA in trouble shows elsewhere; events are not what the box stops for.
            let _ = self.file.sync_data();
        }
    }
}

/// The number of this boot: kept in /run, so that it stays when only the agent starts again.
fn boot_number(paths: &Paths) -> io::Result<u64> {
    let kept = fs_err::read_to_string(&paths.boot_number).ok();
    if let Some(number) = kept.and_then(|text| text.trim().parse().ok()) {
        return Ok(number);
    }
    let number = boots(&paths.durable).last().map_or(1, |(number, _)| number + 1);
    fs_err::write(&paths.boot_number, number.to_string())?;
    Ok(number)
}

fn file_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("boot-{number}.jsonl"))
}

/// The files of all kept boots, oldest first.
fn boots(dir: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = fs_err::read_dir(dir) else { return Vec::new() };
    let number = |name: &str| name.strip_prefix("boot-")?.strip_suffix(".jsonl")?.parse().ok();
    let mut found: Vec<(u64, PathBuf)> =
        entries.flatten().filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path()))).collect();
    found.sort();
    found
}

fn forget_old(dir: &Path) {
    let found = boots(dir);
    for (_, path) in found.iter().rev().skip(KEPT_BOOTS) {
        let _ = fs_err::remove_file(path);
        let _ = fs_err::remove_file(path.with_extension("old"));
    }
}

/// The last whole line of a file; what a power cut left of another one is cut off.
fn keep_whole_lines(path: &Path) -> io::Result<Vec<u8>> {
    let file = match fs_err::OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut whole = 0;
    let mut reader = io::BufReader::new(&file);
    let (mut last, mut text) = (Vec::new(), Vec::new());
    while reader.read_until(b'\n', &mut text)? > 0 && text.ends_with(b"\n") {
        whole += text.len() as u64;
        std::mem::swap(&mut last, &mut text);
        text.clear();
    }
    if file.metadata()?.len() > whole {
        file.set_len(whole)?;
    }
    Ok(last)
}
