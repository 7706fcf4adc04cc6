//! Starting programs that stay, and becoming another program.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Starts a program that nobody waits for. `name` is what it calls itself (`argv[0]`).
pub fn start_resident(program: &str, name: &str, arguments: &[&str]) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "this is the door to subprocesses")]
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

/// Becomes another program. Returns only if that fails.
pub fn become_program(program: &str, name: &str, environment: &[(&str, &str)]) -> io::Error {
    #[expect(clippy::disallowed_methods, reason = "this is the door to subprocesses")]
    let mut command = Command::new(program);
    command.arg0(name).env_clear().envs(environment.iter().copied()).exec()
}
