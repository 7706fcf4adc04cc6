//! `foothold fetch`: everything the lock names into the cache; with `--to`, a cache that can be carried elsewhere.

use std::path::Path;

use serde_json::json;

use crate::cli;
use crate::content::{files, images, manifests};
use crate::host::cancel;
use crate::lock::fetch;
use crate::pipeline;
use crate::report::{CommandError, Outcome, Report};

use super::common::{Job, builder, locked};

/// Fetches what the lock names, and makes what only the network can give (toolbox, Go modules).
pub fn run(args: &cli::Fetch, report: &Report) -> Result<Outcome, CommandError> {
    let job = Job::load(&args.definition.file)?;
    let at = builder(&args.sources, report)?;
    let lock = locked(&at, &job, false)?;
    let step = report.step("fetch", "debian");
    let mut bytes = 0;
    for debs in lock.debian.values() {
        bytes += fetch::debs(&at.cache, &at.network, debs, &mut |line| step.note(line))?;
    }
    step.done();
    files::fetch(&at, &job.appliance, &lock)?;
    bytes += manifests::charts::bring(&at, &job.appliance, &lock)?;
    bytes += images::bring(&at, &job.appliance, &lock)?;
    let (toolbox, _) = pipeline::toolbox(&at, &lock)?;
    pipeline::programs(&at, &job.appliance, &lock, &toolbox)?;
    if let Some(to) = &args.to {
        report.step("fetch", "copy").run(|_| copy(&at.cache.path(""), to))?;
    }
    Ok(Outcome::Data {
        kind: "fetch",
        data: json!({ "fetchedBytes": bytes, "to": args.to.as_deref().map(Path::to_string_lossy) }),
    })
}

/// Copies blobs, stages and Go modules; trees and work in progress are made again from them.
fn copy(cache: &Path, to: &Path) -> anyhow::Result<()> {
    for part in ["blobs", "stages"] {
        for entry in walkdir::WalkDir::new(cache.join(part)) {
            cancel::check()?;
            let entry = entry?;
            let target = to.join(entry.path().strip_prefix(cache)?);
            if entry.file_type().is_dir() {
                fs_err::create_dir_all(&target)?;
            } else if !target.exists() {
                let partial = target.with_extension("partial");
                fs_err::copy(entry.path(), &partial)?;
                fs_err::rename(&partial, &target)?;
            }
        }
    }
    Ok(())
}
