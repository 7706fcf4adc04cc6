//! `foothold schema`: the JSON Schema of definitions, or of simulations.

use serde_json::Value;

use crate::cli::{Schema, SchemaOf};
use crate::config::{self, simulation};
use crate::report::{CommandError, Outcome, Report};

/// The schema as it is committed in `images/`.
pub fn text(of: SchemaOf) -> String {
    format!("{:#}\n", schema(of))
}

fn schema(of: SchemaOf) -> Value {
    match of {
        SchemaOf::Appliance => config::json_schema(),
        SchemaOf::Simulation => simulation::json_schema(),
    }
}

/// Prints the schema.
pub fn run(args: &Schema, report: &Report) -> Result<Outcome, CommandError> {
    report.data(&text(args.of));
    Ok(Outcome::Data { kind: "schema", data: schema(args.of) })
}
