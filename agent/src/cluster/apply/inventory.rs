//! What was applied, as the cluster itself remembers it, and what of it may go.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::api::ApiError;
use super::ObjectApi;
use super::declared::{FIELD_MANAGER, Id, SET_LABEL};

/// Annotation by which Helm leaves an object in place.
const KEEP: &str = "helm.sh/resource-policy";

/// The `ConfigMap` that remembers what was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventoryPlace {
    namespace: String,
    name: String,
}

impl InventoryPlace {
    /// The one of that name.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// What is remembered there; nothing if there is none.
    pub async fn read(&self, api: &impl ObjectApi) -> Result<Inventory, ApiError> {
        Ok(api.get(&self.path()).await?.map(|map| Inventory::read(&map)).unwrap_or_default())
    }

    /// Remembers.
    pub async fn write(&self, api: &impl ObjectApi, inventory: &Inventory) -> Result<(), ApiError> {
        api.apply(&self.path(), &self.object(inventory), FIELD_MANAGER, true).await.map(drop)
    }

    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{}", self.namespace, self.name)
    }

    fn object(&self, inventory: &Inventory) -> Value {
        let objects = serde_json::to_string(&inventory.objects).unwrap_or_default();
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "data": {"key": inventory.key, "objects": objects},
        })
    }
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
    /// Out of its `ConfigMap`. One that somebody has changed into something else counts as empty.
    pub fn read(map: &Value) -> Self {
        let text = |key: &str| map["data"][key].as_str().unwrap_or_default();
        let objects = serde_json::from_str(text("objects")).unwrap_or_default();
        Self { key: text("key").to_owned(), objects }
    }

    /// Whether an object is among them.
    pub fn has(&self, id: &Id) -> bool {
        self.objects.iter().any(|known| known.is_same(id))
    }

    /// What is not declared any more, in the order in which it can go: workloads before what they need.
    pub fn left_over(&self, declared: &[Id]) -> Vec<Id> {
        let is_declared = |id: &Id| declared.iter().any(|one| one.is_same(id));
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

    use super::super::declared::read;
    use super::super::declared::tests::TEXT;
    use super::{Id, Inventory, InventoryPlace, why_kept};

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
        assert_eq!(Inventory::read(&InventoryPlace::new("web", "objects").object(&inventory)), inventory);
        assert_eq!(Inventory::read(&json!({"data": {"objects": "["}})), Inventory::default());
        let secret: Vec<Id> =
            read("manifests/01-web.yaml", TEXT).expect("objects").into_iter().map(|one| one.id).collect();
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
