//! What several commands begin with: the definition, the cache, the lock.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::builder::{AgentProfile, Builder, workspace};
use crate::cli::Sources;
use crate::config::{self, Appliance};
use crate::error::WrongUsage;
use crate::host::{environment, userns};
use crate::lock::Lock;
use crate::lock::fetch::Network;
use crate::lock::known::Known;
use crate::pipeline;
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

    /// Refuses to sign a development build of the agent with the definition's own key, which boxes of a site trust.
    pub fn check_agent(&self, agent: AgentProfile) -> Result<(), WrongUsage> {
        let Some(key) = self.appliance.sign.as_ref().filter(|_| agent == AgentProfile::Development) else {
            return Ok(());
        };
        Err(WrongUsage {
            message: format!(
                "`--development` makes no release for a site, and `sign.key` of `{}` names a key for releases: {key}",
                self.file.display()
            ),
            hint: "leave `sign` out of the definition to sign with your development key, or leave `--development` out"
                .into(),
        })
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

/// The builder with its cache. Where this process is not root it begins anew in a user namespace: nothing may have
/// been done before.
pub fn builder(sources: &Sources, report: &Report) -> Result<Builder> {
    userns::become_root()?;
    environment::settle();
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
        agent: AgentProfile::Site,
        report: report.clone(),
    })
}

/// The job's lock; made when there is none, or when `update` asks for it.
pub fn locked(at: &Builder, job: &Job, update: bool) -> Result<Lock> {
    let path = job.lock_path();
    if !update {
        if let Some(lock) = Lock::read(&path)? {
            pipeline::check(at, &job.appliance, &lock).with_context(|| format!("using `{}`", path.display()))?;
            return Ok(lock);
        }
        if at.network.offline {
            anyhow::bail!(
                "there is no lock `{}` and `--offline` was given\nhint: `foothold lock` makes it, with the network",
                path.display()
            );
        }
    }
    if let Ok(Some(before)) = Lock::read(&path) {
        // It may be of another host: what comes instead should not be older.
        let mut known = Known::read(&at.cache)?;
        known.learn(&before);
        known.write(&at.cache)?;
    }
    let lock = pipeline::resolve(at, &job.appliance)?;
    lock.write(&path)?;
    Ok(lock)
}
