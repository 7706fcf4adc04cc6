//! The life of a cluster: without the box, without its controller, without a master. The box's half is processes of this
//! machine ([`Formed`]).

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foothold_agent::cluster::kubeconfig::{self, ParsedKubeconfig};
use foothold_agent::cluster::pki;
use serde_json::{Value, json};

use crate::clusters::{
    FORMED, HOSTS, NAMESPACE, OWN_VERSION, PROVISIONINGS, STEP, Site, Wished, alone, client_of, forms, goes, is_ready,
    joins, kubeconfig_of, logged_in, message, serves, wish, with_formed_box, with_worker,
};
use crate::formed::Formed;

/// Seconds of a day.
const DAY: u64 = 24 * 3600;
/// How often the controller is killed.
const KILLS: usize = 5;
/// Common address of three masters.
const VIRTUAL: &str = "172.22.0.200";

/// The spec asks for what cannot be had, and the kubeconfig is lost, or its certificates end soon: both are made anew on the
/// server, and the cluster stays what it is.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site is_kept_up -- --ignored --nocapture`"]
fn a_cluster_is_kept_up_while_its_spec_cannot_be_met() {
    with_formed_box(|formed, site, image, dir| async move {
        let wished: &[Wished] = &[("master-0", 0x20, 2560)];
        let nodes = forms(&site, wished, alone(), (&image, dir.path()), |host| formed.known(host)).await;
        let one = format!("{PROVISIONINGS}/one");
        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/one-kubeconfig");
        let before = kubeconfig_of(&site, "one").await;
        site.api.merge(&one, &json!({"spec": {"kubernetes": {"version": "v1.35.8"}}})).await.expect("changed");
        let refused = |object: &Value| {
            message(object).starts_with("the cluster has Kubernetes v1.36.4, and kubeadm does not go back to v1.35.8")
                && object["status"]["phase"] == "Degraded"
        };
        site.until(&one, "the way back is refused", STEP, refused).await;

        site.api.delete(&secret).await.expect("deleted");
        site.until(&secret, "the kubeconfig is there again", STEP, |secret| !secret.is_null()).await;
        assert_eq!(parsed(&kubeconfig_of(&site, "one").await), parsed(&before));

        let ending = end_soon(&site, &one).await;
        let renewed = |secret: &Value| secret["data"]["value"] != json!(STANDARD.encode(&before));
        site.until(&secret, "the certificates are renewed", STEP, renewed).await;
        let after = parsed(&kubeconfig_of(&site, "one").await);
        let ends = |pem: &str| pki::inspect(pem).expect("a certificate").not_after;
        assert!(ends(&after.certificate) > ends(&ending) + 300 * DAY, "for a year again");
        assert_eq!((after.server, after.ca), (parsed(&before).server, parsed(&before).ca));
        let there = Site { api: client_of(&kubeconfig_of(&site, "one").await), begun: site.begun };
        serves(&there, &nodes).await;
        let told = site.until(&one, "the way back is refused still", STEP, refused).await;
        assert_eq!(told["status"]["summary"], "1/1", "{told:#}");
        goes(&site, &nodes).await;
    });
}

fn parsed(text: &str) -> ParsedKubeconfig {
    kubeconfig::parse(text).expect("a kubeconfig")
}

/// kubeadm makes all certificates of the master anew, so that they end in some days; the API server reads its own again by
/// itself. The kubeconfig that the box has does not change. Returns the new one's certificate.
async fn end_soon(site: &Site, cluster: &str) -> String {
    let object = site.api.get(cluster).await.expect("asked").expect("a cluster");
    let session = logged_in(site, &object["status"]["nodes"][0]).await;
    let (config, admin) = ("/run/short.yaml", "/etc/kubernetes/admin.conf");
    let ten_days = format!(
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: {OWN_VERSION}\n\
         certificateValidityPeriod: 240h\n"
    );
    session.put(config, ten_days.as_bytes(), 0o600).await.expect("written");
    session.output(&["kubeadm", "certs", "renew", "all", "--config", config], b"").await.expect("renewed");
    let text = session.output(&["cat", admin], b"").await.expect("a kubeconfig").stdout;
    session.close().await;
    parsed(&String::from_utf8(text).expect("text")).certificate
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site lives_on -- --ignored --nocapture`"]
fn a_cluster_lives_on_without_the_box_and_its_controller_may_end_at_any_instant() {
    with_formed_box(|formed, site, image, dir| async move {
        let begun = site.begun;
        let wished: &[Wished] = &[("master-0", 0x20, 2560), ("worker-0", 0x21, 1536)];
        let nodes = tokio::select! {
            nodes = forms(&site, wished, with_worker(), (&image, dir.path()), |host| formed.known(host)) => nodes,
            () = kill_again_and_again(&site, &formed) => unreachable!("it goes on"),
        };

        let cluster = Site { api: client_of(&kubeconfig_of(&site, "one").await), begun };
        let before = boots(&cluster).await;
        formed.switch_off();
        for node in &nodes {
            node.vm.reset().expect("its power is cut");
        }
        site.say("the box is off, and the nodes lost their power");
        while boots(&cluster).await.iter().any(|boot| before.contains(boot)) {
            assert!(begun.elapsed() < FORMED, "the nodes did not come back: {before:?}");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        site.say("the nodes are back");
        serves(&cluster, &nodes).await;

        formed.switch_on();
        let one = format!("{PROVISIONINGS}/one");
        site.api.merge(&one, &json!({"spec": alone()})).await.expect("changed");
        let left = |object: &Value| is_ready(object) && object["status"]["summary"] == "1/1";
        site.until(&one, "the worker left", STEP, left).await;
        let is_free = |host: &Value| host["spec"]["consumerRef"].is_null();
        site.until(&format!("{HOSTS}/worker-0"), "its host is free", STEP, is_free).await;

        // It comes back, and everything that is to be done was seen before: the status says when it will be done.
        let (mut estimate, mut of_node) = (Value::Null, Value::Null);
        site.api.merge(&one, &json!({"spec": with_worker()})).await.expect("changed");
        let back = |object: &Value| {
            let status = &object["status"];
            if estimate.is_null() && !status["eta"].is_null() {
                site.say(&format!("Ready at about {}", status["eta"]));
                (estimate, of_node) = (status["eta"].clone(), status["nodes"][1]["eta"].clone());
            }
            is_ready(object) && status["summary"] == "2/2"
        };
        let ready = site.until(&one, "the worker is back", STEP, back).await;
        assert!(estimate.is_string() && of_node.is_string(), "no estimate: {ready:#}");
        assert!(ready["status"]["eta"].is_null() && ready["status"]["nodes"][1]["eta"].is_null(), "{ready:#}");
        site.say(&format!("now it is {}", jiff::Timestamp::now()));
        goes(&site, &nodes).await;
    });
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site loses_its_first_master -- --ignored --nocapture`"]
fn a_control_plane_of_three_loses_its_first_master_and_gets_another() {
    with_formed_box(|formed, site, image, dir| async move {
        let begun = site.begun;
        let known = |host: &Value| formed.known(host);
        let wished: &[Wished] = &[("master-0", 0x20, 2304), ("master-1", 0x21, 2304), ("master-2", 0x22, 2304)];
        let masters = [wish("master-0", 0x20), wish("master-1", 0x21), wish("master-2", 0x22)];
        let spec = json!({"masters": masters, "kubernetes": {"virtualIP": VIRTUAL}});
        let mut nodes = forms(&site, wished, spec, (&image, dir.path()), known).await;
        let first = nodes.remove(0);
        let kubeconfig = kubeconfig_of(&site, "one").await;
        let asked = tokio::join!(answers_through(&kubeconfig), async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            first.vm.kill().expect("its power is cut");
            site.say("the first master lost its power");
        });
        site.say(&format!("the API at {VIRTUAL}: {}", asked.0));
        // It never comes back: another machine takes its place.
        drop(first);
        let host = format!("{HOSTS}/master-0");
        site.api.delete(&host).await.expect("deleted");
        nodes.push(joins(&site, ("master-3", 0x23, 2304), (&image, dir.path()), known).await);
        let masters = [wish("master-3", 0x23), wish("master-1", 0x21), wish("master-2", 0x22)];
        let change =
            json!({"metadata": {"annotations": {"bpa.akraino.org/abandon": "true"}}, "spec": {"masters": masters}});
        let one = format!("{PROVISIONINGS}/one");
        site.api.merge(&one, &change).await.expect("changed");
        let is_whole = |object: &Value| {
            let nodes = object["status"]["nodes"].as_array().cloned().unwrap_or_default();
            is_ready(object)
                && nodes.len() == 3
                && nodes.iter().any(|node| node["name"] == "master-3" && node["phase"] == "Installed")
        };
        site.until(&one, "the control plane is whole again", FORMED, is_whole).await;
        let cluster = Site { api: client_of(&kubeconfig), begun };
        serves(&cluster, &nodes).await;
        goes(&site, &nodes).await;
    });
}

/// The API is asked twice a second for two minutes, each time by a new client with a second's patience. Returns what came of it,
/// in words.
async fn answers_through(kubeconfig: &str) -> String {
    let (begun, mut asked, mut lost, mut away, mut since) = (Instant::now(), 0, 0, Duration::ZERO, None::<Instant>);
    while begun.elapsed() < Duration::from_secs(120) {
        // A connection that is kept would lead to a machine that is gone.
        let client = client_of(kubeconfig);
        let answer = tokio::time::timeout(Duration::from_secs(1), client.get("/api/v1/namespaces/default")).await;
        asked += 1;
        if matches!(answer, Ok(Ok(Some(_)))) {
            away = away.max(since.take().map(|since| since.elapsed()).unwrap_or_default());
        } else {
            lost += 1;
            since.get_or_insert_with(Instant::now);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(since.is_none(), "the API does not answer any more: {lost} of {asked} requests lost");
    format!("{lost} of {asked} requests lost, {:.1} s away at most", away.as_secs_f64())
}

/// The controller is killed at random instants.
pub async fn kill_again_and_again(site: &Site, formed: &Formed) {
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(rand::random_range(5_000..60_000))).await;
        formed.kill_controller();
        site.say("the controller is killed");
    }
    std::future::pending::<()>().await;
}

/// Which boot each node runs, once all of them are Ready.
pub async fn boots(cluster: &Site) -> Vec<String> {
    loop {
        let all = cluster.api.get("/api/v1/nodes").await.ok().flatten().unwrap_or_default();
        let nodes = all["items"].as_array().cloned().unwrap_or_default();
        if !nodes.is_empty() && nodes.iter().all(is_ready) {
            let boot = |node: &Value| node["status"]["nodeInfo"]["bootID"].to_string();
            return nodes.iter().map(boot).collect();
        }
        assert!(cluster.begun.elapsed() < FORMED, "the nodes are not Ready: {all:#}");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
