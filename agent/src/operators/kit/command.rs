//! What the command line of each operator needs.

use std::path::Path;
use std::str::FromStr;

use anyhow::Context as _;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cluster::follow;

/// A variable of the environment; an empty one counts as absent.
pub fn variable<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(name: &str) -> anyhow::Result<Option<T>> {
    let Some(text) = std::env::var(name).ok().filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    text.trim().parse().map(Some).with_context(|| format!("the variable `{name}` is `{text}`"))
}

/// The cluster of a kubeconfig; without one, that of the pod or of the environment.
pub async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    if let Some(path) = kubeconfig {
        return follow::client(path).await;
    }
    let config = kube::Config::infer().await.context("no kubeconfig, and not in a pod; hint: `--kubeconfig`")?;
    Ok(Client::try_from(config)?)
}

/// Runs an operator until it ends, or until a signal ends the process.
pub fn run<F: Future<Output = anyhow::Result<()>>>(
    operator: impl FnOnce(CancellationToken) -> F,
) -> anyhow::Result<()> {
    // One provider in the process: the libraries must not choose.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (mut end, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! {
            ran = operator(CancellationToken::new()) => ran,
            _ = end.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    })
}
