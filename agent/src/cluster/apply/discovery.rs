//! The path of an object of any kind, custom ones included. The API server is asked, once for each group.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::super::api::ApiError;
use super::ObjectApi;

/// Why a kind has no path.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The API server.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Neither Kubernetes nor a custom resource definition knows it.
    #[error("the cluster knows no `{kind}` of `{version}`")]
    Unknown {
        /// `group/version`.
        version: String,
        /// Kind.
        kind: String,
    },
}

/// Where objects of a kind lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// `deployments`.
    pub plural: String,
    /// Whether they lie in namespaces.
    pub namespaced: bool,
}

/// Kinds by name.
type Kinds = BTreeMap<String, Resource>;

/// What is known so far.
#[derive(Debug, Default)]
pub struct Discovery {
    versions: Mutex<BTreeMap<String, Kinds>>,
}

impl Discovery {
    /// Where objects of that kind lie. A kind that is not known yet is asked for each time: its definition may be new.
    pub async fn find(&self, api: &impl ObjectApi, version: &str, kind: &str) -> Result<Resource, DiscoveryError> {
        if let Some(found) = self.known(version, kind) {
            return Ok(found);
        }
        let list = api.get(&root_of(version)).await?.unwrap_or_default();
        let kinds = kinds_of(&list);
        let found = kinds.get(kind).cloned();
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).insert(version.to_owned(), kinds);
        found.ok_or_else(|| DiscoveryError::Unknown { version: version.to_owned(), kind: kind.to_owned() })
    }

    fn known(&self, version: &str, kind: &str) -> Option<Resource> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.get(version)?.get(kind).cloned()
    }
}

impl Resource {
    /// Path of an object of this kind.
    pub fn path(&self, version: &str, namespace: &str, name: &str) -> String {
        let (root, plural) = (root_of(version), &self.plural);
        if self.namespaced {
            format!("{root}/namespaces/{namespace}/{plural}/{name}")
        } else {
            format!("{root}/{plural}/{name}")
        }
    }

    /// Path of all objects of this kind in a namespace.
    pub fn collection(&self, version: &str, namespace: &str) -> String {
        let path = self.path(version, namespace, "");
        path.trim_end_matches('/').to_owned()
    }
}

/// Kubernetes' own first group has no name and lies elsewhere.
fn root_of(version: &str) -> String {
    format!("/{}/{version}", if version.contains('/') { "apis" } else { "api" })
}

/// The kinds of an `APIResourceList`; parts of objects, such as `deployments/scale`, are left out.
fn kinds_of(list: &Value) -> Kinds {
    let resources = list["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    let own = resources.iter().filter_map(|resource| {
        let plural = resource["name"].as_str().filter(|name| !name.contains('/'))?;
        let kind = resource["kind"].as_str()?;
        let namespaced = resource["namespaced"] == true;
        Some((kind.to_owned(), Resource { plural: plural.to_owned(), namespaced }))
    });
    own.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Resource, kinds_of};

    #[test]
    fn parts_of_objects_are_no_kinds_of_their_own() {
        let list = json!({"resources": [
            {"name": "deployments/scale", "kind": "Scale", "namespaced": true},
            {"name": "deployments", "kind": "Deployment", "namespaced": true},
            {"name": "deployments/status", "kind": "Deployment", "namespaced": true},
        ]});
        let deployment = Resource { plural: "deployments".to_owned(), namespaced: true };
        assert_eq!(kinds_of(&list), [("Deployment".to_owned(), deployment)].into());
    }

    #[test]
    fn every_kind_has_its_path() {
        let resource = |plural: &str, namespaced| Resource { plural: plural.to_owned(), namespaced };
        assert_eq!(resource("pods", true).path("v1", "web", "a"), "/api/v1/namespaces/web/pods/a");
        assert_eq!(resource("crds", false).path("x.org/v1", "", "a"), "/apis/x.org/v1/crds/a");
        assert_eq!(resource("pods", true).collection("v1", "web"), "/api/v1/namespaces/web/pods");
    }
}
