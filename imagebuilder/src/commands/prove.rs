//! `foothold prove`: boots an image with no network at all, twice, and measures.

use std::time::Duration;

use agent_api::events::{self, Event, Status};

use crate::cli::{self, Network};
use crate::error::CommandError;
use crate::pipeline::Builder;
use crate::report::{Outcome, ProofStep, Pull, Report};

use super::common::builder;
use super::machine::{self, Plan};

/// Proves the image.
pub fn run(args: &cli::Prove, report: &Report) -> Result<Outcome, CommandError> {
    let at = builder(&args.sources, report)?;
    let work = at.cache.work_dir()?;
    let overlay = work.path().join("disk.qcow2");
    let plan = Plan {
        image: &args.image,
        attach: args.attach,
        firmware: args.firmware,
        memory: args.memory,
        cpus: args.cpus,
        network: Network::None,
        site: None,
        overlay: Some(&overlay),
    };
    report.info("first boot, no network interface");
    let first = boot(&at, &plan, args.timeout)?;
    report.info("second boot of the same disk, after a power cut");
    let second = boot(&at, &plan, args.timeout)?;
    if !records_pulls(&first.ready) {
        report.info("the box does not say what it tried to pull: its image was made by an earlier version");
    }
    let (one, two) = (machine::timings(&first.ready), machine::timings(&second.ready));
    Ok(Outcome::Proof {
        node_ready_secs: one.node_ready,
        ready_secs: one.ready,
        reboot_ready_secs: two.ready,
        memory_used_mib: first.number("memoryUsedMib"),
        image_bytes: fs_err::metadata(&args.image)?.len(),
        pulls: [(&first, "first"), (&second, "second")].iter().flat_map(|(boot, name)| boot.pulls(name)).collect(),
        steps: first.steps(),
    })
}

struct Boot {
    ready: Event,
    status: Status,
}

fn boot(at: &Builder, plan: &Plan<'_>, timeout: Option<Duration>) -> Result<Boot, CommandError> {
    let mut session = machine::start(at, plan)?;
    let ready = session.until_ready(&at.report, timeout)?;
    let mut status = Status::default();
    let mut events = session.vm.events();
    while let Some(line) = events.next(Duration::ZERO) {
        if let Some(event) = line.value.and_then(|value| serde_json::from_value(value).ok()) {
            status.apply(&event);
        }
    }
    Ok(Boot { ready, status })
}

impl Boot {
    fn number(&self, key: &str) -> u64 {
        self.ready.detail.get(key).and_then(serde_json::Value::as_u64).unwrap_or_default()
    }

    /// What the box tried to pull until it was ready, as it recorded it.
    fn pulls(&self, which: &str) -> Vec<Pull> {
        pulls(&self.ready, which)
    }

    fn steps(&self) -> Vec<ProofStep> {
        let steps = self.status.steps.iter();
        steps
            .map(|step| ProofStep {
                phase: step.phase.clone(),
                step: step.step.clone(),
                start: step.since,
                secs: step.secs.unwrap_or_default(),
            })
            .collect()
    }
}

/// Whether the box records pulls at all: no list is not an empty one.
fn records_pulls(ready: &Event) -> bool {
    ready.detail.contains_key("pulls")
}

fn pulls(ready: &Event, which: &str) -> Vec<Pull> {
    let list = ready.detail.get("pulls").cloned().unwrap_or_default();
    let recorded: Vec<events::Pull> = serde_json::from_value(list).unwrap_or_default();
    let why = format!("asked for at the {which} start; it is not in the release");
    recorded.into_iter().map(|pull| Pull { image: pull.image, t: pull.t, why: why.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use agent_api::events::{Event, Phase, State};
    use serde_json::json;

    use super::{pulls, records_pulls};

    #[test]
    fn pulls_are_read_from_the_ready_event() {
        let ready = Event::of_box(50.0, Phase::Ready, "ready", State::Done);
        assert!(!records_pulls(&ready));
        assert_eq!(pulls(&ready, "first"), []);
        let ready = ready.with("pulls", json!([{"image": "example.org/a:1", "t": 31.5}]));
        assert!(records_pulls(&ready));
        let found = pulls(&ready, "second");
        assert_eq!((found[0].image.as_str(), found[0].t), ("example.org/a:1", 31.5));
        assert!(found[0].why.contains("second start"), "{found:?}");
    }
}
