//! Servers over SSH: one connection, programs on it, files by standard input.
//!
//! ```text
//! Target (address, user) + Identity (key, password) ─connect─► Session ─┬─ run: a program, its output line by line
//!                                                       ├ terminal: a shell, both ways
//!            host key: as known, else told back ◄──────────────────────┘   └ put: a file, whole or not at all
//! ```
//! If a server's key is known, the server must show this key. If not, the key that it shows is returned, so that the caller
//! can remember it.

mod session;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};

pub use session::{Ended, Session, Terminal};

/// Where a server is, and who logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Who logs in.
    pub user: String,
    /// Its key as it is known (`ssh-ed25519 AAAA...`).
    pub host_key: Option<String>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(address) => write!(f, "{}@{address}:{}", self.user, self.port),
            IpAddr::V6(address) => write!(f, "{}@[{address}]:{}", self.user, self.port),
        }
    }
}

/// Keys and password of a client, tried in this order. They are never printed.
#[derive(Clone, Default)]
pub struct Identity {
    /// Keys.
    pub keys: Vec<Arc<PrivateKey>>,
    /// A password, also for `sudo`.
    pub password: Option<String>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Identity({} keys, {})",
            self.keys.len(),
            if self.password.is_some() { "a password" } else { "no password" }
        )
    }
}

/// Why a server cannot be worked with.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// Nobody answers.
    #[error("no SSH at {target} within {} s: {why}", .within.as_secs())]
    Unreachable {
        /// Where.
        target: String,
        /// Patience.
        within: Duration,
        /// In words.
        why: String,
    },
    /// The server shows another key than the known one.
    #[error(
        "{target} shows the key {shown}, and is known by {known}; hint: if it was installed anew, remove `hostKey` of the node from the status"
    )]
    OtherKey {
        /// Where.
        target: String,
        /// Fingerprint.
        shown: String,
        /// Fingerprint.
        known: String,
    },
    /// The server accepts none of the keys and passwords.
    #[error(
        "{target} lets nobody in with {tried}; hint: it takes {takes}; the Secret needs a `password` or `ssh-privatekey` that it knows"
    )]
    Refused {
        /// Where.
        target: String,
        /// What was offered.
        tried: String,
        /// What the server accepts.
        takes: String,
    },
    /// A key cannot be read.
    #[error("{what}: {why}")]
    Key {
        /// Which.
        what: String,
        /// In words.
        why: String,
    },
    /// The connection was lost.
    #[error("the connection to {target} was lost while {doing}")]
    Lost {
        /// Where.
        target: String,
        /// What it was used for.
        doing: String,
        /// Why.
        #[source]
        source: Box<russh::Error>,
    },
    /// A program ended with another exit code than 0.
    #[error("`{program}` on {target} {how}{}", tail(.stderr))]
    Failed {
        /// Where.
        target: String,
        /// The program.
        program: String,
        /// `ended with 1`.
        how: String,
        /// End of what it said.
        stderr: String,
    },
}

fn tail(stderr: &str) -> String {
    let text = stderr.trim();
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// A private key in the formats of OpenSSH, PKCS#1, PKCS#8 or SEC1. `what` it is for errors.
///
/// # Errors
/// What cannot be read, or is locked by a passphrase.
pub fn private_key(text: &str, what: &str) -> Result<PrivateKey, SshError> {
    russh::keys::decode_secret_key(text, None)
        .map_err(|error| SshError::Key { what: what.to_owned(), why: error.to_string() })
}

/// A new key, ed25519: the private one in the format of OpenSSH, and the line for `authorized_keys`.
///
/// # Errors
/// Only if the key cannot be encoded, which does not happen with a new one.
pub fn new_key(comment: &str) -> Result<(String, String), SshError> {
    let failed =
        |error: russh::keys::ssh_key::Error| SshError::Key { what: "a new key".to_owned(), why: error.to_string() };
    let mut key = PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).map_err(failed)?;
    key.set_comment(comment);
    let private = key.to_openssh(LineEnding::LF).map_err(failed)?;
    Ok((private.to_string(), key.public_key().to_openssh().map_err(failed)?))
}
