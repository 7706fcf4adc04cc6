//! One object that is declared twice: the same, or refused with what differs.

use anyhow::{Result, bail};
use serde_json::{Map, Value};

use super::documents::Object;

/// Labels and annotations in which Helm and charts say which release an object is of: they differ from chart to chart.
const OF_RELEASE: [&str; 7] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "chart",
    "heritage",
    "release",
    "helm.sh/chart",
];
/// Beginnings of annotations by which Helm goes.
const OF_HELM: [&str; 2] = ["helm.sh/", "meta.helm.sh/"];

/// Takes in an object that was declared before. What both say must be the same; labels and annotations of a namespace or
/// a definition are those of both.
pub fn merge(first: &mut Object, again: &Object) -> Result<()> {
    let shared = first.is_namespace() || first.is_definition();
    let (one, other) = comparable(&first.value, &again.value, shared);
    if let Some(path) = differs(&one, &other, "") {
        let hint = if first.is_definition() {
            "leave it to one of them: most charts have a switch for their definitions in `values`"
        } else {
            "remove one of them, or make both the same"
        };
        bail!(
            "`{}` is declared at {} and again, with another `{path}`, at {}\nhint: {hint}",
            first.title(),
            first.place,
            again.place
        );
    }
    if shared {
        for part in ["labels", "annotations"] {
            let Some(more) = again.value["metadata"][part].as_object().cloned() else { continue };
            if !first.value["metadata"][part].is_object() {
                first.value["metadata"][part] = Map::new().into();
            }
            for (key, value) in more {
                let all = first.value["metadata"][part].as_object_mut();
                if let Some(all) = all.filter(|all| !all.contains_key(&key)) {
                    all.insert(key, value);
                }
            }
        }
    }
    Ok(())
}

/// Both without what says whose they are. `shared`: labels and annotations that only one of them has do not count.
fn comparable(one: &Value, other: &Value, shared: bool) -> (Value, Value) {
    let (mut one, mut other) = (one.clone(), other.clone());
    for part in ["labels", "annotations"] {
        let keys = |object: &Value| -> Vec<String> {
            object["metadata"][part].as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default()
        };
        let (of_one, of_other) = (keys(&one), keys(&other));
        for object in [&mut one, &mut other] {
            let Some(metadata) = object["metadata"].as_object_mut() else { continue };
            let Some(Value::Object(mut all)) = metadata.shift_remove(part) else { continue };
            all.retain(|key, _| {
                let of_both = of_one.contains(key) && of_other.contains(key);
                let counts = !shared || (of_both && !OF_RELEASE.contains(&key.as_str()));
                counts && !OF_HELM.iter().any(|start| key.starts_with(start))
            });
            if !all.is_empty() {
                metadata.insert(part.to_owned(), all.into());
            }
        }
    }
    (one, other)
}

/// The first place where two values differ.
fn differs(a: &Value, b: &Value, path: &str) -> Option<String> {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            let value = |of: &Map<String, Value>, key: &str| of.get(key).cloned().unwrap_or_default();
            keys.find_map(|key| differs(&value(a, key), &value(b, key), &below(key)))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| differs(a, b, &format!("{path}[{i}]")))
        }
        _ => (a != b).then(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Object, merge};

    fn object(kind: &str, value: &Value) -> Object {
        let version = if kind == "CustomResourceDefinition" { "apiextensions.k8s.io/v1" } else { "v1" };
        let mut whole = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}});
        for (key, value) in value.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        Object { value: whole, place: "here".to_owned(), template: String::new() }
    }

    #[test]
    fn the_same_again_is_taken_once() {
        let labelled = |labels: Value| json!({"metadata": {"name": "a", "labels": labels}, "spec": {"group": "x"}});
        let mut first = object("CustomResourceDefinition", &labelled(json!({"app": "x", "helm.sh/chart": "a-1"})));
        let again =
            labelled(json!({"app": "x", "helm.sh/chart": "b-1", "app.kubernetes.io/instance": "b", "more": "y"}));
        merge(&mut first, &object("CustomResourceDefinition", &again)).expect("the same");
        assert_eq!(first.value["metadata"]["labels"]["helm.sh/chart"], "a-1");
        assert_eq!(first.value["metadata"]["labels"]["more"], "y");

        let mut first = object("Namespace", &json!({}));
        let again = object("Namespace", &json!({"metadata": {"name": "a", "labels": {"pod-security": "privileged"}}}));
        merge(&mut first, &again).expect("one says more");
        assert_eq!(first.value["metadata"]["labels"]["pod-security"], "privileged");
    }

    #[test]
    fn what_differs_is_named() {
        let labels = |value: &str| json!({"metadata": {"name": "a", "labels": {"x": value}}});
        for (kind, first, again, path) in [
            ("ConfigMap", json!({"data": {"a": "1"}}), json!({"data": {"a": "2"}}), "data.a"),
            ("ConfigMap", json!({"data": {"a": "1"}}), json!({"data": {"a": "1", "b": "1"}}), "data.b"),
            ("Service", json!({"ports": [{"p": 1}]}), json!({"ports": [{"p": 2}]}), "ports[0].p"),
            ("Namespace", labels("1"), labels("2"), "metadata.labels.x"),
            ("Secret", labels("1"), json!({}), "metadata.labels"),
            (
                "CustomResourceDefinition",
                json!({"spec": {"group": "x"}}),
                json!({"spec": {"group": "y"}}),
                "spec.group",
            ),
        ] {
            let error = merge(&mut object(kind, &first), &object(kind, &again)).expect_err("refused").to_string();
            assert!(error.contains(&format!("with another `{path}`")), "{error}");
        }
    }
}
