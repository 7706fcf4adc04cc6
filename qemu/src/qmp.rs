//! QEMU Machine Protocol: JSON objects, one a line, over a stream.
//!
//! [`Decoder`] and [`encode`] do no I/O; [`Qmp`] drives them over a socket. The server greets, the
//! client answers `qmp_capabilities`, then sends commands with an `id` that the answer repeats.
//! Asynchronous events may stand anywhere between and are skipped.
//!
//! Source: QEMU documentation, "QEMU Machine Protocol Specification".

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest message taken from QEMU; real ones are a few KiB (`query-qmp-schema` 200 KiB).
const MAX_MESSAGE: usize = 4 << 20;

/// What can go wrong while talking to QEMU.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// The connection ended: QEMU has exited.
    #[error("QEMU closed its control connection")]
    Closed,
    /// No answer in time.
    #[error("QEMU did not answer `{command}` within {secs} s")]
    Timeout {
        /// The command, or `greeting`.
        command: String,
        /// How long was waited.
        secs: u64,
    },
    /// QEMU refused the command.
    #[error("QEMU refused `{command}`: {desc}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's class of error, mostly `GenericError`.
        class: String,
        /// QEMU's words.
        desc: String,
    },
    /// Bytes that are not the protocol.
    #[error("unexpected message from QEMU: {0}")]
    Protocol(String),
    /// Reading or writing failed.
    #[error("talking to QEMU")]
    Io(#[source] io::Error),
}

/// One message from QEMU.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The first line of a connection.
    Greeting,
    /// A command's result.
    Return {
        /// The id the command was sent with.
        id: Option<u64>,
        /// The value.
        value: Value,
    },
    /// A command's refusal.
    Error {
        /// The id the command was sent with.
        id: Option<u64>,
        /// QEMU's class of error.
        class: String,
        /// QEMU's words.
        desc: String,
    },
    /// Something that happened by itself.
    Event {
        /// Such as `SHUTDOWN`.
        name: String,
        /// Its fields, `null` if none.
        data: Value,
    },
}

/// A command as the bytes to send, newline included.
pub fn encode(id: u64, command: &str, arguments: Option<&Value>) -> String {
    let mut message = json!({ "execute": command, "id": id });
    if let Some(arguments) = arguments {
        message["arguments"] = arguments.clone();
    }
    format!("{message}\n")
}

/// Cuts a byte stream into messages.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    /// Takes bytes as they come.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), QmpError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() > MAX_MESSAGE {
            let start = String::from_utf8_lossy(&self.buffer[..80]);
            return Err(QmpError::Protocol(format!("longer than {MAX_MESSAGE} bytes: {start}...")));
        }
        Ok(())
    }

    /// The next whole message, `None` when more bytes are needed.
    pub fn next_message(&mut self) -> Result<Option<Message>, QmpError> {
        while let Some(end) = self.buffer.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return parse(&line).map(Some);
        }
        Ok(None)
    }
}

fn parse(line: &[u8]) -> Result<Message, QmpError> {
    let unexpected = || QmpError::Protocol(String::from_utf8_lossy(line).trim().to_owned());
    let mut value: Value = serde_json::from_slice(line).map_err(|_| unexpected())?;
    let id = value.get("id").and_then(Value::as_u64);
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    if value.get("QMP").is_some() {
        Ok(Message::Greeting)
    } else if let Some(result) = value.get_mut("return") {
        Ok(Message::Return { id, value: result.take() })
    } else if let Some(error) = value.get("error") {
        Ok(Message::Error { id, class: text(&error["class"]), desc: text(&error["desc"]) })
    } else if let Some(name) = value.get("event") {
        Ok(Message::Event { name: text(name), data: value.get("data").cloned().unwrap_or_default() })
    } else {
        Err(unexpected())
    }
}

/// A connection on which commands are executed one after the other.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    decoder: Decoder,
    last_id: u64,
}

impl Qmp {
    /// Waits for the greeting and negotiates capabilities (none are asked for).
    pub fn connect(stream: UnixStream, within: Duration) -> Result<Self, QmpError> {
        let mut qmp = Self { stream, decoder: Decoder::default(), last_id: 0 };
        let deadline = Instant::now() + within;
        loop {
            if qmp.receive("greeting", deadline, within)? == Message::Greeting {
                break;
            }
        }
        qmp.execute("qmp_capabilities", None, within)?;
        Ok(qmp)
    }

    /// Runs one command and returns its result; events that arrive meanwhile are skipped.
    pub fn execute(&mut self, command: &str, arguments: Option<&Value>, within: Duration) -> Result<Value, QmpError> {
        self.last_id += 1;
        let deadline = Instant::now() + within;
        self.stream.write_all(encode(self.last_id, command, arguments).as_bytes()).map_err(closed_or_io)?;
        loop {
            match self.receive(command, deadline, within)? {
                Message::Return { id, value } if id == Some(self.last_id) => return Ok(value),
                Message::Error { id, class, desc } if id == Some(self.last_id) || id.is_none() => {
                    return Err(QmpError::Refused { command: command.to_owned(), class, desc });
                }
                // The late answer to a command that timed out, or something that happened by itself.
                Message::Return { .. } | Message::Error { .. } | Message::Greeting | Message::Event { .. } => {}
            }
        }
    }

    fn receive(&mut self, command: &str, deadline: Instant, within: Duration) -> Result<Message, QmpError> {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return Ok(message);
            }
            let timeout = || QmpError::Timeout { command: command.to_owned(), secs: within.as_secs() };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timeout());
            }
            self.stream.set_read_timeout(Some(left)).map_err(QmpError::Io)?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(QmpError::Closed),
                Ok(n) => self.decoder.push(&buffer[..n])?,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(timeout());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(closed_or_io(e)),
            }
        }
    }
}

fn closed_or_io(error: io::Error) -> QmpError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => QmpError::Closed,
        _ => QmpError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::greeting(r#"{"QMP":{"version":{"qemu":{"major":10}},"capabilities":["oob"]}}"#, Message::Greeting)]
    #[case::result(r#"{"return":{"running":true},"id":7}"#, Message::Return { id: Some(7), value: json!({"running":true}) })]
    #[case::refusal(r#"{"id":2,"error":{"class":"CommandNotFound","desc":"no such"}}"#,
        Message::Error { id: Some(2), class: "CommandNotFound".into(), desc: "no such".into() })]
    #[case::event(r#"{"timestamp":{"seconds":1},"event":"RESET","data":{"guest":true}}"#,
        Message::Event { name: "RESET".into(), data: json!({"guest":true}) })]
    #[case::event_without_data(r#"{"event":"STOP"}"#, Message::Event { name: "STOP".into(), data: Value::Null })]
    fn messages_decode(#[case] line: &str, #[case] expected: Message) {
        let mut decoder = Decoder::default();
        // Byte by byte: a message may arrive in any pieces.
        for byte in line.bytes().chain(*b"\r\n") {
            assert_eq!(decoder.next_message().expect("no message yet"), None);
            decoder.push(&[byte]).expect("short");
        }
        assert_eq!(decoder.next_message().expect("valid"), Some(expected));
        assert_eq!(decoder.next_message().expect("empty"), None);
    }

    #[rstest]
    #[case("{\"what\":1}\n")]
    #[case("qemu-system-x86_64: hello\n")]
    fn other_lines_are_refused(#[case] line: &str) {
        let mut decoder = Decoder::default();
        decoder.push(line.as_bytes()).expect("short");
        assert!(matches!(decoder.next_message(), Err(QmpError::Protocol(_))));
    }

    #[test]
    fn endless_message_is_refused() {
        let mut decoder = Decoder::default();
        assert!(matches!(decoder.push(&vec![b'x'; MAX_MESSAGE + 1]), Err(QmpError::Protocol(_))));
    }

    #[test]
    fn commands_encode() {
        assert_eq!(encode(3, "cont", None), "{\"execute\":\"cont\",\"id\":3}\n");
        assert_eq!(
            encode(4, "set_link", Some(&json!({"name": "nic0", "up": false}))),
            "{\"execute\":\"set_link\",\"id\":4,\"arguments\":{\"name\":\"nic0\",\"up\":false}}\n"
        );
    }

    #[test]
    fn events_and_late_answers_are_skipped() {
        let (client, mut server) = UnixStream::pair().expect("socket pair");
        server
            .write_all(
                b"{\"QMP\":{}}\n{\"return\":{},\"id\":1}\n{\"event\":\"RESUME\"}\n{\"return\":1,\"id\":1}\n{\"return\":2,\"id\":2}\n",
            )
            .expect("writing");
        let within = Duration::from_secs(5);
        let mut qmp = Qmp::connect(client, within).expect("greeted");
        assert_eq!(qmp.execute("query-status", None, within).expect("answered"), json!(2));
        drop(server);
        assert!(matches!(qmp.execute("quit", None, within), Err(QmpError::Closed)));
    }

    #[test]
    fn silence_is_a_timeout_that_names_the_command() {
        let (client, _server) = UnixStream::pair().expect("socket pair");
        let error = Qmp::connect(client, Duration::from_millis(10)).expect_err("nobody greets");
        assert_eq!(error.to_string(), "QEMU did not answer `greeting` within 0 s");
    }
}
