use super::documents::{self, Object};
use super::inputs::{Origin, Source};
use super::sets::Sets;
use crate::config::Chart;
use crate::store::hash;

fn objects(text: &str) -> Vec<Object> {
    documents::read(text, "x.yaml").expect("objects")
}

fn source(name: &str, namespace: &str, origin: Origin) -> Source {
    let title = format!("manifests `{name}`");
    Source { title, name: name.to_owned(), namespace: namespace.to_owned(), origin, digest: hash::bytes(b"") }
}

fn manifests(name: &str) -> Source {
    source(name, "default", Origin::Files(Vec::new()))
}

fn chart(name: &str) -> Source {
    let chart = Chart {
        name: name.parse().expect("a name"),
        namespace: "apps".parse().expect("a name"),
        chart: "web".into(),
        values: None,
    };
    source(name, "apps", Origin::Chart(chart))
}

/// `kind name` of every object of each file, with its namespace.
fn told(sets: &Sets) -> Vec<(String, Vec<String>)> {
    let files = sets.files().expect("files");
    let titles = |text: &str| objects(text).iter().map(Object::title).collect();
    files.iter().map(|(path, text)| (path.clone(), titles(text))).collect()
}

#[test]
fn what_others_need_comes_first_and_namespaces_are_made() {
    let mut sets = Sets::default();
    let text = "
apiVersion: example.org/v1
kind: Widget
metadata: {name: w}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: web}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: r, namespace: wrong}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec: {group: example.org, scope: Cluster, names: {kind: Widget}, versions: [{name: v1, served: true}, {name: v0, served: false}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
";
    sets.add(&manifests("base"), objects(text)).expect("added");
    let expected = [
        "Namespace web",
        "CustomResourceDefinition widgets.example.org",
        "Widget w",
        "Deployment web/d",
        "ClusterRole r",
        "ConfigMap default/c",
    ];
    assert_eq!(told(&sets), [("manifests/01-base.yaml".to_owned(), expected.map(str::to_owned).to_vec())]);
    assert_eq!(sets.api_versions(), ["example.org/v1", "example.org/v1/Widget"]);
}

#[test]
fn hooks_become_sets_of_their_own_in_order_of_their_weight() {
    let hook = |name: &str, hook: &str, weight: &str| {
        format!(
            "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, annotations: {{helm.sh/hook: \"{hook}\", helm.sh/hook-weight: \"{weight}\"}}}}\n"
        )
    };
    let text = [
        hook("late", "post-install,post-upgrade", "0"),
        hook("second", "pre-install", "5"),
        hook("first", "pre-install, pre-upgrade", "-5"),
        hook("never", "pre-delete", "0"),
        "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n".to_owned(),
    ];
    let mut sets = Sets::default();
    sets.add(&chart("web"), objects(&text.concat())).expect("added");
    let expected = [
        ("manifests/01-web-before.yaml", vec!["Namespace apps", "Job apps/first", "Job apps/second"]),
        ("manifests/02-web.yaml", vec!["Secret apps/s"]),
        ("manifests/03-web-after.yaml", vec!["Job apps/late"]),
    ];
    let found = told(&sets);
    for ((path, titles), (expected_path, expected)) in found.iter().zip(expected) {
        assert_eq!((path.as_str(), titles.iter().map(String::as_str).collect::<Vec<_>>()), (expected_path, expected));
    }
    assert_eq!(found.len(), 3);
    let both = hook("both", "pre-install,post-install", "0");
    let error = Sets::default().add(&chart("web"), objects(&both)).expect_err("refused").to_string();
    assert!(error.contains("`Job both` runs both before and after"), "{error}");
}

#[test]
fn an_object_that_is_declared_twice_is_refused_with_both_places() {
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: default}\n";
    let mut sets = Sets::default();
    sets.add(&manifests("a"), objects(text)).expect("added");
    let error = sets.add(&manifests("b"), objects("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"));
    let error = error.expect_err("refused").to_string();
    let expected =
        "`Secret default/s` is declared at x.yaml, document 1, line 1 and again at x.yaml, document 1, line 1";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_namespace_that_comes_too_late_is_refused() {
    let mut sets = Sets::default();
    sets.add(&manifests("a"), objects("apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: web}\n"))
        .expect("added");
    let late = "apiVersion: v1\nkind: Namespace\nmetadata: {name: web, labels: {a: b}}\n";
    let error = sets.add(&manifests("b"), objects(late)).expect_err("refused").to_string();
    assert!(error.contains("`Namespace web` is declared at something that lies in it"), "{error}");
}
