//! `foothold`: parse, run, show how it went, exit.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use foothold::cli::Cli;
use foothold::error::{Cancel, Exit};
use foothold::host::enter;
use foothold::kubernetes::rehearsal;
use foothold::{commands, host, signals};

fn main() -> ExitCode {
    // Before the first TLS connection; a second provider in the process would be a bug of ours.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The builder's own program does the mounts when a tree is entered, in namespaces that end with it.
    if let Some(spec) = enter::asked(&std::env::args_os().collect::<Vec<_>>()) {
        return entered(&enter::enter(&spec));
    }
    if rehearsal::asked(&std::env::args_os().collect::<Vec<_>>()) {
        return rehearsed(&rehearsal::main());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let cancel = Cancel::default();
    host::cancel::install(&cancel);
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
    commands::wrong_usage(error, std::env::args_os().any(|arg| arg == "--json")).code().into()
}

/// Entering only returns when it failed.
fn entered(result: &anyhow::Result<std::convert::Infallible>) -> ExitCode {
    if let Err(error) = result {
        let _ = writeln!(std::io::stderr(), "{error:#}");
    }
    Exit::Failed.code().into()
}

fn rehearsed(result: &anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => Exit::Done.code().into(),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error:#}");
            Exit::Failed.code().into()
        }
    }
}
