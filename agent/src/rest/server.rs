//! Listeners, TLS and the limits that keep one client from taking the box's memory.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, ResolvesServerCert};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections at a time: all, and of one peer.
const CONNECTIONS: (usize, usize) = (96, 24);
/// TLS handshake, and the head of a request, in this time.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A peer that acknowledges nothing for so long is gone.
const DEAD_PEER: Duration = Duration::from_secs(60);
/// Between two tries to bind, or after the process ran out of file descriptors.
const AGAIN: Duration = Duration::from_secs(2);
/// Most bytes of a request's head.
const HEAD_BYTES: u32 = 16 * 1024;
/// Requests at a time on one HTTP/2 connection.
const STREAMS: u32 = 16;

/// Address of the client, as an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub IpAddr);

/// The client's certificate, checked in the handshake, as an extension of each request: none for most clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientCertificate(pub Option<CertificateDer<'static>>);

/// What all listeners share.
pub(crate) struct Shared {
    router: Router,
    tls: TlsAcceptor,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A counted connection; dropping it makes room.
struct Seat {
    shared: Arc<Shared>,
    peer: IpAddr,
}

impl Shared {
    pub(crate) fn new(router: Router, tls: ServerConfig) -> Arc<Self> {
        Arc::new(Self { router, tls: TlsAcceptor::from(Arc::new(tls)), open: Mutex::default() })
    }

    fn seat(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer = open.get(&peer).copied().unwrap_or(0);
        if open.values().sum::<usize>() >= CONNECTIONS.0 || of_peer >= CONNECTIONS.1 {
            return None;
        }
        open.insert(peer, of_peer + 1);
        Some(Seat { shared: Arc::clone(self), peer })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        let left = open.get(&self.peer).map_or(0, |n| n - 1);
        if left == 0 {
            open.remove(&self.peer);
        } else {
            open.insert(self.peer, left);
        }
    }
}

/// TLS 1.2 and 1.3; HTTP/2 and HTTP/1.1; whatever certificate is current.
pub(crate) fn tls(resolver: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, rustls::Error> {
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

/// Binds one address; IPv6 and IPv4 have listeners of their own.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted agent gets its port at once.
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    socket.bind(address)?;
    socket.listen(64)
}

/// Serves one address until told to stop.
pub(crate) async fn run(
    address: SocketAddr,
    bound: Option<TcpListener>,
    shared: Arc<Shared>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let serve = async {
        let listener = match bound {
            Some(listener) => listener,
            None => bind_at_last(address).await,
        };
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let peer = peer.ip().to_canonical();
                        // Too many: closed at once, and the client sees why it may try later.
                        if let Some(seat) = shared.seat(peer) {
                            connections.spawn(connection(stream, seat));
                        }
                    }
                    Err(error) => {
                        log::warn!("accepting on {address}: {error}");
                        sleep(AGAIN).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    };
    stop.run_until_cancelled(serve).await;
    Ok(())
}

async fn bind_at_last(address: SocketAddr) -> TcpListener {
    let mut told = false;
    loop {
        match bind(address) {
            Ok(listener) => return listener,
            Err(error) if !told => {
                log::warn!("listening on {address} is tried again until it works: {error}");
                told = true;
            }
            Err(_) => {}
        }
        sleep(AGAIN).await;
    }
}

/// Serves one connection to its end. Its errors are the client's.
async fn connection(stream: TcpStream, seat: Seat) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_tcp_user_timeout(&stream, u32::try_from(DEAD_PEER.as_millis()).unwrap_or(u32::MAX));
    let _ = sockopt::set_socket_keepalive(&stream, true);
    let _ = sockopt::set_tcp_keepidle(&stream, DEAD_PEER);
    let Ok(Ok(stream)) = timeout(HANDSHAKE, seat.shared.tls.accept(stream)).await else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certificate = ClientCertificate(certificate.map(|certificate| certificate.clone().into_owned()));
    let router = seat.shared.router.clone().layer(axum::Extension(Peer(seat.peer))).layer(axum::Extension(certificate));
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
    let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}
