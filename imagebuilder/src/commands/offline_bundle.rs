//! `foothold offline-bundle`: what kubespray downloads, in its offline layout, out of what the definition carries.

use std::time::Instant;

use crate::cli;
use crate::content::clusters;
use crate::export::Folder;
use crate::kubespray::{self, Addresses, MISSING};
use crate::pipeline;
use crate::report::{CommandError, Outcome, Report};

use super::common::{Job, builder, locked};

/// Builds what the definition carries, and writes it.
pub fn run(args: &cli::OfflineBundle, report: &Report) -> Result<Outcome, CommandError> {
    let started = Instant::now();
    let job = Job::load(&args.definition.file)?;
    let at = builder(&args.sources, report)?;
    let mut folder = Folder::new(&args.to)?;
    let lock = locked(&at, &job, false)?;
    let built = pipeline::release(&at, &job.appliance, &lock)?;
    let packages = at.packages();
    let named: Vec<String> = lock.images.keys().cloned().collect();
    let plan = kubespray::plan(&built.release, &built.programs, &packages, &named)?;
    let flannel = clusters::flannel(&at.images(), &packages)?;
    let flannel = flannel.replace(clusters::POD_CIDR, &built.release.kubernetes.pod_cidr);
    let addresses = Addresses { files_repo: args.files_repo.clone(), registry_host: args.registry_host.clone() };
    report
        .step("export", "kubespray")
        .run(|_| kubespray::write(&mut folder, &at.cache, &built.release, &plan, &addresses, &flannel))?;
    let files = folder.files().len();
    let bytes = folder.finish()?;
    let needed = plan.needed().map(|missing| format!("{} (`{}`): {}", missing.name, missing.address, missing.why));
    let mut missing: Vec<String> = needed.collect();
    missing.extend((!plan.missing.is_empty()).then(|| format!("all of it, and what switches it off: `{MISSING}`")));
    let versions =
        plan.versions.iter().map(|(name, version)| format!("{} {version}", name.trim_end_matches("_version")));
    Ok(Outcome::Exported {
        folder: args.to.clone(),
        of: versions.collect(),
        files,
        images: plan.images.iter().map(|image| image.reference.clone()).collect(),
        bytes,
        missing,
        secs: started.elapsed().as_secs_f64(),
    })
}
