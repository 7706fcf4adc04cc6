//! Objects of the cluster that controllers read and write.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Namespace and name.
pub type Key = (String, String);

/// An object as status and messages name it: `namespace/name`.
pub fn told_key((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}

/// Namespace and name of an object of which only the metadata is known.
pub fn key_of(meta: &ObjectMeta) -> Key {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// A text of a Secret, if the key is there and is a text.
pub fn text_of(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok()
}

/// An object of a namespace.
pub trait Object:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Namespace and name.
    fn key(&self) -> Key {
        (self.namespace().unwrap_or_default(), self.name_any())
    }

    /// Whether it is being deleted.
    fn leaves(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// Whether it has a finalizer.
    fn held_by(&self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|one| one == finalizer)
    }
}

impl<K> Object for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The API server refused or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
pub struct ObjectError {
    doing: String,
    #[source]
    source: kube::Error,
}

impl ObjectError {
    /// Whether another writer changed the object first: the decision has to be made again, on the newer object.
    pub fn is_stale(&self) -> bool {
        self.is(409)
    }

    /// Whether the object is gone.
    pub fn is_gone(&self) -> bool {
        self.is(404)
    }

    /// Whether what was written is refused, by the API server or a webhook: it would be refused again.
    pub fn is_refused(&self) -> bool {
        [400, 403, 422].into_iter().any(|code| self.is(code))
    }

    fn is(&self, code: u16) -> bool {
        matches!(&self.source, kube::Error::Api(status) if status.code == code)
    }

    /// The same, and also true if the object is gone: somebody deleted it first.
    #[must_use]
    pub fn gone_is_stale(mut self) -> Self {
        if let kube::Error::Api(status) = &mut self.source
            && status.code == 404
        {
            status.code = 409;
        }
        self
    }
}

/// What was being done when the API server did not do it.
pub fn doing(what: impl Into<String>) -> impl FnOnce(kube::Error) -> ObjectError {
    let doing = what.into();
    |source| ObjectError { doing, source }
}

/// An action and the object it is done to, for an error.
pub fn what<K: Object>(verb: &str, object: &K) -> String {
    let (namespace, name) = object.key();
    format!("{verb} {} `{namespace}/{name}`", K::kind(&()))
}

/// The objects.
#[derive(Clone)]
pub struct Objects {
    client: Client,
    /// Secrets, as far as they are watched.
    secrets: Store<Secret>,
}

impl Objects {
    /// Those of a cluster. `secrets`: the ones that are watched.
    pub const fn new(client: Client, secrets: Store<Secret>) -> Self {
        Self { client, secrets }
    }

    /// Objects of a kind in a namespace.
    pub fn api<K: Object>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// An object as it is now.
    pub async fn get<K: Object>(&self, namespace: &str, name: &str) -> Result<Option<K>, ObjectError> {
        let what = || format!("reading {} `{namespace}/{name}`", K::kind(&()));
        self.api::<K>(namespace).get_opt(name).await.map_err(doing(what()))
    }

    /// Version of an object: each change of the object makes a new one.
    pub async fn version<K: Object>(&self, namespace: &str, name: &str) -> Result<Option<String>, ObjectError> {
        Ok(self.get::<K>(namespace, name).await?.and_then(|object| object.resource_version()))
    }

    /// A Secret: as it is watched, else as it is.
    pub async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>, ObjectError> {
        match self.secrets.get(&ObjectRef::new(name).within(namespace)) {
            Some(secret) => Ok(Some((*secret).clone())),
            None => self.get(namespace, name).await,
        }
    }

    /// Deletes an object, and behind it what it owns. One that is not there is as good.
    pub async fn delete<K: Object>(&self, namespace: &str, name: &str) -> Result<(), ObjectError> {
        let deleted = self.api::<K>(namespace).delete(name, &DeleteParams::background()).await;
        let deleted = deleted.map_err(doing(format!("deleting {} `{namespace}/{name}`", K::kind(&()))));
        match deleted {
            Err(error) if error.is_gone() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Applies an object's fields as `manager` (server-side apply), also fields that another manager owns. The object is
    /// created if it does not exist.
    pub async fn apply<K: Object>(&self, object: &K, manager: &str) -> Result<K, ObjectError> {
        let (namespace, name) = object.key();
        let params = PatchParams::apply(manager).force();
        let applied = self.api::<K>(&namespace).patch(&name, &params, &Patch::Apply(object)).await;
        applied.map_err(doing(what("writing", object)))
    }

    /// Writes the status that an object has here, unless the object was changed in between.
    pub async fn write_status<K: Object>(&self, object: &K) -> Result<K, ObjectError> {
        let (namespace, name) = object.key();
        let written = self.api::<K>(&namespace).replace_status(&name, &PostParams::default(), object).await;
        written.map_err(doing(what("writing the status of", object)))
    }

    /// Merges something into an object's status, even if the object was changed in between.
    pub async fn merge_status<K: Object>(&self, object: &K, status: Value) -> Result<K, ObjectError> {
        let (namespace, name) = object.key();
        let change = Patch::Merge(json!({"status": status}));
        let written = self.api::<K>(&namespace).patch_status(&name, &PatchParams::default(), &change).await;
        written.map_err(doing(what("writing the status of", object)))
    }

    /// Merges a status into an object whose status was `before`: a field that is gone is written as `null`, else it would
    /// stay.
    pub async fn change_status<K: Object, S: Serialize>(
        &self,
        object: &K,
        before: &S,
        after: &S,
    ) -> Result<K, ObjectError> {
        let mut change = json!(after);
        for (field, _) in json!(before).as_object().into_iter().flatten() {
            if change.get(field).is_none() {
                change[field] = Value::Null;
            }
        }
        self.merge_status(object, change).await
    }

    /// Merges something into an object, unless it was changed in between.
    pub async fn merge<K: Object>(&self, object: &K, mut change: Value) -> Result<K, ObjectError> {
        let (namespace, name) = object.key();
        change["metadata"]["resourceVersion"] = json!(object.meta().resource_version);
        let written = self.api::<K>(&namespace).patch(&name, &PatchParams::default(), &Patch::Merge(change)).await;
        written.map_err(doing(what("changing", object)))
    }

    /// Adds a finalizer.
    pub async fn hold<K: Object>(&self, object: &K, finalizer: &str) -> Result<K, ObjectError> {
        let mut all = object.finalizers().to_vec();
        all.retain(|one| one != finalizer);
        all.push(finalizer.to_owned());
        self.merge(object, json!({"metadata": {"finalizers": all}})).await
    }

    /// Removes a finalizer. An object that is gone has none.
    pub async fn let_go<K: Object>(&self, object: &K, finalizer: &str) -> Result<(), ObjectError> {
        if !object.held_by(finalizer) {
            return Ok(());
        }
        let mut all = object.finalizers().to_vec();
        all.retain(|one| one != finalizer);
        match self.merge(object, json!({"metadata": {"finalizers": all}})).await {
            Err(error) if error.is_gone() => Ok(()),
            written => written.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::doing;

    #[test]
    fn a_conflict_is_no_loss_and_a_loss_may_count_as_a_conflict() {
        let error = |code| doing("reading it")(kube::Error::Api(Box::new(Status::failure("no", "No").with_code(code))));
        assert!(error(409).is_stale() && !error(409).is_gone());
        assert!(error(404).is_gone() && error(404).gone_is_stale().is_stale());
        assert!(!error(500).gone_is_stale().is_stale());
        assert!(error(422).is_refused() && !error(409).is_refused() && !error(500).is_refused());
    }
}
