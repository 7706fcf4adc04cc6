//! `foothold-agent hosts`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::{Choices, Converted, Input, convert, keys, yaml};
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
        let mut problems = Vec::new();
        let ssh_keys = match &self.ssh_key {
            Some(path) => keys::read(&input(path)?, &mut problems),
            None => Vec::new(),
        };
        let choices = Choices { namespace: self.namespace.clone(), server: self.server, ssh_keys };
        let inputs = self.files.iter().map(|path| input(path)).collect::<anyhow::Result<Vec<_>>>()?;
        let converted = convert(&inputs, &choices).unwrap_or_else(|found| {
            problems.extend(found);
            Converted::default()
        });
        if !problems.is_empty() {
            for problem in &problems {
                report(&format!("error: {problem}"));
            }
            return Ok(ExitCode::FAILURE);
        }
        for note in &converted.notes {
            report(note);
        }
        show(&yaml(&converted.objects).context("writing YAML")?);
        Ok(ExitCode::SUCCESS)
    }
}

fn input(path: &Path) -> anyhow::Result<Input> {
    Ok(Input { file: path.display().to_string(), text: fs_err::read_to_string(path)? })
}
