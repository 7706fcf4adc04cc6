//! Samples of Airship that are not what its API is today: what comes of each.

use serde_json::{Value, json};

use super::{Machines, RUNTIME, VINOES, fixture};
use crate::site::condition;

/// Routes had `to` and `via` before they had `network` and `gateway`: what lacks is named, and nothing is stored. With today's
/// names that sample is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_with_the_names_of_before_are_refused_by_their_place() {
    let machines = Machines::prepare().await;
    let mut sample = fixture(include_str!("../../../../agent/tests/fixtures/vino/vino-first.yaml"));
    let error = machines.api.create(VINOES, &sample).await.expect_err("refused").to_string();
    for place in ["spec.networks[0].routes[0].gateway", "spec.networks[1].routes[0].network"] {
        assert!(error.contains(&format!("{place}: Required value")), "{place}: {error}");
    }
    let path = format!("{VINOES}/vino-test-cr");
    assert_eq!(machines.api.get(&path).await.expect("asked"), None, "nothing is stored");
    let routes = [("10.0.0.0/24", "$vinobridge"), ("0.0.0.0/0", "169.0.0.1")];
    for (at, (network, gateway)) in routes.into_iter().enumerate() {
        sample["spec"]["networks"][at]["routes"] = json!([{"network": network, "gateway": gateway}]);
    }
    machines.create(&sample).await;
    let stored = machines.api.get(&path).await.expect("asked").expect("there");
    let spec = &stored["spec"];
    assert!(spec["vmBridge"].is_null() && spec["configuration"]["redfishCredentialSecret"].is_null(), "{spec:#}");
}

/// A DaemonSet of the user's own: its containers, its images and what they mount, under our name and labels, with the account
/// and the selector that it needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_set_of_the_users_own_runs_under_our_name() {
    let mut machines = Machines::prepare().await;
    machines.run();
    machines.node("node01", "10.0.0.9", json!({"beta.kubernetes.io/os": "linux"})).await;
    let mut sample = fixture(include_str!("../../../../agent/tests/fixtures/vino/vino-with-template.yaml"));
    let error = machines.api.create(VINOES, &sample).await.expect_err("refused").to_string();
    assert!(error.contains("spec.bmcCredentials: Required value"), "{error}");
    sample["spec"]["bmcCredentials"] = json!({"username": "admin", "password": "passw0rd"});
    machines.create(&sample).await;
    let words = "ConfigMap `default/libvirt-template` with the template of the DaemonSet is not there";
    machines.says("vino-with-template", "ConfigMapReady", ("False", "ReconciliationFailed"), words).await;
    let map = fixture(include_str!("../../../../agent/tests/fixtures/vino/daemonset-template.yaml"));
    machines.api.create("/api/v1/namespaces/default/configmaps", &map).await.expect("a ConfigMap");
    let ready = machines.ready("vino-with-template").await;
    assert_eq!(condition(&ready, "DaemonSetReady").1, "ReconciliationSucceeded");
    let sets = machines.list(&format!("/apis/apps/v1/namespaces/{RUNTIME}/daemonsets")).await;
    let (name, set) = sets.first_key_value().expect("a DaemonSet");
    assert_eq!((sets.len(), name.as_str()), (1, "default-vino-with-template"));
    let template = &set["spec"]["template"];
    for labels in [&template["metadata"]["labels"], &set["spec"]["selector"]["matchLabels"]] {
        assert_eq!(labels["vino-test"], "cr-with-ds-template");
        assert_eq!(labels["vino.airshipit.org/cr-name"], "vino-with-template");
    }
    let pod = &template["spec"];
    assert_eq!(pod["nodeSelector"], json!({"beta.kubernetes.io/os": "linux"}));
    assert_eq!((&pod["hostPID"], &pod["serviceAccountName"]), (&json!(true), &json!("default-vino-with-template")));
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example/libvirt");
    let secret = |variable: &str| {
        let found = container["env"].as_array().into_iter().flatten().find(|it| it["name"] == variable);
        found.map(|it| it["valueFrom"]["secretKeyRef"]["name"].clone())
    };
    assert!(secret("BASIC_AUTH_PASSWORD").is_some_and(|name| name.is_string()), "{container:#}");
    assert!(!set.to_string().contains("passw0rd"), "a password is in a Secret alone");
    machines.api.delete(&format!("{VINOES}/vino-with-template")).await.expect("deleted");
    machines.until(&format!("{VINOES}/vino-with-template"), "gone", Value::is_null).await;
    assert_eq!(machines.left().await, Vec::<String>::new());
}
