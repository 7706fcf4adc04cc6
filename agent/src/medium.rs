//! What the guard finds, told on the bus: how far it has read, and each damaged place.
//!
//! ```text
//! guard (its own process) -> /run/foothold/medium-*.json -> this module -> Bus -> console, REST, host
//! ```
//! The guard must go on when no other program can be started any more, so it only writes files and needs no other process.

use std::collections::BTreeSet;
use std::time::Duration;

use agent_api::boot::{CHECK_STEP, MediumFailure};
use agent_api::events::{Event, Phase, State};
use agent_api::rest::Medium;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::events::{Bus, uptime};
use crate::vitals::Vitals;

/// How often the guard's files are looked at. They are short and in memory.
const LOOK: Duration = Duration::from_secs(1);
/// Progress is told in steps of so many percent.
const PERCENT_STEP: u8 = 25;

/// Follows the guard until told to stop. Needs a tokio runtime.
pub fn start(tasks: &mut JoinSet<anyhow::Result<()>>, vitals: Vitals, bus: Bus, stop: &CancellationToken) {
    let stop = stop.clone();
    tasks.spawn(async move {
        let mut follower = Follower::new(&bus);
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let follow = async {
            loop {
                looks.tick().await;
                for event in follower.news(&vitals.medium(), uptime()) {
                    tell(&bus, event);
                }
            }
        };
        stop.run_until_cancelled(follow).await;
        Ok(())
    });
}

/// `done` carries how long it took, as every step's does.
fn tell(bus: &Bus, event: Event) {
    match event.state {
        State::Done => bus.done_with(Phase::Medium, CHECK_STEP, event.detail.into()),
        _ => bus.emit(event),
    }
}

/// What has been told so far.
#[derive(Debug, Default)]
struct Follower {
    started: bool,
    ended: bool,
    percent: u8,
    failures: BTreeSet<(String, u64)>,
}

impl Follower {
    /// Goes on where an agent that ran before this one has stopped.
    fn new(bus: &Bus) -> Self {
        let mut follower = Self::default();
        for event in bus.since(0).1 {
            follower.failures.extend(MediumFailure::told_by(&event));
            if event.phase == Phase::Medium.name() && event.step == CHECK_STEP {
                follower.started = true;
                follower.ended |= event.state == State::Done;
            }
        }
        follower
    }

    /// The events that follow from what the guard says now.
    fn news(&mut self, medium: &Medium, t: f64) -> Vec<Event> {
        let event = |state| Event::of_box(t, Phase::Medium, CHECK_STEP, state);
        let mut news = Vec::new();
        if !self.started && (medium.checked_percent.is_some() || !medium.failures.is_empty()) {
            self.started = true;
            news.push(event(State::Started));
        }
        let (mut damaged, mut files) = (false, 0);
        for failure in &medium.failures {
            damaged |= !failure.is_in_content();
            files += usize::from(failure.is_in_content());
            if self.failures.insert((failure.what.clone(), failure.block)) {
                news.push(failure.event(t));
            }
        }
        let percent = medium.checked_percent.unwrap_or(0);
        // The step stays failed, and what is wrong stays on the screen.
        if damaged || self.ended {
            return news;
        }
        if percent == 100 {
            self.ended = true;
            let message = match files {
                0 => "every file is as it was signed".to_owned(),
                some => format!("every layer is as it was signed; damaged files: {some}"),
            };
            news.push(event(State::Done).with("message", message));
        } else if percent >= self.percent + PERCENT_STEP {
            self.percent = percent / PERCENT_STEP * PERCENT_STEP;
            news.push(event(State::Progress).with("percent", percent));
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use agent_api::boot::MediumFailure;
    use agent_api::events::State;
    use agent_api::rest::Medium;

    use super::{Follower, tell};
    use crate::events::Bus;

    fn good(percent: u8) -> Medium {
        Medium { checked_percent: Some(percent), failures: Vec::new() }
    }

    fn damaged(percent: u8, blocks: &[u64]) -> Medium {
        let failure = |block: &u64| MediumFailure {
            what: "os".to_owned(),
            device: "sda3".to_owned(),
            block: *block,
            message: format!("layer `os` on sda3 is damaged: block {block} is not what was signed"),
        };
        Medium { checked_percent: Some(percent), failures: blocks.iter().map(failure).collect() }
    }

    fn states(follower: &mut Follower, medium: &Medium) -> Vec<State> {
        follower.news(medium, 9.0).iter().map(|event| event.state).collect()
    }

    #[test]
    fn progress_is_sparse_and_a_good_medium_ends_with_done() {
        let mut follower = Follower::default();
        assert_eq!(states(&mut follower, &Medium::default()), []);
        assert_eq!(states(&mut follower, &good(0)), [State::Started]);
        assert_eq!(states(&mut follower, &good(24)), []);
        assert_eq!(states(&mut follower, &good(40)), [State::Progress]);
        assert_eq!(states(&mut follower, &good(49)), []);
        assert_eq!(states(&mut follower, &good(50)), [State::Progress]);
        assert_eq!(states(&mut follower, &good(100)), [State::Done]);
        assert_eq!(states(&mut follower, &good(100)), []);
        // A device may fail at any later time.
        assert_eq!(states(&mut follower, &damaged(100, &[7])), [State::Failed]);
    }

    #[test]
    fn each_damaged_place_is_told_once_and_never_taken_back() {
        let mut follower = Follower::default();
        assert_eq!(states(&mut follower, &damaged(30, &[7])), [State::Started, State::Failed]);
        assert_eq!(states(&mut follower, &damaged(60, &[7, 9])), [State::Failed]);
        assert_eq!(states(&mut follower, &damaged(100, &[7, 9])), []);
    }

    #[test]
    fn damaged_content_is_told_and_the_rest_is_still_read_to_its_end() {
        let mut follower = Follower::default();
        let damaged = |percent| {
            let mut medium = damaged(percent, &[0]);
            medium.failures[0].what = "blob sha256:ab".to_owned();
            medium
        };
        assert_eq!(states(&mut follower, &damaged(80)), [State::Started, State::Failed, State::Progress]);
        let news = follower.news(&damaged(100), 9.0);
        assert_eq!(news[0].text("message"), Some("every layer is as it was signed; damaged files: 1"));
    }

    #[test]
    fn a_restarted_agent_tells_nothing_twice() {
        let bus = Bus::in_memory();
        for event in Follower::new(&bus).news(&damaged(30, &[7]), 9.0) {
            tell(&bus, event);
        }
        assert!(!bus.now().ready);
        let mut again = Follower::new(&bus);
        assert_eq!(states(&mut again, &damaged(30, &[7])), []);
        assert_eq!(states(&mut again, &damaged(30, &[7, 8])), [State::Failed]);
    }
}
