//! A program that reads what strangers wrote: one open file, little memory, no rights, no time without end.
//!
//! ```text
//! Confined::run ─► fork, limits, exec ─► give_up_rights, read standard input ─► standard output
//! ```

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::unistd::{Gid, Uid};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};

use super::runner::{self, Output, RunError};

/// Nobody: the user that owns nothing (Debian policy, "UID and GID classes").
const NOBODY: u32 = 65_534;

/// What to start, and what it may take.
#[derive(Debug)]
pub struct Confined<'a> {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Its standard input.
    pub input: File,
    /// A file that stays open in it under the same number.
    pub shared: Option<&'a File>,
    /// Most bytes of memory.
    pub memory: u64,
    /// Longest file that it writes.
    pub file: u64,
    /// Then it is killed.
    pub deadline: Duration,
}

impl Confined<'_> {
    /// Runs it to its end.
    pub fn run(self) -> Result<Output, RunError> {
        let program = self.argv.first().cloned().unwrap_or_default();
        #[expect(clippy::disallowed_methods, reason = "this is the door to subprocesses")]
        let mut command = Command::new(&program);
        command.args(&self.argv[1..]).env_clear().env("LC_ALL", "C.UTF-8").process_group(0);
        command.stdin(Stdio::from(self.input)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let limits = [
            (Resource::As, self.memory),
            (Resource::Data, self.memory),
            (Resource::Fsize, self.file),
            (Resource::Core, 0),
            (Resource::Cpu, self.deadline.as_secs().max(1)),
        ];
        confine(&mut command, limits, self.shared.map(AsRawFd::as_raw_fd));
        let child = command.spawn().map_err(|source| RunError::Start { program, source })?;
        // The file that the command held is closed with it: only the child has it.
        drop(command);
        runner::end(child, &self.argv.join(" "), b"", self.deadline)
    }
}

#[expect(unsafe_code, reason = "`pre_exec` runs between fork and exec, and a number names a file only there")]
fn confine(command: &mut Command, limits: [(Resource, u64); 5], shared: Option<RawFd>) {
    let confine = move || {
        for (resource, most) in limits {
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        if let Some(shared) = shared {
            // SAFETY: `run` holds the file until the child has ended.
            let shared = unsafe { std::os::fd::BorrowedFd::borrow_raw(shared) };
            rustix::io::fcntl_setfd(shared, rustix::io::FdFlags::empty())?;
        }
        Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
    };
    // SAFETY: the closure makes system calls and allocates nothing.
    unsafe { command.pre_exec(confine) };
}

/// From now on this process may do nothing but read and write what is open: it is nobody, and stays it.
pub fn give_up_rights() -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        nix::unistd::setgroups(&[])?;
        nix::unistd::setresgid(group, group, group)?;
        nix::unistd::setresuid(user, user, user)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    // A change of users takes it back.
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};
    use std::time::Duration;

    use super::{Confined, RunError};

    fn shell(script: &str, memory: u64, input: &[u8]) -> Result<String, RunError> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(input).expect("written");
        file.rewind().expect("rewound");
        let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let confined =
            Confined { argv, input: file, shared: None, memory, file: 1000, deadline: Duration::from_secs(10) };
        confined.run().map(|output| output.text())
    }

    #[test]
    fn it_reads_its_input_and_takes_no_more_than_it_may() {
        assert_eq!(shell("cat; ulimit -v", 1 << 28, b"bytes ").expect("read"), "bytes 262144\n");
        // 64 MiB of text in a variable.
        let greedy = "x=$(head -c 67108864 /dev/zero | tr '\\0' x); echo ${#x}";
        assert_eq!(shell(greedy, 1 << 30, b"").expect("enough"), "67108864\n");
        shell(greedy, 1 << 25, b"").expect_err("too little");
        shell("head -c 2000 /dev/zero >$(mktemp)", 1 << 28, b"").expect_err("a long file");
    }

    #[test]
    fn its_time_is_bounded() {
        let input = tempfile::tempfile().expect("a file");
        let argv = ["/bin/sh", "-c", "sleep 60"].map(str::to_owned).to_vec();
        let confined =
            Confined { argv, input, shared: None, memory: 1 << 28, file: 0, deadline: Duration::from_millis(100) };
        assert!(matches!(confined.run(), Err(RunError::Deadline { .. })));
    }
}
