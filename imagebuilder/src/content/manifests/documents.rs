//! YAML text to objects, as `kubectl` reads it. What is wrong is named with file, document and line.

use serde_json::Value;

/// One object, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The object.
    pub value: Value,
    /// `web.yaml, document 2, line 14`.
    pub place: String,
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

    /// An annotation, or empty.
    pub fn annotation(&self, key: &str) -> &str {
        self.value["metadata"]["annotations"][key].as_str().unwrap_or_default()
    }
}

/// One YAML document as a value. Numbers and booleans are those of YAML 1.1, as Kubernetes reads them: `0644` is octal,
/// `yes` is true.
pub fn value(text: &str) -> Result<Value, String> {
    // What a build reads is the user's own: large CRDs are no attack.
    let options = serde_saphyr::options! { legacy_octal_numbers: true, strict_booleans: false, budget: None };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

/// The objects of a text, lists taken apart. `file` is how messages name it.
pub fn read(text: &str, file: &str) -> Result<Vec<Object>, DocumentError> {
    let mut objects = Vec::new();
    for (number, (line, document)) in split(text).into_iter().enumerate() {
        let place = format!("{}, document {}, line {line}", source_of(document, file), number + 1);
        let wrong = |what: String| DocumentError { place: place.clone(), what };
        let value = value(document).map_err(|error| wrong(format!("this is no YAML: {error}")))?;
        if !value.is_null() {
            take(value, &place, &mut objects)?;
        }
    }
    Ok(objects)
}

fn take(value: Value, place: &str, objects: &mut Vec<Object>) -> Result<(), DocumentError> {
    let wrong = |what: &str| DocumentError { place: place.to_owned(), what: what.to_owned() };
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if !value.is_object() {
        return Err(wrong("expected an object with `apiVersion`, `kind` and `metadata.name`"));
    }
    for key in ["apiVersion", "kind"] {
        if !is_text(&value[key]) {
            return Err(wrong(&format!("the object has no `{key}`")));
        }
    }
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    if let Some(items) = value["items"].as_array().filter(|_| is_list) {
        return items.iter().try_for_each(|item| take(item.clone(), place, objects));
    }
    if !is_text(&value["metadata"]["name"]) {
        let kind = value["kind"].as_str().unwrap_or_default();
        return Err(wrong(&format!("the {kind} has no `metadata.name`")));
    }
    objects.push(Object { value, place: place.to_owned() });
    Ok(())
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
    documents.retain(|(_, document)| document.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#')));
    documents
}

/// Helm says in a comment which template a document is from.
fn source_of<'a>(document: &'a str, file: &'a str) -> String {
    let source = document.lines().take_while(|line| line.starts_with('#') || line.trim().is_empty());
    let source = source.filter_map(|line| line.strip_prefix("# Source: ")).last();
    source.map_or_else(|| file.to_owned(), |template| format!("{file}: {template}"))
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
            ("apiVersion: v1\nkind: Secret\nmetadata: {generateName: a-}\n", "the Secret has no `metadata.name`"),
            ("- a\n", "expected an object"),
            ("a: [\n", "this is no YAML"),
            ("a: 1\na: 2\n", "this is no YAML"),
        ] {
            let error =
                read(&format!("{good}# Source: web/templates/x.yaml\n{text}"), "chart `web`").expect_err("wrong");
            assert_eq!(error.place, "chart `web`: web/templates/x.yaml, document 2, line 5");
            assert!(error.what.contains(words), "{error}");
        }
    }
}
