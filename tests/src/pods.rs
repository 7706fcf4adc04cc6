//! A program of an image as a pod runs it: in namespaces of its own, in the tree of the image as it is, with the pod's
//! capabilities. All of it ends with the pod.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a runtime mounts, and a card that somebody plugs in.
const INIT: &str = r#"
set -e
tree=$1 address=$2 capabilities=$3
shift 3
mount --make-rprivate /
ip link set lo up
mount --bind "$tree" "$tree"
cd "$tree"
mkdir -p proc sys dev
mount -t proc proc proc
mount -t sysfs -o ro sys sys
mount --rbind /dev dev
until ip link set eth0 up 2> dev/null; do sleep 0.1; done
ip address add "$address" dev eth0
exec setpriv --no-new-privs --bounding-set "$capabilities" chroot . "$@"
"#;

/// A pod of one container.
pub struct Pod {
    init: Child,
    inside: u32,
    /// Its network stays as long as this, and so does the other end of its cable.
    _network: fs_err::File,
}

impl Pod {
    /// Starts it. It waits for its card ([`Self::join`]) and has this address, such as `172.22.0.10/24`, there.
    /// `capabilities` are named as Kubernetes names them. What the program says goes to `log`.
    ///
    /// # Panics
    /// Where it does not start. Needs root.
    #[must_use]
    pub fn start(tree: &Path, address: &str, capabilities: &[&str], argv: &[&str], log: &Path) -> Self {
        // A runtime changes the root by other means.
        let capabilities: String = capabilities
            .iter()
            .chain(&["SYS_CHROOT"])
            .fold("-all".to_owned(), |all, one| all + ",+" + &one.to_lowercase());
        let arguments = [&[tree.to_str().expect("UTF-8"), address, &capabilities], argv].concat();
        let (init, inside) = first_process(INIT, &arguments, log);
        let network = fs_err::File::open(format!("/proc/{inside}/ns/net")).expect("its network");
        Self { init, inside, _network: network }
    }

    /// A cable between the cards of two pods.
    pub fn join(&self, other: &Self) {
        let [one, two] = [self.inside.to_string(), other.inside.to_string()];
        let pair = ["link", "add", "eth0", "netns", &one, "type", "veth", "peer", "name", "eth0", "netns", &two];
        let _ = self.ip(&pair);
    }

    /// What `ip` says in it.
    ///
    /// # Panics
    /// Where `ip` fails.
    #[must_use]
    pub fn ip(&self, arguments: &[&str]) -> String {
        ip_of(self.inside, arguments)
    }

    /// Kills it.
    pub fn kill(&mut self) {
        let _ = self.init.kill();
        let _ = self.init.wait();
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What `ip` says in the network of a process.
///
/// # Panics
/// Where `ip` fails.
#[must_use]
pub fn ip_of(process: u32, arguments: &[&str]) -> String {
    #[expect(clippy::disallowed_methods, reason = "a look into a pod")]
    let mut enter = Command::new("nsenter");
    enter.args(["--net", "--target", &process.to_string(), "ip"]).args(arguments);
    let output = enter.output().expect("nsenter runs");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a script of bash as the first process of namespaces for mounts, network and processes, which end with it. What it
/// says goes to `log`. Returns what ends it, and its id out here.
///
/// # Panics
/// Where it does not start, with what it said. Needs root.
#[must_use]
pub fn first_process(script: &str, arguments: &[&str], log: &Path) -> (Child, u32) {
    #[expect(clippy::disallowed_methods, reason = "the first process of a node or a pod")]
    let mut outer = Command::new("setpriv");
    // With the thread that asks for it, so that nothing of it outlives a test that is killed.
    outer.args(["--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]);
    outer.args(["bash", "-c", script, "init"]).args(arguments);
    let out = fs_err::File::create(log).expect("a log").into_parts().0;
    let err = out.try_clone().expect("a log");
    let mut init = outer.stdin(Stdio::null()).stdout(out).stderr(err).spawn().expect("started");
    let inside = wait_for("the first process", Duration::from_secs(90), || {
        if let Ok(Some(status)) = init.try_wait() {
            panic!("the first process ended, {status}: {}", fs_err::read_to_string(log).unwrap_or_default());
        }
        child_of(init.id())
    });
    (init, inside)
}

/// The first child of a process, if it has one.
fn child_of(parent: u32) -> Option<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    fs_err::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// Looks until there is something.
///
/// # Panics
/// Where there is nothing within that time.
pub fn wait_for<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited {} s for {what}", within.as_secs());
        #[expect(clippy::disallowed_methods, reason = "another process does it")]
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{first_process, wait_for};

    #[test]
    fn a_process_ends_with_the_thread_that_asked_for_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let log = dir.path().join("log");
        let started = std::thread::spawn(move || first_process("sleep 600 & wait", &[], &log));
        let (mut init, inside) = started.join().expect("started");
        wait_for("it to end", Duration::from_secs(90), || init.try_wait().expect("looked at"));
        wait_for("what it was for to end", Duration::from_secs(90), || {
            (!std::path::Path::new(&format!("/proc/{inside}")).exists()).then_some(())
        });
    }
}
