//! Whoever runs a machine may be killed at any moment: no QEMU survives it, and no file for long.
//!
//! This program runs itself as the one that is killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use foothold_qemu::{Disk, Firmware, Tools, VmBuilder};

const NAME: &str = "killed-with-its-runner";

/// Starts a machine in the folder it is given, and stays.
#[test]
#[ignore = "is what the other test kills"]
fn runner() {
    let Some(dir) = std::env::var_os("RUN_IN") else { return };
    let tools = Tools::locate_or_make().unwrap_or_else(|error| panic!("{error}"));
    let disk = Disk::open(Path::new(&dir).join("disk.img")).expect("is there");
    let builder = VmBuilder::new(&tools, NAME).memory_mib(128).firmware(Firmware::Uefi);
    let vm = builder.boot(disk).scratch_in(dir).start().unwrap_or_else(|error| panic!("{error}"));
    writeln!(std::io::stdout(), "\nmachine {} is on", vm.pid()).expect("somebody listens");
    let mut events = vm.events();
    while vm.exited().is_none() {
        events.next(Duration::from_secs(60));
    }
}

#[expect(clippy::disallowed_methods, reason = "the runner must be another process to be killed")]
fn run_in(dir: &Path) -> Child {
    let program = std::env::current_exe().expect("known");
    Command::new(program)
        .args(["--ignored", "--exact", "runner", "--nocapture"])
        .env("RUN_IN", dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starting the runner")
}

/// Processes of ours: QEMU with the machine's name.
fn left() -> Vec<String> {
    let processes = fs_err::read_dir("/proc").expect("mounted").flatten();
    let command_lines = processes.filter_map(|entry| fs_err::read(entry.path().join("cmdline")).ok());
    let command_lines = command_lines.map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "));
    command_lines.filter(|line| line.contains(&format!("-name {NAME}"))).collect()
}

fn wait_until_gone() {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !left().is_empty() && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert_eq!(left(), Vec::<String>::new());
}

#[test]
fn a_killed_runner_leaves_nothing() {
    let dir = tempfile::tempdir().expect("temporary folder");
    fs_err::write(dir.path().join("disk.img"), vec![0; 1 << 20]).expect("writing");
    let files = || fs_err::read_dir(dir.path()).expect("listing").count();

    // While the machine runs: nothing is left, not even for the next to clean up.
    let mut runner = run_in(dir.path());
    let output = BufReader::new(runner.stdout.take().expect("is piped"));
    assert!(output.lines().map_while(Result::ok).any(|line| line.ends_with(" is on")));
    assert_eq!(left().len(), 1);
    runner.kill().expect("killing");
    runner.wait().expect("is dead");
    wait_until_gone();
    assert_eq!(files(), 1);

    // While it starts.
    for millis in [5, 20, 40, 60, 80, 110, 150, 200] {
        let mut runner = run_in(dir.path());
        std::thread::park_timeout(Duration::from_millis(millis));
        runner.kill().expect("killing");
        runner.wait().expect("is dead");
    }
    wait_until_gone();
    let tools = Tools::locate_or_make().unwrap_or_else(|error| panic!("{error}"));
    drop(VmBuilder::new(&tools, NAME).memory_mib(128).scratch_in(dir.path()).start().expect("starts"));
    assert_eq!(files(), 1);
}
