//! `foothold toolbox`: makes the toolbox and says where it is, for tests and for people who look at its tools.

use std::path::Path;

use serde_json::json;

use crate::cli;
use crate::pipeline;
use crate::report::{CommandError, Outcome, Report};

use super::common::{Job, builder, locked};

/// Makes the toolbox that builds use.
pub fn run(args: &cli::Toolbox, report: &Report) -> Result<Outcome, CommandError> {
    let job = Job::load(Path::new("images/appliance"))?;
    let at = builder(&args.sources, report)?;
    let lock = locked(&at, &job, false)?;
    let (toolbox, _) = pipeline::toolbox(&at, &lock)?;
    let link = at.cache.path("toolbox/current");
    Ok(Outcome::Data { kind: "toolbox", data: json!({ "tree": toolbox.tree(), "current": link }) })
}
