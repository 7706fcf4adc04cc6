//! Which programs are called and which files are written, on a server whose root is a folder.

use std::sync::Arc;

use agent_api::release::Digest;
use serde_json::json;

use super::plan::{NodePlan, Program, ResetPlan, Task};
use super::run::{CLUSTER, perform_for_tests as perform};
use super::{LEDGER, Server, kubernetes, programs, reset, runtime, system};
use crate::host::runner::FakeRunner;
use crate::steps::Ledger;

const OWN: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(172, 22, 0, 20));

pub struct Bench {
    dir: tempfile::TempDir,
    pub runner: Arc<FakeRunner>,
    pub server: Server,
}

impl Bench {
    pub fn new(runner: FakeRunner) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let runner = Arc::new(runner);
        let server = Server { root: dir.path().to_owned(), runner: Arc::clone(&runner) as Arc<_> };
        Self { dir, runner, server }
    }

    pub fn put(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs_err::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs_err::write(path, text).expect("written");
    }

    pub fn text(&self, path: &str) -> String {
        fs_err::read_to_string(self.dir.path().join(path)).unwrap_or_default()
    }

    pub fn called(&self, prefix: &str) -> usize {
        self.runner.calls().iter().filter(|call| call.starts_with(prefix)).count()
    }
}

fn plan(task: Task) -> NodePlan {
    NodePlan {
        cluster: "default/one/1".to_owned(),
        node: "m".to_owned(),
        address: [172, 22, 0, 20].into(),
        keeps_address: false,
        version: "v1.36.4".to_owned(),
        hosts_toml: "server = \"http://172.22.0.1:5000\"\n".to_owned(),
        programs: Vec::new(),
        files: Vec::new(),
        task,
    }
}

fn init() -> Task {
    Task::Init { config: "kind: InitConfiguration".to_owned(), manifests: vec!["kind: Namespace".to_owned()] }
}

fn join(control_plane: bool) -> Task {
    Task::Join { config: "kind: JoinConfiguration".to_owned(), control_plane }
}

#[tokio::test]
async fn a_new_server_is_set_up_and_kubeadm_called_once() {
    let bench = Bench::new(FakeRunner::default());
    let made = perform(&bench.server, &plan(init())).await;
    assert!(made.is_err(), "there is no admin.conf, for this kubeadm makes none");
    let calls = bench.runner.calls();
    let at = |prefix: &str| {
        calls.iter().position(|call| call.starts_with(prefix)).unwrap_or_else(|| panic!("{prefix}: {calls:?}"))
    };
    assert!(at("modprobe br_netfilter") < at("systemctl restart containerd.service"));
    assert!(at("systemctl restart containerd.service") < at("kubeadm init --config /run/foothold-node/kubeadm.yaml"));
    assert!(at("kubeadm init") < at("kubectl --kubeconfig /etc/kubernetes/admin.conf apply"));
    assert_eq!((bench.called("kubeadm init"), bench.called("kubeadm reset")), (1, 0));
    assert!(bench.text("etc/containerd/certs.d/_default/hosts.toml").contains("172.22.0.1:5000"));
    assert!(bench.text("etc/containerd/config.toml").contains("certs.d"));
    assert!(!bench.dir.path().join("run/foothold-node/kubeadm.yaml").exists(), "it may hold tokens");
    for component in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let patch = bench.text(&format!("run/foothold-node/patches/{component}+strategic.yaml"));
        assert!(patch.contains(&format!("- name: {component}\n")), "{component}: {patch}");
    }
    assert_eq!(bench.runner.stdin_of(at("kubectl --kubeconfig /etc/kubernetes/admin.conf apply")), b"kind: Namespace");
}

#[tokio::test]
async fn what_is_done_is_not_done_again() {
    let bench = Bench::new(FakeRunner::default());
    perform(&bench.server, &plan(join(false))).await.expect("joined");
    assert_eq!(bench.called("kubeadm join"), 1);
    bench.put("etc/kubernetes/kubelet.conf", "kubeadm's");
    perform(&bench.server, &plan(join(false))).await.expect("still joined");
    assert_eq!((bench.called("kubeadm join"), bench.called("kubeadm reset")), (1, 0));
    assert_eq!(bench.called("systemctl restart containerd.service"), 1, "nothing changed the second time");
}

#[tokio::test]
async fn what_was_cut_off_in_the_middle_is_reset_and_done_anew() {
    let bench = Bench::new(FakeRunner::default().fail(
        "kubectl --kubeconfig /etc/kubernetes/kubelet.conf get node",
        1,
        "no such node",
    ));
    Ledger::open(&bench.dir.path().join(LEDGER))
        .expect("a ledger")
        .set_fact("cluster", "default/one/1")
        .expect("noted");
    bench.put("etc/kubernetes/kubelet.conf", "of a join that was cut off");
    perform(&bench.server, &plan(join(false))).await.expect("joined");
    assert_eq!((bench.called("kubeadm reset"), bench.called("kubeadm join")), (1, 1));
}

/// The API server may be away for a moment, or for long.
#[tokio::test]
async fn what_was_whole_once_is_never_reset_though_its_api_does_not_answer() {
    for (task, file) in [(join(false), "etc/kubernetes/kubelet.conf"), (init(), "etc/kubernetes/admin.conf")] {
        let away = FakeRunner::default().fail("kubectl --kubeconfig /etc/kubernetes", 1, "connection refused");
        let bench = Bench::new(away);
        let first = perform(&bench.server, &plan(join(false))).await;
        first.expect("joined");
        bench.put("etc/kubernetes/kubelet.conf", "kubeadm's");
        bench.put(file, "kubeadm's");
        // Its objects cannot be applied, which is another step.
        let again = plan(match task {
            Task::Init { config, .. } => Task::Init { config, manifests: Vec::new() },
            other => other,
        });
        perform(&bench.server, &again).await.expect("as it was");
        assert_eq!((bench.called("kubeadm reset"), bench.called("kubeadm init")), (0, 0), "{file}");
    }
}

#[tokio::test]
async fn an_upgrade_is_kubeadms_and_the_kubelet_comes_behind_it() {
    let bench = Bench::new(FakeRunner::default());
    perform(&bench.server, &plan(join(true))).await.expect("joined");
    bench.put("etc/kubernetes/kubelet.conf", "kubeadm's");
    let mut newer = plan(Task::Upgrade { first: true });
    newer.version = "v1.36.5".to_owned();
    perform(&bench.server, &newer).await.expect("upgraded");
    let calls = bench.runner.calls();
    let at = |prefix: &str| calls.iter().position(|call| call.starts_with(prefix)).expect(prefix);
    assert!(
        at("kubeadm upgrade apply v1.36.5 --yes --patches /run/foothold-node/patches")
            < at("systemctl restart kubelet.service")
    );
    perform(&bench.server, &plan(Task::Upgrade { first: false })).await.expect("upgraded");
    assert_eq!(
        (bench.called("kubeadm upgrade node --patches /run/foothold-node/patches"), bench.called("kubeadm reset")),
        (1, 0)
    );
}

/// PEM of a certificate that ends in so many days.
fn ending_in(days: u64) -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.not_after = (std::time::SystemTime::now() + std::time::Duration::from_secs(days * 24 * 3600)).into();
    params.self_signed(&key).expect("a certificate").pem()
}

/// A master with certificates that end in so many days, two pods of each component, old and young: what renewal calls there.
fn renewed(server_ends: u64, admin_ends: u64) -> Vec<String> {
    let pods = json!({"items": [{"id": "old", "createdAt": "1700000000000000000"},
        {"id": "young", "createdAt": "9900000000000000000"}]});
    let listed = |runner: FakeRunner, _| runner.answer("crictl --timeout=100s pods", &pods.to_string());
    let bench = Bench::new((0..4).fold(FakeRunner::default(), listed));
    bench.put("etc/kubernetes/pki/etcd/server.crt", &ending_in(server_ends));
    let encoded = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let (ca, own) = (encoded("CA"), encoded(&ending_in(admin_ends)));
    let admin = format!(
        "server: https://m:6443\ncertificate-authority-data: {ca}\nclient-certificate-data: {own}\nclient-key-data: {ca}\n"
    );
    bench.put("etc/kubernetes/admin.conf", &admin);
    kubernetes::make(&bench.server, &plan(Task::Renew), true).expect("renewed");
    bench.runner.calls()
}

/// One that ends soon is enough. A static pod has 30 s to end, and crictl waits for two unless it is told.
#[test]
fn a_renewal_waits_until_static_pods_have_ended() {
    for (server, admin) in [(365, 59), (59, 365)] {
        let calls = renewed(server, admin);
        assert_eq!(calls[0], "kubeadm certs renew all");
        let etcd = ["pods --label component=etcd --output json", "stopp old"];
        assert_eq!(calls[1..3], etcd.map(|words| format!("crictl --timeout=100s {words}")));
        assert_eq!(calls.len(), 9, "{calls:?}");
    }
}

/// Cut off between kubeadm and the pods, a renewal goes on with the pods. One that is done stops nothing.
#[test]
fn a_renewal_that_is_not_due_lets_only_pods_begin_anew_that_are_older_than_it() {
    let calls = renewed(365, 61);
    assert!(!calls.iter().any(|call| call.starts_with("kubeadm") || call.ends_with("young")), "{calls:?}");
    assert_eq!(calls.iter().filter(|call| call.ends_with("stopp old")).count(), 4, "{calls:?}");
}

#[test]
fn a_node_of_another_cluster_is_never_reset() {
    let bench = Bench::new(FakeRunner::default());
    bench.put("etc/kubernetes/kubelet.conf", "of somebody else");
    let error = kubernetes::make(&bench.server, &plan(init()), false).expect_err("refused");
    assert!(error.to_string().contains("a node of another cluster"), "{error}");
    assert_eq!(bench.runner.calls(), Vec::<String>::new());
}

#[test]
fn a_first_master_is_done_when_the_last_thing_that_kubeadm_makes_is_there() {
    let bench = Bench::new(FakeRunner::default().fail("kubectl", 1, "not found"));
    assert!(!kubernetes::is_done(&bench.server, &plan(init())), "nothing is there");
    bench.put("etc/kubernetes/admin.conf", "");
    bench.put("etc/kubernetes/kubelet.conf", "");
    assert!(!kubernetes::is_done(&bench.server, &plan(init())), "kube-proxy is not there");
    assert!(kubernetes::is_done(&bench.server, &plan(init())));
    assert!(kubernetes::is_done(&bench.server, &plan(join(true))));
    fs_err::remove_file(bench.dir.path().join("etc/kubernetes/admin.conf")).expect("removed");
    assert!(!kubernetes::is_done(&bench.server, &plan(join(true))), "a master has the administrator's kubeconfig");
}

#[test]
fn an_invitation_is_read_from_what_kubeadm_prints() {
    let command =
        "kubeadm join 172.22.0.20:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:00ff \n";
    let key = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let said = format!(
        "[upload-certs] Storing the certificates in Secret \"kubeadm-certs\"\n[upload-certs] Using certificate key:\n{key}\n"
    );
    let bench = Bench::new(
        FakeRunner::default()
            .answer("kubeadm --kubeconfig", command)
            .answer("kubeadm version", "v1.36.4\n")
            .answer("kubeadm init phase upload-certs", &said),
    );
    let own = Some([172, 22, 0, 20].into());
    let invitation = kubernetes::invite(&bench.server, own).expect("invited");
    // A server without a default route has kubeadm told what it cannot find.
    let with = "kubeadm init phase upload-certs --upload-certs --config /run/foothold-node/kubeadm.yaml";
    assert_eq!(bench.called(with), 1);
    assert!(!bench.dir.path().join("run/foothold-node/kubeadm.yaml").exists());
    assert_eq!((&*invitation.token, &*invitation.ca_hash), ("abcdef.0123456789abcdef", "sha256:00ff"));
    assert_eq!(invitation.certificate_key.as_deref(), Some(key));
    let dumb = Bench::new(FakeRunner::default());
    assert!(kubernetes::invite(&dumb.server, None).is_err(), "kubeadm printed nothing");
}

#[test]
fn a_unit_of_the_servers_own_containerd_stays() {
    let bench = Bench::new(FakeRunner::default());
    bench.put("etc/systemd/system/containerd.service", "of the OS");
    assert!(runtime::set_up(&bench.server, "server", false).expect("set up"));
    assert_eq!(bench.text("etc/systemd/system/containerd.service"), "of the OS");
    // A power cut leaves empty notes of pods, whoever's unit it is.
    let beside = bench.text("etc/systemd/system/containerd.service.d/10-power-cut.conf");
    assert!(beside.contains("\nExecStartPre=-/usr/bin/find /var/lib/cni -type f -empty -delete\n"), "{beside}");
    assert!(!runtime::set_up(&bench.server, "server", false).expect("set up"), "nothing changed");
    assert_eq!(bench.called("systemctl restart containerd.service"), 1);
    assert!(runtime::set_up(&bench.server, "server", true).expect("set up"), "its program is another one");
    assert_eq!(bench.called("systemctl restart containerd.service"), 2);
}

#[test]
fn settings_hold_after_a_restart() {
    let bench = Bench::new(FakeRunner::default());
    assert!(system::set_up(&bench.server, OWN).expect("set up"));
    assert!(bench.text("etc/modules-load.d/kubernetes.conf").contains("overlay"));
    assert!(bench.text("etc/sysctl.d/60-kubernetes.conf").contains("net.ipv4.ip_forward = 1"));
    assert!(!system::set_up(&bench.server, OWN).expect("set up"));
}

#[test]
fn a_reset_removes_what_kubernetes_left_and_nothing_else() {
    let rules = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:CNI-HOSTPORT-DNAT - [0:0]\n:MINE - [0:0]\n\
                 -A PREROUTING -j KUBE-SERVICES\n-A PREROUTING -j MINE\n-A MINE -j ACCEPT\nCOMMIT\n";
    let bench = Bench::new(FakeRunner::default().answer("iptables-save", rules));
    for path in
        ["etc/cni/net.d/10-flannel.conflist", "etc/kubernetes/kubelet.conf", "var/lib/etcd/member/x", "etc/other/kept"]
    {
        bench.put(path, "x");
    }
    reset::reset(&bench.server).expect("reset");
    for path in ["etc/cni/net.d", "etc/kubernetes", "var/lib/etcd"] {
        assert!(!bench.dir.path().join(path).exists(), "{path}");
    }
    assert!(bench.dir.path().join("etc/other/kept").exists());
    let at = bench.runner.calls().iter().position(|call| call == "iptables-restore").expect("restored");
    let kept = String::from_utf8(bench.runner.stdin_of(at)).expect("text");
    assert_eq!(
        kept,
        "*nat\n:PREROUTING ACCEPT [0:0]\n:MINE - [0:0]\n-A PREROUTING -j MINE\n-A MINE -j ACCEPT\nCOMMIT\n"
    );
    assert_eq!(bench.called("ip6tables-restore"), 0, "it has no rules of Kubernetes");
}

#[test]
fn only_a_node_of_the_cluster_that_it_leaves_is_reset() {
    let bench = Bench::new(FakeRunner::default());
    let plan = |cluster: &str| ResetPlan { cluster: cluster.to_owned() };
    let is_meant = |plan: Option<&ResetPlan>| reset::is_meant(&bench.server, plan).expect("read");
    bench.put("etc/kubernetes/kubelet.conf", "of somebody else");
    assert!(!is_meant(Some(&plan("default/one/1"))), "nobody made it a node of this cluster");
    assert!(is_meant(None), "whoever asks by hand knows");
    let ledger = Ledger::open(&bench.dir.path().join(LEDGER)).expect("a ledger");
    ledger.set_fact(CLUSTER, "default/one/1").expect("written");
    assert!(is_meant(Some(&plan("default/one/1"))));
    assert!(!is_meant(Some(&plan("default/two/2"))));
}

/// An NFS share that kubeadm could not unmount, in a pod's folder; etcd on a disk of its own; the kubelet's folder elsewhere.
#[test]
fn what_is_mounted_is_never_removed_by_a_reset() {
    let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 8:2 / /var/lib/etcd rw - ext4 /dev/sdb1 rw\n\
                  40 22 0:40 / /var/lib/kubelet/pods/1/volumes/a\\040b rw - nfs4 nas:/share rw\n\
                  41 40 0:41 / /var/lib/kubelet/pods/1/volumes/a\\040b/c rw - tmpfs tmpfs rw\n";
    let put = |bench: &Bench| {
        bench.put("proc/self/mountinfo", mounts);
        bench.put("var/lib/etcd/member/wal", "x");
        bench.put("var/lib/kubelet/pods/1/volumes/a b/users", "data");
    };
    let bench = Bench::new(FakeRunner::default().fail("umount", 32, "target is busy"));
    put(&bench);
    let error = reset::reset(&bench.server).expect_err("a share is in use");
    let told = format!("{error:#}");
    assert!(told.contains("volumes/a b/c` is mounted in `/var/lib/kubelet`") && told.contains("busy"), "{told}");
    assert_eq!(bench.text("var/lib/kubelet/pods/1/volumes/a b/users"), "data");

    let bench = Bench::new(FakeRunner::default());
    put(&bench);
    reset::reset(&bench.server).expect("reset");
    let calls = bench.runner.calls();
    let unmounted: Vec<&str> = calls.iter().filter_map(|call| call.strip_prefix("umount ")).collect();
    let volume = "/var/lib/kubelet/pods/1/volumes/a b";
    assert_eq!(unmounted, [&*format!("{volume}/c"), volume], "the upper one first, and not the disk of etcd");
    assert!(!bench.dir.path().join("var/lib/kubelet").exists());
    assert_eq!(fs_err::read_dir(bench.dir.path().join("var/lib/etcd")).expect("it stays").count(), 0);

    let bench = Bench::new(FakeRunner::default());
    bench.put("data/kubelet/pods/x", "x");
    fs_err::create_dir_all(bench.dir.path().join("var/lib")).expect("a folder");
    let link = bench.dir.path().join("var/lib/kubelet");
    fs_err::os::unix::fs::symlink(bench.dir.path().join("data/kubelet"), &link).expect("a link");
    reset::reset(&bench.server).expect("reset");
    assert_eq!(fs_err::read_dir(link).expect("it still leads there").count(), 0);
}

/// containerd kills keepalived. A configuration that somebody else wrote is his.
#[test]
fn a_master_that_leaves_does_not_keep_the_shared_address() {
    let ours = "vrrp_script api {\n  script \"/usr/bin/foothold-agent node answers 127.0.0.1:8443\"\n}\nvrrp_instance api {\n  \
                interface ens3\n  virtual_ipaddress {\n    172.22.0.250/24\n  }\n}\n";
    for (text, deleted) in [(ours, 1), ("interface ens3\nvirtual_ipaddress {\n  172.22.0.250/24\n}\n", 0)] {
        let bench = Bench::new(FakeRunner::default());
        bench.put("etc/keepalived/keepalived.conf", text);
        reset::reset(&bench.server).expect("reset");
        assert_eq!(bench.called("ip address delete 172.22.0.250/24 dev ens3"), deleted);
        assert_eq!(bench.text("etc/keepalived/keepalived.conf").is_empty(), deleted == 1);
    }
}

/// DHCP leases the address to others when the server is given back. `cluster`: what the ledger names when the reset begins.
#[test]
fn a_server_that_leaves_gives_its_address_back_whenever_it_was_cut_off() {
    let drop_in = "etc/systemd/network/a.network.d/50-foothold-address.conf";
    let plan = ResetPlan { cluster: "default/one/1".to_owned() };
    for (cluster, traces, left) in [
        (Some("default/one/1"), true, true),
        // The address was kept, and kubeadm did not begin; or the reset was cut off at its end.
        (None, false, true),
        (None, true, false),
        (Some("default/two/2"), true, false),
    ] {
        let bench = Bench::new(FakeRunner::default());
        bench.put(drop_in, "[Network]");
        if traces {
            bench.put("etc/kubernetes/kubelet.conf", "x");
        }
        if let Some(cluster) = cluster {
            let ledger = Ledger::open(&bench.dir.path().join(LEDGER)).expect("a ledger");
            ledger.set_fact(CLUSTER, cluster).expect("written");
        }
        reset::leave(&bench.server, Some(&plan)).expect("it leaves");
        let is_there = |path: &str| bench.dir.path().join(path).exists();
        assert_eq!((!is_there(drop_in), is_there(LEDGER)), (left, !left && cluster.is_some()), "{cluster:?} {traces}");
    }
    // networkd does not answer: the ledger stays, and the next reset goes on.
    let bench = Bench::new(FakeRunner::default().fail("networkctl reload", 1, "timed out"));
    bench.put(drop_in, "[Network]");
    bench.put("run/systemd/netif/links/2", "");
    let ledger = Ledger::open(&bench.dir.path().join(LEDGER)).expect("a ledger");
    ledger.set_fact(CLUSTER, "default/one/1").expect("written");
    reset::leave(&bench.server, Some(&plan)).expect_err("not yet");
    assert!(bench.dir.path().join(LEDGER).exists());
    reset::leave(&bench.server, Some(&plan)).expect("now");
    assert_eq!(bench.called("networkctl reload"), 2);
}

/// Killed between a file and the program that reads it.
#[test]
fn who_was_cut_off_before_a_program_read_its_files_has_it_read_them() {
    let restart = "systemctl restart containerd.service";
    let bench = Bench::new(FakeRunner::default().fail(restart, 1, "killed here"));
    runtime::set_up(&bench.server, "server", false).expect_err("cut off");
    assert!(runtime::set_up(&bench.server, "server", false).expect("set up"));
    assert_eq!((bench.called(restart), bench.called("systemctl start")), (2, 0));
    assert!(!runtime::set_up(&bench.server, "server", false).expect("set up"));
    assert_eq!((bench.called(restart), bench.called("systemctl start")), (2, 1));

    let reload = "systemctl reload-or-restart systemd-resolved.service";
    let bench = Bench::new(FakeRunner::default().fail(reload, 1, "killed here"));
    bench.put("run/systemd/resolve/resolv.conf", "");
    system::set_up(&bench.server, OWN).expect_err("cut off");
    for _ in 0..2 {
        system::set_up(&bench.server, OWN).expect("set up");
    }
    assert_eq!(bench.called(reload), 2);
}

#[test]
fn a_server_that_nothing_came_to_is_reset_without_kubeadm() {
    let bench = Bench::new(FakeRunner::default().fail("kubeadm", 127, "not found"));
    reset::reset(&bench.server).expect("reset");
    assert_eq!((bench.called("kubeadm"), bench.called("systemctl stop")), (0, 0));
    let stopped = "Failed to stop kubelet.service: Unit kubelet.service not loaded.";
    let bench = Bench::new(FakeRunner::default().fail("systemctl stop kubelet.service", 5, stopped));
    bench.put("usr/bin/kubeadm", "");
    reset::reset(&bench.server).expect("its programs came, and nothing else");
    assert_eq!(bench.called("kubeadm reset"), 1);
    let bench = Bench::new(FakeRunner::default().fail("systemctl stop kubelet.service", 1, "Connection timed out"));
    bench.put("etc/kubernetes/kubelet.conf", "");
    reset::reset(&bench.server).expect_err("it may run");
}

#[test]
fn a_program_that_is_missing_or_another_is_brought() {
    let bench = Bench::new(FakeRunner::default());
    bench.put("usr/bin/kubelet", "good");
    bench.put("usr/bin/kubeadm", "old");
    let program =
        |path: &str, text: &str| Program { path: path.to_owned(), url: String::new(), digest: Digest::of(text) };
    let all =
        [program("/usr/bin/kubelet", "good"), program("/usr/bin/kubeadm", "new"), program("/usr/bin/crictl", "new")];
    let missing = programs::missing(&bench.server, &all).expect("looked");
    assert_eq!(
        missing.iter().map(|program| &*program.path).collect::<Vec<_>>(),
        ["/usr/bin/kubeadm", "/usr/bin/crictl"]
    );
}

#[test]
fn names_of_one_program_are_one_file() {
    use std::os::unix::fs::MetadataExt as _;
    let bench = Bench::new(FakeRunner::default());
    bench.put("usr/bin/kubeadm", "new");
    bench.put("usr/bin/kubelet", "old");
    let program =
        |path: &str, text: &str| Program { path: path.to_owned(), url: String::new(), digest: Digest::of(text) };
    let all = [program("/usr/bin/kubeadm", "new"), program("/usr/bin/kubelet", "new"), program("/opt/x", "other")];
    let linked = all.clone().map(|one| programs::link(&bench.server, &one, &all).expect("looked"));
    assert_eq!(linked, [false, true, false]);
    let inode = |path: &str| fs_err::metadata(bench.dir.path().join(path)).expect("there").ino();
    assert_eq!((bench.text("usr/bin/kubelet"), inode("usr/bin/kubelet")), ("new".into(), inode("usr/bin/kubeadm")));
    assert!(programs::missing(&bench.server, &all[..2]).expect("looked").is_empty());
}

/// A site need not have a name server, and may get one later.
#[test]
fn there_is_always_a_name_server_for_pods() {
    let bench = Bench::new(FakeRunner::default());
    bench.put("run/systemd/resolve/resolv.conf", "# No DNS servers known.\n");
    system::set_up(&bench.server, OWN).expect("set up");
    system::set_up(&bench.server, OWN).expect("set up");
    let drop_in = "etc/systemd/resolved.conf.d/50-kubernetes.conf";
    assert_eq!(bench.text(drop_in), "[Resolve]\nFallbackDNS=172.22.0.20\n");
    assert_eq!(bench.called("systemctl reload-or-restart systemd-resolved.service"), 1);
    reset::reset(&bench.server).expect("reset");
    assert!(!bench.dir.path().join(drop_in).exists());

    for (before, after) in [
        ("search site\n", "search site\nnameserver 172.22.0.20\n"),
        ("nameserver 10.0.0.53\n", "nameserver 10.0.0.53\n"),
        ("# nameserver 10.0.0.53\n", "# nameserver 10.0.0.53\nnameserver 172.22.0.20\n"),
    ] {
        let bench = Bench::new(FakeRunner::default());
        bench.put("etc/resolv.conf", before);
        system::set_up(&bench.server, OWN).expect("set up");
        assert_eq!(bench.text("etc/resolv.conf"), after);
    }
    let bench = Bench::new(FakeRunner::default());
    system::set_up(&bench.server, OWN).expect("set up");
    assert_eq!(bench.text("etc/resolv.conf"), "nameserver 172.22.0.20\n");
}
