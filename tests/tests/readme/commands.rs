//! Commands of `sh` blocks, parsed by the programs' own command lines.

use std::path::Path;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory as _};

/// Programs of others: named, so that a misspelt one of ours is noticed.
const FOREIGN: [&str; 18] = [
    ".ci/run",
    "apt-get",
    "cp",
    "ctr",
    "curl",
    "docker",
    "git",
    "helm",
    "ipmitool",
    "kubectl",
    "mount",
    "nsenter",
    "qemu-system-x86_64",
    "sha256sum",
    "skopeo",
    "ssh",
    "tar",
    "umount",
];

/// What is wrong with the commands of a block.
pub fn problems(sources: &Path, text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    joined.lines().flat_map(|line| line_problems(sources, line)).collect()
}

fn line_problems(sources: &Path, line: &str) -> Vec<String> {
    let Some(words) = shlex::split(line) else { return vec![format!("`{line}`: a quote is not closed")] };
    let commands = words.split(|word| ["|", "||", "&&", ";"].contains(&word.as_str()));
    let told = |command: &[String]| problem(sources, command).map(|why| format!("`{}`: {why}", command.join(" ")));
    commands.filter_map(told).collect()
}

/// What is wrong with one command, if anything.
fn problem(sources: &Path, command: &[String]) -> Option<String> {
    let words: Vec<&str> =
        command.iter().map(String::as_str).take_while(|word| !word.starts_with(['>', '<'])).collect();
    let is_variable = |word: &&str| word.split_once('=').is_some_and(|(name, _)| !name.contains(['-', '/']));
    let start = words.iter().position(|word| !is_variable(word) && *word != "sudo")?;
    match &words[start..] {
        ["foothold", rest @ ..] | ["cargo", "foothold", rest @ ..] => parsed(foothold::cli::Cli::command(), rest),
        ["foothold-agent", rest @ ..] => parsed(foothold_agent::cli::command(), rest),
        ["cargo", "test" | "bench" | "build", rest @ ..] => of_cargo(sources, rest),
        [program, ..] if FOREIGN.contains(program) => None,
        [program, ..] => Some(format!("the program `{program}` is not known")),
        [] => None,
    }
}

fn parsed(program: Command, words: &[&str]) -> Option<String> {
    let name = program.get_name().to_owned();
    let error = program.try_get_matches_from(std::iter::once(name.as_str()).chain(words.iter().copied())).err()?;
    (!matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)).then(|| error.to_string())
}

/// Whether the packages, tests and benchmarks that are named are there.
fn of_cargo(sources: &Path, words: &[&str]) -> Option<String> {
    let value = |flag: &str| words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1)).copied();
    let folder = match value("-p") {
        None => "",
        Some("foothold") => "imagebuilder",
        Some("foothold-agent") => "agent",
        Some("foothold-qemu") => "qemu",
        Some("foothold-tests") => "tests",
        Some(other) => return Some(format!("the package `{other}` is not there")),
    };
    for (flag, place) in [("--test", "tests"), ("--bench", "benches")] {
        let Some(name) = value(flag) else { continue };
        let place = sources.join(folder).join(place);
        if !place.join(format!("{name}.rs")).exists() && !place.join(name).join("main.rs").exists() {
            return Some(format!("`{name}` is not in `{}`", place.display()));
        }
    }
    None
}

#[test]
fn a_wrong_command_is_noticed() {
    let wrong = [
        "foothold bild FILE",
        "foothold build --fromat raw FILE",
        "foothold run IMAGE --firmware coreboot",
        "foothold-agent dhcp --interface ens4",
        "cargo test -p foothold-tests --test bootx",
        "cargo test -p foothold-testing --test boot",
        "curl https://box:8443/ | fotthold lint FILE",
        "foothold lint 'FILE",
    ];
    for line in wrong {
        assert_eq!(problems(super::sources(), line).len(), 1, "{line}");
    }
    let right =
        "TOKEN=x cargo foothold up --until ready # all of it\nfoothold lint FILE && foothold \\\n  build FILE > log\n";
    assert_eq!(problems(super::sources(), right), Vec::<String>::new());
}
