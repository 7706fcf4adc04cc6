//! Starts all of it: the watches, the controller, and what tells how they are.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::cluster::{self, Images};
use crate::operators::kit::{Base, serve};

/// Who the operator is, in events and as whose objects' fields are written.
pub const MANAGER: &str = "sip-operator";

/// Settings of the operator.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Kubeconfig; that of the pod, or of the environment, when `None`.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the clusters; all when `None`.
    pub namespace: Option<String>,
    /// Images of pods that name none.
    pub images: Images,
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
