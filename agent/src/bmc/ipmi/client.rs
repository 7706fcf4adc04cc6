//! A session over UDP.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::command::{self, BootOptions, ChassisStatus, Command, DeviceId, Privilege};
use super::handshake::{Console, NAME_MAX, PASSWORD_MAX, Refused};
use super::wire::{BLOCK, Hash, Keys, Message, PAYLOAD_IPMI, WireError, decode_plain, encode_plain};

/// How often a request is sent before nobody is there: UDP loses packets.
const TRIES: u32 = 3;
/// 22.18: completion codes of a privilege that the user, or the channel, does not have.
const NOT_THAT_MUCH: [u8; 2] = [0x80, 0x81];
/// 13.1.2: RMCP's port.
pub(in crate::bmc) const RMCP_PORT: u16 = 623;
/// Larger than any packet of these commands, and of serial lines.
const PACKET: usize = 1024;

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum IpmiError {
    /// Nobody answers.
    #[error("no answer to {tries} packets in {secs:.1} s")]
    Silent {
        /// Packets sent.
        tries: u32,
        /// Seconds waited.
        secs: f64,
    },
    /// Packets do not get there.
    #[error("sending to {address}")]
    Network {
        /// The BMC.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// IPMI 1.5, whose passwords are sent with MD5 or in the clear.
    #[error("the BMC does not speak IPMI 2.0 on this channel")]
    Old,
    /// The name or password is longer than IPMI takes.
    #[error("the {what} is longer than the {most} bytes that IPMI takes")]
    Long {
        /// `user name` or `password`.
        what: &'static str,
        /// Most bytes.
        most: usize,
    },
    /// No session opens.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The command failed: completion codes, 5.2.
    #[error("the BMC answers `{command}` with completion code 0x{code:02x}")]
    Completion {
        /// The command.
        command: &'static str,
        /// The code.
        code: u8,
    },
    /// The bytes are wrong.
    #[error("the BMC's answer")]
    Wire(#[from] WireError),
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
    /// What the session may do.
    pub privilege: Privilege,
}

/// An open session. [`Client::close`] ends it; otherwise the BMC does after a while.
pub struct Client {
    line: Line,
    keys: Keys,
    session: u32,
    bmc: u32,
    sequence: u32,
}

/// Where packets go.
struct Line {
    socket: UdpSocket,
    address: SocketAddr,
    patience: Duration,
}

impl Line {
    async fn to(address: SocketAddr, patience: Duration) -> Result<Self, IpmiError> {
        let unreachable = |source| IpmiError::Network { address, source };
        let any: SocketAddr = if address.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).await.map_err(unreachable)?;
        socket.connect(address).await.map_err(unreachable)?;
        Ok(Self { socket, address, patience })
    }

    async fn send(&self, packet: &[u8]) -> Result<(), IpmiError> {
        let sent = self.socket.send(packet).await;
        sent.map(drop).map_err(|source| IpmiError::Network { address: self.address, source })
    }

    /// The next packet. It may be cancelled.
    async fn receive<'a>(&self, bytes: &'a mut [u8]) -> Result<&'a [u8], IpmiError> {
        let received = self.socket.recv(bytes).await;
        let length = received.map_err(|source| IpmiError::Network { address: self.address, source })?;
        Ok(&bytes[..length])
    }

    /// Sends until something comes back that `read` takes. What it does not know is passed over: an answer to an
    /// earlier try, or somebody else's.
    async fn ask<T, E>(&self, packet: &[u8], read: impl Fn(&[u8]) -> Result<T, E>) -> Result<T, IpmiError>
    where
        E: Into<IpmiError>,
    {
        let each = self.patience / TRIES;
        let mut refused = None;
        for _ in 0..TRIES {
            let until = Instant::now() + each;
            match timeout_at(until, self.ask_once(packet, &read)).await {
                // ICMP says that nobody listens there: a BMC that restarts does so in a moment.
                Ok(Err(IpmiError::Network { source, .. })) if source.kind() == io::ErrorKind::ConnectionRefused => {
                    refused = Some(source);
                    sleep_until(until).await;
                }
                Ok(answer) => return answer,
                Err(_) => refused = None,
            }
        }
        Err(refused.map_or_else(
            || IpmiError::Silent { tries: TRIES, secs: self.patience.as_secs_f64() },
            |source| IpmiError::Network { address: self.address, source },
        ))
    }

    async fn ask_once<T, E>(&self, packet: &[u8], read: impl Fn(&[u8]) -> Result<T, E>) -> Result<T, IpmiError>
    where
        E: Into<IpmiError>,
    {
        self.send(packet).await?;
        let mut bytes = [0; PACKET];
        loop {
            match read(self.receive(&mut bytes).await?).map_err(Into::into) {
                Err(
                    IpmiError::Wire(WireError::Unexpected | WireError::NotIpmi)
                    | IpmiError::Refused(Refused::Wire(WireError::Unexpected | WireError::NotIpmi)),
                ) => {}
                read => return read,
            }
        }
    }
}

impl Client {
    /// Whether a BMC that speaks IPMI 2.0 answers there; no credentials are needed. `patience`: for each answer.
    pub async fn find(address: SocketAddr, patience: Duration) -> Result<(), IpmiError> {
        let line = Line::to(address, patience).await?;
        let ask = Command::capabilities(Privilege::Administrator);
        let read = |packet: &[u8]| -> Result<(u8, Vec<u8>), WireError> {
            let message = decode_plain(packet)?;
            let (code, data) = ask.answer(0, &message)?;
            Ok((code, data.to_vec()))
        };
        let (code, data) = line.ask(&encode_plain(&ask.message(0)), read).await?;
        if code != 0 || !command::speaks_2(&data)? { Err(IpmiError::Old) } else { Ok(()) }
    }

    /// Opens a session with cipher suite 17, or with 3 where the BMC does not take that. `patience`: for each answer.
    pub async fn open(address: SocketAddr, login: &Login, patience: Duration) -> Result<Self, IpmiError> {
        for (what, text, most) in [("user name", &login.user, NAME_MAX), ("password", &login.password, PASSWORD_MAX)] {
            if text.len() > most {
                return Err(IpmiError::Long { what, most });
            }
        }
        match Self::open_with(address, login, patience, Hash::Sha256).await {
            Err(IpmiError::Refused(Refused::Suite)) => Self::open_with(address, login, patience, Hash::Sha1).await,
            opened => opened,
        }
    }

    async fn open_with(address: SocketAddr, login: &Login, patience: Duration, hash: Hash) -> Result<Self, IpmiError> {
        let line = Line::to(address, patience).await?;
        let console = Console {
            hash,
            user: login.user.as_bytes(),
            password: login.password.as_bytes(),
            privilege: login.privilege,
            id: rand::random::<u32>() | 1,
            random: rand::random(),
        };
        let opened = line.ask(&console.open(), |packet| console.opened(packet)).await?;
        let proved = line.ask(&console.rakp1(&opened), |packet| console.rakp2(&opened, packet)).await?;
        let keys = line.ask(&console.rakp3(&proved), |packet| console.rakp4(&proved, packet)).await?;
        let mut client = Self { line, keys, session: console.id, bmc: proved.bmc, sequence: 0 };
        // A session begins as a user's (22.18).
        if login.privilege != Privilege::User {
            let raised = client.run("Set Session Privilege Level", &Command::privilege(login.privilege)).await;
            raised.map_err(|error| match error {
                IpmiError::Completion { code, .. } if NOT_THAT_MUCH.contains(&code) => Refused::Privilege.into(),
                other => other,
            })?;
        }
        Ok(client)
    }

    /// The BMC itself.
    pub async fn device_id(&mut self) -> Result<DeviceId, IpmiError> {
        let data = self.run("Get Device ID", &Command::device_id()).await?;
        Ok(DeviceId::decode(&data)?)
    }

    /// Power.
    pub async fn chassis_status(&mut self) -> Result<ChassisStatus, IpmiError> {
        let data = self.run("Get Chassis Status", &Command::chassis_status()).await?;
        Ok(ChassisStatus::decode(&data)?)
    }

    /// The boot override.
    pub async fn boot_options(&mut self) -> Result<BootOptions, IpmiError> {
        let data = self.run("Get System Boot Options", &Command::boot_options()).await?;
        Ok(BootOptions::decode(&data)?)
    }

    /// The clock, seconds of the Unix epoch; `None`: never set.
    pub async fn time(&mut self) -> Result<Option<u32>, IpmiError> {
        let data = self.run("Get SEL Time", &Command::sel_time()).await?;
        Ok(command::time(&data)?)
    }

    /// Ends the session.
    pub async fn close(mut self) -> Result<(), IpmiError> {
        let close = Command::close(self.bmc);
        self.run("Close Session", &close).await.map(drop)
    }

    /// Whether packets for this port reach the BMC where its session does. A port of ours may be forwarded to the usual one.
    pub(super) fn is_at(&self, port: u16) -> bool {
        [self.line.address.port(), RMCP_PORT].iter().any(|own| [port, port.swap_bytes()].contains(own))
    }

    /// Sends a payload of the session that is not a message.
    pub(super) async fn send(&mut self, kind: u8, payload: &[u8]) -> Result<(), IpmiError> {
        let packet = self.sealed(kind, payload);
        self.line.send(&packet).await
    }

    /// The next payload of this type. `None`: something else of the session came. It may be cancelled.
    pub(super) async fn receive(&self, kind: u8) -> Result<Option<Vec<u8>>, IpmiError> {
        let mut bytes = [0; PACKET];
        loop {
            // What is not the BMC's, of this session, does not count.
            if let Ok((found, payload)) = self.keys.open(self.session, self.line.receive(&mut bytes).await?) {
                return Ok((found == kind).then_some(payload));
            }
        }
    }

    /// Asks something, so that the session goes on, and waits for no answer.
    pub(super) async fn ask_nothing(&mut self) -> Result<(), IpmiError> {
        let (_, packet) = self.request(&Command::device_id());
        self.line.send(&packet).await
    }

    /// The next packet of the session.
    fn sealed(&mut self, kind: u8, payload: &[u8]) -> Vec<u8> {
        // 0 is for packets outside of a session (6.12).
        self.sequence += 1;
        self.keys.seal((self.bmc, self.sequence), kind, payload, rand::random::<[u8; BLOCK]>())
    }

    /// The next packet with a message, and the message's number.
    fn request(&mut self, command: &Command) -> (u8, Vec<u8>) {
        let number = u8::try_from((self.sequence + 1) % 64).unwrap_or_default();
        (number, self.sealed(PAYLOAD_IPMI, &command.message(number).encode()))
    }

    pub(super) async fn run(&mut self, name: &'static str, command: &Command) -> Result<Vec<u8>, IpmiError> {
        let (number, packet) = self.request(command);
        let read = |packet: &[u8]| -> Result<(u8, Vec<u8>), WireError> {
            let (kind, payload) = self.keys.open(self.session, packet)?;
            if kind != PAYLOAD_IPMI {
                return Err(WireError::Unexpected);
            }
            let message = Message::decode(&payload)?;
            let (code, data) = command.answer(number, &message)?;
            Ok((code, data.to_vec()))
        };
        match self.line.ask(&packet, read).await? {
            (0, data) => Ok(data),
            (code, _) => Err(IpmiError::Completion { command: name, code }),
        }
    }
}
