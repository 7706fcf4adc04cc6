//! Virtual machines as hosts (`Vino`) on a real API server. The side of nodes is played ([`nodes`]): their pods and machines are
//! not there.

mod nodes;
mod samples;
mod wrong;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_api::vino::values::{NodeValues, VALUES};
use base64::Engine as _;
use foothold_agent::cluster::api::Api;
use foothold_agent::cluster::kubeconfig;
use foothold_agent::operators::sip::{self, Images};
use foothold_agent::operators::vino::{self, Ground, Settings};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, admin, client, define, define_metal3};
use crate::site::{PATIENCE, condition};
use nodes::Faults;

/// Where all is that is made.
pub const RUNTIME: &str = "vino-system";
const VINOES: &str = "/apis/airship.airshipit.org/v1/namespaces/default/vinoes";
const HOSTS: &str = "/apis/metal3.io/v1alpha1/namespaces/vino-system/baremetalhosts";
const CLUSTERS: &str = "/apis/airship.airshipit.org/v1/namespaces/tenants/sipclusters";

/// A control plane with the kinds, the controller, and nodes.
struct Machines {
    api: Arc<Api>,
    settings: Settings,
    faults: Arc<Mutex<Faults>>,
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
    // Last, so that it ends after what asks it.
    cluster: Cluster,
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Machines {
    async fn prepare() -> Self {
        let cluster = Cluster::start();
        let api = Arc::new(client(&cluster.places, kubeconfig::SUPER_ADMIN).await);
        define_metal3(&api).await;
        define(&api, &agent_api::sip::crds::all()).await;
        define(&api, &agent_api::vino::crds::all()).await;
        for name in [RUNTIME, "tenants"] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            api.create("/api/v1/namespaces", &object).await.expect("a namespace");
        }
        let ground = Ground { namespace: RUNTIME.to_owned(), image: "foothold.dev/vino:1".to_owned(), interface: None };
        let settings = Settings { kubeconfig: Some(admin(&cluster)), ground, ..Settings::default() };
        let (faults, stop) = (Arc::default(), CancellationToken::new());
        Self { api, settings, faults, tasks: Vec::new(), stop, cluster }
    }

    #[expect(clippy::disallowed_methods, reason = "they end with the test")]
    fn run(&mut self) {
        let (settings, stop) = (self.settings.clone(), self.stop.clone());
        self.tasks.push(tokio::spawn(async move { vino::run(&settings, &stop).await.expect("the controller") }));
        self.tasks.push(tokio::spawn(nodes::play(Arc::clone(&self.api), Arc::clone(&self.faults))));
    }

    /// The controller of tenant clusters, as it is.
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    fn run_sip(&mut self) {
        let of = |name: &str| format!("foothold.dev/{name}:1");
        let images = Images { own: of("sip"), jump_host: of("jumphost"), oidc: of("oidc") };
        let settings = sip::Settings { kubeconfig: Some(admin(&self.cluster)), images, ..sip::Settings::default() };
        let stop = self.stop.clone();
        self.tasks.push(tokio::spawn(async move { sip::run(&settings, &stop).await.expect("the controller") }));
    }

    fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults.lock().expect("the faults"));
    }

    async fn node(&self, name: &str, ip: &str, labels: Value) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        self.api.create("/api/v1/nodes", &node).await.expect("a node");
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": name}]}});
        self.api.merge(&format!("/api/v1/nodes/{name}/status"), &status).await.expect("an address");
    }

    async fn map(&self, name: &str, data: Value) {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        self.api.create(&format!("/api/v1/namespaces/{RUNTIME}/configmaps"), &object).await.expect("a ConfigMap");
    }

    async fn create(&self, object: &Value) {
        self.api.create(VINOES, object).await.expect("a Vino");
    }

    async fn until(&self, path: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            // The API server says itself when it is busy.
            let answer = self.api.get(path).await;
            if let Ok(object) = answer.as_ref().map(|object| object.clone().unwrap_or_default())
                && is(&object)
            {
                return object;
            }
            assert!(begun.elapsed() < PATIENCE, "{path} is not {what}: {answer:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a condition says so, with these words in it, of what is asked for now.
    async fn says(&self, name: &str, kind: &str, (status, reason): (&str, &str), words: &str) -> Value {
        self.until(&format!("{VINOES}/{name}"), &format!("{kind} {reason} {words}"), |object| {
            let (found, why, message) = condition(object, kind);
            let seen = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            seen && (&*found, &*why) == (status, reason) && message.contains(words)
        })
        .await
    }

    async fn ready(&self, name: &str) -> Value {
        self.says(name, "Ready", ("True", "ReconciliationSucceeded"), "").await
    }

    async fn list(&self, path: &str) -> BTreeMap<String, Value> {
        // A kind that was defined a moment ago is asked for again.
        let all = self.until(path, "listed", |all| all["items"].is_array()).await;
        let one = |it: &Value| Some((it["metadata"]["name"].as_str()?.to_owned(), it.clone()));
        all["items"].as_array().into_iter().flatten().filter_map(one).collect()
    }

    async fn hosts(&self) -> Vec<String> {
        self.list(HOSTS).await.into_keys().collect()
    }

    async fn values(&self, node: &str) -> NodeValues {
        let node = self.api.get(&format!("/api/v1/nodes/{node}")).await.expect("asked").expect("there");
        nodes::values(&node).expect("values")
    }

    async fn secret(&self, name: &str) -> BTreeMap<String, String> {
        decoded(&self.api.get(&secret_at(name)).await.expect("asked").unwrap_or_default())
    }

    /// All that was made for `Vino`s, by kind.
    async fn left(&self) -> Vec<String> {
        let mut all = Vec::new();
        let selector = "?labelSelector=vino.airshipit.org%2Fcr-name";
        for path in [
            format!("{HOSTS}{selector}"),
            format!("/apis/apps/v1/namespaces/{RUNTIME}/daemonsets{selector}"),
            format!("/api/v1/namespaces/{RUNTIME}/secrets{selector}"),
            format!("/api/v1/namespaces/{RUNTIME}/configmaps{selector}"),
            format!("/api/v1/namespaces/{RUNTIME}/serviceaccounts{selector}"),
            format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{RUNTIME}/roles{selector}"),
            format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{RUNTIME}/rolebindings{selector}"),
            "/apis/airship.airshipit.org/v1/ippools".to_owned(),
        ] {
            all.extend(self.list(&path).await.into_keys().map(|name| format!("{path}: {name}")));
        }
        for (name, node) in self.list("/api/v1/nodes").await {
            all.extend(node["metadata"]["annotations"][VALUES].as_str().map(|_| format!("an annotation of {name}")));
        }
        all
    }
}

fn secret_at(name: &str) -> String {
    format!("/api/v1/namespaces/{RUNTIME}/secrets/{name}")
}

fn decoded(secret: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    secret["data"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), text(value)?)))
        .collect()
}

fn fixture(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

fn sample() -> Value {
    fixture(include_str!("../../../../agent/tests/fixtures/vino/vino.yaml"))
}

async fn network_template(api: &Api) {
    let secret = fixture(include_str!("../../../../agent/tests/fixtures/vino/network-template.yaml"));
    api.create("/api/v1/namespaces/default/secrets", &secret).await.expect("a Secret");
}

const LABELS: [(&str, &str); 2] = [("airshipit.org/server", "s1"), ("airshipit.org/rack", "r1")];

/// VIN-1, VIN-3, VIN-4, VIN-6: Airship's sample as it is, from nothing to hosts, changed, claimed and let go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn airships_sample_makes_its_hosts_follows_changes_and_leaves_nothing() {
    let mut machines = Machines::prepare().await;
    machines.run();
    machines.node("node01", "10.0.0.9", json!({"beta.kubernetes.io/os": "linux"})).await;
    machines.create(&sample()).await;
    // What lacks is named, and nothing is made.
    machines
        .says("vino-test-cr", "ConfigMapReady", ("False", "ReconciliationFailed"), "Secret `default/test-template`")
        .await;
    assert!(machines.left().await.is_empty(), "nothing half done");
    network_template(&machines.api).await;
    machines
        .says(
            "vino-test-cr",
            "BMHReady",
            ("False", "ReconciliationFailed"),
            "it has no label `airshipit.org/server`, `airshipit.org/rack`",
        )
        .await;
    assert!(machines.hosts().await.is_empty(), "no host has an empty label");
    let labels: BTreeMap<&str, &str> = LABELS.into();
    machines.api.merge("/api/v1/nodes/node01", &json!({"metadata": {"labels": labels}})).await.expect("labelled");
    let ready = machines.ready("vino-test-cr").await;
    for kind in ["ConfigMapReady", "DaemonSetReady", "BMHReady"] {
        assert_eq!(condition(&ready, kind).1, "ReconciliationSucceeded");
    }
    assert_eq!((&ready["status"]["hosts"], &ready["status"]["accelerator"]), (&json!("5/5"), &json!("tcg")));
    assert_eq!(ready["metadata"]["finalizers"], json!(["vino.airshipit.org"]));
    let name = |domain: &str| format!("default-vino-test-cr-node01-{domain}");
    let all = ["master-0", "worker-0", "worker-1", "worker-2", "worker-3"];
    assert_eq!(machines.hosts().await, all.map(name));
    made_as_asked(&machines).await;
    changes_are_followed(&machines).await;
    claimed(&mut machines).await;

    // Nothing is left.
    machines.api.delete(&format!("{VINOES}/vino-test-cr")).await.expect("deleted");
    machines.until(&format!("{VINOES}/vino-test-cr"), "gone", Value::is_null).await;
    assert_eq!(machines.left().await, Vec::<String>::new());
    let theirs = machines.list(&format!("/api/v1/namespaces/{RUNTIME}/configmaps")).await;
    assert!(theirs.contains_key("vino-flavors"), "what is the user's stays");
}

async fn made_as_asked(machines: &Machines) {
    let name = |domain: &str| format!("default-vino-test-cr-node01-{domain}");
    let values = machines.values("node01").await;
    let hosts = machines.list(HOSTS).await;
    let mut macs = BTreeSet::new();
    for domain in &values.domains {
        let host = &hosts[&name(&domain.name)];
        let spec = &host["spec"];
        assert_eq!(spec["online"], true);
        assert_eq!(spec["bmc"]["address"], format!("redfish+http://10.0.0.9:8000/redfish/v1/Systems/{}", domain.name));
        assert_eq!(spec["bmc"]["disableCertificateVerification"], true);
        assert_eq!(
            (&spec["bootMACAddress"], &spec["rootDeviceHints"]["deviceName"]),
            (&json!(domain.boot_mac_address), &json!("/dev/vda"))
        );
        let labels = &host["metadata"]["labels"];
        assert_eq!((&labels["airshipit.org/server"], &labels["airshipit.org/rack"]), (&json!("s1"), &json!("r1")));
        assert_eq!(labels["airshipit.org/k8s-role"], domain.role.as_str());
        let credentials = spec["bmc"]["credentialsName"].as_str().expect("a name");
        assert_eq!(credentials, format!("{}-credentials", name(&domain.name)));
        let pair = machines.secret(credentials).await;
        assert_eq!((pair["username"].as_str(), pair["password"].as_str()), ("admin", "passw0rd"));
        assert_eq!(
            spec["networkData"],
            json!({"name": format!("{}-network-data", name(&domain.name)), "namespace": RUNTIME})
        );
        let data = machines.secret(&format!("{}-network-data", name(&domain.name))).await;
        let data = fixture(&data["networkData"]);
        assert_eq!(data["links"][0]["ethernet_mac_address"], domain.boot_mac_address.as_str());
        assert_eq!(data["networks"][0]["ip_address"], domain.interfaces[0].ip_address.as_str());
        assert_eq!(data["networks"][0]["routes"][0]["gateway"], values.networks[0].bridge_ip.as_str());
        macs.insert(domain.boot_mac_address.clone());
    }
    assert_eq!((macs.len(), values.networks[0].bridge_ip.as_str()), (5, "192.168.2.10"));
    let range = values.networks[0].range.clone().expect("a piece");
    assert_eq!((range.start.as_str(), range.stop.as_str()), ("192.168.4.0", "192.168.4.63"));
    let pool = &machines.list(&format!("/apis/airship.airshipit.org/v1/namespaces/{RUNTIME}/ippools")).await["ippool-192-168-2-0-20"];
    let to: BTreeSet<&str> = pool["spec"]["allocatedIPs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["allocatedTo"].as_str())
        .collect();
    assert!(
        to.len() == 6 && to.contains("node01") && to.contains(&*format!("{}/management", name("worker-3"))),
        "{to:?}"
    );
    // A screen has a password of its own, and no annotation has any.
    let screens = machines.secret("default-vino-test-cr-vnc").await;
    let password = &screens[&name("master-0")];
    assert!(screens.len() == 1 && password.len() == 8 && password != "passw0rd");
    let node = machines.api.get("/api/v1/nodes/node01").await.expect("asked").expect("there");
    let text = node["metadata"]["annotations"].to_string();
    assert!(!text.contains("passw0rd") && !text.contains(password.as_str()), "{text}");
}

/// There no change was ever applied: what was wanted and what is there were one object.
async fn changes_are_followed(machines: &Machines) {
    let path = format!("{VINOES}/vino-test-cr");
    let before = machines.values("node01").await;
    // A size.
    machines
        .map("vino-flavors", json!({"flavors.yaml": "flavors: {worker: {vcpus: 2, memory: 3, rootSize: 12}}"}))
        .await;
    machines
        .until("/api/v1/nodes/node01", "of another size", |node| {
            nodes::values(node).is_some_and(|values| values.domains[1].flavor.memory == 3)
        })
        .await;
    // A route, and credentials.
    let mut spec = sample()["spec"].clone();
    spec["networks"][0]["routes"][0]["network"] = json!("10.9.0.0");
    spec["bmcCredentials"]["password"] = json!("another");
    machines.api.merge(&path, &json!({"spec": spec})).await.expect("changed");
    machines.ready("vino-test-cr").await;
    let data = machines.secret("default-vino-test-cr-node01-worker-0-network-data").await;
    assert_eq!(fixture(&data["networkData"])["networks"][0]["routes"][0]["network"], "10.9.0.0");
    for secret in ["default-vino-test-cr-bmc", "default-vino-test-cr-node01-worker-0-credentials"] {
        assert_eq!(machines.secret(secret).await["password"], "another");
    }
    let after = machines.values("node01").await;
    assert_ne!(after.credentials, before.credentials, "the node reads it again");
    let macs = |values: &NodeValues| values.domains.iter().map(|it| it.boot_mac_address.clone()).collect::<Vec<_>>();
    assert_eq!(macs(&after), macs(&before), "MAC addresses stay");
    // A template, though nobody touches the Vino.
    let template = "links: [{id: a, type: phy, ethernet_mac_address: \"{{ .BootMACAddress }}\"}]\nnetworks: []\n";
    let secret = "/api/v1/namespaces/default/secrets/test-template";
    machines.api.merge(secret, &json!({"stringData": {"template": template}})).await.expect("changed");
    machines
        .until(&secret_at("default-vino-test-cr-node01-worker-0-network-data"), "by the new template", |secret| {
            decoded(secret).get("networkData").is_some_and(|text| text.ends_with("networks: []\n"))
        })
        .await;
    // One that makes no network data: what is there goes on.
    machines.api.merge(secret, &json!({"stringData": {"template": "links: []"}})).await.expect("changed");
    machines
        .says(
            "vino-test-cr",
            "BMHReady",
            ("False", "ReconciliationFailed"),
            "found none with the MAC address of `management`",
        )
        .await;
    assert_eq!(machines.hosts().await.len(), 5);
    machines.api.merge(secret, &json!({"stringData": {"template": template}})).await.expect("changed");
    machines.ready("vino-test-cr").await;
    // A host that its user switched off stays off.
    let host = format!("{HOSTS}/default-vino-test-cr-node01-worker-3");
    machines.api.merge(&host, &json!({"spec": {"online": false}})).await.expect("changed");
    let mut spec = sample()["spec"].clone();
    spec["nodes"][1]["count"] = json!(5);
    machines.api.merge(&path, &json!({"spec": spec})).await.expect("changed");
    let grown = machines.ready("vino-test-cr").await;
    assert_eq!(grown["status"]["hosts"], "6/6");
    let host = machines.api.get(&host).await.expect("asked").expect("there");
    assert_eq!(host["spec"]["online"], false);
}

/// VIN-6: SIP claims hosts of `ViNO`, as it claims servers; what it has is not taken away.
async fn claimed(machines: &mut Machines) {
    for host in machines.hosts().await {
        let status = json!({"provisioning": {"state": "available", "ID": "", "image": {"url": ""}}, "operationalStatus": "OK",
            "errorMessage": "", "errorCount": 0, "poweredOn": false});
        machines.api.merge(&format!("{HOSTS}/{host}/status"), &json!({"status": status})).await.expect("a status");
    }
    machines.run_sip();
    let cluster = json!({"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "metadata": {"name": "one"},
        "spec": {"services": {}, "nodes": {"Worker": {"labelSelector": {"matchLabels": {"airshipit.org/k8s-role": "worker"}},
            "topologyKey": "airshipit.org/server", "count": {"active": 1, "standby": 0}}}}});
    machines.api.create(CLUSTERS, &cluster).await.expect("a SIPCluster");
    machines.until(&format!("{CLUSTERS}/one"), "ready", |object| condition(object, "Ready").0 == "True").await;
    let worker = "default-vino-test-cr-node01-worker-0";
    let host = machines.api.get(&format!("{HOSTS}/{worker}")).await.expect("asked").expect("there");
    assert_eq!(host["metadata"]["labels"]["sip.airshipit.org/cluster-name"], "one");

    let path = format!("{VINOES}/vino-test-cr");
    let mut spec = sample()["spec"].clone();
    spec["nodes"][1]["count"] = json!(0);
    machines.api.merge(&path, &json!({"spec": spec})).await.expect("changed");
    machines
        .says(
            "vino-test-cr",
            "BMHReady",
            ("False", "Progressing"),
            "SIPCluster tenants/one has it: it goes when it is given up",
        )
        .await;
    machines.until(HOSTS, "two", |all| all["items"].as_array().is_some_and(|all| all.len() == 2)).await;
    assert_eq!(machines.hosts().await, ["default-vino-test-cr-node01-master-0", worker]);
    let pool = format!("/apis/airship.airshipit.org/v1/namespaces/{RUNTIME}/ippools/ippool-192-168-2-0-20");
    let given = |pool: &Value| pool["spec"]["allocatedIPs"].as_array().map_or(0, Vec::len);
    machines.until(&pool, "with three addresses", |pool| given(pool) == 3).await;
    let secrets = machines
        .list(&format!("/api/v1/namespaces/{RUNTIME}/secrets?labelSelector=vino.airshipit.org%2Fcr-name"))
        .await;
    assert_eq!(secrets.len(), 2 + 2 * 2, "those of hosts that are gone are gone: {:?}", secrets.keys());

    // All of it is to go: what a cluster has is waited for.
    machines.api.delete(&path).await.expect("deleted");
    machines
        .until(&path, "waiting for the cluster", |object| {
            condition(object, "Ready")
                .2
                .contains(&format!("host `{worker}`: SIPCluster tenants/one has it; hint: delete that first"))
        })
        .await;
    machines.api.delete(&format!("{CLUSTERS}/one")).await.expect("deleted");
}
