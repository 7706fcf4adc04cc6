//! Where the time went on the way to `ready`: a fold over the events of this boot.

use agent_api::events::{Event, State};
use agent_api::rest::{PhaseTime, StepTime, Timeline};

/// Folds the events of one boot, oldest first. What has not ended at `now` lasts until then, while the box is not
/// ready.
pub fn timeline(events: &[Event], now: f64) -> Timeline {
    let mut timeline = Timeline::default();
    // When the steps that wait now began to do so, by position.
    let mut waiting: Vec<((usize, usize), f64)> = Vec::new();
    for event in events {
        if event.is_ready() && timeline.ready.is_none() {
            timeline.ready = Some(event.t);
        }
        let at = place_of(&mut timeline, event);
        let phase = &mut timeline.phases[at.0];
        let step = &mut phase.steps[at.1];
        if let Some(found) = waiting.iter().position(|(who, _)| *who == at) {
            let (_, since) = waiting.swap_remove(found);
            step.waiting_secs = round(step.waiting_secs + event.t - since);
            phase.waiting_secs = round(phase.waiting_secs + event.t - since);
        }
        if event.state == State::Waiting {
            waiting.push((at, event.t));
        }
        // A restarted agent finds the step still done: that took no time.
        if event.state == State::Skipped && matches!(step.state, State::Done) {
            continue;
        }
        step.failures += u32::from(event.state == State::Failed);
        step.state = event.state;
        step.secs = round(event.t - step.start);
        phase.secs = round(event.t - phase.start);
    }
    if timeline.ready.is_none() {
        last_until(&mut timeline, &waiting, now);
    }
    timeline
}

fn last_until(timeline: &mut Timeline, waiting: &[((usize, usize), f64)], now: f64) {
    for (p, phase) in timeline.phases.iter_mut().enumerate() {
        for (s, step) in phase.steps.iter_mut().enumerate() {
            if matches!(step.state, State::Done | State::Skipped) || now < step.start {
                continue;
            }
            step.secs = round(now - step.start);
            phase.secs = phase.secs.max(round(now - phase.start));
            if let Some((_, since)) = waiting.iter().find(|(who, _)| *who == (p, s)) {
                step.waiting_secs = round(step.waiting_secs + now - since);
                phase.waiting_secs = round(phase.waiting_secs + now - since);
            }
        }
    }
}

fn place_of(timeline: &mut Timeline, event: &Event) -> (usize, usize) {
    let phases = &mut timeline.phases;
    let phase = phases.iter().position(|phase| phase.phase == event.phase).unwrap_or_else(|| {
        phases.push(PhaseTime {
            phase: event.phase.clone(),
            start: event.t,
            secs: 0.0,
            waiting_secs: 0.0,
            steps: Vec::new(),
        });
        phases.len() - 1
    });
    let steps = &mut phases[phase].steps;
    let step = steps.iter().position(|step| step.step == event.step).unwrap_or_else(|| {
        steps.push(StepTime {
            step: event.step.clone(),
            state: event.state,
            start: event.t,
            secs: 0.0,
            waiting_secs: 0.0,
            failures: 0,
        });
        steps.len() - 1
    });
    (phase, step)
}

fn round(secs: f64) -> f64 {
    (secs * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use agent_api::events::{Event, Phase, State};

    use super::timeline;

    #[test]
    fn waiting_and_failing_are_counted_apart_from_working() {
        let of = |t, phase, step, state| Event::of_box(t, phase, step, state);
        let events = [
            of(1.0, Phase::Network, "addresses", State::Started),
            of(1.5, Phase::Network, "addresses", State::Waiting),
            of(2.0, Phase::Time, "clock", State::Skipped),
            of(4.0, Phase::Network, "addresses", State::Waiting),
            of(5.0, Phase::Network, "addresses", State::Failed),
            of(7.0, Phase::Network, "addresses", State::Done),
            of(8.0, Phase::Ready, "ready", State::Done),
        ];
        let told = serde_json::to_string_pretty(&timeline(&events, 100.0)).expect("JSON");
        insta::assert_snapshot!(told);
    }
    #[test]
    fn what_has_not_ended_lasts_until_now() {
        let of = |t, step, state| Event::of_box(t, Phase::Network, step, state);
        let events = [
            of(1.0, "firewall", State::Started),
            of(2.0, "firewall", State::Done),
            of(1.0, "addresses", State::Started),
            of(3.0, "addresses", State::Waiting),
        ];
        let told = timeline(&events, 10.0);
        let secs: Vec<_> = told.phases[0].steps.iter().map(|step| (step.secs, step.waiting_secs)).collect();
        assert_eq!(secs, [(1.0, 0.0), (9.0, 7.0)]);
        assert!((told.phases[0].secs - 9.0).abs() < 0.001);
    }
}
