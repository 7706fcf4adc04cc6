//! Objects to files: hooks apart, namespaces given, what others need first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::documents::Object;
use super::inputs::{Origin, Source};

/// Where the files lie.
const FOLDER: &str = "manifests";
/// Annotation by which Helm knows a hook.
const HOOK: &str = "helm.sh/hook";
/// Namespaces that every cluster has.
const SYSTEM: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// Kinds of Kubernetes' own that lie in no namespace, by group.
const CLUSTER_SCOPED: &[(&str, &[&str])] = &[
    ("", &["ComponentStatus", "Namespace", "Node", "PersistentVolume"]),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    ("certificates.k8s.io", &["CertificateSigningRequest", "ClusterTrustBundle"]),
    ("flowcontrol.apiserver.k8s.io", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("networking.k8s.io", &["IPAddress", "IngressClass", "ServiceCIDR"]),
    ("node.k8s.io", &["RuntimeClass"]),
    ("rbac.authorization.k8s.io", &["ClusterRole", "ClusterRoleBinding"]),
    ("resource.k8s.io", &["DeviceClass", "DeviceTaintRule", "ResourceSlice"]),
    ("scheduling.k8s.io", &["PriorityClass"]),
    ("storage.k8s.io", &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"]),
    ("storagemigration.k8s.io", &["StorageVersionMigration"]),
];

/// One file to be.
#[derive(Clone, Debug, PartialEq)]
struct Set {
    name: String,
    title: String,
    objects: Vec<Object>,
}

/// All files to be, in the order in which they are applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sets {
    all: Vec<Set>,
    /// Group and kind of declared custom resources that lie in no namespace.
    cluster_scoped: BTreeSet<(String, String)>,
    /// Group, kind, namespace, name -> the place where it is declared.
    seen: BTreeMap<[String; 4], String>,
    namespaces: BTreeSet<String>,
}

impl Sets {
    /// What custom resource definitions so far add to a cluster: `group/version` and `group/version/Kind`.
    pub fn api_versions(&self) -> Vec<String> {
        let definitions = self.all.iter().flat_map(|set| &set.objects).filter(|object| is_definition(object));
        let mut versions: Vec<String> = definitions.flat_map(served).collect();
        versions.sort();
        versions.dedup();
        versions
    }

    /// Adds the objects of a source.
    pub fn add(&mut self, source: &Source, objects: Vec<Object>) -> Result<()> {
        let is_chart = matches!(source.origin, Origin::Chart(_));
        let mut parts = if is_chart { apart(objects)? } else { [Vec::new(), objects, Vec::new()] };
        for definition in parts.iter().flatten().filter(|object| is_definition(object)) {
            if definition.value["spec"]["scope"] == "Cluster" {
                let names = &definition.value["spec"];
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                self.cluster_scoped.insert((text(&names["group"]), text(&names["names"]["kind"])));
            }
        }
        for object in parts.iter_mut().flatten() {
            self.place(object, &source.namespace)?;
        }
        let declared = parts.iter().flatten().filter(|object| is_namespace(object));
        self.namespaces.extend(declared.map(|object| object.name().to_owned()));
        let mut namespaces: Vec<Object> =
            self.missing_namespaces(parts.iter().flatten()).iter().map(|name| namespace(name, &source.title)).collect();
        for part in &mut parts {
            namespaces.extend(part.extract_if(.., |object| is_namespace(object)));
        }
        // Hooks that come first lie in them, too.
        let first = parts.iter().position(|part| !part.is_empty()).unwrap_or(1);
        parts[first].splice(0..0, namespaces);
        for (part, suffix) in parts.into_iter().zip(["-before", "", "-after"]) {
            if !part.is_empty() {
                let name = format!("{}{suffix}", source.name);
                self.all.push(Set { name, title: source.title.clone(), objects: needed_first(part) });
            }
        }
        Ok(())
    }

    /// Gives the object its namespace, and refuses what was declared before.
    fn place(&mut self, object: &mut Object, default: &str) -> Result<()> {
        let (group, kind) = (group_of(object).to_owned(), object.text("kind").to_owned());
        let known = CLUSTER_SCOPED.iter().any(|(of, kinds)| *of == group && kinds.contains(&kind.as_str()));
        if known || self.cluster_scoped.contains(&(group.clone(), kind.clone())) {
            if let Some(metadata) = object.value["metadata"].as_object_mut() {
                metadata.shift_remove("namespace");
            }
        } else if object.namespace().is_empty() {
            object.value["metadata"]["namespace"] = default.into();
        }
        let key = [group, kind, object.namespace().to_owned(), object.name().to_owned()];
        if let Some(before) = self.seen.insert(key, object.place.clone()) {
            let is_made = is_namespace(object) && before.is_empty();
            let hint = if is_made { "put it before what lies in it" } else { "remove one of them" };
            let before = if is_made { "something that lies in it".to_owned() } else { before };
            bail!("`{}` is declared at {before} and again at {}\nhint: {hint}", object.title(), object.place);
        }
        Ok(())
    }

    /// Namespaces that these objects lie in and that nobody has declared.
    fn missing_namespaces<'a>(&mut self, objects: impl Iterator<Item = &'a Object>) -> BTreeSet<String> {
        let used = objects.map(Object::namespace).filter(|name| !name.is_empty() && !SYSTEM.contains(name));
        let missing: BTreeSet<String> =
            used.filter(|name| !self.namespaces.contains(*name)).map(str::to_owned).collect();
        for name in &missing {
            // An empty place: made here, not declared.
            let key = [String::new(), "Namespace".to_owned(), String::new(), name.clone()];
            self.seen.insert(key, String::new());
        }
        self.namespaces.extend(missing.iter().cloned());
        missing
    }

    /// The files: path and text.
    pub fn files(&self) -> Result<Vec<(String, String)>> {
        let digits = self.all.len().to_string().len().max(2);
        let mut files = Vec::new();
        for (i, set) in self.all.iter().enumerate() {
            let mut text = format!("# {}\n", set.title);
            for object in &set.objects {
                write!(text, "---\n{}\n", serde_json::to_string_pretty(&object.value)?)?;
            }
            files.push((format!("{FOLDER}/{:0digits$}-{}.yaml", i + 1, set.name), text));
        }
        Ok(files)
    }
}

/// Splits a chart into what its hooks do before the installation, the chart itself, and what they do after it.
fn apart(objects: Vec<Object>) -> Result<[Vec<Object>; 3]> {
    let (mut before, mut own, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for object in objects {
        let hooks: Vec<&str> =
            object.annotation(HOOK).split(',').map(str::trim).filter(|hook| !hook.is_empty()).collect();
        match (hooks.contains(&"pre-install"), hooks.contains(&"post-install")) {
            (true, true) => bail!(
                "{}: the hook `{}` runs both before and after the installation\nhint: a box applies each object once: \
                 make two of it, or switch it off in `values`",
                object.place,
                object.title()
            ),
            (true, false) => before.push(object),
            (false, true) => after.push(object),
            // `crd-install` is of Helm 2; what only runs at upgrades, deletions and tests is not installed.
            (false, false) if hooks.is_empty() || hooks.contains(&"crd-install") => own.push(object),
            (false, false) => {}
        }
    }
    for hooks in [&mut before, &mut after] {
        hooks.sort_by_key(|object| object.annotation("helm.sh/hook-weight").parse::<i64>().unwrap_or(0));
    }
    Ok([before, own, after])
}

/// Namespaces, then definitions of custom resources, then everything else in its order.
fn needed_first(mut objects: Vec<Object>) -> Vec<Object> {
    objects.sort_by_key(|object| (!is_namespace(object), !is_definition(object)));
    objects
}

fn namespace(name: &str, title: &str) -> Object {
    let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    Object { value, place: title.to_owned() }
}

fn is_namespace(object: &Object) -> bool {
    object.text("kind") == "Namespace" && group_of(object).is_empty()
}

fn is_definition(object: &Object) -> bool {
    object.text("kind") == "CustomResourceDefinition" && group_of(object) == "apiextensions.k8s.io"
}

fn group_of(object: &Object) -> &str {
    object.text("apiVersion").split_once('/').map_or("", |(group, _)| group)
}

fn served(definition: &Object) -> Vec<String> {
    let spec = &definition.value["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let served = versions.iter().filter(|version| version["served"] == true).map(|version| text(&version["name"]));
    served.flat_map(|version| [format!("{group}/{version}"), format!("{group}/{version}/{kind}")]).collect()
}
