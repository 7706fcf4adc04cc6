//! `foothold-agent release`: what the pod of a release runs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use super::{GRACE, ReleasePlan, run};
use crate::host::System;
use crate::terminal::show;

/// What Helm does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Deed {
    /// Install or upgrade it.
    Apply,
    /// Uninstall it.
    Remove,
}

impl Deed {
    /// As the command line has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Remove => "remove",
        }
    }
}

/// Do something with a release on a cluster.
#[derive(Debug, Args)]
pub struct Release {
    /// Install or uninstall.
    #[arg(value_enum)]
    deed: Deed,
    /// Folder with `plan.json` and `kubeconfig`.
    #[arg(long, value_name = "DIR", default_value = "/plan")]
    plan: PathBuf,
    /// Folder for files of this run, which is empty.
    #[arg(long, value_name = "DIR", default_value = "/tmp/release")]
    work: PathBuf,
    /// Where the report goes.
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    report: PathBuf,
}

impl Release {
    /// Runs the command. The exit code is 1 when the report has an error.
    ///
    /// # Errors
    /// A plan that cannot be read, or a report that cannot be written. Signals that cannot be waited for.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let text = fs_err::read_to_string(self.plan.join("plan.json"))?;
        let plan: ReleasePlan = serde_json::from_str(&text).context("reading the plan")?;
        fs_err::create_dir_all(&self.work)?;
        let ground = run::Ground {
            // Before anything else runs: Helm ends in order when the pod must end.
            runner: Arc::new(System::gentle(GRACE).context("waiting for signals")?),
            kubeconfig: self.plan.join("kubeconfig"),
            work: self.work.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let report = match self.deed {
            Deed::Apply => runtime.block_on(run::apply(&ground, &plan)),
            Deed::Remove => run::remove(&ground, &plan),
        };
        let message = report.message()?;
        show(&format!("{message}\n"));
        fs_err::write(&self.report, message)?;
        Ok(if report.error.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
