//! `foothold-agent dhcp`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::dnsmasq::LOADERS;
use super::settings::Settings;
use super::{Segment, serve};
use crate::terminal::report;

/// What `dhcp` takes.
#[derive(Debug, Args)]
pub struct Dhcp {
    /// The provisioning interface, and no other.
    #[arg(long, value_name = "NAME")]
    interface: String,
    /// Ranges, options, policy: YAML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Where leases and the guard's state are kept.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/foothold/dhcp")]
    state: PathBuf,
    /// `BareMetalHost`s in YAML: known machines. Read again when it changes.
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// Network boot loaders, as Debian's package `ipxe` has them.
    #[arg(long, value_name = "DIR", default_value = LOADERS)]
    loaders: PathBuf,
    /// dnsmasq, and arguments that come before its own.
    #[arg(long, value_name = "ARGUMENT", num_args = 1.., allow_hyphen_values = true, default_value = "/usr/sbin/dnsmasq")]
    dnsmasq: Vec<String>,
}

impl Dhcp {
    /// Serves until SIGTERM or SIGINT.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let text = fs_err::read_to_string(&self.config)?;
        let settings = Settings::parse(&text).with_context(|| format!("`{}`", self.config.display()))?;
        let segment = Segment {
            interface: self.interface.clone(),
            settings,
            state_dir: self.state.clone(),
            hosts: self.hosts.clone(),
            loaders: self.loaders.clone(),
            program: self.dnsmasq.clone(),
        };
        // On this thread: dnsmasq dies with the thread that started it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let stop = CancellationToken::new();
            let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            let mut tell = |line: &str| report(line);
            let serving = serve(&segment, &stop, &mut tell);
            tokio::pin!(serving);
            tokio::select! {
                ended = &mut serving => return ended,
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            stop.cancel();
            serving.await
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
