//! The HTTP server of an operator's metrics and health: `/metrics`, `/healthz`, `/readyz`.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The answers. `metrics` gives Prometheus' text, `ready` why the operator is not ready yet.
pub fn router<M, R, F>(metrics: M, ready: R) -> Router
where
    M: Fn() -> String + Clone + Send + Sync + 'static,
    R: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<(), &'static str>> + Send,
{
    let ready = move || async move {
        match ready().await {
            Ok(()) => (StatusCode::OK, "ok"),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
        }
    };
    Router::new()
        .route("/metrics", get(move || async move { metrics() }))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
}

/// Does an operator's work until it is told to stop, and serves the answers beside it where there is an address for them.
///
/// # Errors
/// The address cannot be bound, or the server ends.
pub async fn beside(
    work: impl Future<Output = ()>,
    address: Option<SocketAddr>,
    router: Router,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    if let Some(address) = address {
        start(&mut tasks, address, router, stop).await?;
    }
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
        Some(ended) = tasks.join_next() => ended.context("a server of the operator")??,
    }
    Ok(())
}

/// Serves them in a task of the set.
pub async fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    address: SocketAddr,
    router: Router,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening at {address}"))?;
    let stop = stop.clone();
    tasks.spawn(async move { Ok(axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await?) });
    Ok(())
}
