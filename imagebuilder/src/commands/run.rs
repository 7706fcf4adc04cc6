//! `foothold run`: an image in a virtual machine.

use std::time::Duration;

use crate::builder::Builder;
use crate::cli::{self, Until};
use crate::report::{CommandError, Outcome, Report};

use super::common::builder;
use super::machine::{self, Plan};

/// Runs the image until it is ready, or until the user ends it.
pub fn run(args: &cli::Run, report: &Report) -> Result<Outcome, CommandError> {
    let at = builder(&args.sources, report)?;
    let plan = Plan::new(&args.image, args.attach, &args.machine);
    run_plan(&at, &plan, args.until, &args.machine)
}

/// Runs a planned machine; the options say when to give up on it and where its screen goes.
pub fn run_plan(
    at: &Builder,
    plan: &Plan<'_>,
    until: Option<Until>,
    options: &cli::Machine,
) -> Result<Outcome, CommandError> {
    let mut session = machine::start(at, plan)?;
    session.tell_access(&at.report);
    let ready = session.until_ready(&at.report, options.timeout)?;
    if let Some(png) = &options.screenshot {
        session.screenshot(png)?;
    }
    let outcome = session.outcome(at, &ready, None)?;
    if until == Some(Until::Ready) {
        return Ok(outcome);
    }
    at.report.info(&outcome.to_string());
    at.report.info("the box runs until you press Ctrl-C");
    while session.vm.exited().is_none() && !at.report.cancel().is_cancelled() {
        crate::host::command::pause(Duration::from_millis(200));
    }
    Ok(outcome)
}
