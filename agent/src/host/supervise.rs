//! Being the init of one program: what it leaves is reaped, signals that end us end it.

use std::io;
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::runner::unblock_signals;

/// Runs a program to its end: its exit code. `before_end` is called when a signal wants us to end, before the program is
/// asked to. Only for a process with one thread.
pub fn supervise(argv: &[&str], before_end: impl FnOnce()) -> io::Result<i32> {
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let signals: SigSet = [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    signals.thread_block()?;
    // Programs that go to the background become our children.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    #[expect(clippy::disallowed_methods, reason = "this is the door to subprocesses")]
    let mut command = Command::new(program);
    command.args(arguments);
    unblock_signals(&mut command);
    let child = command.spawn()?;
    let child = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let mut before_end = Some(before_end);
    loop {
        while let Some((pid, code)) = reap()? {
            if pid == child {
                return Ok(code);
            }
        }
        if signals.wait()? != Signal::SIGCHLD {
            if let Some(before_end) = before_end.take() {
                before_end();
            }
            kill(child, Signal::SIGTERM)?;
        }
    }
}

/// A child that has ended, and its code.
fn reap() -> io::Result<Option<(Pid, i32)>> {
    match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(pid, code)) => Ok(Some((pid, code))),
        Ok(WaitStatus::Signaled(pid, signal, _)) => Ok(Some((pid, 128 + signal as i32))),
        Ok(_) | Err(nix::errno::Errno::ECHILD) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lays a file over another one, for this process and its children only.
pub fn cover(file: &Path, over: &Path) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>)?;
    Ok(mount(Some(file), over, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
}
