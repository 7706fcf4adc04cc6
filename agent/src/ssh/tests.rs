//! Connections to a server on the loopback address, which runs what it is told on this machine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use russh::keys::{Algorithm, PrivateKey, PublicKey};
use russh::server::{self, Auth, Session as ServerSession, VerifiedPublicKey};
use russh::{Channel, ChannelId};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::session::quoted;
use super::{Identity, Session, SshError, Target, new_key, private_key};
use crate::host::{RunError, Runner as _, System};

/// A server that lets in one key and one password.
#[derive(Clone)]
struct Door {
    key: Option<PublicKey>,
    password: Option<&'static str>,
    /// What its shell reads first.
    profile: &'static str,
    commands: HashMap<ChannelId, (String, Vec<u8>)>,
}

impl server::Handler for Door {
    type Error = russh::Error;

    async fn auth_password(&mut self, _: &str, password: &str) -> Result<Auth, Self::Error> {
        Ok(if self.password == Some(password) { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, _: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        let good = self.key.as_ref().is_some_and(|known| known.key_data() == key.public_key.key_data());
        Ok(if good { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<server::Msg>,
        reply: server::ChannelOpenHandle,
        _: &mut ServerSession,
    ) -> Result<(), Self::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        data: &[u8],
        session: &mut ServerSession,
    ) -> Result<(), Self::Error> {
        self.commands.insert(id, (String::from_utf8_lossy(data).into_owned(), Vec::new()));
        session.channel_success(id)
    }

    async fn data(&mut self, id: ChannelId, data: &[u8], _: &mut ServerSession) -> Result<(), Self::Error> {
        if let Some((_, stdin)) = self.commands.get_mut(&id) {
            stdin.extend_from_slice(data);
        }
        Ok(())
    }

    async fn channel_eof(&mut self, id: ChannelId, session: &mut ServerSession) -> Result<(), Self::Error> {
        let Some((command, stdin)) = self.commands.remove(&id) else { return Ok(()) };
        let command = format!("{}{command}", self.profile);
        let ran = System::new().run(&["sh", "-c", &command], &stdin, Duration::from_secs(20));
        let code = match ran {
            Ok(output) => {
                session.data(id, output.stdout)?;
                0
            }
            Err(RunError::Failed { code, stderr, .. }) => {
                session.extended_data(id, 1, stderr.into_bytes())?;
                u32::try_from(code.unwrap_or(255)).unwrap_or(255)
            }
            Err(_) => 255,
        };
        session.exit_status_request(id, code)?;
        session.eof(id)?;
        session.close(id)
    }
}

/// A server that runs, and what it is known by.
struct Running {
    target: Target,
    host_key: String,
    _tasks: JoinSet<()>,
}

async fn door(key: Option<&PublicKey>, password: Option<&'static str>) -> Running {
    door_with(key, password, "").await
}

async fn door_with(key: Option<&PublicKey>, password: Option<&'static str>, profile: &'static str) -> Running {
    let host = PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).expect("a key");
    let host_key = host.public_key().to_openssh().expect("a line");
    let config = server::Config { keys: vec![host], auth_rejection_time: Duration::ZERO, ..server::Config::default() };
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    let handler = Door { key: key.cloned(), password, profile, commands: HashMap::new() };
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut sessions = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let (config, handler) = (Arc::clone(&config), handler.clone());
            sessions.spawn(async move {
                if let Ok(session) = server::run_stream(config, stream, handler).await {
                    // A client that leaves is no failure.
                    let _ = session.await;
                }
            });
        }
    });
    let target = Target { address: at.ip(), port: at.port(), user: "root".to_owned(), host_key: None };
    Running { target, host_key, _tasks: tasks }
}

const SOON: Duration = Duration::from_secs(1);

async fn entered(at: &Running, identity: &Identity) -> Session {
    Session::connect(&at.target, identity, SOON).await.unwrap_or_else(|error| panic!("{error}"))
}

fn password(text: &str) -> Identity {
    Identity { keys: Vec::new(), password: Some(text.to_owned()) }
}

async fn refused(at: &Running, target: &Target, identity: &Identity) -> String {
    let _ = at;
    match Session::connect(target, identity, SOON).await {
        Ok(_) => panic!("it was let in"),
        Err(error) => crate::steps::chain(&error),
    }
}

#[tokio::test]
async fn a_key_opens_and_else_the_password() {
    let (private, public) = new_key("test").expect("a key");
    let key = Arc::new(private_key(&private, "the key").expect("it is read back"));
    let public = PublicKey::from_openssh(&public).expect("a line");
    let by_key = door(Some(&public), None).await;
    entered(&by_key, &Identity { keys: vec![Arc::clone(&key)], password: None }).await.close().await;
    let by_password = door(None, Some("secret")).await;
    entered(&by_password, &Identity { keys: vec![key], password: Some("secret".to_owned()) }).await.close().await;
}

#[tokio::test]
async fn who_is_not_let_in_is_told_what_was_tried_and_never_the_password() {
    let at = door(None, Some("secret")).await;
    let why = refused(&at, &at.target, &password("hunter2")).await;
    assert!(why.contains("lets nobody in with a password") && !why.contains("hunter2"), "{why}");
    let why = refused(&at, &at.target, &Identity::default()).await;
    assert!(why.contains("lets nobody in with nothing"), "{why}");
    assert!(!format!("{:?}", password("hunter2")).contains("hunter2"));
}

#[tokio::test]
async fn a_server_is_known_by_its_key_from_the_first_time_on() {
    let at = door(None, Some("secret")).await;
    let session = entered(&at, &password("secret")).await;
    assert_eq!(session.host_key(), at.host_key);
    let known = Target { host_key: Some(at.host_key.clone()), ..at.target.clone() };
    Session::connect(&known, &password("secret"), SOON).await.expect("the same key");
    let (_, other) = new_key("other").expect("a key");
    let why = refused(&at, &Target { host_key: Some(other), ..at.target.clone() }, &password("secret")).await;
    assert!(why.contains("shows the key SHA256:") && why.contains("is known by SHA256:"), "{why}");
}

#[tokio::test]
async fn a_program_gets_its_input_and_its_lines_are_handed_on() {
    let at = door(None, Some("secret")).await;
    let session = entered(&at, &password("secret")).await;
    let mut lines = Vec::new();
    session
        .run(&["sh", "-c", "cat; printf 'it'\\''s \"%s\"' \"$1\"", "sh", "a b"], b"one\ntwo\n", |line| {
            lines.push(line.to_owned());
        })
        .await
        .expect("it ran");
    assert_eq!(lines, ["one", "two", "it's \"a b\""]);
    let large = vec![b'x'; 5 << 20];
    assert_eq!(session.output(&["cat"], &large).await.expect("it ran").stdout, large);
}

/// sudo that asks for the password, each time or not for a while; that does not ask, as images of clouds have it; that nobody
/// may use. Whatever it does not read would be read by the program.
#[tokio::test]
async fn a_program_gets_its_input_and_never_the_password_of_sudo() {
    const ASKS: &str = "sudo() { case $* in -k*-n*) return 1;; -k*) read -r given;; esac; [ \"$given\" = secret ] || return 1; \
                        while [ \"$1\" != -- ]; do shift; done; shift; \"$@\"; }; ";
    const NEVER_ASKS: &str = "sudo() { while [ \"$1\" != -- ]; do shift; done; shift; \"$@\"; }; ";
    for (profile, good) in [(ASKS, true), (NEVER_ASKS, true), ("sudo() { return 1; }; ", false)] {
        let mut at = door_with(None, Some("secret"), profile).await;
        at.target.user = "debian".to_owned();
        let session = entered(&at, &password("secret")).await;
        for _ in 0..2 {
            let ran = session.output(&["cat"], b"plan\n").await.map(|ended| ended.stdout);
            assert_eq!(ran.ok(), good.then(|| b"plan\n".to_vec()), "{profile}");
        }
    }
}

/// A site's proxy, as `/etc/environment` gives it to whoever logs in.
#[tokio::test]
async fn programs_do_not_go_through_proxies() {
    let at = door_with(None, Some("secret"), "export https_proxy=http://p HTTP_PROXY=http://p KEPT=1; ").await;
    let session = entered(&at, &password("secret")).await;
    let seen = session.output(&["sh", "-c", "echo \"$https_proxy$HTTP_PROXY$KEPT\""], b"").await.expect("it ran");
    assert_eq!(seen.stdout, b"1\n");
}

#[tokio::test]
async fn a_program_that_fails_is_told_with_what_it_said() {
    let at = door(None, Some("secret")).await;
    let session = entered(&at, &password("secret")).await;
    let error = session.output(&["sh", "-c", "echo no disk >&2; exit 3"], b"").await.expect_err("it failed");
    assert!(matches!(error, SshError::Failed { .. }));
    let text = error.to_string();
    assert!(text.contains("ended with 3") && text.contains("no disk"), "{text}");
}

#[tokio::test]
async fn a_file_is_put_whole_with_its_permissions() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a folder/it's");
    let at = door(None, Some("secret")).await;
    let session = entered(&at, &password("secret")).await;
    session.put(path.to_str().expect("UTF-8"), b"new\n", 0o750).await.expect("put");
    assert_eq!(fs_err::read(&path).expect("there"), b"new\n");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs_err::metadata(&path).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o750);
}

#[tokio::test]
async fn nobody_at_the_address_is_told_with_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    drop(listener);
    let target = Target { address: at.ip(), port: at.port(), user: "root".to_owned(), host_key: None };
    let error = Session::connect(&target, &password("x"), SOON).await.err().expect("nobody");
    let text = error.to_string();
    assert!(text.contains("no SSH at root@127.0.0.1") && text.to_lowercase().contains("refused"), "{text}");
}

#[test]
fn arguments_reach_a_program_as_they_are() {
    for argument in ["", "plain", "a b", "it's", "$(reboot)", "`x`", "a\"b", "*", "-p", "ä", "a\nb"] {
        let echoed =
            System::new().run(&["sh", "-c", &format!("printf %s {}", quoted(argument))], b"", SOON).expect("sh");
        assert_eq!(echoed.text(), argument);
    }
}
