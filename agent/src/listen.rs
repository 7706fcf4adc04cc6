//! Sockets that listen, and the limits that keep one client from taking the box.
//!
//! ```text
//! start ─ an address, a task ─► bind, until it works ─► accept ─► a seat for the peer ─► serve(stream, seat)
//!                                                         └─ none left, and nobody who only sits: closed at once
//! ```
//! Where all seats of a network, or of the service, are taken, a newcomer gets that of the connection that has been
//! without a request for the longest time. Some seats are kept for networks from which a right token came.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// The first byte of a connection in this time.
pub const FIRST_BYTE: Duration = Duration::from_secs(5);
/// A TLS handshake, and the head of a request, in this time.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// A connection without a request for so long is closed.
pub const IDLE: Duration = Duration::from_secs(75);
/// A request without a right token is answered, and its answer taken, in this time.
pub const STRANGERS: Duration = Duration::from_secs(60);
/// A peer that acknowledges nothing for so long is gone.
pub const DEAD_PEER: Duration = Duration::from_secs(60);
/// Between two tries to bind, or after the process ran out of file descriptors.
const AGAIN: Duration = Duration::from_secs(2);
/// Networks that are remembered as known.
const MOST_KNOWN: usize = 256;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// On all addresses of a service.
    pub all: usize,
    /// From one network.
    pub of_peer: usize,
    /// Of all, those that only known networks get.
    pub kept: usize,
    /// Not yet accepted, of an address.
    pub backlog: u32,
}

/// The network that counts as one peer: an address of IPv4, for IPv6 a whole /64.
pub fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Networks from which somebody came who may: those of the last `MOST_KNOWN`. The box itself always is.
#[derive(Debug, Default)]
pub struct KnownPeers {
    networks: Mutex<VecDeque<IpAddr>>,
}

impl KnownPeers {
    /// Somebody there has a right token, or a certificate.
    pub fn remember(&self, peer: IpAddr) {
        let network = network_of(peer);
        let mut networks = lock(&self.networks);
        if networks.back() == Some(&network) {
            return;
        }
        networks.retain(|known| *known != network);
        networks.push_back(network);
        if networks.len() > MOST_KNOWN {
            networks.pop_front();
        }
    }

    fn has(&self, network: IpAddr) -> bool {
        network.is_loopback()
            || network == network_of(Ipv6Addr::LOCALHOST.into())
            || lock(&self.networks).contains(&network)
    }
}

/// Who is connected.
struct Seats {
    limits: ConnectionLimits,
    known: Arc<KnownPeers>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    chairs: BTreeMap<u64, Chair>,
}

/// What is known about one connection.
struct Chair {
    network: IpAddr,
    /// Requests that are being answered.
    busy: usize,
    /// When it became busy, or quiet; when it was opened.
    since: Instant,
    /// There was one.
    asked: bool,
    /// One of them had a right token.
    proven: bool,
    /// Ends the connection.
    leave: CancellationToken,
}

/// A counted connection; dropping it makes room.
pub struct Seat {
    seats: Arc<Seats>,
    number: u64,
    peer: IpAddr,
    leave: CancellationToken,
}

/// A request that is being answered; dropping it ends that.
pub struct Busy {
    seats: Arc<Seats>,
    number: u64,
}

impl Seats {
    fn new(limits: ConnectionLimits, known: Arc<KnownPeers>) -> Arc<Self> {
        Arc::new(Self { limits, known, open: Mutex::default() })
    }

    fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        let network = network_of(peer);
        let kept = if self.known.has(network) { 0 } else { self.limits.kept };
        let mut open = lock(&self.open);
        if open.chairs.values().filter(|chair| chair.network == network).count() >= self.limits.of_peer {
            open.free_one(|chair| chair.network == network)?;
        }
        if open.chairs.len() >= self.limits.all.saturating_sub(kept) {
            open.free_one(|chair| !self.known.has(chair.network)).or_else(|| open.free_one(|_| true))?;
        }
        let (number, leave) = (open.next, CancellationToken::new());
        open.next += 1;
        let (since, leaves) = (Instant::now(), leave.clone());
        let chair = Chair { network, busy: 0, since, asked: false, proven: false, leave: leaves };
        open.chairs.insert(number, chair);
        Some(Seat { seats: Arc::clone(self), number, peer, leave })
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Chair)) {
        if let Some(chair) = lock(&self.open).chairs.get_mut(&number) {
            change(chair);
        }
    }
}

impl Open {
    /// Ends the connection, of these, that has been without a request for the longest time, and never had a right token.
    fn free_one(&mut self, of: impl Fn(&Chair) -> bool) -> Option<()> {
        let sits = |chair: &Chair| chair.busy == 0 && !chair.proven && of(chair);
        let sitting = self.chairs.iter().filter(|(_, chair)| sits(chair));
        let (number, _) = sitting.min_by_key(|(_, chair)| chair.since)?;
        let number = *number;
        self.chairs.remove(&number)?.leave.cancel();
        Some(())
    }
}

impl Seat {
    /// Address of the client.
    pub const fn peer(&self) -> IpAddr {
        self.peer
    }

    /// A request was read whole: until this is dropped, it is being answered.
    pub fn begin(&self) -> Busy {
        self.seats.change(self.number, |chair| {
            if chair.busy == 0 {
                chair.since = Instant::now();
            }
            (chair.busy, chair.asked) = (chair.busy + 1, true);
        });
        Busy { seats: Arc::clone(&self.seats), number: self.number }
    }

    /// The client has a right token, or a certificate.
    pub fn prove(&self) {
        self.seats.known.remember(self.peer);
        self.seats.change(self.number, |chair| chair.proven = true);
    }

    /// Returns when somebody else gets the seat.
    pub async fn taken(&self) {
        self.leave.cancelled().await;
    }

    /// Returns when there was no request for too long: [`HANDSHAKE`] before the first one, [`IDLE`] between two,
    /// [`STRANGERS`] in one that has no right token.
    pub async fn too_quiet(&self) {
        loop {
            let until = match lock(&self.seats.open).chairs.get(&self.number) {
                None => return,
                Some(Chair { busy: 1.., proven: true, .. }) => Instant::now() + IDLE,
                Some(Chair { busy: 1.., since, .. }) => *since + STRANGERS,
                Some(Chair { asked: true, since, .. }) => *since + IDLE,
                Some(Chair { since, .. }) => *since + HANDSHAKE,
            };
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.seats.change(self.number, |chair| {
            chair.busy = chair.busy.saturating_sub(1);
            if chair.busy == 0 {
                chair.since = Instant::now();
            }
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.seats.open).chairs.remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves every connection to these addresses until `stop`, and returns those that are bound by now; the others are
/// tried again. Needs a tokio runtime.
pub fn start<S, F>(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    addresses: &[SocketAddr],
    (limits, known): (ConnectionLimits, Arc<KnownPeers>),
    serve: S,
    stop: &CancellationToken,
) -> Vec<SocketAddr>
where
    S: Fn(TcpStream, Seat) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let seats = Seats::new(limits, known);
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
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{ConnectionLimits, HANDSHAKE, IDLE, KnownPeers, STRANGERS, Seat, Seats, network_of};

    fn seats(all: usize, of_peer: usize, kept: usize) -> Arc<Seats> {
        Seats::new(ConnectionLimits { all, of_peer, kept, backlog: 1 }, Arc::new(KnownPeers::default()))
    }

    fn peer(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[tokio::test(start_paused = true)]
    async fn neither_one_peer_nor_all_of_them_take_more_than_their_share() {
        let seats = seats(3, 2, 0);
        let take = |last: u8| seats.take(peer(last)).map(|seat| (seat.begin(), seat));
        let mut of_one = vec![take(1), take(1)];
        assert!(of_one.iter().all(Option::is_some));
        assert!(take(1).is_none(), "a third one of the same peer");
        let other = take(2).expect("another peer's");
        assert!(take(3).is_none(), "a fourth one of all");
        drop(of_one.pop());
        assert!(take(3).is_some(), "one made room");
        drop((of_one, other));
        assert!(super::lock(&seats.open).chairs.is_empty(), "nothing is left behind");
    }

    #[tokio::test(start_paused = true)]
    async fn who_only_sits_makes_room_and_who_is_served_stays() {
        let seats = seats(10, 3, 0);
        let served = seats.take(peer(1)).expect("a seat");
        let _busy = served.begin();
        let proven = seats.take(peer(1)).expect("a seat");
        proven.prove();
        let silent = seats.take(peer(1)).expect("a seat");
        tokio::time::advance(Duration::from_secs(1)).await;
        let next = seats.take(peer(1)).expect("the seat of the silent one");
        assert!(silent.leave.is_cancelled() && !served.leave.is_cancelled() && !proven.leave.is_cancelled());
        let _also_busy = next.begin();
        assert!(seats.take(peer(1)).is_none(), "all of them are served or known");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_ones_of_many_networks_close_the_door_to_nobody() {
        let seats = seats(8, 2, 2);
        let silent: Vec<Option<Seat>> = (0..20).map(|number| seats.take(peer(number))).collect();
        assert!(silent.iter().all(Option::is_some));
        let staying = silent.iter().flatten().filter(|seat| !seat.leave.is_cancelled()).count();
        assert_eq!(staying, 6, "two seats are kept");
        // All of them are served something slowly.
        let _busy: Vec<_> = silent.iter().flatten().map(Seat::begin).collect();
        assert!(seats.take(peer(100)).is_none(), "a stranger");
        seats.known.remember(peer(101));
        assert!(seats.take(peer(101)).is_some(), "who is known");
        assert!(seats.take([127, 0, 0, 1].into()).is_some(), "the box itself");
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_one_prefix_are_one_peer() {
        let seats = seats(100, 2, 0);
        let take = |last: u16| seats.take(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]));
        let held: Vec<_> = (0..2).map(|last| take(last).map(|seat| (seat.begin(), seat))).collect();
        assert!(held.iter().all(Option::is_some) && take(9).is_none());
        assert!(seats.take("::ffff:192.0.2.1".parse().expect("an address")).is_some());
        assert_eq!(network_of("::ffff:192.0.2.1".parse().expect("an address")), peer(1));
    }

    #[tokio::test(start_paused = true)]
    async fn each_state_of_a_connection_has_its_time() {
        let seats = seats(10, 10, 0);
        let begun = Instant::now();
        let silent = seats.take(peer(1)).expect("a seat");
        silent.too_quiet().await;
        assert_eq!(begun.elapsed(), HANDSHAKE);
        let (begun, seat) = (Instant::now(), seats.take(peer(1)).expect("a seat"));
        let busy = seat.begin();
        seat.too_quiet().await;
        assert_eq!(begun.elapsed(), STRANGERS);
        drop(busy);
        let begun = Instant::now();
        seat.too_quiet().await;
        assert_eq!(begun.elapsed(), IDLE);
        seat.prove();
        let busy = seat.begin();
        assert!(tokio::time::timeout(Duration::from_hours(10), seat.too_quiet()).await.is_err(), "a long answer");
        drop(busy);
    }

    #[test]
    fn the_last_networks_are_known() {
        let known = KnownPeers::default();
        for last in 0..300_u32 {
            known.remember(std::net::Ipv4Addr::from_bits(last).into());
        }
        assert!(known.has([0, 0, 1, 40].into()) && !known.has([0, 0, 0, 1].into()));
        assert!(known.has("::1".parse().expect("an address")));
    }
}
