//! What a cluster has from its first day: the metrics API, and volumes. The box's half is processes of this machine
//! ([`Formed`](crate::formed::Formed)).

use serde_json::{Value, json};

use crate::clusters::{STEP, Site, Wished, alone, client_of, forms, goes, kubeconfig_of, serves, with_formed_box_of};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
/// Its image has a shell.
const STORAGE: &str = "foothold.dev/local-path-provisioner:v0.0.30";
/// Writes to the volume and stays, or, where that is there, says so and ends. It is ready when it is on the disk for good.
const KEEPS: &str = "if read it < /data/it; then echo -n found $it > /dev/termination-log; exit; fi; echo kept > /data/it; \
                     /usr/bin/busybox sync; echo > /data/synced; \
                     exec /usr/bin/busybox sleep 86400";

/// `kubectl top` answers, a claim that names no class binds, and what is written there is there after a power cut. All of it goes
/// with the cluster.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site has_metrics -- --ignored --nocapture`"]
fn a_cluster_has_metrics_and_volumes_from_its_first_day() {
    with_formed_box_of("clusters: {}\n  metrics: {}\n  storage: {}", |formed, site, image, dir| async move {
        let wished: &[Wished] = &[("master-0", 0x20, 2560)];
        let nodes = forms(&site, wished, alone(), (&image, dir.path()), |host| formed.known(host)).await;
        let cluster = Site { api: client_of(&kubeconfig_of(&site, "one").await), begun: site.begun };
        let has_usage = |answer: &Value| answer["items"][0]["usage"]["memory"].is_string();
        let usage = cluster.until(NODES, "the metrics API answers", STEP, has_usage).await;
        site.say(&format!("the node: {}", usage["items"][0]["usage"]));
        let has_both = |answer: &Value| {
            let all = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            ["metrics-server", "local-path-provisioner"].iter().all(|name| {
                all.iter().any(|pod| pod["metadata"]["name"].as_str().is_some_and(|found| found.starts_with(name)))
            })
        };
        let pods = cluster.until("/apis/metrics.k8s.io/v1beta1/pods", "of both pods, too", STEP, has_both).await;
        for pod in pods["items"].as_array().expect("items") {
            site.say(&format!("{}: {}", pod["metadata"]["name"], pod["containers"][0]["usage"]));
        }

        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}});
        cluster.create(CLAIMS, claim).await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "keeps"}, "spec": {"restartPolicy": "OnFailure",
            "containers": [{"name": "keeps", "image": STORAGE, "command": ["/usr/bin/sh", "-c", KEEPS],
                "readinessProbe": {"exec": {"command": ["/usr/bin/busybox", "test", "-e", "/data/synced"]}, "periodSeconds": 2},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
        cluster.create(PODS, pod).await;
        let runs =
            |pod: &Value| pod["status"]["phase"] == "Running" && pod["status"]["containerStatuses"][0]["ready"] == true;
        let one = format!("{PODS}/keeps");
        cluster.until(&one, "a pod has a volume", STEP, runs).await;
        let bound = cluster.api.get(&format!("{CLAIMS}/data")).await.expect("asked").expect("the claim");
        assert_eq!(
            (&bound["status"]["phase"], &bound["spec"]["storageClassName"]),
            (&json!("Bound"), &json!("local-path"))
        );

        nodes[0].vm.reset().expect("its power is cut");
        let ended = |pod: &Value| pod["status"]["phase"] == "Succeeded";
        let pod = cluster.until(&one, "it runs again after a power cut, and ends", STEP, ended).await;
        let end = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(end["message"], "found kept", "{pod:#}");
        serves(&cluster, &nodes).await;
        goes(&site, &nodes).await;
    });
}
