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
use procfs::{Current as _, CurrentSI as _, process::Process};
use serde_json::Value;

use super::common::builder;
use super::machine::{self, Plan, Session};
use super::measure::{Boot, boot};
use super::record;
use crate::builder::Builder;
use crate::cli::{self, Network};
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
            let name = image.file.display().to_string();
            let work = at.cache.work_dir()?;
            let overlay = work.path().join("disk.qcow2");
            let plan = Plan {
                image: &image.file,
                attach: None,
                firmware: args.firmware,
                memory: args.memory,
                cpus: args.cpus,
                network: Network::None,
                nics: &[],
                bridge: None,
                clock: None,
                site: None,
                overlay: Some(&overlay),
            };
            for (what, idle) in [("first boot", args.idle), ("boot after a power cut", None)] {
                report.info(&format!("round {round} of {}: {what} of `{name}`", args.rounds));
                let (figures, with) = start(&at, &plan, args.timeout, idle)?;
                report.info(&format!(
                    "ready after {:.1} s; other programs had {:.1} s of the processors meanwhile",
                    figures.ready_secs, figures.others_secs
                ));
                accel = with;
                if what == "first boot" { &mut image.first_boot } else { &mut image.reboot }.push(figures);
            }
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
    let before = Host::now()?;
    let (seen, session) = boot(at, plan, timeout, Duration::ZERO)?;
    let processor_secs = processor_secs(&session.vm)?;
    let mut figures = figures(&seen, processor_secs, &before, &Host::now()?);
    if let Some(idle) = idle {
        figures.idle = Some(look_at_idle(at, &session, idle)?);
    }
    Ok((figures, seen.accel))
}

fn figures(seen: &Boot, processor_secs: f64, before: &Host, after: &Host) -> Figures {
    let timings = machine::timings(&seen.ready);
    let waited = before.waited.zip(after.waited).map(|(before, after)| (after - before) / 1e6);
    let secs = after.at.duration_since(before.at).as_secs_f64();
    Figures {
        api_secs: ended(&seen.status, Phase::ControlPlane, "api-server"),
        node_ready_secs: timings.node_ready,
        roles_secs: ended(&seen.status, Phase::ControlPlane, "roles"),
        pods_secs: ended(&seen.status, Phase::Ready, "pods"),
        ready_secs: timings.ready,
        processor_secs,
        memory_used_mib: seen.number("memoryUsedMib"),
        others_secs: (after.busy_secs - before.busy_secs - processor_secs).max(0.0),
        pressure_percent: waited.map(|waited| waited / secs * 100.0),
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

/// Seconds of a processor that the machine has used.
fn processor_secs(vm: &Vm) -> Result<f64> {
    let stat = Process::new(i32::try_from(vm.pid())?)?.stat()?;
    Ok(ticks(stat.utime + stat.stime))
}

#[expect(clippy::cast_precision_loss, reason = "ticks of years")]
fn ticks(ticks: u64) -> f64 {
    ticks as f64 / procfs::ticks_per_second() as f64
}

/// Bytes that the machine has written to its disks (QEMU's `query-blockstats`).
fn written(vm: &Vm) -> Result<u64> {
    let answer = vm.qmp("query-blockstats", None)?;
    let disks = answer.as_array().context("QEMU tells no disks")?;
    Ok(disks.iter().filter_map(|disk| disk.pointer("/stats/wr_bytes").and_then(Value::as_u64)).sum())
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

    use agent_api::events::{Event, Phase, State, Status};
    use foothold_qemu::Accel;
    use serde_json::json;

    use super::{Boot, Host, figures};

    #[test]
    fn figures_are_of_the_start_and_not_of_the_neighbours() {
        let mut status = Status::default();
        for (t, state) in [(20.0, State::Started), (45.5, State::Done)] {
            status.apply(&Event::of_box(t, Phase::ControlPlane, "api-server", state));
        }
        let ready = Event::of_box(84.0, Phase::Ready, "ready", State::Done)
            .with("timings", json!({"nodeReady": 49.0, "ready": 84.0}))
            .with("memoryUsedMib", 941);
        let seen = Boot { accel: Accel::Tcg, ready, status, served: Vec::new() };
        let at = Instant::now();
        let before = Host { at, busy_secs: 100.0, waited: Some(0.0) };
        let after = Host { at: at + Duration::from_secs(100), busy_secs: 260.0, waited: Some(25e6) };
        let found = figures(&seen, 130.0, &before, &after);
        assert_eq!((found.api_secs, found.node_ready_secs, found.ready_secs), (Some(45.5), 49.0, 84.0));
        assert_eq!((found.roles_secs, found.memory_used_mib), (None, 941), "what was not told is absent");
        assert!((found.others_secs - 30.0).abs() < 1e-9 && found.pressure_percent == Some(25.0), "{found:?}");
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
