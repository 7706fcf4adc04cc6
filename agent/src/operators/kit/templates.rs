//! Templates of Go (`text/template`) that users write: actions, pipelines, variables, `range`, `if`, `with`, `define`, and Go's
//! functions. One that runs too long or writes too much is an error.

use std::time::Duration;

use gtmpl_ng::{Context, Func, Limits, Template, Value};

/// Longest time that a template may take.
const LONGEST: Duration = Duration::from_secs(5);

/// What a template makes of values, at most so many bytes; `functions` are there beside Go's own.
///
/// # Errors
/// What is wrong with the template, with its line.
pub fn render(template: &str, values: Value, functions: &[(&str, Func)], most: usize) -> Result<String, String> {
    let mut parsed = Template::with_limits(Limits::default().with_output_bytes(most).with_deadline(LONGEST));
    parsed.add_funcs(functions);
    parsed.parse(template).map_err(|error| error.to_string())?;
    parsed.render(&Context::from(values)).map_err(|error| error.to_string())
}
