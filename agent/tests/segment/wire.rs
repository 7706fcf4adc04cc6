//! A segment as others than the box see it: a machine that boots, another server, and an ear on the wire.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use agent_api::net::MacAddress;
use foothold_agent::host::packet::PacketSocket;
use foothold_agent::provisioning::segment::packet::{Answer, Seen, discover, read};
use foothold_qemu::Tools;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The other server.
pub const FOREIGN: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 2);
/// Its card.
pub const FOREIGN_MAC: MacAddress = MacAddress([0x52, 0x54, 0, 0, 0, 0xf2]);
/// Between two questions of a machine.
pub const ASKS_AGAIN: Duration = Duration::from_secs(2);

/// What goes over a cable.
pub struct Wire {
    socket: PacketSocket,
}

impl Wire {
    /// An ear on an interface of this thread's namespace, from now on.
    pub fn on(interface: &str) -> Self {
        Self { socket: PacketSocket::open(interface).expect("an end") }
    }

    /// Answers that came in since the last call, from whichever server.
    pub fn answers(&self) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut buffer = [0; 2048];
        while let Ok(received) = self.socket.receive(&mut buffer) {
            if let Some(Seen::Answer(answer)) = read(&buffer[..received.length], MacAddress(received.from))
                && !received.outgoing
            {
                answers.push(answer);
            }
        }
        answers
    }
}

/// A machine that boots.
pub struct Client {
    /// Its card.
    pub socket: PacketSocket,
}

impl Client {
    /// Its card is this interface of the thread's namespace.
    pub fn on(interface: &str) -> Self {
        Self { socket: PacketSocket::open(interface).expect("an end") }
    }

    /// Asks for an address until an answer pleases, as firmware does.
    pub fn ask(&self, mac: MacAddress, patience: Duration, pleases: impl Fn(&Answer) -> bool) -> Option<Answer> {
        self.forget();
        let until = Instant::now() + patience;
        while Instant::now() < until {
            let again = self.discover(mac, until);
            if let Some(answer) = self.answer(mac, again, &pleases) {
                return Some(answer);
            }
        }
        None
    }

    /// Asks for an address all the time; all answers.
    pub fn all(&self, mac: MacAddress, patience: Duration) -> Vec<Answer> {
        self.forget();
        let (mut all, until) = (Vec::new(), Instant::now() + patience);
        while Instant::now() < until {
            let again = self.discover(mac, until);
            all.extend(std::iter::from_fn(|| self.answer(mac, again, |_| true)));
        }
        all
    }

    /// What came before is no answer to what is asked now.
    fn forget(&self) {
        while self.socket.receive(&mut [0; 2048]).is_ok() {}
    }

    /// Asks once; when to ask again.
    fn discover(&self, mac: MacAddress, until: Instant) -> Instant {
        self.socket.broadcast(&discover(mac, rand::random(), true).expect("encoded")).expect("sent");
        until.min(Instant::now() + ASKS_AGAIN)
    }

    /// The next answer that pleases.
    pub fn answer(&self, mac: MacAddress, until: Instant, pleases: impl Fn(&Answer) -> bool) -> Option<Answer> {
        let mut buffer = [0; 2048];
        loop {
            while let Ok(received) = self.socket.receive(&mut buffer) {
                if let Some(Seen::Answer(answer)) = read(&buffer[..received.length], MacAddress(received.from))
                    && !received.outgoing
                    && answer.to == mac
                    && pleases(&answer)
                {
                    return Some(answer);
                }
            }
            let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            wait(&self.socket, left);
        }
    }
}

/// Until a packet comes, or that time is over.
pub fn wait(socket: &PacketSocket, left: Duration) {
    let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    let _ = poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], left);
}

/// Real dnsmasq of the toolbox.
pub fn dnsmasq() -> Vec<String> {
    Tools::program_or_make("usr/sbin/dnsmasq").expect("dnsmasq is in the toolbox")
}

/// Starts a real server that is none of ours on an interface of this thread's namespace. Its leases are in that folder, and it
/// ends with the handle.
pub fn foreign_server(interface: &str, dir: &Path) -> Process {
    let (interface, leases) = (format!("--interface={interface}"), dir.join("foreign.leases"));
    let leases = format!("--dhcp-leasefile={}", leases.display());
    let options = [
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--port=0",
        "--user=root",
        "--pid-file",
        "--log-facility=-",
        "--bind-dynamic",
        "--dhcp-range=172.22.0.200,172.22.0.210,3600",
        &interface,
        &leases,
    ];
    let argv = dnsmasq();
    #[expect(clippy::disallowed_methods, reason = "the other server is a process of this test")]
    let mut command = std::process::Command::new(&argv[0]);
    Process(command.args(&argv[1..]).args(options).spawn().expect("dnsmasq starts"))
}

/// A process that ends with the handle.
pub struct Process(pub std::process::Child);

impl Process {
    /// Sends a signal, and waits for the end.
    pub fn end(&mut self, signal: Signal) -> ExitStatus {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).expect("it lives");
        self.0.wait().expect("an end")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
