//! Serial consoles of machines over SSH, as `SerialConsole` of a system's document offers them (DMTF DSP2046,
//! `ComputerSystem.SerialConsole`).
//!
//! ```text
//! client ── SSH: password ─► one machine: its serial line
//!                            several: `console NAME`, then that one's
//! ```
//! One session for a machine; the second is told. Nothing that passes is kept.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::keys::{Algorithm, PrivateKey};
use russh::server::{self, Auth, ChannelOpenHandle, Handler, Msg, Session};
use russh::{Channel, ChannelId, MethodKind, MethodSet, Pty};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy, split};
use tokio::net::TcpListener;
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::change::Guard;
use super::power::Power;
use super::service::lock;

/// A client that is silent is asked for a sign of life so often.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Between two tries to accept, after the process ran out of file descriptors.
const AGAIN: Duration = Duration::from_millis(200);
/// Most bytes of a command.
const COMMAND: usize = 256;
/// The command that leads to a console.
const CONSOLE: &str = "console ";

/// How a system's document offers its console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// Port of SSH.
    pub port: u16,
    /// The name that is asked for, where several machines share the port.
    pub name: Option<String>,
}

impl Offer {
    /// `SerialConsole`.
    pub fn document(&self) -> Value {
        let mut ssh = json!({"ServiceEnabled": true, "Port": self.port, "SharedWithManagerCLI": self.name.is_some()});
        if let Some(name) = &self.name {
            ssh["ConsoleEntryCommand"] = json!(format!("{CONSOLE}{name}"));
        }
        json!({"MaxConcurrentSessions": 1, "SSH": ssh})
    }
}

/// A key for a server that makes a new one each time.
pub(super) fn new_key() -> Result<PrivateKey, Box<dyn Error + Send + Sync>> {
    Ok(PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519)?)
}

/// Finds a machine by its name.
type Find = dyn Fn(&str) -> Option<Arc<dyn Power>> + Send + Sync;

/// Who may come in, and to which machines.
pub(super) struct Front {
    guard: Arc<dyn Guard>,
    find: Box<Find>,
    /// The machine that everybody means; without it they say which.
    only: Option<String>,
    /// Machines whose console somebody has.
    taken: Mutex<BTreeSet<String>>,
}

/// A console that is somebody's until this is dropped.
struct Turn<'a> {
    front: &'a Front,
    name: String,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.front.taken).remove(&self.name);
    }
}

impl Front {
    /// Before one machine.
    pub fn of_one(guard: Arc<dyn Guard>, name: &str, power: Arc<dyn Power>) -> Self {
        let find = Box::new(move |_: &str| Some(Arc::clone(&power)));
        Self { guard, find, only: Some(name.to_owned()), taken: Mutex::default() }
    }

    /// Before those that are found.
    pub fn of_many(guard: Arc<dyn Guard>, find: Box<Find>) -> Self {
        Self { guard, find, only: None, taken: Mutex::default() }
    }

    fn take(&self, name: &str) -> Option<Turn<'_>> {
        lock(&self.taken).insert(name.to_owned()).then(|| Turn { front: self, name: name.to_owned() })
    }

    /// One session, to its end.
    async fn attend(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        if let Err(words) = self.console(&mut stream).await {
            // The client may be gone.
            let _ = stream.write_all(format!("{words}\r\n").as_bytes()).await;
        }
        let _ = stream.shutdown().await;
    }

    /// Errors are words for the client.
    async fn console(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<(), String> {
        let name = match &self.only {
            Some(name) => name.clone(),
            None => asked(stream).await?,
        };
        let power = (self.find)(&name).ok_or_else(|| format!("there is no machine `{name}`"))?;
        let _turn = self.take(&name).ok_or_else(|| format!("somebody else has the console of `{name}`"))?;
        let line = power.serial().map_err(|error| format!("{error}: {}", error.source))?;
        let line = line.ok_or_else(|| format!("`{name}` has no serial line"))?;
        let ((mut typed, mut shown), (mut said, mut port)) = (split(stream), split(line));
        // Whoever ends first ends it.
        let _ = tokio::select! {
            ended = copy(&mut typed, &mut port) => ended,
            ended = copy(&mut said, &mut shown) => ended,
        };
        Ok(())
    }
}

/// The machine whose console a line asks for.
async fn asked(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<String, String> {
    let lost = |error: io::Error| error.to_string();
    stream.write_all(b"> ").await.map_err(lost)?;
    let mut line = Vec::new();
    loop {
        let byte = stream.read_u8().await.map_err(lost)?;
        if matches!(byte, b'\r' | b'\n') {
            break;
        }
        line.push(byte);
        stream.write_all(&[byte]).await.map_err(lost)?;
        if line.len() > COMMAND {
            return Err(format!("\r\na command has at most {COMMAND} bytes"));
        }
    }
    stream.write_all(b"\r\n").await.map_err(lost)?;
    let line = String::from_utf8_lossy(&line);
    let name = line.trim().strip_prefix(CONSOLE).map(|name| name.trim().to_owned());
    name.ok_or_else(|| format!("found `{}`, expected `{CONSOLE}NAME`", line.trim()))
}

/// Serves until told to stop; its sessions end with it.
pub(super) async fn serve(listener: TcpListener, key: PrivateKey, front: Arc<Front>, stop: CancellationToken) {
    let config = Arc::new(server::Config {
        keys: vec![key],
        methods: MethodSet::from(&[MethodKind::Password][..]),
        inactivity_timeout: None,
        keepalive_interval: Some(KEEPALIVE),
        nodelay: true,
        ..server::Config::default()
    });
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let visitor = Visitor { front: Arc::clone(&front), channels: HashMap::new(), tasks: JoinSet::new() };
                    let config = Arc::clone(&config);
                    sessions.spawn(async move {
                        if let Ok(session) = server::run_stream(config, stream, visitor).await {
                            // A client that leaves is no failure.
                            let _ = session.await;
                        }
                    });
                }
                Err(error) => {
                    log::warn!("accepting a connection to a console: {error}");
                    tokio::time::sleep(AGAIN).await;
                }
            },
            Some(_) = sessions.join_next() => {}
        }
    }
}

/// A client. Its consoles end with it.
struct Visitor {
    front: Arc<Front>,
    channels: HashMap<ChannelId, Channel<Msg>>,
    tasks: JoinSet<()>,
}

impl Handler for Visitor {
    type Error = russh::Error;

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        let (front, user, password) = (Arc::clone(&self.front), user.to_owned(), password.to_owned());
        // Hashes of passwords take their time.
        let good = spawn_blocking(move || front.guard.lets_in(&user, &password)).await.unwrap_or(false);
        Ok(if good { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.channels.insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        _: &str,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(id)
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        let Some(channel) = self.channels.remove(&id) else { return session.channel_failure(id) };
        session.channel_success(id)?;
        let front = Arc::clone(&self.front);
        self.tasks.spawn(async move { front.attend(channel.into_stream()).await });
        Ok(())
    }
}

#[cfg(test)]
#[path = "console_tests.rs"]
mod tests;
