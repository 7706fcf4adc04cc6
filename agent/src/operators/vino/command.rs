//! `foothold-agent operator vino`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::objects::Ground;
use super::run::{Settings, run};
use crate::operators::kit::command;

/// What `operator vino` takes.
#[derive(Debug, Args)]
pub struct Vino {
    /// Kubeconfig. Without it the pod's own account is used.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of `Vino`s. Without it, all namespaces.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Namespace of all that is made for them: pods of nodes, hosts, Secrets, pools of addresses.
    #[arg(long, value_name = "NAME", default_value = "vino-system")]
    runtime_namespace: String,
    /// Image for the nodes' pods whose template names none.
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Interface of the node that networks are plugged into if they name none.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Where metrics and health are served.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8089")]
    metrics_address: SocketAddr,
}

impl Vino {
    /// Runs until a signal ends it.
    pub fn run(&self) -> anyhow::Result<()> {
        let settings = Settings {
            kubeconfig: self.kubeconfig.clone(),
            namespace: self.namespace.clone(),
            ground: Ground {
                namespace: self.runtime_namespace.clone(),
                image: self.image.clone(),
                interface: self.interface.clone(),
            },
            serve: Some(self.metrics_address),
        };
        command::run(async move |stop| run(&settings, &stop).await)
    }
}
