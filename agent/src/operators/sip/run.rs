//! Starts the operator: watches, controller, and the server of metrics and health.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::cluster::{self, Images};
use crate::operators::kit::{Base, serve};

/// Name of the operator: source of its events, and field manager of what it writes.
pub const MANAGER: &str = "sip-operator";

/// Settings of the operator.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Kubeconfig; that of the pod, or of the environment, when `None`.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the clusters; all when `None`.
    pub namespace: Option<String>,
    /// Images for pods whose spec names none.
    pub images: Images,
    /// Where servers reach the ports of this node.
    pub address: Option<IpAddr>,
    /// `HAProxy`, which checks configurations; nobody does it here when `None`.
    pub haproxy: Option<PathBuf>,
    /// Where metrics and health are served; nowhere when `None`.
    pub serve: Option<SocketAddr>,
}

/// Runs until told to stop.
pub async fn run(settings: &Settings, stop: &CancellationToken) -> anyhow::Result<()> {
    let base = Base::connect(settings.kubeconfig.as_deref(), settings.namespace.as_deref(), MANAGER).await?;
    let router = serve::router(String::new, || async { Ok(()) });
    serve::beside(cluster::run(base, settings), settings.serve, router, stop).await
}
