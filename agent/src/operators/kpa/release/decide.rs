//! The plan for Helm, and its digest. No I/O.

use std::net::{IpAddr, SocketAddr};

use agent_api::clusters::release::{ClusterRelease, Installed, ReleaseStatus, ValuesFrom};
use agent_api::{ports, yaml};
use kube::ResourceExt as _;
use kube::config::Kubeconfig;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::helm::command::Deed;
use crate::helm::{ReleasePlan, Source};

/// The plan for Helm, of a spec without errors. `values`: all values, merged.
pub(super) fn plan(object: &ClusterRelease, values: Map<String, Value>, address: IpAddr) -> ReleasePlan {
    let spec = &object.spec;
    let chart = spec.chart.clone().unwrap_or_default();
    let source = match (chart.file, chart.image) {
        (Some(file), _) => Source::File(file),
        (None, Some(name)) => Source::Image { name, version: chart.version.unwrap_or_default() },
        (None, None) => Source::Manifests(spec.manifests.clone()),
    };
    let Installed { namespace, name, .. } = Installed::of(object);
    ReleasePlan {
        name,
        namespace,
        source,
        values,
        timeout: spec.timeout(),
        rollback: spec.upgrade.as_ref().is_some_and(|upgrade| upgrade.rollback),
        test: spec.test.as_ref().is_some_and(|test| test.enable),
        content: format!("http://{}", SocketAddr::new(address, ports::CONTENT)),
        registry: SocketAddr::new(address, ports::REGISTRY).to_string(),
    }
}

/// The digest of a plan on a cluster.
pub(super) fn digest(plan: &ReleasePlan, installed: &Installed) -> String {
    // A structure of texts and numbers is always JSON.
    let text = serde_json::to_vec(&(plan, installed)).unwrap_or_default();
    hex::encode(Sha256::digest(text))
}

/// Name of the release's Job, and of its Secret. There is one name, so there is one Helm at a time.
pub(super) fn job_name(object: &ClusterRelease) -> String {
    format!("release-{}", object.uid().unwrap_or_default())
}

/// What the next Job is for. It differs for each deed, each plan, each attempt, and each drift of the cluster.
pub(super) fn attempt(deed: Deed, digest: &str, status: &ReleaseStatus) -> String {
    let (failures, revision) = (status.failures.unwrap_or_default(), status.revision.unwrap_or_default());
    format!("{}-{digest}-{revision}-{failures}", deed.word())
}

/// Whether two kubeconfigs lead to one cluster: its address and its authority are the same.
pub(super) fn one_cluster(one: &str, other: &str) -> bool {
    let cluster = cluster_of(one);
    cluster.is_some() && cluster == cluster_of(other)
}

fn cluster_of(kubeconfig: &str) -> Option<(String, String)> {
    let read = Kubeconfig::from_yaml(kubeconfig).ok()?;
    let current = read.current_context?;
    let context = read.contexts.into_iter().find(|context| context.name == current)?.context?;
    let cluster = read.clusters.into_iter().find(|cluster| cluster.name == context.cluster)?.cluster?;
    Some((cluster.server?, cluster.certificate_authority_data?))
}

/// Adds the values of one key of an object. `text`: what it holds.
///
/// # Errors
/// It is not a map of values, or its place in the values is already taken.
pub(super) fn add(all: &mut Map<String, Value>, from: &ValuesFrom, text: &str) -> Result<(), String> {
    let Some(path) = &from.target_path else {
        let read: Value = yaml::read(text)
            .map_err(|error| format!("{:?} `{}`, key `{}`: {error}", from.kind, from.name, from.key()))?;
        return match read {
            Value::Object(map) => {
                merge(all, map);
                Ok(())
            }
            Value::Null => Ok(()),
            _ => Err(format!(
                "{:?} `{}`, key `{}`: these are no values, which are a map",
                from.kind,
                from.name,
                from.key()
            )),
        };
    };
    let mut at = all;
    let parts = parts_of(path);
    let mut parts = parts.iter().map(String::as_str).peekable();
    while let Some(part) = parts.next() {
        if part.is_empty() {
            return Err(format!("the targetPath `{path}` has an empty part"));
        }
        if part.ends_with(']') {
            return Err(format!("the targetPath `{path}` leads into a list; hint: write the whole list in `values`"));
        }
        if parts.peek().is_none() {
            at.insert(part.to_owned(), Value::String(text.to_owned()));
            return Ok(());
        }
        let next = at.entry(part.to_owned()).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(map) = next else {
            return Err(format!("the targetPath `{path}` leads through `{part}`, which is no map"));
        };
        at = map;
    }
    Ok(())
}

/// The keys of a path, with dots between them. `\.` is a dot in a key, as Helm's `--set` has it.
fn parts_of(path: &str) -> Vec<String> {
    let (mut parts, mut chars) = (vec![String::new()], path.chars());
    while let Some(char) = chars.next() {
        let part = match char {
            '.' => {
                parts.push(String::new());
                continue;
            }
            '\\' => chars.next().unwrap_or(char),
            _ => char,
        };
        if let Some(last) = parts.last_mut() {
            last.push(part);
        }
    }
    parts
}

/// `more` over `all`, as Helm merges values: maps by key, everything else whole; null removes.
pub(super) fn merge(all: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        match (all.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                all.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::release::{ReleaseSpec, ValuesKind};
    use serde_json::json;

    use super::*;

    fn release(spec: Value) -> ClusterRelease {
        let spec: ReleaseSpec = serde_json::from_value(spec).expect("a spec");
        let mut object = ClusterRelease::new("web", spec);
        object.metadata.namespace = Some("site".to_owned());
        object.metadata.uid = Some("0a1b2c3d-4e5f".to_owned());
        object
    }

    fn from(target_path: Option<&str>) -> ValuesFrom {
        ValuesFrom {
            kind: ValuesKind::Secret,
            name: "s".to_owned(),
            values_key: None,
            target_path: target_path.map(str::to_owned),
            optional: false,
        }
    }

    #[test]
    fn a_plan_names_where_the_box_has_it_and_another_plan_is_another_attempt() {
        let address = [172, 22, 0, 1].into();
        let one = release(json!({"clusterRef": {"name": "one"}, "chart": {"image": "charts/web", "version": "1.0.0"}}));
        let told = plan(&one, Map::new(), address);
        assert_eq!((told.name.as_str(), told.namespace.as_str()), ("web", "site"));
        assert_eq!((told.content.as_str(), told.registry.as_str()), ("http://172.22.0.1:6180", "172.22.0.1:5000"));
        assert_eq!(told.source, Source::Image { name: "charts/web".to_owned(), version: "1.0.0".to_owned() });
        let of = |object: &ClusterRelease, values: Value| {
            let values = values.as_object().cloned().unwrap_or_default();
            digest(&plan(object, values, address), &Installed::of(object))
        };
        let other =
            release(json!({"clusterRef": {"name": "two"}, "chart": {"image": "charts/web", "version": "1.0.0"}}));
        let digests = [of(&one, json!({})), of(&one, json!({"a": 1})), of(&other, json!({}))];
        assert!(digests[0] != digests[1] && digests[0] != digests[2], "{digests:?}");
        let told = |deed, digest: &str, revision, failures| {
            attempt(deed, digest, &ReleaseStatus { revision, failures, ..ReleaseStatus::default() })
        };
        let all = [
            told(Deed::Apply, &digests[0], None, None),
            told(Deed::Remove, &digests[0], None, None),
            told(Deed::Apply, &digests[1], None, None),
            told(Deed::Apply, &digests[0], Some(1), None),
            told(Deed::Apply, &digests[0], None, Some(1)),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{all:?}");
        }
        // One name for all of them: two Helms cannot be at work.
        assert_eq!((job_name(&one), job_name(&other)), ("release-0a1b2c3d-4e5f".to_owned(), job_name(&one)));
    }

    #[test]
    fn another_name_for_the_same_cluster_is_no_other_cluster() {
        let config = |server: &str, authority: &str, user: &str| {
            let cluster = json!({"server": server, "certificate-authority-data": authority});
            json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
                "contexts": [{"name": "b", "context": {"cluster": "z", "user": "u"}},
                             {"name": "a", "context": {"cluster": "c", "user": user}}],
                "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": user, "user": {"token": user}}]})
            .to_string()
        };
        let one = config("https://10.0.0.1:6443", "QQ==", "admin");
        assert!(one_cluster(&one, &config("https://10.0.0.1:6443", "QQ==", "other")));
        assert!(!one_cluster(&one, &config("https://10.0.0.2:6443", "QQ==", "admin")));
        assert!(!one_cluster(&one, &config("https://10.0.0.1:6443", "Qg==", "admin")));
        assert!(!one_cluster("{", "{"), "what is not known is not the same");
    }

    #[test]
    fn values_are_merged_as_helm_does_it() {
        let mut all = Map::new();
        add(&mut all, &from(None), "a: {b: 1, c: [1]}\nd: 1\n").expect("values");
        add(&mut all, &from(None), "a: {c: [2]}\nd: null\n").expect("values");
        add(&mut all, &from(Some("a.e.password")), "p: 1").expect("a value");
        assert_eq!(Value::Object(all.clone()), json!({"a": {"b": 1, "c": [2], "e": {"password": "p: 1"}}, "d": null}));
        assert!(add(&mut all, &from(None), "- 1\n").expect_err("refused").contains("Secret `s`, key `values.yaml`"));
        assert!(add(&mut all, &from(Some("d.e")), "1").expect_err("refused").contains("through `d`"));
        assert!(add(&mut all, &from(Some("a..b")), "1").expect_err("refused").contains("empty part"));
        let list = add(&mut all, &from(Some("hosts[0].name")), "1").expect_err("it would be a key that no chart reads");
        assert!(list.contains("leads into a list"), "{list}");
        add(&mut all, &from(Some(r"labels.example\.com/role")), "edge").expect("a value");
        assert_eq!(all["labels"], json!({"example.com/role": "edge"}));
    }
}
