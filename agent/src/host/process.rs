//! Starting programs that stay, and becoming another program.

use std::io;
use std::os::fd::AsFd as _;
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

/// Starts a program that its caller looks after: it dies with the handle, and with the thread that started it. What it
/// says goes where this program's standard error goes. Its environment is a search path and a locale, and what is given here.
pub fn start_owned(argv: &[String], environment: &[(&str, &str)]) -> io::Result<tokio::process::Child> {
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    #[expect(clippy::disallowed_methods, reason = "this is the door to subprocesses")]
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
    command.envs(environment.iter().copied());
    let said = std::io::stderr().as_fd().try_clone_to_owned()?;
    command.stdin(Stdio::null()).stdout(said).process_group(0);
    die_with_parent(&mut command);
    tokio::process::Command::from(command).kill_on_drop(true).spawn()
}

#[expect(unsafe_code, reason = "`pre_exec` runs between fork and exec")]
fn die_with_parent(command: &mut Command) {
    let ask = || Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?);
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(ask) };
}
