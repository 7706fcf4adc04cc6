//! The command line as scripts see it: exit codes, what goes to stdout, the shape of `--json`.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Stdio;

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin_cmd;
use foothold::disk::gpt;
use foothold::host::command::Run;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const RIGHT: &str = "tests/definitions/right/six-lines.yaml";
const WRONG: &str = "tests/definitions/wrong/everything-at-once.yaml";

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn foothold(args: &[&str]) -> Ran {
    let mut command: Command = cargo_bin_cmd!("foothold");
    let output = command.args(args).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// In a mount namespace of the test's own.
#[test]
fn a_cache_where_nothing_can_run_is_refused_in_words() {
    let dir = tempfile::tempdir().expect("a folder");
    let script = "mount -t tmpfs -o noexec none \"$1\" && XDG_CACHE_HOME=\"$1\" exec \"$2\" build \"$3\" --offline --out \"$1/out\"";
    let program = assert_cmd::cargo::cargo_bin!("foothold");
    let error = Run::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .args([dir.path(), program, Path::new(RIGHT)])
        .output()
        .expect_err("refused");
    let told = format!("{:#}", anyhow::Error::from(error));
    assert!(told.contains("is mounted `noexec`") && told.contains("XDG_CACHE_HOME"), "{told}");
}

#[test]
fn wrong_usage_is_64_and_says_so_on_stderr() {
    for args in
        [&[][..], &["bild"], &["lint", RIGHT, "--nonsense"], &["-q", "-v", "schema"], &["run", "x", "--cpus", "0"]]
    {
        let ran = foothold(args);
        assert_eq!(ran.code, Some(64), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{args:?}");
        assert!(ran.stderr.contains("Usage: foothold") || ran.stderr.contains("--help"), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn without_a_file_the_definition_of_the_folder_is_meant() {
    let folder = tempfile::tempdir().expect("a folder");
    let lint = || {
        let mut command: Command = cargo_bin_cmd!("foothold");
        command.current_dir(folder.path()).arg("lint").output().expect("it runs")
    };
    let ran = lint();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(64), "{stderr}");
    assert!(stderr.contains("appliance.yaml") && stderr.contains("foothold init"), "{stderr}");
    fs_err::copy(RIGHT, folder.path().join("appliance.yaml")).expect("a definition");
    let ran = lint();
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Before anything is built.
#[test]
fn a_folder_that_is_there_is_not_written_over() {
    let dir = tempfile::tempdir().expect("a folder");
    let (cache, to) = (dir.path().join("cache"), dir.path().join("out"));
    fs_err::create_dir_all(&to).expect("made");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    for command in ["export", "offline-bundle"] {
        let ran = foothold(&["--json", command, RIGHT, "--to", &text(&to), "--cache", &text(&cache), "--offline"]);
        assert_eq!(ran.code, Some(1), "{}", ran.stdout);
        let last = json_lines(&ran.stdout).pop().expect("a result");
        assert!(last["message"].as_str().is_some_and(|it| it.contains("is there already")), "{last}");
        assert!(last["hint"].as_str().is_some_and(|it| it.contains("another folder")), "{last}");
    }
    let left = fs_err::read_dir(dir.path()).expect("read").count();
    assert_eq!(left, 2, "nothing lies beside it");
}

#[test]
fn parts_and_addresses_are_checked_before_anything_is_read() {
    for args in [
        &["export", RIGHT, "--to", "x", "--part", "ironic"][..],
        &["export", RIGHT],
        &["offline-bundle", RIGHT, "--to", "x", "--registry-host", "https://registry.example"],
        &["offline-bundle", RIGHT, "--to", "x", "--files-repo", "files.example"],
    ] {
        let ran = foothold(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(64), ""), "{args:?}: {}", ran.stderr);
    }
}

/// `plan` looks, with no cache; what makes something for a site does not know the flag.
#[test]
fn a_development_build_is_asked_for_where_an_image_is_built_and_nowhere_else() {
    let dir = tempfile::tempdir().expect("a folder");
    let cache = dir.path().join("cache").to_str().expect("UTF-8").to_owned();
    for command in ["build", "up", "plan", "simulate"] {
        let ran = foothold(&[command, "--help"]);
        assert!(ran.stdout.contains("--development") && ran.stdout.contains("not for a site"), "{}", ran.stdout);
    }
    for args in [
        &["export", RIGHT, "--to", "x", "--development"][..],
        &["offline-bundle", RIGHT, "--to", "x", "--development"],
        &["prove", "x.qcow2", "--development"],
        &["lock", RIGHT, "--development"],
    ] {
        let ran = foothold(args);
        assert_eq!(ran.code, Some(64), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("unexpected argument '--development'"), "{args:?}: {}", ran.stderr);
    }
    let ran = foothold(&["simulate", "../images/simulation/simulation.yaml", "--development"]);
    assert_eq!(ran.code, Some(64), "{}", ran.stderr);
    assert!(ran.stderr.contains("there is no agent to compile"), "{}", ran.stderr);
    let file = dir.path().join("appliance.yaml");
    let text = "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: { name: edge, version: 1.4.0 }\n";
    fs_err::write(&file, text).expect("written");
    let plan = || foothold(&["plan", file.to_str().expect("UTF-8"), "--cache", &cache, "--offline", "--development"]);
    let ran = plan();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("a development build: bigger, slower"), "{}", ran.stdout);
    fs_err::write(&file, format!("{text}sign: {{ key: \"env:RELEASE_KEY\" }}\n")).expect("written");
    let ran = plan();
    assert_eq!(ran.code, Some(64), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("a key for releases") && ran.stderr.contains("hint: leave `sign` out"),
        "{}",
        ran.stderr
    );
}

#[test]
fn data_that_cannot_be_written_is_a_failure() {
    let program = assert_cmd::cargo::cargo_bin!("foothold");
    let run = Run::new("sh").args(["-c", "exec \"$1\" schema > /dev/full", "sh"]).arg(program);
    let told = run.output().expect_err("it is full").to_string();
    assert!(told.contains("ended with exit status: 1"), "{told}");
    assert!(told.contains("not all of the output could be written: No space left on device"), "{told}");
}

#[test]
fn arguments_that_are_no_text_are_told() {
    let mut command: Command = cargo_bin_cmd!("foothold");
    let ran = command.arg("lint").arg(OsStr::from_bytes(b"caf\xe9.yaml")).arg("--nonsense").output().expect("it runs");
    assert_eq!(ran.status.code(), Some(64), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn the_manifests_of_a_site_do_not_take_its_place() {
    let dir = tempfile::tempdir().expect("a folder");
    let site = dir.path().join("site.yaml");
    let text = fs_err::read_to_string("../images/simulation/simulation.yaml").expect("there");
    fs_err::write(&site, &text).expect("written");
    let site = site.to_str().expect("UTF-8");
    let ran = foothold(&["simulate", site, "--manifests", site, "--offline"]);
    assert_eq!(ran.code, Some(64), "{}", ran.stderr);
    assert!(ran.stderr.contains("is the site itself"), "{}", ran.stderr);
    assert_eq!(fs_err::read_to_string(site).expect("there"), text);
}

#[test]
fn help_and_version_are_data() {
    for args in [["--help"], ["--version"], ["help"]] {
        let ran = foothold(&args);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}");
        assert!(ran.stdout.contains("foothold"), "{args:?}");
    }
}

#[test]
fn wrong_usage_is_a_json_result_too() {
    let ran = foothold(&["--json", "bild"]);
    assert_eq!(ran.code, Some(64));
    let lines = json_lines(&ran.stdout);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["result"], "error");
    assert_eq!(lines[0]["code"], 64);
    assert_eq!(lines[0]["message"], "unrecognized subcommand 'bild'");
}

#[test]
fn a_right_definition_lints_to_0_with_nothing_on_stdout() {
    let ran = foothold(&["lint", RIGHT]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    assert!(ran.stderr.contains("is good"), "{}", ran.stderr);
    let quiet = foothold(&["-q", "lint", RIGHT]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_wrong_definition_lints_to_64_with_places_and_carets() {
    let ran = foothold(&["lint", WRONG]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(64), ""));
    for part in ["everything-at-once.yaml:3:19", "^^^^^^", "key: metadata.name", "hint: ", "has 17 errors"] {
        assert!(ran.stderr.contains(part), "`{part}` is missing in {}", ran.stderr);
    }
}

#[test]
fn problems_are_data_with_json() {
    let ran = foothold(&["lint", WRONG, "--json"]);
    assert_eq!(ran.code, Some(64));
    let lines = json_lines(&ran.stdout);
    let last = lines.last().expect("a line");
    assert_eq!(last["result"], "error");
    assert_eq!(last["code"], 64);
    assert!(last["message"].is_string() && last["hint"].is_string());
    let problems = last["problems"].as_array().expect("a list");
    assert_eq!(problems.len(), 17);
    for problem in problems {
        for key in ["severity", "file", "key", "found", "expected", "hint"] {
            assert!(problem[key].is_string(), "{key} of {problem}");
        }
        assert!(problem["line"].is_u64() && problem["column"].is_u64(), "{problem}");
    }
}

#[test]
fn a_file_that_is_not_there_is_64_with_a_hint() {
    let ran = foothold(&["lint", "/nowhere/appliance.yaml"]);
    assert_eq!(ran.code, Some(64));
    assert!(
        ran.stderr.contains("error: reading the definition `/nowhere/appliance.yaml`: No such file"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("hint: `foothold init`"), "{}", ran.stderr);
}

#[test]
fn what_init_writes_is_right_and_never_overwritten() {
    let dir = tempfile::tempdir().expect("a directory");
    let site = dir.path().join("My Site_1");
    let path = site.to_str().expect("UTF-8");
    assert_eq!(foothold(&["init", path]).code, Some(0));
    let file = site.join("appliance.yaml");
    let text = fs_err::read_to_string(&file).expect("the definition");
    assert!(text.contains("name: \"my-site-1\""), "{text}");
    let lint = foothold(&["lint", path]);
    assert_eq!(lint.code, Some(0), "{}", lint.stderr);
    fs_err::write(&file, "mine").expect("it can be written");
    let again = foothold(&["init", path]);
    assert_eq!(again.code, Some(64));
    assert!(again.stderr.contains("is there already"), "{}", again.stderr);
    assert_eq!(fs_err::read_to_string(&file).expect("the definition"), "mine");
}

#[test]
fn every_line_that_init_comments_out_is_right_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("UTF-8");
    assert_eq!(foothold(&["init", path]).code, Some(0));
    let file = dir.path().join("appliance.yaml");
    let text = fs_err::read_to_string(&file).expect("the definition");
    fs_err::write(dir.path().join("release.key"), "x").expect("a key");
    let live = |line: &str| {
        line.strip_prefix("# ")
            .filter(|rest| {
                rest.contains(": ") || rest.contains(":\n") || rest.ends_with(':') || rest.trim_start().starts_with('-')
            })
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == ' ') && !rest.starts_with("raw:"))
            .map(str::to_owned)
    };
    let mut lines: Vec<String> = text.lines().map(|line| live(line).unwrap_or_else(|| line.to_owned())).collect();
    lines.retain(|line| line != "outputs: [{ format: qcow2 }]");
    fs_err::write(&file, lines.join("\n")).expect("it can be written");
    let lint = foothold(&["lint", path]);
    assert_eq!(lint.code, Some(0), "{}\n{}", lines.join("\n"), lint.stderr);
}

#[test]
fn the_schema_is_json_on_stdout() {
    let ran = foothold(&["schema"]);
    assert_eq!(ran.code, Some(0));
    let schema: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(schema["anyOf"].as_array().map(Vec::len), Some(2));
    let lines = json_lines(&foothold(&["schema", "--json"]).stdout);
    assert_eq!((lines.len(), &lines[0]["data"]), (1, &schema));
}

/// A sparse raw image without partitions.
fn image(dir: &Path, bytes: u64) -> String {
    let path = dir.join("image.raw");
    let table = gpt::encode(bytes, gpt::SECTOR, uuid::Uuid::from_u128(7), &[]);
    fs_err::write(&path, table.primary).expect("an image");
    let file = fs_err::OpenOptions::new().write(true).open(&path).expect("an image");
    file.set_len(bytes).expect("its length");
    file.file().write_all_at(&table.backup, bytes - table.backup.len() as u64).expect("its end");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn write_tells_its_steps_and_the_checksum() {
    let dir = tempfile::tempdir().expect("a directory");
    let target = dir.path().join("target");
    let ran = foothold(&["write", &image(dir.path(), 5 << 20), target.to_str().expect("UTF-8"), "--file", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines = json_lines(&ran.stdout);
    let (last, events) = lines.split_last().expect("lines");
    for event in events {
        assert!(event["t"].is_f64() && event["source"] == "build" && event["phase"] == "write", "{event}");
    }
    let ends: Vec<&Value> =
        events.iter().filter(|event| event["state"] == "done").map(|event| &event["step"]).collect();
    assert_eq!(ends, ["copy", "compare"]);
    assert_eq!(last["result"], "written");
    assert_eq!(last["bytes"], 5 << 20);
    assert_eq!(last["sha256"].as_str().map(str::len), Some(64));
}

#[test]
fn a_file_is_no_device_unless_one_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let target = dir.path().join("target");
    fs_err::write(&target, "precious").expect("a file");
    let ran = foothold(&["write", &image(dir.path(), 1 << 20), target.to_str().expect("UTF-8")]);
    assert_eq!(ran.code, Some(64));
    assert!(ran.stderr.contains("is a file, not a device"), "{}", ran.stderr);
    assert_eq!(fs_err::read_to_string(&target).expect("the file"), "precious");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the running process itself is under test")]
fn a_signal_ends_it_with_130_after_cleaning_up() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let dir = tempfile::tempdir().expect("a directory");
        let target = dir.path().join("target");
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_foothold"))
            .args(["write", &image(dir.path(), 8 << 30), target.to_str().expect("UTF-8"), "--file", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut lines =
            BufReader::new(child.stdout.take().expect("its stdout")).lines().map(|line| line.expect("a line"));
        assert!(lines.any(|line| line.contains("\"progress\"")), "it never began");
        kill(Pid::from_raw(i32::try_from(child.id()).expect("a pid")), signal).expect("it is there");
        let last: Value = serde_json::from_str(&lines.last().expect("a last line")).expect("JSON");
        assert_eq!((last["result"].as_str(), last["code"].as_i64()), (Some("error"), Some(130)), "{last}");
        assert_eq!(child.wait().expect("it ends").code(), Some(130));
    }
}
