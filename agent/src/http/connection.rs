//! One connection: request after request, until client or server closes it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answer::{self, http_date, reason};
use super::head::{self, Bad, Head};
use super::wire::{self, Wire};
use super::{Answer, File, Method, Peer, Sent, Service, Text};
use crate::listen::{HANDSHAKE, IDLE, Seat};

/// The head of a request is whole within this time.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Bytes that are read at a time.
const READ: usize = 2048;
/// Bytes, and time, of what a client sends that nobody reads.
const UNWANTED: usize = 1 << 20;
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves a connection to its end. Its errors concern the client alone and are dropped.
pub async fn serve<S: Service>(mut wire: Wire, (peer, place): (Peer, &Seat), service: Arc<S>, hops: Arc<Semaphore>) {
    let (mut read, mut quiet) = (Vec::new(), HANDSHAKE);
    let mut busy;
    loop {
        let (head, length) = match next_head(&mut wire, &mut read, quiet).await {
            Ok(Some(found)) => found,
            Ok(None) | Err(Refusal::Gone) => return,
            Err(Refusal::Bad(Bad(status))) => {
                let text = Text::problem(status, reason(status));
                let _ = wire.write_all(&whole_text(&text, false, false)).await;
                wire.shut_down().await;
                pass_over(&mut wire).await;
                return;
            }
        };
        busy = Some(place.begin());
        quiet = IDLE;
        let answer = service.answer(&head, &peer);
        if matches!(answer, Answer::PassOn) {
            break;
        }
        read.drain(..length);
        let sent = match answer {
            Answer::File(file) => send_file(&mut wire, &head, file, &hops).await,
            Answer::Text(text) => send_text(&mut wire, &head, &text).await,
            Answer::PassOn => break,
        };
        service.sent(&head, &peer, &sent);
        drop(busy.take());
        if sent.cut || !head.keep_alive {
            wire.shut_down().await;
            if head.has_body && !sent.cut {
                pass_over(&mut wire).await;
            }
            return;
        }
        if read.is_empty() {
            // No buffer is kept while the client is quiet.
            read = Vec::new();
        }
    }
    if let Some(io) = wire.rewind(read) {
        service.pass_on(io, peer).await;
    }
    drop(busy);
}

enum Refusal {
    Bad(Bad),
    Gone,
}

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// The next head and its length in `read`; `None` when the client closes, or is quiet for so long.
async fn next_head(wire: &mut Wire, read: &mut Vec<u8>, quiet: Duration) -> Result<Option<(Head, usize)>, Refusal> {
    if read.is_empty() && !matches!(timeout(quiet, wire.read(read, READ)).await, Ok(Ok(1..))) {
        return Ok(None);
    }
    let rest = async {
        loop {
            match head::parse(read).map_err(Refusal::Bad)? {
                Some(found) => return Ok(Some(found)),
                None if wire.read(read, READ).await? == 0 => return Ok(None),
                None => {}
            }
        }
    };
    timeout(HEAD_WITHIN, rest).await.unwrap_or(Err(Refusal::Bad(Bad(408))))
}

/// Reads a part of what the client still sends: closing upon it would take the answer away (RFC 9112, 9.6).
async fn pass_over(wire: &mut Wire) {
    let rest = async {
        let mut read = Vec::new();
        let mut passed = 0;
        while passed < UNWANTED && wire.read(&mut read, READ).await.is_ok_and(|more| more > 0) {
            passed += read.len();
            read.clear();
        }
    };
    let _ = timeout(FAREWELL, rest).await;
}

async fn send_file(wire: &mut Wire, head: &Head, file: File, hops: &Arc<Semaphore>) -> Sent {
    let decision = answer::decide(head, &file);
    let mut first = status_line(decision.status, head.keep_alive);
    first.extend_from_slice(decision.headers.as_bytes());
    first.extend_from_slice(b"\r\n");
    let bytes = decision.bytes.filter(|(_, length)| *length > 0);
    let sent = match bytes {
        None => wire.write_all(&first).await,
        Some(bytes) => match wire::open(file.file).await {
            Ok(opened) => wire.send_file(first, opened, bytes, hops).await,
            Err(error) => {
                log::error!("`{}` cannot be served: {error}", head.path);
                let text = Text::problem(500, "the file is listed, and cannot be read: the box's console says why");
                return send_text(wire, head, &text).await;
            }
        },
    };
    Sent { status: decision.status, bytes: bytes.map_or(0, |(_, length)| length), cut: sent.is_err() }
}

async fn send_text(wire: &mut Wire, head: &Head, text: &Text) -> Sent {
    let only_head = head.method == Method::Head;
    let sent = wire.write_all(&whole_text(text, head.keep_alive, only_head)).await;
    let bytes = if only_head { 0 } else { text.body.len() as u64 };
    Sent { status: text.status, bytes, cut: sent.is_err() }
}

fn status_line(status: u16, keep_alive: bool) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let close = if keep_alive { "" } else { "Connection: close\r\n" };
    let (why, now) = (reason(status), http_date(now));
    format!("HTTP/1.1 {status} {why}\r\nDate: {now}\r\n{close}X-Content-Type-Options: nosniff\r\n").into_bytes()
}

fn whole_text(text: &Text, keep_alive: bool, only_head: bool) -> Vec<u8> {
    let mut bytes = status_line(text.status, keep_alive);
    for (name, value) in &text.headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    let about = format!("Content-Type: {}\r\nContent-Length: {}\r\n\r\n", text.kind, text.body.len());
    bytes.extend_from_slice(about.as_bytes());
    if !only_head {
        bytes.extend_from_slice(text.body.as_bytes());
    }
    bytes
}
