//! `foothold-agent operator sip`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;

use super::cluster::Images;
use super::pod::Pod;
use super::run::{Settings, run};
use crate::operators::kit::command;

/// What `operator sip` takes.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Sip {
    #[command(subcommand)]
    pod: Option<Pod>,
    /// Kubeconfig. Without it the pod's own account is used.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of clusters. Without it, all namespaces. Hosts are chosen in all namespaces.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Image with `HAProxy` and this program, for load balancers whose spec names none.
    #[arg(long, value_name = "IMAGE", required = true)]
    image: Option<String>,
    /// Image with OpenSSH, for jump hosts whose spec names none.
    #[arg(long, value_name = "IMAGE", required = true)]
    jump_host: Option<String>,
    /// Image with an OIDC provider, for logins that name none.
    #[arg(long, value_name = "IMAGE", required = true)]
    oidc: Option<String>,
    /// Where servers reach the ports of this node: part of a login's issuer. Without it each login must name its host.
    #[arg(long = "box", value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// Path of `HAProxy`, with which a configuration is checked before pods get it. Without it only the pods check it.
    #[arg(long, value_name = "FILE")]
    haproxy: Option<PathBuf>,
    /// Where metrics and health are served.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8088")]
    metrics_address: SocketAddr,
}

impl Sip {
    /// Runs until a signal ends it.
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(pod) = &self.pod {
            return pod.run();
        }
        let settings = Settings {
            kubeconfig: self.kubeconfig.clone(),
            namespace: self.namespace.clone(),
            images: Images {
                own: self.image.clone().unwrap_or_default(),
                jump_host: self.jump_host.clone().unwrap_or_default(),
                oidc: self.oidc.clone().unwrap_or_default(),
            },
            address: self.address,
            haproxy: self.haproxy.clone(),
            serve: Some(self.metrics_address),
        };
        command::run(async move |stop| run(&settings, &stop).await)
    }
}
