//! The box's report and inventory, and a support bundle when somebody asks for it, written to the SITE partition of its own medium.
//!
//! ```text
//! ready, a step that stays failed, POST /api/v1/site/report
//!     --collect (memory)--> pieces --place--> SITE partition --store (mount, write, unmount)--> foothold/
//! ```
//! Nobody waits for it, and the partition is mounted only while it is written. The medium may be pulled at any time: a
//! file that is there is whole, or its predecessor lies beside it ([`store`]).

pub mod place;
pub mod store;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent_api::boot::{BOOT_FACTS, BootFacts};
use agent_api::events::{Event, Phase, State, Status};
use agent_api::report::{Reason, Report};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::place::Place;
use self::store::Piece;
use super::redact::{Redactor, Values};
use super::{bundle, inventory, report, timeline};
use crate::events::{Bus, uptime};
use crate::host::runner::Runner;
use crate::vitals::Vitals;

/// Step of phase `services` under which it is told.
pub const STEP: &str = "site-report";
/// So long after `ready`: until then the machine is busy with what the site wants.
const AFTER_READY: Duration = Duration::from_secs(20);
/// A step that stays failed for so long needs a person, who finds the reason on the stick.
const FAILED_LONG: Duration = Duration::from_secs(300);
/// A failure that only a person can end is written sooner.
const FATAL: Duration = Duration::from_secs(10);
/// The bundle lies here until it is copied.
const BUNDLE: &str = "run/foothold/site-bundle.tar.gz";

/// Writes reports when they are due. Shared with REST, which asks for them.
#[derive(Debug)]
pub struct SiteOut {
    root: PathBuf,
    asked: Notify,
    fingerprint: OnceLock<String>,
}

/// What it tells about.
#[derive(Clone)]
pub struct ReportSources {
    /// The news.
    pub bus: Bus,
    /// Facts of the box.
    pub vitals: Vitals,
    /// Runs what the support bundle asks.
    pub runner: Arc<dyn Runner>,
}

impl SiteOut {
    /// For the box below `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), asked: Notify::new(), fingerprint: OnceLock::new() }
    }

    /// Makes the fingerprint of the web certificate known.
    pub fn set_fingerprint(&self, fingerprint: &str) {
        let _ = self.fingerprint.set(fingerprint.to_owned());
    }

    /// Where a report would be written now.
    pub fn place(&self) -> Result<Place, place::NoPlace> {
        let facts = fs_err::read(self.root.join(BOOT_FACTS.trim_start_matches('/'))).unwrap_or_default();
        let medium = serde_json::from_slice::<BootFacts>(&facts).map(|facts| facts.medium).unwrap_or_default();
        place::find(&self.root, &medium)
    }

    /// Asks for a report as soon as possible.
    pub fn ask(&self) {
        self.asked.notify_one();
    }
}

/// Starts the task that writes.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    site: Arc<SiteOut>,
    sources: ReportSources,
    stop: &CancellationToken,
) {
    let stop = stop.clone();
    tasks.spawn(async move {
        stop.run_until_cancelled(run(&site, &sources)).await;
        Ok(())
    });
}

async fn run(site: &Arc<SiteOut>, sources: &ReportSources) {
    let mut status = sources.bus.status();
    let mut due = Due::default();
    loop {
        let next = due.next(&status.borrow_and_update(), Instant::now());
        let wait = async {
            match next {
                Some((at, reason)) => {
                    sleep_until(at).await;
                    reason
                }
                None => std::future::pending().await,
            }
        };
        let reason = tokio::select! {
            reason = wait => reason,
            () = site.asked.notified() => Reason::Asked,
            changed = status.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        due.written(&reason);
        write_and_tell(site, sources, reason).await;
    }
}

/// When a report is due. Each occasion is written once.
#[derive(Debug, Default)]
struct Due {
    /// When the box was seen ready first.
    ready: Option<Instant>,
    /// Whether that is written.
    ready_written: bool,
    /// `phase/step` that is failed, since when, whether it was written.
    failed: Vec<(String, Instant, bool)>,
}

impl Due {
    /// The next occasion and when it is due.
    fn next(&mut self, status: &Status, now: Instant) -> Option<(Instant, Reason)> {
        if status.ready {
            self.ready.get_or_insert(now);
        }
        let name = |step: &agent_api::events::StepStatus| format!("{}/{}", step.phase, step.step);
        let failed: Vec<(String, bool)> =
            status.failed().filter(|step| step.step != STEP).map(|step| (name(step), is_fatal(step))).collect();
        self.failed.retain(|(known, ..)| failed.iter().any(|(step, _)| step == known));
        for (step, fatal) in failed {
            if !self.failed.iter().any(|(known, ..)| *known == step) {
                self.failed.push((step, now + if fatal { FATAL } else { FAILED_LONG }, false));
            }
        }
        let ready = self.ready.filter(|_| !self.ready_written).map(|since| (since + AFTER_READY, Reason::Ready));
        let failed = self.failed.iter().filter(|(.., written)| !written);
        let failed = failed.map(|(step, at, _)| (*at, Reason::Failed { step: step.clone() }));
        ready.into_iter().chain(failed).min_by_key(|(at, _)| *at)
    }

    fn written(&mut self, reason: &Reason) {
        match reason {
            Reason::Ready => self.ready_written = true,
            Reason::Failed { step } => {
                for known in self.failed.iter_mut().filter(|(known, ..)| known == step) {
                    known.2 = true;
                }
            }
            Reason::Asked => {}
        }
    }
}

fn is_fatal(step: &agent_api::events::StepStatus) -> bool {
    step.detail.get("fatal").and_then(serde_json::Value::as_bool) == Some(true)
}

async fn write_and_tell(site: &Arc<SiteOut>, sources: &ReportSources, reason: Reason) {
    let place = match site.place() {
        Ok(place) => place,
        // A CD, or a disk that the user partitioned: that is no failure.
        Err(error) => {
            log::info!("no report is written: {error}");
            return;
        }
    };
    let bus = &sources.bus;
    bus.started(Phase::Services, STEP);
    let device = place.device.clone();
    let (work, from, why) = (Arc::clone(site), sources.clone(), reason.clone());
    let written = tokio::task::spawn_blocking(move || write(&work, &from, why, &place)).await;
    match written.map_err(anyhow::Error::from).and_then(|result| result) {
        Ok(bytes) => {
            let detail = json!({"device": device, "because": reason.to_string(), "bytes": bytes});
            bus.done_with(Phase::Services, STEP, detail);
        }
        Err(error) => {
            let cause = format!("writing the report to {device}: {error:#}");
            log::warn!("{cause}");
            // A report that is not written does not make the box less ready.
            let event = Event::of_box(uptime(), Phase::Services, STEP, State::Failed).with("cause", cause);
            let event = event.with("workload", true).with("log", "journalctl -u foothold-agent");
            bus.emit(
                event.with("next", "free space on SITE, or try another stick; POST /api/v1/site/report asks again"),
            );
        }
    }
}

/// Collects everything, then writes it. Logs go along only when somebody who has access asked for them: whoever has the
/// stick can read them. Bytes that were written.
fn write(site: &SiteOut, sources: &ReportSources, reason: Reason, place: &Place) -> anyhow::Result<u64> {
    let fingerprint = site.fingerprint.get().map_or("", String::as_str);
    let status = sources.vitals.box_status(&sources.bus, fingerprint);
    let timeline = timeline::timeline(&sources.bus.beginning(), uptime());
    let asked = reason == Reason::Asked;
    let report = Report { written: status.clock.clone(), because: reason, status, timeline };
    let inventory = inventory::collect(&site.root);
    let redactor = Redactor::new(&Values::of_box(&site.root, sources.runner.as_ref()));
    let text = |text: String| redactor.text(&text).into_bytes();
    let mut pieces = vec![
        Piece::bytes("report.json", text(serde_json::to_string_pretty(&report)?)),
        Piece::bytes("report.txt", text(report::text(&report, &inventory))),
        Piece::bytes("inventory.json", serde_json::to_vec_pretty(&inventory)?),
    ];
    let bundle_path = site.root.join(BUNDLE);
    if asked {
        let bundle = bundle::BundleSources {
            status: report.status.clone(),
            timeline: report.timeline.clone(),
            events: sources.bus.since(0).1,
            root: site.root.clone(),
            runner: Arc::clone(&sources.runner),
        };
        bundle::write(&bundle, fs_err::File::create(&bundle_path)?)?;
        pieces.push(Piece::file("support-bundle.tar.gz", &bundle_path));
    }
    let written = place.mounted(&site.root, |folder| store::store(folder, &pieces));
    if asked {
        let _ = fs_err::remove_file(&bundle_path);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_api::events::{Event, Phase, State, Status};
    use agent_api::report::Reason;
    use tokio::time::Instant;

    use super::{AFTER_READY, Due, FAILED_LONG, FATAL};

    fn status(events: &[Event]) -> Status {
        let mut status = Status::default();
        for event in events {
            status.apply(event);
        }
        status
    }

    #[test]
    fn each_occasion_is_due_once() {
        let now = Instant::now();
        let ready = Event::of_box(1.0, Phase::Ready, "ready", State::Done);
        let failed = Event::of_box(2.0, Phase::Runtime, "containerd", State::Failed);
        let recovered = Event::of_box(3.0, Phase::Runtime, "containerd", State::Done);
        let mut due = Due::default();
        assert_eq!(due.next(&status(&[]), now), None);
        assert_eq!(due.next(&status(std::slice::from_ref(&ready)), now), Some((now + AFTER_READY, Reason::Ready)));
        due.written(&Reason::Ready);
        assert_eq!(due.next(&status(std::slice::from_ref(&ready)), now), None);
        let both = status(&[ready.clone(), failed.clone()]);
        let reason = Reason::Failed { step: "runtime/containerd".to_owned() };
        assert_eq!(due.next(&both, now), Some((now + FAILED_LONG, reason.clone())));
        let later = now + Duration::from_secs(60);
        assert_eq!(due.next(&both, later), Some((now + FAILED_LONG, reason.clone())), "since it failed first");
        due.written(&reason);
        assert_eq!(due.next(&both, later), None);
        assert_eq!(due.next(&status(&[ready.clone(), recovered]), later), None);
        assert_eq!(due.next(&both, later), Some((later + FAILED_LONG, reason)), "a new failure");
    }

    #[test]
    fn what_needs_somebody_is_written_sooner_and_its_own_failure_never() {
        let now = Instant::now();
        let fatal = Event::of_box(2.0, Phase::Medium, "check", State::Failed).with("fatal", true);
        let own = Event::of_box(2.0, Phase::Services, super::STEP, State::Failed);
        let mut due = Due::default();
        assert_eq!(due.next(&status(&[own]), now), None);
        let reason = Reason::Failed { step: "medium/check".to_owned() };
        assert_eq!(due.next(&status(&[fatal]), now), Some((now + FATAL, reason)));
    }
}
