//! A cluster gets another release of Kubernetes: machines, with kubeadm of both releases.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clusters::{
    FORMED, Node, OWN_VERSION, PROVISIONINGS, STEP, Site, Wished, alone, begins, client_of, ends, forms, goes,
    is_ready, kubeconfig_of, message, serves, with_formed_box_of, with_worker,
};
use crate::lives::kill_again_and_again;

/// The release that the cluster begins with.
const BEFORE: &str = "v1.35.8";

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site is_upgraded -- --ignored --nocapture`"]
fn a_cluster_of_an_earlier_release_is_upgraded_though_its_controller_ends_again_and_again() {
    let clusters = format!("clusters: {{ versions: [ {{ version: {BEFORE} }} ] }}");
    with_formed_box_of(&clusters, |formed, site, image, dir| async move {
        let wished: &[Wished] = &[("master-0", 0x20, 2560), ("worker-0", 0x21, 1536)];
        let mut spec = with_worker();
        spec["kubernetes"] = json!({"version": BEFORE});
        let nodes = forms(&site, wished, spec, (&image, dir.path()), |host| formed.known(host)).await;
        let one = format!("{PROVISIONINGS}/one");
        let cluster = Site { api: client_of(&kubeconfig_of(&site, "one").await), begun: site.begun };
        assert_eq!(kubelets(&cluster).await, [BEFORE, BEFORE]);
        let before = etcd(&cluster).await;

        let version = |version: &str| json!({"spec": {"kubernetes": {"version": version}}});
        site.api.merge(&one, &version(OWN_VERSION)).await.expect("changed");
        site.say(&format!("the cluster is to have {OWN_VERSION}"));
        let is_new = |object: &Value| is_ready(object) && object["status"]["version"] == OWN_VERSION;
        tokio::select! {
            _ = site.until(&one, "the cluster is upgraded", FORMED, is_new) => (),
            () = kill_again_and_again(&site, &formed) => unreachable!("it goes on"),
        }
        assert_eq!(kubelets(&cluster).await, [OWN_VERSION, OWN_VERSION]);
        let after = etcd(&cluster).await;
        site.say(&format!("etcd: {before}, now {after}"));
        assert_ne!(before, after);
        let told = cluster.api.get("/version").await.expect("asked").expect("a version");
        assert_eq!(told["gitVersion"], OWN_VERSION);
        serves(&cluster, &nodes).await;

        // There is no way back, and nothing is touched for it.
        site.api.merge(&one, &version(BEFORE)).await.expect("changed");
        let refused = |object: &Value| message(object).contains("kubeadm does not go back to v1.35.8");
        site.until(&one, "the way back is refused", STEP, refused).await;
        site.api.merge(&one, &version(OWN_VERSION)).await.expect("changed");
        site.until(&one, "the cluster is Ready again", STEP, is_new).await;
        goes(&site, &nodes).await;
    });
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site loses_its_power_at_every_step -- --ignored --nocapture`"]
fn a_server_loses_its_power_at_every_step_of_an_install_and_of_an_upgrade() {
    let clusters = format!("clusters: {{ versions: [ {{ version: {BEFORE} }} ] }}");
    with_formed_box_of(&clusters, |formed, site, image, dir| async move {
        let wished: &[Wished] = &[("master-0", 0x20, 2560)];
        let mut spec = alone();
        spec["kubernetes"] = json!({"version": BEFORE});
        let nodes = begins(&site, wished, spec, (&image, dir.path()), |host| formed.known(host)).await;
        let steps = power_cuts(&site, &nodes[0], BEFORE).await;
        assert!(["system/programs", "kubernetes/member"].iter().all(|step| steps.contains_key(*step)), "{steps:?}");
        ends(&site, &nodes, BEFORE).await;

        let one = format!("{PROVISIONINGS}/one");
        let spec = json!({"spec": {"kubernetes": {"version": OWN_VERSION}}});
        site.api.merge(&one, &spec).await.expect("changed");
        let steps = power_cuts(&site, &nodes[0], OWN_VERSION).await;
        assert!(["system/programs", "upgrade/kubernetes"].iter().all(|step| steps.contains_key(*step)), "{steps:?}");
        let cluster = Site { api: client_of(&kubeconfig_of(&site, "one").await), begun: site.begun };
        assert_eq!(kubelets(&cluster).await, [OWN_VERSION]);
        serves(&cluster, &nodes).await;
        goes(&site, &nodes).await;
    });
}

/// The power of a machine is cut as soon as a step of its work is seen, and in steps of kubeadm twice more at random instants,
/// until the cluster is Ready and has that release. Returns how often in which step; the shortest ones may not be seen.
async fn power_cuts(site: &Site, node: &Node, version: &str) -> BTreeMap<String, usize> {
    let one = format!("{PROVISIONINGS}/one");
    let (mut cuts, mut last) = (BTreeMap::<String, usize>::new(), Value::Null);
    loop {
        assert!(site.begun.elapsed() < 2 * FORMED, "not Ready: {cuts:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
        let object = site.api.get(&one).await.expect("asked").expect("there");
        let (status, told) = (&object["status"], &object["status"]["nodes"][0]);
        let is_told = status["observedGeneration"] == object["metadata"]["generation"];
        if is_told && is_ready(&object) && status["version"] == version {
            site.say(&format!("Ready with {version}; power cuts: {cuts:?}"));
            return cuts;
        }
        // Until the loss is noticed, the step of before is told.
        let Some(step) = told["step"].as_str().filter(|_| told["phase"] != "Failing" && told["since"] != last) else {
            continue;
        };
        let step = step.split(" (").next().expect("a first part").to_owned();
        let times = cuts.entry(step.clone()).or_default();
        let is_of_kubeadm = ["kubernetes/member", "upgrade/kubernetes"].contains(&&*step);
        if *times > if is_of_kubeadm { 2 } else { 0 } {
            continue;
        }
        if *times > 0 {
            tokio::time::sleep(Duration::from_millis(rand::random_range(3_000..60_000))).await;
        }
        *times += 1;
        last = told["since"].clone();
        node.vm.reset().expect("its power is cut");
        site.say(&format!("its power is cut in {step}"));
    }
}

/// Version of each node's kubelet, once all nodes are Ready and take pods.
async fn kubelets(cluster: &Site) -> Vec<String> {
    let all = cluster.api.get("/api/v1/nodes").await.expect("asked").expect("nodes");
    let nodes = all["items"].as_array().expect("items");
    assert!(nodes.iter().all(|node| is_ready(node) && node["spec"]["unschedulable"] != true), "{all:#}");
    let version = |node: &Value| node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default().to_owned();
    nodes.iter().map(version).collect()
}

/// The image that etcd runs.
async fn etcd(cluster: &Site) -> String {
    let pod =
        cluster.api.get("/api/v1/namespaces/kube-system/pods/etcd-master-0").await.expect("asked").expect("a pod");
    pod["spec"]["containers"][0]["image"].as_str().expect("an image").to_owned()
}
