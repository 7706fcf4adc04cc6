//! Starts all of it: the watches, the controller, and what tells how they are.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::controller;
use super::objects::Ground;
use crate::operators::kit::{Base, serve};

/// Who the operator is, in events and as whose objects' fields are written.
pub const MANAGER: &str = "vino-operator";

/// Settings of the operator.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Kubeconfig; that of the pod, or of the environment, when `None`.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of `Vino`s; all when `None`.
    pub namespace: Option<String>,
    /// Where all that is made for them is, and what pods are made of.
    pub ground: Ground,
    /// Where metrics and health are served; nowhere when `None`.
    pub serve: Option<SocketAddr>,
}

/// Runs until told to stop.
pub async fn run(settings: &Settings, stop: &CancellationToken) -> anyhow::Result<()> {
    let base = Base::connect(settings.kubeconfig.as_deref(), settings.namespace.as_deref(), MANAGER).await?;
    let router = serve::router(String::new, || async { Ok(()) });
    serve::beside(controller::run(base, settings), settings.serve, router, stop).await
}
