//! Running other programs: an argument vector, bytes for standard input, a deadline.
//!
//! [`System`] runs them for real, alone in a process group that dies at the deadline. A gentle one asks the group to end
//! first, at the deadline and when this program must end. Tests use `FakeRunner`, which answers from a list and remembers
//! what was asked.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as Told};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use rustix::time::Timespec;

/// How much of standard error an error carries.
const STDERR_TAIL: usize = 2000;
/// Most that a program may print.
const MOST_OUTPUT: usize = 128 << 20;

/// How a program ended that was asked to.
const STOPPED: &str = "was ended before it was done, because this program must end";

/// What a program that ended with 0 printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// Why a program did not end with 0.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not be started.
    #[error("starting `{program}`")]
    Start {
        /// Program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended otherwise.
    #[error("`{call}` {how}{}", tail_of(.stderr))]
    Failed {
        /// The whole argument vector.
        call: String,
        /// `ended with 1`, or `was killed by signal 9`.
        how: String,
        /// Exit code, if it ended by itself.
        code: Option<i32>,
        /// End of its standard error.
        stderr: String,
    },
    /// The deadline passed; it was ended.
    #[error("`{call}` was ended after {} s{}", .after.as_secs(), tail_of(.stderr))]
    Deadline {
        /// The whole argument vector.
        call: String,
        /// Deadline.
        after: Duration,
        /// End of its standard error.
        stderr: String,
    },
    /// Reading from or writing to it failed.
    #[error("talking to `{program}`")]
    Pipe {
        /// Program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn tail_of(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}

/// Runs programs.
pub trait Runner: Send + Sync + std::fmt::Debug {
    /// Runs `argv`, gives it `stdin`, and kills it and its children at the deadline.
    fn run(&self, argv: &[&str], stdin: &[u8], deadline: Duration) -> Result<Output, RunError>;
}

/// The machine itself, or a root directory on it.
#[derive(Clone, Debug, Default)]
pub struct System {
    root: Option<PathBuf>,
    gentle: Option<Gentle>,
}

/// Programs are asked to end before they are killed.
#[derive(Clone, Debug)]
struct Gentle {
    /// How long they may take to end.
    grace: Duration,
    /// Readable from when this program must end.
    told: Arc<SignalFd>,
}

impl System {
    /// Runs programs of the running root.
    pub const fn new() -> Self {
        Self { root: None, gentle: None }
    }

    /// Runs programs of the running root, which get SIGTERM and `grace` before they are killed: at their deadline, and when
    /// this program gets SIGTERM or SIGINT. From then on each that is started is ended. The signals no longer end this
    /// program, but the end of its program does. Only for a process that has one thread yet.
    ///
    /// # Errors
    /// The signals cannot be waited for.
    pub fn gentle(grace: Duration) -> io::Result<Self> {
        let signals: SigSet = [Told::SIGTERM, Told::SIGINT].into_iter().collect();
        // Blocked, they also reach the first process of a container, which has no other defaults.
        signals.thread_block()?;
        let told = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { root: None, gentle: Some(Gentle { grace, told: Arc::new(told) }) })
    }

    /// Runs programs chrooted in `root`.
    pub fn in_root(root: &Path) -> Self {
        Self { root: Some(root.to_owned()), gentle: None }
    }

    fn command(&self, argv: &[&str]) -> Command {
        #[expect(clippy::disallowed_methods, reason = "this is the one door to subprocesses")]
        let mut command = Command::new(argv[0]);
        command
            .args(&argv[1..])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("HOME", "/root")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(root) = self.root.clone() {
            enter_root(&mut command, root);
        }
        if self.gentle.is_some() {
            unblock_signals(&mut command);
        }
        command
    }
}

/// The program gets its signals: what this program has blocked would be blocked there, too.
#[expect(unsafe_code, reason = "`pre_exec` runs between fork and exec")]
pub(super) fn unblock_signals(command: &mut Command) {
    // SAFETY: the closure makes one call, pthread_sigmask(3), which is safe there, and allocates nothing.
    unsafe { command.pre_exec(|| Ok(SigSet::empty().thread_set_mask()?)) };
}

#[expect(unsafe_code, reason = "`pre_exec` runs between fork and exec")]
fn enter_root(command: &mut Command, root: PathBuf) {
    let enter = move || {
        rustix::process::chroot(root.as_path())?;
        rustix::process::chdir("/")?;
        Ok(())
    };
    // SAFETY: the closure makes two system calls and allocates nothing: `PathBuf` is shorter than
    // rustix's path buffer on the stack.
    unsafe { command.pre_exec(enter) };
}

impl Runner for System {
    fn run(&self, argv: &[&str], stdin: &[u8], deadline: Duration) -> Result<Output, RunError> {
        let program = argv[0].to_owned();
        let child = self.command(argv).spawn().map_err(|source| RunError::Start { program, source })?;
        end_by(child, &argv.join(" "), stdin, deadline, self.gentle.as_ref())
    }
}

/// Talks to a started program until it ends, or kills it at the deadline.
pub(super) fn end(child: Child, call: &str, stdin: &[u8], deadline: Duration) -> Result<Output, RunError> {
    end_by(child, call, stdin, deadline, None)
}

fn end_by(
    mut child: Child,
    call: &str,
    stdin: &[u8],
    deadline: Duration,
    gentle: Option<&Gentle>,
) -> Result<Output, RunError> {
    let mut output = Output::default();
    let ended = talk(&mut child, stdin, deadline, gentle, &mut output).map_err(|source| {
        kill(&mut child);
        RunError::Pipe { program: call.split(' ').next().unwrap_or_default().to_owned(), source }
    })?;
    let (call, stderr) = (call.to_owned(), tail(&output.stderr));
    if ended.status.is_none() {
        kill(&mut child);
    }
    match (ended.status, ended.asked) {
        (Some(status), _) if status.success() => Ok(output),
        (Some(status), None) => Err(RunError::Failed { call, how: describe(status), code: status.code(), stderr }),
        (_, Some(Why::Told)) => Err(RunError::Failed { call, how: STOPPED.to_owned(), code: None, stderr }),
        (None, None) | (_, Some(Why::Deadline)) => Err(RunError::Deadline { call, after: deadline, stderr }),
    }
}

/// Why a program was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Its deadline passed.
    Deadline,
    /// This program must end.
    Told,
}

/// How a program ended.
struct Ended {
    /// `None`: it still runs.
    status: Option<ExitStatus>,
    /// Why it was asked to end, if it was.
    asked: Option<Why>,
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

fn tail(bytes: &[u8]) -> String {
    let start = bytes.len().saturating_sub(STDERR_TAIL);
    String::from_utf8_lossy(&bytes[start..]).trim().to_owned()
}

fn kill(child: &mut Child) {
    signal(child, Signal::KILL);
    let _ = child.wait();
}

/// Tells the whole group.
fn signal(child: &Child, signal: Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

fn unblock(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

/// Feeds and drains the child until it ends, or until its time is over. A grandchild that keeps the pipes open is not
/// waited for.
fn talk(
    child: &mut Child,
    stdin: &[u8],
    deadline: Duration,
    gentle: Option<&Gentle>,
    output: &mut Output,
) -> io::Result<Ended> {
    let mut until = Instant::now() + deadline;
    let mut asked = None;
    let raw = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    let ended = pidfd_open(raw, PidfdFlags::empty())?;
    let (mut input, mut out, mut err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    for fd in [input.as_ref().map(AsFd::as_fd), out.as_ref().map(AsFd::as_fd), err.as_ref().map(AsFd::as_fd)] {
        fd.map_or(Ok(()), unblock)?;
    }
    let mut left = stdin;
    let mut told = false;
    loop {
        if left.is_empty() {
            input = None;
        }
        let now = Instant::now();
        if told || now >= until {
            let Some(gentle) = gentle.filter(|_| asked.is_none()) else { return Ok(Ended { status: None, asked }) };
            asked = Some(if told { Why::Told } else { Why::Deadline });
            until = now + gentle.grace;
            signal(child, Signal::TERM);
        }
        // It is asked once.
        let ask = gentle.filter(|_| asked.is_none()).map(|gentle| &gentle.told);
        let mut fds = vec![PollFd::new(&ended, PollFlags::IN)];
        fds.extend(ask.map(|told| PollFd::new(told, PollFlags::IN)));
        fds.extend(input.iter().map(|fd| PollFd::new(fd, PollFlags::OUT)));
        fds.extend(out.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(err.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut fds, Some(&timespec(until.saturating_duration_since(now)))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let over = !fds[0].revents().is_empty();
        told = ask.is_some() && !fds[1].revents().is_empty();
        drop(fds);
        feed(&mut input, &mut left)?;
        drain(&mut out, &mut output.stdout)?;
        drain(&mut err, &mut output.stderr)?;
        if over {
            return Ok(Ended { status: Some(child.wait()?), asked });
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: duration.subsec_nanos().into() }
}

fn feed(pipe: &mut Option<impl Write>, left: &mut &[u8]) -> io::Result<()> {
    let Some(writer) = pipe else { return Ok(()) };
    match writer.write(left) {
        Ok(n) => *left = &left[n..],
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        // The program does not want the rest: its exit status tells whether that is an error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => *left = &[],
        Err(error) => return Err(error),
    }
    Ok(())
}

fn drain(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) -> io::Result<()> {
    let Some(reader) = pipe else { return Ok(()) };
    let room = MOST_OUTPUT.saturating_sub(into.len());
    match reader.take(room as u64).read_to_end(into) {
        Ok(read) if read == room => return Err(io::Error::other(format!("it prints more than {MOST_OUTPUT} bytes"))),
        Ok(_) => *pipe = None,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

#[cfg(test)]
pub use fake::FakeRunner;

#[cfg(test)]
mod fake {
    use std::collections::VecDeque;
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use super::{Output, RunError, Runner};

    /// One prepared answer: argument prefix, and standard output or (exit code, standard error).
    type Answer = (String, Result<String, (i32, String)>);

    /// Answers from a list; a call without an answer ends with 0 and prints nothing.
    #[derive(Debug, Default)]
    pub struct FakeRunner {
        answers: Mutex<VecDeque<Answer>>,
        calls: Mutex<Vec<(String, Vec<u8>)>>,
    }

    impl FakeRunner {
        /// The next call that starts with `prefix` prints `stdout` and ends with 0.
        #[must_use]
        pub fn answer(self, prefix: &str, stdout: &str) -> Self {
            lock(&self.answers).push_back((prefix.to_owned(), Ok(stdout.to_owned())));
            self
        }

        /// The next call that starts with `prefix` ends with `code`.
        #[must_use]
        pub fn fail(self, prefix: &str, code: i32, stderr: &str) -> Self {
            lock(&self.answers).push_back((prefix.to_owned(), Err((code, stderr.to_owned()))));
            self
        }

        /// What was run, arguments joined by spaces.
        pub fn calls(&self) -> Vec<String> {
            lock(&self.calls).iter().map(|(call, _)| call.clone()).collect()
        }

        /// What call number `index` got on standard input.
        pub fn stdin_of(&self, index: usize) -> Vec<u8> {
            lock(&self.calls)[index].1.clone()
        }
    }

    fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    impl Runner for FakeRunner {
        fn run(&self, argv: &[&str], stdin: &[u8], _deadline: Duration) -> Result<Output, RunError> {
            let call = argv.join(" ");
            lock(&self.calls).push((call.clone(), stdin.to_vec()));
            let mut answers = lock(&self.answers);
            let found = answers.iter().position(|(prefix, _)| call.starts_with(prefix.as_str()));
            match found.and_then(|index| answers.remove(index)) {
                None => Ok(Output::default()),
                Some((_, Ok(stdout))) => Ok(Output { stdout: stdout.into_bytes(), stderr: Vec::new() }),
                Some((_, Err((code, stderr)))) => {
                    Err(RunError::Failed { call, how: format!("ended with {code}"), code: Some(code), stderr })
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{FakeRunner, RunError, Runner, STOPPED, System};

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn a_program_gets_its_input_and_gives_its_output() {
        let big = vec![b'x'; 1 << 20];
        let output = System::new().run(&["cat"], &big, SOON).expect("cat works");
        assert_eq!(output.stdout, big);
    }

    #[test]
    fn the_error_carries_the_code_and_the_end_of_stderr() {
        let error = System::new().run(&["sh", "-c", "echo sorry >&2; exit 3"], b"", SOON).expect_err("it fails");
        assert_eq!(error.to_string(), "`sh -c echo sorry >&2; exit 3` ended with 3: sorry");
        assert!(matches!(error, RunError::Failed { code: Some(3), .. }));
    }

    #[test]
    fn the_deadline_kills_the_whole_group_and_open_pipes_do_not_hold_it_up() {
        let begin = Instant::now();
        let slow = System::new().run(&["sh", "-c", "sleep 60 & sleep 60"], b"", Duration::from_millis(100));
        assert!(matches!(slow, Err(RunError::Deadline { .. })));
        System::new().run(&["sh", "-c", "sleep 5 &"], b"", SOON).expect("the shell itself ends at once");
        assert!(begin.elapsed() < Duration::from_secs(4));
    }

    #[test]
    fn a_gentle_end_lets_a_program_say_how_far_it_came_and_no_longer_than_its_grace() {
        let system = System::gentle(Duration::from_millis(300)).expect("signals");
        let soon = Duration::from_secs(1);
        let script = "trap 'echo half >&2; exit 1' TERM; sleep 60 & wait";
        let error = system.run(&["sh", "-c", script], b"", soon).expect_err("it is ended");
        assert!(matches!(&error, RunError::Deadline { stderr, .. } if stderr == "half"), "{error}");
        let done = system.run(&["sh", "-c", "trap 'echo done; exit 0' TERM; sleep 60 & wait"], b"", soon);
        assert_eq!(done.expect("it was just done").text(), "done\n");
        let begin = Instant::now();
        let deaf = system.run(&["sh", "-c", "trap '' TERM; sleep 60"], b"", soon).expect_err("it is killed");
        assert!(matches!(deaf, RunError::Deadline { .. }) && begin.elapsed() < SOON, "{deaf}");

        // This thread is told, as the whole process of a pod is.
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).expect("told");
        for _ in 0..2 {
            let error = system.run(&["sh", "-c", script], b"", SOON).expect_err("it is ended");
            assert!(matches!(&error, RunError::Failed { how, .. } if how == STOPPED), "{error}");
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = System::new().run(&["no-such-program"], b"", SOON).expect_err("it is not there");
        assert_eq!(error.to_string(), "starting `no-such-program`");
    }

    #[test]
    fn the_fake_answers_by_prefix_and_remembers() {
        let fake =
            FakeRunner::default().answer("systemctl is-active", "active\n").fail("systemctl start", 1, "no unit");
        assert_eq!(fake.run(&["systemctl", "is-active", "x"], b"", SOON).expect("active").text(), "active\n");
        fake.run(&["systemctl", "start", "x"], b"", SOON).expect_err("prepared to fail");
        assert_eq!(fake.calls(), ["systemctl is-active x", "systemctl start x"]);
    }
}
