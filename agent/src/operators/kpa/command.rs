//! `foothold-agent operator kpa`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;

use super::run::{Settings, run};
use crate::operators::kit::command;

/// What `operator kpa` takes.
#[derive(Debug, Args)]
pub struct Kpa {
    /// Kubeconfig. Without it the pod's own account is used.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of releases. Without it, all namespaces.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Address at which the box's content and registry are reached.
    #[arg(long, value_name = "ADDRESS")]
    r#box: IpAddr,
    /// Image with Helm and this program, for the pods that install.
    #[arg(long, value_name = "IMAGE")]
    helm: String,
    /// Where metrics and health are served.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8087")]
    metrics_address: SocketAddr,
}

impl Kpa {
    /// Runs until a signal ends it.
    pub fn run(&self) -> anyhow::Result<()> {
        let settings = Settings {
            kubeconfig: self.kubeconfig.clone(),
            namespace: self.namespace.clone(),
            address: self.r#box,
            helm: self.helm.clone(),
            serve: Some(self.metrics_address),
        };
        command::run(async move |stop| run(&settings, &stop).await)
    }
}
