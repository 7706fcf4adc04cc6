//! Serial over LAN (15): a serial line as payloads of a session, each of which is acknowledged.
//!
//! ```text
//! typed ─► Exchange::speak ─► packet 1 to 15 ─► BMC   and back: how many characters of it were taken
//! shown ◄─ Exchange::hear  ◄─ packet 1 to 15 ◄─ BMC   and we say that all were
//! ```
//! [`Exchange`] is pure; [`SerialLine`] has the socket.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::client::{Client, IpmiError};
use super::command::Command;
use super::wire::{PAYLOAD_SOL, WireError};

/// 15.9: packet number, acknowledged number, accepted characters, status.
const HEADER: usize = 4;
/// 15.9: numbers of packets go from 1 to 15; 0 carries nothing that is acknowledged.
const LAST: u8 = 15;
/// 15.9, table 15-2, status of the BMC: it did not take all; it takes nothing now; the line was ended by somebody else.
const NACK: u8 = 0x40;
const UNAVAILABLE: u8 = 0x20;
const INACTIVE: u8 = 0x10;
/// Characters of one packet, where the BMC takes more.
const CHUNK: usize = 64;
/// Characters that wait to be sent before no more are read from who types.
const ROOM: usize = 4096;
/// After this a packet that was not acknowledged is sent again (15.11 leaves it to the console).
const AGAIN: Duration = Duration::from_millis(500);
/// So often, before the BMC is not there any more.
const TRIES: u32 = 20;
/// An idle session ends after 60 s (6.12.15). A question holds it.
const HOLD: Duration = Duration::from_secs(20);
/// Without any packet for so long the BMC is not there any more.
const SILENCE: Duration = Duration::from_secs(70);
/// What ending the session properly may take.
const GOODBYE: Duration = Duration::from_secs(5);

/// Why there is no serial line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Completion code 80h of Activate Payload (24.1).
    #[error("somebody else has it; hint: `ipmitool sol deactivate` ends that session")]
    Held,
    /// 81h.
    #[error("Serial-over-LAN is switched off; hint: `ipmitool sol set enabled true` switches it on")]
    Off,
    /// 82h.
    #[error("the BMC has no session for it left")]
    Full,
    /// 83h.
    #[error("the BMC does not encrypt it; hint: switch its encryption on at the BMC")]
    Plain,
    /// The BMC wants packets on another port.
    #[error("the BMC wants it on port {0}, which is not that of its sessions; hint: set both to the same at the BMC")]
    Port(u16),
    /// Somebody deactivated it.
    #[error("the BMC ended it")]
    Ended,
    /// No packet came for a long time.
    #[error("the BMC does not answer any more")]
    Silent,
    /// Anything else of the session.
    #[error(transparent)]
    Session(#[from] IpmiError),
}

/// What came with a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Heard {
    /// New characters of the line.
    shown: Vec<u8>,
    /// What acknowledges them.
    answer: Option<Vec<u8>>,
    /// The line is somebody else's now.
    ended: bool,
}

/// A packet that is not acknowledged yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    number: u8,
    characters: Vec<u8>,
    tries: u32,
}

/// Both directions of a line.
#[derive(Clone, Debug)]
struct Exchange {
    /// Most characters of a packet to the BMC.
    most: usize,
    typed: VecDeque<u8>,
    sent: Option<Sent>,
    number: u8,
    /// Number and length of the BMC's packet before: it may send it again, with more characters.
    before: (u8, usize),
}

impl Exchange {
    fn new(most: usize) -> Self {
        Self { most: most.clamp(1, CHUNK), typed: VecDeque::new(), sent: None, number: 0, before: (0, 0) }
    }

    /// Takes what was typed.
    fn take(&mut self, typed: &[u8]) {
        self.typed.extend(typed);
    }

    fn has_room(&self) -> bool {
        self.typed.len() < ROOM
    }

    /// The next packet, unless one is under way or nothing was typed.
    fn speak(&mut self) -> Option<Vec<u8>> {
        if self.sent.is_some() || self.typed.is_empty() {
            return None;
        }
        let length = self.most.min(self.typed.len());
        let characters: Vec<u8> = self.typed.drain(..length).collect();
        self.number = self.number % LAST + 1;
        let sent = Sent { number: self.number, characters, tries: 1 };
        let packet = sent.packet();
        self.sent = Some(sent);
        Some(packet)
    }

    /// The packet that was not acknowledged, again. `Err`: it was sent too often.
    fn again(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        let Some(sent) = &mut self.sent else { return Ok(None) };
        if sent.tries == TRIES {
            return Err(LineError::Silent);
        }
        sent.tries += 1;
        Ok(Some(sent.packet()))
    }

    fn hear(&mut self, payload: &[u8]) -> Result<Heard, WireError> {
        let ([number, acknowledged, taken, status], characters) =
            payload.split_first_chunk::<HEADER>().ok_or(WireError::Short)?;
        if *acknowledged != 0 {
            self.acknowledge(*acknowledged, usize::from(*taken), *status);
        }
        let mut heard = Heard { ended: status & INACTIVE != 0, ..Heard::default() };
        if *number != 0 {
            let known = if self.before.0 == *number { self.before.1.min(characters.len()) } else { 0 };
            heard.shown = characters[known..].to_vec();
            self.before = (*number, characters.len());
            heard.answer = Some(vec![0, *number, u8::try_from(characters.len()).unwrap_or(u8::MAX), 0]);
        }
        Ok(heard)
    }

    /// The BMC took so many characters of a packet. What it left goes with the next one.
    fn acknowledge(&mut self, number: u8, taken: usize, status: u8) {
        let Some(sent) = self.sent.take_if(|sent| sent.number == number) else { return };
        if status & NACK == 0 {
            return;
        }
        if status & UNAVAILABLE != 0 && taken == 0 {
            // A server that is off, say: the same packet later.
            self.sent = Some(Sent { tries: 1, ..sent });
            return;
        }
        for character in sent.characters.iter().skip(taken).rev() {
            self.typed.push_front(*character);
        }
    }
}

impl Sent {
    fn packet(&self) -> Vec<u8> {
        let mut packet = vec![self.number, 0, 0, 0];
        packet.extend(&self.characters);
        packet
    }
}

/// The serial line of a server. Dropping it ends the connection, [`Self::close`] properly.
pub struct SerialLine {
    /// What is written is typed, what is read is shown. It ends with the reason as text.
    pub stream: DuplexStream,
    task: JoinSet<()>,
}

impl SerialLine {
    /// Activates the line of an open session (24.1).
    ///
    /// # Errors
    /// The BMC has none, or not for us.
    pub async fn of(mut client: Client) -> Result<Self, LineError> {
        let data = match client.run("Activate Payload", &Command::activate_sol()).await {
            Ok(data) => data,
            Err(error) => {
                // The BMC ends the session after a while anyway.
                let _ = client.close().await;
                return Err(match error {
                    IpmiError::Completion { code: 0x80, .. } => LineError::Held,
                    IpmiError::Completion { code: 0x81, .. } => LineError::Off,
                    IpmiError::Completion { code: 0x82, .. } => LineError::Full,
                    IpmiError::Completion { code: 0x83, .. } => LineError::Plain,
                    other => other.into(),
                });
            }
        };
        let (most, port) = activated(&data).map_err(IpmiError::from)?;
        if !client.is_at(port) {
            let _ = end(&mut client).await;
            let _ = client.close().await;
            return Err(LineError::Port(port));
        }
        let (stream, inner) = duplex(ROOM);
        let mut task = JoinSet::new();
        task.spawn(Relay { client, exchange: Exchange::new(most), stream: inner }.run());
        Ok(Self { stream, task })
    }

    /// Ends it and its session properly, as far as the BMC answers.
    pub async fn close(self) {
        let Self { stream, mut task } = self;
        drop(stream);
        let _ = timeout(2 * GOODBYE, task.join_next()).await;
    }
}

/// Most characters of a packet, and the port (24.1, table 24-2).
fn activated(data: &[u8]) -> Result<(usize, u16), WireError> {
    let [_, _, _, _, low, high, _, _, port_low, port_high, ..] = data else { return Err(WireError::Short) };
    let most = usize::from(u16::from_le_bytes([*low, *high])).saturating_sub(HEADER);
    Ok((most, u16::from_le_bytes([*port_low, *port_high])))
}

async fn end(client: &mut Client) -> Result<(), IpmiError> {
    client.run("Deactivate Payload", &Command::deactivate_sol()).await.map(drop)
}

/// The task that has the session.
struct Relay {
    client: Client,
    exchange: Exchange,
    stream: DuplexStream,
}

impl Relay {
    async fn run(mut self) {
        if let Err(error) = self.both_ways().await {
            // Who reads may be gone.
            let _ = self.stream.write_all(format!("\r\n{error}\r\n").as_bytes()).await;
        }
        drop(self.stream);
        let goodbye = async {
            let _ = end(&mut self.client).await;
            let _ = self.client.close().await;
        };
        let _ = timeout(GOODBYE, goodbye).await;
    }

    /// Until who types is gone.
    async fn both_ways(&mut self) -> Result<(), LineError> {
        let (mut heard_at, mut asked_at, mut sent_at) = (Instant::now(), Instant::now(), Instant::now());
        let mut typed = [0; CHUNK];
        loop {
            if let Some(packet) = self.exchange.speak() {
                self.client.send(PAYLOAD_SOL, &packet).await?;
                sent_at = Instant::now();
            }
            let hold = asked_at + HOLD;
            let next = if self.exchange.sent.is_some() { hold.min(sent_at + AGAIN) } else { hold };
            tokio::select! {
                length = self.stream.read(&mut typed), if self.exchange.has_room() => match length {
                    Ok(0) | Err(_) => return Ok(()),
                    Ok(length) => self.exchange.take(&typed[..length]),
                },
                packet = self.client.receive(PAYLOAD_SOL) => {
                    heard_at = Instant::now();
                    let Some(payload) = packet? else { continue };
                    let Ok(heard) = self.exchange.hear(&payload) else { continue };
                    if let Some(answer) = heard.answer {
                        self.client.send(PAYLOAD_SOL, &answer).await?;
                    }
                    if !heard.shown.is_empty() && self.stream.write_all(&heard.shown).await.is_err() {
                        return Ok(());
                    }
                    if heard.ended {
                        return Err(LineError::Ended);
                    }
                }
                () = sleep_until(next) => {
                    let now = Instant::now();
                    if now - heard_at > SILENCE {
                        return Err(LineError::Silent);
                    }
                    if now >= hold {
                        // Its answer is only heard.
                        self.client.ask_nothing().await?;
                        asked_at = now;
                    }
                    if now >= sent_at + AGAIN && let Some(packet) = self.exchange.again()? {
                        self.client.send(PAYLOAD_SOL, &packet).await?;
                        sent_at = now;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &mut Exchange, packet: &[u8]) -> (String, Option<Vec<u8>>) {
        let heard = line.hear(packet).expect("a packet");
        (String::from_utf8(heard.shown).expect("text"), heard.answer)
    }

    #[test]
    fn what_the_bmc_says_is_acknowledged_and_shown_once() {
        let mut line = Exchange::new(16);
        assert_eq!(shown(&mut line, &[1, 0, 0, 0, b'a', b'b']), ("ab".to_owned(), Some(vec![0, 1, 2, 0])));
        // Our acknowledgement was lost: the same again, with what came since.
        assert_eq!(shown(&mut line, &[1, 0, 0, 0, b'a', b'b', b'c']), ("c".to_owned(), Some(vec![0, 1, 3, 0])));
        assert_eq!(shown(&mut line, &[1, 0, 0, 0, b'a', b'b', b'c']), (String::new(), Some(vec![0, 1, 3, 0])));
        assert_eq!(shown(&mut line, &[2, 0, 0, 0, b'd']), ("d".to_owned(), Some(vec![0, 2, 1, 0])));
        assert_eq!(shown(&mut line, &[0, 0, 0, 0]), (String::new(), None));
        assert_eq!(line.hear(&[1, 0, 0]), Err(WireError::Short));
    }

    #[test]
    fn one_packet_is_under_way_and_what_is_not_taken_comes_first_in_the_next() {
        let mut line = Exchange::new(4);
        assert_eq!(line.speak(), None);
        line.take(b"abcdef");
        assert_eq!(line.speak(), Some(b"\x01\0\0\0abcd".to_vec()));
        assert_eq!(line.speak(), None, "one at a time");
        assert_eq!(line.again().expect("in time"), Some(b"\x01\0\0\0abcd".to_vec()));
        // Of another packet.
        line.hear(&[0, 9, 4, 0]).expect("a packet");
        assert_eq!(line.speak(), None);
        line.hear(&[0, 1, 3, NACK]).expect("a packet");
        assert_eq!(line.speak(), Some(b"\x02\0\0\0def".to_vec()));
        line.hear(&[0, 2, 3, 0]).expect("a packet");
        assert_eq!((line.speak(), line.again().expect("nothing")), (None, None));
    }

    #[test]
    fn numbers_of_packets_leave_out_the_zero() {
        let mut line = Exchange::new(1);
        line.take(&[b'x'; 20]);
        let mut numbers = Vec::new();
        while let Some(packet) = line.speak() {
            numbers.push(packet[0]);
            line.hear(&[0, packet[0], 1, 0]).expect("a packet");
        }
        let expected: Vec<u8> = (1..=LAST).chain(1..=5).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn a_server_that_takes_nothing_now_is_asked_for_long_and_a_silent_one_is_not() {
        let mut line = Exchange::new(4);
        line.take(b"ab");
        line.speak().expect("a packet");
        for _ in 0..3 * TRIES {
            assert!(line.again().expect("it answers").is_some());
            line.hear(&[0, 1, 0, NACK | UNAVAILABLE]).expect("a packet");
        }
        let tries = (0..TRIES).filter_map(|_| line.again().ok()).count();
        assert_eq!(tries + 1, usize::try_from(TRIES).expect("few"));
        assert!(matches!(line.again(), Err(LineError::Silent)));
    }

    #[test]
    fn what_activation_answers_is_read() {
        let data = [0, 0, 0, 0, 0xff, 0x00, 0xff, 0x00, 0x6f, 0x02, 0xff, 0xff];
        assert_eq!(activated(&data), Ok((251, 623)));
        assert_eq!(activated(&data[..9]), Err(WireError::Short));
    }
}
