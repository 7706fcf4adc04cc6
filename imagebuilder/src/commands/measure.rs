//! A start of a box in a virtual machine, as it is measured.

use std::fmt;
use std::time::{Duration, Instant};

use agent_api::events::{self, Event, Phase, SERVED_STEP, Status};
use agent_api::proof::{MOST_REQUESTS, Request, Start, Step, Usage};
use anyhow::{Context as _, Result};
use foothold_qemu::{Accel, Vm};
use procfs::process::Process;
use procfs::{Current as _, CurrentSI as _};

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
    /// What the processors of this host did until then.
    pub load: Load,
}

/// Whose the processors of this host were, from power-on to `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Seconds of a processor that the machine used.
    pub machine_secs: f64,
    /// Seconds of a processor that other programs used.
    pub others_secs: f64,
    /// Percent of the time in which something waited for a processor (pressure stall information); a kernel may not tell it.
    pub pressure_percent: Option<f64>,
}

impl Load {
    fn between(before: &Host, after: &Host, machine_secs: f64) -> Self {
        let waited = before.waited.zip(after.waited).map(|(before, after)| (after - before) / 1e6);
        let secs = after.at.duration_since(before.at).as_secs_f64();
        Self {
            machine_secs,
            others_secs: (after.busy_secs - before.busy_secs - machine_secs).max(0.0),
            pressure_percent: waited.map(|waited| waited / secs * 100.0),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine_secs, others_secs, pressure_percent } = self;
        write!(
            f,
            "{machine_secs:.1} s of the processors for the box, {others_secs:.1} s for other programs of this host"
        )?;
        pressure_percent.map_or(Ok(()), |percent| write!(f, "; something waited for one {percent:.0} % of the time"))
    }
}

/// Starts the machine, and listens to it until it is ready, and for a while longer. The machine runs on.
///
/// # Errors
/// The box does not become ready in time; the machine does not start.
pub fn boot(at: &Builder, plan: &Plan<'_>, timeout: Option<Duration>, listen: Duration) -> Result<(Boot, Session)> {
    let before = Host::now()?;
    let mut session = machine::start(at, plan)?;
    let ready = session.until_ready(&at.report, timeout)?;
    let load = Load::between(&before, &Host::now()?, processor_secs(&session.vm)?);
    at.report.info(&format!("ready after {:.1} s; {load}", machine::timings(&ready).ready));
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
    Ok((Boot { accel: session.accel, ready, status, served, load }, session))
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

/// Seconds of a processor that the machine has used.
pub fn processor_secs(vm: &Vm) -> Result<f64> {
    let stat = Process::new(i32::try_from(vm.pid())?)?.stat()?;
    Ok(ticks(stat.utime + stat.stime))
}

#[expect(clippy::cast_precision_loss, reason = "ticks of years")]
fn ticks(ticks: u64) -> f64 {
    ticks as f64 / procfs::ticks_per_second() as f64
}

/// What the host has done until now.
struct Host {
    at: Instant,
    /// Seconds in which its processors worked.
    busy_secs: f64,
    /// Microseconds in which something waited for a processor; a kernel may not count them.
    waited: Option<f64>,
}

impl Host {
    #[expect(clippy::cast_precision_loss, reason = "microseconds of years")]
    fn now() -> Result<Self> {
        let total = procfs::KernelStats::current().context("reading `/proc/stat`")?.total;
        let more = [total.irq, total.softirq, total.steal].map(Option::unwrap_or_default);
        let busy = total.user + total.nice + total.system + more.iter().sum::<u64>();
        let waited = procfs::CpuPressure::current().ok().map(|pressure| pressure.some.total as f64);
        Ok(Self { at: Instant::now(), busy_secs: ticks(busy), waited })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Host, Load};

    #[test]
    fn a_neighbour_is_told_from_the_box() {
        let at = Instant::now();
        let before = Host { at, busy_secs: 100.0, waited: Some(0.0) };
        let after = Host { at: at + Duration::from_secs(100), busy_secs: 260.0, waited: Some(25e6) };
        let load = Load::between(&before, &after, 130.0);
        assert!((load.others_secs - 30.0).abs() < 1e-9 && load.pressure_percent == Some(25.0), "{load:?}");
        let told = "130.0 s of the processors for the box, 30.0 s for other programs of this host; something waited for one \
                    25 % of the time";
        assert_eq!(load.to_string(), told);
        let unknown = Load::between(&Host { waited: None, ..before }, &after, 130.0);
        assert_eq!(unknown.pressure_percent, None);
    }

    #[test]
    fn this_host_tells_what_it_does() {
        let before = Host::now().expect("figures");
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(Host::now().expect("figures").busy_secs > before.busy_secs);
    }
}
