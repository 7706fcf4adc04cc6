//! New connections: their first byte tells whether they are plain or TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::wire::Wire;
use super::{Peer, Service, connection};
use crate::listen::{self, ConnectionLimits, FIRST_BYTE, HANDSHAKE, Seat};

/// Generous limits: a quiet connection costs some hundred bytes.
const CONNECTIONS: ConnectionLimits = ConnectionLimits { all: 512, of_peer: 192, kept: 64, backlog: 1024 };
/// Threads that may wait for the disk at a time.
const HOPS: usize = 8;
/// First byte of a TLS connection: a record of the handshake (RFC 8446, 5.1). No request begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// Serves `service` on these addresses until told to stop, and tells which are bound by now. An address that cannot be
/// bound now is tried again until it can. Needs a tokio runtime.
pub fn start<S: Service>(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    addresses: &[SocketAddr],
    service: Arc<S>,
    tls: ServerConfig,
    stop: &CancellationToken,
) -> Vec<SocketAddr> {
    let tls = TlsAcceptor::from(Arc::new(only_http_1(tls)));
    let hops = Arc::new(Semaphore::new(HOPS));
    let known = service.known();
    let serve = move |stream, seat| connect(stream, seat, tls.clone(), Arc::clone(&service), Arc::clone(&hops));
    listen::start(tasks, addresses, (CONNECTIONS, known), serve, stop)
}

fn only_http_1(mut tls: ServerConfig) -> ServerConfig {
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tls
}

async fn connect<S: Service>(stream: TcpStream, seat: Seat, tls: TlsAcceptor, service: Arc<S>, hops: Arc<Semaphore>) {
    tokio::select! {
        () = seat.taken() => {}
        () = serve(stream, &seat, tls, service, hops) => {}
    }
}

async fn serve<S: Service>(stream: TcpStream, seat: &Seat, tls: TlsAcceptor, service: Arc<S>, hops: Arc<Semaphore>) {
    let Ok(local) = stream.local_addr() else { return };
    let mut first = [0];
    let Ok(Ok(1)) = timeout(FIRST_BYTE, stream.peek(&mut first)).await else { return };
    let secret = first[0] == TLS_HANDSHAKE;
    let wire = if secret {
        let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else { return };
        Wire::Tls(Box::new(stream))
    } else {
        Wire::Plain(Arc::new(stream))
    };
    let peer = Peer { ip: seat.peer(), local, tls: secret };
    connection::serve(wire, (peer, seat), service, hops).await;
}
