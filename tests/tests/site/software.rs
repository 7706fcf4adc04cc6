//! Packages of a cluster's nodes are updated: drained, restarted, and back.

use serde_json::{Value, json};

use crate::clusters::{
    HOSTS, PROVISIONINGS, SOFTWARES, STEP, Site, Wished, client_of, forms, goes, has_an_old_package, is_ready,
    is_up_to_date, kubeconfig_of, logged_in, with_formed_box, with_worker,
};
use crate::lives::boots;

/// A worker has an old package and asks to be restarted. Nothing happens until somebody asks for it; then its pods leave, it
/// is updated and restarted, and takes pods again. The master is left alone.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site software_is_updated -- --ignored --nocapture`"]
fn software_is_updated_when_it_is_asked_for() {
    with_formed_box(|formed, site, image, dir| async move {
        let wished: &[Wished] = &[("master-0", 0x20, 2560), ("worker-0", 0x21, 1536)];
        let nodes = forms(&site, wished, with_worker(), (&image, dir.path()), |host| formed.known(host)).await;
        let update = json!({"when": "Manual", "drain": true, "reboot": "IfRequired", "maxUnavailable": "50%"});
        let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Software",
            "metadata": {"name": "one", "labels": {"cluster": "one", "owner": "c1"}},
            "spec": {"masterSoftware": ["jq"], "workerSoftware": ["jq"], "update": update}});
        site.create(SOFTWARES, object).await;
        let one = format!("{SOFTWARES}/one");
        site.until(&one, "packages are installed", STEP, is_ready).await;

        let object = site.api.get(&format!("{PROVISIONINGS}/one")).await.expect("asked").expect("a cluster");
        let all = object["status"]["nodes"].as_array().expect("nodes");
        let worker = logged_in(&site, all.iter().find(|node| node["name"] == "worker-0").expect("the worker")).await;
        has_an_old_package(&worker).await;
        worker.output(&["touch", "/run/reboot-required"], b"").await.expect("written");
        worker.close().await;
        let cluster = Site { api: client_of(&kubeconfig_of(&site, "one").await), begun: site.begun };
        let before = boots(&cluster).await;
        let annotate = async |name: &str| {
            site.api.merge(&one, &json!({"metadata": {"annotations": {name: "1"}}})).await.expect("annotated");
        };
        annotate("example.org/look").await;
        let waits = |object: &Value| is_up_to_date(object, "WaitingForRequest", "worker-0: jq 1.0-1 -> ");
        site.until(&one, "what waits is told", STEP, waits).await;
        assert_eq!(boots(&cluster).await, before, "nothing was done");

        annotate("foothold.dev/update").await;
        let drained = |node: &Value| node["metadata"]["annotations"]["foothold.dev/drained"] == "default/one";
        cluster.until("/api/v1/nodes/worker-0", "the worker is drained", STEP, drained).await;
        let done =
            |object: &Value| is_up_to_date(object, "UpToDate", "") && object["status"]["lastHandledUpdate"] == "1";
        site.until(&one, "the worker is updated", STEP, done).await;
        let after = boots(&cluster).await;
        assert!(after[0] == before[0] && after[1] != before[1], "{before:?} {after:?}");
        let worker = cluster.api.get("/api/v1/nodes/worker-0").await.expect("asked").expect("a node");
        assert!(worker["spec"]["unschedulable"].is_null(), "{worker:#}");
        assert!(worker["metadata"]["annotations"]["foothold.dev/drained"].is_null(), "{worker:#}");
        let host = site.api.get(&format!("{HOSTS}/worker-0")).await.expect("asked").expect("a host");
        assert!(!host["spec"]["consumerRef"].is_null(), "{host:#}");
        site.api.delete(&one).await.expect("deleted");
        goes(&site, &nodes).await;
    });
}
