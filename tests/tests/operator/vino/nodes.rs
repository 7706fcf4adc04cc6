//! The side of nodes, played: no kubelet and no controller of `DaemonSet`s runs here. For each `DaemonSet` of a `Vino` the nodes
//! that its selector selects get a pod, and each pod says of what its node's annotation asks for that it is there, as the real
//! one does when libvirt has made it. What libvirt would refuse is said likewise.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_api::vino::spec::{CR_NAME, CR_NAMESPACE};
use agent_api::vino::values::{
    Accelerator, DomainReport, DomainState, NetworkReport, NodeReport, NodeValues, REPORT, VALUES,
};
use foothold_agent::cluster::api::Api;
use serde_json::{Value, json};

use super::RUNTIME;

/// What nodes do otherwise than they are asked to.
#[derive(Debug, Default)]
pub struct Faults {
    /// Domains that libvirt refuses, and what it says.
    pub refused: BTreeMap<String, String>,
    /// Pods say nothing new.
    pub are_silent: bool,
}

/// What a node's annotation asks for.
pub fn values(node: &Value) -> Option<NodeValues> {
    let text = node["metadata"]["annotations"][VALUES].as_str()?;
    Some(serde_saphyr::from_str(text).expect("values"))
}

fn report(values: &NodeValues, faults: &Faults) -> NodeReport {
    let domain = |name: &String| {
        let error = faults.refused.get(name).cloned();
        let state = if error.is_some() { DomainState::Absent } else { DomainState::ShutOff };
        DomainReport { name: name.clone(), state, restart_pending: false, error }
    };
    NodeReport {
        hash: values.hash.clone(),
        accelerator: Some(Accelerator::Tcg),
        domains: values.domains.iter().map(|it| domain(&it.name)).collect(),
        networks: values.networks.iter().map(|it| NetworkReport { name: it.name.clone(), error: None }).collect(),
        errors: Vec::new(),
    }
}

fn items(list: Option<Value>) -> Vec<Value> {
    list.and_then(|list| list["items"].as_array().cloned()).unwrap_or_default()
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

/// Plays them until it is dropped. Another one may change an object at the same time: what fails is done in the next round.
pub async fn play(api: Arc<Api>, faults: Arc<Mutex<Faults>>) {
    loop {
        let _ = round(&api, &faults).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn round(api: &Api, faults: &Mutex<Faults>) -> anyhow::Result<()> {
    let sets = items(api.get(&format!("/apis/apps/v1/namespaces/{RUNTIME}/daemonsets")).await?);
    let nodes = items(api.get("/api/v1/nodes").await?);
    let pods_at = format!("/api/v1/namespaces/{RUNTIME}/pods");
    let pods = items(api.get(&pods_at).await?);
    let mut wanted = Vec::new();
    for set in &sets {
        let selector = set["spec"]["template"]["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
        let fits = |node: &&Value| selector.iter().all(|(key, value)| node["metadata"]["labels"][key] == *value);
        let own: Vec<&Value> = nodes.iter().filter(fits).collect();
        for node in &own {
            let name = format!("{}-{}", text(set, "name"), text(node, "name"));
            if !pods.iter().any(|pod| text(pod, "name") == name) {
                api.create(&pods_at, &pod(set, &name, &text(node, "name"))).await?;
            }
            wanted.push(name);
        }
        let count = own.len();
        let status = json!({"observedGeneration": set["metadata"]["generation"], "desiredNumberScheduled": count,
            "currentNumberScheduled": count, "numberReady": count, "updatedNumberScheduled": count, "numberMisscheduled": 0});
        let same = status.as_object().is_some_and(|all| all.iter().all(|(key, value)| set["status"][key] == *value));
        if !same {
            let path = format!("/apis/apps/v1/namespaces/{RUNTIME}/daemonsets/{}/status", text(set, "name"));
            api.merge(&path, &json!({"status": status})).await?;
        }
    }
    for pod in &pods {
        let (name, labels) = (text(pod, "name"), &pod["metadata"]["labels"]);
        if !wanted.contains(&name) {
            api.delete(&format!("{pods_at}/{name}?gracePeriodSeconds=0")).await?;
            continue;
        }
        let node = nodes.iter().find(|node| node["metadata"]["name"] == pod["spec"]["nodeName"]);
        let Some(values) = node.and_then(values) else { continue };
        let vino = format!(
            "{}/{}",
            labels[CR_NAMESPACE].as_str().unwrap_or_default(),
            labels[CR_NAME].as_str().unwrap_or_default()
        );
        let said = {
            let faults = faults.lock().expect("the faults");
            if faults.are_silent || values.vino != vino {
                continue;
            }
            serde_json::to_string(&report(&values, &faults))?
        };
        if pod["metadata"]["annotations"][REPORT] != said.as_str() {
            api.merge(&format!("{pods_at}/{name}"), &json!({"metadata": {"annotations": {REPORT: said}}})).await?;
        }
    }
    Ok(())
}

/// As a controller of `DaemonSet`s makes it, with a program that nobody starts.
fn pod(set: &Value, name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": set["spec"]["template"]["metadata"]["labels"]},
        "spec": {"nodeName": node, "containers": [{"name": "played", "image": "none"}], "automountServiceAccountToken": false,
            "serviceAccountName": set["spec"]["template"]["spec"]["serviceAccountName"], "tolerations": [{"operator": "Exists"}]}})
}
