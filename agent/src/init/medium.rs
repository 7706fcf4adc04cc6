//! Finds the device that holds the release: any disk, any partition, any bus, whenever it turns up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use agent_api::boot::MEDIUM;
use agent_api::events::Phase;
use agent_api::release::{MEDIUM_ROOT, Release};
use minisign_verify::PublicKey;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::fatal::Fatal;
use super::in_file;
use super::layers::{self, OpenLayer};
use super::loader::Loader;
use super::release::{self, WRITE_AGAIN};
use super::report::Report;
use crate::disk::announce_partitions;
use crate::disk::decide::DATA_LABEL;
use crate::disk::probe::{self, Content};
use crate::host::block::{self, Disk};
use crate::host::loopdev::{self, Access, LoopDevice};
use crate::host::mount::{self, MountOptions};
use crate::host::uevent::{Uevent, Uevents};

/// Label of the store's ext4.
const STORE_LABEL: &str = "STORE";
/// Volume id of the ISO.
const ISO_LABEL: &str = "FOOTHOLD";
/// Without a new device for this long, or after this long in any case, the screen says so.
const QUIET: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(55);
/// How long another medium may take to turn up after a damaged one was found.
const QUIET_WITH_DAMAGED: Duration = Duration::from_secs(4);
/// Without a medium for this long, images that lie as files on partitions are looked for.
const IN_FILES_AFTER: Duration = Duration::from_secs(5);
/// The message comes again for whoever looks later.
const AGAIN: Duration = Duration::from_secs(60);
/// Longest wait without looking at the devices: an announcement may be lost.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The medium, mounted at [`MEDIUM`], verified, its layers open.
#[derive(Debug)]
pub struct Medium {
    /// Device that holds the store, such as `vda3` or `sr0`.
    pub device: String,
    /// The whole disk it lies on.
    pub disk: Disk,
    /// Bytes of a file system that covers the whole disk (an ISO on a stick), else 0.
    pub covered: u64,
    /// Release id.
    pub id: String,
    /// The manifest.
    pub release: Release,
    /// Its bytes.
    pub manifest: Vec<u8>,
    /// The layers, bottom first.
    pub layers: Vec<OpenLayer>,
    /// Kept while mounted: see `mount_candidate`.
    _loop_device: Option<LoopDevice>,
}

impl Medium {
    /// Lets a medium go whose layers were not opened.
    pub fn close(self) -> io::Result<()> {
        let unmounted = mount::unmount(Path::new(MEDIUM), false);
        // Not before: a loop device may be what was mounted.
        drop(self);
        unmounted
    }
}

/// What is needed to recognise the medium.
pub struct Finder<'a> {
    /// Where messages go.
    pub report: &'a Report,
    /// Loads drivers for devices that turn up.
    pub loader: &'a Loader,
    /// Announces devices.
    pub uevents: &'a Uevents,
    /// The key that the release must be signed with.
    pub key: &'a PublicKey,
    /// Release id.
    pub id: &'a str,
    /// The only disk that it may be on.
    pub only: Option<&'a str>,
    /// Whether the layers of such a release are wanted, too.
    pub open_layers: &'a dyn Fn(&Release) -> bool,
    /// Called with every message that the box cannot start for now.
    pub cannot_start: &'a dyn Fn(&Fatal),
}

/// A device that was looked at.
#[derive(Clone, Debug)]
struct Seen {
    bytes: u64,
    what: String,
    damage: Option<Fatal>,
    /// The file system on it whose files were not looked at yet, and how it is mounted.
    files: Option<(&'static str, &'static str)>,
    /// Who made it, where that is why it does not start.
    maker: Option<&'static str>,
}

/// A device that may be the medium.
#[derive(Clone, Debug)]
struct Candidate {
    device: String,
    disk: Disk,
    bytes: u64,
    content: Content,
}

impl Finder<'_> {
    /// Looks until the medium is there. Says after a while that it is not, and keeps looking.
    pub fn find(&self) -> Medium {
        let step = self.report.started(Phase::Medium, "find");
        let mut seen = BTreeMap::new();
        let (begin, mut last_new, mut told) = (Instant::now(), Instant::now(), None::<Instant>);
        let mut waiting = false;
        loop {
            let before = seen.len();
            let candidates = look(&mut seen);
            for candidate in candidates.into_iter().filter(|it| self.only.is_none_or(|disk| it.disk.name == disk)) {
                match self.attempt(&candidate) {
                    Ok(medium) => {
                        let bus = &medium.disk.bus;
                        self.report
                            .done(step, &format!("release {} found on {} ({bus})", &self.id[..16], medium.device));
                        return medium;
                    }
                    Err(fatal) => note(&mut seen, &candidate, fatal),
                }
            }
            if seen.len() > before {
                last_new = Instant::now();
                told = None;
            }
            if last_new.elapsed() >= IN_FILES_AFTER
                && let Some(medium) = self.find_in_files(&mut seen)
            {
                let device = &medium.device;
                self.report.done(step, &format!("release {} found in a file on {device}", &self.id[..16]));
                return medium;
            }
            let damaged = seen.values().any(|seen| seen.damage.is_some());
            let quiet = if damaged { QUIET_WITH_DAMAGED } else { QUIET };
            let over = last_new.elapsed() >= quiet || begin.elapsed() >= LONGEST;
            if over && told.is_none_or(|told| told.elapsed() >= AGAIN) {
                (self.cannot_start)(&self.with_problems(summary(self.id, &seen)));
                told = Some(Instant::now());
            } else if !waiting && begin.elapsed() > Duration::from_secs(2) {
                waiting = true;
                self.report.waiting(step, "the medium", &self.why_waiting(damaged, &seen));
            }
            self.wait(&mut seen);
        }
    }

    fn why_waiting(&self, damaged: bool, seen: &BTreeMap<String, Seen>) -> String {
        let id = &self.id[..16];
        if damaged {
            return "a damaged one was found, there may be another".to_owned();
        }
        if seen.is_empty() {
            return "there is no disk, stick or disc yet".to_owned();
        }
        format!("release {id} is not on {}", seen.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
    }

    /// A driver that would not load may be why nothing was found.
    fn with_problems(&self, mut fatal: Fatal) -> Fatal {
        for problem in self.loader.problems() {
            let _ = write!(fatal.found, "\ndriver {problem}");
        }
        fatal
    }

    /// Waits for a device; loads what it needs.
    fn wait(&self, seen: &mut BTreeMap<String, Seen>) {
        let until = Instant::now() + LOOK_AGAIN;
        let mut heard = Vec::new();
        // Modules are announced, too: only devices matter here.
        while !heard.iter().any(|event: &Uevent| event.subsystem == "block" || !event.modalias.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.loader.load_for_present();
                break;
            }
            heard.extend(self.uevents.wait(left));
        }
        let wanted: Vec<String> =
            heard.iter().map(|event| event.modalias.clone()).filter(|alias| !alias.is_empty()).collect();
        self.loader.load_for(&wanted);
        // A disc was changed: what is on it must be looked at again.
        for event in heard.iter().filter(|event| event.action == "change" && event.subsystem == "block") {
            seen.remove(event.path.rsplit('/').next().unwrap_or_default());
        }
    }

    fn attempt(&self, candidate: &Candidate) -> Result<Medium, Fatal> {
        let device = &candidate.device;
        whole(candidate)?;
        self.loader.load_all(self.loader.first());
        if matches!(candidate.content, Content::Iso9660 { .. }) {
            self.loader.load("isofs");
        }
        let root = Path::new(MEDIUM);
        let held = mount_candidate(candidate, root).map_err(|error| {
            Fatal::medium("find", format!("{device} cannot be mounted: {error}"), "a readable medium", WRITE_AGAIN)
        })?;
        let opened = self.read(device, root);
        if opened.is_err() {
            let _ = mount::unmount(root, true);
        }
        let (manifest, release, layers) = opened?;
        let covered = candidate.content.needs().filter(|_| *device == candidate.disk.name).unwrap_or(0);
        Ok(Medium {
            device: device.clone(),
            disk: candidate.disk.clone(),
            covered,
            id: self.id.to_owned(),
            release,
            manifest,
            layers,
            _loop_device: held,
        })
    }

    /// Looks into the images that lie as files on partitions, each partition once.
    fn find_in_files(&self, seen: &mut BTreeMap<String, Seen>) -> Option<Medium> {
        for disk in block::list(Path::new(block::SYS_BLOCK)).unwrap_or_default() {
            let parts = disk.partitions.iter().map(|part| part.name.clone());
            for device in std::iter::once(disk.name.clone()).chain(parts) {
                if self.only.is_some_and(|only| only != disk.name) {
                    continue;
                }
                let Some((kind, options)) = seen.get_mut(&device).and_then(|seen| seen.files.take()) else { continue };
                self.loader.load(kind);
                let place = Path::new(in_file::PLACE);
                let node = block::node(&device);
                let mounted = fs_err::create_dir_all(place).is_ok()
                    && mount::mount(kind, &node.to_string_lossy(), place, MountOptions::read_only(options)).is_ok();
                if !mounted {
                    continue;
                }
                let images = in_file::images(place, ISO_LABEL);
                let found = images.iter().find_map(|image| self.attempt_file(&device, &disk, image));
                // What is used of it stays: the loop device holds the file.
                let _ = mount::unmount(place, true);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    fn attempt_file(&self, device: &str, disk: &Disk, image: &Path) -> Option<Medium> {
        self.loader.load_all(self.loader.first());
        self.loader.load("isofs");
        let root = Path::new(MEDIUM);
        let held = loopdev::attach(image, 512, Access::Read { direct: false }).ok()?;
        mount::mount("iso9660", &held.path.to_string_lossy(), root, MountOptions::read_only("")).ok()?;
        let Ok((manifest, release, layers)) = self.read(device, root) else {
            let _ = mount::unmount(root, true);
            return None;
        };
        Some(Medium {
            device: device.to_owned(),
            disk: disk.clone(),
            covered: 0,
            id: self.id.to_owned(),
            release,
            manifest,
            layers,
            _loop_device: Some(held),
        })
    }

    fn read(&self, device: &str, root: &Path) -> Result<(Vec<u8>, Release, Vec<OpenLayer>), Fatal> {
        let releases = root.join(MEDIUM_ROOT).join("releases");
        let file = |name: &str| fs_err::read(releases.join(self.id).join(name));
        let missing = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => {
                let others = others(&releases);
                Fatal::medium(
                    "find",
                    format!("{device} holds {others}"),
                    self.id,
                    "start the medium that belongs to this release",
                )
            }
            _ => Fatal::medium("find", format!("{device} cannot be read: {error}"), "a readable medium", WRITE_AGAIN),
        };
        let manifest = file("release.json").map_err(missing)?;
        let step = self.report.started(Phase::Medium, "signature");
        let signature = String::from_utf8_lossy(&file("release.json.minisig").map_err(missing)?).into_owned();
        let release = release::verify(self.id, &manifest, &signature, self.key, device)?;
        self.report.done(step, &format!("{} {} is signed", release.name, release.version));
        if !(self.open_layers)(&release) {
            return Ok((manifest, release, Vec::new()));
        }
        let step = self.report.started(Phase::Medium, "layers");
        layers::check_sizes(root, &release.layers, device)?;
        let open = layers::open_all(root, &release.layers, device)?;
        let names: Vec<&str> = open.iter().map(|layer| layer.name.as_str()).collect();
        self.report.done(step, &format!("layers open: {}", names.join(", ")));
        Ok((manifest, release, open))
    }
}

/// Whether all of the file system is there.
fn whole(candidate: &Candidate) -> Result<(), Fatal> {
    let needs = candidate.content.needs().unwrap_or(0);
    if needs <= candidate.bytes {
        return Ok(());
    }
    let Candidate { device, bytes, .. } = candidate;
    let found = format!("{device} has {bytes} bytes, its file system {needs}: a cut-off image");
    Err(Fatal::medium("find", found, "the whole image", "write the image again, to a medium that is large enough"))
}

/// Mounts a candidate. An ISO that was written to a stick covers the whole disk; mounted directly it
/// would keep the kernel from using the partition behind it for DATA, so a loop device stands between.
fn mount_candidate(candidate: &Candidate, root: &Path) -> io::Result<Option<LoopDevice>> {
    let node = block::node(&candidate.device);
    let (kind, options) = match candidate.content {
        Content::Iso9660 { .. } => ("iso9660", ""),
        _ => ("ext4", "noload"),
    };
    let is_disc = candidate.device.starts_with("sr");
    let held = if kind == "iso9660" && candidate.device == candidate.disk.name && !is_disc {
        Some(loopdev::attach(&node, 512, Access::Read { direct: true })?)
    } else {
        None
    };
    let source: &Path = held.as_ref().map_or(&node, |held| &held.path);
    mount::mount(kind, &source.to_string_lossy(), root, MountOptions::read_only(options))
        .map_err(|error| error.source)?;
    Ok(held)
}

/// The releases of another Foothold medium, in words.
fn others(releases: &Path) -> String {
    let entries = fs_err::read_dir(releases).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().chars().take(16).collect()).collect();
    names.sort();
    if names.is_empty() { "no release".to_owned() } else { format!("another release ({})", names.join(", ")) }
}

fn note(seen: &mut BTreeMap<String, Seen>, candidate: &Candidate, fatal: Fatal) {
    if let Some(entry) = seen.get_mut(&candidate.device) {
        let other_release = fatal.step == "find" && fatal.found.contains("another release");
        let found = fatal.found.strip_prefix(&format!("{} ", candidate.device)).unwrap_or(&fatal.found);
        found.clone_into(&mut entry.what);
        entry.damage = (!other_release).then_some(fatal);
    }
}

/// Looks at devices not seen so far; returns those that may be the medium, best first.
fn look(seen: &mut BTreeMap<String, Seen>) -> Vec<Candidate> {
    let disks = list_disks(seen);
    let mut candidates = Vec::new();
    let mut present = Vec::new();
    let mut with_data = BTreeSet::new();
    for disk in &disks {
        let parts = disk.partitions.iter().map(|part| (part.name.as_str(), part.bytes));
        for (device, bytes) in std::iter::once((disk.name.as_str(), disk.bytes)).chain(parts) {
            present.push(device.to_owned());
            if seen.get(device).is_some_and(|seen| seen.bytes == bytes) {
                continue;
            }
            let (what, contents) = probe_device(device, bytes);
            let files = contents.iter().find_map(in_file::file_system);
            let maker = contents.iter().find_map(|content| in_file::maker(content, ISO_LABEL));
            seen.insert(device.to_owned(), Seen { bytes, what, damage: None, files, maker });
            if contents.iter().any(|content| is_ext4(content, DATA_LABEL)) {
                with_data.insert(disk.name.clone());
            }
            let device = device.to_owned();
            candidates.extend(contents.into_iter().find(may_be_medium).map(|content| Candidate {
                device,
                disk: disk.clone(),
                bytes,
                content,
            }));
        }
    }
    seen.retain(|device, _| present.contains(device));
    candidates.sort_by_key(|candidate| rank(candidate, &with_data));
    candidates
}

/// All disks. One without partitions is looked at again when its table is on it and the kernel could
/// not use it.
fn list_disks(seen: &mut BTreeMap<String, Seen>) -> Vec<Disk> {
    let list = || block::list(Path::new(block::SYS_BLOCK)).unwrap_or_default();
    let disks = list();
    let is_new = |disk: &&Disk| seen.get(&disk.name).is_none_or(|seen| seen.bytes != disk.bytes);
    let new: Vec<Disk> = disks
        .iter()
        .filter(|disk| disk.partitions.is_empty() && !disk.name.starts_with("sr"))
        .filter(is_new)
        .cloned()
        .collect();
    if new.is_empty() {
        return disks;
    }
    for disk in &new {
        let Some(what) = announce_partitions(disk) else { continue };
        let next = "write the image again, to a medium that is large enough";
        let damage = Some(Fatal::medium("find", what.clone(), "the whole image", next));
        seen.insert(disk.name.clone(), Seen { bytes: disk.bytes, what, damage, files: None, maker: None });
    }
    list()
}

/// Of several with the same release: the one with a DATA beside it, since that is where the state of
/// the box is; then one that can be taken out, since it was put in on purpose; then by name.
fn rank(candidate: &Candidate, with_data: &BTreeSet<String>) -> (bool, bool, bool, String) {
    let Candidate { device, disk, .. } = candidate;
    (!with_data.contains(&disk.name), !disk.removable, disk.bus != "usb", device.clone())
}

fn is_ext4(content: &Content, wanted: &str) -> bool {
    matches!(content, Content::Ext4 { label, .. } if label == wanted)
}

fn may_be_medium(content: &Content) -> bool {
    is_ext4(content, STORE_LABEL) || matches!(content, Content::Iso9660 { label, .. } if label == ISO_LABEL)
}

/// What is on a device, in words and in kinds.
fn probe_device(device: &str, bytes: u64) -> (String, Vec<Content>) {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(block::node(device), flags, Mode::empty());
    let head = match opened {
        Err(Errno::NOMEDIUM) => return ("no disc in it".to_owned(), Vec::new()),
        Err(error) => Err(io::Error::from(error)),
        Ok(fd) => probe::read_head(&mut fs_err::File::from_parts(fd.into(), device)),
    };
    let contents = match head {
        Ok(head) => probe::identify(&head),
        Err(error) => return (format!("cannot be read: {error}"), Vec::new()),
    };
    let words: Vec<String> = contents.iter().map(Content::describe).collect();
    let what = if words.is_empty() { "nothing that is known".to_owned() } else { words.join(", ") };
    (format!("{} MiB, {what}", bytes >> 20), contents)
}

/// Why there is no medium: a damaged one is named, otherwise everything that was seen.
fn summary(id: &str, seen: &BTreeMap<String, Seen>) -> Fatal {
    if let Some(fatal) = seen.values().find_map(|seen| seen.damage.clone()) {
        return fatal;
    }
    let mut found = format!("no device holds release {}", &id[..16]);
    for (device, seen) in seen {
        let _ = write!(found, "\n{device}: {}", seen.what);
    }
    if seen.is_empty() {
        found.push_str("\nno disk, stick or disc at all");
    }
    for (device, maker) in seen.iter().filter_map(|(device, seen)| Some((device, seen.maker?))) {
        let _ = write!(found, "\n{device}: {maker}");
    }
    let next = if seen.values().any(|seen| seen.maker.is_some()) {
        "write the image as it is, byte by byte: `foothold write`, `dd`, or Rufus in DD mode; from Ventoy, put the ISO \
         itself on its partition"
    } else {
        "plug the medium in again, into another port, or write the image again; the box goes on by itself when it turns up"
    };
    Fatal::medium("find", found, "a medium with this release", next)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{Candidate, Seen, may_be_medium, note, rank, summary, whole};
    use crate::disk::probe::Content;
    use crate::host::block::Disk;
    use crate::init::fatal::Fatal;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn store(bytes: u64) -> Content {
        Content::Ext4 { label: "STORE".to_owned(), bytes, errors: false }
    }

    fn candidate(device: &str, disk: &str, removable: bool) -> Candidate {
        let disk = Disk { name: disk.to_owned(), removable, bus: "sata".to_owned(), ..Disk::default() };
        Candidate { device: device.to_owned(), disk, bytes: 100, content: store(100) }
    }

    fn seen(what: &str) -> Seen {
        Seen { bytes: 1, what: what.to_owned(), damage: None, files: None, maker: None }
    }

    #[test]
    fn of_several_media_the_one_with_data_wins_then_the_removable_one_then_the_name() {
        let mut candidates =
            [candidate("sdc3", "sdc", false), candidate("sda3", "sda", false), candidate("sdb3", "sdb", true)];
        let order = |candidates: &mut [Candidate], with_data: &[&str]| {
            let with_data: BTreeSet<String> = with_data.iter().map(|name| (*name).to_owned()).collect();
            candidates.sort_by_key(|candidate| rank(candidate, &with_data));
            candidates.iter().map(|candidate| candidate.disk.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(order(&mut candidates, &[]), ["sdb", "sda", "sdc"]);
        assert_eq!(order(&mut candidates, &["sdc"]), ["sdc", "sdb", "sda"]);
    }

    #[test]
    fn only_labels_of_ours_are_ever_mounted() {
        assert!(may_be_medium(&store(1)));
        assert!(may_be_medium(&Content::Iso9660 { label: "FOOTHOLD".to_owned(), bytes: 1 }));
        assert!(!may_be_medium(&Content::Ext4 { label: "home".to_owned(), bytes: 1, errors: false }));
        assert!(!may_be_medium(&Content::Fat { label: "STORE".to_owned() }));
    }

    #[test]
    fn a_device_shorter_than_its_file_system_is_a_cut_off_image() {
        let short = Candidate { content: store(101), ..candidate("sda3", "sda", false) };
        let fatal = whole(&short).expect_err("one byte is missing");
        assert_eq!(fatal.found, "sda3 has 100 bytes, its file system 101: a cut-off image");
        assert!(whole(&candidate("sda3", "sda", false)).is_ok());
    }

    #[test]
    fn the_message_lists_every_device_or_names_the_damaged_one() {
        let mut devices = BTreeMap::from([
            ("sda".to_owned(), seen("100 MiB, ext4 `home`")),
            ("sdb3".to_owned(), seen("90 MiB, ext4 `STORE`")),
        ]);
        let fatal = summary(ID, &devices);
        let expected =
            "no device holds release 0123456789abcdef\nsda: 100 MiB, ext4 `home`\nsdb3: 90 MiB, ext4 `STORE`";
        assert_eq!(fatal.found, expected);
        let other = Fatal::medium("find", "sdb3 holds another release (ffff)", ID, "");
        note(&mut devices, &candidate("sdb3", "sdb", true), other);
        assert!(summary(ID, &devices).found.ends_with("sdb3: holds another release (ffff)"));
        let damage = Fatal::medium("layers", "layer `os` on sdb3 is damaged", "", "");
        note(&mut devices, &candidate("sdb3", "sdb", true), damage.clone());
        assert_eq!(summary(ID, &devices), damage);
    }
}
