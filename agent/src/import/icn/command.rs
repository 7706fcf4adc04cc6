//! `foothold-agent hosts`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;

use super::{Choices, Input, convert, yaml};
use crate::terminal::{report, show};

/// What `hosts` takes.
#[derive(Debug, Args)]
pub struct Hosts {
    /// Files of Akraino ICN: `nodes.json`, `user_config.sh`, values of the `machine` chart or a `site.yaml` with them.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The box's address on the provisioning network, from which hosts fetch their images.
    #[arg(long, value_name = "ADDRESS", default_value = "172.22.0.1")]
    server: IpAddr,
    /// Namespace of the objects.
    #[arg(long, value_name = "NAME", default_value = "metal3")]
    namespace: String,
    /// Lets the owners of these public keys (a file as `~/.ssh/id_rsa.pub`) log in to all hosts.
    #[arg(long, value_name = "FILE")]
    ssh_key: Option<PathBuf>,
}

impl Hosts {
    /// Prints the objects, or everything that is wrong with the files.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let mut ssh_keys = Vec::new();
        if let Some(path) = &self.ssh_key {
            let text = fs_err::read_to_string(path)?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            ssh_keys.extend(lines.map(str::to_owned));
            ensure!(!ssh_keys.is_empty(), "`{}` has no key", path.display());
        }
        let choices = Choices { namespace: self.namespace.clone(), server: self.server, ssh_keys };
        let mut inputs = Vec::new();
        for path in &self.files {
            inputs.push(Input { file: path.display().to_string(), text: fs_err::read_to_string(path)? });
        }
        match convert(&inputs, &choices) {
            Ok(converted) => {
                for note in &converted.notes {
                    report(note);
                }
                show(&yaml(&converted.objects).context("writing YAML")?);
                Ok(ExitCode::SUCCESS)
            }
            Err(problems) => {
                for problem in &problems {
                    report(&format!("error: {problem}"));
                }
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
