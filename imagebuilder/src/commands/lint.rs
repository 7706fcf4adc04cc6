//! `foothold lint`: everything that is to be said about a definition.

use crate::cli::Lint;
use crate::error::CommandError;
use crate::report::{Outcome, Report};
use crate::{config, lint};

/// Checks the definition. Errors are the command's error; warnings are shown and in the result.
pub fn run(args: &Lint, report: &Report) -> Result<Outcome, CommandError> {
    let checked = config::check_file(&args.definition.file)?;
    let problems = checked.problems;
    if problems.has_errors() {
        return Err(problems.into());
    }
    if problems.warnings() > 0 {
        report.say(&lint::render(&problems, report.colours()));
    }
    let list = problems.list.iter().map(|problem| lint::to_json(&problems, problem)).collect();
    Ok(Outcome::Linted { warnings: problems.warnings(), file: problems.file, problems: list })
}
