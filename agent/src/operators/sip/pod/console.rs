//! `host console NAME` on a jump host: the serial line of a host in a terminal, until the user leaves it.
//!
//! ```text
//! a port of the loopback address ─► NAME.ID.console in the ConfigMap ─► the controller comes to that port (see `consoles`)
//! keys ─ Ctrl-] ends it ─► the line          what it says ─► the terminal
//! ```
//! Whoever ends this program, or its SSH session, ends the connection, and with it all that the controller has open.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::host::{PATIENCE, wait_for_answer};
use crate::operators::sip::cluster::requests::{ANSWER, CONSOLE, Listener, Opening, READY};

/// What it has for its part of the greeting.
const GREETING: Duration = Duration::from_secs(10);
/// Time for the BMC.
const OPENING: Duration = Duration::from_secs(120);
/// Ctrl-], as telnet and virsh have it: `~.` is SSH's own.
const ESCAPE: u8 = 0x1d;
/// Most bytes of what the controller says before the line itself.
const WORDS: usize = 16 << 10;

/// Asks for the console of a host in the `ConfigMap` `map`, and returns the line once it is the host's. `pod`: this one.
///
/// # Errors
/// Why there is none, in the controller's words where it has some.
pub async fn open(api: &Api<ConfigMap>, map: &str, name: &str, pod: &str) -> anyhow::Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listening for the controller")?;
    let port = listener.local_addr()?.port();
    let wish = Listener { pod: pod.to_owned(), port, key: hex::encode(rand::random::<[u8; 16]>()) };
    let id = hex::encode(rand::random::<[u8; 8]>());
    let (request, answer) = (format!("{name}.{id}{CONSOLE}"), format!("{name}.{id}{ANSWER}"));
    let data = json!({"data": {request.clone(): serde_json::to_string(&wish)?}});
    api.patch(map, &PatchParams::default(), &Patch::Merge(data)).await.context("asking")?;
    let (mut hangup, mut term) = (signal(SignalKind::hangup())?, signal(SignalKind::terminate())?);
    let line = tokio::select! {
        line = come(&listener, &wish.key) => Ok(line),
        // What the controller writes down, if it cannot come.
        said = wait_for_answer(api, map, &request, &answer) => said.and_then(|said| match said {
            Some(said) => bail!("{said}"),
            None => bail!("the controller has not answered within {} s", PATIENCE.as_secs()),
        }),
        _ = hangup.recv() => Err(anyhow!("the session has ended")),
        _ = term.recv() => Err(anyhow!("ended by a signal")),
    };
    if line.is_err() {
        // Nothing is left of a request that nobody waits for.
        let data = json!({"data": {request: null, answer: null}});
        api.patch(map, &PatchParams::default(), &Patch::Merge(data)).await.context("withdrawing the request")?;
    }
    opened(line?, name).await
}

/// The connection of the controller: the first that says the key.
async fn come(listener: &TcpListener, key: &str) -> TcpStream {
    loop {
        // Others of this pod may knock; an error of one connection is not the next one's.
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        let mut said = vec![0; key.len() + 1];
        let read = timeout(GREETING, stream.read_exact(&mut said)).await;
        let right = matches!(read, Ok(Ok(_))) && said.strip_suffix(b"\n") == Some(key.as_bytes());
        if right && stream.write_all(READY).await.is_ok() {
            return stream;
        }
    }
}

/// The line, once the controller has it.
async fn opened(mut stream: TcpStream, name: &str) -> anyhow::Result<TcpStream> {
    let words = async {
        let mut line = Vec::new();
        loop {
            match stream.read_u8().await? {
                b'\n' => return io::Result::Ok(line),
                byte if line.len() < WORDS => line.push(byte),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    };
    let line = timeout(OPENING, words).await.context("the BMC is still asked")?.context("the controller is gone")?;
    match serde_json::from_slice(&line).context("what the controller says")? {
        Opening::Opened(_) => Ok(stream),
        Opening::Refused(why) => bail!("no console of `{name}`: {why}"),
    }
}

/// The first line of a session.
fn first_line(name: &str) -> String {
    format!("serial console of `{name}`; Ctrl-] ends it\r\n")
}

/// A terminal whose keys come as they are typed, until this is dropped.
struct Raw(Option<Termios>);

impl Raw {
    /// Standard input, if it is a terminal.
    fn enter() -> io::Result<Self> {
        if !io::stdin().is_terminal() {
            return Ok(Self(None));
        }
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // The terminal may be gone.
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }
}

/// What is typed up to the key that ends it, and whether it is there.
fn typed(bytes: &[u8]) -> (&[u8], bool) {
    match bytes.iter().position(|byte| *byte == ESCAPE) {
        Some(at) => (&bytes[..at], true),
        None => (bytes, false),
    }
}

/// Joins the line to standard input and output, until the user leaves or the line ends.
///
/// # Errors
/// What is wrong with the terminal.
pub fn join(line: TcpStream, name: &str) -> anyhow::Result<()> {
    let mut line = line.into_std()?;
    line.set_nonblocking(false)?;
    let _raw = Raw::enter().context("making the terminal raw")?;
    let mut shown = io::stdout();
    shown.write_all(first_line(name).as_bytes())?;
    shown.flush()?;
    let mut keys = line.try_clone()?;
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = io::stdin().read(&mut bytes) {
            let (bytes, ends) = typed(&bytes[..length]);
            if keys.write_all(bytes).is_err() || ends {
                break;
            }
        }
        // Who has nothing more to type leaves: the other thread sees the line end.
        let _ = keys.shutdown(Shutdown::Both);
    });
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = line.read(&mut bytes) {
        shown.write_all(&bytes[..length])?;
        shown.flush()?;
    }
    shown.write_all(b"\r\nthe console is closed\r\n")?;
    Ok(shown.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_before_the_escape_is_sent_and_nothing_after_it() {
        assert_eq!(typed(b"reboot\r"), (&b"reboot\r"[..], false));
        assert_eq!(typed(b"ls\x1dshutdown"), (&b"ls"[..], true));
        assert_eq!(typed(b"\x1d"), (&b""[..], true));
    }

    #[tokio::test]
    async fn only_who_has_read_the_request_is_taken_for_the_controller() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let knock = async {
            let mut wrong = TcpStream::connect(at).await.expect("connected");
            wrong.write_all(b"KEY\n").await.expect("said");
            let mut said = Vec::new();
            wrong.read_to_end(&mut said).await.expect("closed");
            assert!(said.is_empty(), "it is told nothing");
            let mut right = TcpStream::connect(at).await.expect("connected");
            right.write_all(b"key\n{\"refused\":\"it is off\"}\n").await.expect("said");
            let mut said = vec![0; READY.len()];
            right.read_exact(&mut said).await.expect("greeted");
            assert_eq!(said, READY);
        };
        let (line, ()) = tokio::join!(come(&listener, "key"), knock);
        let error = opened(line, "w1").await.expect_err("refused");
        assert_eq!(error.to_string(), "no console of `w1`: it is off");
    }
}
