//! Starts the operator: watches, controller, and the server of metrics and health.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::release;
use crate::operators::kit::{Base, serve};

/// Name of the operator: source of its events, and field manager of what it writes.
pub const MANAGER: &str = "kpa-operator";

/// Settings of the operator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Kubeconfig; that of the pod, or of the environment, when `None`.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the releases; all when `None`.
    pub namespace: Option<String>,
    /// The box, as pods on its network reach it.
    pub address: IpAddr,
    /// Image with Helm and this program.
    pub helm: String,
    /// Where metrics and health are served; nowhere when `None`.
    pub serve: Option<SocketAddr>,
}

/// Runs until told to stop.
pub async fn run(settings: &Settings, stop: &CancellationToken) -> anyhow::Result<()> {
    let base = Base::connect(settings.kubeconfig.as_deref(), settings.namespace.as_deref(), MANAGER).await?;
    let router = serve::router(String::new, || async { Ok(()) });
    serve::beside(release::run(base, settings), settings.serve, router, stop).await
}
