//! HTTPS with a certificate of its own, as BMCs come from the factory.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::service::{Service, lock};

/// A TLS handshake, in this time.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Between two tries to accept, after the process ran out of file descriptors.
const AGAIN: Duration = Duration::from_millis(200);

/// A certificate that signs itself, and TLS with it. The PEM is what a client must trust.
pub(super) fn tls(ip: IpAddr) -> Result<(ServerConfig, String), Box<dyn std::error::Error + Send + Sync>> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), ip.to_string()])?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)?;
    Ok((config, made.cert.pem()))
}

/// A listener at this address, before any task runs.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves until told to stop; its connections end with it.
pub(super) async fn serve(
    listener: TcpListener,
    tls: ServerConfig,
    service: Arc<Service>,
    router: Router,
    stop: CancellationToken,
) {
    let tls = TlsAcceptor::from(Arc::new(tls));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, tls.clone(), Arc::clone(&service), router.clone()));
                }
                Err(error) => {
                    log::warn!("accepting a connection to a BMC: {error}");
                    sleep(AGAIN).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection to its end. Its errors are the client's.
async fn connection(stream: TcpStream, tls: TlsAcceptor, service: Arc<Service>, router: Router) {
    if lock(&service.faults).silent {
        std::future::pending::<()>().await;
    }
    let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else { return };
    let router = TowerToHyperService::new(router);
    let answer = service_fn(move |request| {
        let number = service.answers.fetch_add(1, Ordering::Relaxed);
        let dropped = lock(&service.faults).drops(number);
        let answer = router.call(request);
        async move {
            if dropped {
                return Err(io::Error::from(io::ErrorKind::ConnectionReset));
            }
            answer.await.map_err(io::Error::other)
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
}
