//! HTTP/1.1 for files: the box sends what it holds with sendfile(2), to many clients at a time.
//!
//! ```text
//! accept  tells TLS by the first byte
//!     └─► connection  request after request ─► head (parsed) ─► Service ─► Answer
//!                                                                │  File: answer (conditions, ranges) ─► wire
//!                                                                │  Text: as it is
//!                                                                └─ PassOn: the connection, unread, to the service
//! ```
//! It is written by hand because hyper, which serves everything else of the agent, cannot use sendfile: it would copy
//! every byte twice. Only what serving files needs is here; other requests are handed to hyper, with the bytes that
//! were read.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use agent_api::release::Digest;

use crate::listen::KnownPeers;

mod accept;
mod answer;
mod ask;
pub mod client;
mod connection;
mod head;
pub mod hop;
mod wire;

pub use accept::start;
pub use answer::names;
pub use ask::ask;
pub use head::{Head, Method, decode};
pub use wire::Rewound;

/// Who asks, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the client.
    pub ip: IpAddr,
    /// Address of the box as the client reached it.
    pub local: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// What is served.
pub trait Service: Send + Sync + 'static {
    /// The answer to a request. It must not block.
    fn answer(&self, head: &Head, peer: &Peer) -> Answer;

    /// Called once an answer was sent. It must not block.
    fn sent(&self, _: &Head, _: &Peer, _: &Sent) {}

    /// Networks for which seats are kept.
    fn known(&self) -> Arc<KnownPeers> {
        Arc::default()
    }

    /// Serves a connection whose next request was answered with [`Answer::PassOn`], to its end.
    fn pass_on(self: Arc<Self>, io: Rewound, peer: Peer) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// What a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// HTTP status.
    pub status: u16,
    /// Bytes of the body that belong to the answer.
    pub bytes: u64,
    /// The client went away before the last of them.
    pub cut: bool,
}

/// What a request gets.
#[derive(Debug)]
pub enum Answer {
    /// A file, a part of it, or 304 when the client has it already.
    File(File),
    /// A short text.
    Text(Text),
    /// The service itself takes over.
    PassOn,
}

/// A file of known content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where its bytes are.
    pub file: PathBuf,
    /// Digest of all of them.
    pub digest: Digest,
    /// How many there are.
    pub size: u64,
    /// When it was written, seconds since 1970.
    pub modified: u64,
    /// `Content-Type`.
    pub kind: &'static str,
    /// Whether the path always means these bytes, because it contains the digest.
    pub immutable: bool,
    /// Whether this is a blob of the registry.
    pub blob: bool,
}

/// A short text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`.
    pub kind: &'static str,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The whole body.
    pub body: String,
}

impl Text {
    /// A text with this status.
    pub fn new(status: u16, kind: &'static str, body: impl Into<String>) -> Self {
        Self { status, kind, headers: Vec::new(), body: body.into() }
    }

    /// One line that says what is wrong.
    pub fn problem(status: u16, message: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", message.into() + "\n")
    }

    /// The same with one more header. `value` must hold no line break.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}
