//! What a command of the agent prints: its result on stdout, everything else on stderr.

/// Prints the result of the command.
#[expect(clippy::print_stdout, reason = "this is the command line")]
pub(crate) fn show(text: &str) {
    print!("{text}");
}

/// Prints a line that is not part of the result.
#[expect(clippy::print_stderr, reason = "this is the command line")]
pub(crate) fn report(text: &str) {
    eprintln!("{text}");
}
