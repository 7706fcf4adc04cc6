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
        is_in_crds(&self.template)
    }

    /// An annotation, or empty.
    pub fn annotation(&self, key: &str) -> &str {
        self.value["metadata"]["annotations"][key].as_str().unwrap_or_default()
    }
}

fn is_in_crds(template: &str) -> bool {
    let mut folders = template.split('/').skip(1);
    loop {
        match folders.next() {
            Some("charts") => drop(folders.next()),
            folder => return folder == Some("crds"),
        }
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
    read_parts(text, file, &|_| true)
}

/// The objects of a chart as `helm template --include-crds` prints it. `crds` are those of `helm show crds`: Helm prints
/// the folders `crds` first and as they are, so that a comment in them may look like one of its own.
pub fn read_chart(text: &str, file: &str, crds: &[Object]) -> Result<Vec<Object>, DocumentError> {
    // The first comment is Helm's. All of them begin with the folder of the chart, those of its parts, too.
    let first = split(text).iter().find_map(|part| source_of(part)).unwrap_or_default();
    let folder = first.split_once('/').map_or("", |(folder, _)| folder);
    let mut objects =
        read_parts(text, file, &|source| source.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))?;
    let mut last = if is_in_crds(first) { first.to_owned() } else { String::new() };
    for object in &mut objects {
        if object.is_of_crds() {
            last.clone_from(&object.template);
        } else if !last.is_empty() && crds.iter().any(|other| other.value == object.value) {
            object.template.clone_from(&last);
        } else {
            break;
        }
    }
    Ok(objects)
}

/// The objects of a text. `is_source` tells which files of a chart comments may name.
fn read_parts(text: &str, file: &str, is_source: &dyn Fn(&str) -> bool) -> Result<Vec<Object>, DocumentError> {
    let (mut objects, mut template, mut number) = (Vec::new(), String::new(), 0);
    for part in split(text) {
        let (line, document) = (part.line, part.text);
        // Helm says in a comment which file what follows is from; a file may begin with a document of comments only.
        if let Some(source) = source_of(&part).filter(|source| is_source(source)) {
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

/// A document of a text.
struct Part<'a> {
    /// Line at which it begins.
    line: usize,
    /// All of it.
    text: &'a str,
    /// Whether a separator stands before it.
    separated: bool,
}

/// The documents of a text. A line that begins with `---` always ends one. What stands behind that on the same line
/// begins the next one (YAML 1.2.2, 9.1.4); then the line is a part of it.
fn split(text: &str) -> Vec<Part<'_>> {
    let (mut parts, mut begin, mut first, mut separated, mut at) = (Vec::new(), 0, 1, false, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if let Some(rest) =
            line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        {
            parts.push(Part { line: first, text: &text[begin..at], separated });
            let rest = rest.trim_start();
            let alone = rest.is_empty() || rest.starts_with('#');
            (begin, first) = if alone { (at + line.len(), number + 2) } else { (at, number + 1) };
            separated = true;
        }
        at += line.len();
    }
    parts.push(Part { line: first, text: &text[begin..], separated });
    parts
}

/// The file of a chart that a document is from, as Helm says it in the first line behind a separator.
fn source_of<'a>(part: &Part<'a>) -> Option<&'a str> {
    part.text.lines().next().filter(|_| part.separated)?.strip_prefix("# Source: ")
}

#[cfg(test)]
mod tests {
    use super::{Object, read, read_chart, value};
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
        let objects = read_chart(text, "chart `web`", &[]).expect("objects");
        let told: Vec<_> = objects.iter().map(|object| (object.name(), object.is_of_crds())).collect();
        assert_eq!(told, [("a", true), ("b", true), ("c", true), ("d", false)]);
        assert_eq!(objects[1].place, "chart `web`: web/crds/a.yaml, document 2, line 9");
    }

    /// `helm template other > crds/all.yaml` writes comments as Helm writes them for the chart that has the file.
    #[test]
    fn a_comment_in_a_folder_for_definitions_does_not_move_what_follows_out_of_it() {
        let object = |name: &str| format!("apiVersion: v1\nkind: A\nmetadata: {{name: {name}}}\n");
        let (a, b, c, d) = (object("a"), object("b"), object("c"), object("d"));
        let told = |objects: &[Object]| -> Vec<(String, bool)> {
            objects.iter().map(|object| (object.name().to_owned(), object.is_of_crds())).collect()
        };
        let expected = [("a", true), ("b", true), ("c", false), ("d", false)].map(|(name, of)| (name.to_owned(), of));
        // That of another chart, and that of one with the same name.
        for other in ["other", "web"] {
            let crds =
                format!("---\n# Source: {other}/templates/a.yaml\n{a}---\n# Source: {other}/templates/b.yaml\n{b}");
            let text = format!(
                "---\n# Source: web/crds/all.yaml\n{crds}\n---\n# Source: web/templates/c.yaml\n# Source: web/crds/x.yaml\n{c}\
                 ---\n# Source: web/charts/sub/templates/d.yaml\n# a comment\n{d}"
            );
            let crds = read(&crds, "chart `web`").expect("objects");
            assert_eq!(told(&read_chart(&text, "chart `web`", &crds).expect("objects")), expected, "{other}");
        }
        // What a template makes of the same object is not in the folder, unless Helm prints it there.
        let text = format!("---\n# Source: web/templates/c.yaml\n{c}---\n# Source: web/templates/a.yaml\n{a}");
        let crds = read(&a, "chart `web`").expect("objects");
        let told = told(&read_chart(&text, "chart `web`", &crds).expect("objects"));
        assert_eq!(told.iter().filter(|(_, of)| *of).count(), 0, "{told:?}");
    }

    #[test]
    fn what_stands_behind_a_separator_begins_the_next_document() {
        let a = "{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"metadata\": {\"name\": \"a\"}}";
        let b = a.replace("\"a\"", "\"b\"");
        for text in [
            format!("--- {a}\n--- {b}\n"),
            format!("{a}\n---\t{b}\n"),
            format!("--- # a comment\n{a}\n---\n{b}"),
            format!("--- !!map {a}\n--- # a comment\n{b}\n---"),
            format!("---\r\n{a}\r\n--- \r\n{b}\r\n"),
        ] {
            let objects = read(&text, "x").unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(objects.iter().map(Object::name).collect::<Vec<_>>(), ["a", "b"], "{text}");
        }
        let places = read(&format!("--- {a}\n\n--- {b}\n"), "x").expect("objects");
        assert_eq!([&places[0].place, &places[1].place], ["x, document 1, line 1", "x, document 2, line 3"]);
        let block = "--- apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n";
        for wrong in [block, "--- a text\n", "--- |\n  a text\n", &format!("---{a}\n")] {
            let error = read(&format!("{a}\n{wrong}"), "x").expect_err("no object");
            assert!(error.place.starts_with("x, document "), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_document_that_ends_before_another_one_is_not_lost() {
        let object = |name: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\n");
        let read = |text: &str| read(text, "x").map(|objects| objects.len());
        assert_eq!(read(&format!("{}...\n", object("a"))), Ok(1));
        assert_eq!(read(&format!("{}...\n---\n{}", object("a"), object("b"))), Ok(2));
        assert_ne!(read(&format!("{}...\n{}", object("a"), object("b"))), Ok(1));
    }
}
