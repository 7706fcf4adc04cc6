//! Objects that the release declares: the files `manifests/<nn>-<name>.yaml` of its content.
//!
//! Each file is a set. Its documents are JSON behind lines of `---`, as the builder writes them.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Whose fields applied objects are.
pub const FIELD_MANAGER: &str = "foothold";
/// Label of every applied object: its set.
pub const SET_LABEL: &str = "foothold.dev/set";
/// Annotation by which Helm knows a hook: something that happens before or after the rest.
const HOOK: &str = "helm.sh/hook";
/// Annotation by which Helm leaves an object in place.
const KEEP: &str = "helm.sh/resource-policy";
/// Name of the `ConfigMap` of `kube-system` that remembers what was applied.
pub const INVENTORY: &str = "foothold-objects";

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Id {
    /// `apps/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Id {
    /// The object that `object` is.
    pub fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Self {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
        }
    }

    /// Group, without the version: the same object may be declared under a newer one.
    fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether both are one object.
    pub fn is_same(&self, other: &Self) -> bool {
        let all = |id: &'_ Self| (id.group().to_owned(), id.kind.clone(), id.namespace.clone(), id.name.clone());
        all(self) == all(other)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{}", self.kind, self.namespace, self.name)
    }
}

/// An object as it is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Which.
    pub id: Id,
    /// Name of its set.
    pub set: String,
    /// It happens before or after the rest: what came before it must be healthy, and it before what comes after it.
    pub hook: bool,
    /// All of it, labelled.
    pub object: Value,
}

impl Declared {
    /// The chart that it belongs to: a hook's set bears its name with `-before` or `-after` behind it.
    pub fn chart(&self) -> &str {
        let hooks = ["-before", "-after"].iter().find_map(|ending| self.set.strip_suffix(ending));
        hooks.filter(|_| self.hook).unwrap_or(&self.set)
    }
}

/// A file that is not what the builder writes.
#[derive(Debug, thiserror::Error)]
#[error("document {document} of `{path}` is no object: {source}")]
pub struct DeclaredError {
    path: String,
    document: usize,
    source: serde_json::Error,
}

/// The objects of a file, in order. `path` is `manifests/01-web.yaml`.
pub fn read(path: &str, text: &str) -> Result<Vec<Declared>, DeclaredError> {
    let file = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".yaml");
    let set = file.split_once('-').map_or(file, |(_, name)| name);
    let documents = text.split("\n---\n").enumerate().skip(1);
    let objects = documents.map(|(document, text)| {
        let wrong = |source| DeclaredError { path: path.to_owned(), document, source };
        Ok(declared(serde_json::from_str(text).map_err(wrong)?, set))
    });
    objects.collect()
}

fn declared(mut object: Value, set: &str) -> Declared {
    let hook = object["metadata"]["annotations"][HOOK].is_string();
    let metadata = &mut object["metadata"];
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    metadata["labels"][SET_LABEL] = set.into();
    // Its manager must not bring the book of others along.
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.shift_remove("managedFields");
    }
    Declared { id: Id::of(&object), set: set.to_owned(), hook, object }
}

/// What was applied, as the cluster itself remembers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Key of the manifests that are applied completely; empty while that goes on.
    pub key: String,
    /// The objects.
    pub objects: BTreeSet<Id>,
}

impl Inventory {
    /// Out of its `ConfigMap`. One that somebody has changed into something else is none.
    pub fn read(map: &Value) -> Self {
        let text = |key: &str| map["data"][key].as_str().unwrap_or_default();
        let objects = serde_json::from_str(text("objects")).unwrap_or_default();
        Self { key: text("key").to_owned(), objects }
    }

    /// Its `ConfigMap`.
    pub fn object(&self) -> Value {
        let objects = serde_json::to_string(&self.objects).unwrap_or_default();
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": INVENTORY, "namespace": "kube-system"},
            "data": {"key": self.key, "objects": objects},
        })
    }

    /// Whether an object is among them.
    pub fn has(&self, id: &Id) -> bool {
        self.objects.iter().any(|known| known.is_same(id))
    }

    /// What is not declared any more, in the order in which it can go: workloads before what they need.
    pub fn left_over(&self, declared: &[Declared]) -> Vec<Id> {
        let is_declared = |id: &Id| declared.iter().any(|one| one.id.is_same(id));
        let mut gone: Vec<Id> = self.objects.iter().filter(|id| !is_declared(id)).cloned().collect();
        gone.sort_by_key(|id| {
            !matches!(id.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet" | "Job" | "CronJob")
        });
        gone
    }
}

/// Why an object that is not declared any more stays; nothing if it may go.
///
/// With a namespace or a definition everything in it would go, declared or not, and with a claim its data.
pub fn why_kept(found: &Value) -> Option<&'static str> {
    let kind = found["kind"].as_str().unwrap_or_default();
    let annotated = found["metadata"]["annotations"][KEEP].as_str() == Some("keep");
    match kind {
        _ if found["metadata"]["labels"][SET_LABEL].as_str().is_none() => Some("somebody has made it their own"),
        _ if annotated => Some("it is annotated to be kept"),
        "Namespace" | "CustomResourceDefinition" => Some("others may have put something into it"),
        "PersistentVolumeClaim" | "PersistentVolume" => Some("it holds data"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Id, Inventory, read, why_kept};

    const TEXT: &str = "# chart `web`\n---\n{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"Secret\",\n  \"metadata\": {\"name\": \"a\", \"namespace\": \"web\"},\n  \"data\": {\"x\": \"a\\n---\\nb\"}\n}\n---\n{\"apiVersion\": \"batch/v1\", \"kind\": \"Job\", \"metadata\": {\"name\": \"j\", \"annotations\": {\"helm.sh/hook\": \"pre-install\"}}}\n";

    #[test]
    fn a_file_is_a_set_of_labelled_objects() {
        let objects = read("manifests/07-web-shop.yaml", TEXT).expect("objects");
        let told: Vec<_> = objects.iter().map(|one| (one.id.to_string(), one.set.as_str(), one.hook)).collect();
        assert_eq!(told, [("Secret web/a".to_owned(), "web-shop", false), ("Job j".to_owned(), "web-shop", true)]);
        assert_eq!(objects[0].object["metadata"]["labels"]["foothold.dev/set"], "web-shop");
        assert_eq!(objects[0].object["data"]["x"], "a\n---\nb");
        let error = read("manifests/01-a.yaml", "#\n---\n{\n").expect_err("wrong").to_string();
        assert!(error.starts_with("document 1 of `manifests/01-a.yaml` is no object"), "{error}");
    }

    #[test]
    fn the_inventory_survives_its_config_map_and_knows_what_is_left_over() {
        let id = |version: &str, kind: &str, name: &str| {
            Id::of(&json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "web"}}))
        };
        let objects = [
            id("v1", "Secret", "a"),
            id("v1", "ConfigMap", "c"),
            id("apps/v1beta1", "Deployment", "d"),
            id("apps/v1", "DaemonSet", "e"),
        ];
        let inventory = Inventory { key: "k".to_owned(), objects: objects.into() };
        assert_eq!(Inventory::read(&inventory.object()), inventory);
        assert_eq!(Inventory::read(&json!({"data": {"objects": "["}})), Inventory::default());
        let secret = read("manifests/01-web.yaml", TEXT).expect("objects");
        assert!(inventory.has(&id("apps/v1", "Deployment", "d")), "a newer version of the same object");
        let left: Vec<String> = inventory.left_over(&secret).iter().map(ToString::to_string).collect();
        assert_eq!(left, ["DaemonSet web/e", "Deployment web/d", "ConfigMap web/c"]);
    }

    #[test]
    fn what_holds_data_or_belongs_to_others_stays() {
        let object = |kind: &str, annotations: serde_json::Value| json!({"kind": kind, "metadata": {"labels": {"foothold.dev/set": "web"}, "annotations": annotations}});
        for kind in ["Namespace", "CustomResourceDefinition", "PersistentVolumeClaim"] {
            assert!(why_kept(&object(kind, json!({}))).is_some(), "{kind}");
        }
        assert_eq!(why_kept(&object("Deployment", json!({}))), None);
        assert!(why_kept(&object("Deployment", json!({"helm.sh/resource-policy": "keep"}))).is_some());
        assert!(why_kept(&json!({"kind": "Deployment", "metadata": {}})).is_some(), "not ours any more");
    }
}
