//! The initrd.
use std::process::ExitCode;
pub mod guard;
/// Whether this process is the first one of the initrd.
pub fn is_wanted() -> bool { false }
/// Runs it.
pub fn main() -> ExitCode { ExitCode::FAILURE }
