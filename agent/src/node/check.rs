//! `node check`: what a server is, and why it cannot become a node, if so. Nothing is changed.
//!
//! What is seen ([`Seen`]) is judged by a pure function; what only a comparison of servers shows (the same machine id twice)
//! is found by the operator.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use jiff::Timestamp;

use super::plan::{CheckPlan, NodeFacts};
use super::run::{CLUSTER, MEMBER};
use super::{LEDGER, LOCK, Server, kubernetes};
use crate::host::files;
use crate::steps::Ledger;

/// The message about a server that is a node of another cluster.
pub const FOREIGN: &str = "it is a node of another cluster, or of one that is not known here; hint: if nothing of it is needed, \
                           log in and run `foothold-agent node reset` (in /usr/local/lib/foothold, where it was brought)";
/// Memory that kubeadm asks for on a control plane, in MiB.
const LEAST_MEMORY_MIB: u64 = 1700;
/// Space for images and logs, in MiB.
const LEAST_FREE_MIB: u64 = 2048;
/// Certificates and tokens fail where clocks are farther apart than this, in seconds.
const MOST_SKEW_SECS: i64 = 60;
/// Oldest kernel of which kubeadm's documents say that it is supported, and whose nftables kube-proxy takes.
const OLDEST_KERNEL: (u32, u32) = (5, 13);
/// Programs of the system that kubeadm and kube-proxy call.
const NEEDED: [&str; 6] = ["conntrack", "ip", "iptables", "modprobe", "mount", "sysctl"];
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// What is seen of a server.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that is there or not")]
pub struct Seen {
    os: String,
    kernel: String,
    machine_id: String,
    memory_mib: u64,
    processors: usize,
    free_mib: u64,
    swap: bool,
    /// Whether it will use swap after a restart.
    swap_later: bool,
    cgroup2: bool,
    systemd: bool,
    own_address: bool,
    /// Ports that somebody listens on.
    busy: Vec<u16>,
    /// `HOST:PORT` that do not answer, and why.
    unreached: Vec<(String, String)>,
    /// Programs that are missing.
    lacking: Vec<String>,
    /// Whether there are files of a node.
    traces: bool,
    /// The cluster whose node it is, as the ledger says.
    cluster: Option<String>,
    /// Whether it was made a node to the end, as the ledger says.
    whole: bool,
    /// Whether another command changes it at this moment.
    held: bool,
    now: i64,
}

/// Looks at the server.
pub fn look(server: &Server, plan: &CheckPlan) -> anyhow::Result<Seen> {
    let text = |path: &str| fs_err::read_to_string(server.path(path)).unwrap_or_default();
    let os = text("/etc/os-release");
    let os = os.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown").trim_matches('"');
    let memory = text("/proc/meminfo");
    let kib =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    let stat = rustix::fs::statvfs(server.path("/var").as_path())?;
    let brought = |program: &str| plan.brought.iter().any(|path| path.ends_with(&format!("/{program}")));
    let there = |program: &str| FOLDERS.iter().any(|folder| server.has(&format!("{folder}/{program}")));
    let listens = |port: &u16| {
        let any: IpAddr = if plan.address.is_ipv6() { [0_u16; 8].into() } else { [0, 0, 0, 0].into() };
        TcpListener::bind(SocketAddr::new(any, *port)).is_err()
    };
    let ports: &[u16] = if plan.control_plane { &[2379, 2380, 6443, 10250, 10257, 10259] } else { &[10250] };
    let ledger = Ledger::open(&server.path(LEDGER))?;
    Ok(Seen {
        os: os.to_owned(),
        kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
        machine_id: text("/etc/machine-id").trim().to_owned(),
        memory_mib: kib.unwrap_or_default() / 1024,
        processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        free_mib: stat.f_bavail.saturating_mul(stat.f_frsize) >> 20,
        swap: text("/proc/swaps").lines().count() > 1,
        swap_later: text("/etc/fstab").lines().any(is_swap),
        cgroup2: server.has("/sys/fs/cgroup/cgroup.controllers"),
        systemd: server.has("/run/systemd/system"),
        own_address: crate::host::addresses()?.iter().any(|own| own.address == plan.address),
        busy: ports.iter().copied().filter(listens).collect(),
        unreached: plan.reach.iter().filter_map(|at| reach(at).err().map(|why| (at.clone(), why))).collect(),
        lacking: NEEDED.iter().filter(|name| !there(name) && !brought(name)).map(|name| (*name).to_owned()).collect(),
        traces: kubernetes::has_traces(server),
        cluster: ledger.fact(CLUSTER),
        whole: ledger.was_done(&MEMBER),
        held: files::is_held(&server.path(LOCK))?,
        now: Timestamp::now().as_second(),
    })
}

fn reach(at: &str) -> Result<(), String> {
    let address: SocketAddr = at.parse().map_err(|_| "it is no address".to_owned())?;
    std::net::TcpStream::connect_timeout(&address, Duration::from_secs(5)).map(drop).map_err(|error| error.to_string())
}

/// Judges it.
pub fn judge(seen: &Seen, plan: &CheckPlan) -> NodeFacts {
    let own = seen.cluster.as_deref() == Some(&*plan.cluster);
    let member = own && seen.traces;
    let mut problems = Vec::new();
    let mut problem = |wrong: bool, text: String| {
        if wrong {
            problems.push(text);
        }
    };
    problem(!seen.systemd, "it does not run systemd; hint: install an OS that does, such as `debian-node`".to_owned());
    problem(
        !seen.cgroup2,
        "it has no unified cgroups (v2), which the kubelet needs; hint: remove `systemd.unified_cgroup_hierarchy=0` from its \
         kernel command line"
            .to_owned(),
    );
    problem(
        version(&seen.kernel).is_some_and(|kernel| kernel < OLDEST_KERNEL),
        format!(
            "its kernel is {}, and {}.{} or newer is needed; hint: install a newer OS",
            seen.kernel, OLDEST_KERNEL.0, OLDEST_KERNEL.1
        ),
    );
    let skew = seen.now - plan.now;
    problem(
        skew.abs() > MOST_SKEW_SECS,
        format!(
            "its clock is {} s {} that of the box; hint: let it ask the box for the time (`services: {{ ntp: {{ serve: true }} }}`)",
            skew.abs(),
            if skew > 0 { "ahead of" } else { "behind" }
        ),
    );
    problem(
        seen.swap,
        "it uses swap, with which the kubelet does not start; hint: `swapoff -a`, and remove swap from /etc/fstab"
            .to_owned(),
    );
    problem(
        !member && !seen.swap && seen.swap_later,
        "it will use swap after a restart, and then the kubelet will not start; hint: remove swap from /etc/fstab"
            .to_owned(),
    );
    problem(
        seen.machine_id.is_empty(),
        "it has no machine id; hint: run `systemd-machine-id-setup` on it, or boot its image once".to_owned(),
    );
    problem(
        !seen.own_address,
        format!("it has not the address {}, at which it answers: a NAT or a proxy stands between", plan.address),
    );
    problem(
        plan.control_plane && seen.processors < 2,
        format!("it has {} processor, and kubeadm wants 2 for a control plane", seen.processors),
    );
    problem(
        plan.control_plane && seen.memory_mib < LEAST_MEMORY_MIB,
        format!("it has {} MiB of memory, and kubeadm wants {LEAST_MEMORY_MIB} for a control plane", seen.memory_mib),
    );
    problem(
        !member && seen.free_mib < LEAST_FREE_MIB,
        format!("/var has {} MiB free, and images need {LEAST_FREE_MIB}; hint: give it a larger disk", seen.free_mib),
    );
    problem(seen.traces && !own, FOREIGN.to_owned());
    let busy: Vec<String> = seen.busy.iter().map(u16::to_string).collect();
    problem(
        !seen.traces && !busy.is_empty(),
        format!("something listens on {}, which Kubernetes needs; hint: `ss -ltnp` on it tells what", busy.join(", ")),
    );
    for (at, why) in &seen.unreached {
        problem(true, format!("it does not reach the box at {at}: {why}; hint: check its routes and firewall"));
    }
    problem(
        !seen.lacking.is_empty(),
        format!(
            "it lacks {}; hint: `apt-get install conntrack iproute2 iptables kmod mount procps` from the box's repository",
            seen.lacking.join(", ")
        ),
    );
    NodeFacts {
        os: seen.os.clone(),
        kernel: seen.kernel.clone(),
        machine_id: seen.machine_id.clone(),
        memory_mib: seen.memory_mib,
        free_mib: seen.free_mib,
        member,
        whole: member && seen.whole,
        busy: seen.held,
        problems,
    }
}

/// Whether a line of fstab(5) has swap used at each start.
fn is_swap(line: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let manual = || fields.get(3).is_some_and(|options| options.split(',').any(|option| option == "noauto"));
    !line.trim_start().starts_with('#') && fields.get(2) == Some(&"swap") && !manual()
}

/// The first two numbers of a kernel's version.
fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut parts = kernel.split(|char: char| !char.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether a file exists: for tests.
#[cfg(test)]
pub fn good() -> Seen {
    Seen {
        os: "Debian GNU/Linux 13 (trixie)".to_owned(),
        kernel: "6.12.48+deb13-amd64".to_owned(),
        machine_id: "0123456789abcdef0123456789abcdef".to_owned(),
        memory_mib: 4000,
        processors: 2,
        free_mib: 9000,
        cgroup2: true,
        systemd: true,
        own_address: true,
        now: 1_000_000,
        ..Seen::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{CheckPlan, Seen, good, judge};

    fn plan() -> CheckPlan {
        CheckPlan {
            cluster: "default/one/1".to_owned(),
            control_plane: true,
            address: [172, 22, 0, 20].into(),
            reach: Vec::new(),
            now: 1_000_000,
            brought: Vec::new(),
        }
    }

    #[test]
    fn a_good_server_has_no_problem() {
        assert_eq!(judge(&good(), &plan()).problems, Vec::<String>::new());
    }

    type Spoil = fn(&mut Seen);

    #[test]
    fn each_fault_is_told_with_what_to_do() {
        let cases: [(Spoil, &str); 16] = [
            (|seen| seen.systemd = false, "does not run systemd"),
            (|seen| seen.cgroup2 = false, "no unified cgroups"),
            (|seen| seen.kernel = "5.10.0-30-amd64".to_owned(), "its kernel is 5.10.0-30-amd64, and 5.13"),
            (|seen| seen.now += 61, "its clock is 61 s ahead of that of the box"),
            (|seen| seen.now -= 3600, "its clock is 3600 s behind that of the box"),
            (|seen| seen.swap = true, "uses swap"),
            (|seen| seen.swap_later = true, "remove swap from /etc/fstab"),
            (|seen| seen.machine_id.clear(), "no machine id"),
            (|seen| seen.own_address = false, "172.22.0.20"),
            (|seen| seen.processors = 1, "1 processor"),
            (|seen| seen.memory_mib = 1024, "1024 MiB of memory"),
            (|seen| seen.free_mib = 100, "/var has 100 MiB free"),
            (|seen| seen.traces = true, "a node of another cluster"),
            (|seen| seen.busy = vec![6443, 10250], "listens on 6443, 10250"),
            (
                |seen| seen.unreached = vec![("172.22.0.1:5000".to_owned(), "refused".to_owned())],
                "the box at 172.22.0.1:5000",
            ),
            (|seen| seen.lacking = vec!["conntrack".to_owned()], "it lacks conntrack"),
        ];
        for (spoil, word) in cases {
            let mut seen = good();
            spoil(&mut seen);
            let problems = judge(&seen, &plan()).problems;
            assert!(problems.len() == 1 && problems[0].contains(word), "{word}: {problems:?}");
        }
    }

    #[test]
    fn what_only_a_control_plane_needs_is_not_asked_of_a_worker() {
        let seen = Seen { processors: 1, memory_mib: 512, ..good() };
        assert_eq!(judge(&seen, &CheckPlan { control_plane: false, ..plan() }).problems, Vec::<String>::new());
    }

    #[test]
    fn swap_of_fstab_is_seen() {
        for (line, used) in [
            ("UUID=1 none swap sw 0 0", true),
            ("/swap.img\tnone\tswap\tsw\t0\t0", true),
            ("/dev/sda2 swap swap defaults", true),
            ("#/swap.img none swap sw 0 0", false),
            ("/dev/sda2 none swap noauto,sw 0 0", false),
            ("/dev/sda1 / ext4 defaults 0 1", false),
            ("", false),
        ] {
            assert_eq!(super::is_swap(line), used, "{line}");
        }
    }

    #[test]
    fn a_node_of_this_cluster_is_welcome() {
        let seen = Seen {
            traces: true,
            swap_later: true,
            busy: vec![10250],
            cluster: Some("default/one/1".to_owned()),
            ..good()
        };
        let facts = judge(&seen, &plan());
        assert!(facts.member && !facts.whole && facts.problems.is_empty(), "{facts:?}");
        assert!(judge(&Seen { whole: true, ..seen.clone() }, &plan()).whole);
        let other = Seen { cluster: Some("default/one/0".to_owned()), ..seen };
        assert!(!judge(&other, &plan()).problems.is_empty());
    }
}
