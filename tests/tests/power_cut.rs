//! A power cut at any instant of first boot: the next boot reaches `ready` unaided. Ten instants of it always, in `boot`;
//! at every step, at 25 random instants, and while a report is written to the stick:
//! `cargo test -p foothold-tests --test power_cut -- --ignored`.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use agent_api::events::{Event, State};
use agent_api::report::Report;
use flate2::read::GzDecoder;
use foothold::cli::{Attach, Network};
use foothold::commands::common::{self, Job};
use foothold::disk::gpt::SECTOR;
use foothold::medium::bytes::{self, Image};
use foothold::medium::tree::{self, Tree};
use foothold::pipeline;
use foothold::toolbox::Toolbox;
use foothold_agent::support::site::STEP as SITE_REPORT;
use foothold_tests::{Appliance, How};

/// Each boot of the same disk is cut when the next step starts that no boot before has come to: what lies on the disk
/// then is what a first boot has left there until that step.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test power_cut -- --ignored`"]
fn a_cut_at_the_start_of_every_step() {
    let appliance = Appliance::get();
    let dir = tempfile::tempdir().expect("a folder");
    let overlay = dir.path().join("disk.qcow2");
    let how = How { overlay: Some(&overlay), ..How::default() };
    let mut cut = BTreeSet::new();
    loop {
        let mut machine = appliance.boot(how);
        let is_new = |event: &Event| {
            matches!(event.state, State::Started | State::Done)
                && !cut.contains(&(event.phase.clone(), event.step.clone()))
        };
        let event = machine.until("a new step, or to be ready", |event| is_new(event) || event.is_ready());
        if event.is_ready() {
            break;
        }
        machine.session.vm.kill().expect("the power is cut");
        cut.insert((event.phase, event.step));
    }
    // One for every step that a box tells of.
    assert!(cut.len() > 30, "{cut:?}");
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test power_cut -- --ignored`"]
fn twenty_five_cuts_at_random_instants() {
    let instants: Vec<u64> = (0..25).map(|_| 6 + u64::from(rand::random::<u8>()) % 74).collect();
    println_instants(&instants);
    let dir = tempfile::tempdir().expect("a folder");
    let overlay = dir.path().join("disk.qcow2");
    let how = How { network: Network::User, overlay: Some(&overlay), ..How::default() };
    let mut machine = Appliance::get().boot_after_cuts(how, instants);
    machine.until_ready();
    Appliance::get().keeps_what_is_made(how, machine);
}

#[expect(clippy::print_stderr, reason = "a failure must be repeatable")]
fn println_instants(instants: &[u64]) {
    eprintln!("cuts after {instants:?} s");
}

/// A stick is pulled, or loses its power, while the box writes its report on it: whatever the instant, each file there
/// is whole, or its predecessor is. The machine is stopped again and again, and what lies on the stick is read then.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test power_cut -- --ignored`"]
#[expect(clippy::print_stdout, reason = "what was seen is what it is for")]
fn a_report_on_the_stick_is_whole_at_every_instant() {
    let appliance = Appliance::get();
    let dir = tempfile::tempdir().expect("a folder");
    let stick = Stick::new(appliance, dir.path());
    let overlay = dir.path().join("stick.qcow2");
    let how =
        How { format: "raw", attach: Attach::Usb, network: Network::User, overlay: Some(&overlay), ..How::default() };
    let mut machine = appliance.boot(how);
    machine.until_ready();
    let is_over = |event: &Event| event.step == SITE_REPORT && matches!(event.state, State::Done | State::Failed);
    let first = machine.until("the report after ready", is_over);
    assert_eq!(first.state, State::Done, "{first:?}");
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let mut events = machine.session.vm.events();
        machine.client().ask_for("/api/v1/site/report");
        let mut ended = false;
        while !ended {
            machine.session.vm.qmp("stop", None).expect("stopped");
            seen.insert(stick.names_of_whole_files(&overlay));
            machine.session.vm.qmp("cont", None).expect("going on");
            while let Some(line) = events.next(INSTANT) {
                let event = line.value.and_then(|value| serde_json::from_value::<Event>(value).ok());
                ended |= event.is_some_and(|event| is_over(&event) && event.t > first.t);
            }
        }
    }
    let told: Vec<String> = seen.iter().map(|names| names.join(" ")).collect();
    println!("{} states of the folder were seen:\n{}", told.len(), told.join("\n"));
    assert!(told.iter().any(|names| names.contains(".new")), "no instant was within the writing");
}

/// How long a machine runs between two looks at its stick.
const INSTANT: Duration = Duration::from_millis(20);

/// The SITE partition of a raw image.
struct Stick<'a> {
    toolbox: Toolbox,
    appliance: &'a Appliance,
    dir: &'a Path,
    start: u64,
    bytes: u64,
}

impl<'a> Stick<'a> {
    fn new(appliance: &'a Appliance, dir: &'a Path) -> Self {
        let job = Job::load(Path::new("images/appliance")).expect("a definition");
        let lock = common::locked(appliance.builder(), &job, false).expect("a lock");
        let (toolbox, _) = pipeline::toolbox(appliance.builder(), &lock).expect("a toolbox");
        let image = Image::open(&appliance.image("raw")).expect("an image");
        let table = bytes::read(&image, 2 * SECTOR, 128 * 128).expect("entries of a GPT");
        // UEFI 2.10, 5.3.3: the name, UTF-16, is at byte 56 of an entry; first and last block at 32 and 40.
        let name: Vec<u8> = "SITE\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let entry = table.chunks(128).find(|entry| entry[56..].starts_with(&name)).expect("a partition SITE");
        let [first, last] = [32, 40].map(|at| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes")));
        Self { toolbox, appliance, dir, start: first * SECTOR, bytes: (last + 1 - first) * SECTOR }
    }

    /// What lies in the folder of reports: each file whole, or its predecessor.
    fn names_of_whole_files(&self, overlay: &Path) -> Vec<String> {
        let (image, copy) = (self.appliance.image("raw"), self.dir.join("site.img"));
        let from = format!(
            "driver=raw,offset={},size={},file.driver=qcow2,file.file.filename={}",
            self.start,
            self.bytes,
            overlay.display()
        );
        let convert = self.toolbox.tool("qemu-img").args(["convert", "-U", "--image-opts", &from, "-O", "raw"]);
        convert.arg(&copy).reads(&image).writes(self.dir).run().expect("the partition as it is now");
        let site = tree::fat(Rc::new(Image::open(&copy).expect("a copy"))).expect("a file system");
        let names = site.list("foothold").expect("the folder of reports");
        for name in ["report.json", "report.txt", "inventory.json", "support-bundle.tar.gz"] {
            let (own, old) = (format!("foothold/{name}"), format!("foothold/{name}.old"));
            let content = read(&*site, &own).or_else(|| read(&*site, &old));
            // Logs are written only when somebody asks.
            if content.is_none() && std::path::Path::new(&name).extension().is_some_and(|end| end == "gz") {
                continue;
            }
            let content = content.unwrap_or_else(|| panic!("neither `{name}` nor its predecessor: {names:?}"));
            let whole = match name.rsplit('.').next() {
                _ if name == "report.json" => serde_json::from_slice::<Report>(&content).is_ok(),
                Some("json") => serde_json::from_slice::<serde_json::Value>(&content).is_ok(),
                Some("gz") => GzDecoder::new(&content[..]).read_to_end(&mut Vec::new()).is_ok(),
                _ => content.ends_with(b"\n"),
            };
            assert!(whole, "`{name}` is not whole: {} bytes, {names:?}", content.len());
        }
        names
    }
}

fn read(tree: &dyn Tree, path: &str) -> Option<Vec<u8>> {
    let file = tree.open(path).expect("a file system")?;
    Some(bytes::read(&*file, 0, usize::try_from(file.size()).expect("a size")).expect("readable"))
}
