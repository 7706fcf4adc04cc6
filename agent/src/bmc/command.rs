//! `foothold-agent rehearse`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::manifests;
use super::rehearsal::{self, Plan};
use super::trust::Trust;
use crate::terminal::{report, show};

/// What `rehearse` takes.
#[derive(Debug, Args)]
pub struct Rehearse {
    /// `BareMetalHost`s and their Secrets in YAML, as `kubectl apply -f` takes them; `-` reads standard input.
    file: PathBuf,
    /// Print the matrix as JSON.
    #[arg(long)]
    json: bool,
    /// Save the answers of vendors that are not known yet in this folder.
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    /// Leave serial numbers, UUIDs and host names in what is saved.
    #[arg(long, requires = "export")]
    keep_serials: bool,
    /// Trust BMCs whose certificates these sign (PEM).
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Seconds for one answer.
    #[arg(long, value_name = "S", default_value_t = 5)]
    timeout: u64,
    /// Seconds for one host.
    #[arg(long, value_name = "S", default_value_t = 45)]
    deadline: u64,
    /// Hosts at a time.
    #[arg(long, value_name = "N", default_value_t = 32)]
    at_once: usize,
}

impl Rehearse {
    /// Asks, prints, tells by the exit code whether all BMCs are good.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let text = if self.file.as_os_str() == "-" {
            std::io::read_to_string(std::io::stdin()).context("reading standard input")?
        } else {
            fs_err::read_to_string(&self.file)?
        };
        let hosts = manifests::read(&text).with_context(|| format!("`{}`", self.file.display()))?;
        let trust = match &self.ca {
            None => Trust::System,
            Some(ca) => Trust::authorities(&fs_err::read_to_string(ca)?).with_context(|| ca.display().to_string())?,
        };
        let plan = Plan {
            patience: Duration::from_secs(self.timeout.max(1)),
            deadline: Duration::from_secs(self.deadline.max(1)),
            at_once: self.at_once,
            keep_answers: self.export.is_some(),
            trust,
        };
        // One provider in the process: the libraries must not choose.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (rehearsal, outcomes) = runtime.block_on(rehearsal::rehearse(hosts, &plan));
        let told = if self.json { serde_json::to_string(&rehearsal)? + "\n" } else { rehearsal::text(&rehearsal) };
        show(&told);
        if let Some(dir) = &self.export {
            let files = rehearsal::export(&outcomes, dir, self.keep_serials)?;
            report(&format!("{files} files of vendors that are not known in `{}`", dir.display()));
        }
        Ok(if rehearsal.good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
