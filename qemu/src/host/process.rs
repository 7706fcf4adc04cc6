//! Child processes that cannot outlive us.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that forked ends, so all children are forked by one
//! thread that lives as long as the process. They are in the process's network namespace, wherever the first of them was
//! asked for, but for those that are talked with: ports that lead to a machine are reached from where its user is.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

/// A program with its arguments and additional environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub program: String,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// How much later than ourselves it gets a processor, as in nice(1).
    pub nice: u8,
}

/// As it would be typed, for logs.
impl std::fmt::Display for Invocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", quoted(&self.program))?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", quoted(argument)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A program that was run to its end did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not be started, or not be waited for.
    #[error("starting `{program}`")]
    Start {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It failed.
    #[error("`{program}` ended with {status}: {stderr}")]
    Failed {
        /// The program.
        program: String,
        /// Its exit status.
        status: ExitStatus,
        /// The end of what it said.
        stderr: String,
    },
    /// It did not end.
    #[error("`{program}` did not end within {secs} s")]
    Timeout {
        /// The program.
        program: String,
        /// How long was waited.
        secs: u64,
    },
}

/// A running child. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts the program with nothing on stdin and stdout, stderr on a pipe, and the descriptors of
    /// `inherit` open in the child under the same numbers.
    pub(crate) fn spawn(run: &Invocation, inherit: Vec<OwnedFd>) -> io::Result<(Self, ChildStderr)> {
        let mut command = command(run, inherit.iter().map(AsRawFd::as_raw_fd).collect(), None);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = spawn(command, inherit)?;
        let stderr = child.stderr.take().ok_or_else(no_pipe)?;
        Ok((Self { child, status: None }, stderr))
    }

    /// Starts the program in the network namespace of the calling thread. What it and its children say on stdout and
    /// stderr comes out of one pipe, in the order in which it was said; the other pipe is its stdin.
    pub(crate) fn spawn_here(run: &Invocation) -> io::Result<(Self, ChildStdin, PipeReader)> {
        let namespace = OwnedFd::from(fs_err::File::open("/proc/thread-self/ns/net")?.into_parts().0);
        let (said, says) = io::pipe()?;
        let mut command = command(run, Vec::new(), Some(namespace.as_raw_fd()));
        command.stdin(Stdio::piped()).stdout(says.try_clone()?).stderr(says);
        let mut child = spawn(command, vec![namespace])?;
        let stdin = child.stdin.take().ok_or_else(no_pipe)?;
        Ok((Self { child, status: None }, stdin, said))
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Waits for the end of a process that is known to be ending.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }

    /// Ends it at once, without a chance to clean up, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.try_wait() {
            return Ok(status);
        }
        self.child.kill()?;
        self.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            log::warn!("process {} was not ended: {error}", self.id());
        }
    }
}

impl Invocation {
    /// Runs it to its end.
    pub(crate) fn run(&self, name: &str, within: Duration) -> Result<(), RunError> {
        let (program, secs) = (name.to_owned(), within.as_secs());
        let (status, stderr) = self
            .outcome(within)
            .map_err(|source| RunError::Start { program: program.clone(), source })?
            .ok_or(RunError::Timeout { program: program.clone(), secs })?;
        if status.success() { Ok(()) } else { Err(RunError::Failed { program, status, stderr }) }
    }

    /// Runs it to its end: the exit status and what it said; `None` if it had to be killed.
    pub(crate) fn outcome(&self, within: Duration) -> io::Result<Option<(ExitStatus, String)>> {
        let (mut process, mut stderr) = Process::spawn(self, Vec::new())?;
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            let mut said = Vec::new();
            // A pipe that breaks is a child that ended.
            let _ = stderr.read_to_end(&mut said);
            let _ = ended.send(String::from_utf8_lossy(&said).trim().to_owned());
        });
        match end.recv_timeout(within) {
            Ok(said) => Ok(Some((process.wait()?, said))),
            Err(_) => Ok(None),
        }
    }

    /// Runs it to its end in the network namespace of the calling thread. It must be one that ends soon.
    pub(crate) fn run_here(&self, name: &str) -> Result<(), RunError> {
        let failed = |source| RunError::Start { program: name.to_owned(), source };
        let (mut process, stdin, mut says) = Process::spawn_here(self).map_err(failed)?;
        drop(stdin);
        let mut said = Vec::new();
        says.read_to_end(&mut said).map_err(failed)?;
        let status = process.wait().map_err(failed)?;
        if status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&said).trim().to_owned();
        Err(RunError::Failed { program: name.to_owned(), status, stderr })
    }
}

struct Request {
    command: Command,
    /// Kept open until the child has them.
    held: Vec<OwnedFd>,
    answer: Sender<io::Result<Child>>,
}

fn spawn(command: Command, held: Vec<OwnedFd>) -> io::Result<Child> {
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (answer, answered) = mpsc::channel();
    spawner().send(Request { command, held, answer }).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

fn no_pipe() -> io::Error {
    io::Error::other("a pipe that was asked for is not there")
}

fn spawner() -> &'static Sender<Request> {
    static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            let entered = enter_network_of_process();
            for Request { mut command, held, answer } in requests {
                let spawned = match &entered {
                    Ok(()) => command.spawn(),
                    Err(error) => Err(io::Error::new(error.kind(), format!("the process's own network: {error}"))),
                };
                drop((command, held));
                // An unwanted child must not run on.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(spawned) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        });
        sender
    })
}

/// The network namespace of the process's first thread (`proc_pid_ns(5)`).
const NETWORK_OF_PROCESS: &str = "/proc/self/ns/net";

/// The calling thread goes where the process's first thread is; one of a site's namespace may have made it.
pub(crate) fn enter_network_of_process() -> io::Result<()> {
    if !in_network_of_process()? {
        setns(fs_err::File::open(NETWORK_OF_PROCESS)?.file(), CloneFlags::CLONE_NEWNET)?;
    }
    Ok(())
}

/// Whether the calling thread is in the network of the process's first thread, and not in that of a site.
///
/// # Errors
/// Without `/proc`.
pub fn in_network_of_process() -> io::Result<bool> {
    Ok(fs_err::read_link(NETWORK_OF_PROCESS)? == fs_err::read_link("/proc/thread-self/ns/net")?)
}

#[expect(clippy::disallowed_methods, reason = "the one place that starts processes")]
#[expect(unsafe_code, reason = "descriptors and the parent-death signal are set between fork and exec")]
fn command(run: &Invocation, inherit: Vec<RawFd>, network: Option<RawFd>) -> Command {
    let mut command = Command::new(&run.program);
    command.args(&run.arguments).envs(run.environment.iter().map(|(k, v)| (k, v)));
    // Ctrl-C on the terminal is for us; we end the child.
    command.process_group(0);
    let parent = std::process::id();
    let nice = i32::from(run.nice);
    // SAFETY: only prctl, getppid, setns, nice, setrlimit and fcntl are called, all of them a bare system call;
    // nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the signal was asked for.
            if u32::try_from(libc::getppid()) != Ok(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            if network.is_some_and(|fd| libc::setns(fd, libc::CLONE_NEWNET) != 0) {
                return Err(io::Error::last_os_error());
            }
            // Going back is always allowed; its threads inherit it.
            libc::nice(nice);
            // Memory of a machine does not belong into a core file.
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            for &fd in &inherit {
                if libc::fcntl(fd, libc::F_SETFD, 0) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Invocation {
        Invocation { program: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()], ..Invocation::default() }
    }

    #[test]
    fn failure_carries_what_the_program_said() {
        let error = sh("echo broken >&2; exit 3").run("tool", Duration::from_secs(10)).expect_err("exits with 3");
        assert_eq!(error.to_string(), "`tool` ended with exit status: 3: broken");
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let error = sh("exec sleep 60").run("tool", Duration::from_millis(50)).expect_err("hangs");
        assert_eq!(error.to_string(), "`tool` did not end within 0 s");
    }

    #[test]
    fn a_nice_program_gets_its_processor_later() {
        let ours = rustix::process::getpriority_process(None).expect("a priority");
        let run = Invocation { nice: 3, ..sh("nice >&2") };
        let (_, said) = run.outcome(Duration::from_secs(10)).expect("started").expect("ended");
        assert_eq!(said, (ours + 3).min(19).to_string());
    }

    #[test]
    fn child_survives_the_thread_that_asked_for_it_but_not_its_handle() {
        let asked = std::thread::spawn(|| Process::spawn(&sh("exec sleep 60"), Vec::new()));
        let (mut process, _stderr) = asked.join().expect("thread").expect("started");
        assert_eq!(process.try_wait(), None);
        let proc_dir = format!("/proc/{}", process.id());
        drop(process);
        assert!(!std::path::Path::new(&proc_dir).exists());
    }
}
