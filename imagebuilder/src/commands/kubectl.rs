//! `foothold kubectl`: the kubectl that an image carries, against the box that runs it or a cluster of its servers.

use crate::cli;
use crate::report::{CommandError, Outcome};
use crate::running::{self, Kubectl};
use crate::store::Cache;

/// Becomes kubectl: its output, its input and its exit code are those of this command.
pub fn run(args: &cli::Kubectl) -> Result<Outcome, CommandError> {
    let cache = match &args.cache {
        Some(dir) => dir.clone(),
        None => Cache::default_root()?,
    };
    let running = running::choose(running::list(&cache)?, args.appliance.as_deref())?;
    let kubectl = match &args.cluster {
        None => Kubectl::of_box(&running),
        Some(cluster) => Kubectl::of_cluster(&running, cluster)?,
    };
    Err(anyhow::Error::new(kubectl.run(&args.args).become_it()).into())
}
