//! HTTPS for the agent's own interfaces: TLS, and the limits of a request.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, ResolvesServerCert};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::body::Served;
use crate::listen::{self, ConnectionLimits, DEAD_PEER, FIRST_BYTE, HANDSHAKE, KnownPeers, Seat};

const CONNECTIONS: ConnectionLimits = ConnectionLimits { all: 96, of_peer: 24, kept: 16, backlog: 64 };
/// Most bytes of a request's head.
const HEAD_BYTES: u32 = 16 * 1024;
/// A connection that is closed is told so within this time.
const FAREWELL: Duration = Duration::from_secs(2);
/// Requests at a time on one HTTP/2 connection.
const STREAMS: u32 = 16;

/// Address of the client, as an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub IpAddr);

/// The client's certificate with those behind it, as an extension of each request: none for most clients. It was checked
/// in the handshake, or in that of the session which goes on: what was trusted then need not be now.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientCertificate(pub Vec<CertificateDer<'static>>);

/// TLS 1.2 and 1.3; HTTP/2 and HTTP/1.1; whatever certificate is current.
pub fn tls(resolver: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, rustls::Error> {
    tls_with(resolver, Arc::new(NoClientAuth))
}

/// [`tls`] that also takes clients' certificates.
pub(crate) fn tls_with(
    resolver: Arc<dyn ResolvesServerCert>,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A session is 1 KiB or so, and the default keeps 256 of them.
    config.session_storage = rustls::server::ServerSessionMemoryCache::new(32);
    Ok(config)
}

/// Serves `router` on these addresses until `stop`, and returns those that are bound by now. An address that cannot be
/// bound now is tried again until it can. Needs a tokio runtime.
pub(crate) fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    addresses: &[SocketAddr],
    router: Router,
    tls: ServerConfig,
    known: Arc<KnownPeers>,
    stop: &CancellationToken,
) -> Vec<SocketAddr> {
    let tls = TlsAcceptor::from(Arc::new(tls));
    let serve = move |stream, seat| connection(stream, seat, tls.clone(), router.clone());
    listen::start(tasks, addresses, (CONNECTIONS, known), serve, stop)
}

/// Serves one connection to its end. Its errors concern the client alone and are dropped.
async fn connection(stream: TcpStream, seat: Seat, tls: TlsAcceptor, router: Router) {
    let seat = Arc::new(seat);
    tokio::select! {
        () = seat.taken() => {}
        () = serve(stream, Arc::clone(&seat), tls, router) => {}
    }
}

async fn serve(stream: TcpStream, seat: Arc<Seat>, tls: TlsAcceptor, router: Router) {
    if !matches!(timeout(FIRST_BYTE, stream.peek(&mut [0])).await, Ok(Ok(1))) {
        return;
    }
    let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else { return };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = ClientCertificate(chain.iter().map(|certificate| certificate.clone().into_owned()).collect());
    let router = router.layer(middleware::from_fn_with_state(Arc::clone(&seat), count));
    let router = router.layer(axum::Extension(Peer(seat.peer()))).layer(axum::Extension(certificate));
    let router = router.layer(axum::Extension(Arc::clone(&seat)));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE).max_buf_size(HEAD_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(DEAD_PEER / 2))
        .max_header_list_size(HEAD_BYTES)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(64 * 1024)
        .initial_connection_window_size(256 * 1024)
        .max_send_buf_size(64 * 1024);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    tokio::select! {
        _ = serving.as_mut() => return,
        () = seat.too_quiet() => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = timeout(FAREWELL, serving).await;
}

/// Notes that a request is being answered, until the last byte of its answer is handed on.
async fn count(State(seat): State<Arc<Seat>>, request: Request, next: Next) -> Response {
    let busy = seat.begin();
    let response = next.run(request).await;
    response.map(|body| Body::new(Served::new(body, busy)))
}
