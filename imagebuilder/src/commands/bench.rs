//! `foothold bench`: boots images in turn, and says how long they take, what they use, and what else the host did.
//!
//! ```text
//! round 1: image A ─▶ first boot ─▶ power cut ─▶ second boot;  image B ─▶ ...;  round 2: image A ─▶ ...
//! ```
//! Images take turns, so that a host that becomes slower in between is slower for all of them. Each start says how much of
//! the processors other programs had meanwhile: figures beside such a neighbour are no figures of the image.

use std::path::Path;
use std::time::{Duration, Instant};

use agent_api::events::{Phase, Status};
use anyhow::{Context as _, Result};
use foothold_qemu::{Accel, Vm};
use serde_json::Value;

use super::common::builder;
use super::machine::{self, Plan, Session};
use super::measure::{Boot, boot, processor_secs};
use super::record;
use crate::builder::Builder;
use crate::cli;
use crate::error::WrongUsage;
use crate::report::{BenchHost, BenchImage, CommandError, Figures, Idle, Outcome, Report};

/// How long a box that is ready is left alone before it counts as idle: services that nothing waits for come up.
const SETTLED: Duration = Duration::from_secs(60);

/// Measures the images.
pub fn run(args: &cli::Bench, report: &Report) -> Result<Outcome, CommandError> {
    if args.record.is_some() && args.images.len() > 1 {
        let (message, hint) = ("`--record` takes the figures of one image", "name one image, or leave `--record` out");
        return Err(WrongUsage { message: message.into(), hint: hint.into() }.into());
    }
    let at = builder(&args.sources, report)?;
    let mut images = args.images.iter().map(|file| image(file)).collect::<Result<Vec<_>>>()?;
    let mut accel = Accel::Tcg;
    for round in 1..=args.rounds {
        for image in &mut images {
            let work = at.cache.work_dir()?;
            let overlay = work.path().join("disk.qcow2");
            let plan = Plan::alone(&image.file, None, args.machine, &overlay);
            let say = |what: &str| {
                report.info(&format!("round {round} of {}: {what} of `{}`", args.rounds, image.file.display()));
            };
            say("first boot");
            let (first, with) = start(&at, &plan, args.machine.timeout, args.idle)?;
            say("boot after a power cut");
            let (second, _) = start(&at, &plan, args.machine.timeout, None)?;
            accel = with;
            image.first_boot.push(first);
            image.reboot.push(second);
        }
    }
    if let (Some(folder), Some(image)) = (&args.record, images.first()) {
        record::add(folder, image)?;
    }
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let host = BenchHost { accel: accel.to_string(), cpus };
    Ok(Outcome::Bench { host, images })
}

/// An image that was not booted yet: its sizes.
fn image(file: &Path) -> Result<BenchImage> {
    let release = machine::release_of(file)
        .with_context(|| format!("`{}` has no release\nhint: `foothold verify` says what is wrong", file.display()))?;
    let layers = release.layers.iter().map(|layer| (layer.name.clone(), layer.size)).collect();
    let mut others: Vec<_> =
        release.images.iter().flat_map(|image| &image.blobs).map(|blob| (&blob.digest, blob.size)).collect();
    let files: Vec<_> = release.content.iter().filter_map(agent_api::release::ContentFile::blob).collect();
    others.extend(files.iter().map(|blob| (&blob.digest, blob.size)));
    others.sort_unstable();
    others.dedup();
    Ok(BenchImage {
        file: file.to_owned(),
        bytes: fs_err::metadata(file)?.len(),
        layers,
        blob_bytes: others.iter().map(|(_, size)| size).sum(),
        first_boot: Vec::new(),
        reboot: Vec::new(),
    })
}

/// One start. The machine ends with it, as by a power cut.
fn start(at: &Builder, plan: &Plan<'_>, timeout: Option<Duration>, idle: Option<Duration>) -> Result<(Figures, Accel)> {
    let (seen, session) = boot(at, plan, timeout, Duration::ZERO)?;
    let mut figures = figures(&seen);
    if let Some(idle) = idle {
        figures.idle = Some(look_at_idle(at, &session, idle)?);
    }
    Ok((figures, seen.accel))
}

fn figures(seen: &Boot) -> Figures {
    let timings = machine::timings(&seen.ready);
    Figures {
        api_secs: ended(&seen.status, Phase::ControlPlane, "api-server"),
        node_ready_secs: timings.node_ready,
        roles_secs: ended(&seen.status, Phase::ControlPlane, "roles"),
        pods_secs: ended(&seen.status, Phase::Ready, "pods"),
        ready_secs: timings.ready,
        processor_secs: seen.load.machine_secs,
        memory_used_mib: seen.number("memoryUsedMib"),
        others_secs: seen.load.others_secs,
        pressure_percent: seen.load.pressure_percent,
        idle: None,
    }
}

/// When a step ended, seconds since power-on.
fn ended(status: &Status, phase: Phase, step: &str) -> Option<f64> {
    let found = status.steps.iter().find(|one| one.phase == phase.name() && one.step == step)?;
    Some(found.since + found.secs?)
}

/// Looks at a box that is ready, after it has settled.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of hours"
)]
fn look_at_idle(at: &Builder, session: &Session, long: Duration) -> Result<Idle> {
    wait(at, SETTLED)?;
    let (processor, written) = (processor_secs(&session.vm)?, written(&session.vm)?);
    let begun = Instant::now();
    wait(at, long)?;
    let secs = begun.elapsed().as_secs_f64();
    let wrote = self::written(&session.vm)?.saturating_sub(written) as f64;
    Ok(Idle {
        processor_percent: (processor_secs(&session.vm)? - processor) / secs * 100.0,
        written_bytes_per_hour: (wrote / secs * 3600.0) as u64,
    })
}

fn wait(at: &Builder, long: Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < long {
        at.report.cancel().check()?;
        crate::host::command::pause(Duration::from_millis(200));
    }
    Ok(())
}

/// Bytes that the machine has written to its disks (QEMU's `query-blockstats`).
fn written(vm: &Vm) -> Result<u64> {
    let answer = vm.qmp("query-blockstats", None)?;
    let disks = answer.as_array().context("QEMU tells no disks")?;
    Ok(disks.iter().filter_map(|disk| disk.pointer("/stats/wr_bytes").and_then(Value::as_u64)).sum())
}

#[cfg(test)]
mod tests {
    use agent_api::events::{Event, Phase, State, Status};
    use foothold_qemu::Accel;
    use serde_json::json;

    use super::{Boot, figures};
    use crate::commands::measure::Load;

    #[test]
    fn what_a_box_did_not_tell_is_absent() {
        let mut status = Status::default();
        for (t, state) in [(20.0, State::Started), (45.5, State::Done)] {
            status.apply(&Event::of_box(t, Phase::ControlPlane, "api-server", state));
        }
        let ready = Event::of_box(84.0, Phase::Ready, "ready", State::Done)
            .with("timings", json!({"nodeReady": 49.0, "ready": 84.0}))
            .with("memoryUsedMib", 941);
        let load = Load { machine_secs: 130.0, others_secs: 30.0, pressure_percent: Some(25.0) };
        let found = figures(&Boot { accel: Accel::Tcg, ready, status, served: Vec::new(), load });
        assert_eq!((found.api_secs, found.node_ready_secs, found.ready_secs), (Some(45.5), 49.0, 84.0));
        assert_eq!((found.roles_secs, found.pods_secs, found.memory_used_mib), (None, None, 941));
        assert_eq!((found.processor_secs, found.others_secs, found.pressure_percent), (130.0, 30.0, Some(25.0)));
    }
}
