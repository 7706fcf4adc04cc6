//! `firstBoot.mode: install`: a stick puts itself on the machine's disk, which starts without it from then on.
//!
//! Until it is ready: `cargo test -p foothold-tests --test install -- --ignored`.

use agent_api::events::{Event, State};
use foothold::cli::{Attach, MachineFirmware};
use foothold_tests::{Appliance, Boxed, How};

const DEFINITION: &str = "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: { name: installed, version: 1.0.0 }\n\
    kubernetes: { version: v1.36.4, from: modules }\noutputs: [{ format: raw }]\n\
    firstBoot: { mode: install, target: { bus: virtio, minSize: 8GiB } }\n";

fn until_message(machine: &mut Boxed, step: &str, state: State) -> String {
    let found = |event: &Event| event.step == step && event.state == state;
    let event = machine.until(&format!("{step} to be {state:?}"), found);
    event.text("message").unwrap_or_default().to_owned()
}

#[test]
fn a_stick_installs_itself_through_a_power_cut_and_the_disk_starts_without_it() {
    installs_itself(|machine| {
        machine.until("the agent to look for Site", |event| event.step == "site" && event.state == State::Done);
    });
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test install -- --ignored`"]
fn a_disk_that_a_stick_installed_itself_on_becomes_ready() {
    installs_itself(|machine| drop(machine.until_ready()));
}

/// From the stick to the disk alone; `alone` waits for what that comes to, started by a BIOS.
fn installs_itself(alone: impl FnOnce(&mut Boxed)) {
    let locked = Appliance::get().builder().workspace.join("images/appliance/appliance.lock");
    let dir = tempfile::tempdir().expect("a folder");
    let definition = dir.path().join("appliance.yaml");
    fs_err::write(&definition, DEFINITION).expect("written");
    fs_err::copy(locked, dir.path().join("appliance.lock")).expect("copied");
    let appliance = Appliance::of(&definition);

    let overlay = dir.path().join("stick.qcow2");
    let stick = How { format: "raw", attach: Attach::Usb, overlay: Some(&overlay), ..How::default() };
    let mut machine = appliance.boot(stick);
    let copied = until_message(&mut machine, "install", State::Progress);
    assert!(copied.starts_with("the medium is copied to vd"), "{copied}");
    machine.session.vm.kill().expect("the power is cut");
    drop(machine);

    let mut machine = appliance.boot(stick);
    let installed = until_message(&mut machine, "install", State::Done);
    assert!(installed.ends_with("the medium is not needed any more"), "{installed}");
    machine.session.vm.kill().expect("the power is cut");
    drop(machine);

    // With both there, the box goes on from the disk.
    let mut machine = appliance.boot(stick);
    let data = until_message(&mut machine, "data", State::Done);
    assert!(data.contains(" on vd"), "{data}");
    drop(machine);

    // What `foothold` gave the machine as its disk.
    let disk = dir.path().join("installed.qcow2");
    let of_disk = How { image: Some(&disk), ..How::default() };
    let mut machine = appliance.boot(How { firmware: MachineFirmware::Uefi, ..of_disk });
    let data = until_message(&mut machine, "data", State::Done);
    assert!(data.starts_with("DATA found on vd"), "{data}");
    drop(machine);
    alone(&mut appliance.boot(of_disk));
}
