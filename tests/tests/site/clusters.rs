//! Servers of a site become a Kubernetes cluster: a box that boots, and machines that run our node image, which is all that
//! they have of the box at first.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use foothold::config::DiskFormat;
use foothold_agent::cluster::api::Api;
use foothold_agent::cluster::kubeconfig;
use foothold_agent::ssh;
use foothold_agent::steps::chain;
use foothold_qemu::{Disk, Firmware, Nic, Tools, Vm, VmBuilder, Writes};
use foothold_tests::Appliance;
use foothold_tests::os_image::{self, Workshop};
use serde_json::{Value, json};

use crate::bench::{NODE, in_namespace, lan};
use crate::booted::{Booted, definition};

/// What emulated machines take for a cluster, beside each other.
const FORMED: Duration = Duration::from_secs(3600);
/// What they take for one step of it.
const STEP: Duration = Duration::from_secs(1200);
/// Namespace of the clusters.
const NAMESPACE: &str = "default";
const PROVISIONINGS: &str = "/apis/bpa.akraino.org/v1alpha1/namespaces/default/provisionings";
const HOSTS: &str = "/apis/metal3.io/v1alpha1/namespaces/metal3/baremetalhosts";

/// A machine that runs the node image, and has a name and a key from its seed.
struct Node {
    name: &'static str,
    mac: String,
    vm: Vm,
}

impl Node {
    fn start(
        image: &std::path::Path,
        dir: &std::path::Path,
        name: &'static str,
        number: u8,
        memory: u32,
        key: &str,
    ) -> Self {
        let mac = format!("52:54:00:22:00:{number:02x}");
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
            .firmware(Firmware::Bios)
            .boot(disk)
            .disk(Disk::open(seed).expect("a seed"))
            .nic(Nic::device(&tap).mac(&mac))
            .keep_on_panic(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("clusters").join(name))
            .start()
            .unwrap_or_else(|error| panic!("{error}"));
        Self { name, mac, vm }
    }
}

/// The box's API, asked until it says what is expected; what happened when is told.
struct Site {
    api: Api,
    begun: Instant,
}

impl Site {
    async fn until(&self, path: &str, what: &str, within: Duration, mut done: impl FnMut(&Value) -> bool) -> Value {
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
    fn say(&self, what: &str) {
        eprintln!("{:7.1} s  {what}", self.begun.elapsed().as_secs_f64());
    }

    /// Asks until it is there: machines that boot beside it leave the box little of the processors.
    async fn create(&self, path: &str, object: Value) {
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

fn message(object: &Value) -> &str {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .find(|condition| condition["type"] == "Ready")
        .and_then(|ready| ready["message"].as_str())
        .unwrap_or_default()
}

fn is_ready(object: &Value) -> bool {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The kubeconfig of a cluster, from its Secret.
async fn cluster_of(site: &Site, name: &str) -> Api {
    use base64::Engine as _;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}-kubeconfig");
    let secret = site.api.get(&path).await.expect("asked").expect("a Secret");
    let text = secret["data"]["value"].as_str().expect("a kubeconfig");
    let text = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    let parsed = kubeconfig::parse(&String::from_utf8(text).expect("text")).expect("a kubeconfig");
    Api::new(&parsed).expect("a client")
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site clusters -- --ignored --nocapture`"]
fn servers_become_a_cluster_and_are_given_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let definition = definition(dir.path(), &[NODE], ", clusters: {}");
    let make = move || {
        let workshop = Workshop::open().unwrap_or_else(|error| panic!("opening the workshop: {error:#}"));
        let made = workshop
            .make(NODE, &[DiskFormat::Qcow2], &workshop.builder.cache)
            .unwrap_or_else(|error| panic!("{error:#}"));
        let image = workshop.path(made.file("qcow2").expect("the file"));
        (Appliance::of(&definition), image, dir)
    };
    in_namespace(make, |(appliance, image, dir)| {
        let begun = Instant::now();
        let booted = Booted::on(appliance);
        let kubeconfig = booted.kubeconfig();
        async move {
            let site = Site { api: Api::new(&kubeconfig).expect("a client"), begun };
            site.say("the box is ready");
            forms_and_goes(&site, &image, dir.path()).await;
            drop(booted);
        }
    });
}

async fn forms_and_goes(site: &Site, image: &std::path::Path, dir: &std::path::Path) {
    let (private, public) = ssh::new_key("test").expect("a key");
    site.create("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "metal3"}}))
        .await;
    let nodes = [
        Node::start(image, dir, "master-0", 0x20, 2560, &public),
        Node::start(image, dir, "worker-0", 0x21, 1536, &public),
    ];
    for node in &nodes {
        let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": node.name, "namespace": "metal3"}, "spec": {"online": true, "bootMACAddress": node.mac}});
        site.create(HOSTS, host).await;
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ssh-key-secret"}, "stringData": {"id_rsa": private}});
    site.create(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), secret).await;
    let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
    "metadata": {"name": "one", "labels": {"cluster": "one", "owner": "c1"}},
    "spec": {
        "masters": [{"master-0": {"mac-address": nodes[0].mac.to_uppercase()}}],
        "workers": [{"worker-0": {"mac-address": nodes[1].mac}}],
        "ssh": {"user": "debian"},
    }});
    site.create(PROVISIONINGS, object).await;
    let one = format!("{PROVISIONINGS}/one");
    let ready = site.until(&one, "the cluster is Ready", FORMED, is_ready).await;
    assert_eq!(
        (&ready["status"]["summary"], &ready["status"]["version"]),
        (&json!("2/2"), &json!("v1.36.4")),
        "{ready:#}"
    );
    let cluster = Site { api: cluster_of(site, "one").await, begun: site.begun };
    answers(&cluster, &nodes).await;

    site.api.delete(&one).await.expect("deleted");
    let gone = |object: &Value| object.is_null();
    site.until(&one, "the cluster is gone", STEP, gone).await;
    for node in &nodes {
        let host = site.api.get(&format!("{HOSTS}/{}", node.name)).await.expect("asked").expect("there");
        assert!(host["spec"]["consumerRef"].is_null(), "{host:#}");
        assert!(host["metadata"]["annotations"]["bpa.akraino.org/node"].is_null(), "{host:#}");
    }
    for secret in ["one-kubeconfig", "one-ssh"] {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{secret}");
        assert_eq!(site.api.get(&path).await.expect("asked"), None, "{secret}");
    }
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
    for node in nodes {
        assert!(node.vm.exited().is_none(), "{} ended by itself", node.name);
    }
}
