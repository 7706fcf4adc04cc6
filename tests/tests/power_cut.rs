//! A power cut at any instant of first boot: the next boot reaches `ready` unaided, and loses nothing.
//!
//! Slow under emulation: `cargo test -p foothold-tests --test power_cut -- --ignored`.

use std::time::Duration;

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
#[ignore = "slow: `cargo test -p foothold-tests --test power_cut -- --ignored`"]
fn ten_cuts_on_the_way_and_one_after_it() {
    // Medium and disk (7 to 12 s), identity to runtime (12 to 20 s), then ever further into the control plane.
    survives_cuts([8, 9, 10, 11, 13, 15, 18, 24, 32, 45]);
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
