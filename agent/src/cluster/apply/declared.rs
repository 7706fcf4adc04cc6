//! Objects as they are declared: files `<nn>-<name>.yaml`, such as those in `manifests/` of a release's content.
//!
//! Each file is a set. Its documents are JSON behind lines of `---`, as the builder writes them.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Field manager of applied objects.
pub const FIELD_MANAGER: &str = "foothold";
/// Label of every applied object; its value is the name of the set.
pub const SET_LABEL: &str = "foothold.dev/set";
/// Annotation of Helm's hooks: objects that are applied before or after the rest of their chart.
const HOOK: &str = "helm.sh/hook";

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Id {
    /// `apps/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Id {
    /// The object that `object` is.
    pub fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Self {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
        }
    }

    /// Group, without the version: the same object may be declared under a newer one.
    fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether both are one object.
    pub fn is_same(&self, other: &Self) -> bool {
        let all = |id: &'_ Self| (id.group().to_owned(), id.kind.clone(), id.namespace.clone(), id.name.clone());
        all(self) == all(other)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{}", self.kind, self.namespace, self.name)
    }
}

/// An object as it is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Which.
    pub id: Id,
    /// Name of its set.
    pub set: String,
    /// A hook waits until what stands before it is healthy; what stands after a hook waits until the hook is healthy.
    pub hook: bool,
    /// All of it, labelled.
    pub object: Value,
}

impl Declared {
    /// The chart that it belongs to: a hook's set bears its name with `-before` or `-after` behind it.
    pub fn chart(&self) -> &str {
        let hooks = ["-before", "-after"].iter().find_map(|ending| self.set.strip_suffix(ending));
        hooks.filter(|_| self.hook).unwrap_or(&self.set)
    }
}

/// A file that is not what the builder writes.
#[derive(Debug, thiserror::Error)]
#[error("document {document} of `{path}` is no object: {source}")]
pub struct DeclaredError {
    path: String,
    document: usize,
    source: serde_json::Error,
}

/// The objects of a file, in order. `path` is `manifests/01-web.yaml`.
pub fn read(path: &str, text: &str) -> Result<Vec<Declared>, DeclaredError> {
    let file = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".yaml");
    let set = file.split_once('-').map_or(file, |(_, name)| name);
    let documents = text.split("\n---\n").enumerate().skip(1);
    let objects = documents.map(|(document, text)| {
        let wrong = |source| DeclaredError { path: path.to_owned(), document, source };
        Ok(declared(serde_json::from_str(text).map_err(wrong)?, set))
    });
    objects.collect()
}

/// An object of a set, labelled.
pub fn declared(mut object: Value, set: &str) -> Declared {
    let hook = object["metadata"]["annotations"][HOOK].is_string();
    let metadata = &mut object["metadata"];
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    metadata["labels"][SET_LABEL] = set.into();
    // The API server refuses an apply that names the fields' managers itself.
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.shift_remove("managedFields");
    }
    Declared { id: Id::of(&object), set: set.to_owned(), hook, object }
}

#[cfg(test)]
pub(super) mod tests {
    use super::read;

    pub(in super::super) const TEXT: &str = "# chart `web`\n---\n{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"Secret\",\n  \"metadata\": {\"name\": \"a\", \"namespace\": \"web\"},\n  \"data\": {\"x\": \"a\\n---\\nb\"}\n}\n---\n{\"apiVersion\": \"batch/v1\", \"kind\": \"Job\", \"metadata\": {\"name\": \"j\", \"annotations\": {\"helm.sh/hook\": \"pre-install\"}}}\n";

    #[test]
    fn a_file_is_a_set_of_labelled_objects() {
        let objects = read("manifests/07-web-shop.yaml", TEXT).expect("objects");
        let told: Vec<_> = objects.iter().map(|one| (one.id.to_string(), one.set.as_str(), one.hook)).collect();
        assert_eq!(told, [("Secret web/a".to_owned(), "web-shop", false), ("Job j".to_owned(), "web-shop", true)]);
        assert_eq!(objects[0].object["metadata"]["labels"]["foothold.dev/set"], "web-shop");
        assert_eq!(objects[0].object["data"]["x"], "a\n---\nb");
        let error = read("manifests/01-a.yaml", "#\n---\n{\n").expect_err("wrong").to_string();
        assert!(error.starts_with("document 1 of `manifests/01-a.yaml` is no object"), "{error}");
    }
}
