//! What the commands do: one module each, `run(args, &Report) -> Result<Outcome, CommandError>`.

pub mod bench;
pub mod build;
pub mod common;
pub mod diff;
pub mod export;
pub mod fetch;
pub mod init;
pub mod inspect;
pub mod kubectl;
pub mod lint;
pub mod lock;
pub mod machine;
mod measure;
pub mod offline_bundle;
pub mod plan;
pub mod prove;
mod record;
pub mod run;
pub mod schema;
pub mod simulate;
mod table;
pub mod toolbox;
pub mod up;
pub mod verify;
pub mod write;

use crate::cli::{Cli, Command};
use crate::error::{Cancel, Exit, WrongUsage};
use crate::report::{CommandError, Outcome, Report, Show};

/// Does what the command line says, shows how it went, and gives the exit code.
pub fn execute(cli: &Cli, cancel: &Cancel) -> Exit {
    let report = Report::new(cli.show.into(), cancel.clone());
    report.take_log();
    let result = dispatch(&cli.command, &report).map_err(|error| error.interrupted_if(cancel));
    report.finish(&result)
}

fn dispatch(command: &Command, report: &Report) -> Result<Outcome, CommandError> {
    match command {
        Command::Init(args) => init::run(args, report),
        Command::Schema(args) => schema::run(args, report),
        Command::Lint(args) => lint::run(args, report),
        Command::Up(args) => up::run(args, report),
        Command::Plan(args) => plan::run(args, report),
        Command::Toolbox(args) => toolbox::run(args, report),
        Command::Lock(args) => lock::run(args, report),
        Command::Fetch(args) => fetch::run(args, report),
        Command::Build(args) => build::run(args, report),
        Command::Run(args) => run::run(args, report),
        Command::Prove(args) => prove::run(args, report),
        Command::Bench(args) => bench::run(args, report),
        Command::Inspect(args) => inspect::run(args, report),
        Command::Diff(args) => diff::run(args, report),
        Command::Export(args) => export::run(args, report),
        Command::OfflineBundle(args) => offline_bundle::run(args, report),
        Command::Simulate(args) => simulate::run(args, report),
        Command::Kubectl(args) => kubectl::run(args),
        Command::Verify(args) => verify::run(args, report),
        Command::Write(args) => write::run(args, report),
    }
}

/// Shows what is wrong with the command line, in clap's words.
pub fn wrong_usage(error: &clap::Error, json: bool) -> Exit {
    if !json {
        // Nothing sensible is left to do when stderr is gone.
        let _ = error.print();
        return Exit::Wrong;
    }
    let text = error.render().to_string();
    let text = text.trim_start_matches("error: ").trim_end();
    let message = text.split("\n\n").next().unwrap_or(text).replace('\n', " ");
    let wrong = WrongUsage { message, hint: "`foothold help` explains the commands".to_owned() };
    let show = Show { json, ..Show::default() };
    Report::new(show, Cancel::default()).finish(&Err(wrong.into()))
}
