//! `foothold-agent`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    foothold_agent::cli::main()
}
