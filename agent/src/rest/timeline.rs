//! Where the time went on the way to `ready`: a fold over the events of this boot.

use agent_api::events::{Event, State};
use agent_api::rest::{PhaseTime, StepTime, Timeline};

/// Folds the events of one boot, oldest first.
pub fn timeline(events: &[Event]) -> Timeline {
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
    timeline
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
        let told = serde_json::to_string_pretty(&timeline(&events)).expect("JSON");
        insta::assert_snapshot!(told);
    }
}
