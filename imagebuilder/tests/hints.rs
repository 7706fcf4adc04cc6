//! Commands of `foothold` that its own messages name: each is one that its command line takes.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;
use foothold::cli::Cli;

/// Crates whose messages people read.
const SOURCES: [&str; 4] = ["imagebuilder/src", "agent/src", "agent/api/src", "qemu/src"];

fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = SOURCES.iter().flat_map(|folder| walkdir::WalkDir::new(root.join(folder)).sort_by_file_name());
    let files = files.map(|entry| entry.expect("a file").into_path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect()
}

/// The text of a source without its comments, lines that a literal breaks put together.
fn text(path: &Path) -> String {
    let text = fs_err::read_to_string(path).expect("a source");
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let mut whole = String::new();
    for line in lines {
        match line.strip_suffix('\\') {
            Some(begun) if whole.ends_with(' ') || whole.is_empty() => whole.push_str(begun.trim_start()),
            Some(begun) => whole.push_str(begun),
            None if whole.ends_with(' ') => whole.extend([line.trim_start(), "\n"]),
            None => whole.extend([line, "\n"]),
        }
    }
    whole
}

/// What stands in backticks and begins with `foothold `.
fn commands(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(1);
    parts.filter(|part| part.starts_with("foothold ") && !part.contains('\n')).map(str::to_owned).collect()
}

#[test]
fn every_command_that_a_message_names_is_one() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in sources() {
        for command in commands(&text(&path)) {
            seen += 1;
            // What is filled in when the message is written, and words for it.
            let words = command.split_whitespace().map(|word| word.trim_end_matches("...").replace("\\\"", ""));
            let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
            let Err(error) = Cli::try_parse_from(&words) else { continue };
            // A message may leave out what its reader knows; help is no mistake.
            let short = [
                ErrorKind::MissingRequiredArgument,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                ErrorKind::DisplayVersion,
                ErrorKind::DisplayHelp,
            ];
            // Values such as `FILE` or `{format}` stand for others.
            let value = matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
            if !short.contains(&error.kind()) && !value {
                wrong.push(format!("{}: `{command}`: {}", path.display(), error.kind()));
            }
        }
    }
    assert!(seen > 20, "only {seen} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
