//! What every stage of a build may use: cache, sources, network, progress; and the lists of packages that are the
//! builder's own.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::error::HostLacks;
use crate::host::cancel;
use crate::lock::fetch::Network;
use crate::report::Report;
use crate::store::{Cache, Made};

/// What every arrow may use.
pub struct Builder {
    /// The builder's cache.
    pub cache: Cache,
    /// Where `packages/`, `images/`, `overlay/` and the agent's sources are.
    pub workspace: PathBuf,
    /// The `foothold` program, for entering the toolbox.
    pub helper: PathBuf,
    /// How the network may be used.
    pub network: Network,
    /// How the agent is compiled.
    pub agent: AgentProfile,
    /// Where progress goes.
    pub report: Report,
}

/// How the agent is compiled: one of the profiles of the workspace's Cargo.toml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentProfile {
    /// Small, and the same bytes on every machine.
    Site,
    /// For who works on it: soon compiled again after a change. No site gets it.
    Development,
}

impl AgentProfile {
    /// What a development build is, in words.
    pub const DEVELOPMENT: &str =
        "a development build: bigger, slower, not the same bytes on another machine: not for a site";

    /// The profile's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Site => "agent",
            Self::Development => "agent-development",
        }
    }
}

impl Builder {
    /// Where lists of packages are.
    pub fn packages(&self) -> PathBuf {
        self.workspace.join("packages")
    }

    /// Where recipes of container images are.
    pub fn images(&self) -> PathBuf {
        self.workspace.join("images")
    }

    /// Runs a stage as a step of the report.
    pub fn stage(&self, name: &str, work: impl FnOnce(&(dyn Fn(&str) + Sync)) -> Result<(Made, bool)>) -> Result<Made> {
        let step = self.report.step("build", name);
        let result = work(&|line| step.note(line));
        match result {
            Ok((made, true)) => {
                step.skipped("cached");
                Ok(made)
            }
            Ok((made, false)) => {
                step.done();
                Ok(made)
            }
            Err(error) => {
                let given_way = cancel::gives_way().then(|| "stopped: another part of the build has failed".to_owned());
                step.failed(&given_way.unwrap_or_else(|| error.to_string()));
                Err(error)
            }
        }
    }
}

/// Names of a package list: one a line, `#` starts a comment.
pub fn package_names(path: &Path) -> Result<Vec<String>> {
    let text = fs_err::read_to_string(path)?;
    let names = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Package sets of the builder's own, and whether Debian's required packages are part of them.
pub const SETS: [(&str, bool); 3] = [("toolbox", true), ("os", true), ("kernel", false)];

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
