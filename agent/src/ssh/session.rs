//! A connection to a server, and programs that run over it.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russh::client::{self, AuthResult, Handle};
use russh::keys::{HashAlg, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{ChannelMsg, ChannelStream, Disconnect, MethodSet};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::{Identity, SshError, Target};

/// Pause until a silent server is asked for a sign of life. After three questions without an answer the connection ends.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Pause between two tries to connect.
const AGAIN: Duration = Duration::from_secs(2);
/// Time of one try: connection, keys and login.
const ONE_TRY: Duration = Duration::from_secs(20);
/// Exit code of a program that was ended by a signal: 128 plus the number of SIGKILL.
const KILLED: u32 = 128 + 9;
/// Size of a terminal, as serial lines take it for granted.
const COLUMNS: u32 = 80;
const ROWS: u32 = 24;
/// Proxies are for other machines than those of the site.
const WITHOUT_PROXIES: &str = "env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY ";
/// End of what a program says that an error carries.
const STDERR_TAIL: usize = 2000;

/// Checks the server's key, and remembers what it was.
struct Client {
    known: Option<PublicKey>,
    shown: Arc<Mutex<Option<PublicKey>>>,
}

impl client::Handler for Client {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else { return Ok(false) };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
        Ok(self.known.as_ref().is_none_or(|known| known.key_data() == key.key_data()))
    }
}

/// The result of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exit code; 128 + N where a signal ended it, as shells have it.
    pub code: u32,
    /// Standard output, if it was not handed on.
    pub stdout: Vec<u8>,
    /// End of standard error.
    pub stderr: String,
}

/// A shell on a terminal: what is written is typed, what is read is shown. It ends when it is dropped.
pub struct Terminal {
    /// Both ways.
    pub stream: ChannelStream<client::Msg>,
    /// The connection.
    pub session: Session,
}

/// A connection after the login. It ends when it is dropped.
pub struct Session {
    handle: Handle<Client>,
    target: Target,
    host_key: String,
    password: Option<String>,
    /// Whether `sudo` asks for the password.
    sudo_asks: OnceCell<bool>,
}

impl Session {
    /// Connects and logs in, and tries again for `within` while nobody answers: a server may be on its way up.
    ///
    /// # Errors
    /// Nobody answers, another key than the known one, or no way in.
    pub async fn connect(target: &Target, identity: &Identity, within: Duration) -> Result<Self, SshError> {
        let begun = Instant::now();
        loop {
            let why = match timeout(ONE_TRY, Self::try_once(target, identity)).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(TryError::Final(error))) => return Err(error),
                Ok(Err(TryError::Again(why))) => why,
                Err(_) => format!("no answer in {} s", ONE_TRY.as_secs()),
            };
            if begun.elapsed() + AGAIN >= within {
                return Err(SshError::Unreachable { target: target.to_string(), within, why });
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn try_once(target: &Target, identity: &Identity) -> Result<Self, TryError> {
        let known = match &target.host_key {
            Some(line) => Some(PublicKey::from_openssh(line).map_err(|error| {
                let what = format!("the key by which {target} is known");
                TryError::Final(SshError::Key { what, why: error.to_string() })
            })?),
            None => None,
        };
        let shown = Arc::new(Mutex::new(None));
        let config = client::Config { keepalive_interval: Some(KEEPALIVE), nodelay: true, ..client::Config::default() };
        let client = Client { known: known.clone(), shown: Arc::clone(&shown) };
        let connected = client::connect(Arc::new(config), (target.address, target.port), client).await;
        let shown = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut handle = match (connected, &known, &shown) {
            (Ok(handle), ..) => handle,
            (Err(_), Some(known), Some(shown)) if known.key_data() != shown.key_data() => {
                let print = |key: &PublicKey| key.fingerprint(HashAlg::Sha256).to_string();
                return Err(TryError::Final(SshError::OtherKey {
                    target: target.to_string(),
                    shown: print(shown),
                    known: print(known),
                }));
            }
            (Err(error), ..) => return Err(TryError::Again(crate::steps::chain(&error))),
        };
        let host_key = shown.and_then(|key| key.to_openssh().ok()).unwrap_or_default();
        log_in(&mut handle, target, identity).await?;
        let password = identity.password.clone().filter(|_| target.user != "root");
        Ok(Self { handle, target: target.clone(), host_key, password, sudo_asks: OnceCell::new() })
    }

    /// The key that the server showed, as a line (`ssh-ed25519 AAAA...`).
    pub fn host_key(&self) -> &str {
        &self.host_key
    }

    /// The target that it is connected to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Runs a program as root: as it is where root logged in, else by `sudo`. It gets `stdin`, and each line of its standard
    /// output is handed on when it comes.
    ///
    /// # Errors
    /// The connection was lost, or it ended otherwise than with 0.
    pub async fn run(&self, argv: &[&str], stdin: &[u8], mut line: impl FnMut(&str)) -> Result<Ended, SshError> {
        let mut pending = Vec::new();
        let mut hand_on = |data: &[u8]| {
            pending.extend_from_slice(data);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let whole: Vec<u8> = pending.drain(..=end).collect();
                line(String::from_utf8_lossy(&whole[..end]).trim_end_matches('\r'));
            }
        };
        let mut ended = self.execute(argv, stdin, &mut hand_on).await?;
        if !pending.is_empty() {
            line(&String::from_utf8_lossy(&pending));
        }
        ended.stdout.clear();
        self.good(argv, ended)
    }

    /// Runs a program as root and returns what it printed.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn output(&self, argv: &[&str], stdin: &[u8]) -> Result<Ended, SshError> {
        let mut stdout = Vec::new();
        let ended = self.execute(argv, stdin, &mut |data| stdout.extend_from_slice(data)).await?;
        self.good(argv, Ended { stdout, ..ended })
    }

    /// Puts a file there, whole or not at all, with these permissions.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), SshError> {
        let script = "umask 077 && mkdir -p \"$(dirname \"$1\")\" && cat > \"$1.new\" && chmod \"$2\" \"$1.new\" && sync \"$1.new\" && \
                      mv \"$1.new\" \"$1\"";
        let mode = format!("{mode:o}");
        self.output(&["sh", "-c", script, "sh", path, &mode], content).await.map(drop)
    }

    /// Opens a shell on a terminal, and leaves the rest to whoever reads and writes.
    ///
    /// # Errors
    /// The connection was lost, or there is no shell for this user.
    pub async fn terminal(self) -> Result<Terminal, SshError> {
        let lost = |error: russh::Error| SshError::Lost {
            target: self.target.to_string(),
            doing: "a shell was opened".to_owned(),
            source: Box::new(error),
        };
        let mut channel = self.handle.channel_open_session().await.map_err(lost)?;
        // A server without terminals has a shell all the same.
        channel.request_pty(false, "vt100", COLUMNS, ROWS, 0, 0, &[]).await.map_err(lost)?;
        channel.request_shell(true).await.map_err(lost)?;
        loop {
            match channel.wait().await {
                Some(ChannelMsg::Success) => break,
                Some(ChannelMsg::Failure) => return Err(lost(russh::Error::RequestDenied)),
                Some(ChannelMsg::Eof | ChannelMsg::Close) | None => return Err(lost(russh::Error::Disconnect)),
                // Such as the size of its window.
                Some(_) => {}
            }
        }
        Ok(Terminal { stream: channel.into_stream(), session: self })
    }

    /// Ends the connection properly.
    pub async fn close(self) {
        // The other side may be gone already.
        let _ = self.handle.disconnect(Disconnect::ByApplication, "", "").await;
    }

    fn good(&self, argv: &[&str], ended: Ended) -> Result<Ended, SshError> {
        if ended.code == 0 {
            return Ok(ended);
        }
        let how = format!("ended with {}", ended.code);
        let program = argv.first().copied().unwrap_or_default().to_owned();
        Err(SshError::Failed { target: self.target.to_string(), program, how, stderr: ended.stderr })
    }

    async fn execute(&self, argv: &[&str], stdin: &[u8], out: &mut impl FnMut(&[u8])) -> Result<Ended, SshError> {
        let (command, before) = self.as_root(argv).await?;
        self.start((argv, command, before), stdin, out).await
    }

    /// Starts a command line for a program, and waits for its end. `before`: what goes before its standard input.
    async fn start(
        &self,
        (argv, command, before): (&[&str], String, Option<String>),
        stdin: &[u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<Ended, SshError> {
        let lost = |error: russh::Error| SshError::Lost {
            target: self.target.to_string(),
            doing: format!("`{}` ran", argv.first().copied().unwrap_or_default()),
            source: Box::new(error),
        };
        let channel = self.handle.channel_open_session().await.map_err(lost)?;
        channel.exec(true, command).await.map_err(lost)?;
        let (mut read, write) = channel.split();
        // Beside each other: a program may say more than fits before it has read everything.
        let input = async {
            if let Some(before) = before {
                write.data(before.as_bytes()).await?;
            }
            write.data(stdin).await?;
            write.eof().await
        };
        let (mut code, mut stderr) = (None, Vec::new());
        let output = async {
            while let Some(message) = read.wait().await {
                match message {
                    ChannelMsg::Data { data } => out(&data),
                    ChannelMsg::ExtendedData { data, .. } => stderr.extend_from_slice(&data),
                    ChannelMsg::ExitStatus { exit_status } => code = Some(exit_status),
                    ChannelMsg::ExitSignal { .. } => code = code.or(Some(KILLED)),
                    _ => {}
                }
            }
        };
        let (sent, ()) = futures_util::future::join(input, output).await;
        // A program that ends before it has read everything is no loss: its exit code tells.
        if code.is_none() {
            sent.map_err(lost)?;
        }
        let code = code.ok_or_else(|| lost(russh::Error::Disconnect))?;
        let from = stderr.len().saturating_sub(STDERR_TAIL);
        Ok(Ended { code, stdout: Vec::new(), stderr: String::from_utf8_lossy(&stderr[from..]).into_owned() })
    }

    /// The command line for the server's shell, and what goes before its standard input: the password, if sudo asks for it.
    /// It is on no command line. A sudo that does not ask would leave it to the program.
    async fn as_root(&self, argv: &[&str]) -> Result<(String, Option<String>), SshError> {
        let mut line = String::new();
        let mut before = None;
        if self.target.user != "root" {
            match &self.password {
                Some(password) if *self.sudo_asks.get_or_try_init(|| self.whether_sudo_asks()).await? => {
                    // It may have asked a moment ago: `-k` has it ask again.
                    line.push_str("sudo -k -S -p '' -- ");
                    before = Some(format!("{password}\n"));
                }
                _ => line.push_str("sudo -n -- "),
            }
        }
        line.push_str(WITHOUT_PROXIES);
        for (at, argument) in argv.iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            // Writing to a String cannot fail.
            let _ = write!(line, "{space}{}", quoted(argument));
        }
        Ok((line, before))
    }

    async fn whether_sudo_asks(&self) -> Result<bool, SshError> {
        let asked = (&["sudo"][..], "sudo -k -n -- true".to_owned(), None);
        Ok(self.start(asked, b"", &mut |_| {}).await?.code != 0)
    }
}

/// As a POSIX shell reads it back.
pub(super) fn quoted(argument: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@+".contains(&byte);
    if !argument.is_empty() && argument.bytes().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

/// Why one try failed.
enum TryError {
    /// The next try may succeed.
    Again(String),
    /// No try will succeed.
    Final(SshError),
}

impl From<russh::Error> for TryError {
    fn from(error: russh::Error) -> Self {
        Self::Again(crate::steps::chain(&error))
    }
}

async fn log_in(handle: &mut Handle<Client>, target: &Target, identity: &Identity) -> Result<(), TryError> {
    let mut tried = Vec::new();
    let mut takes = MethodSet::empty();
    for key in &identity.keys {
        let hash = if key.algorithm().is_rsa() { handle.best_supported_rsa_hash().await?.flatten() } else { None };
        let key = PrivateKeyWithHashAlg::new(Arc::clone(key), hash);
        let kind = format!("a key {}", key.algorithm());
        match handle.authenticate_publickey(&target.user, key).await? {
            AuthResult::Success => return Ok(()),
            AuthResult::Failure { remaining_methods, .. } => takes = remaining_methods,
        }
        tried.push(kind);
    }
    if let Some(password) = &identity.password {
        match handle.authenticate_password(&target.user, password).await? {
            AuthResult::Success => return Ok(()),
            AuthResult::Failure { remaining_methods, .. } => takes = remaining_methods,
        }
        tried.push("a password".to_owned());
    }
    let words = |all: Vec<String>, none: &str| if all.is_empty() { none.to_owned() } else { all.join(", ") };
    let takes: Vec<String> = takes.iter().map(|method| <&str>::from(method).to_owned()).collect();
    Err(TryError::Final(SshError::Refused {
        target: target.to_string(),
        tried: words(tried, "nothing"),
        takes: words(takes, "nothing"),
    }))
}
