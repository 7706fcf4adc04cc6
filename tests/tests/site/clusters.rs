//! Servers of a site become a Kubernetes cluster: machines that run our node image, which is all that they have of the box at
//! first. The box is a machine that boots, or its half is made of processes of this machine ([`Formed`]); that cannot run the Job
//! of a `Release`, so the cluster itself does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foothold::config::DiskFormat;
use foothold_agent::cluster::api::Api;
use foothold_agent::cluster::kubeconfig;
use foothold_agent::ssh::{self, Identity, Session, Target};
use foothold_agent::steps::chain;
use foothold_qemu::{Disk, Firmware, Nic, Tools, Vm, VmBuilder, Writes};
use foothold_tests::Appliance;
use foothold_tests::os_image::{self, Workshop};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bench::{NODE, in_namespace, lan};
use crate::booted::Booted;
use crate::cluster::define;
use crate::formed::{Formed, Made};

/// What emulated machines take for a cluster, beside each other.
pub const FORMED: Duration = Duration::from_secs(3600);
/// What they take for one step of it.
pub const STEP: Duration = Duration::from_secs(1200);
/// A node comes after the box, as in nice(1): a box that gets too little of two processors to look after its own cluster
/// starts its own API server again and again, and nothing goes on.
const BEHIND_THE_BOX: u8 = 3;
/// A box that forms clusters, with a package and a manifest for them, below the images.
const DEFINITION: &str = "simulation/cluster-appliance.yaml";
/// The box's own release of Kubernetes.
pub const OWN_VERSION: &str = "v1.36.4";
/// Namespace of the clusters.
pub const NAMESPACE: &str = "default";
/// On every node, of the Deployment that answers.
const PORT: u16 = 30_053;
pub const PROVISIONINGS: &str = "/apis/bpa.akraino.org/v1alpha1/namespaces/default/provisionings";
pub const SOFTWARES: &str = "/apis/bpa.akraino.org/v1alpha1/namespaces/default/softwares";
const RELEASES: &str = "/apis/kpa.foothold.dev/v1alpha1/namespaces/default/releases";
pub const HOSTS: &str = "/apis/metal3.io/v1alpha1/namespaces/metal3/baremetalhosts";

/// A machine that runs the node image, and has a name and a key from its seed.
pub struct Node {
    pub name: &'static str,
    pub vm: Vm,
}

impl Node {
    pub fn start(image: &Path, dir: &Path, (name, number, memory): Wished, key: &str) -> Self {
        let mac = mac(number);
        let user_data = format!("#cloud-config\nssh_authorized_keys: [\"{}\"]\n", key.trim());
        let meta_data = format!("instance-id: {name}-1\nlocal-hostname: {name}\n");
        let folder = dir.join(name);
        fs_err::create_dir_all(&folder).expect("a folder");
        let seed = os_image::seed(&folder, &[("meta-data", &meta_data), ("user-data", &user_data)]);
        let tools = Tools::locate().expect("a toolbox");
        let tap = lan().cable(&format!("tap{name}")).expect("a cable");
        let disk = Disk::open(image).expect("an image").writes(Writes::Discard).grow_to(12 << 30);
        let vm = VmBuilder::new(&tools, name)
            .memory_mib(memory)
            .cpus(2)
            .nice(BEHIND_THE_BOX)
            .firmware(Firmware::Bios)
            .boot(disk)
            .disk(Disk::open(seed).expect("a seed"))
            .nic(Nic::device(&tap).mac(&mac))
            .keep_on_panic(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("clusters").join(name))
            .start()
            .unwrap_or_else(|error| panic!("{error}"));
        Self { name, vm }
    }
}

/// The box's API, asked until it says what is expected; what happened when is told.
pub struct Site {
    pub api: Api,
    pub begun: Instant,
}

impl Site {
    pub async fn until(&self, path: &str, what: &str, within: Duration, mut done: impl FnMut(&Value) -> bool) -> Value {
        let (begun, mut last, mut told) = (Instant::now(), Value::Null, String::new());
        while begun.elapsed() < within {
            if let Ok(found) = self.api.get(path).await {
                last = found.unwrap_or(Value::Null);
                let message = format!("{} {}", last["status"]["phase"], message(&last));
                if message != told {
                    self.say(&format!("{path}: {message}"));
                    told = message;
                }
                if done(&last) {
                    self.say(what);
                    return last;
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{what}: not within {} s: {last:#}", within.as_secs());
    }

    #[expect(clippy::print_stderr, reason = "for who reads what took how long")]
    pub fn say(&self, what: &str) {
        eprintln!("{:7.1} s  {what}", self.begun.elapsed().as_secs_f64());
    }

    /// Asks until it is there: machines that boot beside it leave the box little of the processors.
    pub async fn create(&self, path: &str, object: Value) {
        let begun = Instant::now();
        let one = format!("{path}/{}", object["metadata"]["name"].as_str().expect("a name"));
        while let Err(error) = self.api.create(path, &object).await {
            self.say(&format!("{path}: {}", chain(&error)));
            if matches!(self.api.get(&one).await, Ok(Some(_))) {
                return;
            }
            assert!(begun.elapsed() < STEP, "{path}: not created");
        }
    }
}

/// What its condition `Ready` says.
pub fn message(object: &Value) -> &str {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .find(|condition| condition["type"] == "Ready")
        .and_then(|ready| ready["message"].as_str())
        .unwrap_or_default()
}

pub fn is_ready(object: &Value) -> bool {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The kubeconfig of a cluster, from its Secret.
pub async fn kubeconfig_of(site: &Site, name: &str) -> String {
    secret_of(site, &format!("{name}-kubeconfig"), "value").await
}

/// A text of a Secret.
pub async fn secret_of(site: &Site, name: &str, key: &str) -> String {
    use base64::Engine as _;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
    let secret = site.api.get(&path).await.expect("asked").expect("a Secret");
    let text = secret["data"][key].as_str().expect("it has that key");
    let text = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    String::from_utf8(text).expect("text")
}

pub fn client_of(text: &str) -> Api {
    Api::new(&kubeconfig::parse(text).expect("a kubeconfig")).expect("a client")
}

fn images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../images").canonicalize().expect("the images")
}

/// The same box, in a folder of its own, with the second text in place of the first one.
fn definition(dir: &Path, (from, to): (&str, &str)) -> PathBuf {
    let images = images();
    let example = fs_err::read_to_string(images.join(DEFINITION)).expect("the example");
    assert!(example.contains(from), "{from}");
    let example = example.replace(from, to);
    fs_err::copy(images.join("simulation/cluster.names.yaml"), dir.join("cluster.names.yaml")).expect("copied");
    let path = dir.join("appliance.yaml");
    fs_err::write(&path, example.replace("../os/", &format!("{}/os/", images.display()))).expect("written");
    path
}

/// A node's name, the end of its MAC address, MiB of its memory.
pub type Wished = (&'static str, u8, u32);

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site a_server_becomes -- --ignored --nocapture`"]
fn a_server_becomes_a_cluster_runs_software_and_a_release_and_is_given_back() {
    become_a_cluster(&[("master-0", 0x20, 2560)], alone());
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site servers_become -- --ignored --nocapture`"]
fn servers_become_a_cluster_run_software_and_a_release_and_are_given_back() {
    become_a_cluster(&[("master-0", 0x20, 2560), ("worker-0", 0x21, 1536)], with_worker());
}

pub fn mac(number: u8) -> String {
    format!("52:54:00:22:00:{number:02x}")
}

/// A node of a spec: its name, the end of its MAC address.
pub fn wish(name: &str, number: u8) -> Value {
    // In any spelling.
    json!({name: {"mac-address": mac(number).to_uppercase()}})
}

/// A master that runs pods, too.
pub fn alone() -> Value {
    json!({"masters": [wish("master-0", 0x20)], "workers": [wish("master-0", 0x20)]})
}

/// A master and a worker.
pub fn with_worker() -> Value {
    json!({"masters": [wish("master-0", 0x20)], "workers": [wish("worker-0", 0x21)]})
}

/// The node image.
pub fn node_image() -> PathBuf {
    let workshop = Workshop::open().unwrap_or_else(|error| panic!("opening the workshop: {error:#}"));
    let made =
        workshop.make(NODE, &[DiskFormat::Qcow2], &workshop.builder.cache).unwrap_or_else(|error| panic!("{error:#}"));
    workshop.path(made.file("qcow2").expect("the file"))
}

/// Runs a test with a box of processes of this machine, the node image, and a folder for machines.
pub fn with_formed_box<F: Future<Output = ()>>(
    test: impl FnOnce(Formed, Site, PathBuf, TempDir) -> F + Send + 'static,
) {
    with_formed(|_| Made::of(&images().join(DEFINITION)), test);
}

/// The same, with a box whose definition has this in place of `clusters: {}`.
pub fn with_formed_box_of<F: Future<Output = ()>>(
    clusters: &str,
    test: impl FnOnce(Formed, Site, PathBuf, TempDir) -> F + Send + 'static,
) {
    with_formed(|dir| Made::of(&definition(dir, ("clusters: {}", clusters))), test);
}

/// The same, with a box that carries more images: items of `content.images`, which `more` writes with what they need.
pub fn with_formed_box_that_carries<F: Future<Output = ()>>(
    more: impl FnOnce(&Path) -> String,
    test: impl FnOnce(Formed, Site, PathBuf, TempDir) -> F + Send + 'static,
) {
    let make = |dir: &Path| {
        let images = format!("content:\n  images:\n{}", more(dir));
        Made::of(&definition(dir, ("content:\n", &images)))
    };
    with_formed(make, test);
}

fn with_formed<F: Future<Output = ()>>(
    make: impl FnOnce(&Path) -> Made,
    test: impl FnOnce(Formed, Site, PathBuf, TempDir) -> F + Send + 'static,
) {
    let make = || {
        let dir = tempfile::tempdir().expect("a folder");
        (make(dir.path()), node_image(), dir)
    };
    in_namespace(make, |(made, image, dir)| async move {
        let begun = Instant::now();
        let formed = Formed::start(made).await;
        let site = Site { api: formed.api.clone(), begun };
        site.say("the box is ready");
        test(formed, site, image, dir).await;
    });
}

#[test]
fn a_machine_becomes_a_cluster_of_one_and_is_given_back() {
    with_formed_box(|formed, site, image, dir| async move {
        let nodes: &[Wished] = &[("master-0", 0x20, 2560)];
        let known = |host: &Value| formed.known(host);
        let nodes = begins(&site, nodes, alone(), (&image, dir.path()), known).await;
        loses_power_at_once(&site, &nodes[0]).await;
        ends(&site, &nodes, OWN_VERSION).await;
        // The next cluster's estimate.
        let seen = &formed.durations()["parts"];
        for part in ["check", "init", "ready"] {
            assert_eq!(seen[part]["ended"], true, "{part}: {seen:#}");
        }
        assert!(seen["init"]["steps"]["kubernetes/member"][0].as_f64().is_some_and(|secs| secs > 10.0), "{seen:#}");
        runs_software(&site).await;
        // A cluster without a box of its own has the part of the box that installs software, too.
        let kubeconfig = kubeconfig_of(&site, "one").await;
        let there = Site { api: client_of(&kubeconfig), begun: site.begun };
        define(&there.api, &agent_api::clusters::crds::all()).await;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "there"}, "stringData": {"value": kubeconfig}});
        there.create(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), secret).await;
        let controller = formed.controller_of_releases(&kubeconfig);
        runs_a_release(&there, &there.api, json!({"kubeConfig": {"secretRef": {"name": "there"}}})).await;
        drop(controller);
        goes(&site, &nodes).await;
    });
}

fn become_a_cluster(nodes: &'static [Wished], spec: Value) {
    let dir = tempfile::tempdir().expect("a folder");
    let definition = definition(dir.path(), ("clusters: {}", "clusters: {}"));
    let make = move || (Appliance::of(&definition), node_image(), dir);
    in_namespace(make, move |(appliance, image, dir)| {
        let begun = Instant::now();
        let booted = Booted::on(appliance);
        let kubeconfig = booted.kubeconfig();
        async move {
            let site = Site { api: Api::new(&kubeconfig).expect("a client"), begun };
            site.say("the box is ready");
            let nodes = forms(&site, nodes, spec, (&image, dir.path()), |_| ()).await;
            runs_software(&site).await;
            let cluster = client_of(&kubeconfig_of(&site, "one").await);
            runs_a_release(&site, &cluster, json!({"clusterRef": {"name": "one"}})).await;
            goes(&site, &nodes).await;
            drop(booted);
        }
    });
}

/// A cluster of such machines runs a Deployment. `known` hears of each host.
pub async fn forms(
    site: &Site,
    wished: &[Wished],
    spec: Value,
    at: (&Path, &Path),
    known: impl Fn(&Value),
) -> Vec<Node> {
    let version = spec["kubernetes"]["version"].as_str().unwrap_or(OWN_VERSION).to_owned();
    let nodes = begins(site, wished, spec, at, known).await;
    ends(site, &nodes, &version).await;
    nodes
}

/// Machines are switched on, and are to become a cluster.
pub async fn begins(
    site: &Site,
    wished: &[Wished],
    mut spec: Value,
    at: (&Path, &Path),
    known: impl Fn(&Value),
) -> Vec<Node> {
    let (private, public) = ssh::new_key("test").expect("a key");
    site.create("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "metal3"}}))
        .await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ssh-key-secret"},
        "stringData": {"id_rsa": private, "public": public}});
    site.create(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), secret).await;
    let mut nodes = Vec::new();
    for wished in wished {
        nodes.push(joins(site, *wished, at, &known).await);
    }
    spec["ssh"] = json!({"user": "debian"});
    let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
        "metadata": {"name": "one", "labels": {"cluster": "one", "owner": "c1"}}, "spec": spec});
    site.create(PROVISIONINGS, object).await;
    nodes
}

/// The power of a machine is cut as soon as a step of its work is seen: seconds after its first boot, with little of it on the disk
/// that did not wait for it.
async fn loses_power_at_once(site: &Site, node: &Node) {
    let has_step = |object: &Value| object["status"]["nodes"][0]["step"].is_string();
    site.until(&format!("{PROVISIONINGS}/one"), "its work begins", STEP, has_step).await;
    node.vm.reset().expect("its power is cut");
    site.say("its power was cut");
}

/// What [`begins`] began is a cluster of that release, and runs a Deployment.
pub async fn ends(site: &Site, nodes: &[Node], version: &str) {
    let one = format!("{PROVISIONINGS}/one");
    let ready = site.until(&one, "the cluster is Ready", FORMED, is_ready).await;
    assert_eq!(
        (&ready["status"]["summary"], &ready["status"]["version"]),
        (&json!(format!("{0}/{0}", nodes.len())), &json!(version)),
        "{ready:#}"
    );
    let cluster = Site { api: client_of(&kubeconfig_of(site, "one").await), begun: site.begun };
    // DHCP leased the addresses, and keeps them.
    for node in nodes {
        let host = site.api.get(&format!("{HOSTS}/{}", node.name)).await.expect("asked").expect("there");
        let of = |told: &&Value| told["name"] == node.name;
        let told = ready["status"]["nodes"].as_array().expect("nodes").iter().find(of).expect("it is told");
        assert_eq!(host["metadata"]["annotations"]["bpa.akraino.org/address"], told["ip"], "{host:#}");
    }
    answers(&cluster, nodes).await;
}

/// A machine more on the site. The Secret of [`forms`] has the key that it lets in.
pub async fn joins(site: &Site, wished: Wished, (image, dir): (&Path, &Path), known: impl Fn(&Value)) -> Node {
    let (name, number, _) = wished;
    let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": name, "namespace": "metal3"}, "spec": {"online": true, "bootMACAddress": mac(number)}});
    known(&host);
    site.create(HOSTS, host).await;
    Node::start(image, dir, wished, &secret_of(site, "ssh-key-secret", "public").await)
}

/// The cluster is deleted: its servers are nobody's, and nothing of it is left.
pub async fn goes(site: &Site, nodes: &[Node]) {
    let one = format!("{PROVISIONINGS}/one");
    site.api.delete(&one).await.expect("deleted");
    site.until(&one, "the cluster is gone", STEP, Value::is_null).await;
    for node in nodes {
        let host = site.api.get(&format!("{HOSTS}/{}", node.name)).await.expect("asked").expect("there");
        assert!(host["spec"]["consumerRef"].is_null(), "{host:#}");
        for annotation in ["bpa.akraino.org/node", "bpa.akraino.org/address"] {
            assert!(host["metadata"]["annotations"][annotation].is_null(), "{host:#}");
        }
    }
    for secret in ["one-kubeconfig", "one-ssh"] {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{secret}");
        assert_eq!(site.api.get(&path).await.expect("asked"), None, "{secret}");
    }
}

/// A connection to a server of the cluster, by the user's key. `node`: as the status has it.
pub async fn logged_in(site: &Site, node: &Value) -> Session {
    let key = secret_of(site, "ssh-key-secret", "id_rsa").await;
    let key = ssh::private_key(&key, "the user's key").expect("a key");
    let address = node["ip"].as_str().expect("an address").parse().expect("an address");
    let target = Target { address, port: 22, user: "debian".to_owned(), host_key: None };
    let identity = Identity { keys: vec![Arc::new(key)], password: None };
    Session::connect(&target, &identity, STEP).await.expect("logged in")
}

/// dpkg of a server has an older jq than the box, by its own word.
pub async fn has_an_old_package(session: &Session) {
    let older = ["sed", "-i", "/^Package: jq$/,/^$/s/^Version: .*/Version: 1.0-1/", "/var/lib/dpkg/status"];
    session.output(&older, b"").await.expect("written");
}

/// Whether the condition `UpToDate` has that reason, and that word is in its message.
pub fn is_up_to_date(object: &Value, reason: &str, word: &str) -> bool {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == "UpToDate");
    found.is_some_and(|it| it["reason"] == reason && it["message"].as_str().is_some_and(|text| text.contains(word)))
}

/// A package of the box's repository is on the workers; another version comes when somebody asks for it.
async fn runs_software(site: &Site) {
    let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Software",
        "metadata": {"name": "one", "labels": {"cluster": "one", "owner": "c1"}},
        "spec": {"workerSoftware": ["jq"], "update": {"when": "Manual"}}});
    site.create(SOFTWARES, object).await;
    let one = format!("{SOFTWARES}/one");
    let ready = site.until(&one, "packages are installed", STEP, is_ready).await;
    let node = &ready["status"]["nodes"][0];
    assert!(node["installed"][0].as_str().is_some_and(|package| package.starts_with("jq=")), "{ready:#}");
    assert!(is_up_to_date(&ready, "UpToDate", ""), "{ready:#}");
    let cluster = site.api.get(&format!("{PROVISIONINGS}/one")).await.expect("asked").expect("a cluster");
    let nodes = cluster["status"]["nodes"].as_array().expect("nodes");
    let session = logged_in(site, nodes.iter().find(|it| it["name"] == node["node"]).expect("the node")).await;
    has_an_old_package(&session).await;
    session.close().await;
    let asked = async |name: &str| {
        site.api.merge(&one, &json!({"metadata": {"annotations": {name: "1"}}})).await.expect("annotated");
    };
    asked("example.org/look").await;
    let lags = |object: &Value| is_up_to_date(object, "WaitingForRequest", "jq 1.0-1 -> ");
    site.until(&one, "an old package is told", STEP, lags).await;
    asked("foothold.dev/update").await;
    let done = |object: &Value| is_up_to_date(object, "UpToDate", "") && object["status"]["lastHandledUpdate"] == "1";
    let new = site.until(&one, "it is updated", STEP, done).await;
    assert_eq!(new["status"]["nodes"][0]["installed"], node["installed"], "{new:#}");
    site.api.delete(&one).await.expect("deleted");
    site.until(&one, "packages are forgotten", STEP, Value::is_null).await;
}

/// Real Helm installs a manifest of the box on `cluster`, looks after it, and takes it away. `at` is how the release names it.
async fn runs_a_release(site: &Site, cluster: &Api, at: Value) {
    let mut object = json!({"apiVersion": "kpa.foothold.dev/v1alpha1", "kind": "Release", "metadata": {"name": "names"},
        "spec": {"targetNamespace": "names", "manifests": ["files/names.yaml"]}});
    for (key, value) in at.as_object().expect("a map") {
        object["spec"][key] = value.clone();
    }
    site.create(RELEASES, object).await;
    let one = format!("{RELEASES}/names");
    site.until(&one, "the release is installed", STEP, is_ready).await;
    let deployment = "/apis/apps/v1/namespaces/names/deployments/names";
    let found = cluster.get(deployment).await.expect("asked").expect("the Deployment");
    assert_eq!(found["status"]["availableReplicas"], 1, "{found:#}");
    site.api.delete(&one).await.expect("deleted");
    site.until(&one, "the release is gone", STEP, Value::is_null).await;
    assert_eq!(cluster.get(deployment).await.expect("asked"), None);
}

/// A Deployment with an image that only the box has answers through a port of every node.
async fn answers(cluster: &Site, nodes: &[Node]) {
    let labels = json!({"app": "web"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [{"name": "web", "image": "registry.k8s.io/coredns/coredns:v1.14.2",
                "args": ["-dns.port", "5353"], "ports": [{"containerPort": 5353}]}]}}}});
    cluster.create("/apis/apps/v1/namespaces/default/deployments", deployment).await;
    let available = |object: &Value| object["status"]["availableReplicas"] == 1;
    cluster.until("/apis/apps/v1/namespaces/default/deployments/web", "a Deployment runs", STEP, available).await;
    let all = cluster.api.get("/api/v1/nodes").await.expect("asked").expect("nodes");
    let names: Vec<&str> =
        all["items"].as_array().expect("items").iter().filter_map(|node| node["metadata"]["name"].as_str()).collect();
    assert_eq!(names, nodes.iter().map(|node| node.name).collect::<Vec<_>>());
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "NodePort", "selector": labels, "ports": [{"port": 53, "targetPort": 5353, "nodePort": PORT}]}});
    cluster.create("/api/v1/namespaces/default/services", service).await;
    serves(cluster, nodes).await;
}

/// Its port answers on every node.
pub async fn serves(cluster: &Site, nodes: &[Node]) {
    let all = cluster.api.get("/api/v1/nodes").await.expect("asked").expect("nodes");
    for node in all["items"].as_array().expect("items") {
        let addresses = node["status"]["addresses"].as_array().expect("addresses");
        let address = addresses.iter().find(|one| one["type"] == "InternalIP").expect("an address");
        let address = format!("{}:{PORT}", address["address"].as_str().expect("text"));
        while let Err(error) = tokio::net::TcpStream::connect(&address).await {
            assert!(cluster.begun.elapsed() < FORMED, "{address}: {error}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        cluster.say(&format!("{address} answers"));
    }
    for node in nodes {
        assert!(node.vm.exited().is_none(), "{} ended by itself", node.name);
    }
}
