//! What makes a proof, and what keeps it from being one.

use agent_api::events::{Event, PULL_STEP, Phase, SERVED_STEP, State, Status};
use agent_api::release::Budgets;
use foothold_qemu::Accel;
use serde_json::json;

use super::{Boot, NotProved, budgets, judge, no_proof_of};
use crate::commands::measure::{Load, hit};
use crate::fixtures::proof_of;
use crate::release::testbench::Sample;

fn boot(events: &[Event]) -> Boot {
    let mut status = Status::default();
    for event in events {
        status.apply(event);
    }
    let ready = events.iter().find(|event| event.is_ready()).expect("ready").clone();
    Boot { accel: Accel::Tcg, ready, status, served: events.iter().filter_map(hit).collect(), load: Load::default() }
}

fn ready(t: f64) -> Event {
    let timings = json!({"nodeReady": t - 4.0, "ready": t});
    Event::of_box(t, Phase::Ready, "ready", State::Done).with("timings", timings).with("memoryUsedMib", 900)
}

#[test]
fn a_start_is_its_steps_its_usage_and_what_was_asked_for() {
    let pull = |t| Event::of_box(t, Phase::Content, PULL_STEP, State::Failed).with("image", "example.org/a:1");
    let ready = ready(50.0).with("memoryPeakMib", 1100).with("dataPeakMib", 40).with("pulls", json!([]));
    let served = Event::of_box(12.0, Phase::Content, SERVED_STEP, State::Done).with("image", "docker.io/library/b:1");
    let boot = boot(&[
        Event::of_box(1.0, Phase::Medium, "find", State::Started),
        Event::of_box(2.5, Phase::Medium, "find", State::Done),
        served,
        ready,
        pull(56.0).with("workload", true),
        Event::of_box(58.0, Phase::Services, "late", State::Started),
        Event::of_box(59.0, Phase::Services, "late", State::Done),
    ]);
    assert!(boot.records_pulls());
    let start = boot.start();
    let steps: Vec<_> = start.steps.iter().map(|step| (step.step.as_str(), step.start, step.secs)).collect();
    assert_eq!(steps, [("find", 1.0, 1.5), ("served", 12.0, 0.0), ("ready", 50.0, 0.0)]);
    assert_eq!((start.usage.memory_used_mib, start.usage.memory_peak_mib, start.usage.data_peak_mib), (900, 1100, 40));
    let requests: Vec<_> = start.requests.iter().map(|request| (request.image.as_str(), request.found)).collect();
    assert_eq!(requests, [("docker.io/library/b:1", true), ("example.org/a:1", false)]);
    // Also what was asked for after `ready` is missing.
    let pulls = boot.pulls("second");
    assert_eq!((pulls[0].image.as_str(), pulls[0].t), ("example.org/a:1", 56.0));
    assert!(pulls[0].why.contains("second start"), "{pulls:?}");
}

#[test]
fn a_box_without_a_list_of_pulls_is_told_from_one_with_an_empty_list() {
    assert!(!boot(&[ready(50.0)]).records_pulls());
}

#[test]
fn a_broken_budget_and_a_missing_image_fail_the_proof_and_are_named() {
    let mut release = Sample::new().release;
    let mut proof = proof_of("ab");
    proof.first_boot.usage.memory_peak_mib = 1100;
    proof.reboot.ready_secs = 61.5;
    release.budgets = Budgets { image_bytes: Some(1 << 20), memory_bytes: Some(1 << 30), ready_within_secs: Some(60) };
    proof.budgets = budgets(&release, &proof);
    let pull = boot(&[
        Event::of_box(31.5, Phase::Content, PULL_STEP, State::Failed).with("image", "example.org/a:1"),
        ready(50.0),
    ])
    .pulls("first");
    let failed = NotProved { image: "edge.qcow2".to_owned(), failures: judge(&proof, &pull) };
    insta::assert_snapshot!(failed.to_string());
    release.budgets = Budgets { image_bytes: Some(1 << 20), memory_bytes: Some(2 << 30), ready_within_secs: None };
    proof.budgets = budgets(&release, &proof);
    assert_eq!(judge(&proof, &[]), Vec::<String>::new());
}

#[test]
fn a_development_build_of_the_agent_gets_no_proof() {
    let mut release = Sample::new().release;
    assert_eq!(no_proof_of(&release), None);
    release.development_agent = true;
    let why = no_proof_of(&release).expect("refused");
    assert!(why.contains("not for a site\nhint: build it without `--development`"), "{why}");
}
