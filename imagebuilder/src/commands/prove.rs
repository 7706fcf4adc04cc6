//! `foothold prove`: boots an image with no network at all, twice, and measures.

use std::time::Duration;

use agent_api::events::{Event, Status};

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
    let (one, two) = (machine::timings(&first.ready), machine::timings(&second.ready));
    Ok(Outcome::Proof {
        node_ready_secs: one.node_ready,
        ready_secs: one.ready,
        reboot_ready_secs: two.ready,
        memory_used_mib: first.number("memoryUsedMib"),
        image_bytes: fs_err::metadata(&args.image)?.len(),
        pulls: first.pulls(),
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

    /// What the box tried to pull, as its cluster recorded it.
    fn pulls(&self) -> Vec<Pull> {
        let list = self.ready.detail.get("pulls").and_then(serde_json::Value::as_array);
        let texts = list.into_iter().flatten().filter_map(serde_json::Value::as_str);
        texts.map(|text| Pull { image: text.to_owned(), why: "the kubelet asked for it".to_owned() }).collect()
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
