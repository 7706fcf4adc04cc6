//! Consoles on loopback, asked by a client over SSH; a socket pair stands in for QEMU's serial port.

use russh::client::{self, Handle};
use russh::keys::PublicKeyOrCertificate;
use russh::keys::ssh_key::LineEnding;
use tokio::net::UnixStream;

use super::*;
use crate::bmc::{Bmc, Enclosure, EnclosureOptions, Machine, MemoryPower, Options, Profile};

const PASSWORD: &str = "a password of this test";

struct Anybody;

impl client::Handler for Anybody {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

struct Entered {
    stream: russh::ChannelStream<client::Msg>,
    _handle: Handle<Anybody>,
}

impl Entered {
    async fn at(port: u16, password: &str) -> Option<Self> {
        let mut handle = client::connect(Arc::default(), ("127.0.0.1", port), Anybody).await.expect("a server");
        if !handle.authenticate_password("admin", password).await.expect("an answer").success() {
            return None;
        }
        let channel = handle.channel_open_session().await.expect("a channel");
        channel.request_pty(false, "vt100", 80, 24, 0, 0, &[]).await.expect("asked");
        channel.request_shell(false).await.expect("asked");
        Some(Self { stream: channel.into_stream(), _handle: handle })
    }

    /// What comes until that text does.
    async fn until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            let mut bytes = [0; 512];
            let length = self.stream.read(&mut bytes).await.expect("read");
            assert_ne!(length, 0, "it ended after `{seen}`");
            seen += &String::from_utf8_lossy(&bytes[..length]);
        }
        seen
    }
}

async fn heard(end: &mut UnixStream, wanted: &str) {
    let mut bytes = vec![0; wanted.len()];
    end.read_exact(&mut bytes).await.expect("typed");
    assert_eq!(String::from_utf8_lossy(&bytes), wanted);
}

fn a_bmc(power: &Arc<MemoryPower>, tasks: &mut JoinSet<()>) -> (Bmc, u16) {
    let profile = Profile::known("generic").expect("a profile");
    let machine = Machine { serial_line: true, ..Machine::default() };
    let options = Options { machine, ..Options::on_loopback(profile, PASSWORD, power.clone()) };
    let bmc = Bmc::start(tasks, options, &CancellationToken::new()).expect("started");
    let port = bmc.service.console.as_ref().expect("a console").port;
    (bmc, port)
}

#[tokio::test]
async fn a_console_is_joined_to_the_line_both_ways_and_is_one_users() {
    let (power, mut tasks) = (Arc::new(MemoryPower::default()), JoinSet::new());
    let (_bmc, port) = a_bmc(&power, &mut tasks);
    assert!(Entered::at(port, "another").await.is_none(), "its password is needed");

    let mut first = Entered::at(port, PASSWORD).await.expect("let in");
    let mut line = power.line().await;
    line.write_all(b"login: ").await.expect("said");
    first.until("login: ").await;
    first.stream.write_all(b"root\r").await.expect("typed");
    heard(&mut line, "root\r").await;

    let mut second = Entered::at(port, PASSWORD).await.expect("let in");
    second.until("somebody else has the console of `server`\r\n").await;

    drop(first);
    let mut rest = Vec::new();
    line.read_to_end(&mut rest).await.expect("the line is let go");
    let _third = Entered::at(port, PASSWORD).await.expect("let in");
    power.line().await;
}

#[tokio::test]
async fn a_system_says_how_its_console_is_reached_if_it_has_one() {
    let (power, mut tasks) = (Arc::new(MemoryPower::default()), JoinSet::new());
    let (bmc, port) = a_bmc(&power, &mut tasks);
    let system = bmc.service.document(&crate::bmc::place::Place::System).await.expect("a document");
    let expected = json!({"MaxConcurrentSessions": 1, "SSH": {"ServiceEnabled": true, "Port": port, "SharedWithManagerCLI": false}});
    assert_eq!(system["SerialConsole"], expected);

    let profile = Profile::known("generic").expect("a profile");
    let options = Options::on_loopback(profile, PASSWORD, power);
    let bmc = Bmc::start(&mut tasks, options, &CancellationToken::new()).expect("started");
    let system = bmc.service.document(&crate::bmc::place::Place::System).await.expect("a document");
    assert_eq!(system["SerialConsole"], Value::Null);
}

#[tokio::test]
async fn machines_of_an_enclosure_are_asked_for_by_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let media = tempfile::tempdir().expect("a folder");
    let guard = Arc::new(crate::bmc::change::Account { user: "admin".to_owned(), password: PASSWORD.to_owned() });
    let options = EnclosureOptions { guard, consoles: Some(port), images: media.path().to_owned(), looks: None };
    let enclosure = Enclosure::new(options).expect("an enclosure");
    let power = Arc::new(MemoryPower::default());
    for name in ["one", "two"] {
        let machine = Machine { name: name.to_owned(), serial_line: true, ..Machine::default() };
        enclosure.put(machine, if name == "two" { power.clone() } else { Arc::new(MemoryPower::default()) });
    }
    let key = new_key().expect("a key").to_openssh(LineEnding::LF).expect("a text").to_string();
    let mut tasks = JoinSet::new();
    let serving = enclosure.clone();
    tasks.spawn(async move {
        serving.serve_consoles(listener, &key, CancellationToken::new()).await.expect("a key");
    });
    let mut client = Entered::at(port, PASSWORD).await.expect("let in");
    client.stream.write_all(b"console two\r").await.expect("typed");
    let mut line = power.line().await;
    line.write_all(b"two# ").await.expect("said");
    client.until("two# ").await;
    for (command, words) in
        [("console six\r", "no machine `six`"), ("reboot\r", "found `reboot`, expected `console NAME`")]
    {
        let mut client = Entered::at(port, PASSWORD).await.expect("let in");
        client.stream.write_all(command.as_bytes()).await.expect("typed");
        client.until(words).await;
    }
}
