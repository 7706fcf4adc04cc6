//! `foothold up`: the main job. Builds the definition and runs it until it is ready.

use crate::builder::Builder;
use crate::cli;
use crate::config::Format;
use crate::report::{CommandError, Outcome, Report};

use super::build::build;
use super::common::{Job, builder};
use super::machine::Plan;
use super::run::run_plan;

/// Builds and runs.
pub fn run(args: &cli::Up, report: &Report) -> Result<Outcome, CommandError> {
    let mut job = Job::load(&args.file)?;
    let at = Builder { agent: args.agent.profile(), ..builder(&args.sources, report)? };
    // One image is enough to run; a qcow2 where the definition makes one.
    let formats: Vec<Format> = job.appliance.outputs.iter().map(|output| output.format).collect();
    let chosen = formats.iter().find(|format| **format == Format::Qcow2).or_else(|| formats.first());
    job.only(chosen.map(std::slice::from_ref).unwrap_or_default());
    let files = build(&at, &job, &args.out)?;
    let image = files.first().ok_or_else(|| anyhow::anyhow!("the definition makes no image"))?;
    let plan = Plan::new(&image.file, None, &args.machine);
    run_plan(&at, &plan, args.until, &args.machine)
}
