//! `foothold schema`: the JSON Schema of definitions.

use crate::config;
use crate::error::CommandError;
use crate::report::{Outcome, Report};

/// The schema as it is committed in `images/appliance.schema.json`.
pub fn text() -> String {
    format!("{:#}\n", config::json_schema())
}

/// Prints the schema.
pub fn run(report: &Report) -> Result<Outcome, CommandError> {
    report.data(&text());
    Ok(Outcome::Data { kind: "schema", data: config::json_schema() })
}
