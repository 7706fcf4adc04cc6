//! Programs that want a terminal.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use rustix::fs::{Mode, OFlags, open};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use tokio::process::Child;

/// Both ends of a terminal that passes on what it gets as it is.
#[derive(Debug)]
pub struct Ends {
    /// What the program says is read here, and what it is told is written.
    pub ours: OwnedFd,
    /// The program's.
    pub theirs: OwnedFd,
}

/// A new terminal. Neither end is handed on to programs that are started.
pub fn pair() -> io::Result<Ends> {
    let ours = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let path = ptsname_r(&ours)?;
    let theirs = open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    let mut settings = tcgetattr(&theirs)?;
    settings.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &settings)?;
    Ok(Ends { ours: ours.into(), theirs })
}

/// Starts a program on a terminal. It is killed when the handle is dropped. Needs a runtime.
pub fn start(argv: &[String], terminal: OwnedFd) -> io::Result<Child> {
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    #[expect(clippy::disallowed_methods, reason = "this is the door to subprocesses")]
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
    let (input, output) = (terminal.try_clone()?, terminal.try_clone()?);
    command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(terminal));
    tokio::process::Command::from(command).kill_on_drop(true).spawn()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[tokio::test]
    async fn a_program_on_a_terminal_gets_and_says_bytes_as_they_are() {
        let Ends { ours, theirs } = pair().expect("a terminal");
        let argv = ["sh", "-c", "test -t 0 && exec cat"].map(str::to_owned);
        let mut child = start(&argv, theirs).expect("a program");
        let mut ours = std::fs::File::from(ours);
        ours.write_all(b"a\r\x03\n").expect("typed");
        let mut said = [0; 4];
        ours.read_exact(&mut said).expect("said");
        assert_eq!(&said, b"a\r\x03\n");
        child.kill().await.expect("killed");
    }
}
