//! Application clusters (`Provisioning`) on a real API server, as far as they go without servers: what is refused, who is
//! chosen, what is said. The box's content does not answer, so no server is entered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foothold_agent::cluster::api::Api;
use foothold_agent::operators::bpa::{self, Parts, Place, Settings};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::{admin, define};
use crate::site::{PATIENCE, condition};
use crate::tenants::{HOSTS, Tenants, Watch, all_hosts, network, writes};

const PROVISIONINGS: &str = "/apis/bpa.akraino.org/v1alpha1/namespaces/tenants/provisionings";

/// The controller of clusters; it ends with its handle.
struct Operator {
    task: JoinHandle<()>,
    stop: CancellationToken,
    folder: TempDir,
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.task.abort();
        self.stop.cancel();
    }
}

impl Operator {
    /// With the kinds of clusters.
    async fn start(tenants: &Tenants) -> Self {
        define(&tenants.api, &agent_api::clusters::crds::all()).await;
        Self::run(tenants)
    }

    fn run(tenants: &Tenants) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = Settings {
            kubeconfig: Some(admin(&tenants.cluster)),
            namespace: None,
            place: Place { address: [127, 0, 0, 1].into(), version: "v1.36.4".to_owned() },
            parts: Parts::default(),
            folder: folder.path().to_owned(),
            folder_on_host: folder.path().to_owned(),
            leases: Vec::new(),
            serve: None,
        };
        let stop = CancellationToken::new();
        let token = stop.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the handle")]
        let task = tokio::spawn(async move { bpa::run(&settings, &token).await.expect("the controller") });
        Self { task, stop, folder }
    }
}

fn object(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning", "metadata": {"name": name}, "spec": spec})
}

fn says(kind: &'static str, text: &'static str) -> impl Fn(&Value) -> bool {
    move |object| condition(object, kind).2.contains(text)
}

/// Names of hosts that nodes of a cluster are on, with the nodes' names.
async fn claimed(tenants: &Tenants, cluster: &str) -> Vec<(String, String)> {
    let all = tenants.api.get(HOSTS).await.expect("asked").expect("a list");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ours = |host: &&Value| host["spec"]["consumerRef"]["name"] == cluster;
    let one = |host: &Value| {
        (text(&host["metadata"]["name"]), text(&host["metadata"]["annotations"]["bpa.akraino.org/node"]))
    };
    all["items"].as_array().into_iter().flatten().filter(ours).map(one).collect()
}

fn hosts(active: i64) -> Value {
    json!({
        "ControlPlane": {"labelSelector": {"matchLabels": {"flavor": "control-plane"}}, "count": {"active": 1, "standby": 0}},
        "Worker": {"labelSelector": {"matchLabels": {"flavor": "worker"}}, "count": {"active": active, "standby": 1}},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_hosts_become_nodes() {
    let mut tenants = Tenants::prepare().await;
    let operator = Operator::start(&tenants).await;
    for (number, flavor) in ["control-plane", "worker", "worker", "worker"].into_iter().enumerate() {
        let (name, secret) = (format!("h{number}"), format!("h{number}-net"));
        let mac = format!("52:54:00:00:00:0{number}");
        let spec = json!({"bootMACAddress": mac, "networkData": {"name": secret, "namespace": "hosts"}});
        tenants.secret("hosts", &secret, network(&format!("10.0.0.{}", number + 1))).await;
        tenants.host(&name, json!({"flavor": flavor}), spec).await;
    }
    tenants.secret("tenants", "ssh-key-secret", json!({"password": "of-the-servers"})).await;
    // Nodes come from one place.
    let both = json!({"clusterRef": {"name": "one"}, "masters": [{"m": {"mac-address": "52:54:00:00:00:01"}}]});
    let refused = tenants.api.create(PROVISIONINGS, &object("both", both)).await.expect_err("refused").to_string();
    assert!(refused.contains("clusterRef takes the place of masters, workers and nodeSelector"), "{refused}");

    tenants.api.create(PROVISIONINGS, &object("one", json!({"clusterRef": {"name": "one"}}))).await.expect("made");
    let path = format!("{PROVISIONINGS}/one");
    tenants.until(&path, "waiting", says("HostsChosen", "there is no SIPCluster tenants/one")).await;
    let balancer = json!({"loadBalancerControlPlane": [{"nodeInterfaceId": "oam", "nodePort": 30000}]});
    tenants.run();
    // More than there are: nothing is claimed by either.
    tenants.cluster("one", json!({"nodes": hosts(7), "services": balancer})).await;
    tenants.says("one", "False", "Unschedulable").await;
    tenants.until(&path, "waiting", says("HostsChosen", "; for the role Worker: ")).await;
    assert!(claimed(&tenants, "one").await.is_empty());

    let change = json!({"spec": {"nodes": hosts(1)}});
    tenants.api.merge(&format!("{}/one", crate::tenants::CLUSTERS), &change).await.expect("changed");
    tenants.until(&path, "begun", says("Ready", "asking the box for `http://127.0.0.1:6180")).await;
    let node = |name: &str| (name.to_owned(), name.to_owned());
    assert_eq!(claimed(&tenants, "one").await, [node("h0"), node("h1")], "the host that stands by is no node");
    let inventory = fs_err::read_to_string(operator.folder.path().join("one/hosts.ini")).expect("the inventory");
    for line in ["h0 ", "10.0.0.1", "10.0.0.2"] {
        assert!(inventory.contains(line), "{inventory}");
    }

    // A host that the tenant gets is a node, too; all are free when the cluster goes.
    let change = json!({"spec": {"nodes": hosts(2)}});
    tenants.api.merge(&format!("{}/one", crate::tenants::CLUSTERS), &change).await.expect("changed");
    let begun = Instant::now();
    while claimed(&tenants, "one").await.len() < 3 {
        assert!(begun.elapsed() < PATIENCE, "no host more");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let stands_by = |host: &Value| host["metadata"]["annotations"]["sip.airshipit.org/standby"] == "true";
    for (name, _) in claimed(&tenants, "one").await {
        let host = tenants.api.get(&format!("{HOSTS}/{name}")).await.expect("asked").expect("there");
        assert!(!stands_by(&host), "{host}");
    }
    tenants.api.delete(&path).await.expect("deleted");
    tenants.until(&path, "gone", Value::is_null).await;
    assert!(claimed(&tenants, "one").await.is_empty());
    drop(operator);
}

/// Files of the original's users are taken as they are, and what is wrong is refused by the schema or told in its words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_icn_are_taken_and_what_is_wrong_is_told() {
    let tenants = Tenants::prepare().await;
    let operator = Operator::start(&tenants).await;
    for (name, spec, expected) in [
        (
            "legacy",
            json!({"masters": [{"master": {"mac-address": "00:c6:14:04:61:b2"}}], "hostfile": "/root/go/hosts.ini"}),
            "Host with MAC Address 00:c6:14:04:61:b2 not found",
        ),
        (
            "both",
            json!({"masters": [{"master-1": {"mac-address": "00:e1:ba:ce:df:bd", "cpu": 10, "memory": "4Gi"}}],
            "workers": [{"worker-1": {"mac-address": "00:c4:13:04:62:b5"}}, {"worker-2": {"cpu": 20, "memory": 8, "sriov": true}}],
            "KUDPlugins": ["onap4k8s", "emco"], "PodSubnet": "10.244.64.0/18"}),
            "Host with MAC Address 00:c4:13:04:62:b5 not found",
        ),
        ("none", json!({"masters": [{"m": {}}]}), "MAC address for masterNode m not provided"),
        ("two", json!({"masters": [{"a": {"cpu": 1}}, {"b": {"cpu": 1}}]}), "spec.masters has 2 nodes"),
    ] {
        tenants.api.create(PROVISIONINGS, &object(name, spec)).await.expect("taken");
        tenants.until(&format!("{PROVISIONINGS}/{name}"), expected, says("Ready", expected)).await;
    }
    for (spec, expected) in [
        (json!({"masters": [{"Master_0": {"cpu": 1}}]}), "a node's name has a to z, 0 to 9"),
        (json!({"masters": [{"m": {"cpu": -1}}]}), "greater than or equal to 0"),
        (json!({"masters": [], "kubernetes": {"version": "latest"}}), "spec.kubernetes.version"),
        (json!({"clusterRef": {"name": ""}}), "spec.clusterRef.name"),
    ] {
        let refused = tenants.api.create(PROVISIONINGS, &object("bad", spec)).await.expect_err("refused").to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    drop(operator);
}

/// What inspection says of a host that nobody provisions here.
async fn found(tenants: &Tenants, name: &str, hardware: Value) {
    let status = json!({"hardware": hardware, "provisioning": {"state": "unmanaged", "ID": "", "image": {"url": ""}},
        "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true});
    tenants.api.merge(&format!("{HOSTS}/{name}/status"), &json!({"status": status})).await.expect("a status");
}

/// An object of the cluster `one` that has one node, and the Secret with its kubeconfig: that of `tenants` is its cluster.
async fn made(tenants: &Tenants) -> String {
    define(&tenants.api, &agent_api::clusters::crds::all()).await;
    tenants.host("h0", json!({}), json!({"bootMACAddress": "52:54:00:00:00:01"})).await;
    let nic = json!({"mac": "52:54:00:00:00:01", "ip": "10.0.0.1"});
    found(tenants, "h0", json!({"nics": [nic]})).await;
    let kubeconfig = fs_err::read_to_string(admin(&tenants.cluster)).expect("a kubeconfig");
    tenants.secret("tenants", "one-kubeconfig", json!({"value": kubeconfig})).await;
    tenants.secret("tenants", "ssh-key-secret", json!({"password": "of-the-servers"})).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "m"}});
    tenants.api.create("/api/v1/nodes", &node).await.expect("a node");
    runs(tenants, "True").await;
    let spec = json!({"masters": [{"m": {"mac-address": "52:54:00:00:00:01"}}]});
    tenants.api.create(PROVISIONINGS, &object("one", spec)).await.expect("taken");
    let path = format!("{PROVISIONINGS}/one");
    let one = tenants.api.get(&path).await.expect("asked").expect("there");
    let ready = json!({"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "1 nodes run",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let node = json!({"name": "m", "roles": ["master", "worker"], "host": "hosts/h0", "macAddress": "52:54:00:00:00:01",
        "ip": "10.0.0.1", "phase": "Installed", "hostKey": "ssh-ed25519 AAAA", "installedAt": "2026-01-01T00:00:00Z"});
    let status = json!({"cluster": "one", "phase": "Ready", "conditions": [ready], "nodes": [node], "version": "v1.36.4",
        "observedGeneration": one["metadata"]["generation"], "endpoint": "10.0.0.1:6443", "kubeconfigSecret": "one-kubeconfig",
        "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:00Z"});
    tenants.api.merge(&format!("{path}/status"), &json!({"status": status})).await.expect("a status");
    path
}

/// The node of the cluster of [`made`] says this of itself.
async fn runs(tenants: &Tenants, ready: &str) {
    let condition = json!({"type": "Ready", "status": ready, "message": "Kubelet stopped posting node status."});
    let status = json!({"status": {"conditions": [condition]}});
    tenants.api.merge("/api/v1/nodes/m/status", &status).await.expect("a status");
}

/// A cluster that runs goes on when its spec asks for what cannot be had: that is told, and its nodes are asked for meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_looked_after_while_its_spec_cannot_be_met() {
    let tenants = Tenants::prepare().await;
    let one = made(&tenants).await;
    let operator = Operator::run(&tenants);
    // The claim is what a turn writes first. The box has no content here: any work on a server would be told.
    let claimed_by = |host: &Value| host["spec"]["consumerRef"]["name"] == "one";
    tenants.until(&format!("{HOSTS}/h0"), "claimed", claimed_by).await;
    let is_ready = |object: &Value| condition(object, "Ready").0 == "True" && object["status"]["phase"] == "Ready";
    tenants.until(&one, "Ready", is_ready).await;

    let endpoint = json!({"controlPlaneEndpoint": "10.0.0.9:6443", "virtualIP": "10.0.0.9"});
    // What an earlier row said of it goes.
    let another = json!({"controlPlaneEndpoint": null, "version": null, "virtualIP": "10.0.0.9"});
    let worker = json!([{"w": {"cpu": 64}}]);
    let masters = json!([{"m": {"mac-address": "52:54:00:00:00:01"}}]);
    for (spec, reason, expected) in [
        (json!({"kubernetes": {"version": "v1.35.8"}}), "InvalidSpec", "kubeadm does not go back to v1.35.8"),
        (json!({"kubernetes": {"version": "v1.38.0"}}), "InvalidSpec", "kubeadm goes one minor release at a time"),
        (json!({"kubernetes": endpoint}), "InvalidSpec", "keep one of them"),
        (json!({"kubernetes": another}), "InvalidSpec", "made as 10.0.0.1:6443"),
        (
            json!({"masters": [{"x": {"mac-address": "52:54:00:00:00:01"}}]}),
            "InvalidSpec",
            "none of the cluster's masters would stay: m (hosts/h0)",
        ),
        (json!({"workers": worker}), "Unschedulable", "node w: no host has 64 processors"),
        (
            json!({"masters": null, "clusterRef": {"name": "east"}}),
            "Unschedulable",
            "there is no SIPCluster tenants/east",
        ),
        (json!({"kubernetes": {"version": "v1.36.5"}}), "InstallationFailed", "asking the box for"),
    ] {
        let mut whole = json!({"masters": masters, "workers": null, "clusterRef": null, "kubernetes": null});
        whole.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
        tenants.api.merge(&one, &json!({"spec": whole})).await.expect("changed");
        let told = |object: &Value| {
            let (status, is, message) = condition(object, "Ready");
            let nodes = &object["status"]["nodes"];
            status == "False" && is == reason && message.contains(expected) && nodes[0]["error"].is_null()
        };
        let told = tenants.until(&one, expected, told).await;
        assert_eq!(told["status"]["phase"], "Degraded", "{told:#}");
        assert_eq!(told["status"]["nodes"][0]["phase"], "Installed", "{told:#}");

        // A node that stops is told beside it. Hosts are what is waited for, so a change of one has the cluster looked at.
        for (ready, stopped) in [("Unknown", true), ("True", false)] {
            runs(&tenants, ready).await;
            let touched = json!({"metadata": {"labels": {"touched": format!("{reason}-{ready}-{}", expected.len())}}});
            tenants.api.merge(&format!("{HOSTS}/h0"), &touched).await.expect("touched");
            let seen = |object: &Value| {
                let message = condition(object, "Ready").2;
                let node = &object["status"]["nodes"][0]["error"];
                message.contains(expected)
                    && message.contains("node m: Kubelet stopped") == stopped
                    && node.is_null() != stopped
            };
            tenants.until(&one, "seen", seen).await;
        }
    }

    // What cannot be made again before the spec is right is told.
    tenants.api.merge(&one, &json!({"spec": {"kubernetes": endpoint}})).await.expect("changed");
    tenants.api.delete("/api/v1/namespaces/tenants/secrets/one-kubeconfig").await.expect("deleted");
    tenants
        .api
        .merge(&format!("{HOSTS}/h0"), &json!({"metadata": {"labels": {"touched": "last"}}}))
        .await
        .expect("touched");
    let expected = "the Secret `one-kubeconfig` is gone and cannot be made again: the spec must be right first";
    tenants.until(&one, expected, says("Ready", expected)).await;
    drop(operator);
}

/// Nodes of each cluster of [`many`].
const NODES: usize = 4;

/// Which host is which node of which cluster, by the host's name.
fn named(all: &Value) -> BTreeMap<String, (String, String)> {
    let one = |host: &Value| {
        let cluster = host["spec"]["consumerRef"]["name"].as_str()?.to_owned();
        let node = host["metadata"]["annotations"]["bpa.akraino.org/node"].as_str().expect("a half claimed host");
        Some((host["metadata"]["name"].as_str()?.to_owned(), (cluster, node.to_owned())))
    };
    all["items"].as_array().into_iter().flatten().filter_map(one).collect()
}

async fn nodes_of(api: &Api) -> BTreeMap<String, (String, String)> {
    named(&api.get(&all_hosts()).await.expect("asked").expect("a list"))
}

/// No node has two hosts.
fn one_each(nodes: &BTreeMap<String, (String, String)>) {
    assert_eq!(nodes.values().collect::<BTreeSet<_>>().len(), nodes.len(), "a node has two hosts: {nodes:?}");
}

/// Memory of this process in MiB: operator and test.
fn memory() -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").expect("read");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
}

/// Clusters that ask for all hosts there are, all at once and all of them for the same ones first; the operator is killed again
/// and again on the way. One more cluster comes too late and gets nothing.
#[expect(clippy::print_stdout, reason = "how long it took")]
async fn many(clusters: usize, restarts: usize) {
    let tenants = Tenants::prepare().await;
    define(&tenants.api, &agent_api::clusters::crds::all()).await;
    for number in 0..clusters * NODES {
        let (name, mac) = (format!("h{number:03}"), format!("52:54:00:01:{:02x}:{:02x}", number >> 8, number & 0xff));
        tenants.host(&name, json!({}), json!({"bootMACAddress": mac})).await;
        let nic = json!({"mac": mac, "ip": format!("10.0.{}.{}", number / 200, number % 200 + 1)});
        let hardware = json!({"cpu": {"count": 8}, "ramMebibytes": 16384, "nics": [nic]});
        found(&tenants, &name, hardware).await;
    }
    tenants.secret("tenants", "ssh-key-secret", json!({"password": "of-the-servers"})).await;
    let watch = Watch::start(Arc::clone(&tenants.api), named, one_each);
    let node = |name: &str| json!({name: {"cpu": 4, "memory": 8192}});
    let spec = json!({"masters": [node("m")], "workers": [node("w-0"), node("w-1"), node("w-2")]});
    for number in 0..clusters {
        tenants.api.create(PROVISIONINGS, &object(&format!("c{number:02}"), spec.clone())).await.expect("made");
    }
    let (begun, before, mut on_the_way) = (Instant::now(), memory(), 0);
    for number in 0..restarts {
        let operator = Operator::run(&tenants);
        // Not always at the same place.
        let millis = 60 + 3 * clusters + 40 * (number % 7);
        tokio::time::sleep(Duration::from_millis(u64::try_from(millis).expect("a pause"))).await;
        drop(operator);
        let claimed = nodes_of(&tenants.api).await.len();
        on_the_way += usize::from(claimed > 0 && claimed < NODES * clusters);
    }
    let operator = Operator::run(&tenants);
    for number in 0..clusters {
        let path = format!("{PROVISIONINGS}/c{number:02}");
        tenants.until(&path, "begun", says("Ready", "asking the box for `http://127.0.0.1:6180")).await;
    }
    let (took, more) = (begun.elapsed(), memory().saturating_sub(before));
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for (cluster, _) in nodes_of(&tenants.api).await.into_values() {
        *count.entry(cluster).or_default() += 1;
    }
    assert_eq!(count.len(), clusters);
    assert!(count.values().all(|hosts| *hosts == NODES), "{count:?}");
    let late = format!("{PROVISIONINGS}/late");
    tenants.api.create(PROVISIONINGS, &object("late", spec)).await.expect("made");
    tenants.until(&late, "told", says("Ready", "can be used: hosts/h000: it is ")).await;
    tenants.api.delete(&late).await.expect("deleted");
    tenants.until(&late, "gone", Value::is_null).await;
    let looks = watch.end().await;
    println!(
        "{clusters} clusters of {NODES} on {} hosts in {took:.1?}, {restarts} restarts, {on_the_way} of them while hosts were \
         being claimed, {looks} looks, {} API writes, {more} MiB of memory more",
        clusters * NODES,
        writes(&tenants.api, "provisionings").await
    );
    for number in 0..clusters {
        tenants.api.delete(&format!("{PROVISIONINGS}/c{number:02}")).await.expect("deleted");
    }
    for number in 0..clusters {
        tenants.until(&format!("{PROVISIONINGS}/c{number:02}"), "gone", Value::is_null).await;
    }
    assert!(nodes_of(&tenants.api).await.is_empty());
    drop(operator);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_clusters_on_forty_hosts_share_none_whatever_ends_the_controller() {
    many(10, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a benchmark of minutes"]
async fn fifty_clusters_on_two_hundred_hosts_share_none_whatever_ends_the_controller() {
    many(50, 20).await;
}
