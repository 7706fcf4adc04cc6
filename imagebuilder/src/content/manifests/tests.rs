use super::documents::{self, Object};
use super::inputs::{ChartFiles, ChartInput, Origin, Source};
use super::sets::{Sets, api_versions};
use crate::store::hash;

fn objects(text: &str) -> Vec<Object> {
    documents::read(text, "x.yaml").expect("objects")
}

fn source(name: &str, namespace: &str, origin: Origin) -> Source {
    let title = format!("manifests `{name}`");
    Source { title, name: name.to_owned(), namespace: namespace.to_owned(), origin, digest: hash::bytes(b"") }
}

fn manifests(name: &str) -> Source {
    source(name, "default", Origin::Manifests(Vec::new()))
}

fn chart(name: &str) -> Source {
    let chart = ChartInput { from: ChartFiles::Archive("web.tgz".into()), values: None };
    source(name, "apps", Origin::Chart(chart))
}

fn sets(all: &[(Source, &str)]) -> anyhow::Result<Sets> {
    Sets::of(all.iter().map(|(source, text)| (source, objects(text))).collect(), &[])
}

/// `kind name` of every object of each file, with its namespace.
fn told(sets: &Sets) -> Vec<(String, Vec<String>)> {
    let files = sets.files().expect("files");
    let titles = |text: &str| objects(text).iter().map(Object::title).collect();
    files.iter().map(|(path, text)| (path.clone(), titles(text))).collect()
}

fn expect(sets: &Sets, expected: &[(&str, &[&str])]) {
    let told = told(sets);
    let told: Vec<(&str, Vec<&str>)> =
        told.iter().map(|(path, all)| (path.as_str(), all.iter().map(String::as_str).collect())).collect();
    let expected: Vec<_> = expected.iter().map(|(path, all)| (*path, all.to_vec())).collect();
    assert_eq!(told, expected);
}

const WIDGETS: &str = "---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec: {group: example.org, scope: Cluster, names: {kind: Widget}, versions: [{name: v1, served: true}, {name: v0, served: false}]}
";

#[test]
fn what_others_need_comes_first_and_namespaces_are_made() {
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
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
";
    let all = sets(&[(manifests("base"), &format!("{text}{WIDGETS}"))]).expect("sets");
    let expected: &[&str] = &[
        "Namespace web",
        "CustomResourceDefinition widgets.example.org",
        "Widget w",
        "Deployment web/d",
        "ClusterRole r",
        "ConfigMap default/c",
    ];
    expect(&all, &[("manifests/01-base.yaml", expected)]);
}

#[test]
fn definitions_and_api_services_add_to_the_api() {
    let service = "---\napiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1beta1.metrics.k8s.io}\nspec: {group: metrics.k8s.io, version: v1beta1}\n";
    let versions = api_versions(&objects(&format!("{WIDGETS}{service}")));
    assert_eq!(
        versions.into_iter().collect::<Vec<_>>(),
        ["example.org/v1", "example.org/v1/Widget", "metrics.k8s.io/v1beta1"]
    );
}

#[test]
fn namespaces_and_definitions_of_a_later_source_come_before_what_needs_them() {
    let early = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: web}\n---\napiVersion: example.org/v1\nkind: Widget\nmetadata: {name: w}\n";
    let late = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: web, labels: {{a: b}}}}\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: t, namespace: web}}\n{WIDGETS}"
    );
    let all = sets(&[(manifests("a"), early), (chart("b"), &late)]).expect("sets");
    let first: &[&str] = &["Namespace web", "CustomResourceDefinition widgets.example.org", "Secret web/s", "Widget w"];
    expect(&all, &[("manifests/01-a.yaml", first), ("manifests/02-b.yaml", &["Secret web/t"])]);
    assert!(all.files().expect("files")[0].1.contains("\"a\": \"b\""), "the declared one, not one of ours");
}

fn hook(kind: &str, name: &str, hook: &str, weight: &str) -> String {
    let version = if kind == "Job" { "batch/v1" } else { "v1" };
    format!(
        "---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, annotations: {{helm.sh/hook: \"{hook}\", helm.sh/hook-weight: \"{weight}\"}}}}\n"
    )
}

#[test]
fn hooks_become_sets_of_their_own_in_order_of_their_weight() {
    let text = [
        hook("Job", "late", "post-install,post-upgrade", "0"),
        hook("Job", "second", "pre-install", "5"),
        hook("Job", "first", "pre-install, pre-upgrade", "-5"),
        hook("Job", "never", "pre-delete", "0"),
        "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n".to_owned(),
    ];
    expect(
        &sets(&[(chart("web"), &text.concat())]).expect("sets"),
        &[
            ("manifests/01-web-before.yaml", &["Namespace apps", "Job apps/first", "Job apps/second"]),
            ("manifests/02-web.yaml", &["Secret apps/s"]),
            ("manifests/03-web-after.yaml", &["Job apps/late"]),
        ],
    );
}

#[test]
fn a_hook_for_before_and_after_is_there_from_the_first_time_on_and_runs_twice() {
    let both = "pre-install,pre-upgrade,post-install,post-upgrade";
    let text = [hook("ServiceAccount", "admission", both, "0"), hook("Job", "check", both, "0")];
    expect(
        &sets(&[(chart("web"), &text.concat())]).expect("sets"),
        &[
            ("manifests/01-web-before.yaml", &["Namespace apps", "ServiceAccount apps/admission", "Job apps/check"]),
            ("manifests/02-web-after.yaml", &["Job apps/check-after"]),
        ],
    );
}

#[test]
fn an_object_that_is_declared_twice_is_one_or_refused_with_both_places() {
    let text = |data: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: s}}\ndata: {{a: {data}}}\n");
    let whole = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s, namespace: default}\ndata: {a: x}\n";
    let same = sets(&[(manifests("a"), whole), (manifests("b"), &text("x"))]).expect("sets");
    expect(&same, &[("manifests/01-a.yaml", &["ConfigMap default/s"])]);
    let error = sets(&[(manifests("a"), whole), (manifests("b"), &text("z"))]).expect_err("refused").to_string();
    let expected = "`ConfigMap default/s` is declared at x.yaml, document 1, line 1 and again, with another `data.a`, at \
                    x.yaml, document 1, line 1";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn kinds_of_the_box_that_lie_in_no_namespace_get_none() {
    let text = "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: w}\n";
    let kind = ("example.org".to_owned(), "Widget".to_owned());
    let all = Sets::of(vec![(&manifests("a"), objects(text))], &[kind]).expect("sets");
    expect(&all, &[("manifests/01-a.yaml", &["Widget w"])]);
}
