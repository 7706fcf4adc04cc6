//! `cargo foothold`: compiles the builder, says from the first minute how far that is and how long it still takes, and
//! becomes it.
//!
//! ```text
//! cargo tree  ─► its crates
//! cargo build ─► each crate that is done ─► how many of them, how long still
//! cargo run   ─► the builder, in the place of this program
//! ```
//! Without anything to compile it says nothing. Source: the Cargo Book, "External tools" (JSON messages).

mod progress;

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use progress::{Progress, done};

/// The package and program that is compiled and started.
const BUILDER: [&str; 4] = ["--package", "foothold", "--bin", "foothold"];
/// How often the line on a terminal is written again, and how often another line is written where there is no terminal.
const ON_TERMINAL: Duration = Duration::from_secs(1);
const ELSEWHERE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    match launch() {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "cargo foothold: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Where the workspace is, as cargo says to a program that it runs.
fn workspace() -> PathBuf {
    let own =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.ancestors().nth(2).map_or(own.clone(), PathBuf::from)
}

/// A command of the cargo that runs this program.
fn cargo(command: &str) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    #[expect(clippy::disallowed_methods, reason = "this program has no `host/`: it is to be compiled within a second")]
    let mut cargo = Command::new(program);
    cargo.arg(command).arg("--manifest-path").arg(workspace().join("Cargo.toml"));
    cargo
}

fn launch() -> io::Result<ExitCode> {
    if !build()? {
        return Ok(ExitCode::FAILURE);
    }
    let error = cargo("run").args(["--quiet", "--release"]).args(BUILDER).arg("--").args(env::args_os().skip(1)).exec();
    Err(error)
}

/// The crates of the builder, as `name version`. None when cargo does not say: then there is no estimate, and cargo says why
/// when it builds.
fn crates() -> io::Result<Vec<String>> {
    let mut tree = cargo("tree");
    tree.args(["--package", BUILDER[1], "--edges", "normal,build", "--prefix", "none"]).stderr(Stdio::inherit());
    let told = tree.output()?;
    let text = String::from_utf8_lossy(&told.stdout);
    Ok(if told.status.success() { progress::crates_of(&text) } else { Vec::new() })
}

/// What the threads that read cargo's lines say.
enum Said {
    /// A crate is done, and whether it was compiled now.
    Done { krate: String, was_fresh: bool },
    /// A line for the user.
    Line(String),
}

/// Compiles the builder. False when it cannot be compiled: cargo has said why.
fn build() -> io::Result<bool> {
    let crates = crates()?;
    let mut build = cargo("build");
    build.args(["--release", "--message-format", "json-render-diagnostics"]).args(BUILDER);
    let is_terminal = io::stderr().is_terminal();
    if is_terminal && env::var_os("CARGO_TERM_COLOR").is_none() && env::var_os("NO_COLOR").is_none() {
        build.env("CARGO_TERM_COLOR", "always");
    }
    let mut child =
        build.env("CARGO_TERM_PROGRESS_WHEN", "never").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let said = listen(&mut child, !crates.is_empty());
    let mut screen = Screen { is_terminal, line: false };
    follow(&said, Progress::new(crates, Instant::now()), &mut screen)?;
    screen.clear()?;
    Ok(child.wait()?.success())
}

/// Reads both outputs of cargo, each in a thread of its own, until they end. `counts`: single crates are counted here, so
/// that their lines need not be shown.
fn listen(child: &mut Child, counts: bool) -> Receiver<Said> {
    let (tell, said) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        read(out, tell.clone(), |line| done(&line).map(|(krate, was_fresh)| Said::Done { krate, was_fresh }));
    }
    if let Some(err) = child.stderr.take() {
        read(err, tell, move |line| (!counts || progress::is_for_users(&line)).then_some(Said::Line(line)));
    }
    said
}

fn read(
    from: impl io::Read + Send + 'static,
    tell: Sender<Said>,
    what: impl Fn(String) -> Option<Said> + Send + 'static,
) {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            if let Some(said) = what(String::from_utf8_lossy(&line).into_owned())
                && tell.send(said).is_err()
            {
                return;
            }
        }
    });
}

/// Shows what is done until cargo says no more.
fn follow(said: &Receiver<Said>, mut progress: Progress, screen: &mut Screen) -> io::Result<()> {
    let every = if screen.is_terminal { ON_TERMINAL } else { ELSEWHERE };
    let mut next = Instant::now();
    loop {
        match said.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Said::Done { krate, was_fresh }) => progress.is_done(&krate, was_fresh, Instant::now()),
            Ok(Said::Line(line)) => screen.say(&line)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if now >= next {
            if let Some(text) = progress.ahead(now) {
                screen.say(text)?;
            }
            if let Some(text) = progress.text(now) {
                screen.show(&text)?;
            }
            next = now + if progress.has_begun(now) { every } else { ON_TERMINAL };
        }
    }
}

/// Standard error: one line that changes on a terminal, lines elsewhere.
struct Screen {
    is_terminal: bool,
    /// Whether the line that changes is there.
    line: bool,
}

impl Screen {
    fn show(&mut self, text: &str) -> io::Result<()> {
        if !self.is_terminal {
            return writeln!(io::stderr(), "{text}");
        }
        self.line = true;
        let mut out = io::stderr();
        write!(out, "\r\x1b[K{text}")?;
        out.flush()
    }

    fn clear(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.line) { write!(io::stderr(), "\r\x1b[K") } else { Ok(()) }
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        self.clear()?;
        writeln!(io::stderr(), "{line}")
    }
}
