//! What kubeadm adds to a new cluster: its configuration, RBAC, CoreDNS, kube-proxy. Rendered by
//! kubeadm at build time into `objects.json`, applied here.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::api::{Api, ApiError};
use super::{Node, manifests};

/// File of the objects in the templates.
pub const FILE: &str = "objects.json";
/// Stands in the template for the base64 text of the cluster's authority, in `cluster-info`.
pub const TEMPLATE_CA: &str = "foothold-ca-data";

/// Words in the names of all that belongs to CoreDNS and kube-proxy.
const URGENT: [&str; 4] = ["kube-proxy", "node-proxier", "coredns", "kube-dns"];

/// A kind the templates may hold: kind, plural, whether it lies in a namespace.
const KINDS: [(&str, &str, bool); 16] = [
    ("APIService", "apiservices", false),
    ("ClusterRole", "clusterroles", false),
    ("ClusterRoleBinding", "clusterrolebindings", false),
    ("ConfigMap", "configmaps", true),
    ("CustomResourceDefinition", "customresourcedefinitions", false),
    ("DaemonSet", "daemonsets", true),
    ("Deployment", "deployments", true),
    ("EndpointSlice", "endpointslices", true),
    ("Namespace", "namespaces", false),
    ("Node", "nodes", false),
    ("Role", "roles", true),
    ("RoleBinding", "rolebindings", true),
    ("Secret", "secrets", true),
    ("Service", "services", true),
    ("ServiceAccount", "serviceaccounts", true),
    ("StorageClass", "storageclasses", false),
];

/// Why objects could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The template is no list of objects.
    #[error("`{FILE}` of the release is not a list of objects: {0}")]
    Template(String),
    /// The API server.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl From<serde_json::Error> for ObjectsError {
    fn from(error: serde_json::Error) -> Self {
        Self::Template(error.to_string())
    }
}

impl From<io::Error> for ObjectsError {
    fn from(error: io::Error) -> Self {
        Self::Template(error.to_string())
    }
}

/// One object and where it belongs.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Path of the collection.
    pub collection: String,
    /// Name.
    pub name: String,
    /// The object.
    pub object: Value,
}

impl Placed {
    /// Path of the object.
    pub fn path(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }

    /// As a user would say it: `Deployment kube-system/coredns`.
    pub fn title(&self) -> String {
        let namespace = self.object["metadata"]["namespace"].as_str().map(|n| format!("{n}/")).unwrap_or_default();
        format!("{} {namespace}{}", self.object["kind"].as_str().unwrap_or_default(), self.name)
    }

    fn is_node(&self) -> bool {
        self.object["kind"] == "Node"
    }
}

/// The objects of a template for this node, in order.
pub fn read(template: &str, node: &Node, ca_pem: &str) -> Result<Vec<Placed>, ObjectsError> {
    let text = manifests::render(template, node).replace(TEMPLATE_CA, &STANDARD.encode(ca_pem));
    let objects: Vec<Value> = serde_json::from_str(&text)?;
    objects.into_iter().map(place).collect()
}

/// Where an object belongs.
pub fn place(object: Value) -> Result<Placed, ObjectsError> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let wrong = |what: &str| ObjectsError::Template(format!("an object without {what}"));
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (version, kind) = (version.ok_or_else(|| wrong("apiVersion"))?, kind.ok_or_else(|| wrong("kind"))?);
    let name = text(&object["metadata"]["name"]).ok_or_else(|| wrong("metadata.name"))?;
    let known = KINDS.iter().find(|(known, ..)| *known == kind);
    let (_, plural, namespaced) = known.ok_or_else(|| ObjectsError::Template(format!("unknown kind `{kind}`")))?;
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let namespace = text(&object["metadata"]["namespace"]);
    let collection = match (namespaced, namespace) {
        (true, Some(namespace)) => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        (true, None) => return Err(wrong("metadata.namespace")),
        (false, _) => format!("{root}/{version}/{plural}"),
    };
    Ok(Placed { collection, name, object })
}

/// Creates the object, or merges it into the one that is there. Whether it is new.
///
/// A Node is never created: the kubelet registers it; its labels are merged once it is there.
pub async fn apply(api: &Api, placed: &Placed) -> Result<bool, ApiError> {
    if placed.is_node() {
        let metadata = &placed.object["metadata"];
        let patch = json!({"metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]}});
        return api.merge(&placed.path(), &patch).await.map(|()| false);
    }
    match api.create(&placed.collection, &placed.object).await {
        Ok(()) => Ok(true),
        Err(error) if error.status() == Some(StatusCode::CONFLICT) => {
            api.merge(&placed.path(), &placed.object).await.map(|()| false)
        }
        Err(error) => {
            // Service addresses that are taken, by this very Service, are an invalid create.
            let there = error.status() == Some(StatusCode::UNPROCESSABLE_ENTITY)
                && api.get(&placed.path()).await.is_ok_and(|found| found.is_some());
            if there { api.merge(&placed.path(), &placed.object).await.map(|()| false) } else { Err(error) }
        }
    }
}

/// What pods wait for comes first: CoreDNS and kube-proxy with all they need, then the rest.
pub fn urgent_first(mut objects: Vec<Placed>) -> Vec<Placed> {
    // The sort is stable: within a class the order is kubeadm's.
    objects.sort_by_key(|placed| {
        let urgent = URGENT.iter().any(|word| placed.name.contains(word));
        let workload = placed.object["kind"] == "Deployment" || placed.object["kind"] == "DaemonSet";
        (!urgent, workload)
    });
    objects
}

/// Splits off the Node: all else can be applied before the kubelet has registered it.
pub fn split_node(objects: Vec<Placed>) -> (Vec<Placed>, Vec<Placed>) {
    objects.into_iter().partition(|placed| !placed.is_node())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{place, read, split_node};
    use crate::cluster::Node;

    #[test]
    fn every_object_finds_its_collection() {
        let table = [
            (
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "kube-system"}}),
                "/api/v1/namespaces/kube-system/configmaps/a",
            ),
            (
                json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a", "namespace": "kube-system"}}),
                "/apis/apps/v1/namespaces/kube-system/daemonsets/a",
            ),
            (
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:coredns"}}),
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:coredns",
            ),
            (json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge"}}), "/api/v1/nodes/edge"),
        ];
        for (object, path) in table {
            assert_eq!(place(object).expect("placed").path(), path);
        }
    }

    #[test]
    fn a_wrong_template_is_named() {
        for (object, word) in [
            (json!({"kind": "Role", "metadata": {"name": "a"}}), "apiVersion"),
            (json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "a"}}), "Widget"),
            (json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}), "namespace"),
        ] {
            let error = place(object).expect_err("wrong").to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_template_gets_name_and_authority_of_the_box() {
        let node = Node {
            name: "edge".to_owned(),
            advertise: "198.18.0.1".parse().expect("an address"),
            service_address: "10.96.0.1".parse().expect("an address"),
            site_addresses: Vec::new(),
        };
        let template = json!([
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "foothold-node-name"}},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
             "data": {"kubeconfig": "certificate-authority-data: foothold-ca-data"}},
        ]);
        let (objects, nodes) = split_node(read(&template.to_string(), &node, "CA").expect("read"));
        assert_eq!(nodes[0].name, "edge");
        assert_eq!(objects[0].object["data"]["kubeconfig"], "certificate-authority-data: Q0E=");
        assert_eq!(objects[0].title(), "ConfigMap kube-public/cluster-info");
    }
}
