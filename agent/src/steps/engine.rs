//! Running one step: events, ledger, retries with backoff.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agent_api::events::{Event, State};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{Key, Ledger, Missing, Step};
use crate::events::{Bus, uptime};

/// How patient steps are.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Pause before a failed step is tried again; it doubles each time.
    pub first_pause: Duration,
    /// The longest such pause.
    pub longest_pause: Duration,
    /// How long what is missing may stay the same before a wait counts as a failure.
    pub progress: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(15),
            progress: Duration::from_secs(180),
        }
    }
}

/// How a step ended well.
#[derive(Debug)]
pub enum Outcome<T> {
    /// It was done now; the detail goes into its event.
    Done(T, Value),
    /// It was done before and is still true.
    Current(T),
}

/// Done now, nothing to tell.
pub fn done<T>(value: T) -> anyhow::Result<Outcome<T>> {
    Ok(Outcome::Done(value, Value::Null))
}

/// What steps share: the bus for their events, and the ledger.
#[derive(Clone)]
pub struct Steps {
    /// Where their events go.
    pub bus: Bus,
    /// What they remember.
    pub ledger: Arc<Ledger>,
    /// `foothold.stop=<phase>/<step>`: the step before which everything stops, for power-cut tests.
    pub stop_before: Option<String>,
    /// How patient they are.
    pub pace: Pace,
}

impl Steps {
    /// Runs a step until it ends well. A failure becomes an event, and the step is tried again after a pause that grows.
    pub async fn perform<T, F, Fut>(&self, step: &'static Step, mut act: F) -> T
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = anyhow::Result<Outcome<T>>>,
    {
        self.stop_if_asked(step).await;
        let mut pause = self.pace.first_pause;
        let mut told = None;
        self.bus.started(step.phase, step.name);
        loop {
            match act().await {
                Ok(Outcome::Done(value, detail)) => {
                    self.bus.done_with(step.phase, step.name, detail);
                    return value;
                }
                Ok(Outcome::Current(value)) => {
                    self.bus.skipped(step.phase, step.name);
                    return value;
                }
                Err(error) => {
                    let cause = format!("{error:#}");
                    // The same failure again is no new event: the console shows since when it lasts.
                    if told.as_ref() != Some(&cause) {
                        self.fail(step, &cause);
                        told = Some(cause);
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(self.pace.longest_pause);
                }
            }
        }
    }

    /// Asks again and again until nothing is missing; tells what is, when that changes.
    pub async fn wait<F, Fut>(&self, step: &'static Step, every: Duration, mut ask: F)
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<(), Missing>>,
    {
        let mut wait = Wait::new(self, step);
        while let Err(missing) = ask().await {
            wait.tell(missing);
            sleep(every).await;
        }
    }

    /// Tells that a step failed.
    pub fn fail(&self, step: &Step, cause: &str) {
        log::warn!(phase = step.phase.name(), step = step.name; "{cause}");
        self.bus.failed(step.phase, step.name, cause, step.next, step.log);
    }

    /// Tells that something failed which keeps the box from nothing.
    pub fn fail_aside(&self, step: &Step, cause: &str) {
        log::warn!(phase = step.phase.name(), step = step.name; "{cause}");
        let event = Event::of_box(uptime(), step.phase, step.name, State::Failed).with("cause", cause);
        self.bus.emit(event.with("next", step.next).with("log", step.log).with("workload", true));
    }

    /// Whether the ledger has this step with this key.
    pub fn is_current(&self, step: &Step, key: &Key) -> bool {
        self.ledger.is_current(step, key)
    }

    /// Records the step in the ledger.
    pub fn record(&self, step: &Step, key: &Key) -> std::io::Result<()> {
        self.ledger.step_done(step, key)
    }

    async fn stop_if_asked(&self, step: &Step) {
        let asked = self.stop_before.as_deref().is_some_and(|stop| stop == step.path());
        if asked {
            let why = "`foothold.stop` on the kernel command line asks for it";
            self.bus.waiting(step.phase, step.name, "the power to be cut", why);
            std::future::pending::<()>().await;
        }
    }
}

/// A wait that says what it waits for, and turns into a failure when nothing moves.
struct Wait<'a> {
    steps: &'a Steps,
    step: &'static Step,
    last: Option<Missing>,
    since: Instant,
    failed: bool,
}

impl<'a> Wait<'a> {
    fn new(steps: &'a Steps, step: &'static Step) -> Self {
        Self { steps, step, last: None, since: Instant::now(), failed: false }
    }

    fn tell(&mut self, missing: Missing) {
        if self.last.as_ref() != Some(&missing) {
            self.steps.bus.waiting(self.step.phase, self.step.name, &missing.what, &missing.why);
            self.last = Some(missing);
            self.since = Instant::now();
            self.failed = false;
        } else if !self.failed && self.since.elapsed() > self.steps.pace.progress {
            let secs = self.steps.pace.progress.as_secs();
            self.steps.fail(self.step, &format!("still waiting for {} after {secs} s: {}", missing.what, missing.why));
            self.failed = true;
        }
    }
}

/// Runs what would block on a thread for such things.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await?
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::time::Duration;

    use agent_api::events::{PhaseWord, State};

    use super::{Outcome, Pace, Steps, done};
    use crate::events::Bus;
    use crate::steps::{Ledger, Missing, Step};

    /// A phase that the box has not.
    const FIREWALL: Step =
        Step { phase: PhaseWord::new("preflight"), name: "firewall", next: "it is tried again", log: "dmesg" };

    fn steps(dir: &tempfile::TempDir) -> Steps {
        let ledger = Arc::new(Ledger::open(&dir.path().join("ledger.json")).expect("a ledger"));
        let tick = Duration::from_millis(1);
        let pace = Pace { first_pause: tick, longest_pause: tick, progress: tick * 20 };
        Steps { bus: Bus::in_memory(), ledger, stop_before: None, pace }
    }

    fn states(steps: &Steps) -> Vec<State> {
        steps.bus.since(0).1.iter().map(|event| event.state).collect()
    }

    #[tokio::test]
    async fn a_failure_is_told_once_and_tried_again_until_it_works() {
        let dir = tempfile::tempdir().expect("a directory");
        let steps = steps(&dir);
        let left = Cell::new(3);
        steps
            .perform(&FIREWALL, || async {
                left.set(left.get() - 1);
                anyhow::ensure!(left.get() <= 0, "no nft");
                done(())
            })
            .await;
        assert_eq!(states(&steps), [State::Started, State::Failed, State::Done]);
        let failed = &steps.bus.since(0).1[1];
        assert_eq!((failed.phase.as_str(), failed.text("cause")), ("preflight", Some("no nft")));
        assert_eq!(failed.text("next"), Some(FIREWALL.next));
    }

    #[tokio::test]
    async fn what_is_still_true_is_skipped() {
        let dir = tempfile::tempdir().expect("a directory");
        let steps = steps(&dir);
        steps.perform(&FIREWALL, || async { Ok(Outcome::Current(())) }).await;
        assert_eq!(states(&steps), [State::Started, State::Skipped]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_tells_changes_and_fails_when_nothing_moves() {
        let dir = tempfile::tempdir().expect("a directory");
        let steps = steps(&dir);
        let asked = Cell::new(0);
        let ask = || async {
            asked.set(asked.get() + 1);
            match asked.get() {
                1..=3 => Err(Missing::new("pod `a`", "pulling")),
                4..=60 => Err(Missing::new("pod `b`", "starting")),
                _ => Ok(()),
            }
        };
        steps.wait(&FIREWALL, Duration::from_millis(1), ask).await;
        assert_eq!(states(&steps), [State::Waiting, State::Waiting, State::Failed]);
    }
}
