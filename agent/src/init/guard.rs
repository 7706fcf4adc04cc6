//! Watches the medium.
use std::process::ExitCode;
/// Runs it.
pub fn main() -> ExitCode {
    ExitCode::FAILURE
}
