//! Sockets that listen, and the limits that keep one client from taking the box.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::wire::Wire;
use super::{Peer, Service, connection};

/// Connections at a time: all, and of one peer. A quiet one costs some hundred bytes.
const CONNECTIONS: (usize, usize) = (512, 256);
/// TLS handshake, and the first byte at all, in this time.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A peer that acknowledges nothing for so long is gone.
const DEAD_PEER: Duration = Duration::from_secs(60);
/// Between two tries to bind, or after the process ran out of file descriptors.
const AGAIN: Duration = Duration::from_secs(2);
/// Threads that may wait for the disk at a time.
const HOPS: usize = 8;
/// First byte of a TLS connection: a record of the handshake (RFC 8446, 5.1). No request begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// A service that listens.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Addresses that are bound.
    pub addresses: Vec<SocketAddr>,
}

struct Shared<S> {
    service: Arc<S>,
    tls: TlsAcceptor,
    open: Mutex<HashMap<IpAddr, usize>>,
    hops: Arc<Semaphore>,
}

/// A counted connection; dropping it makes room.
struct Seat<S> {
    shared: Arc<Shared<S>>,
    peer: IpAddr,
}

impl<S> Drop for Seat<S> {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.peer)),
        }
    }
}

fn seat<S>(shared: &Arc<Shared<S>>, peer: IpAddr) -> Option<Seat<S>> {
    let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
    let of_peer = open.get(&peer).copied().unwrap_or(0);
    if open.values().sum::<usize>() >= CONNECTIONS.0 || of_peer >= CONNECTIONS.1 {
        return None;
    }
    open.insert(peer, of_peer + 1);
    Some(Seat { shared: Arc::clone(shared), peer })
}

/// Serves `service` on these addresses until told to stop. An address that cannot be bound now is tried again until it
/// can. Needs a tokio runtime.
pub fn start<S: Service>(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    listen: &[SocketAddr],
    service: Arc<S>,
    tls: ServerConfig,
    stop: &CancellationToken,
) -> Listening {
    let tls = TlsAcceptor::from(Arc::new(only_http_1(tls)));
    let hops = Arc::new(Semaphore::new(HOPS));
    let shared = Arc::new(Shared { service, tls, open: Mutex::default(), hops });
    let bound: Vec<_> = listen.iter().map(|address| (*address, bind(*address))).collect();
    let addresses = bound.iter().filter_map(|(_, bound)| bound.as_ref().ok()?.local_addr().ok()).collect();
    for (address, bound) in bound {
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        tasks.spawn(async move {
            stop.run_until_cancelled(run(address, bound, shared)).await;
            Ok(())
        });
    }
    Listening { addresses }
}

fn only_http_1(mut tls: ServerConfig) -> ServerConfig {
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tls
}

/// IPv6 and IPv4 have listeners of their own.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted agent gets its port at once.
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    socket.bind(address)?;
    socket.listen(1024)
}

async fn run<S: Service>(address: SocketAddr, bound: io::Result<TcpListener>, shared: Arc<Shared<S>>) {
    let listener = bind_at_last(address, bound).await;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // Too many: closed at once, and the client sees why it may try later.
                    if let Some(seat) = seat(&shared, peer.ip().to_canonical()) {
                        connections.spawn(connect(stream, seat));
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
}

async fn bind_at_last(address: SocketAddr, first: io::Result<TcpListener>) -> TcpListener {
    let (mut bound, mut told) = (first, false);
    loop {
        match bound {
            Ok(listener) => return listener,
            Err(error) if !told => {
                log::warn!("listening on {address} is tried again until it works: {error}");
                told = true;
            }
            Err(_) => {}
        }
        sleep(AGAIN).await;
        bound = bind(address);
    }
}

async fn connect<S: Service>(stream: TcpStream, seat: Seat<S>) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_tcp_user_timeout(&stream, u32::try_from(DEAD_PEER.as_millis()).unwrap_or(u32::MAX));
    let _ = sockopt::set_socket_keepalive(&stream, true);
    let _ = sockopt::set_tcp_keepidle(&stream, DEAD_PEER);
    let Ok(local) = stream.local_addr() else { return };
    let mut first = [0];
    let Ok(Ok(1)) = timeout(HANDSHAKE, stream.peek(&mut first)).await else { return };
    let tls = first[0] == TLS_HANDSHAKE;
    let wire = if tls {
        let Ok(Ok(stream)) = timeout(HANDSHAKE, seat.shared.tls.accept(stream)).await else { return };
        Wire::Tls(Box::new(stream))
    } else {
        Wire::Plain(Arc::new(stream))
    };
    let peer = Peer { ip: seat.peer, local, tls };
    connection::serve(wire, peer, Arc::clone(&seat.shared.service), Arc::clone(&seat.shared.hops)).await;
}
