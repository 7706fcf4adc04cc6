//! dnsmasq as a child: started, told, stopped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::time::{Instant, timeout};

use super::dnsmasq::{CONFIG, HOSTS};
use crate::host::files;
use crate::host::process::start_owned;

/// How long it may take to end: normally it ends at once.
const ENDS: Duration = Duration::from_secs(5);
/// Pause between its end and the next start.
const AGAIN: Duration = Duration::from_secs(3);

/// How dnsmasq shall run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub config: String,
    pub hosts: String,
}

/// The child, and the files that it was started with.
#[derive(Debug)]
pub(super) struct Supervised {
    program: Vec<String>,
    dir: PathBuf,
    child: Option<Child>,
    told: Option<Wanted>,
    not_before: Option<Instant>,
    /// How it ended the last time, until it has run again for a while.
    pub problem: Option<String>,
}

impl Supervised {
    pub fn new(program: &[String], dir: &Path) -> Self {
        let (program, dir) = (program.to_vec(), dir.to_owned());
        Self { program, dir, child: None, told: None, not_before: None, problem: None }
    }

    /// Brings dnsmasq to this. A running child reads a new hosts file; a new configuration needs a new child.
    pub async fn bring(&mut self, wanted: Option<Wanted>) -> anyhow::Result<()> {
        let Some(wanted) = wanted else {
            self.stop().await;
            return Ok(());
        };
        if self.child.is_some() && self.told.as_ref() == Some(&wanted) {
            if self.not_before.is_none_or(|at| at < Instant::now()) {
                self.problem = None;
            }
            return Ok(());
        }
        let same = self.told.as_ref().is_some_and(|told| told.config == wanted.config);
        if !same {
            self.stop().await;
            files::write(&self.dir.join(CONFIG), wanted.config.as_bytes(), files::PUBLIC)?;
        }
        files::write(&self.dir.join(HOSTS), wanted.hosts.as_bytes(), files::PUBLIC)?;
        self.told = Some(wanted);
        if let Some(pid) = self.child.as_ref().and_then(pid) {
            return kill_process(pid, Signal::HUP).context("telling dnsmasq to read its hosts file again");
        }
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        let config = format!("--conf-file={}", self.dir.join(CONFIG).display());
        let argv: Vec<String> = self.program.iter().cloned().chain([config]).collect();
        let started = start_owned(&argv, &[]).with_context(|| format!("starting `{}`", argv.join(" ")));
        self.not_before = Some(Instant::now() + AGAIN);
        self.child = Some(started?);
        Ok(())
    }

    /// When a child that died may be started again.
    pub fn again(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.child.is_none() && self.told.is_some())
    }

    /// Returns when the child has died by itself; never without a child.
    pub async fn died(&mut self) {
        let Some(child) = &mut self.child else { return std::future::pending().await };
        let how = match child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        self.child = None;
        self.not_before = Some(Instant::now() + AGAIN);
        self.problem = Some(format!("dnsmasq ended by itself ({how}); see what it printed"));
    }

    /// Ends the child; when this returns it answers nobody any more.
    pub async fn stop(&mut self) {
        self.told = None;
        let Some(mut child) = self.child.take() else { return };
        if let Some(pid) = pid(&child) {
            let _ = kill_process(pid, Signal::TERM);
        }
        if timeout(ENDS, child.wait()).await.is_err() {
            let _ = child.kill().await;
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}
