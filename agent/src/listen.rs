//! Sockets that listen, and the limits that keep one client from taking the box.
//!
//! ```text
//! start ─ an address, a task ─► bind, until it works ─► accept ─► a seat for the peer ─► serve(stream, seat)
//!                                                         └─ none left: closed at once, the client tries later
//! ```

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// A TLS handshake, and the head of a request, in this time.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// A peer that acknowledges nothing for so long is gone.
pub const DEAD_PEER: Duration = Duration::from_secs(60);
/// Between two tries to bind, or after the process ran out of file descriptors.
const AGAIN: Duration = Duration::from_secs(2);

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// On all addresses of a service.
    pub all: usize,
    /// From one peer.
    pub of_peer: usize,
    /// Not yet accepted, of an address.
    pub backlog: u32,
}

/// Who is connected.
struct Seats {
    limits: ConnectionLimits,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A counted connection; dropping it makes room.
pub struct Seat {
    seats: Arc<Seats>,
    peer: IpAddr,
}

impl Seats {
    fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer = open.get(&peer).copied().unwrap_or(0);
        if open.values().sum::<usize>() >= self.limits.all || of_peer >= self.limits.of_peer {
            return None;
        }
        open.insert(peer, of_peer + 1);
        Some(Seat { seats: Arc::clone(self), peer })
    }
}

impl Seat {
    /// Address of the client.
    pub const fn peer(&self) -> IpAddr {
        self.peer
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.seats.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.peer)),
        }
    }
}

/// Serves every connection to these addresses until `stop`, and returns those that are bound by now; the others are
/// tried again. Needs a tokio runtime.
pub fn start<S, F>(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    addresses: &[SocketAddr],
    limits: ConnectionLimits,
    serve: S,
    stop: &CancellationToken,
) -> Vec<SocketAddr>
where
    S: Fn(TcpStream, Seat) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let seats = Arc::new(Seats { limits, open: Mutex::default() });
    let mut started = Vec::new();
    for &address in addresses {
        let bound = bind(address, limits.backlog);
        started.extend(bound.as_ref().ok().and_then(|listener| listener.local_addr().ok()));
        let (seats, serve, stop) = (Arc::clone(&seats), serve.clone(), stop.clone());
        tasks.spawn(async move {
            stop.run_until_cancelled(run(address, bound, seats, serve)).await;
            Ok(())
        });
    }
    started
}

/// IPv6 and IPv4 have listeners of their own.
fn bind(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted agent gets its port at once.
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    socket.bind(address)?;
    socket.listen(backlog)
}

async fn run<S, F>(address: SocketAddr, bound: io::Result<TcpListener>, seats: Arc<Seats>, serve: S)
where
    S: Fn(TcpStream, Seat) -> F + Send,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = bind_at_last(address, bound, seats.limits.backlog).await;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    if let Some(seat) = seats.take(peer.ip().to_canonical()) {
                        keep_alive(&stream);
                        connections.spawn(serve(stream, seat));
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

async fn bind_at_last(address: SocketAddr, first: io::Result<TcpListener>, backlog: u32) -> TcpListener {
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
        bound = bind(address, backlog);
    }
}

/// Sets that answers are sent at once, and that a peer that is gone is noticed. A socket that refuses is served, too.
fn keep_alive(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_tcp_user_timeout(stream, u32::try_from(DEAD_PEER.as_millis()).unwrap_or(u32::MAX));
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, DEAD_PEER);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::{ConnectionLimits, Seat, Seats};

    #[test]
    fn neither_one_peer_nor_all_of_them_take_more_than_their_share() {
        let limits = ConnectionLimits { all: 3, of_peer: 2, backlog: 1 };
        let seats = Arc::new(Seats { limits, open: Mutex::default() });
        let take = |last: u8| seats.take([192, 0, 2, last].into());
        let mut of_one: Vec<Option<Seat>> = vec![take(1), take(1)];
        assert!(of_one.iter().all(Option::is_some));
        assert!(take(1).is_none(), "a third one of the same peer");
        let other = take(2).expect("another peer's");
        assert!(take(3).is_none(), "a fourth one of all");
        drop(of_one.pop());
        assert!(take(3).is_some(), "one made room");
        drop((of_one, other));
        assert!(seats.open.lock().expect("not poisoned").is_empty(), "nothing is left behind");
    }
}
