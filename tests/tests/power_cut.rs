//! A power cut at any instant of first boot: the next boot reaches `ready` unaided, and loses nothing.
//!
//! At every step, and at 25 random instants: `cargo test -p foothold-tests --test power_cut -- --ignored`.

use std::collections::BTreeSet;
use std::time::Duration;

use agent_api::events::{Event, State};
use foothold::cli::Network;
use foothold_tests::{Appliance, How};
use serde_json::json;

/// Cuts the power of the same box again and again, each time at another instant, then lets it become ready.
fn survives_cuts(instants: impl IntoIterator<Item = u64>) {
    let appliance = Appliance::get();
    let dir = tempfile::tempdir().expect("a folder");
    let overlay = dir.path().join("disk.qcow2");
    let how = How { network: Network::User, overlay: Some(&overlay), ..How::default() };
    for instant in instants {
        let machine = appliance.boot(how);
        let mut events = machine.session.vm.events();
        while machine.session.vm.since_power_on() < Duration::from_secs(instant) {
            assert!(machine.session.vm.exited().is_none(), "the machine ended by itself");
            let _ = events.next(Duration::from_millis(50));
        }
        machine.session.vm.kill().expect("the power is cut");
    }
    let mut machine = appliance.boot(how);
    machine.until_ready();
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "before-the-cut" } });
    machine.client().kubernetes().create("/api/v1/namespaces/default/configmaps", &object);
    machine.session.vm.kill().expect("the power is cut");
    drop(machine);
    let mut machine = appliance.boot(how);
    machine.until_ready();
    let found = machine.client().kubernetes().get("/api/v1/namespaces/default/configmaps/before-the-cut");
    assert_eq!(found["metadata"]["name"], "before-the-cut");
}

#[test]
fn ten_cuts_on_the_way_and_one_after_it() {
    // Medium and disk (7 to 12 s), identity to runtime (12 to 20 s), then ever further into the control plane.
    survives_cuts([8, 9, 10, 11, 13, 15, 18, 24, 32, 45]);
}

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
    survives_cuts(instants);
}

#[expect(clippy::print_stderr, reason = "a failure must be repeatable")]
fn println_instants(instants: &[u64]) {
    eprintln!("cuts after {instants:?} s");
}
