//! Comparing two clusters object by object.
//!
//! ```text
//! dump (items of lists) --normalize--> title -> object --differences--> what, where, left, right
//! ```
//!
//! What must differ between two clusters that are made in the same way is taken out or replaced: identities,
//! times, versions of storage, status, managed fields, the authority, tokens.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

/// Keys of `metadata` that belong to one cluster only.
const METADATA: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "ownerReferences"];
/// Annotations that belong to one cluster or one moment only.
const ANNOTATIONS: [&str; 3] = [
    "deprecated.daemonset.template.generation",
    "deployment.kubernetes.io/revision",
    "volumes.kubernetes.io/controller-managed-attach-detach",
];
/// Keys in the data of `cluster-info` and `kube-root-ca.crt` that hold an authority or a signature.
const AUTHORITY: &str = "certificate-authority-data: ";

/// One place where two clusters differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// `Deployment kube-system/coredns`.
    pub title: String,
    /// `/spec/replicas`; empty when the whole object is on one side only.
    pub path: String,
    /// What the left one has.
    pub left: Option<Value>,
    /// What the right one has.
    pub right: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), Value::to_string);
        write!(f, "{}{}: {} | {}", self.title, self.path, side(&self.left), side(&self.right))
    }
}

/// Objects by title, without what belongs to one cluster only. `node` is the name of its node.
pub fn normalize(objects: &[Value], node: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for object in objects.iter().filter(|object| !is_of_the_moment(object)) {
        let mut object: Value = match serde_json::from_str(&object.to_string().replace(node, "NODE")) {
            Ok(object) => object,
            Err(_) => object.clone(),
        };
        clean(&mut object);
        found.insert(title(&object), object);
    }
    found
}

/// Pods, tokens, leases and the like come and go by themselves.
fn is_of_the_moment(object: &Value) -> bool {
    let kinds = [
        "Event",
        "Lease",
        "EndpointSlice",
        "Endpoints",
        "ReplicaSet",
        "ControllerRevision",
        "CertificateSigningRequest",
    ];
    let kind = object["kind"].as_str().unwrap_or_default();
    let is_token = kind == "Secret" && object["type"] == "bootstrap.kubernetes.io/token";
    let is_owned = object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    kinds.contains(&kind)
        || is_token
        || (kind == "Pod" && is_owned && object["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null())
}

fn title(object: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = object["metadata"]["namespace"].as_str().map(|n| format!("{n}/")).unwrap_or_default();
    format!("{} {namespace}{}", word(&object["kind"]), word(&object["metadata"]["name"]))
}

fn clean(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    map.remove("status");
    if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in METADATA {
            metadata.remove(key);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| {
                !ANNOTATIONS.contains(&key.as_str())
                    && !key.contains("config.hash")
                    && !key.contains("config.seen")
                    && !key.contains("config.mirror")
            });
        }
    }
    if let Some(data) = map.get_mut("data").and_then(Value::as_object_mut) {
        clean_data(data);
    }
}

fn clean_data(data: &mut Map<String, Value>) {
    data.retain(|key, _| !key.starts_with("jws-kubeconfig-"));
    for (key, value) in data.iter_mut() {
        let Some(text) = value.as_str() else { continue };
        if key == "ca.crt" || key.ends_with("client-ca-file") {
            *value = Value::from("AUTHORITY");
        } else if let Some((before, rest)) = text.split_once(AUTHORITY) {
            let after = rest.find('\n').map_or("", |end| &rest[end..]);
            *value = Value::from(format!("{before}{AUTHORITY}AUTHORITY{after}"));
        }
    }
}

/// Every place where the two differ, objects in the order of their titles.
pub fn differences(left: &BTreeMap<String, Value>, right: &BTreeMap<String, Value>) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut titles: Vec<&String> = left.keys().chain(right.keys()).collect();
    titles.sort_unstable();
    titles.dedup();
    for title in titles {
        compare(title, "", left.get(title), right.get(title), &mut found);
    }
    found
}

fn compare(title: &str, path: &str, left: Option<&Value>, right: Option<&Value>, found: &mut Vec<Difference>) {
    match (left, right) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                compare(title, &format!("{path}/{key}"), a.get(key), b.get(key), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(title, &format!("{path}/{index}"), Some(a), Some(b), found);
            }
        }
        (left, right) if left == right => {}
        (left, right) => found.push(Difference {
            title: title.to_owned(),
            path: path.to_owned(),
            left: left.cloned(),
            right: right.cloned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{differences, normalize};

    #[test]
    fn two_clusters_of_the_same_making_are_equal() {
        let cluster = |node: &str, uid: &str, ca: &str| {
            [
                json!({"kind": "Node", "metadata": {"name": node, "uid": uid, "labels": {"kubernetes.io/hostname": node}}}),
                json!({"kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
                       "data": {"jws-kubeconfig-abc": uid, "kubeconfig": format!("certificate-authority-data: {ca}\nserver: x")}}),
                json!({"kind": "Secret", "type": "bootstrap.kubernetes.io/token", "metadata": {"name": uid}}),
                json!({"kind": "Event", "metadata": {"name": uid}}),
            ]
        };
        let (one, two) =
            (normalize(&cluster("edge", "1", "AA"), "edge"), normalize(&cluster("other", "2", "BB"), "other"));
        assert_eq!(one.len(), 2);
        assert_eq!(differences(&one, &two), []);
    }

    #[test]
    fn a_difference_is_named_with_its_place() {
        let one = [
            json!({"kind": "Deployment", "metadata": {"name": "coredns", "namespace": "kube-system"}, "spec": {"replicas": 2, "x": [1, 2]}}),
        ];
        let two = [
            json!({"kind": "Deployment", "metadata": {"name": "coredns", "namespace": "kube-system"}, "spec": {"replicas": 1, "x": [1, 3]}}),
            json!({"kind": "Role", "metadata": {"name": "r", "namespace": "n"}}),
        ];
        let found = differences(&normalize(&one, "edge"), &normalize(&two, "edge"));
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], "Deployment kube-system/coredns/spec/replicas: 2 | 1");
        assert_eq!(lines[1], "Deployment kube-system/coredns/spec/x/1: 2 | 3");
        assert!(lines[2].starts_with("Role n/r: nothing | "));
    }
}
