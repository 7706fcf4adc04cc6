//! Real keepalived and `HAProxy`, out of the images that the builder makes, as the static pods of a cluster's masters run
//! them: the virtual address is with a master that answers. And a control plane of three, with real etcd and API servers:
//! it answers there while one of them loses its power.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use foothold::config::{Clusters, Provisioning, Services};
use foothold_agent::http::client;
use foothold_qemu::Tools;
use foothold_qemu::site::{BRIDGE, Lan, Namespace};
use foothold_tests::fixture::kept_by_agent;
use foothold_tests::pods::{Pod, first_process, ip_of, wait_for};
use foothold_tests::programs::program;
use foothold_tests::service_image::ServiceImage;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const VIRTUAL: &str = "172.22.0.250";
/// Stands for the agent in the image: tells what it was asked, and whether the master answers.
const ASKED: &str = "#!/usr/bin/sh\necho \"$@\" > /run/asked\ntest -e /run/answers\n";
/// Two failures in a row at intervals of ten seconds, on a busy host.
const PATIENCE: Duration = Duration::from_secs(90);

/// A pod's manifest or configuration, as the controller of clusters writes it.
fn written(name: &str) -> String {
    kept_by_agent("operators/bpa/provisioning", name)
}

/// The configuration of keepalived of the master at `.1PLACE`. That of the second one is kept: each one's peers are the others.
fn keepalived_of(place: usize) -> String {
    let (second, own) = (written("balance__tests__keepalived_conf"), address_of(place));
    let config = second.replace(&own, "?").replace("172.22.0.11", &own).replace('?', "172.22.0.11");
    let config = config.replace("router_id m-1", &format!("router_id m-{place}"));
    let config = config.replace("priority 149", &format!("priority {}", 150 - place));
    config.replace("{interface}", "eth0").replace("{prefix}", "24")
}

fn address_of(place: usize) -> String {
    format!("172.22.0.1{place}")
}

/// Whether what `ip` says of a master's addresses has the virtual one.
fn has_virtual(said: &str) -> bool {
    said.contains(&format!("{VIRTUAL}/24"))
}

/// Asks `ip` for the addresses of a master's card.
const ADDRESSES: [&str; 5] = ["-brief", "address", "show", "dev", "eth0"];

fn image(name: &str) -> ServiceImage {
    let clusters = Some(Clusters::default());
    let services = Services { provisioning: Some(Provisioning::default()), clusters, ..Services::default() };
    ServiceImage::of_packages(&services, name).expect("an image")
}

/// Puts a script in the place of the agent that is in the image.
fn stands_in(image: &ServiceImage, script: &str) {
    let program = image.tree.path().join("usr/bin/foothold-agent");
    fs_err::write(&program, script).expect("written");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs_err::set_permissions(program, open).expect("a program");
}

/// A master: keepalived in its image.
struct Master {
    image: ServiceImage,
    pod: Pod,
}

impl Master {
    fn start(place: usize) -> Self {
        let image = image("keepalived");
        let root = image.tree.path();
        let pod: Value = serde_json::from_str(&written("balance__tests__keepalived_pod")).expect("a pod");
        let container = &pod["spec"]["containers"][0];
        let words = |list: &Value| -> Vec<String> { serde_json::from_value(list.clone()).expect("words") };
        let path = container["volumeMounts"][0]["mountPath"].as_str().expect("a path").trim_start_matches('/');
        fs_err::write(root.join(path), keepalived_of(place)).expect("written");
        stands_in(&image, ASKED);
        let capabilities = words(&container["securityContext"]["capabilities"]["add"]);
        let capabilities: Vec<&str> = capabilities.iter().map(String::as_str).collect();
        let told = words(&container["args"]);
        let argv: Vec<&str> = ["/usr/sbin/keepalived"].into_iter().chain(told.iter().map(String::as_str)).collect();
        let log = root.join("keepalived.log");
        let pod = Pod::start(root, &format!("{}/24", address_of(place)), &capabilities, &argv, &log);
        Self { image, pod }
    }

    fn answers(&self, whether: bool) {
        let flag = self.image.tree.path().join("run/answers");
        let done = if whether { fs_err::write(flag, "") } else { fs_err::remove_file(flag) };
        done.expect("changed");
    }

    fn has_the_address(&self) -> bool {
        has_virtual(&self.pod.ip(&ADDRESSES))
    }

    /// How often it has found that the master does not answer.
    fn failures(&self) -> usize {
        self.said().matches("VRRP_Script(api) failed").count()
    }

    fn said(&self) -> String {
        fs_err::read_to_string(self.image.tree.path().join("keepalived.log")).unwrap_or_default()
    }
}

impl Drop for Master {
    #[expect(clippy::print_stderr, reason = "for who reads why it failed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
    }
}

#[test]
fn the_virtual_address_is_with_a_master_that_answers() {
    let mut masters = [0, 1].map(Master::start);
    let [first, second] = &masters;
    let with = |holder: &Master, other: Option<&Master>, why: &str| {
        wait_for(why, PATIENCE, || {
            let alone = other.is_none_or(|other| !other.has_the_address());
            (alone && holder.has_the_address()).then_some(())
        });
    };
    first.answers(true);
    second.answers(true);
    first.pod.join(&second.pod);
    with(first, Some(second), "the first master to have the address");
    let asked = fs_err::read_to_string(first.image.tree.path().join("run/asked")).expect("it was asked");
    assert_eq!(asked, "node answers 127.0.0.1:8443\n");
    first.answers(false);
    with(second, Some(first), "the second one to have it, because the first does not answer");
    first.answers(true);
    with(first, Some(second), "the first one to have it again");
    // Nobody is better than a master that is busy.
    let before = [first, second].map(Master::failures);
    first.answers(false);
    second.answers(false);
    wait_for("both to say that they do not answer", PATIENCE, || {
        let now = [first, second].map(Master::failures);
        (now[0] > before[0] && now[1] > before[1]).then_some(())
    });
    with(first, Some(second), "the first one to have it still, or again");
    first.answers(true);
    second.answers(true);
    let said = [first, second].map(Master::said).join("\n");
    assert!(!["Unable", "Couldn't", "Error", "exited due"].iter().any(|word| said.contains(word)), "{said}");
    let [first, second] = &mut masters;
    first.pod.kill();
    with(second, None, "the second one to have it, because the first lost its power");
}

#[test]
fn real_haproxy_takes_what_shares_the_api_among_the_masters() {
    let image = image("haproxy");
    let config = written("balance__tests__haproxy_cfg");
    image.check_haproxy(&config).unwrap_or_else(|error| panic!("{error}"));
    let error = image.check_haproxy(&config.replace("redispatch", "nonsense")).expect_err("refused");
    assert!(error.contains("nonsense"), "{error}");
}

/// A master of three: etcd, an API server, `HAProxy` and keepalived, each started anew when it ends. etcd speaks without TLS.
const THREE: &str = r#"
set -e
own=$1 place=$2 dir=$3 etcd=$4 api=$5 haproxy=$6 keepalived=$7 etcd_flags=$8 api_flags=$9
mount --make-rprivate /
ip link set lo up
for tree in "$haproxy" "$keepalived"; do
  mkdir -p "$tree/proc" "$tree/dev"
  mount -t proc proc "$tree/proc"
  mount --rbind /dev "$tree/dev"
done
until ip link set eth0 up 2> /dev/null; do sleep 0.1; done
ip address add "$own/24" dev eth0
again() { while true; do "$@" || true; sleep 1; done; }
again "$etcd" --name "m-$place" --data-dir "$dir/etcd" $etcd_flags --listen-metrics-urls "http://$own:2381" \
  --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls "http://$own:2380" --initial-advertise-peer-urls "http://$own:2380" --initial-cluster-state new \
  --initial-cluster m-0=http://172.22.0.10:2380,m-1=http://172.22.0.11:2380,m-2=http://172.22.0.12:2380 &
again "$api" --advertise-address "$own" --secure-port 6443 --cert-dir "$dir/pki" --etcd-servers http://127.0.0.1:2379 \
  $api_flags --authorization-mode RBAC --token-auth-file "$dir/tokens" --service-cluster-ip-range 10.96.0.0/12 \
  --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$dir/sa.pub" \
  --service-account-signing-key-file "$dir/sa.key" &
again chroot "$haproxy" /usr/sbin/haproxy -W -db -f /etc/haproxy.cfg &
again chroot "$keepalived" /usr/sbin/keepalived --dont-fork --log-console --use-file /etc/keepalived.conf &
wait
"#;
/// Of the cluster's administrator.
const TOKEN: &str = "of-this-test";
/// How often the API is asked.
const EACH: Duration = Duration::from_millis(250);
/// How long who asks waits for an answer, as an impatient client does.
const IMPATIENT: Duration = Duration::from_secs(5);

/// Flags of a component, as kubeadm is told them.
fn flags(component: &Value) -> String {
    let flag = |flag: &Value| {
        format!("--{}={} ", flag["name"].as_str().expect("a name"), flag["value"].as_str().expect("a value"))
    };
    component["extraArgs"].as_array().expect("flags").iter().map(flag).collect()
}

/// One of three masters, on the bridge of this thread's namespace.
struct OfThree {
    init: Child,
    inside: u32,
    place: usize,
    log: PathBuf,
    _trees: [ServiceImage; 2],
}

impl OfThree {
    fn start(place: usize, trees: [ServiceImage; 2], dir: &Path, shared: &[(&str, String)]) -> Self {
        let dir = dir.join(format!("m-{place}"));
        fs_err::create_dir(&dir).expect("made");
        for (name, text) in shared {
            fs_err::write(dir.join(name), text).expect("written");
        }
        let [haproxy, keepalived] = &trees;
        fs_err::write(haproxy.tree.path().join("etc/haproxy.cfg"), written("balance__tests__haproxy_cfg"))
            .expect("written");
        fs_err::write(keepalived.tree.path().join("etc/keepalived.conf"), keepalived_of(place)).expect("written");
        stands_in(keepalived, "#!/usr/bin/sh\nexit 0\n");
        let kubeadm = written("kubeadm__tests__init");
        let cluster: Value = serde_json::from_str(kubeadm.split("---\n").nth(1).expect("a document")).expect("JSON");
        let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let (etcd, api) = (program("etcd", "server"), program("kubernetes", "kube-apiserver"));
        let told = [
            address_of(place),
            place.to_string(),
            path(&dir),
            path(&etcd),
            path(&api),
            path(haproxy.tree.path()),
            path(keepalived.tree.path()),
            flags(&cluster["etcd"]["local"]),
            flags(&cluster["apiServer"]),
        ];
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        let log = dir.join("log");
        let (init, inside) = first_process(THREE, &told, &log);
        let cable = Self::cable(place);
        ip(&["link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &inside.to_string()]);
        ip(&["link", "set", &cable, "master", BRIDGE, "up"]);
        Self { init, inside, place, log, _trees: trees }
    }

    fn cable(place: usize) -> String {
        format!("to-m-{place}")
    }

    /// Nobody answers there any more, not even with a refusal.
    fn lose_power(&mut self) {
        ip(&["link", "delete", &Self::cable(self.place)]);
        self.kill();
    }

    fn has_the_address(&self) -> bool {
        has_virtual(&ip_of(self.inside, &ADDRESSES))
    }

    fn kill(&mut self) {
        let _ = self.init.kill();
        let _ = self.init.wait();
    }
}

impl Drop for OfThree {
    #[expect(clippy::print_stderr, reason = "for who reads why it failed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = fs_err::read_to_string(&self.log).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(60).collect();
            eprintln!("m-{}:\n{}", self.place, last.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        self.kill();
    }
}

/// Runs `ip` in the namespace of this thread.
fn ip(arguments: &[&str]) {
    #[expect(clippy::disallowed_methods, reason = "a cable of this test's own namespace")]
    let output = Command::new("ip").args(arguments).output().expect("ip runs");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What came of a request.
#[derive(Debug)]
struct Answer {
    /// When it was made, in seconds since the power was cut.
    at: f64,
    took: Duration,
    good: bool,
}

fn client() -> Client {
    let made =
        client::plain().tls_danger_accept_invalid_certs(true).pool_max_idle_per_host(0).timeout(IMPATIENT).build();
    made.expect("a client")
}

/// A request of a client of its own: a connection that is kept would lead to a master that is gone.
async fn ask(write: Option<u64>, cut: Instant) -> Answer {
    let begun = Instant::now();
    let client = client();
    let url = format!("https://{VIRTUAL}:8443/api/v1/namespaces/default");
    let request = match write {
        None => client.get(url),
        Some(number) => client
            .patch(url)
            .header("Content-Type", "application/merge-patch+json")
            .body(json!({"metadata": {"labels": {"number": number.to_string()}}}).to_string()),
    };
    let good = request.bearer_auth(TOKEN).send().await.is_ok_and(|answer| answer.status().is_success());
    let at = if begun < cut { -(cut - begun).as_secs_f64() } else { (begun - cut).as_secs_f64() };
    Answer { at, took: begun.elapsed(), good }
}

/// Reads and writes at a steady rate, from seconds before the power is cut until seconds after that.
async fn answers_around(before: Duration, after: Duration, cut: impl FnOnce()) -> [Vec<Answer>; 2] {
    let at = Instant::now() + before;
    let (mut requests, mut cut, mut number) = (JoinSet::new(), Some(cut), 0);
    while Instant::now() < at + after {
        if Instant::now() >= at
            && let Some(cut) = cut.take()
        {
            cut();
        }
        number += 1;
        requests.spawn(async move { (0, ask(None, at).await) });
        requests.spawn(async move { (1, ask(Some(number), at).await) });
        tokio::time::sleep(EACH).await;
    }
    let mut all = [Vec::new(), Vec::new()];
    for (kind, answer) in requests.join_all().await {
        all[kind].push(answer);
    }
    for answers in &mut all {
        answers.sort_by(|one, other| one.at.total_cmp(&other.at));
    }
    all
}

/// Whether the API server there is ready.
async fn is_ready(place: usize) -> bool {
    let answer = client().get(format!("https://{}:6443/readyz", address_of(place))).send().await;
    answer.is_ok_and(|answer| answer.status().is_success())
}

/// Whether the member of etcd there leads.
async fn leads(place: usize) -> bool {
    let Ok(answer) = client().get(format!("http://{}:2381/metrics", address_of(place))).send().await else {
        return false;
    };
    answer.text().await.is_ok_and(|text| text.contains("\netcd_server_is_leader 1\n"))
}

/// How many were lost and when, and how long the others took.
fn figures(answers: &[Answer]) -> String {
    let lost: Vec<f64> = answers.iter().filter(|answer| !answer.good).map(|answer| answer.at).collect();
    let took: Vec<Duration> = answers.iter().filter(|answer| answer.good).map(|answer| answer.took).collect();
    format!(
        "{} of {} lost, from {:.1} to {:.1} s after the cut; {} took more than a second, {:.1} s at most",
        lost.len(),
        answers.len(),
        lost.first().unwrap_or(&0.0),
        lost.last().unwrap_or(&0.0),
        took.iter().filter(|took| **took > Duration::from_secs(1)).count(),
        took.iter().max().unwrap_or(&Duration::ZERO).as_secs_f64()
    )
}

#[test]
#[expect(clippy::print_stdout, reason = "figures")]
fn three_masters_go_on_without_the_one_that_has_the_address() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tools = Tools::program_or_make("usr/bin/ip").and_then(|_| Tools::locate()).expect("a toolbox");
    let dir = tempfile::tempdir().expect("a folder");
    let key = rcgen::KeyPair::generate().expect("a key");
    let shared = [
        ("sa.key", key.serialize_pem()),
        ("sa.pub", key.public_key_pem()),
        ("tokens", format!("{TOKEN},admin,admin,system:masters\n")),
    ];
    program("etcd", "server");
    program("kubernetes", "kube-apiserver");
    let trees: Vec<_> = (0..3).map(|_| [image("haproxy"), image("keepalived")]).collect();
    Namespace::make().unwrap_or_else(|error| panic!("{error}")).run(move || {
        let lan = Lan::make(&tools).expect("a bridge");
        lan.address("172.22.0.1/24").expect("an address");
        let start = |(place, trees)| OfThree::start(place, trees, dir.path(), &shared);
        let mut masters: Vec<OfThree> = trees.into_iter().enumerate().map(start).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let begun = Instant::now();
            while !(is_ready(0).await && is_ready(1).await && is_ready(2).await && ask(Some(0), begun).await.good) {
                assert!(begun.elapsed() < PATIENCE * 2, "the masters are not ready, or nobody answers at {VIRTUAL}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let (led, first) = (leads(0).await, &mut masters[0]);
            wait_for("the first master to have the address", PATIENCE, || first.has_the_address().then_some(()));
            let all = answers_around(Duration::from_secs(5), Duration::from_secs(40), || first.lose_power()).await;
            for (what, answers) in ["reads", "writes"].into_iter().zip(&all) {
                println!("{what}: {}; its member of etcd led: {led}", figures(answers));
                assert!(answers.iter().all(|answer| answer.good || answer.at > -1.0), "{what}: {answers:?}");
                let late: Vec<_> = answers.iter().filter(|answer| answer.at > 30.0).collect();
                assert!(!late.is_empty() && late.iter().all(|answer| answer.good), "{what}: {late:?}");
            }
        });
        drop(masters);
    });
}
