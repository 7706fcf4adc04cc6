//! `foothold export`: the services of a definition's box for a cluster that someone else set up with kubeadm.

use std::time::Instant;

use anyhow::Result;

use crate::builder::Builder;
use crate::cli;
use crate::export::{self, Folder, Helm, Input};
use crate::kubernetes::modules::{Build, HELM};
use crate::lock::Lock;
use crate::pipeline;
use crate::report::{CommandError, Outcome, Report};
use crate::store::Made;
use crate::toolbox::Toolbox;

use super::common::{Job, builder, locked};

/// Builds the release of the definition, and writes its parts.
pub fn run(args: &cli::Export, report: &Report) -> Result<Outcome, CommandError> {
    let started = Instant::now();
    let job = Job::load(&args.definition.file)?;
    let at = builder(&args.sources, report)?;
    let mut folder = Folder::new(&args.to)?;
    let lock = locked(&at, &job, false)?;
    let built = pipeline::release(&at, &job.appliance, &lock)?;
    let all = export::printed(&at.cache, &built.programs, &built.release)?;
    let parts = export::choose(all, &args.part, &job.file)?;
    let (toolbox, _) = pipeline::toolbox(&at, &lock)?;
    let helm = Helm::new(&at.cache, &toolbox, &with_helm(&at, &lock, &toolbox, &built.programs)?)?;
    let input = Input {
        cache: &at.cache,
        release: &built.release,
        programs: &built.programs,
        exports: &built.exports,
        parts: &parts,
        helm: &helm,
    };
    let step = report.step("export", "parts");
    let images = step.run(|step| export::write(&input, &mut folder, &|line| step.note(line)))?;
    let files = folder.files().len();
    let bytes = folder.finish()?;
    Ok(Outcome::Exported {
        folder: args.to.clone(),
        of: parts.names().map(str::to_owned).collect(),
        files,
        images,
        bytes,
        missing: Vec::new(),
        secs: started.elapsed().as_secs_f64(),
    })
}

/// The programs, with Helm: a release without charts and clusters has none of its own.
fn with_helm(at: &Builder, lock: &Lock, toolbox: &Toolbox, programs: &Made) -> Result<Made> {
    if programs.files.contains_key("helm") {
        return Ok(programs.clone());
    }
    let packages = at.packages();
    let own = HELM.digest(&packages)?;
    at.stage(HELM.name, |say| {
        let locked = lock.modules.get(HELM.name).unwrap_or(&own);
        let (cache, offline) = (&at.cache, at.network.offline);
        HELM.build(&Build { cache, toolbox, packages: &packages, locked, offline, waiting: say })
    })
}
