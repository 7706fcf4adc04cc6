//! Objects to files: hooks apart, namespaces given, what others need first.
//!
//! ```text
//! [Source, its objects] --apart--> before, own, after --place, merge--> each object once
//!     --needs (namespaces and definitions to where they are needed first)--> Set, one file each
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Value, json};

use super::documents::Object;
use super::inputs::{Origin, Source};
use super::same;

/// Where the files lie.
const FOLDER: &str = "manifests";
/// Annotation by which Helm knows a hook.
const HOOK: &str = "helm.sh/hook";
/// Namespaces that every cluster has.
const SYSTEM: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// What the files of the parts of a source are called: what its hooks do before it, itself, what its hooks do after it.
const PARTS: [&str; 3] = ["-before", "", "-after"];
/// Longest name of an object that runs: it becomes a label of its pods.
const LONGEST_NAME: usize = 63;
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

/// Group and kind.
pub type Kind = (String, String);
/// Group, kind, namespace, name.
type Key = [String; 4];

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
}

/// An object, and where it is applied.
struct Entry {
    source: usize,
    part: usize,
    object: Object,
}

impl Sets {
    /// The sets of these sources, in this order. `cluster_scoped`: custom kinds of the box itself that lie in no namespace.
    pub fn of(sources: Vec<(&Source, Vec<Object>)>, cluster_scoped: &[Kind]) -> Result<Self> {
        let mut kinds: BTreeSet<Kind> = cluster_scoped.iter().cloned().collect();
        kinds.extend(sources.iter().flat_map(|(_, objects)| objects).filter_map(kind_without_namespace));
        let mut entries: Vec<Entry> = Vec::new();
        let mut first: BTreeMap<Key, usize> = BTreeMap::new();
        let mut told = Vec::new();
        for (number, (source, objects)) in sources.into_iter().enumerate() {
            told.push(source);
            let is_chart = matches!(source.origin, Origin::Chart(_));
            let parts = if is_chart { apart(objects) } else { [Vec::new(), objects, Vec::new()] };
            let parts = parts.into_iter().enumerate();
            for (part, mut object) in parts.flat_map(|(part, all)| all.into_iter().map(move |object| (part, object))) {
                let key = place(&mut object, &source.namespace, &kinds);
                if let Some(before) = first.get(&key) {
                    same::merge(&mut entries[*before].object, &object)?;
                } else {
                    first.insert(key, entries.len());
                    entries.push(Entry { source: number, part, object });
                }
            }
        }
        needs(&told, &mut entries);
        let mut all = Vec::new();
        for (number, source) in told.iter().enumerate() {
            for (part, suffix) in PARTS.iter().enumerate() {
                let own = entries.extract_if(.., |entry| (entry.source, entry.part) == (number, part));
                let objects: Vec<Object> = own.map(|entry| entry.object).collect();
                if !objects.is_empty() {
                    let (name, title) = (format!("{}{suffix}", source.name), source.title.clone());
                    all.push(Set { name, title, objects: needed_first(objects) });
                }
            }
        }
        Ok(Self { all })
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

/// What objects add to the API of a cluster: `group/version`, and `group/version/Kind` for each kind they define.
pub fn api_versions<'a>(objects: impl IntoIterator<Item = &'a Object>) -> BTreeSet<String> {
    objects.into_iter().flat_map(served).collect()
}

fn served(object: &Object) -> Vec<String> {
    let spec = &object.value["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = text(&spec["group"]);
    if object.is_definition() {
        let kind = text(&spec["names"]["kind"]);
        let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let served = versions.iter().filter(|version| version["served"] == true).map(|version| text(&version["name"]));
        return served
            .flat_map(|version| [format!("{group}/{version}"), format!("{group}/{version}/{kind}")])
            .collect();
    }
    // Somebody else's API server; which kinds it has, only it knows.
    if object.text("kind") == "APIService" && object.group() == "apiregistration.k8s.io" {
        return vec![format!("{group}/{}", text(&spec["version"]))];
    }
    Vec::new()
}

/// The kind that a definition makes, if it lies in no namespace.
fn kind_without_namespace(object: &Object) -> Option<Kind> {
    (object.is_definition() && object.value["spec"]["scope"] == "Cluster").then(|| defined(object))
}

/// Group and kind that a definition makes.
fn defined(definition: &Object) -> Kind {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&definition.value["spec"]["group"]), text(&definition.value["spec"]["names"]["kind"]))
}

/// Gives the object its namespace, or takes it away where its kind has none. Returns which object it is.
fn place(object: &mut Object, default: &str, cluster_scoped: &BTreeSet<Kind>) -> Key {
    let (group, kind) = (object.group().to_owned(), object.text("kind").to_owned());
    let known = CLUSTER_SCOPED.iter().any(|(of, kinds)| *of == group && kinds.contains(&kind.as_str()));
    if known || cluster_scoped.contains(&(group.clone(), kind.clone())) {
        if let Some(metadata) = object.value["metadata"].as_object_mut() {
            metadata.shift_remove("namespace");
        }
    } else if object.namespace().is_empty() {
        object.value["metadata"]["namespace"] = default.into();
    }
    [group, kind, object.namespace().to_owned(), object.name().to_owned()]
}

/// Brings namespaces and definitions to where they are needed first, and makes the namespaces that nobody declares.
fn needs(sources: &[&Source], entries: &mut Vec<Entry>) {
    let mut there: BTreeSet<String> = SYSTEM.iter().map(|name| (*name).to_owned()).collect();
    for (number, source) in sources.iter().enumerate() {
        let own: Vec<&Entry> = entries.iter().filter(|entry| entry.source == number).collect();
        // Hooks that come first lie in them, too.
        let Some(part) = own.iter().map(|entry| entry.part).min() else { continue };
        let used: BTreeSet<String> = own.iter().map(|entry| entry.object.namespace().to_owned()).collect();
        let kinds: BTreeSet<Kind> =
            own.iter().map(|entry| (entry.object.group().to_owned(), entry.object.text("kind").to_owned())).collect();
        for entry in entries.iter_mut() {
            let object = &entry.object;
            let needed = (object.is_namespace() && used.contains(object.name()))
                || (object.is_definition() && kinds.contains(&defined(object)));
            // Helm installs the folder `crds` before anything else.
            let before_hooks = entry.source == number && (object.is_namespace() || object.is_of_crds());
            if before_hooks || (needed && entry.source >= number) {
                (entry.source, entry.part) = (number, part);
            }
        }
        let declared = entries.iter().filter(|entry| entry.object.is_namespace());
        there.extend(declared.map(|entry| entry.object.name().to_owned()));
        for name in used.into_iter().filter(|name| !name.is_empty() && !there.contains(name)).collect::<Vec<_>>() {
            entries.push(Entry { source: number, part, object: namespace(&name, &source.title) });
            there.insert(name);
        }
    }
}

/// Splits a chart into what its hooks do before the installation, the chart itself, and what they do after it.
fn apart(objects: Vec<Object>) -> [Vec<Object>; 3] {
    let (mut before, mut own, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for object in objects {
        let hooks: Vec<&str> =
            object.annotation(HOOK).split(',').map(str::trim).filter(|hook| !hook.is_empty()).collect();
        match (hooks.contains(&"pre-install"), hooks.contains(&"post-install")) {
            (true, true) => {
                // What runs, runs twice; what others use is there from the first time on.
                after.extend(runs(&object).then(|| again(&object)));
                before.push(object);
            }
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
    [before, own, after]
}

/// Whether an object does something once.
fn runs(object: &Object) -> bool {
    matches!((object.group(), object.text("kind")), ("batch", "Job") | ("", "Pod"))
}

/// The same object once more: an object that has run does not run again.
fn again(object: &Object) -> Object {
    const SUFFIX: &str = "-after";
    let mut second = object.clone();
    let stem: String = object.name().chars().take(LONGEST_NAME - SUFFIX.len()).collect();
    second.value["metadata"]["name"] = format!("{}{SUFFIX}", stem.trim_end_matches(['-', '.'])).into();
    second
}

/// Namespaces, then definitions of custom resources, then everything else in its order.
fn needed_first(mut objects: Vec<Object>) -> Vec<Object> {
    objects.sort_by_key(|object| (!object.is_namespace(), !object.is_definition()));
    objects
}

fn namespace(name: &str, title: &str) -> Object {
    let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    Object { value, place: title.to_owned(), template: String::new() }
}
