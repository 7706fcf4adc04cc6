//! What several commands begin with: the definition, the cache, the lock.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cli::Sources;
use crate::config::{self, Appliance};
use crate::error::HostLacks;
use crate::host::userns;
use crate::lock::Lock;
use crate::lock::fetch::Network;
use crate::pipeline::{self, Builder};
use crate::report::Report;
use crate::store::Cache;

/// A definition to work on.
#[derive(Debug)]
pub struct Job {
    /// The file.
    pub file: PathBuf,
    /// What it says.
    pub appliance: Appliance,
}

impl Job {
    /// Reads a definition; a directory stands for its `appliance.yaml`.
    pub fn load(path: &Path) -> Result<Self> {
        let file = definition_file(path);
        let appliance = config::load(&file)?;
        Ok(Self { file, appliance })
    }

    /// Where its lock lies.
    pub fn lock_path(&self) -> PathBuf {
        Lock::path_for(&self.file)
    }
}

/// The file that a path names: itself, or the `appliance.yaml` in it. A path that does not exist here may exist in
/// the workspace, so that `foothold up` works from any folder.
fn definition_file(path: &Path) -> PathBuf {
    let inside = |path: &Path| if path.is_dir() { path.join("appliance.yaml") } else { path.to_owned() };
    if path.exists() || path.is_absolute() {
        return inside(path);
    }
    match workspace() {
        Ok(workspace) if workspace.join(path).exists() => inside(&workspace.join(path)),
        _ => inside(path),
    }
}

/// The workspace that holds `packages/`, `images/`, `overlay/` and the agent's sources: the one this program was
/// compiled from, or the one around the working directory.
pub fn workspace() -> Result<PathBuf> {
    let is_it = |dir: &Path| dir.join("packages/kubernetes/go.mod").exists() && dir.join("agent/Cargo.toml").exists();
    let compiled = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned);
    let here = std::env::current_dir()?;
    let mut candidates = here.ancestors().map(Path::to_owned).chain(compiled);
    candidates.find(|dir| is_it(dir)).ok_or_else(|| {
        let hint = "run it in a clone of the project: the builder compiles the agent from there".to_owned();
        HostLacks { what: "the sources of the agent".into(), hint }.into()
    })
}

/// The builder with its cache. Where this process is not root it begins anew in a user namespace: nothing may have
/// been done before.
pub fn builder(sources: &Sources, report: &Report) -> Result<Builder> {
    userns::become_root()?;
    crate::host::cancel::install(report.cancel());
    let root = match &sources.cache {
        Some(dir) => dir.clone(),
        None => Cache::default_root()?,
    };
    Ok(Builder {
        cache: Cache::open(&root)?,
        workspace: workspace()?,
        helper: std::env::current_exe().context("finding this program")?,
        network: Network {
            offline: sources.offline,
            mirror: sources.mirror.clone(),
            authfile: sources.authfile.clone(),
        },
        report: report.clone(),
    })
}

/// The job's lock; made when there is none, or when `update` asks for it.
pub fn locked(at: &Builder, job: &Job, update: bool) -> Result<Lock> {
    let path = job.lock_path();
    if !update {
        if let Some(lock) = Lock::read(&path)? {
            pipeline::check_sets(at, &lock).with_context(|| format!("using `{}`", path.display()))?;
            return Ok(lock);
        }
        if at.network.offline {
            anyhow::bail!(
                "there is no lock `{}` and `--offline` was given\nhint: `foothold lock` makes it, with the network",
                path.display()
            );
        }
    }
    let lock = pipeline::resolve(at, &job.appliance)?;
    lock.write(&path)?;
    Ok(lock)
}
