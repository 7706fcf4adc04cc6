//! YAML text to objects, as `kubectl` reads it. What is wrong is named with file, document and line.

use serde_json::Value;

use crate::store::hash;

/// One object, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The object.
    pub value: Value,
    /// `web.yaml, document 2, line 14`.
    pub place: String,
    /// Which file of a chart it is from, or empty: `web/templates/deployment.yaml`.
    pub template: String,
}

/// A text that holds something else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct DocumentError {
    /// File, document, line.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

impl Object {
    /// A text at the top of the object, or empty.
    pub fn text(&self, key: &str) -> &str {
        self.value[key].as_str().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Its namespace, or empty.
    pub fn namespace(&self) -> &str {
        self.value["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    /// As a person would say it: `Deployment web/app`.
    pub fn title(&self) -> String {
        let namespace = if self.namespace().is_empty() { String::new() } else { format!("{}/", self.namespace()) };
        format!("{} {namespace}{}", self.text("kind"), self.name())
    }

    /// Group of its API, empty for Kubernetes' first one.
    pub fn group(&self) -> &str {
        self.text("apiVersion").split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether it is a namespace.
    pub fn is_namespace(&self) -> bool {
        self.text("kind") == "Namespace" && self.group().is_empty()
    }

    /// Whether it defines a custom resource.
    pub fn is_definition(&self) -> bool {
        self.text("kind") == "CustomResourceDefinition" && self.group() == "apiextensions.k8s.io"
    }

    /// Whether Helm installs it before it renders: it lies in the folder `crds` of the chart, or of one below it.
    pub fn is_of_crds(&self) -> bool {
        let mut folders = self.template.split('/').skip(1);
        loop {
            match folders.next() {
                Some("charts") => drop(folders.next()),
                folder => return folder == Some("crds"),
            }
        }
    }

    /// An annotation, or empty.
    pub fn annotation(&self, key: &str) -> &str {
        self.value["metadata"]["annotations"][key].as_str().unwrap_or_default()
    }
}

/// One YAML document as a value, as Kubernetes' tools read it. Numbers and booleans are those of YAML 1.1: `0644` is
/// octal, `yes` is true. Of a key that stands twice the last value counts.
pub fn value(text: &str) -> Result<Value, String> {
    // What a build reads is the user's own: large CRDs are no attack.
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        strict_booleans: false,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        budget: None,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| agent_api::yaml::told(&error))
}

/// The objects of a text, lists taken apart. `file` is how messages name it.
pub fn read(text: &str, file: &str) -> Result<Vec<Object>, DocumentError> {
    let (mut objects, mut template, mut number) = (Vec::new(), String::new(), 0);
    for (line, document) in split(text) {
        // Helm says in a comment which file what follows is from; a file may begin with a document of comments only.
        if let Some(source) = source_of(document) {
            source.clone_into(&mut template);
        }
        if document.lines().all(|line| line.trim().is_empty() || line.starts_with('#')) {
            continue;
        }
        number += 1;
        let from = if template.is_empty() { file.to_owned() } else { format!("{file}: {template}") };
        let place = format!("{from}, document {number}, line {line}");
        let value = value(document)
            .map_err(|error| DocumentError { place: place.clone(), what: format!("this is no YAML: {error}") })?;
        if !value.is_null() {
            take(value, &Place { place, template: template.clone() }, &mut objects)?;
        }
    }
    Ok(objects)
}

/// Where objects stand.
struct Place {
    place: String,
    template: String,
}

impl Place {
    fn wrong(&self, what: impl Into<String>) -> DocumentError {
        DocumentError { place: self.place.clone(), what: what.into() }
    }
}

fn take(mut value: Value, at: &Place, objects: &mut Vec<Object>) -> Result<(), DocumentError> {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if !value.is_object() {
        return Err(at.wrong("expected an object with `apiVersion`, `kind` and `metadata.name`"));
    }
    for key in ["apiVersion", "kind"] {
        if !is_text(&value[key]) {
            return Err(at.wrong(format!("the object has no `{key}`")));
        }
    }
    let has_name = is_text(&value["metadata"]["name"]);
    let of_list = value["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).map(str::to_owned);
    if let Some(kind) = of_list.filter(|_| value["items"].is_array() || (value.get("items").is_some() && !has_name)) {
        return items(&mut value, &kind, at, objects);
    }
    if !has_name {
        let Some(name) = generated(&value) else {
            let kind = value["kind"].as_str().unwrap_or_default();
            return Err(at.wrong(format!("the {kind} has no `metadata.name`")));
        };
        value["metadata"]["name"] = name.into();
    }
    objects.push(Object { value, place: at.place.clone(), template: at.template.clone() });
    Ok(())
}

/// The items of a list. Those of a list of one kind need not say it (`ConfigMapList`).
fn items(list: &mut Value, kind: &str, at: &Place, objects: &mut Vec<Object>) -> Result<(), DocumentError> {
    let Value::Array(items) = list["items"].take() else { return Ok(()) };
    for (number, mut item) in items.into_iter().enumerate() {
        if let Some(item) = item.as_object_mut().filter(|_| !kind.is_empty()) {
            item.entry("apiVersion").or_insert_with(|| list["apiVersion"].clone());
            item.entry("kind").or_insert_with(|| kind.into());
        }
        let at = Place { place: format!("{}, item {}", at.place, number + 1), template: at.template.clone() };
        take(item, &at, objects)?;
    }
    Ok(())
}

/// A name for an object with `generateName`: the letters behind it are the same for the same object.
fn generated(object: &Value) -> Option<String> {
    let stem = object["metadata"]["generateName"].as_str().filter(|stem| !stem.is_empty())?;
    Some(format!("{stem}{}", &hash::bytes(object.to_string().as_bytes()).hex()[..5]))
}

/// Documents with the number of the line at which each begins. A line that begins with `---` always ends one.
fn split(text: &str) -> Vec<(usize, &str)> {
    let (mut documents, mut begin, mut first, mut at) = (Vec::new(), 0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let end = line.trim_end();
        if end == "---" || end.starts_with("--- ") {
            documents.push((first, &text[begin..at]));
            (begin, first) = (at + line.len(), number + 2);
        }
        at += line.len();
    }
    documents.push((first, &text[begin..]));
    documents
}

/// The file of a chart that a document is from, as Helm's comment says it.
fn source_of(document: &str) -> Option<&str> {
    let comments = document.lines().take_while(|line| line.starts_with('#') || line.trim().is_empty());
    comments.filter_map(|line| line.strip_prefix("# Source: ")).last()
}

#[cfg(test)]
mod tests {
    use super::{read, value};
    use serde_json::json;

    #[test]
    fn documents_and_lists_become_objects() {
        let text = "# a comment\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n---\n\n--- \napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: web}\ndata:\n  x: |\n    a\n     ---\n    b\n";
        let objects = read(text, "x.yaml").expect("objects");
        let titles: Vec<_> = objects.iter().map(super::Object::title).collect();
        assert_eq!(titles, ["Secret a", "ConfigMap web/b"]);
        assert_eq!(objects[0].place, "x.yaml, document 1, line 3, item 1");
        assert_eq!(objects[1].place, "x.yaml, document 2, line 10");
        assert_eq!(objects[1].value["data"]["x"], "a\n ---\nb\n");
    }

    #[test]
    fn values_are_those_that_kubernetes_reads() {
        let read = value(
            "a: 0644\nb: yes\nc: \"0644\"\nd: 1.10\ne: off\nf: 1e3\ng: ~\nh: \"yes\"\ni: 12Mi\nj: 0o17\nk: 1_000\nl: 0x1f\nm: .5\no: 2001-01-01\np: 12:30:45\n",
        );
        let expected = json!({"a": 420, "b": true, "c": "0644", "d": 1.1, "e": false, "f": 1000.0, "g": null,
            "h": "yes", "i": "12Mi", "j": 15, "k": 1000, "l": 31, "m": 0.5, "o": "2001-01-01", "p": "12:30:45"});
        assert_eq!(read.expect("YAML"), expected);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let good = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n";
        for (text, words) in [
            ("kind: Secret\nmetadata: {name: a}\n", "the object has no `apiVersion`"),
            ("apiVersion: v1\nmetadata: {name: a}\n", "the object has no `kind`"),
            ("apiVersion: v1\nkind: Secret\nmetadata: {generateName: \"\"}\n", "the Secret has no `metadata.name`"),
            ("- a\n", "expected an object"),
            ("a: [\n", "this is no YAML"),
            ("apiVersion: v1\nkind: List\nitems: [{metadata: {name: a}}]\n", "the object has no `apiVersion`"),
        ] {
            let error =
                read(&format!("{good}# Source: web/templates/x.yaml\n{text}"), "chart `web`").expect_err("wrong");
            let place = "chart `web`: web/templates/x.yaml, document 2, line 5";
            assert!(error.place.starts_with(place), "{error}");
            assert!(error.what.contains(words), "{error}");
        }
    }

    #[test]
    fn what_kubectl_and_helm_take_is_taken() {
        let twice = read(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: {x: one, x: two}\ndata:\n  k: a\n  k: b\n",
            "x",
        );
        let twice = twice.expect("objects").remove(0).value;
        assert_eq!((&twice["metadata"]["labels"]["x"], &twice["data"]["k"]), (&json!("two"), &json!("b")));

        let items = "items:\n- {metadata: {name: a}}\n- {kind: ConfigMap, apiVersion: v1, metadata: {name: b}}\n";
        let list =
            read(&format!("apiVersion: v1\nkind: ConfigMapList\nmetadata: {{}}\n{items}"), "x").expect("objects");
        assert_eq!(list.iter().map(super::Object::title).collect::<Vec<_>>(), ["ConfigMap a", "ConfigMap b"]);
        for empty in ["items: []", "items:", "items: null"] {
            assert_eq!(read(&format!("apiVersion: v1\nkind: List\n{empty}\n"), "x").expect("nothing"), []);
        }
        let own = "apiVersion: example.org/v1\nkind: AllowList\nmetadata: {name: a}\nitems: \n";
        assert_eq!(read(own, "x").expect("objects")[0].title(), "AllowList a");

        let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: migrate-}\nspec: {a: %}\n";
        let name = |spec: &str| read(&job.replace('%', spec), "x").expect("objects")[0].name().to_owned();
        assert_eq!(name("1"), name("1"));
        assert!(name("1") != name("2") && name("1").starts_with("migrate-"), "{}", name("1"));

        let merged = value("a: &a {b: 1, c: 2}\nd:\n  <<: *a\n  c: 3\n").expect("YAML");
        assert_eq!(merged["d"], json!({"b": 1, "c": 3}));
    }

    #[test]
    fn what_lies_in_a_folder_for_definitions_is_known() {
        let text = "---\n# Source: web/crds/a.yaml\n# made by a generator\n---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n---\napiVersion: v1\nkind: A\nmetadata: {name: b}\n---\n# Source: web/charts/sub/crds/a.yaml\napiVersion: v1\nkind: A\nmetadata: {name: c}\n---\n# Source: web/templates/crds/a.yaml\napiVersion: v1\nkind: A\nmetadata: {name: d}\n";
        let objects = read(text, "chart `web`").expect("objects");
        let told: Vec<_> = objects.iter().map(|object| (object.name(), object.is_of_crds())).collect();
        assert_eq!(told, [("a", true), ("b", true), ("c", true), ("d", false)]);
        assert_eq!(objects[1].place, "chart `web`: web/crds/a.yaml, document 2, line 9");
    }
}
