//! `foothold-agent operator bpa`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;

use super::common::{Parts, Place};
use super::run::{Settings, run};
use crate::operators::kit::command;

/// What `operator bpa` takes.
#[derive(Debug, Args)]
pub struct Bpa {
    /// Kubeconfig. Without it the pod's own account is used.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of clusters. Without it, all namespaces.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Address at which servers reach the box's content and registry.
    #[arg(long, value_name = "ADDRESS")]
    r#box: IpAddr,
    /// Version of Kubernetes for clusters that name none.
    #[arg(long, value_name = "VERSION")]
    kubernetes: String,
    /// Image of metrics-server, where the box carries it.
    #[arg(long, value_name = "IMAGE")]
    metrics: Option<String>,
    /// Image of local-path-provisioner, where the box carries it.
    #[arg(long, value_name = "IMAGE")]
    storage: Option<String>,
    /// Folder in which each cluster has a folder of its own, with inventory, logs and kubeconfig.
    #[arg(long, value_name = "DIR", default_value = "/opt/kud/multi-cluster")]
    clusters: PathBuf,
    /// Path of that folder on the node that runs the pods of installers. Default: the same path.
    #[arg(long, value_name = "DIR")]
    clusters_on_host: Option<PathBuf>,
    /// Files with DHCP's leases, of dnsmasq or ISC dhcpd. A file that does not exist is passed over.
    #[arg(long, value_name = "FILE", default_values = ["/var/lib/dhcp/dhcpd.leases", "/opt/icn/dhcp/dhcpd.leases"])]
    leases: Vec<PathBuf>,
    /// Where metrics and health are served.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8086")]
    metrics_address: SocketAddr,
}

impl Bpa {
    /// Runs until a signal ends it.
    pub fn run(&self) -> anyhow::Result<()> {
        let settings = Settings {
            kubeconfig: self.kubeconfig.clone(),
            namespace: self.namespace.clone(),
            place: Place { address: self.r#box, version: self.kubernetes.clone() },
            parts: Parts { metrics: self.metrics.clone(), storage: self.storage.clone() },
            folder: self.clusters.clone(),
            folder_on_host: self.clusters_on_host.clone().unwrap_or_else(|| self.clusters.clone()),
            leases: self.leases.clone(),
            serve: Some(self.metrics_address),
        };
        command::run(async move |stop| run(&settings, &stop).await)
    }
}
