//! A box beside a cluster that stock `kubeadm init` makes of the same programs.

use std::collections::BTreeMap;

use foothold::kubernetes::templates::Stock;
use serde_json::Value;

use crate::client::{Client, Kubernetes, SupportBundle};
use crate::objects::{Difference, differences, normalize};

/// What the box adds for its own services, in namespace `default`.
const OURS: [&str; 2] = ["bpa-api-service", "bpa-api-service-box"];
/// Name of the node in the stock cluster.
const STOCK_NODE: &str = "foothold-node-name";
/// Allocators that are stored in etcd only. They are not objects of the API.
const NO_OBJECTS: [&str; 1] = ["RangeAllocation"];
/// `ConfigMap` with the day on which the cluster was made.
const BEGIN: &str = "kube-apiserver-legacy-service-account-token-tracking";

/// Every place where the objects of the box differ from those of the stock cluster.
///
/// Of the Node only what kubeadm writes is compared; of pods nothing: those of the control plane are
/// [`manifests`].
pub fn objects(stock: &Stock, kubernetes: &Kubernetes<'_>) -> Vec<Difference> {
    let left: Vec<Value> = stock.entries.iter().map(|entry| entry.value.clone()).filter(is_compared).collect();
    let word = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let mut kinds: Vec<(String, String)> =
        left.iter().map(|object| (word(object, "apiVersion"), word(object, "kind"))).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut right = Vec::new();
    let mut node = String::new();
    for (version, kind) in kinds {
        let root = if version.contains('/') { "apis" } else { "api" };
        let known = kubernetes.get(&format!("/{root}/{version}"));
        let resources = known["resources"].as_array().expect("resources").clone();
        let plural = resources.iter().find(|one| one["kind"] == *kind && !word(one, "name").contains('/'));
        let plural = word(plural.unwrap_or_else(|| panic!("the box has no {kind} of {version}")), "name");
        for mut object in
            kubernetes.get(&format!("/{root}/{version}/{plural}"))["items"].as_array().expect("items").clone()
        {
            object["apiVersion"] = version.as_str().into();
            object["kind"] = kind.as_str().into();
            if kind == "Node" {
                node = word(&object["metadata"], "name");
            }
            right.push(object);
        }
    }
    right.retain(is_compared);
    assert!(!node.is_empty() && left.len() > 200, "{} objects of node `{node}`", left.len());
    let side = |objects: Vec<Value>, name: &str| {
        let objects: Vec<Value> = objects.into_iter().map(only_kubeadms).collect();
        normalize(&objects, name)
    };
    differences(&side(left, STOCK_NODE), &side(right, &node))
}

fn is_compared(object: &Value) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    // An IPAddress is named after the address, and says whose it is.
    let owner = object["spec"]["parentRef"]["name"].as_str().unwrap_or_default();
    let ours = OURS.contains(&name) || OURS.contains(&owner);
    kind != "Pod" && !NO_OBJECTS.contains(&kind) && name != BEGIN && !ours && !kind.is_empty()
}

/// Of a Node what kubeadm writes; any other object as it is.
fn only_kubeadms(mut object: Value) -> Value {
    if object["kind"] != "Node" {
        return object;
    }
    let spec = serde_json::json!({ "taints": object["spec"]["taints"] });
    object["spec"] = spec;
    let metadata = &mut object["metadata"];
    for (part, of_kubeadm) in [("labels", "node-role.kubernetes.io/"), ("annotations", "kubeadm.")] {
        if let Some(map) = metadata[part].as_object_mut() {
            map.retain(|key, _| key.starts_with(of_kubeadm) || key.contains("exclude-from"));
        }
    }
    object
}

/// Every line in which a static pod of the box differs from the stock one.
pub fn manifests(stock: &Stock, client: &Client, bundle: &SupportBundle) -> Vec<String> {
    let found = manifests_of(client, bundle);
    let mut lines = Vec::new();
    for (name, text) in &stock.manifests {
        let (Some((node, box_text)), stock_text) = (found.get(name), text.replace(STOCK_NODE, "NODE")) else {
            lines.push(format!("{name}: not on the box"));
            continue;
        };
        let box_text = box_text.replace(node.as_str(), "NODE");
        let (left, right): (Vec<&str>, Vec<&str>) = (stock_text.lines().collect(), box_text.lines().collect());
        lines
            .extend(left.iter().filter(|line| !right.contains(line)).map(|line| format!("{name}: only stock: {line}")));
        lines.extend(right.iter().filter(|line| !left.contains(line)).map(|line| format!("{name}: only box: {line}")));
    }
    lines
}

/// The manifests of the box by program, each with the name of the node, out of its support bundle.
fn manifests_of(client: &Client, bundle: &SupportBundle) -> BTreeMap<String, (String, String)> {
    let nodes = client.kubernetes().get("/api/v1/nodes");
    let node = nodes["items"][0]["metadata"]["name"].as_str().expect("a node").to_owned();
    let manifests = bundle.iter().filter_map(|(path, text)| {
        let is_one = path.parent().is_some_and(|folder| folder.ends_with("etc/kubernetes/manifests"));
        is_one.then(|| (path.file_stem().expect("a name").to_string_lossy().into_owned(), (node.clone(), text.clone())))
    });
    manifests.collect()
}
