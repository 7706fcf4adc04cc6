//! Tenant clusters (`SIPCluster`) on a real API server: hosts are claimed there, and services are made there; nobody runs
//! their pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use foothold_agent::cluster::api::Api;
use foothold_agent::cluster::kubeconfig;
use foothold_agent::operators::sip::{self, Images, Settings};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, DEFINITIONS, admin, client, define, define_metal3};
use crate::site::{PATIENCE, condition};

pub const CLUSTERS: &str = "/apis/airship.airshipit.org/v1/namespaces/tenants/sipclusters";
pub const HOSTS: &str = "/apis/metal3.io/v1alpha1/namespaces/hosts/baremetalhosts";

/// A control plane with both kinds, and the controller of one of them.
pub struct Tenants {
    pub api: Arc<Api>,
    settings: Settings,
    operator: Option<(JoinHandle<()>, CancellationToken)>,
    // Last, so that it ends after what asks it.
    pub cluster: Cluster,
}

impl Drop for Tenants {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Tenants {
    pub async fn prepare() -> Self {
        let cluster = Cluster::start();
        let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
        define_metal3(&api).await;
        define(&api, &agent_api::sip::crds::all()).await;
        for name in ["tenants", "hosts"] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            api.create("/api/v1/namespaces", &object).await.expect("a namespace");
        }
        let [own, jump_host, oidc] = ["sip", "jumphost", "oidc"].map(|name| format!("foothold.dev/{name}:1"));
        let images = Images { own, jump_host, oidc };
        let address = Some(std::net::Ipv4Addr::LOCALHOST.into());
        let settings = Settings { kubeconfig: Some(admin(&cluster)), images, address, ..Settings::default() };
        Self { api: Arc::new(api), settings, operator: None, cluster }
    }

    pub fn run(&mut self) {
        let (settings, stop) = (self.settings.clone(), CancellationToken::new());
        let token = stop.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
        let task = tokio::spawn(async move {
            sip::run(&settings, &token).await.expect("the controller");
        });
        self.operator = Some((task, stop));
    }

    /// Kills the controller, wherever it is.
    pub fn stop(&mut self) {
        if let Some((task, stop)) = self.operator.take() {
            task.abort();
            stop.cancel();
        }
    }

    /// A host without a BMC: it is as good as one that is available.
    pub async fn host(&self, name: &str, labels: Value, spec: Value) {
        let mut all = json!({"online": true});
        if let (Some(into), Value::Object(from)) = (all.as_object_mut(), spec) {
            into.extend(from);
        }
        let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": name, "labels": labels}, "spec": all});
        self.api.create(HOSTS, &host).await.expect("a host");
    }

    pub async fn secret(&self, namespace: &str, name: &str, texts: Value) {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": texts});
        self.api.create(&format!("/api/v1/namespaces/{namespace}/secrets"), &secret).await.expect("a Secret");
    }

    pub async fn cluster(&self, name: &str, spec: Value) {
        self.api.create(CLUSTERS, &object(name, spec)).await.expect("a SIPCluster");
    }

    pub async fn until(&self, path: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let object = self.api.get(path).await.expect("asked").unwrap_or_default();
            if is(&object) {
                return object;
            }
            assert!(begun.elapsed() < PATIENCE, "{path} is not {what}: {object:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a cluster says so.
    pub async fn says(&self, name: &str, status: &str, reason: &str) -> Value {
        self.until(&format!("{CLUSTERS}/{name}"), reason, |object| {
            let (found, why, _) = condition(object, "Ready");
            let seen = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            seen && (&*found, &*why) == (status, reason)
        })
        .await
    }

    async fn owners(&self) -> BTreeMap<String, String> {
        owners(&self.api).await
    }

    /// What a kubelet would say of the pods.
    pub async fn pods_run(&self, deployment: &str) {
        let path = format!("/apis/apps/v1/namespaces/tenants/deployments/{deployment}");
        let found = self.until(&path, "there", |object| !object.is_null()).await;
        let status = json!({"observedGeneration": found["metadata"]["generation"], "replicas": 1, "updatedReplicas": 1,
            "readyReplicas": 1, "availableReplicas": 1});
        self.api.merge(&format!("{path}/status"), &json!({"status": status})).await.expect("changed");
    }
}

fn object(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "metadata": {"name": name}, "spec": spec})
}

/// Hosts that are somebody's, with his name.
async fn owners(api: &Api) -> BTreeMap<String, String> {
    named(&api.get(&all_hosts()).await.expect("asked").expect("a list"))
}

pub fn all_hosts() -> String {
    format!("{HOSTS}?limit=1000")
}

fn named(all: &Value) -> BTreeMap<String, String> {
    let one = |host: &Value| {
        let labels = &host["metadata"]["labels"];
        let owner = labels["sip.airshipit.org/cluster-name"].as_str()?;
        assert!(labels["sip.airshipit.org/node-type"].is_string(), "a half claimed host: {labels}");
        assert_eq!(labels["sip.airshipit.org/cluster-namespace"], "tenants");
        Some((host["metadata"]["name"].as_str()?.to_owned(), owner.to_owned()))
    };
    all["items"].as_array().into_iter().flatten().filter_map(one).collect()
}

fn workers(active: i64, standby: i64) -> Value {
    json!({"Worker": {"labelSelector": {"matchLabels": {"flavor": "worker"}}, "topologyKey": "rack",
        "count": {"active": active, "standby": standby}}})
}

/// Looks all the time at whose the hosts are.
pub struct Watch {
    ended: Arc<AtomicBool>,
    looks: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Watch {
    /// No host goes from one owner to another, and `right` finds nothing wrong in what `named` reads of the list of hosts: the
    /// owner by the host's name.
    pub fn start<T: PartialEq + Debug + Send + Sync + 'static>(
        api: Arc<Api>,
        named: fn(&Value) -> BTreeMap<String, T>,
        right: impl Fn(&BTreeMap<String, T>) + Send + 'static,
    ) -> Self {
        let (ended, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stop, seen) = (Arc::clone(&ended), Arc::clone(&looks));
        #[expect(clippy::disallowed_methods, reason = "it is joined")]
        let task = tokio::spawn(async move {
            let mut before = BTreeMap::new();
            while !stop.load(Ordering::Relaxed) {
                // An answer that did not come in time says nothing.
                let Ok(Some(all)) = api.get(&all_hosts()).await else { continue };
                let now = named(&all);
                for (host, owner) in &now {
                    assert_eq!(before.get(host).unwrap_or(owner), owner, "{host} went from one to another");
                }
                right(&now);
                before = now;
                seen.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { ended, looks, task }
    }

    /// Nothing was wrong. Returns how often it was looked.
    pub async fn end(self) -> usize {
        self.ended.store(true, Ordering::Relaxed);
        self.task.await.expect("nobody had what was another one's");
        let looks = self.looks.load(Ordering::Relaxed);
        assert!(looks > 10, "it was looked at");
        looks
    }
}

/// No cluster has too many hosts, and none two of a rack.
fn spread(owners: &BTreeMap<String, String>, most: usize, racks: usize) {
    let mut of: BTreeMap<&String, Vec<usize>> = BTreeMap::new();
    for (host, owner) in owners {
        let number: usize = host.trim_start_matches('h').parse().expect("a number");
        of.entry(owner).or_default().push(number % racks);
    }
    for (owner, places) in of {
        assert!(places.len() <= most, "{owner} has {} hosts", places.len());
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len(), "{owner} has two of one rack");
    }
}

/// Requests of the controller of a kind that changed something, as the API server counts them.
pub async fn writes(api: &Api, kind: &str) -> f64 {
    let (_, text) = api.health("/metrics").await.expect("asked");
    let ours = ["baremetalhosts", kind, "events", "deployments", "services", "secrets", "configmaps"];
    let lines = text.lines().filter(|line| {
        line.starts_with("apiserver_request_total")
            && ["PUT", "PATCH", "APPLY", "DELETE"].iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
            && ours.iter().any(|resource| line.contains(&format!("resource=\"{resource}\"")))
    });
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// SIP-6: clusters of four hosts each, all at once, and a controller that is killed again and again on the way.
#[expect(clippy::print_stdout, reason = "how long it took")]
async fn many(clusters: usize, hosts: usize, restarts: usize) {
    let mut tenants = Tenants::prepare().await;
    let racks = 10;
    for number in 0..hosts {
        let labels = json!({"flavor": "worker", "rack": format!("r{}", number % racks)});
        tenants.host(&format!("h{number:03}"), labels, json!({})).await;
    }
    let watch = Watch::start(Arc::clone(&tenants.api), named, move |owners| spread(owners, 4, racks));
    for number in 0..clusters {
        tenants.cluster(&format!("t{number}"), json!({"nodes": workers(3, 1), "services": {}})).await;
    }
    let begun = Instant::now();
    let mut on_the_way = 0;
    for number in 0..restarts {
        tenants.run();
        // Not always at the same place.
        let millis = 100 + hosts + 40 * (number % 7);
        tokio::time::sleep(Duration::from_millis(u64::try_from(millis).expect("a pause"))).await;
        tenants.stop();
        let claimed = tenants.owners().await.len();
        on_the_way += usize::from(claimed > 0 && claimed < 4 * clusters);
    }
    tenants.run();
    for number in 0..clusters {
        tenants.says(&format!("t{number}"), "True", "ReconciliationSucceeded").await;
    }
    let took = begun.elapsed();
    let looks = watch.end().await;
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for owner in tenants.owners().await.into_values() {
        *count.entry(owner).or_default() += 1;
    }
    assert_eq!(count.len(), clusters);
    assert!(count.values().all(|hosts| *hosts == 4), "{count:?}");
    let writes = writes(&tenants.api, "sipclusters").await;
    println!(
        "{clusters} clusters of 4 on {hosts} hosts in {took:.1?}, {restarts} restarts, {on_the_way} of them while hosts were \
         being claimed, {looks} looks, {writes} API writes"
    );
    // All of it goes, though no user named a finalizer.
    for number in 0..clusters {
        tenants.api.delete(&format!("{CLUSTERS}/t{number}")).await.expect("deleted");
    }
    for number in 0..clusters {
        tenants.until(&format!("{CLUSTERS}/t{number}"), "gone", Value::is_null).await;
    }
    assert!(tenants.owners().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_tenants_on_a_hundred_hosts_share_none_whatever_ends_the_controller() {
    many(20, 100, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a benchmark of minutes"]
async fn a_hundred_tenants_on_five_hundred_hosts_share_none_whatever_ends_the_controller() {
    many(100, 500, 20).await;
}

/// SIP-3, SIP-4 and the replacement of a host, as they are written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_grows_shrinks_and_has_a_failed_host_replaced() {
    let mut tenants = Tenants::prepare().await;
    for number in 0..5 {
        let labels = json!({"flavor": "worker", "rack": format!("r{number}")});
        tenants
            .host(
                &format!("h{number}"),
                labels,
                json!({"bmc": {"address": "redfish://10.0.0.1/1", "credentialsName": "bmc"}}),
            )
            .await;
        let status = json!({"provisioning": {"state": "available", "ID": "", "image": {"url": ""}}, "operationalStatus": "OK",
            "errorMessage": "", "errorCount": 0, "poweredOn": false});
        tenants.api.merge(&format!("{HOSTS}/h{number}/status"), &json!({"status": status})).await.expect("a status");
    }
    tenants.run();
    tenants.cluster("one", json!({"nodes": workers(1, 1), "services": {}})).await;
    // SIP-10: what lacks is named, and tried when it comes.
    let waiting = tenants.says("one", "False", "Unschedulable").await;
    let (_, _, message) = condition(&waiting, "Ready");
    assert!(message.contains("hosts/h0: Secret `hosts/bmc` with the credentials of its BMC is not there"), "{message}");
    assert!(tenants.owners().await.is_empty(), "nothing is claimed half");
    tenants.secret("hosts", "bmc", json!({"username": "a", "password": "b"})).await;
    let ready = tenants.says("one", "True", "ReconciliationSucceeded").await;
    assert_eq!(ready["status"]["summary"], "Worker 2/2");
    assert_eq!(condition(&ready, "WorkerScheduled").0, "True");
    let names = |owners: BTreeMap<String, String>| owners.into_keys().collect::<Vec<_>>();
    assert_eq!(names(tenants.owners().await), ["h0", "h1"]);
    let path = format!("{CLUSTERS}/one");
    for (spec, expected) in [(workers(3, 1), vec!["h0", "h1", "h2", "h3"]), (workers(1, 1), vec!["h0", "h2"])] {
        tenants.api.merge(&path, &json!({"spec": {"nodes": spec}})).await.expect("changed");
        tenants.says("one", "True", "ReconciliationSucceeded").await;
        assert_eq!(names(tenants.owners().await), expected);
    }
    let error = json!({"status": {"errorMessage": "no disk", "errorType": "provisioning error"}});
    tenants.api.merge(&format!("{HOSTS}/h0/status"), &error).await.expect("changed");
    tenants
        .until(&format!("{HOSTS}/h1"), "claimed for it", |host| {
            !host["metadata"]["labels"]["sip.airshipit.org/cluster-name"].is_null()
        })
        .await;
    tenants.api.delete(&format!("{HOSTS}/h2")).await.expect("deleted");
    tenants
        .until(&format!("{HOSTS}/h3"), "claimed for it", |host| {
            !host["metadata"]["labels"]["sip.airshipit.org/cluster-name"].is_null()
        })
        .await;
    tenants.says("one", "True", "ReconciliationSucceeded").await;
    assert_eq!(names(tenants.owners().await), ["h1", "h3"]);

    // What would be done is said, and nothing is.
    let mut dry = object("dry", json!({"nodes": workers(2, 0), "services": {}}));
    dry["metadata"]["annotations"] = json!({"sip.airshipit.org/dry-run": "true"});
    tenants.api.create(CLUSTERS, &dry).await.expect("a SIPCluster");
    let told = tenants.says("dry", "False", "Progressing").await;
    assert_eq!(condition(&told, "WorkerScheduled").0, "False", "{told:#}");
    let why: BTreeMap<&str, &str> = told["status"]["notChosen"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| Some((one["host"].as_str()?, one["why"].as_str()?)))
        .collect();
    assert_eq!(why["hosts/h0"], "it has an error: no disk");
    assert_eq!(why["hosts/h1"], "it is of SIPCluster tenants/one");
    assert_eq!(names(tenants.owners().await), ["h1", "h3"]);
}

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGimgw04ltNn+hU5H6x+XkMg2BMksbtU+C69OAc9EizS somebody@example.org";

fn services(key: &str) -> Value {
    json!({
        "loadBalancerWorker": [{"nodeInterfaceId": "oam", "nodePortRange": {"start": 30002, "end": 30003},
            "clusterIP": "10.96.0.77"}],
        "jumpHost": [{"nodeInterfaceId": "oam", "nodePort": 30001, "sshAuthorizedKeys": [key], "nodeSSHPrivateKeys": "keys"}],
    })
}

pub fn network(ip: &str) -> Value {
    json!({"networkData": json!({"links": [], "networks": [{"id": "oam", "link": "a", "type": "ipv4", "ip_address": ip}]}).to_string()})
}

/// SIP-5, SIP-7, SIP-9, SIP-10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_of_a_tenant_follow_and_go_with_it() {
    let mut tenants = Tenants::prepare().await;
    let spec = json!({"networkData": {"name": "h0-net", "namespace": "hosts"}});
    tenants.host("h0", json!({"flavor": "worker", "rack": "a"}), spec).await;
    tenants.secret("hosts", "h0-net", network("10.0.0.1")).await;
    tenants.run();
    tenants.cluster("one", json!({"nodes": workers(1, 0), "services": services("ssh-rsa nonsense")})).await;
    let refused = tenants.says("one", "False", "InfraServiceFailure").await;
    let (_, _, message) = condition(&refused, "Ready");
    assert!(message.contains("jumpHost[0].sshAuthorizedKeys[0] is no key"), "{message}");
    let deployments = "/apis/apps/v1/namespaces/tenants/deployments";
    let none = tenants.api.get(deployments).await.expect("asked").expect("a list");
    assert_eq!(none["items"], json!([]), "nothing is deployed");

    let path = format!("{CLUSTERS}/one");
    tenants.api.merge(&path, &json!({"spec": {"services": services(KEY)}})).await.expect("changed");
    let lacks = |text: &'static str| move |object: &Value| condition(object, "Ready").2.contains(text);
    tenants
        .until(
            &path,
            "told",
            lacks("Secret `tenants/keys`, which `jumpHost[0].nodeSSHPrivateKeys` names, is not there"),
        )
        .await;
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "jumphost-one"}, "data": {"a": "b"}});
    tenants.api.create("/api/v1/namespaces/tenants/configmaps", &theirs).await.expect("a ConfigMap");
    tenants.secret("tenants", "keys", json!({"id": "a private key"})).await;
    tenants
        .until(&path, "told", lacks("ConfigMap `tenants/jumphost-one` is there, and was not made for this SIPCluster"))
        .await;
    let none = tenants.api.get(deployments).await.expect("asked").expect("a list");
    assert_eq!(none["items"], json!([]), "nothing is deployed half");
    tenants.api.delete("/api/v1/namespaces/tenants/configmaps/jumphost-one").await.expect("deleted");
    tenants.says("one", "False", "Progressing").await;
    for name in ["loadbalancer-worker-one", "jumphost-one"] {
        tenants.pods_run(name).await;
    }
    tenants.says("one", "True", "ReconciliationSucceeded").await;
    let service = tenants.api.get("/api/v1/namespaces/tenants/services/loadbalancer-worker-one").await.expect("asked");
    let service = service.expect("there");
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.77");
    assert_eq!(service["spec"]["ports"][1]["nodePort"], 30003);

    ports_change_hands(&tenants).await;

    // Network data is followed though nobody touches the cluster.
    let haproxy = "/api/v1/namespaces/tenants/secrets/loadbalancer-worker-one";
    let config = |secret: &Value| {
        use base64::Engine as _;
        let text = secret["data"]["haproxy.cfg"].as_str().unwrap_or_default();
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default())
            .unwrap_or_default()
    };
    assert!(
        config(&tenants.api.get(haproxy).await.expect("asked").expect("there")).contains("server h0 10.0.0.1:30002")
    );
    let changed = Instant::now();
    tenants
        .api
        .merge("/api/v1/namespaces/hosts/secrets/h0-net", &json!({"stringData": network("10.0.0.9")}))
        .await
        .expect("changed");
    tenants.until(haproxy, "with the new address", |secret| config(secret).contains("server h0 10.0.0.9:30003")).await;
    assert!(changed.elapsed() < Duration::from_secs(20), "{:?}", changed.elapsed());
    // So are templates of users, and what somebody removed.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "loadbalancerworker"},
        "data": {"loadBalancerWorker.cfg": "# mine\n{{ range .Servers }}# {{ .Name }}\n{{ end }}"}});
    tenants.api.create("/api/v1/namespaces/tenants/configmaps", &map).await.expect("a ConfigMap");
    tenants.until(haproxy, "the user's", |secret| config(secret) == "# mine\n# h0\n").await;
    tenants.api.delete(haproxy).await.expect("deleted");
    tenants.until(haproxy, "there again", |secret| config(secret) == "# mine\n# h0\n").await;

    // What the jump host writes is done, for hosts of the cluster alone.
    let requests = "/api/v1/namespaces/tenants/configmaps/jumphost-one-requests";
    tenants.api.merge(requests, &json!({"data": {"h0.reboot": "now", "h7.reboot": "now"}})).await.expect("asked for");
    let answered = tenants
        .until(requests, "answered", |map| map["data"]["h0.answer"].is_string() && map["data"]["h7.answer"].is_string())
        .await;
    assert!(answered["data"]["h0.reboot"].is_null() && answered["data"]["h7.reboot"].is_null(), "{answered}");
    assert_eq!(answered["data"]["h7.answer"], "`h7` is no host of this cluster");
    let host = tenants.api.get(&format!("{HOSTS}/h0")).await.expect("asked").expect("there");
    assert!(host["metadata"]["annotations"]["reboot.metal3.io"].is_string(), "{host}");

    // Nothing is left.
    tenants.api.delete(&path).await.expect("deleted");
    tenants.until(&path, "gone", Value::is_null).await;
    assert!(tenants.owners().await.is_empty());
    for list in [
        deployments,
        "/api/v1/namespaces/tenants/services",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/tenants/roles",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/tenants/rolebindings",
    ] {
        let left = tenants.api.get(list).await.expect("asked").expect("a list");
        assert_eq!(left["items"], json!([]), "{list}");
    }
    for (kind, theirs) in [("secrets", "keys"), ("configmaps", "loadbalancerworker")] {
        let left =
            tenants.api.get(&format!("/api/v1/namespaces/tenants/{kind}")).await.expect("asked").expect("a list");
        let names: Vec<&str> =
            left["items"].as_array().into_iter().flatten().filter_map(|it| it["metadata"]["name"].as_str()).collect();
        assert_eq!(names, [theirs], "what is the user's stays");
    }
}

/// Ports go from one Service to another, and what nobody would give takes nothing away.
async fn ports_change_hands(tenants: &Tenants) {
    let path = format!("{CLUSTERS}/one");
    let change = async |services: &Value| {
        tenants.api.merge(&path, &json!({"spec": {"services": services}})).await.expect("changed");
    };
    let at = |name: &str| format!("/api/v1/namespaces/tenants/services/{name}");
    let mut other = services(KEY);
    other["loadBalancerWorker"][0]["nodePortRange"] = json!({"start": 30001, "end": 30001});
    other["jumpHost"][0]["nodePort"] = json!(30002);
    change(&other).await;
    for (name, port) in [("jumphost-one", 30002), ("loadbalancer-worker-one", 30001)] {
        tenants.until(&at(name), "at its new port", |service| service["spec"]["ports"][0]["nodePort"] == port).await;
    }
    let mut refused = other.clone();
    refused["loadBalancerWorker"][0]["clusterIP"] = json!("192.0.2.1");
    refused["jumpHost"][0]["nodePort"] = json!(30009);
    change(&refused).await;
    let told = tenants.says("one", "False", "InfraServiceFailure").await;
    let (_, _, message) = condition(&told, "Ready");
    assert!(message.contains("trying the ports and the address of Service `loadbalancer-worker-one`"), "{message}");
    assert!(message.contains("192.0.2.1"), "{message}");
    let service = async |name: &str| tenants.until(&at(name), "there", |service| !service.is_null()).await;
    assert_eq!(service("loadbalancer-worker-one").await["spec"]["clusterIP"], "10.96.0.77");
    assert_eq!(service("jumphost-one").await["spec"]["ports"][0]["nodePort"], 30002, "nothing half done");
    change(&services(KEY)).await;
    tenants.until(&at("jumphost-one"), "as before", |service| service["spec"]["ports"][0]["nodePort"] == 30001).await;
}

/// What the API server refuses, each with its path.
#[tokio::test]
async fn what_is_wrong_is_refused_before_it_is_stored() {
    let tenants = Tenants::prepare().await;
    let worker = |set: Value| json!({"nodes": {"Worker": set}, "services": {}});
    let count = json!({"active": 1, "standby": 0});
    let served = |services: Value| json!({"services": services});
    for (name, spec, words) in [
        ("a", json!({"nodes": {}}), "spec.services: Required value"),
        ("a", worker(json!({"topologyKey": "rack"})), "spec.nodes.Worker.count: Required value"),
        ("a", worker(json!({"count": {"active": -1}})), "spec.nodes.Worker.count.active"),
        (
            "a",
            worker(json!({"count": count, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}})),
            "`In` and `NotIn` need values",
        ),
        (
            "a",
            worker(json!({"count": count, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}})),
            "Unsupported value: \"Near\"",
        ),
        (
            "a",
            served(json!({"loadBalancerControlPlane": [{"nodeInterfaceId": "oam", "nodePort": 80}]})),
            "spec.services.loadBalancerControlPlane[0].nodePort",
        ),
        (
            "a",
            served(
                json!({"loadBalancerWorker": [{"nodeInterfaceId": "oam", "nodePortRange": {"start": 30010, "end": 30002}}]}),
            ),
            "the end of the range comes before its start",
        ),
        (
            "a",
            served(json!({"jumpHost": [{"nodeInterfaceId": "oam", "nodePort": 30001}]})),
            "nodeSSHPrivateKeys: Required value",
        ),
        ("a-name-that-is-longer-than-services-may-be", json!({"services": {}}), "at most 37 characters"),
    ] {
        let error = tenants.api.create(CLUSTERS, &object(name, spec)).await.expect_err("refused");
        let text = format!("{error:?}");
        assert!(text.contains(words) || text.replace('\\', "").contains(words), "{words}: {text}");
    }
    let definition = tenants.api.get(&format!("{DEFINITIONS}/sipclusters.airship.airshipit.org")).await.expect("asked");
    assert!(definition.is_some());
    // Airship's own shape is taken as it is.
    let sample = include_str!("../../../agent/tests/fixtures/sip/sipcluster.yaml");
    let sample: Value = serde_saphyr::from_str(sample).expect("YAML");
    tenants.api.create(CLUSTERS, &sample).await.expect("taken");
}
