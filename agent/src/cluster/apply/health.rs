//! Decides from an object of the API server whether it does what it is for. No I/O.

use serde_json::{Value, json};

use super::super::checks::{condition, pod_missing};

/// How an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether it does what it is for.
    pub healthy: bool,
    /// How far it is, or what is wrong.
    pub message: String,
}

impl Health {
    fn good(message: impl Into<String>) -> Self {
        Self { healthy: true, message: message.into() }
    }

    fn bad(message: impl Into<String>) -> Self {
        Self { healthy: false, message: message.into() }
    }

    fn of(healthy: bool, message: String) -> Self {
        Self { healthy, message }
    }
}

/// Whether the state of such an object can change by itself after it was healthy.
pub fn can_change(kind: &str) -> bool {
    matches!(
        kind,
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Pod" | "APIService" | "PersistentVolumeClaim"
    )
}

/// How the object is, as it was read from the API server.
pub fn of(object: &Value) -> Health {
    let (status, generation) = (&object["status"], number(&object["metadata"]["generation"]));
    if object["metadata"]["deletionTimestamp"].is_string() {
        return Health::bad("it is being deleted");
    }
    let seen = status["observedGeneration"].as_u64();
    let kind = object["kind"].as_str().unwrap_or_default();
    let is_workload = matches!(kind, "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet");
    if seen.is_some_and(|seen| seen < generation) || (is_workload && seen.is_none()) {
        return Health::bad("its controller has not seen it yet");
    }
    match kind {
        "Deployment" => deployment(object),
        "StatefulSet" => stateful_set(object),
        "DaemonSet" => daemon_set(object),
        "ReplicaSet" => pods(number(&status["readyReplicas"]), wanted(object), "ready"),
        "Job" => job(object),
        "Pod" => pod_missing(object).map_or_else(|| Health::good("ready"), |missing| Health::bad(missing.why)),
        "PersistentVolumeClaim" => phase(status, "Bound"),
        "Namespace" => phase(status, "Active"),
        "CustomResourceDefinition" => conditions(status, &["NamesAccepted", "Established"]),
        "APIService" => conditions(status, &["Available"]),
        _ => Health::good("there"),
    }
}

/// The query of the pods that a workload has; nothing for what has none.
pub fn pods_of(object: &Value) -> Option<String> {
    let selector = match object["kind"].as_str()? {
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" => &object["spec"]["selector"]["matchLabels"],
        "Job" => &json!({"batch.kubernetes.io/job-name": object["metadata"]["name"]}),
        _ => return None,
    };
    let labels = selector.as_object()?.iter();
    let labels = labels.filter_map(|(key, value)| Some(format!("{}%3D{}", key.replace('/', "%2F"), value.as_str()?)));
    Some(labels.collect::<Vec<_>>().join("%2C"))
}

/// Why the pods of a workload are not what they should be: the first that says so. `list` is a PodList.
pub fn why(list: &Value) -> Option<String> {
    let pods = list["items"].as_array()?.iter();
    let missing = pods.filter_map(|pod| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        pod_missing(pod).map(|missing| format!("pod `{name}`: {}", missing.why))
    });
    missing.min()
}

fn deployment(object: &Value) -> Health {
    let (status, wanted) = (&object["status"], wanted(object));
    if let Some(failed) = condition(&status["conditions"], "ReplicaFailure").filter(|found| found["status"] == "True") {
        return Health::bad(message(failed));
    }
    let updated = number(&status["updatedReplicas"]);
    if updated < wanted || number(&status["replicas"]) > updated {
        return Health::bad(format!("{updated} of {wanted} pods are of the newest kind"));
    }
    pods(number(&status["availableReplicas"]), wanted, "available")
}

fn stateful_set(object: &Value) -> Health {
    let (status, wanted) = (&object["status"], wanted(object));
    let rolling = object["spec"]["updateStrategy"]["type"] != "OnDelete";
    let partition = number(&object["spec"]["updateStrategy"]["rollingUpdate"]["partition"]);
    let updated = number(&status["updatedReplicas"]);
    if rolling && updated < wanted.saturating_sub(partition) {
        return Health::bad(format!("{updated} of {wanted} pods are of the newest kind"));
    }
    pods(number(&status["readyReplicas"]), wanted, "ready")
}

fn daemon_set(object: &Value) -> Health {
    let (status, wanted) = (&object["status"], number(&object["status"]["desiredNumberScheduled"]));
    let updated = number(&status["updatedNumberScheduled"]);
    if object["spec"]["updateStrategy"]["type"] != "OnDelete" && updated < wanted {
        return Health::bad(format!("{updated} of {wanted} pods are of the newest kind"));
    }
    pods(number(&status["numberAvailable"]), wanted, "available")
}

fn job(object: &Value) -> Health {
    let (spec, status) = (&object["spec"], &object["status"]);
    let is = |kind: &str| condition(&status["conditions"], kind).filter(|found| found["status"] == "True");
    if let Some(failed) = is("Failed") {
        return Health::bad(format!("it has failed: {}", message(failed)));
    }
    if is("Complete").is_some() {
        return Health::good("complete");
    }
    if spec["suspend"] == true {
        return Health::good("suspended");
    }
    let wanted = spec["completions"].as_u64().or(spec["parallelism"].as_u64()).unwrap_or(1);
    Health::bad(format!("{} of {wanted} completions", number(&status["succeeded"])))
}

fn pods(have: u64, wanted: u64, word: &str) -> Health {
    Health::of(have >= wanted, format!("{have} of {wanted} pods {word}"))
}

fn phase(status: &Value, good: &str) -> Health {
    let phase = status["phase"].as_str().unwrap_or("of no phase yet");
    Health::of(phase == good, phase.to_owned())
}

fn conditions(status: &Value, wanted: &[&str]) -> Health {
    for kind in wanted {
        match condition(&status["conditions"], kind) {
            Some(found) if found["status"] == "True" => {}
            Some(found) => return Health::bad(format!("it is not {kind}: {}", message(found))),
            None => return Health::bad(format!("it is not {kind} yet")),
        }
    }
    Health::good(wanted.last().copied().unwrap_or_default().to_lowercase())
}

fn wanted(object: &Value) -> u64 {
    object["spec"]["replicas"].as_u64().unwrap_or(1)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn message(condition: &Value) -> String {
    let text = |key: &str| condition[key].as_str().filter(|text| !text.is_empty());
    text("message").or(text("reason")).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{of, pods_of, why};

    fn told(object: &Value) -> (bool, String) {
        let health = of(object);
        (health.healthy, health.message)
    }

    #[test]
    fn every_kind_says_how_far_it_is() {
        let spec = json!({"replicas": 2});
        let workload = |kind: &str, status: Value| json!({"kind": kind, "metadata": {"generation": 3}, "spec": spec, "status": status});
        let condition = |kind: &str, status: &str| json!([{"type": kind, "status": status, "message": "words"}]);
        let table = [
            (workload("Deployment", json!({})), false, "its controller has not seen it yet"),
            (workload("Deployment", json!({"observedGeneration": 2})), false, "its controller has not seen it yet"),
            (
                workload("Deployment", json!({"observedGeneration": 3, "updatedReplicas": 1, "replicas": 2})),
                false,
                "1 of 2 pods are of the newest kind",
            ),
            (
                workload("Deployment", json!({"observedGeneration": 3, "updatedReplicas": 2, "replicas": 3})),
                false,
                "2 of 2 pods are of the newest kind",
            ),
            (
                workload(
                    "Deployment",
                    json!({"observedGeneration": 3, "updatedReplicas": 2, "replicas": 2, "availableReplicas": 1}),
                ),
                false,
                "1 of 2 pods available",
            ),
            (
                workload(
                    "Deployment",
                    json!({"observedGeneration": 3, "updatedReplicas": 2, "replicas": 2, "availableReplicas": 2}),
                ),
                true,
                "2 of 2 pods available",
            ),
            (
                workload(
                    "Deployment",
                    json!({"observedGeneration": 3, "conditions": condition("ReplicaFailure", "True")}),
                ),
                false,
                "words",
            ),
            (
                workload("StatefulSet", json!({"observedGeneration": 3, "updatedReplicas": 2, "readyReplicas": 2})),
                true,
                "2 of 2 pods ready",
            ),
            (
                workload("StatefulSet", json!({"observedGeneration": 3, "updatedReplicas": 1, "readyReplicas": 2})),
                false,
                "1 of 2 pods are of the newest kind",
            ),
            (
                workload(
                    "DaemonSet",
                    json!({"observedGeneration": 3, "desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1}),
                ),
                true,
                "1 of 1 pods available",
            ),
            (
                workload("DaemonSet", json!({"observedGeneration": 3, "desiredNumberScheduled": 1})),
                false,
                "0 of 1 pods are of the newest kind",
            ),
            (json!({"kind": "Job", "spec": {}, "status": {}}), false, "0 of 1 completions"),
            (json!({"kind": "Job", "status": {"conditions": condition("Complete", "True")}}), true, "complete"),
            (
                json!({"kind": "Job", "status": {"conditions": condition("Failed", "True")}}),
                false,
                "it has failed: words",
            ),
            (json!({"kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}), false, "Pending"),
            (json!({"kind": "CustomResourceDefinition", "status": {}}), false, "it is not NamesAccepted yet"),
            (
                json!({"kind": "APIService", "status": {"conditions": condition("Available", "False")}}),
                false,
                "it is not Available: words",
            ),
            (json!({"kind": "Widget", "status": {}}), true, "there"),
            (
                json!({"kind": "Widget", "metadata": {"generation": 2}, "status": {"observedGeneration": 1}}),
                false,
                "its controller has not seen it yet",
            ),
            (json!({"kind": "Secret", "metadata": {"deletionTimestamp": "now"}}), false, "it is being deleted"),
        ];
        for (object, healthy, message) in table {
            assert_eq!(told(&object), (healthy, message.to_owned()), "{object}");
        }
    }

    #[test]
    fn the_reason_of_a_pod_is_told_with_its_image() {
        let deployment = json!({"kind": "Deployment", "spec": {"selector": {"matchLabels": {"a.b/c": "d", "e": "f"}}}});
        assert_eq!(pods_of(&deployment).as_deref(), Some("a.b%2Fc%3Dd%2Ce%3Df"));
        assert_eq!(pods_of(&json!({"kind": "Secret"})), None);
        let pod = |reason: &str| {
            let waiting = json!({"state": {"waiting": {"reason": reason}}, "image": "docker.io/library/x:1"});
            json!({"metadata": {"name": "web-1"}, "status": {"phase": "Pending", "containerStatuses": [waiting]}})
        };
        let list =
            json!({"items": [pod("ImagePullBackOff"), {"metadata": {"name": "a"}, "status": {"phase": "Succeeded"}}]});
        assert_eq!(why(&list).as_deref(), Some("pod `web-1`: ImagePullBackOff (image docker.io/library/x:1)"));
        assert_eq!(why(&json!({"items": []})), None);
    }
}
