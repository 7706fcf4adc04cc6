//! A builder that is killed at any instant leaves nothing behind, and the next build is as if it had never run.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use foothold_tests::Appliance;
use foothold_tests::appliance::program;
use foothold_tests::programs::processes_of;

/// How long after a kill what belongs to it may still be going.
const GRACE: Duration = Duration::from_secs(10);

/// What must be the same before and after.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    mounts: BTreeSet<String>,
    loops: BTreeSet<String>,
    /// Processes that name the folder of this test or a work folder of the cache.
    processes: BTreeSet<String>,
    /// Network namespaces that live without a process.
    namespaces: BTreeSet<String>,
}

impl Host {
    fn look(folder: &Path, cache: &Path) -> Self {
        let lines = |path: &str| -> BTreeSet<String> {
            fs_err::read_to_string(path).expect(path).lines().map(str::to_owned).collect()
        };
        let block = fs_err::read_dir("/sys/block").expect("block devices").filter_map(Result::ok);
        let loops = block.filter_map(|entry| fs_err::read_to_string(entry.path().join("loop/backing_file")).ok());
        let named = fs_err::read_dir("/run/netns").into_iter().flatten().filter_map(Result::ok);
        Self {
            mounts: lines("/proc/self/mounts"),
            loops: loops.collect(),
            processes: processes_of(&[folder, &cache.join("tmp")]),
            namespaces: named.map(|entry| entry.path().display().to_string()).collect(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a process that is killed at an instant of our choice")]
fn start(args: &[&str]) -> Child {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program starts")
}

#[expect(clippy::disallowed_methods, reason = "the instant of the kill is what is tested")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Kills the program after a while, and waits until the host is as before.
fn kill_after(time: Duration, args: &[&str], before: &Host, look: &dyn Fn() -> Host) {
    let mut child = start(args);
    pause(time);
    let _ = child.kill();
    let _ = child.wait();
    let until = Instant::now() + GRACE;
    let mut now = look();
    while now != *before && Instant::now() < until {
        pause(Duration::from_millis(200));
        now = look();
    }
    assert_eq!(now, *before, "{args:?} killed after {time:?}");
}

/// Digests of the images in a folder; any other file is a failure.
fn images(folder: &Path) -> BTreeSet<(String, String)> {
    let entries = fs_err::read_dir(folder).expect("the images").filter_map(Result::ok);
    entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(["qcow2", "raw", "iso"].iter().any(|end| name.ends_with(end)), "`{name}` is left over");
            (name, foothold::store::hash::file(&entry.path()).expect("a digest").digest.to_string())
        })
        .collect()
}

/// Kills `times` builds and as many runs, each at another instant.
fn nothing_is_left(times: u64) {
    let appliance = Appliance::get();
    let cache = appliance.builder().cache.path("");
    let dir = tempfile::tempdir().expect("a folder");
    let source = dir.path().join("appliance");
    fs_err::create_dir(&source).expect("a folder");
    let text = fs_err::read_to_string(appliance.builder().workspace.join("images/appliance/appliance.yaml"));
    // Another name is another initrd and other images: there is work to be killed in.
    let text = text.expect("the definition").replace("name: foothold", "name: killed");
    fs_err::write(source.join("appliance.yaml"), text).expect("written");
    fs_err::copy(appliance.builder().workspace.join("images/appliance/appliance.lock"), source.join("appliance.lock"))
        .expect("the lock");
    let out = dir.path().join("out");
    let (from, to) = (source.display().to_string(), out.display().to_string());
    let build = ["build", from.as_str(), "--out", to.as_str()];
    let look = || Host::look(dir.path(), &cache);
    let before = look();
    for _ in 0..times {
        kill_after(Duration::from_millis(50 + rand::random::<u64>() % 5000), &build, &before, &look);
        let _ = fs_err::remove_dir_all(&out);
    }
    assert!(start(&build).wait().expect("it ends").success(), "the build after the kills");
    let made = images(&out);
    assert_eq!(made.len(), 3);
    let image = made.iter().map(|(name, _)| out.join(name)).find(|path| path.extension().is_some_and(|e| e == "qcow2"));
    let image = image.expect("a qcow2").display().to_string();
    for _ in 0..times {
        let run = ["run", image.as_str(), "--network", "none"];
        kill_after(Duration::from_millis(100 + rand::random::<u64>() % 8000), &run, &before, &look);
    }
    assert_eq!(images(&out), made, "the images after the kills");
}

#[test]
fn six_kills_leave_nothing() {
    nothing_is_left(3);
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test kill -- --ignored`"]
fn forty_kills_leave_nothing() {
    nothing_is_left(20);
}
