//! The launcher with the real cargo, before a small builder of its own.

use std::path::Path;
use std::process::{Command, Output};

/// A workspace as this one is laid out, whose builder is `main`.
fn workspace(main: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs_err::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs_err::write(path, text).expect("a file");
    };
    write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"builder\"]\n");
    write("builder/Cargo.toml", "[package]\nname = \"foothold\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    write("builder/src/main.rs", main);
    dir
}

fn launch(workspace: &Path, arguments: &[&str]) -> Output {
    #[expect(clippy::disallowed_methods, reason = "the program under test, whose environment is cargo's")]
    let mut launcher = Command::new(env!("CARGO_BIN_EXE_foothold-launch"));
    launcher.args(arguments).current_dir(workspace).env("CARGO_MANIFEST_DIR", workspace.join("builder/launch"));
    launcher.env("CARGO_TARGET_DIR", workspace.join("target")).env("CARGO_NET_OFFLINE", "true");
    launcher.output().expect("the launcher runs")
}

#[test]
fn the_builder_gets_its_arguments_and_its_exit_code_is_that_of_the_command() {
    let main = "fn main() {\n    let given: Vec<String> = std::env::args().skip(1).collect();\n    \
                println!(\"{given:?}\");\n    std::process::exit(7);\n}\n";
    let dir = workspace(main);
    for _ in ["compiled", "there already"] {
        let ran = launch(dir.path(), &["lint", "--json", "a file", "--", "-x"]);
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert_eq!(
            (ran.status.code(), &*out),
            (Some(7), "[\"lint\", \"--json\", \"a file\", \"--\", \"-x\"]\n"),
            "{err}"
        );
        assert!(!err.contains("Compiling") && !err.contains("Finished"), "{err}");
    }
}

#[test]
fn what_the_compiler_says_is_shown_and_nothing_is_run() {
    let dir = workspace("fn main() {\n    let unused = 1;\n    missing();\n}\n");
    let ran = launch(dir.path(), &["up"]);
    let err = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(1), 0), "{err}");
    assert!(err.contains("cannot find function `missing`") && err.contains("src/main.rs:3"), "{err}");
}

/// `cargo foothold` is this program.
#[test]
fn the_alias_runs_the_launcher() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cargo/config.toml");
    let text = fs_err::read_to_string(config).expect("the configuration of cargo");
    assert!(text.contains("foothold = \"run --quiet --package foothold-launch --\"\n"), "{text}");
}
