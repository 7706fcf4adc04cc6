//! The state that a new cluster begins with: what etcd held when a control plane of the same programs had
//! settled, at build time. One transaction puts it there before the API server would create it bit by bit.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::objects::TEMPLATE_CA;
use super::{Node, manifests};

/// File of the state in the templates.
pub const FILE: &str = "cluster-state.json";
/// Path of a transaction in etcd's JSON gateway (etcd, `api/etcdserverpb/rpc.proto`).
pub const TXN: &str = "/v3/kv/txn";

const TEMPLATE_TIME: &str = "foothold-time";
const TEMPLATE_CA_PEM: &str = "foothold-ca-pem";
const TEMPLATE_UID: &str = "foothold-uid-";
/// How many digits follow the placeholder.
const UID_DIGITS: usize = 4;
/// Keys of what belongs to CoreDNS: its Deployment, `ReplicaSet`s, pods.
const DEPLOYMENT: &str = "/registry/deployments/kube-system/coredns";
const REPLICA_SETS: &str = "/registry/replicasets/kube-system/coredns-";
const PODS: &str = "/registry/pods/kube-system/coredns-";
/// Label of a Deployment that begins with one pod: how many it is to have.
pub const REPLICAS: &str = "foothold.dev/replicas";
/// A key that every cluster has from its first second.
const WITNESS: &str = "/registry/namespaces/kube-system";
/// Operations of one nested transaction: with those around it etcd counts less than its 128 (`--max-txn-ops`).
const OPERATIONS: usize = 100;

/// One key and its object.
#[derive(Debug, PartialEq, Deserialize)]
pub struct StateEntry {
    /// `/registry/...`.
    pub key: String,
    /// The object.
    pub value: Value,
}

/// The entries for this node; `now` is RFC 3339 to the second, `uid` makes a new one with each call.
pub fn read(
    template: &str,
    node: &Node,
    ca_pem: &str,
    now: &str,
    uid: impl FnMut() -> String,
) -> serde_json::Result<Vec<StateEntry>> {
    let quoted = serde_json::to_string(ca_pem)?;
    let text = manifests::render(template, node)
        .replace(TEMPLATE_CA, &STANDARD.encode(ca_pem))
        .replace(TEMPLATE_CA_PEM, quoted.trim_matches('"'))
        .replace(TEMPLATE_TIME, now);
    let mut entries = serde_json::from_str(&with_uids(&text, uid))?;
    begin_with_one(&mut entries);
    Ok(entries)
}

/// Leaves CoreDNS one pod. Others would only take processors from what `ready` waits for: they follow it, and the label
/// [`REPLICAS`] says how many there are to be.
fn begin_with_one(entries: &mut Vec<StateEntry>) {
    let Some(deployment) = entries.iter_mut().find(|entry| entry.key == DEPLOYMENT) else { return };
    let Some(wanted) = deployment.value["spec"]["replicas"].as_u64().filter(|wanted| *wanted > 1) else { return };
    deployment.value["metadata"]["labels"][REPLICAS] = json!(wanted.to_string());
    for entry in entries.iter_mut() {
        let is_set = entry.key.starts_with(REPLICA_SETS);
        if !is_set && entry.key != DEPLOYMENT {
            continue;
        }
        entry.value["spec"]["replicas"] = json!(1);
        let counts = entry.value["status"].as_object_mut().into_iter().flatten();
        for (_, count) in counts.filter(|(name, count)| name.to_lowercase().ends_with("replicas") && **count == wanted)
        {
            *count = json!(1);
        }
        if is_set {
            // As the Deployment's controller writes them: another number there has it scale the ReplicaSet.
            let annotations = &mut entry.value["metadata"]["annotations"];
            annotations["deployment.kubernetes.io/desired-replicas"] = json!("1");
            annotations["deployment.kubernetes.io/max-replicas"] = json!("2");
        }
    }
    let mut pods = 0;
    entries.retain(|entry| {
        pods += usize::from(entry.key.starts_with(PODS));
        !entry.key.starts_with(PODS) || pods == 1
    });
}

/// Each numbered placeholder becomes a UID, the same number the same one.
fn with_uids(template: &str, mut uid: impl FnMut() -> String) -> String {
    let mut known: BTreeMap<&str, String> = BTreeMap::new();
    let mut parts = template.split(TEMPLATE_UID);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_at_checked(UID_DIGITS).unwrap_or((part, ""));
        text.push_str(known.entry(number).or_insert_with(&mut uid));
        text.push_str(rest);
    }
    text
}

/// The body of the transaction: all entries, unless there is a cluster already.
pub fn transaction(entries: &[StateEntry]) -> Value {
    let put = |entry: &StateEntry| {
        let value = STANDARD.encode(entry.value.to_string());
        json!({"requestPut": {"key": STANDARD.encode(&entry.key), "value": value}})
    };
    let nested = entries.chunks(OPERATIONS).map(|chunk| {
        let puts: Vec<Value> = chunk.iter().map(put).collect();
        json!({"requestTxn": {"success": puts}})
    });
    json!({
        "compare": [{"key": STANDARD.encode(WITNESS), "target": "VERSION", "result": "EQUAL", "version": "0"}],
        "success": nested.collect::<Vec<_>>(),
    })
}

/// Whether etcd's answer says that the entries are in.
pub fn is_in(answer: &Value) -> bool {
    answer["succeeded"] == true
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::{StateEntry, is_in, read, transaction};
    use crate::cluster::manifests::tests::node;

    #[test]
    fn placeholders_become_this_boxs_own() {
        let template = r#"[
            {"key": "/registry/pods/a", "value": {"metadata": {"uid": "foothold-uid-0001", "creationTimestamp": "foothold-time",
             "ownerReferences": [{"uid": "foothold-uid-0000"}]}, "spec": {"nodeName": "foothold-node-name"}}},
            {"key": "/registry/replicasets/a", "value": {"metadata": {"uid": "foothold-uid-0000"},
             "ca": "foothold-ca-pem", "kubeconfig": "foothold-ca-data https://198.18.0.1:6443"}}
        ]"#;
        let mut count = 0;
        let uid = || {
            count += 1;
            format!("uid {count}")
        };
        let entries = read(template, &node(), "A\nB\n", "2026-01-02T03:04:05Z", uid).expect("entries");
        assert_eq!(entries[0].value["metadata"]["uid"], "uid 1");
        assert_eq!(entries[0].value["metadata"]["ownerReferences"][0]["uid"], entries[1].value["metadata"]["uid"]);
        assert_eq!(entries[0].value["spec"]["nodeName"], "edge");
        assert_eq!(entries[1].value["ca"], "A\nB\n");
        assert_eq!(entries[1].value["kubeconfig"], format!("{} https://10.0.0.7:6443", STANDARD.encode("A\nB\n")));
        assert!(!format!("{entries:?}").contains("foothold-"), "{entries:?}");
    }

    #[test]
    fn coredns_begins_with_one_pod_and_says_how_many_it_is_to_have() {
        let annotations =
            json!({"deployment.kubernetes.io/desired-replicas": "2", "deployment.kubernetes.io/max-replicas": "3"});
        let template = json!([
            {"key": "/registry/deployments/kube-system/coredns", "value": {
                "metadata": {"labels": {"k8s-app": "kube-dns"}}, "spec": {"replicas": 2},
                "status": {"replicas": 2, "updatedReplicas": 2, "unavailableReplicas": 2, "terminatingReplicas": 0, "observedGeneration": 1}}},
            {"key": "/registry/pods/kube-system/coredns-6b-a", "value": {}},
            {"key": "/registry/pods/kube-system/coredns-6b-b", "value": {}},
            {"key": "/registry/pods/kube-system/kube-proxy-a", "value": {}},
            {"key": "/registry/replicasets/kube-system/coredns-6b", "value": {
                "metadata": {"annotations": annotations}, "spec": {"replicas": 2}, "status": {"replicas": 2, "fullyLabeledReplicas": 2}}},
        ]);
        let read = |template: &Value| read(&template.to_string(), &node(), "", "", String::new).expect("entries");
        let entries = read(&template);
        let keys: Vec<&str> = entries.iter().map(|entry| entry.key.rsplit('/').next().expect("a name")).collect();
        assert_eq!(keys, ["coredns", "coredns-6b-a", "kube-proxy-a", "coredns-6b"]);
        let (deployment, set) = (&entries[0].value, &entries[3].value);
        assert_eq!(deployment["metadata"]["labels"], json!({"k8s-app": "kube-dns", "foothold.dev/replicas": "2"}));
        assert_eq!(
            deployment["status"],
            json!({"replicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1, "terminatingReplicas": 0, "observedGeneration": 1})
        );
        assert_eq!((&deployment["spec"]["replicas"], &set["spec"]["replicas"]), (&json!(1), &json!(1)));
        assert_eq!(set["status"], json!({"replicas": 1, "fullyLabeledReplicas": 1}));
        let annotations =
            json!({"deployment.kubernetes.io/desired-replicas": "1", "deployment.kubernetes.io/max-replicas": "2"});
        assert_eq!(set["metadata"]["annotations"], annotations);
        // A Deployment of one pod stays as it is.
        let mut alone = template;
        alone[0]["value"]["spec"]["replicas"] = json!(1);
        assert_eq!(read(&alone)[0].value, alone[0]["value"]);
    }

    #[test]
    fn one_transaction_that_etcd_takes_and_that_leaves_a_cluster_alone() {
        let entry = |n: usize| StateEntry { key: format!("/registry/x/{n}"), value: json!({"n": n}) };
        let entries: Vec<StateEntry> = (0..250).map(entry).collect();
        let body = transaction(&entries);
        assert_eq!(body["success"].as_array().map(Vec::len), Some(3));
        let last = &body["success"][2]["requestTxn"]["success"][49]["requestPut"];
        assert_eq!(last["key"], STANDARD.encode("/registry/x/249"));
        assert_eq!(body["compare"][0]["version"], "0");
        assert!(is_in(&json!({"succeeded": true})) && !is_in(&json!({"header": {}})));
    }
}
