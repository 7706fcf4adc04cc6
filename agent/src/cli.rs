//! The command line of the agent.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{daemon, init};

/// The agent of a Foothold box.
#[derive(Debug, Parser)]
#[command(name = "foothold-agent", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring the box up and keep it up (started by systemd).
    Run,
    /// Find the medium and switch to it (started by the kernel as process 1 of the initrd).
    Init,
    /// Watch the medium for damage (started by `init`).
    #[command(hide = true)]
    Guard,
    /// Print the events of this boot, one JSON object a line.
    Events,
    /// Print what the box is doing.
    Status,
}

/// Parses the command line, runs, prints the chain of an error, tells the exit code.
#[expect(clippy::print_stderr, reason = "this is the command line")]
pub fn main() -> ExitCode {
    if init::is_wanted() {
        return init::main();
    }
    match run(&Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Init => Ok(init::main()),
        Command::Guard => Ok(init::guard::main()),
        Command::Run => daemon::main().map(|()| ExitCode::SUCCESS),
        Command::Events | Command::Status => anyhow::bail!("not on this box"),
    }
}
