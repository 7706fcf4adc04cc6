//! Decides from objects of the API server whether the cluster is ready, and names what is missing. No I/O.

use serde_json::Value;

use crate::steps::Missing;

/// Labels of pods that a ready cluster has, beside the static ones.
const EXPECTED: [(&str, &str); 2] = [("k8s-app", "kube-proxy"), ("k8s-app", "kube-dns")];
/// Names that static pods begin with.
const STATIC: [&str; 4] = ["etcd-", "kube-apiserver-", "kube-controller-manager-", "kube-scheduler-"];

/// Names of checks that `/readyz?verbose` reports as failed.
pub fn readyz_missing(text: &str) -> String {
    let failed: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if failed.is_empty() { "the API server does not say".to_owned() } else { failed.join(", ") }
}

/// Whether the Node is Ready.
pub fn node(node: Option<&Value>, name: &str) -> Result<(), Missing> {
    let what = format!("node `{name}` to be Ready");
    let Some(node) = node else { return Err(Missing::new(what, "the kubelet has not registered it")) };
    let Some(ready) = condition(&node["status"]["conditions"], "Ready") else {
        return Err(Missing::new(what, "the kubelet has not reported its conditions"));
    };
    if ready["status"] == "True" {
        return Ok(());
    }
    Err(Missing::new(what, ready["message"].as_str().unwrap_or("no message")))
}

/// Whether every pod of `kube-system` is Ready and none that must be there is missing. `list` is a PodList.
pub fn pods(list: &Value) -> Result<(), Missing> {
    let pods: Vec<&Value> = list["items"].as_array().map(|items| items.iter().collect()).unwrap_or_default();
    let is_there = |test: &dyn Fn(&Value) -> bool| pods.iter().any(|pod| test(pod));
    for prefix in STATIC {
        if !is_there(&|pod| name(pod).starts_with(prefix)) {
            let why = "the kubelet has not reported this static pod";
            return Err(Missing::new(format!("pod `{}`", prefix.trim_end_matches('-')), why));
        }
    }
    for (key, value) in EXPECTED {
        if !is_there(&|pod| pod["metadata"]["labels"][key] == value) {
            return Err(Missing::new(format!("pod `{value}`"), "its controller has not created it"));
        }
    }
    match pods.iter().find_map(|pod| pod_missing(pod)) {
        Some(missing) => Err(missing),
        None => Ok(()),
    }
}

/// What keeps a pod from being Ready; `None` if it is Ready, or does not have to be any more.
pub(super) fn pod_missing(pod: &Value) -> Option<Missing> {
    let status = &pod["status"];
    // A pod that is being deleted serves nobody any more, nor does one that has ended well.
    if pod["metadata"]["deletionTimestamp"].is_string() || status["phase"] == "Succeeded" {
        return None;
    }
    if condition(&status["conditions"], "Ready").is_some_and(|ready| ready["status"] == "True") {
        return None;
    }
    Some(Missing::new(format!("pod `{}` to be Ready", name(pod)), why_not_ready(status)))
}

fn why_not_ready(status: &Value) -> String {
    let of = |key: &str| status[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let containers = of("initContainerStatuses").iter().chain(of("containerStatuses"));
    // Others only wait for an init container that has not ended.
    let idle = |waiting: &Value| waiting.is_object() && waiting["reason"] != "PodInitializing";
    if let Some(container) = containers.into_iter().find(|container| idle(&container["state"]["waiting"])) {
        let waiting = &container["state"]["waiting"];
        let words = [&waiting["reason"], &waiting["message"]];
        let text = words.iter().filter_map(|word| word.as_str()).collect::<Vec<_>>().join(": ");
        let image = container["image"].as_str().unwrap_or_default();
        return if text.contains(image) { text } else { format!("{text} (image {image})") };
    }
    for kind in ["PodScheduled", "Ready"] {
        if let Some(found) = condition(&status["conditions"], kind).filter(|found| found["status"] != "True") {
            let text = found["message"].as_str().or(found["reason"].as_str()).unwrap_or_default();
            return format!("{kind} is {}: {text}", found["status"].as_str().unwrap_or("unknown"));
        }
    }
    format!("its phase is {}", status["phase"].as_str().unwrap_or("unknown"))
}

/// The condition of that type.
pub(super) fn condition<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{node, pods, readyz_missing};
    use crate::steps::Missing;

    fn pod(name: &str, app: &str, ready: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"k8s-app": app}},
               "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready, "reason": "ContainersNotReady"}]}})
    }

    fn all() -> Vec<Value> {
        let statics = ["etcd-edge", "kube-apiserver-edge", "kube-controller-manager-edge", "kube-scheduler-edge"];
        let mut pods: Vec<Value> = statics.iter().map(|name| pod(name, "", "True")).collect();
        pods.push(pod("kube-proxy-x", "kube-proxy", "True"));
        pods.push(pod("coredns-y", "kube-dns", "True"));
        pods
    }

    #[test]
    fn a_node_is_ready_or_says_why_not() {
        let status = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status, "message": "no CNI"}]}});
        assert_eq!(node(Some(&status("True")), "edge"), Ok(()));
        let why = |value: Option<&Value>| node(value, "edge").expect_err("not ready").why;
        assert_eq!(why(Some(&status("False"))), "no CNI");
        assert_eq!(why(None), "the kubelet has not registered it");
        assert_eq!(why(Some(&json!({"status": {}}))), "the kubelet has not reported its conditions");
    }

    #[test]
    fn all_pods_must_be_there_and_ready() {
        assert_eq!(pods(&json!({"items": all()})), Ok(()));
        for gone in 0..6 {
            let mut some = all();
            some.remove(gone);
            assert!(pods(&json!({"items": some})).is_err(), "{gone}");
        }
        let mut waiting = all();
        waiting[4]["status"] = json!({"phase": "Pending", "containerStatuses": [
            {"state": {"waiting": {"reason": "ErrImageNeverPull", "message": "not here"}}}]});
        let expected = Missing::new("pod `kube-proxy-x` to be Ready", "ErrImageNeverPull: not here");
        assert_eq!(pods(&json!({"items": waiting})), Err(expected));
    }

    #[test]
    fn pods_that_go_or_have_ended_are_not_waited_for() {
        let mut some = all();
        let mut going = pod("old", "", "False");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        some.push(going);
        some.push(json!({"metadata": {"name": "job"}, "status": {"phase": "Succeeded"}}));
        assert_eq!(pods(&json!({"items": some})), Ok(()));
    }

    #[test]
    fn readyz_names_what_is_missing() {
        let text = "[+]ping ok\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\nreadyz check failed\n";
        assert_eq!(readyz_missing(text), "poststarthook/rbac/bootstrap-roles");
    }
}
