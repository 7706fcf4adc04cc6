//! The example of `foothold simulate` as its user meets it: manifests, a rehearsal of every BMC in them, a server that is
//! switched on, and nothing left when it ends, however it ends.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use agent_api::rehearsal::Rehearsal;
use foothold_agent::bmc::manifests;
use foothold_agent::bmc::rehearsal::{self, Plan};
use foothold_qemu::Tools;
use foothold_tests::appliance::{builder, program};
use foothold_tests::programs::processes_of;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// How long what has been killed may still be going.
const GRACE: Duration = Duration::from_secs(10);

/// A site that runs.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// The namespace's file.
    namespace: PathBuf,
    dir: TempDir,
}

impl Running {
    /// The example of the repository, with its manifests and consoles in a folder.
    #[expect(clippy::disallowed_methods, reason = "the command line is what is tested")]
    fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for needed in ["usr/bin/ipmi_sim", "usr/bin/ipmitool"] {
            Tools::program_or_make(needed).unwrap_or_else(|error| panic!("{error}"));
        }
        let dir = tempfile::tempdir().expect("a folder");
        let at = builder().expect("the sources");
        let mut command = Command::new(program());
        command.current_dir(&at.workspace).args(["--json", "simulate", "images/simulation/simulation.yaml"]);
        command.arg("--manifests").arg(dir.path().join("hosts.yaml")).arg("--consoles").arg(dir.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
        let mut site = Self { child, lines, namespace: PathBuf::new(), dir };
        let started = site.until(|line| line["step"] == "site" && line["state"] == "done");
        site.namespace = PathBuf::from(started["detail"]["namespace"].as_str().expect("the namespace's file"));
        site
    }

    /// The next line of this kind.
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut said = Vec::new();
        for line in self.lines.by_ref().map_while(Result::ok) {
            let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            if wanted(&value) {
                return value;
            }
            said.push(line);
        }
        panic!("it has ended, and had said\n{}", said.join("\n"));
    }

    /// What `foothold-agent rehearse` finds on the site's network.
    fn rehearse(&self) -> Rehearsal {
        let text = fs_err::read_to_string(self.dir.path().join("hosts.yaml")).expect("the manifests");
        let hosts = manifests::read(&text).unwrap_or_else(|error| panic!("{error}"));
        let namespace = fs_err::File::open(&self.namespace).expect("the namespace");
        let asked = std::thread::spawn(move || {
            setns(namespace.file(), CloneFlags::CLONE_NEWNET).expect("entered");
            // Its threads are in the namespace of the one that makes them.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(rehearsal::rehearse(hosts, &Plan::default())).0
        });
        asked.join().expect("a matrix")
    }

    /// What `ipmitool` says, run as the command tells its user to.
    #[expect(clippy::disallowed_methods, reason = "a client of another make")]
    fn ipmitool(&self, address: &str, words: [&str; 2]) -> String {
        let tool = Tools::program_or_make("usr/bin/ipmitool").unwrap_or_else(|error| panic!("{error}"));
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace.display())).args(tool);
        command.args(["-I", "lanplus", "-C", "3", "-H", address, "-U", "admin", "-P", "of-this-site"]).args(words);
        let done = command.output().expect("it runs");
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    /// Ends it, and waits until nothing of it is there any more.
    fn ends(mut self, signal: Signal) -> Option<i32> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, signal).expect("it runs");
        let code = self.child.wait().expect("it ends").code();
        let begun = Instant::now();
        let left = || of(self.dir.path(), pid);
        while !left().is_empty() {
            assert!(begun.elapsed() < GRACE, "left after {signal}: {:?}", left());
            std::thread::park_timeout(Duration::from_millis(50));
        }
        assert!(!self.namespace.exists(), "the namespace is there");
        code
    }
}

/// Processes that name the folder of the consoles, or a work folder of that process in the cache: others may be at work
/// there.
fn of(folder: &Path, pid: Pid) -> BTreeSet<String> {
    let work = builder().expect("a cache").cache.path("tmp").join(format!("{pid}-"));
    processes_of(&[folder, &work])
}

#[test]
fn the_example_is_good_obeys_and_leaves_nothing() {
    let mut site = Running::start();
    let found = site.rehearse();
    let names: Vec<&str> = found.hosts.iter().map(|host| &*host.name).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(found.good, "{}", rehearsal::text(&found));

    assert_eq!(site.ipmitool("172.22.0.203", ["power", "status"]), "Chassis Power is off");
    site.ipmitool("172.22.0.203", ["power", "on"]);
    site.until(|line| line["phase"] == "server-3" && line["step"] == "on");
    assert_eq!(site.ipmitool("172.22.0.203", ["power", "status"]), "Chassis Power is on");
    assert!(site.dir.path().join("server-3.log").is_file(), "what it says on its serial port is kept");
    site.ipmitool("172.22.0.203", ["power", "off"]);
    site.until(|line| line["phase"] == "server-3" && line["step"] == "off");
    assert_eq!(site.ends(Signal::SIGINT), Some(0));

    let site = Running::start();
    site.ipmitool("172.22.0.203", ["power", "on"]);
    assert_eq!(site.ends(Signal::SIGKILL), None);
}
