//! DHCP on a segment with real servers, in network namespaces of the test's own: the guard is measured on the wire.

mod clients;
mod command;
mod net;
mod site;
mod wire;

use std::time::Duration;

use agent_api::net::MacAddress;
use foothold_agent::provisioning::segment::leases::address_of;
use foothold_agent::provisioning::segment::leases_in;
use foothold_agent::provisioning::segment::state::Answers;

use site::{OURS, Site};
use wire::{FOREIGN, FOREIGN_MAC};

const STRANGER: MacAddress = MacAddress([0x52, 0x54, 0, 0, 1, 1]);
const OTHER_STRANGER: MacAddress = MacAddress([0x52, 0x54, 0, 0, 1, 2]);
const THIRD_STRANGER: MacAddress = MacAddress([0x52, 0x54, 0, 0, 1, 3]);
/// Reserved in the fixture.
const KNOWN: MacAddress = MacAddress([0x52, 0x54, 0, 0, 0, 1]);
/// One round of probes in the fixture.
const ROUND: Duration = Duration::from_secs(5);
/// What a machine's firmware waits for at least: PXE asks 4 times in 60 s.
const PATIENCE: Duration = Duration::from_secs(45);
/// As long as nobody may answer.
const SILENCE: Duration = Duration::from_secs(15);

#[test]
fn alone_ours_serves_known_and_unknown_machines_and_leases_survive_a_restart() {
    let site = Site::new();
    let wire = site.wire();
    let mut ours = site.serve("guard");
    let begun = std::time::Instant::now();
    let offer = site.client.ask(STRANGER, PATIENCE, |answer| answer.server == OURS).expect("an offer");
    assert!(begun.elapsed() >= ROUND, "nothing is offered before the first look for others");
    let address = offer.offered.expect("an address");
    site.client.lease(STRANGER, &offer).expect("a lease");
    assert_eq!(site.tftp("undionly.kpxe"), b"a loader");
    let known = site.client.ask(KNOWN, PATIENCE, |answer| answer.server == OURS).expect("an offer");
    assert_eq!(known.offered, Some([172, 22, 0, 50].into()));
    assert_eq!(ours.state().answers, Answers::KnownAndAdmitted);
    ours.stop();
    let leases = leases_in(ours.state_dir()).expect("leases");
    assert_eq!(address_of(&leases, STRANGER, jiff::Timestamp::now()), Ok(address));

    // Somebody else wants an address first: it must not be the one that is lent.
    ours.start();
    let other = site.client.ask(OTHER_STRANGER, PATIENCE, |answer| answer.server == OURS).expect("an offer");
    assert_ne!(other.offered, Some(address));
    let again = site.client.ask(STRANGER, PATIENCE, |answer| answer.server == OURS).expect("an offer");
    assert_eq!(again.offered, Some(address), "the lease was kept");
    assert!(!wire.answers().is_empty(), "the wire was listened to");
}

#[test]
fn a_server_that_was_there_first_keeps_every_unknown_machine() {
    let site = Site::new();
    let _foreign = site.start_foreign();
    let wire = site.wire();
    let ours = site.serve("guard");
    let seen = site.client.all(STRANGER, PATIENCE / 2);
    assert!(seen.iter().any(|answer| answer.server == FOREIGN), "the other server serves: {seen:?}");
    let known = site.client.ask(KNOWN, PATIENCE, |answer| answer.server == OURS).expect("an offer");
    assert_eq!(known.offered, Some([172, 22, 0, 50].into()), "who is known is served by ours");
    let state = ours.state();
    let other = &state.others[0];
    assert_eq!((state.answers, other.server, other.mac), (Answers::Known, FOREIGN, FOREIGN_MAC));
    assert!(other.offered.is_some() && state.sentence().contains("172.22.0.2"), "{}", state.sentence());
    assert!(state.waiting.iter().any(|waiting| waiting.mac == STRANGER), "{state:?}");
    let answered: Vec<MacAddress> = wire.answers().iter().map(|answer| answer.to).collect();
    assert!(!answered.is_empty() && answered.iter().all(|mac| *mac == KNOWN), "{answered:?}");
}

#[test]
fn a_server_that_appears_later_keeps_every_unknown_machine_until_it_is_gone() {
    let site = Site::new();
    let wire = site.wire();
    let ours = site.serve("guard");
    site.client.ask(STRANGER, PATIENCE, |answer| answer.server == OURS).expect("alone, ours serves");

    let foreign = site.start_foreign();
    wire.answers();
    site.client.ask(OTHER_STRANGER, PATIENCE, |answer| answer.server == FOREIGN).expect("the other serves");
    site.client.all(OTHER_STRANGER, SILENCE);
    let answered: Vec<_> = wire.answers().into_iter().filter(|answer| answer.to == OTHER_STRANGER).collect();
    assert_eq!(answered, [], "not one answer to a machine that is unknown");
    assert_eq!(ours.state().answers, Answers::Known);

    let seen = site.client.all(STRANGER, SILENCE);
    assert!(seen.iter().any(|answer| answer.server == FOREIGN), "{seen:?}");
    let answered: Vec<_> = wire.answers().into_iter().filter(|answer| answer.to != KNOWN).collect();
    assert_eq!(answered, [], "who was served before is left to the other");

    drop(foreign);
    site.client.ask(THIRD_STRANGER, PATIENCE * 2, |answer| answer.server == OURS).expect("alone again, ours serves");
}

#[test]
fn always_answers_beside_another_server_as_it_was_told() {
    let site = Site::new();
    let _foreign = site.start_foreign();
    let wire = site.wire();
    let ours = site.serve("always");
    site.client.ask(STRANGER, PATIENCE, |answer| answer.server == OURS).expect("an offer");
    assert!(wire.answers().iter().any(|answer| answer.to == STRANGER), "the wire shows what the guard prevents");
    site.client.all(STRANGER, SILENCE);
    assert_eq!((ours.state().answers, ours.state().others.len()), (Answers::Everyone, 1));
}

#[test]
fn known_only_and_off_answer_nobody_else_even_alone() {
    for policy in ["known", "off"] {
        let site = Site::new();
        let wire = site.wire();
        let ours = site.serve(policy);
        assert_eq!(site.client.all(STRANGER, SILENCE), [], "policy {policy}");
        if policy == "known" {
            site.client.ask(KNOWN, PATIENCE, |answer| answer.server == OURS).expect("an offer");
        }
        let answered: Vec<MacAddress> = wire.answers().iter().map(|answer| answer.to).collect();
        assert!(answered.iter().all(|mac| *mac == KNOWN && policy == "known"), "{policy}: {answered:?}");
        drop(ours);
    }
}
