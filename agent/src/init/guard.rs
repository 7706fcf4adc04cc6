//! The guard: stays beside systemd, follows the kernel's log for damage of the medium, and reads all of it once, from the
//! first second on: layers through verity, then every blob of images and content against its digest.
//!
//! It reads in small pieces, and only while nothing else wants the processor or the disk: with a processor to spare it
//! ends in seconds, on a busy machine it waits. It stays in memory and is never killed: it must be able to say that the
//! file system under all other programs is broken. The `@` of its name tells systemd to let it live until power-off.
//!
//! What it finds is on every console at once, and in a file that the agent follows ([`crate::medium`]): from there come
//! the events, REST, and the reason why the box is not ready.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent_api::boot::{CONTENT_STEP, DAMAGE_NEXT, MEDIUM, MEDIUM_FAILURES, MediumFailure, RELEASE};
use agent_api::release::{MEDIUM_ROOT, Release};
use fs_err::{File, OpenOptions};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::blobs::{self, WantedBlob};
use super::fatal::Fatal;
use super::kmsg::{self, KernelDamage};
use super::layers::OpenLayer;
use super::report::Report;
use crate::host::{clock, priority, process};

/// What `init` tells the guard.
const TASK: &str = "/run/foothold/guard.json";
/// How far the reading has come.
const CHECK: &str = "/run/foothold/medium-check.json";
const NAME: &str = "@foothold-guard";
const PROGRAM: &str = "/usr/bin/foothold-agent";
/// Bytes of a read, and alignment of its buffer for reading past the page cache: squashfs keeps its
/// own pages, so these would only be in the way. The kernel checks a read's digests in threads that do not know that
/// the reader is unimportant: a read is as long as others may have to wait for it.
const CHUNK: usize = 256 << 10;
const BLOCK: usize = 4096;
/// How many failures are written down, and how many are shown in a frame: more of them say nothing new.
const MOST_FAILURES: usize = 256;
const MOST_FRAMES: usize = 3;
/// Where the blobs are.
const STORE: &str = "store/sha256";
/// What the guard watches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardTask {
    /// The layers.
    pub layers: Vec<OpenLayer>,
    /// Disk of the medium.
    pub disk: String,
    /// Where the store begins on it, bytes.
    pub start: u64,
    /// Bytes of the store's device.
    pub bytes: u64,
    /// Title of its messages.
    pub title: String,
}

/// Starts the guard in the new root.
pub fn start(task: &GuardTask) -> std::io::Result<()> {
    fs_err::write(TASK, serde_json::to_vec(task)?)?;
    process::start_resident(PROGRAM, NAME, &["guard"])
}

/// Runs it.
pub fn main() -> ExitCode {
    let task = fs_err::read(TASK).ok().and_then(|text| serde_json::from_slice::<GuardTask>(&text).ok());
    let Some(task) = task else { return ExitCode::FAILURE };
    let _ = rustix::process::setsid();
    // Each of these may be refused without harm.
    let _ = priority::become_idle();
    let _ = priority::never_kill();
    let _ = priority::stay_resident();
    let Ok(kmsg) = open("/dev/kmsg", OFlags::NONBLOCK) else { return ExitCode::FAILURE };
    let mut guard = Guard { task, kmsg, known: BTreeSet::new(), frames: 0 };
    guard.read_all();
    loop {
        guard.follow(Duration::from_secs(3600));
    }
}

struct Guard {
    task: GuardTask,
    kmsg: File,
    known: BTreeSet<(String, u64)>,
    frames: usize,
}

impl Guard {
    /// Follows the kernel's log for a while.
    fn follow(&mut self, duration: Duration) {
        let until = Instant::now() + duration;
        loop {
            for damage in kmsg::read_new(&mut self.kmsg) {
                if let Some((what, block)) = place(&self.task, &damage) {
                    self.tell(&what, block, matches!(damage, KernelDamage::Io { .. }));
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let limit =
                Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(3600), tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::new(&self.kmsg, PollFlags::IN)], Some(&limit));
        }
    }

    fn read_all(&mut self) {
        let layers = self.task.layers.clone();
        let release = fs_err::read(RELEASE).ok().and_then(|text| serde_json::from_slice::<Release>(&text).ok());
        let blobs = release.as_ref().map(blobs::of).unwrap_or_default();
        let of_layers: u64 = layers.iter().map(|layer| layer.bytes).sum();
        let mut progress = Progress::new(of_layers + blobs.iter().map(|blob| blob.size).sum::<u64>());
        self.read_layers(&layers, &mut progress);
        self.read_blobs(&blobs, &mut progress);
        write_check(100, if self.known.is_empty() { "good" } else { "damaged" }, "", self.known.len());
    }

    fn read_layers(&mut self, layers: &[OpenLayer], progress: &mut Progress) {
        for layer in layers {
            let Ok(device) = open(&layer.verified.to_string_lossy(), OFlags::DIRECT) else {
                // What was not read must not count as good.
                self.tell(&layer.name, 0, true);
                continue;
            };
            let mut reader = Reader::new(device);
            for offset in (0..layer.bytes).step_by(CHUNK) {
                let length = CHUNK.min(usize::try_from(layer.bytes - offset).unwrap_or(CHUNK));
                let damaged = reader.damaged(offset, length);
                if !damaged.is_empty() {
                    // The kernel knows whether the device failed or the bytes are wrong.
                    self.follow(Duration::ZERO);
                }
                for block in damaged {
                    self.tell(&layer.name, block, false);
                }
                progress.add(length as u64, &layer.name, self.known.len());
                self.follow(Duration::ZERO);
            }
        }
    }

    fn read_blobs(&mut self, wanted: &[WantedBlob], progress: &mut Progress) {
        let store = Path::new(MEDIUM).join(MEDIUM_ROOT).join(STORE);
        let mut reader = blobs::Reader::default();
        for blob in wanted {
            let mut left = blob.size;
            let checked = blob.check(&store, &mut reader, &mut |bytes| {
                left = left.saturating_sub(bytes);
                progress.add(bytes, CONTENT_STEP, self.known.len());
                self.follow(Duration::ZERO);
            });
            // What could not be read counts as done, too.
            progress.add(left, CONTENT_STEP, self.known.len());
            if let Err(wrong) = checked {
                let failure = blob.failure(&wrong, &self.medium());
                if self.known.len() < MOST_FAILURES && self.known.insert((failure.what.clone(), failure.block)) {
                    let _ = append(MEDIUM_FAILURES, &failure);
                    let report = Report::consoles_only();
                    report.to_port_if_free(&failure.event(clock::boot_secs()));
                    report.line(&failure.message);
                }
            }
        }
    }

    fn medium(&self) -> String {
        self.task.layers.first().map_or_else(|| self.task.disk.clone(), |layer| layer.medium.clone())
    }

    /// Writes a damage down and shows it, once.
    fn tell(&mut self, what: &str, block: u64, unreadable: bool) {
        if self.known.len() >= MOST_FAILURES || !self.known.insert((what.to_owned(), block)) {
            return;
        }
        let medium = self.medium();
        let found = match self.task.layers.iter().find(|layer| layer.name == what) {
            Some(layer) => layer.damage_line(block, unreadable),
            None => format!("block {block} of {medium} cannot be read: the device is failing or gone"),
        };
        let failure = MediumFailure {
            what: what.to_owned(),
            device: medium,
            block,
            message: format!("{found}; write the image again (`foothold verify`, `foothold write`)"),
        };
        let _ = append(MEDIUM_FAILURES, &failure);
        let report = Report::consoles_only();
        // If the agent runs, it tells this itself: then the port is in its hands.
        report.to_port_if_free(&failure.event(clock::boot_secs()));
        if self.frames < MOST_FRAMES {
            self.frames += 1;
            let fatal = Fatal::medium("guard", found, "the bytes that were signed", DAMAGE_NEXT);
            report.message(&fatal.frame(&self.task.title));
        } else {
            report.line(&failure.message);
        }
    }
}

/// How much has been read.
struct Progress {
    total: u64,
    done: u64,
    percent: Option<u64>,
}

impl Progress {
    fn new(total: u64) -> Self {
        Self { total: total.max(1), done: 0, percent: None }
    }

    /// Counts bytes, and writes the progress down at each further percent. The caller writes the end.
    fn add(&mut self, bytes: u64, what: &str, failures: usize) {
        self.done += bytes;
        let percent = (self.done * 100 / self.total).min(99);
        if self.percent != Some(percent) {
            self.percent = Some(percent);
            write_check(percent, "reading", what, failures);
        }
    }
}

/// The layer, or the medium itself, in which a damage lies; `None` if it lies on another device.
fn place(task: &GuardTask, damage: &KernelDamage) -> Option<(String, u64)> {
    let in_layer = task.layers.iter().find_map(|layer| Some((layer.name.clone(), layer.block_of(damage)?)));
    in_layer.or_else(|| {
        let KernelDamage::Io { device, sector } = damage else { return None };
        let inside = (sector * 512).checked_sub(task.start).filter(|inside| *inside < task.bytes)?;
        (*device == task.disk).then(|| (MediumFailure::NO_LAYER.to_owned(), inside / BLOCK as u64))
    })
}

/// Reads past the page cache.
struct Reader {
    device: File,
    buffer: Vec<u8>,
    aligned: usize,
}

impl Reader {
    fn new(device: File) -> Self {
        let buffer = vec![0_u8; CHUNK + BLOCK];
        let aligned = buffer.as_ptr().align_offset(BLOCK).min(BLOCK);
        Self { device, buffer, aligned }
    }

    /// The blocks among these bytes that cannot be read.
    fn damaged(&mut self, offset: u64, length: usize) -> Vec<u64> {
        if self.read(offset, length) {
            return Vec::new();
        }
        let blocks = (0..length).step_by(BLOCK).map(|inside| offset + inside as u64);
        blocks.filter(|at| !self.read(*at, BLOCK)).map(|at| at / BLOCK as u64).collect()
    }

    fn read(&mut self, offset: u64, length: usize) -> bool {
        let into = &mut self.buffer[self.aligned..self.aligned + length];
        self.device.seek(SeekFrom::Start(offset)).is_ok() && self.device.read_exact(into).is_ok()
    }
}

fn write_check(percent: u64, state: &str, layer: &str, failures: usize) {
    let text =
        json!({ "percent": percent, "state": state, "layer": layer, "failures": failures, "t": clock::boot_secs() });
    let draft = format!("{CHECK}.new");
    if fs_err::write(&draft, text.to_string()).is_ok() {
        let _ = fs_err::rename(&draft, CHECK);
    }
}

fn append(path: &str, failure: &MediumFailure) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(failure)?;
    line.push(b'\n');
    OpenOptions::new().create(true).append(true).open(path)?.write_all(&line)
}

fn open(path: &str, flags: OFlags) -> std::io::Result<File> {
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty())?;
    Ok(File::from_parts(fd.into(), path))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{GuardTask, place};
    use crate::init::kmsg::KernelDamage;
    use crate::init::layers::OpenLayer;

    fn task() -> GuardTask {
        let layer = |name: &str, number: u32| OpenLayer {
            name: name.to_owned(),
            loop_device: PathBuf::from(format!("/dev/loop{number}")),
            verified: PathBuf::from(format!("/dev/dm-{number}")),
            bytes: 8192,
            medium: "sda3".to_owned(),
        };
        let layers = vec![layer("os", 0), layer("kubernetes", 1)];
        GuardTask { layers, disk: "sda".to_owned(), start: 4096, bytes: 8192, title: String::new() }
    }

    fn io(device: &str, sector: u64) -> KernelDamage {
        KernelDamage::Io { device: device.to_owned(), sector }
    }

    fn verity(device: &str, kind: &str, block: u64) -> KernelDamage {
        KernelDamage::Verity { device: device.to_owned(), kind: kind.to_owned(), block }
    }

    #[test]
    fn a_damage_is_put_into_its_layer_or_on_the_medium() {
        let table = [
            (verity("7:1", "data", 5), Some(("kubernetes", 5))),
            (verity("7:0", "metadata", 3), Some(("os", 3))),
            (verity("7:9", "data", 5), None),
            (io("loop1", 16), Some(("kubernetes", 2))),
            (io("sda", 8), Some(("medium", 0))),
            (io("sda", 7), None),
            (io("sda", 24), None),
            (io("sdb", 8), None),
        ];
        for (damage, expected) in table {
            assert_eq!(place(&task(), &damage), expected.map(|(what, block)| (what.to_owned(), block)), "{damage:?}");
        }
    }
}
