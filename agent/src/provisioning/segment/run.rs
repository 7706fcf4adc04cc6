//! The guard at work.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use jiff::Timestamp;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::dnsmasq::{self, LEASES};
use super::guard::{Guard, GuardStep, Now, Serving};
use super::known::Known;
use super::packet::{self, Seen};
use super::place::{self, Ground, Masked};
use super::settings::Settings;
use super::signs::Signs;
use super::state::{GuardState, STATE};
use super::supervised::{Supervised, Wanted};
use crate::host::files;
use crate::host::packet::PacketSocket;
use agent_api::net::MacAddress;

/// Pause between two looks at the file of hosts, and at an interface that does not exist yet.
const LOOK: Duration = Duration::from_secs(2);
/// Pause between two writings of the state when nothing important has changed: many packets must not lead to many writes.
const CALM: Duration = Duration::from_millis(500);
/// Larger than any packet of DHCP without jumbo frames.
const PACKET: usize = 9216;

/// A provisioning segment.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The interface.
    pub interface: String,
    /// What is to be served, and to whom.
    pub settings: Settings,
    /// Leases, dnsmasq's files and `state.json`, on DATA.
    pub state_dir: PathBuf,
    /// `BareMetalHost`s that are known; read again when it changes.
    pub hosts: Option<PathBuf>,
    /// Where the loaders lie that TFTP gives.
    pub loaders: PathBuf,
    /// dnsmasq, and what comes before its options.
    pub program: Vec<String>,
}

/// Serves until it is stopped. `tell` gets a line when something changes that people should know.
///
/// # Errors
/// When the state folder cannot be written. An interface or a file that is missing is waited for.
pub async fn serve(segment: &Segment, stop: &CancellationToken, tell: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    fs_err::create_dir_all(&segment.state_dir)?;
    let mut work = Work::new(segment);
    let result = loop {
        let opened = PacketSocket::open(&segment.interface).and_then(PacketSocket::watched);
        let ended = match opened {
            Ok(socket) => work.watch(&socket, stop, tell).await,
            Err(error) => Err(anyhow::Error::new(error)),
        };
        match ended {
            Ok(()) => break Ok(()),
            // Without a socket to listen on the segment, no machine is answered.
            Err(error) => {
                work.server.stop().await;
                work.guard = Guard::new(segment.settings.policy, segment.settings.probing.clone());
                work.problem = Some(format!("{error:#}"));
                if let Err(error) = work.show(tell) {
                    break Err(error);
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => break Ok(()),
            () = sleep(LOOK) => {}
        }
    };
    work.server.stop().await;
    result
}

struct Work<'a> {
    segment: &'a Segment,
    begun: Instant,
    guard: Guard,
    known: Known,
    /// Time of change of the file of hosts that was read last, and the interface's addresses then.
    seen: Option<(Option<SystemTime>, Vec<Masked>)>,
    server: Supervised,
    problem: Option<String>,
    /// When the interface's addresses were looked at, and what is wrong with them.
    placed: Option<(Instant, Option<String>)>,
    have: Vec<Masked>,
    shown: Option<(Instant, GuardState)>,
    said: String,
    signs: Signs,
}

impl<'a> Work<'a> {
    fn new(segment: &'a Segment) -> Self {
        let settings = &segment.settings;
        Self {
            segment,
            begun: Instant::now(),
            guard: Guard::new(settings.policy, settings.probing.clone()),
            known: Known::of(&settings.reservations, Ground::default()),
            seen: None,
            server: Supervised::new(&segment.program, &segment.state_dir),
            problem: None,
            placed: None,
            have: Vec::new(),
            shown: None,
            said: String::new(),
            signs: Signs::open(&segment.state_dir),
        }
    }

    fn now(&self) -> Now {
        Now { run: self.begun.elapsed(), wall: Timestamp::now() }
    }

    /// Serves until it is stopped, or the interface is gone.
    async fn watch(
        &mut self,
        socket: &AsyncFd<PacketSocket>,
        stop: &CancellationToken,
        tell: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        // A file that was wrong before is so still.
        (self.problem, self.seen) = (None, None);
        loop {
            self.look_at_place();
            self.read_hosts();
            if self.guard.tick(self.now()) == GuardStep::Probe {
                probe(socket.get_ref()).context("probing for other DHCP servers")?;
            }
            self.act().await?;
            self.show(tell)?;
            self.signs.keep(self.begun.elapsed())?;
            let due = self.guard.due().map(|due| self.begun + due);
            let next = [due, self.server.again()].into_iter().flatten().fold(Instant::now() + LOOK, Instant::min);
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                readable = socket.readable() => {
                    let mut readable = readable?;
                    self.hear(socket.get_ref()).context("listening on the segment")?;
                    readable.clear_ready();
                }
                () = self.server.died() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Reads all packets that wait.
    fn hear(&mut self, socket: &PacketSocket) -> io::Result<()> {
        let mut buffer = [0; PACKET];
        loop {
            let received = match socket.receive(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let Some(dhcp) = packet::dhcp(&buffer[..received.length]) else { continue };
            let (now, known) = (self.now(), self.known.has(dhcp.mac));
            if known {
                self.signs.heard(&dhcp, received.outgoing, now.wall);
            }
            if received.outgoing {
                continue;
            }
            match dhcp.seen(MacAddress(received.from)) {
                Seen::Answer(answer) => self.guard.heard(now, &answer),
                Seen::Ask { .. } if known => {}
                Seen::Ask { mac, relayed } => self.guard.asked(now, mac, relayed),
            }
        }
    }

    /// Known machines, when their file changed, or the subnet that they are in. A file that cannot be read leaves those that
    /// were known.
    fn read_hosts(&mut self) {
        let Segment { hosts, settings, .. } = self.segment;
        let changed = hosts.as_ref().and_then(|path| fs_err::metadata(path).and_then(|it| it.modified()).ok());
        let now = (changed, self.have.clone());
        if self.seen.as_ref() == Some(&now) {
            return;
        }
        let known = Known::of(&settings.reservations, Ground::of(settings, &self.have));
        self.seen = Some(now);
        let Some(path) = hosts else { return self.known = known };
        let read = fs_err::read_to_string(path).map_err(|error| error.to_string());
        match read.and_then(|text| known.with_hosts(&text)) {
            Ok(known) => (self.problem, self.known) = (None, known),
            Err(error) => self.problem = Some(format!("`{}`: {error}", path.display())),
        }
    }

    /// Where the interface is, and whether the addresses are there, too.
    fn look_at_place(&mut self) {
        if self.placed.as_ref().is_none_or(|(when, _)| when.elapsed() >= LOOK) {
            let Segment { interface, settings, .. } = self.segment;
            self.have = place::addresses(interface);
            self.placed = Some((Instant::now(), place::wrong(interface, &self.have, &settings.ranges)));
        }
    }

    /// Brings dnsmasq to what the guard decides.
    async fn act(&mut self) -> anyhow::Result<()> {
        let Segment { interface, settings, state_dir, loaders, .. } = self.segment;
        let (serving, _) = self.guard.decide();
        let wanted = (serving != Serving::Nobody).then(|| Wanted {
            config: dnsmasq::config(settings, interface, state_dir, loaders, serving == Serving::Everyone),
            hosts: dnsmasq::hosts(&self.known.machines, &serving),
        });
        self.server.bring(wanted).await
    }

    /// Tells what changed.
    fn show(&mut self, tell: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        let Segment { interface, settings, state_dir, .. } = self.segment;
        let misplaced = || self.placed.clone().and_then(|(_, wrong)| wrong);
        let problem = self.problem.clone().or_else(misplaced).or_else(|| self.server.problem.clone());
        let state = GuardState::of(interface, settings.policy, &self.guard, &self.known, problem);
        let news = state.news();
        let same = news == self.said;
        let recent = |(when, shown): &(Instant, GuardState)| *shown == state || when.elapsed() < CALM;
        if same && self.shown.as_ref().is_some_and(recent) {
            return Ok(());
        }
        if !same {
            tell(&state.sentence());
            self.said = news;
        }
        let text = serde_json::to_string(&state)? + "\n";
        files::write(&state_dir.join(STATE), text.as_bytes(), files::PUBLIC)?;
        self.shown = Some((Instant::now(), state));
        Ok(())
    }
}

/// Asks as a machine does, and as firmware does.
fn probe(socket: &PacketSocket) -> anyhow::Result<()> {
    for pxe in [false, true] {
        socket.broadcast(&packet::discover(MacAddress(socket.mac()), rand::random(), pxe)?)?;
    }
    Ok(())
}

/// The leases of a state folder; none before the first.
pub fn leases(state_dir: &Path) -> io::Result<Vec<super::leases::Lease>> {
    match fs_err::read_to_string(state_dir.join(LEASES)) {
        Ok(text) => Ok(super::leases::read(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
