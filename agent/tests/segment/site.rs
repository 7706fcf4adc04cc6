//! A segment: the box, another server, a machine that boots, and an ear on the box's cable.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use agent_api::net::MacAddress;
use dhcproto::v4::{DhcpOption, Flags, Message, MessageType};
use foothold_agent::provisioning::segment::packet::{Answer, packet};
use foothold_agent::provisioning::segment::settings::Settings;
use foothold_agent::provisioning::segment::state::{GuardState, STATE};
use foothold_agent::provisioning::segment::{Segment, serve};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::net::Net;
use super::wire::{ASKS_AGAIN, Client, FOREIGN, FOREIGN_MAC, Process, Wire, dnsmasq, foreign_server};

/// The box.
pub const OURS: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 1);
const SETTINGS: &str = "
server: 172.22.0.1
ranges: [ { start: 172.22.0.10, end: 172.22.0.40 } ]
relayed: [ { start: 10.1.0.10, end: 10.1.0.99, netmask: 255.255.255.0, router: 10.1.0.1 } ]
reservations: [ { macAddress: '52:54:00:00:00:01', address: 172.22.0.50, hostname: node1 } ]
probing: { everySecs: 6, waitSecs: 5, forgetSecs: 22, admitSecs: 20 }
policy: ";

/// All of it.
pub struct Site {
    hub: Net,
    ours: Net,
    foreign: Net,
    /// The machine that boots.
    pub client: Client,
    udp: UdpSocket,
    dir: TempDir,
    machine: Net,
}

impl Site {
    /// A segment on which nobody serves.
    pub fn new() -> Self {
        let (hub, ours, foreign, machine) = (Net::new(), Net::new(), Net::new(), Net::new());
        hub.ip("link add br0 type bridge");
        hub.ip("link set br0 up");
        hub.plug("ours", &ours, "52:54:00:00:00:f1", "172.22.0.1");
        hub.plug("foreign", &foreign, &FOREIGN_MAC.to_string(), &FOREIGN.to_string());
        hub.plug("machine", &machine, "52:54:00:00:00:f3", "172.22.0.9");
        let (client, udp) = machine.run(|| {
            let udp = UdpSocket::bind("172.22.0.9:0").expect("a socket");
            (Client::on("eth0"), udp)
        });
        let dir = tempfile::tempdir().expect("a folder");
        fs_err::create_dir(dir.path().join("loaders")).expect("made");
        fs_err::write(dir.path().join("loaders/undionly.kpxe"), "a loader").expect("written");
        Self { hub, ours, foreign, client, udp, dir, machine }
    }

    /// An ear on the box's cable, from now on.
    pub fn wire(&self) -> Wire {
        // What the box sends comes in at the other end of its cable.
        self.hub.run(|| Wire::on("ours"))
    }

    /// Our server, with this policy.
    pub fn serve(&self, policy: &str) -> Ours<'_> {
        let segment = Segment {
            interface: "eth0".into(),
            settings: Settings::parse(&format!("{SETTINGS}{policy}")).expect("good settings"),
            state_dir: self.dir.path().join("state"),
            hosts: None,
            loaders: self.dir.path().join("loaders"),
            program: dnsmasq(),
        };
        let mut ours = Ours { net: &self.ours, segment, running: None };
        ours.start();
        ours
    }

    /// Our server, as its command.
    pub fn start_command(&self, policy: &str, hosts: &Path) -> Process {
        let config = self.dir.path().join("dhcp.yaml");
        fs_err::write(&config, format!("{SETTINGS}{policy}")).expect("written");
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let (config, state, loaders) = (path("dhcp.yaml"), path("state"), path("loaders"));
        let hosts = hosts.display().to_string();
        let options = ["dhcp", "--interface", "eth0", "--config", &config, "--state", &state, "--loaders", &loaders];
        let mut argv: Vec<String> = options.map(str::to_owned).to_vec();
        argv.extend(["--hosts".to_owned(), hosts, "--dnsmasq".to_owned()]);
        argv.extend(dnsmasq());
        Process(self.ours.run(move || {
            #[expect(clippy::disallowed_methods, reason = "the agent is a process of this test")]
            let mut command = std::process::Command::new(AGENT);
            command.args(&argv).spawn().expect("the agent starts")
        }))
    }

    /// The machine is a relay between the box and another subnet: its address there, and where it hears servers.
    pub fn relay(&self) -> (Ipv4Addr, UdpSocket) {
        self.machine.ip("address add 10.1.0.1/32 dev lo");
        self.ours.ip("route add 10.1.0.0/24 via 172.22.0.9");
        let socket = self.machine.run(|| UdpSocket::bind("0.0.0.0:67").expect("a socket"));
        ([10, 1, 0, 1].into(), socket)
    }

    /// A real server that is none of ours. It ends with the handle.
    pub fn start_foreign(&self) -> Process {
        let dir = self.dir.path().to_owned();
        self.foreign.run(move || foreign_server("eth0", &dir))
    }

    /// A small file of ours by TFTP (RFC 1350), and that it came from port 69.
    pub fn tftp(&self, file: &str) -> Vec<u8> {
        let request = [&[0, 1], file.as_bytes(), b"\0octet\0"].concat();
        self.udp.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        self.udp.send_to(&request, (OURS, 69)).expect("sent");
        let mut block = [0; 600];
        let (length, from) = self.udp.recv_from(&mut block).expect("an answer");
        assert_eq!((from.port(), &block[..4]), (69, &[0, 3, 0, 1][..]), "data, block 1");
        self.udp.send_to(&[0, 4, 0, 1], from).expect("sent");
        block[4..length].to_vec()
    }
}

/// The agent's program.
pub const AGENT: &str = env!("CARGO_BIN_EXE_foothold-agent");

/// Our server at work.
pub struct Ours<'a> {
    net: &'a Net,
    segment: Segment,
    running: Option<(CancellationToken, Receiver<anyhow::Result<()>>)>,
}

impl Ours<'_> {
    /// Starts it.
    pub fn start(&mut self) {
        let (stop, segment) = (CancellationToken::new(), self.segment.clone());
        let token = stop.clone();
        let ended = self.net.start(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(serve(&segment, &token, &mut |_: &str| {}))
        });
        self.running = Some((stop, ended));
    }

    /// Stops it, and waits until it has ended.
    pub fn stop(&mut self) {
        if let Some((stop, ended)) = self.running.take() {
            stop.cancel();
            ended.recv().expect("an end").expect("a good end");
        }
    }

    /// Where its leases lie.
    pub fn state_dir(&self) -> &Path {
        &self.segment.state_dir
    }

    /// What it says.
    pub fn state(&self) -> GuardState {
        let text = fs_err::read_to_string(self.state_dir().join(STATE)).expect("a state");
        serde_json::from_str(&text).expect("JSON")
    }
}

impl Drop for Ours<'_> {
    fn drop(&mut self) {
        if let Some((stop, ended)) = self.running.take() {
            stop.cancel();
            let _ = ended.recv();
        }
    }
}

impl Client {
    /// Takes an offer.
    pub fn lease(&self, mac: MacAddress, offer: &Answer) -> Option<Answer> {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(rand::random(), none, none, none, none, &mac.0);
        message.set_flags(Flags::default().set_broadcast());
        message.opts_mut().insert(DhcpOption::MessageType(MessageType::Request));
        message.opts_mut().insert(DhcpOption::ServerIdentifier(offer.server));
        message.opts_mut().insert(DhcpOption::RequestedIpAddress(offer.offered?));
        self.socket.broadcast(&packet(&message).expect("encoded")).expect("sent");
        self.answer(mac, Instant::now() + ASKS_AGAIN * 2, |answer| answer.offered == offer.offered)
    }
}
