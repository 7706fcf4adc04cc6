//! How long it still takes, by what the release's proof measured.
//!
//! ```text
//! proof (this kind of start) ─┐
//!                             ├─ eta (pure) ─► console, REST
//! Status, now ────────────────┘       └─ slow steps ─► events
//! ```
//! The proof was made on another machine. The steps that have ended here show how much faster or slower this one is; the
//! estimate for the rest follows from that. Without a proof there is no estimate.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_api::events::{Event, Source, State, Status};
use agent_api::proof::{Start, Step};
use agent_api::rest::{Eta, SlowStep};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::events::{Bus, uptime};

/// A step is slow at so many times what it took at the proof.
const SLOW: f64 = 3.0;
/// A step that is shorter than this, seconds, is never called slow.
const SLOW_AT_LEAST: f64 = 2.0;
/// The paces are compared once so many seconds of the proof have passed here.
const ENOUGH: f64 = 3.0;
/// Limits of the pace: what was measured beyond them is taken for chance.
const PACE: (f64, f64) = (0.1, 20.0);
/// How often slow steps are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// When the box will be ready; `None` when it is, or when nothing is known.
pub fn eta(proof: &Start, status: &Status, now: f64) -> Option<Eta> {
    if status.ready || proof.steps.is_empty() || proof.ready_secs <= 0.0 {
        return None;
    }
    let passed = milestones(proof, status);
    let pace = pace(&passed);
    let (here, there) = passed.last().copied().unwrap_or((0.0, 0.0));
    let left = |from: f64| (proof.ready_secs - from).max(0.0) * pace;
    // A step that should have ended by now and has not moves all that follows.
    let next = proof.steps.iter().filter(|step| !has_ended(status, step)).map(Step::end).reduce(f64::min);
    let total = (here + left(there)).max(now + left(next.unwrap_or(there).max(0.0)));
    Some(Eta {
        elapsed_secs: tenths(now),
        total_secs: tenths(total),
        pace: (pace * 100.0).round() / 100.0,
        slow: slow(proof, status, now, pace),
    })
}

/// When steps ended, here and at the proof, as far as both are known: in the proof's order.
fn milestones(proof: &Start, status: &Status) -> Vec<(f64, f64)> {
    let ended = status.steps.iter().filter_map(|step| {
        let there = find(proof, &step.phase, &step.step)?;
        Some((step.since + step.secs?, there.end()))
    });
    let mut ended: Vec<(f64, f64)> = ended.collect();
    ended.sort_by(|a, b| a.1.total_cmp(&b.1));
    ended
}

/// How many times as long everything takes here.
fn pace(passed: &[(f64, f64)]) -> f64 {
    let (Some(first), Some(last)) = (passed.first(), passed.last()) else { return 1.0 };
    let there = last.1 - first.1;
    if there < ENOUGH { 1.0 } else { ((last.0 - first.0) / there).clamp(PACE.0, PACE.1) }
}

/// Steps that run far longer than at the proof. A slower machine gets more time; a faster one does not get less.
fn slow(proof: &Start, status: &Status, now: f64, pace: f64) -> Vec<SlowStep> {
    let running = status.running().filter_map(|step| {
        let proved = find(proof, &step.phase, &step.step)?.secs;
        let secs = now - step.since;
        (secs >= SLOW_AT_LEAST && secs > SLOW * proved * pace.max(1.0)).then(|| SlowStep {
            phase: step.phase.clone(),
            step: step.step.clone(),
            secs: tenths(secs),
            proved_secs: tenths(proved),
        })
    });
    running.collect()
}

fn find<'a>(proof: &'a Start, phase: &str, step: &str) -> Option<&'a Step> {
    proof.steps.iter().find(|known| known.phase == phase && known.step == step)
}

fn has_ended(status: &Status, step: &Step) -> bool {
    status.steps.iter().any(|known| known.phase == step.phase && known.step == step.step && known.secs.is_some())
}

fn tenths(secs: f64) -> f64 {
    (secs * 10.0).round() / 10.0
}

/// Tells once of each step that it is slow. Does nothing without a proof.
pub fn start(tasks: &mut JoinSet<anyhow::Result<()>>, proof: Option<Arc<Start>>, bus: &Bus, stop: &CancellationToken) {
    let Some(proof) = proof else { return };
    let (bus, stop) = (bus.clone(), stop.clone());
    tasks.spawn(async move {
        let mut told = BTreeSet::new();
        let look = async {
            while !bus.now().ready {
                tokio::time::sleep(LOOK).await;
                while bus.tell_if(|status| news(&proof, status, uptime(), &mut told)) {}
            }
        };
        stop.run_until_cancelled(look).await;
        Ok(())
    });
}

/// The event that says that one more step is slow: with the detail of its last event.
fn news(proof: &Start, status: &Status, now: f64, told: &mut BTreeSet<(String, String)>) -> Option<Event> {
    let found = eta(proof, status, now)?;
    let slow = found.slow.into_iter().find(|slow| told.insert((slow.phase.clone(), slow.step.clone())))?;
    let step = status.running().find(|step| step.phase == slow.phase && step.step == slow.step)?;
    let mut detail = step.detail.clone();
    detail.insert("slow".to_owned(), Value::from(true));
    detail.insert("provedSecs".to_owned(), Value::from(slow.proved_secs));
    // `Started` would begin the step anew.
    let state = if step.state == State::Waiting { State::Waiting } else { State::Progress };
    let t = (now * 1000.0).round() / 1000.0;
    Some(Event { t, source: Source::Box, phase: slow.phase, step: slow.step, state, detail })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use agent_api::events::{Event, Phase, State, Status};
    use agent_api::proof::{Start, Step};
    use rstest::rstest;

    use super::{eta, news};

    /// Four steps of 10 s one after the other, one of 25 s beside them, `ready` at 45 s.
    fn proof() -> Start {
        let step = |phase: Phase, step: &str, start: f64, secs: f64| Step {
            phase: phase.name().to_owned(),
            step: step.to_owned(),
            start,
            secs,
        };
        let steps = vec![
            step(Phase::Disk, "data", 0.0, 10.0),
            step(Phase::Runtime, "containerd", 10.0, 10.0),
            step(Phase::Network, "firewall", 10.0, 25.0),
            step(Phase::ControlPlane, "api-server", 20.0, 10.0),
            step(Phase::Addons, "objects", 30.0, 10.0),
        ];
        Start { ready_secs: 45.0, steps, ..Start::default() }
    }

    /// Steps that ran one after the other here, each given by its end; the last one runs still.
    fn status(ends: &[f64]) -> Status {
        let names = [
            (Phase::Disk, "data"),
            (Phase::Runtime, "containerd"),
            (Phase::ControlPlane, "api-server"),
            (Phase::Addons, "objects"),
        ];
        let mut status = Status::default();
        let mut begin = 0.0;
        for (at, (phase, step)) in names.into_iter().enumerate().take(ends.len() + 1) {
            status.apply(&Event::of_box(begin, phase, step, State::Started));
            if let Some(end) = ends.get(at) {
                status.apply(&Event::of_box(*end, phase, step, State::Done));
                begin = *end;
            }
        }
        status
    }

    #[rstest]
    #[case::nothing_known_yet(&[], 2.0, 45.0, 1.0)]
    #[case::as_at_the_proof(&[10.0, 20.0], 24.0, 45.0, 1.0)]
    #[case::twice_as_slow(&[20.0, 40.0], 44.0, 90.0, 2.0)]
    #[case::twice_as_fast(&[5.0, 10.0], 11.0, 22.5, 0.5)]
    #[case::a_late_start_at_the_same_pace(&[30.0, 40.0], 42.0, 65.0, 1.0)]
    #[case::one_step_is_not_a_pace(&[20.0], 21.0, 55.0, 1.0)]
    // `api-server` should have ended at 30 s: what follows takes 15 s from now on.
    #[case::stuck(&[10.0, 20.0], 50.0, 65.0, 1.0)]
    fn the_pace_so_far_says_what_the_rest_takes(
        #[case] ends: &[f64],
        #[case] now: f64,
        #[case] total: f64,
        #[case] pace: f64,
    ) {
        let found = eta(&proof(), &status(ends), now).expect("an estimate");
        assert_eq!((found.elapsed_secs, found.total_secs, found.pace), (now, total, pace));
        assert!(found.total_secs >= now);
    }

    #[test]
    fn a_step_is_slow_at_three_times_its_proof_on_a_machine_as_fast() {
        let slow = |ends: &[f64], now| {
            let found = eta(&proof(), &status(ends), now).expect("an estimate");
            found.slow.iter().map(|slow| (slow.step.clone(), slow.secs, slow.proved_secs)).collect::<Vec<_>>()
        };
        assert_eq!(slow(&[10.0, 20.0], 50.0), []);
        assert_eq!(slow(&[10.0, 20.0], 50.1), [("api-server".to_owned(), 30.1, 10.0)]);
        // On a machine half as fast it has twice the time; a fast one is not held to less than the proof.
        assert_eq!(slow(&[20.0, 40.0], 99.0), []);
        assert_eq!(slow(&[20.0, 40.0], 100.1).len(), 1);
        assert_eq!(slow(&[5.0, 10.0], 39.0), []);
    }

    #[test]
    fn nothing_is_promised_without_a_proof_or_when_it_is_ready() {
        assert_eq!(eta(&Start::default(), &status(&[10.0]), 12.0), None);
        let mut ready = status(&[10.0]);
        ready.apply(&Event::of_box(45.0, Phase::Ready, "ready", State::Done));
        assert_eq!(eta(&proof(), &ready, 46.0), None);
    }

    #[test]
    fn a_slow_step_is_told_once_with_what_it_waits_for() {
        let mut status = status(&[10.0, 20.0]);
        let waits = Event::of_box(21.0, Phase::ControlPlane, "api-server", State::Waiting);
        status.apply(&waits.with("for", "etcd").with("why", "it starts"));
        let mut told = BTreeSet::new();
        assert_eq!(news(&proof(), &status, 49.0, &mut told), None);
        let event = news(&proof(), &status, 51.0, &mut told).expect("it is slow");
        let told_of = (event.step.as_str(), event.state, event.text("for"), event.detail["provedSecs"].as_f64());
        assert_eq!(told_of, ("api-server", State::Waiting, Some("etcd"), Some(10.0)));
        status.apply(&event);
        assert_eq!(status.running().count(), 1);
        assert_eq!(news(&proof(), &status, 52.0, &mut told), None);
    }
}
