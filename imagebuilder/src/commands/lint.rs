//! `foothold lint`: everything that is to be said about a definition, a Site or a simulation.

use crate::cli::Lint;
use crate::config::{self, Checked};
use crate::content;
use crate::problems::{render, to_json};
use crate::report::{CommandError, Outcome, Report};

/// Checks the file. Errors are the command's error; warnings are shown and in the result.
pub fn run(args: &Lint, report: &Report) -> Result<Outcome, CommandError> {
    let Checked { appliance, mut problems } = config::lint(&args.definition.file)?;
    // What a definition without errors names is looked at, too.
    if let Some(appliance) = appliance.filter(|_| !problems.has_errors()) {
        problems.list.extend(content::lint::problems(&appliance, &problems.text));
    }
    if problems.has_errors() {
        return Err(problems.into());
    }
    if problems.warnings() > 0 {
        report.say(&render(&problems, report.colours()));
    }
    let list = problems.list.iter().map(|problem| to_json(&problems, problem)).collect();
    Ok(Outcome::Linted { warnings: problems.warnings(), file: problems.file, problems: list })
}
