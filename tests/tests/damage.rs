//! One flipped byte anywhere on the medium ends in a message that says where, never in a silent hang.
//!
//! One case runs always; the others by name: `cargo test -p foothold-tests --test damage -- --ignored`.
//!
//! | flipped | who notices | what is seen |
//! |---|---|---|
//! | kernel | its own decompressor | on the screen: `ZSTD-compressed data is corrupt`, `System halted`; nothing on serial |
//! | initrd, modules | the kernel, and the agent that reads its log | framed message |
//! | initrd, agent | the kernel; there may be no agent left | `Initramfs unpacking failed`, panic, a new start in 60 s |
//! | `release.json`, its signature | the initrd | framed message |
//! | layer, where systemd or the agent lies | the initrd, which reads both before it starts them | framed message |
//! | layer, anywhere else | whoever needs it, and the guard, which reads everything | framed message, console, event |
//! | an image's blob, a file | the guard; the box is ready without it | console, event |

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_api::boot::CONTENT_STEP;
use agent_api::events::{Event, State};
use agent_api::release::Digest;
use foothold::cli::{Attach, MachineFirmware};
use foothold::medium::{Found, Medium};
use foothold_tests::appliance::PATIENCE;
use foothold_tests::{Appliance, Boxed, How};
use rstest::rstest;
use serde_json::json;

/// What a byte is flipped in.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// A layer, in the middle of its files; of `kubernetes` at their end.
    Layer(&'static str),
    /// The greatest blob of the image whose name begins so. The box runs it from a layer, and does not need the blob.
    Image(&'static str),
    /// `release.json`.
    Manifest,
    /// `release.json.minisig`.
    Signature,
    /// The compressed part of the kernel.
    Kernel,
    /// The first archive of the initrd.
    Agent,
    /// The second one.
    Modules,
}

/// A sample of a file, unique on the medium, where in the file it lies, and which of its bytes is flipped.
struct Sample {
    bytes: Vec<u8>,
    file_offset: usize,
    flipped: usize,
}

impl Sample {
    fn of(file: &[u8], at: usize) -> Self {
        let at = at / 4096 * 4096;
        let bytes = file[at..file.len().min(at + 4096)].to_vec();
        Self { flipped: bytes.len() / 2, bytes, file_offset: at }
    }

    fn of_blob(appliance: &Appliance, digest: &Digest, at: impl Fn(usize) -> usize) -> Self {
        let blob = fs_err::read(appliance.builder().cache.blob_path(digest)).expect("the blob");
        Self::of(&blob, at(blob.len()))
    }
}

/// A copy of the raw image with one byte flipped in each place, and the blocks of the layers among them.
struct Damaged {
    image: PathBuf,
    _dir: tempfile::TempDir,
    blocks: Vec<(String, usize)>,
}

fn flip(appliance: &Appliance, places: &[Place]) -> Damaged {
    let dir = tempfile::tempdir().expect("a folder");
    let (original, image) = (appliance.image("raw"), dir.path().join("damaged.raw"));
    fs_err::copy(&original, &image).expect("copied");
    let medium = Medium::open(&original).unwrap_or_else(|error| panic!("{error}"));
    let releases = medium.releases().expect("the image's releases");
    let found = releases.first().expect("a release");
    let bytes = fs_err::read(&original).expect("the image");
    let file = fs_err::OpenOptions::new().write(true).open(&image).expect("opened");
    let mut blocks = Vec::new();
    for place in places {
        let sample = sample(appliance, found, *place);
        let at = offset_of(&bytes, &sample.bytes).unwrap_or_else(|| panic!("{place:?} is not in the image"));
        let flipped = sample.bytes[sample.flipped] ^ 0x40;
        file.file().write_all_at(&[flipped], (at + sample.flipped) as u64).expect("flipped");
        if let Place::Layer(name) = place {
            blocks.push(((*name).to_owned(), sample.file_offset / 4096));
        }
    }
    Damaged { image, _dir: dir, blocks }
}

fn sample(appliance: &Appliance, found: &Found, place: Place) -> Sample {
    let release = found.release().expect("a manifest");
    let entry = &release.boot[0];
    match place {
        Place::Layer(name) => {
            let layer = release.layers.iter().find(|layer| layer.name == name).expect("the layer");
            let data = usize::try_from(layer.data_bytes).expect("a layer fits into memory");
            // There lies etcdctl: no box needs it to come up.
            let at = if name == "kubernetes" { data / 16 * 15 } else { data / 2 };
            Sample::of_blob(appliance, &layer.digest, |_| at)
        }
        Place::Image(name) => {
            let image = release.images.iter().find(|image| image.reference.starts_with(name)).expect("the image");
            let blob = image.blobs.iter().max_by_key(|blob| blob.size).expect("a blob");
            Sample::of_blob(appliance, &blob.digest, |length| length / 2)
        }
        Place::Manifest => Sample::of(&found.json, 0),
        Place::Signature => Sample::of(found.signature.as_deref().expect("a signature").as_bytes(), 0),
        Place::Kernel => Sample::of_blob(appliance, &entry.kernel.digest, |length| length / 2),
        Place::Agent => Sample::of_blob(appliance, &entry.initrd.digest, |length| length / 10),
        Place::Modules => Sample::of_blob(appliance, &entry.initrd.digest, |length| length / 4 * 3),
    }
}

/// Files begin at sectors, and so does every sample of them.
fn offset_of(image: &[u8], sample: &[u8]) -> Option<usize> {
    (0..image.len() - sample.len()).step_by(512).find(|start| &image[*start..*start + sample.len()] == sample)
}

fn boot(image: &Path) -> Boxed {
    let firmware = MachineFirmware::Bios;
    Appliance::get().boot(How { attach: Attach::Usb, firmware, image: Some(image), ..How::default() })
}

/// Waits until each layer's damage was told as a fatal event, and looks for it on the serial line.
fn tells_damage_of_layers(places: &[Place]) -> Boxed {
    let damaged = flip(Appliance::get(), places);
    let mut machine = boot(&damaged.image);
    let mut missing: BTreeSet<(String, usize)> = damaged.blocks.iter().cloned().collect();
    let last = machine.until("all damage to be told", |event| {
        let cause = event.text("cause").filter(|_| event.is_fatal()).unwrap_or_default();
        missing.retain(|(name, block)| {
            !(cause.contains(&format!("layer `{name}`"))
                && cause.contains(&format!("block {block} is not what was signed")))
        });
        missing.is_empty()
    });
    said(&machine, &last);
    for (name, _) in &damaged.blocks {
        let told = machine.session.vm.wait_serial(PATIENCE, &format!("layer `{name}`"));
        told.unwrap_or_else(|error| panic!("{error}"));
    }
    machine
}

/// Keeps what a case showed in the test's output.
#[expect(clippy::print_stderr, reason = "with `--nocapture`: what a user would have read")]
fn said(machine: &Boxed, event: &Event) {
    let seen: String = machine.session.vm.serial_text().chars().filter(|c| *c != '\r').collect();
    let frame: Vec<&str> = seen.lines().filter(|line| line.starts_with(['|', '+'])).take(14).collect();
    let cause = event.text("cause").unwrap_or_default();
    eprintln!("{}/{} at {:.1} s: {cause}\n{}", event.phase, event.step, event.t, frame.join("\n"));
}

#[test]
fn a_flipped_byte_in_a_layer_is_named_and_keeps_the_box_from_being_ready() {
    // What is damaged of this layer the box itself never runs: everything else comes up.
    let mut machine = tells_damage_of_layers(&[Place::Layer("kubernetes")]);
    let (mut ready, mut why) = (false, String::new());
    machine.until("the box to say why it is not ready", |event| {
        ready |= event.is_ready();
        let is_told = event.phase == "ready" && event.step == "medium";
        event.text("why").or(event.text("cause")).filter(|_| is_told).unwrap_or_default().clone_into(&mut why);
        !why.is_empty()
    });
    assert!(why.contains("medium is damaged: layer `kubernetes`"), "{why}");
    assert!(!ready, "the place was found before everything else had come up");
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test damage -- --ignored`"]
fn a_flipped_byte_in_the_content_is_named_and_the_box_is_ready_all_the_same() {
    let name = "registry.k8s.io/coredns/";
    let damaged = flip(Appliance::get(), &[Place::Image(name)]);
    let mut machine = boot(&damaged.image);
    let (mut ready, mut told) = (false, None);
    machine.until("the box to be ready and the damage to be told", |event| {
        ready |= event.is_ready();
        let is_told = event.phase == "medium" && event.step == CONTENT_STEP && event.state == State::Failed;
        told = told.take().or_else(|| is_told.then(|| event.clone()));
        ready && told.is_some()
    });
    let event = told.expect("it was told");
    said(&machine, &event);
    let cause = event.text("cause").unwrap_or_default();
    assert!(cause.contains(&format!("image `{name}")) && cause.contains("has other bytes"), "{cause}");
    assert!(!event.is_fatal(), "{event:?}");
}

#[rstest]
#[case::os(&[Place::Layer("os")])]
#[case::containers(&[Place::Layer("containers")])]
#[case::appliance(&[Place::Layer("appliance")])]
#[case::three_at_once(&[Place::Layer("os"), Place::Layer("kubernetes"), Place::Layer("containers")])]
#[ignore = "slow: `cargo test -p foothold-tests --test damage -- --ignored`"]
fn a_flipped_byte_in_any_layer_is_named(#[case] places: &[Place]) {
    tells_damage_of_layers(places);
}

#[rstest]
#[case::manifest(Place::Manifest, "release.json on", "is damaged: its digest is")]
#[case::signature(Place::Signature, "the signature of release.json on", "is not good")]
#[ignore = "slow: `cargo test -p foothold-tests --test damage -- --ignored`"]
fn what_starts_the_box_is_named_when_it_is_damaged(#[case] place: Place, #[case] what: &str, #[case] how: &str) {
    let damaged = flip(Appliance::get(), &[place]);
    let mut machine = boot(&damaged.image);
    let event = machine.until("the initrd to give up", Event::is_fatal);
    said(&machine, &event);
    let cause = event.text("cause").unwrap_or_default();
    assert!(cause.contains(what) && cause.contains(how), "{cause}");
    framed(&machine);
}

/// Too early for drivers: whether an event reaches the host depends on where the damage lies.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test damage -- --ignored`"]
fn a_flipped_byte_in_the_initrds_modules_ends_in_a_message() {
    let damaged = flip(Appliance::get(), &[Place::Modules]);
    let machine = boot(&damaged.image);
    framed(&machine);
    show(&machine.session.vm.serial_text());
    assert!(machine.session.vm.serial_text().contains("found     the initrd on the medium that this machine was"));
}

/// Waits for the last line of the message on the serial line.
fn framed(machine: &Boxed) {
    let told = machine.session.vm.wait_serial(PATIENCE, "to do     write the image to the medium again");
    told.unwrap_or_else(|error| panic!("{error}"));
}

/// There may be nothing left that could be run: then the kernel says so itself, and starts again after a minute.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test damage -- --ignored`"]
fn a_flipped_byte_in_the_initrds_program_is_told_by_the_kernel_at_least() {
    let damaged = flip(Appliance::get(), &[Place::Agent]);
    let machine = boot(&damaged.image);
    let told = machine.session.vm.wait_serial(PATIENCE, "Initramfs unpacking failed");
    told.unwrap_or_else(|error| panic!("{error}"));
    let mut events = machine.session.vm.events();
    while let Some(line) = events.next(Duration::from_secs(5)) {
        let event = line.value.and_then(|value| serde_json::from_value::<Event>(value).ok());
        assert!(event.is_none_or(|event| event.phase != "disk"), "a damaged program went on: {}", line.text);
    }
    show(&machine.session.vm.serial_text());
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test damage -- --ignored`"]
fn a_flipped_byte_in_the_kernel_is_told_on_the_screen() {
    let damaged = flip(Appliance::get(), &[Place::Kernel]);
    let machine = boot(&damaged.image);
    let mut events = machine.session.vm.events();
    let mut screen = String::new();
    while !screen.contains("System halted") {
        assert!(machine.session.vm.since_power_on() < PATIENCE.total, "the screen says:\n{screen}");
        assert!(events.next(Duration::from_secs(1)).is_none(), "a damaged kernel went on");
        screen = text_screen(&machine);
    }
    show(&screen);
}

#[expect(clippy::print_stderr, reason = "with `--nocapture`: what a user would have read")]
fn show(text: &str) {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    eprintln!("{}", lines[lines.len().saturating_sub(30)..].join("\n"));
}

/// The text screen of a BIOS machine: 25 lines of 80 cells, each a letter and its colours, from 0xb8000 on.
fn text_screen(machine: &Boxed) -> String {
    let command = json!({ "command-line": "xp /2000xh 0xb8000" });
    let dump = machine.session.vm.qmp("human-monitor-command", Some(&command)).expect("the screen's memory");
    let words = dump.as_str().unwrap_or_default().split_whitespace().filter_map(|word| word.strip_prefix("0x"));
    let cells: Vec<char> = words
        .filter_map(|word| u16::from_str_radix(word, 16).ok())
        .map(|cell| char::from(cell.to_le_bytes()[0]))
        .map(|letter| if letter.is_ascii_graphic() { letter } else { ' ' })
        .collect();
    cells.chunks(80).map(|row| row.iter().collect::<String>() + "\n").collect()
}
