//! Records every image that the box's containerd asks for, at the one place that all requests pass.
//!
//! ```text
//! kubelet, crictl --CRI--> containerd --certs.d/_default--> 127.0.0.1:5000 = `registry::front` --> Recorder --> Bus
//! ```
//! The image's containerd configuration sends each request of each pull, whatever its registry, to this box's registry
//! and to no other. So all pulls are seen there: those of images that the box has, and those that do not come from the
//! kubelet. Kubernetes' events need an API server that answers, are
//! thinned out, and know only pods; the journals of kubelet and containerd are text, and thinned out as well. While the
//! agent itself is being restarted (a second) nothing listens: the pull fails, and the kubelet's next try is recorded.
//! So it is while the registry's pod is starting: it is no failure then that an image is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_api::events::{Event, PULL_STEP, Phase, SERVED_STEP, State};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::events::{Bus, uptime};

/// The same image is told again after a minute: the kubelet asks every few seconds at first, then every five minutes.
/// After ten minutes without a request the image counts as no longer wanted.
const PACE: Pace = Pace { tell_again: Duration::from_secs(60), quiet: Duration::from_secs(600) };
/// The most images that are remembered.
const MOST_IMAGES: usize = 256;

/// How patient the recorder is.
#[derive(Clone, Copy, Debug)]
struct Pace {
    tell_again: Duration,
    quiet: Duration,
}

/// A recorder that takes its failure back once no image is asked for any more. Needs a tokio runtime.
pub fn start(tasks: &mut JoinSet<anyhow::Result<()>>, bus: &Bus, stop: &CancellationToken) -> Arc<Recorder> {
    let recorder = Arc::new(Recorder::new(bus.clone(), PACE));
    let (quiet, stop) = (Arc::clone(&recorder), stop.clone());
    tasks.spawn(async move {
        stop.run_until_cancelled(quiet.forget_in_time()).await;
        Ok(())
    });
    recorder
}

/// What was asked for, and when last.
pub struct Recorder {
    bus: Bus,
    pace: Pace,
    asked: Mutex<Asked>,
}

struct Asked {
    told: BTreeMap<String, Instant>,
    served: BTreeSet<String>,
    last: Instant,
    /// Whether the step stands as failed.
    failed: bool,
}

impl Recorder {
    fn new(bus: Bus, pace: Pace) -> Self {
        let failed = bus.now().failed().any(|step| step.phase == Phase::Content.name() && step.step == PULL_STEP);
        Self {
            bus,
            pace,
            asked: Mutex::new(Asked { told: BTreeMap::new(), served: BTreeSet::new(), last: Instant::now(), failed }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that an image was asked for and is there: once for each image.
    pub fn served(&self, image: &str) {
        let mut asked = self.lock();
        if asked.served.len() < MOST_IMAGES && asked.served.insert(image.to_owned()) {
            self.bus.emit(Event::of_box(uptime(), Phase::Content, SERVED_STEP, State::Done).with("image", image));
        }
    }

    /// Records that an image is not there; tells it unless that was done a moment ago.
    pub fn missed(&self, image: &str) {
        let mut asked = self.lock();
        let now = Instant::now();
        asked.last = now;
        asked.failed = true;
        if asked.told.get(image).is_some_and(|told| now.duration_since(*told) < self.pace.tell_again) {
            return;
        }
        if asked.told.len() >= MOST_IMAGES {
            asked.told.retain(|_, told| now.duration_since(*told) < self.pace.tell_again);
        }
        if asked.told.len() >= MOST_IMAGES {
            return;
        }
        asked.told.insert(image.to_owned(), now);
        let event = Event::of_box(uptime(), Phase::Content, PULL_STEP, State::Failed)
            .with("image", image)
            .with("workload", true)
            .with("cause", format!("image `{image}` is not in this release, and the box pulls nothing from outside"))
            .with(
                "next",
                "add it to `content.images` of the definition and build again, or correct the name in the pod",
            )
            .with("log", "journalctl -u kubelet -u containerd");
        self.bus.emit(event);
    }

    /// Takes the failure back once no image is asked for any more.
    async fn forget_in_time(&self) {
        loop {
            sleep(self.pace.quiet / 10).await;
            let mut asked = self.lock();
            if asked.failed && asked.last.elapsed() >= self.pace.quiet {
                asked.failed = false;
                let message = format!("no image was asked for in {} minutes", self.pace.quiet.as_secs() / 60);
                self.bus.done_with(Phase::Content, PULL_STEP, json!({ "message": message }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_api::events::SERVED_STEP;

    use super::{PACE, Pace, Recorder};
    use crate::events::Bus;

    #[test]
    fn an_image_is_told_again_only_after_a_while() {
        let told = |tell_again: Duration| {
            let bus = Bus::in_memory();
            let recorder = Recorder::new(bus.clone(), Pace { tell_again, ..PACE });
            for image in ["example.org/a:1", "example.org/a:1", "example.org/b:1"] {
                recorder.missed(image);
            }
            let images: Vec<String> = bus.now().pulls.iter().map(|pull| pull.image.clone()).collect();
            assert_eq!(images, ["example.org/a:1", "example.org/b:1"]);
            bus.since(0).1.len()
        };
        assert_eq!(told(PACE.tell_again), 2);
        assert_eq!(told(Duration::ZERO), 3);
    }

    #[tokio::test]
    async fn the_failure_is_taken_back_when_nobody_asks_and_the_pull_stays_known() {
        let bus = Bus::in_memory();
        let recorder = Recorder::new(bus.clone(), Pace { quiet: Duration::from_millis(10), ..PACE });
        recorder.missed("example.org/a:1");
        assert_eq!(bus.now().failed().count(), 1);
        let mut news = bus.status();
        news.mark_unchanged();
        tokio::select! {
            () = recorder.forget_in_time() => {}
            changed = news.changed() => changed.expect("the bus is there"),
        }
        assert_eq!(bus.now().failed().count(), 0);
        assert_eq!(bus.now().pulls.len(), 1);
    }

    #[test]
    fn an_image_that_is_there_is_told_once_and_is_no_failure() {
        let bus = Bus::in_memory();
        let recorder = Recorder::new(bus.clone(), PACE);
        recorder.served("example.org/a:1");
        recorder.served("example.org/a:1");
        let (_, events) = bus.since(0);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((events[0].step.as_str(), events[0].text("image")), (SERVED_STEP, Some("example.org/a:1")));
        assert_eq!((bus.now().failed().count(), bus.now().pulls.len()), (0, 0));
    }
}
