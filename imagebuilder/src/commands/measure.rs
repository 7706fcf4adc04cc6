//! A start of a box in a virtual machine, as it is measured.

use std::time::Duration;

use agent_api::events::{self, Event, Phase, SERVED_STEP, Status};
use agent_api::proof::{MOST_REQUESTS, Request, Start, Step, Usage};
use anyhow::Result;
use foothold_qemu::Accel;

use super::machine::{self, Plan, Session};
use crate::builder::Builder;
use crate::report::Pull;

/// One start, as it was seen.
pub struct Boot {
    /// What executed the machine's instructions.
    pub accel: Accel,
    /// The event that said `ready`.
    pub ready: Event,
    /// What its events add up to.
    pub status: Status,
    /// What its registry was asked for and had.
    pub served: Vec<events::Pull>,
}

/// Starts the machine, and listens to it until it is ready, and for a while longer. The machine runs on.
///
/// # Errors
/// The box does not become ready in time; the machine does not start.
pub fn boot(at: &Builder, plan: &Plan<'_>, timeout: Option<Duration>, listen: Duration) -> Result<(Boot, Session)> {
    let mut session = machine::start(at, plan)?;
    let ready = session.until_ready(&at.report, timeout)?;
    let until = session.vm.since_power_on() + listen;
    let (mut status, mut served) = (Status::default(), Vec::new());
    let mut events = session.vm.events();
    loop {
        at.report.cancel().check()?;
        let left = until.saturating_sub(session.vm.since_power_on());
        match events.next(left.min(Duration::from_millis(200))) {
            Some(line) => {
                if let Some(event) = line.value.and_then(|value| serde_json::from_value(value).ok()) {
                    served.extend(hit(&event));
                    status.apply(&event);
                }
            }
            None if left.is_zero() || session.vm.exited().is_some() => break,
            None => {}
        }
    }
    Ok((Boot { accel: session.accel, ready, status, served }, session))
}

impl Boot {
    /// A number of the event that said `ready`.
    pub fn number(&self, key: &str) -> u64 {
        self.ready.detail.get(key).and_then(serde_json::Value::as_u64).unwrap_or_default()
    }

    /// Whether the box records pulls at all: no list is not an empty one.
    pub fn records_pulls(&self) -> bool {
        self.ready.detail.contains_key("pulls")
    }

    /// What the box tried to pull, as it recorded it.
    pub fn pulls(&self, which: &str) -> Vec<Pull> {
        let why = format!("asked for at the {which} start; it is not in the release");
        let recorded = self.status.pulls.iter();
        recorded.map(|pull| Pull { image: pull.image.clone(), t: pull.t, why: why.clone() }).collect()
    }

    /// As a proof has it.
    pub fn start(&self) -> Start {
        let timings = machine::timings(&self.ready);
        Start {
            node_ready_secs: timings.node_ready,
            ready_secs: timings.ready,
            usage: Usage {
                memory_used_mib: self.number("memoryUsedMib"),
                memory_peak_mib: self.number("memoryPeakMib"),
                data_used_mib: self.number("dataUsedMib"),
                data_peak_mib: self.number("dataPeakMib"),
                data_total_mib: self.number("dataTotalMib"),
            },
            requests: requests(&self.served, &self.status.pulls),
            steps: steps(&self.status, timings.ready),
        }
    }
}

/// An image that the box asked its own registry for, and got.
pub fn hit(event: &Event) -> Option<events::Pull> {
    let told = event.phase == Phase::Content.name() && event.step == SERVED_STEP;
    let image = event.text("image").filter(|_| told)?.to_owned();
    Some(events::Pull { image, t: event.t })
}

/// What the registry was asked for: what it had, and what it had not.
fn requests(served: &[events::Pull], missing: &[events::Pull]) -> Vec<Request> {
    let of = |found: bool| move |pull: &events::Pull| Request { image: pull.image.clone(), t: pull.t, found };
    let mut requests: Vec<Request> = served.iter().map(of(true)).chain(missing.iter().map(of(false))).collect();
    requests.sort_by(|a, b| a.t.total_cmp(&b.t));
    requests.truncate(MOST_REQUESTS);
    requests
}

/// The steps that ended on the way to `ready`.
fn steps(status: &Status, ready: f64) -> Vec<Step> {
    let ended = status.steps.iter().filter_map(|step| Some((step, step.secs?)));
    ended
        .filter(|(step, _)| step.since <= ready)
        .map(|(step, secs)| Step { phase: step.phase.clone(), step: step.step.clone(), start: step.since, secs })
        .collect()
}
