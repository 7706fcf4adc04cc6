//! Starts all of it: the watches, the controller, and what tells how they are.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::release;
use crate::operators::kit::{Base, Objects, command, serve};

/// Who the operator is, in events and as whose objects' fields are written.
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
    let client = command::client(settings.kubeconfig.as_deref()).await?;
    // No Secret is watched: each is read when it is needed.
    let (secrets, _writer) = reflector::store::<Secret>();
    let base = Base {
        client: client.clone(),
        namespace: settings.namespace.clone(),
        objects: Objects::new(client.clone(), secrets),
        recorder: Recorder::new(client, Reporter { controller: MANAGER.to_owned(), instance: None }),
    };
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    if let Some(address) = settings.serve {
        serve::start(&mut tasks, address, serve::router(String::new, || async { Ok(()) }), stop).await?;
    }
    tokio::select! {
        () = release::run(base, settings) => {}
        () = stop.cancelled() => {}
        Some(ended) = tasks.join_next() => ended.context("a server of the operator")??,
    }
    Ok(())
}
