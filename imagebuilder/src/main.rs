//! `foothold`: parse, run, show how it went, exit.

use std::process::ExitCode;

use clap::Parser as _;
use foothold::cli::Cli;
use foothold::error::{Cancel, Exit};
use foothold::{commands, signals};

fn main() -> ExitCode {
    // Before the first TLS connection; a second provider in the process would be a bug of ours.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let cancel = Cancel::default();
    if let Err(error) = signals::cancel_on(&cancel) {
        log::warn!("signals cannot be caught: {error}");
    }
    commands::execute(&cli, &cancel).code().into()
}

/// Help and version go to stdout and are fine; anything else is wrong usage.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe (`| head`) is no failure.
        let _ = error.print();
        return Exit::Done.code().into();
    }
    commands::wrong_usage(error, std::env::args().any(|arg| arg == "--json")).code().into()
}
