//! Running a program to its end: argv arrays only, output captured, the tail of stderr in the error.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::cancel;
use crate::error::Interrupted;

/// Lines of stderr that an error shows.
const TAIL: usize = 25;

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It is not there, or may not be run.
    #[error("starting `{program}`")]
    Start {
        /// Program.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// It ended with another status than 0.
    #[error("`{argv}` ended with {status}{}", indented(.stderr))]
    Failed {
        /// Command line, for reading only.
        argv: String,
        /// How it ended.
        status: ExitStatus,
        /// Last lines of its error output.
        stderr: String,
        /// Its standard output, where some programs say why.
        stdout: String,
    },
    /// Its pipes broke.
    #[error("talking to `{program}`")]
    Pipe {
        /// Program.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

fn indented(stderr: &str) -> String {
    stderr.lines().flat_map(|line| ["\n  | ", line]).collect()
}

/// A program with its arguments, environment and working directory.
#[derive(Clone, Debug)]
pub struct Run {
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    clear_env: bool,
    cwd: Option<PathBuf>,
    stdin: Option<Vec<u8>>,
    shown: Option<String>,
}

impl Run {
    /// A program by name or path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            argv: vec![program.as_ref().to_owned()],
            env: Vec::new(),
            clear_env: false,
            cwd: None,
            stdin: None,
            shown: None,
        }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.argv.push(arg.as_ref().to_owned());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.argv.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.into(), value.as_ref().to_owned()));
        self
    }

    /// Nothing of this process's environment is inherited.
    #[must_use]
    pub fn clear_env(mut self) -> Self {
        self.clear_env = true;
        self
    }

    /// Of the environment only where programs are: what the program makes depends on its input alone. `TAR_OPTIONS`, a
    /// locale or a time zone of the caller's would change it.
    #[must_use]
    pub fn reproducible(self) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        self.clear_env().env("PATH", path).env("HOME", "/tmp").env("LC_ALL", "C.UTF-8").env("TZ", "UTC0")
    }

    /// Working directory.
    #[must_use]
    pub fn cwd(mut self, dir: &Path) -> Self {
        self.cwd = Some(dir.to_owned());
        self
    }

    /// What the program reads on its standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = Some(bytes);
        self
    }

    /// How errors name it instead of by its whole command line.
    #[must_use]
    pub fn shown_as(mut self, text: String) -> Self {
        self.shown = Some(text);
        self
    }

    /// The command line as a person would read it.
    pub fn display(&self) -> String {
        if let Some(text) = &self.shown {
            return text.clone();
        }
        let words: Vec<_> = self.argv.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// This process becomes it: its output, input and exit code are those of this process. Returns only why it could not.
    pub fn become_it(&self) -> RunError {
        RunError::Start { program: self.program(), source: self.command().exec() }
    }

    /// Runs it to its end and returns its standard output.
    pub fn output(&self) -> Result<Vec<u8>, RunError> {
        self.output_with(&mut |_| ())
    }

    /// Like [`Run::output`], and hands every line of error output to `on_line` as it comes.
    pub fn output_with(&self, on_line: &mut (dyn FnMut(&str) + Send)) -> Result<Vec<u8>, RunError> {
        let mut child = self.spawn()?;
        let pipe = |source| RunError::Pipe { program: self.program(), source };
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let input = self.stdin.clone();
        let (out, tail, status) = thread::scope(|scope| {
            scope.spawn(move || {
                if let (Some(mut stdin), Some(bytes)) = (stdin, input) {
                    // A program that does not read all of its input says so by its exit status.
                    let _ = stdin.write_all(&bytes);
                }
            });
            let out = scope.spawn(move || read_all(stdout));
            let tail = scope.spawn(move || read_tail(stderr, on_line));
            let status = wait(&mut child);
            (out.join(), tail.join(), status)
        });
        let status = status.map_err(|error| match error {
            WaitError::Interrupted(interrupted) => RunError::Interrupted(interrupted),
            WaitError::Io(source) => pipe(source),
        })?;
        let broken = || pipe(io::Error::other("a reader thread panicked"));
        let (out, stderr) = (out.map_err(|_| broken())?.map_err(pipe)?, tail.map_err(|_| broken())?);
        if status.success() {
            return Ok(out);
        }
        let stdout = String::from_utf8_lossy(&out).into_owned();
        Err(RunError::Failed { argv: self.display(), status, stderr, stdout })
    }

    /// Starts it and returns the handle; dropping [`Running`] kills it.
    pub fn start(&self) -> Result<Running, RunError> {
        let mut child = self.spawn()?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let drain = |pipe: Option<Box<dyn Read + Send>>| thread::spawn(move || read_tail(pipe, &mut |_| ()));
        Ok(Running {
            stderr: Some(drain(err.map(|p| Box::new(p) as _))),
            stdout: Some(drain(out.map(|p| Box::new(p) as _))),
            child,
        })
    }

    fn program(&self) -> String {
        self.argv[0].to_string_lossy().into_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one door to subprocesses")]
    fn command(&self) -> Command {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]);
        if self.clear_env {
            command.env_clear();
        }
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        if let Some(dir) = &self.cwd {
            command.current_dir(dir);
        }
        command
    }

    fn spawn(&self) -> Result<Child, RunError> {
        let mut command = self.command();
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own: Ctrl-C reaches only us, and we end the child in order.
        command.process_group(0);
        die_with_parent(&mut command);
        command.spawn().map_err(|source| RunError::Start { program: self.program(), source })
    }
}

#[expect(unsafe_code, reason = "pre_exec is unsafe by signature")]
fn die_with_parent(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).map_err(Into::into));
    }
}

/// A program that runs beside us. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stderr: Option<thread::JoinHandle<String>>,
    stdout: Option<thread::JoinHandle<String>>,
}

impl Running {
    /// Asks it to end (SIGTERM) and waits; kills it after `grace`.
    pub fn stop(mut self, grace: Duration) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let mut left = grace;
        while left > Duration::ZERO && matches!(self.child.try_wait(), Ok(None)) {
            pause(POLL);
            left = left.saturating_sub(POLL);
        }
    }

    /// What it said on stderr, when it has ended by itself.
    pub fn ended(&mut self) -> Option<String> {
        if matches!(self.child.try_wait(), Ok(None)) {
            return None;
        }
        Some(self.stderr.take().and_then(|tail| tail.join().ok()).unwrap_or_default())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in [self.stderr.take(), self.stdout.take()].into_iter().flatten() {
            let _ = reader.join();
        }
    }
}

const POLL: Duration = Duration::from_millis(20);

/// Sleeps a little. The only place of the builder that does.
#[expect(clippy::disallowed_methods, reason = "waits for other processes have no event to wait on")]
pub fn pause(time: Duration) {
    thread::sleep(time);
}

enum WaitError {
    Interrupted(Interrupted),
    Io(io::Error),
}

fn wait(child: &mut Child) -> Result<ExitStatus, WaitError> {
    let mut nap = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => return Err(WaitError::Io(error)),
        }
        if let Err(interrupted) = cancel::check() {
            // What it started is in its group, holds its pipes open, and would go on without it.
            let group = nix::unistd::Pid::from_raw(child.id().cast_signed());
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
            let _ = child.kill();
            let _ = child.wait();
            return Err(WaitError::Interrupted(interrupted));
        }
        pause(nap);
        nap = (nap * 2).min(POLL);
    }
}

fn read_all(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn read_tail(pipe: Option<impl Read>, on_line: &mut dyn FnMut(&str)) -> String {
    let mut tail: VecDeque<String> = VecDeque::new();
    let Some(pipe) = pipe else { return String::new() };
    let mut reader = BufReader::new(pipe);
    let mut raw = Vec::new();
    while reader.read_until(b'\n', &mut raw).is_ok_and(|n| n > 0) {
        let line = String::from_utf8_lossy(&raw).trim_end().to_owned();
        raw.clear();
        on_line(&line);
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(line);
    }
    Vec::from(tail).join("\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Run, RunError};

    #[test]
    fn the_error_names_the_command_and_shows_the_tail_of_stderr() {
        let error = Run::new("ls").arg("/no/such/place").output().expect_err("ls fails");
        let text = error.to_string();
        assert!(text.starts_with("`ls /no/such/place` ended with exit status: 2\n  | ls: "), "{text}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Run::new("no-such-program").output().expect_err("it is not there");
        assert!(matches!(error, RunError::Start { .. }));
        assert_eq!(error.to_string(), "starting `no-such-program`");
    }

    #[test]
    fn a_reproducible_program_has_nothing_of_the_callers() {
        let out = Run::new("env").reproducible().env("OWN", "1").output().expect("env runs");
        let names: Vec<String> =
            String::from_utf8_lossy(&out).lines().filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect();
        assert_eq!(
            names.into_iter().collect::<BTreeSet<_>>(),
            ["HOME", "LC_ALL", "OWN", "PATH", "TZ"].map(str::to_owned).into()
        );
    }

    #[test]
    fn input_reaches_the_program() {
        let out = Run::new("cat").stdin(b"abc".to_vec()).output().expect("cat runs");
        assert_eq!(out, b"abc");
    }
}
