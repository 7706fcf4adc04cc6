//! A release as its cluster has it: what Helm recorded, how each object is, and whether somebody changed it.

use agent_api::clusters::release::UnhealthyObject;
use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use super::record::{self, Record};
use crate::cluster::apply::declared::Id;
use crate::cluster::apply::health;
use crate::cluster::follow;

/// Helm's field manager (server-side apply).
const MANAGER: &str = "helm";
/// Fields that the API server sets by itself.
const OWN: [&str; 5] = ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"];

/// An application cluster.
pub struct Cluster(Client);

impl Cluster {
    /// The cluster of a kubeconfig.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn of(kubeconfig: &str) -> anyhow::Result<Self> {
        let read = Kubeconfig::from_yaml(kubeconfig).context("reading the kubeconfig")?;
        Ok(Self(follow::client_of(read).await?))
    }

    /// The newest record; `None` if the release is not installed.
    ///
    /// # Errors
    /// The cluster does not answer, or the record cannot be read.
    pub async fn record(&self, namespace: &str, name: &str) -> anyhow::Result<Option<Record>> {
        let newest = self.newest(namespace, name).await?;
        newest.map(|(_, record)| Record::of(&record)).transpose()
    }

    /// Marks the newest record as failed if a Helm that was cut off left it locked: every other Helm would give up with
    /// "another operation is in progress". Only for one that knows that no Helm of the release runs.
    ///
    /// # Errors
    /// The cluster does not answer, somebody else wrote the record meanwhile, or it cannot be read.
    pub async fn unlock(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let Some((secret, record)) = self.newest(namespace, name).await? else { return Ok(()) };
        let Some(secret) = record::unlocked(secret, record, Timestamp::now().as_second())? else { return Ok(()) };
        let secrets = Api::<Secret>::namespaced(self.0.clone(), namespace);
        secrets
            .replace(&secret.name_any(), &PostParams::default(), &secret)
            .await
            .context("unlocking Helm's record")?;
        Ok(())
    }

    /// The newest record, and its Secret.
    async fn newest(&self, namespace: &str, name: &str) -> anyhow::Result<Option<(Secret, Value)>> {
        let secrets = Api::<Secret>::namespaced(self.0.clone(), namespace);
        let own = ListParams::default().labels(&format!("owner=helm,name={name}"));
        let records = secrets.list(&own).await.context("asking the cluster for Helm's records")?;
        let mut found = Vec::new();
        for secret in records.items {
            let record = record::read(&secret)?;
            found.push((secret, record));
        }
        Ok(found.into_iter().max_by_key(|(_, record)| record["version"].as_i64()))
    }

    async fn api(&self, object: &Value, namespace: &str) -> anyhow::Result<Api<DynamicObject>> {
        let id = Id::of(object);
        let (group, version) = id.api_version.split_once('/').unwrap_or(("", &id.api_version));
        let kind = GroupVersionKind::gvk(group, version, &id.kind);
        let (resource, capabilities) = pinned_kind(&self.0, &kind)
            .await
            .with_context(|| format!("the cluster knows no {} {}", id.api_version, id.kind))?;
        let namespace = if id.namespace.is_empty() { namespace } else { &id.namespace };
        Ok(match capabilities.scope {
            Scope::Cluster => Api::all_with(self.0.clone(), &resource),
            Scope::Namespaced => Api::namespaced_with(self.0.clone(), namespace, &resource),
        })
    }

    /// Objects of the release that are missing or not healthy.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn unhealthy(&self, namespace: &str, record: &Record) -> anyhow::Result<Vec<UnhealthyObject>> {
        let mut found = Vec::new();
        for object in &record.objects {
            let id = Id::of(object);
            let message = match self.api(object, namespace).await?.get_opt(&id.name).await? {
                None if removes_itself(object) => None,
                None => Some("it is not there".to_owned()),
                Some(live) => {
                    let mut live = serde_json::to_value(live)?;
                    live["kind"] = object["kind"].clone();
                    let health = health::of(&live);
                    (!health.healthy).then_some(health.message)
                }
            };
            found.extend(message.map(|message| UnhealthyObject { object: id.to_string(), message }));
        }
        Ok(found)
    }

    /// Objects that somebody changed since Helm applied them, or removed.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn drifted(&self, namespace: &str, record: &Record) -> anyhow::Result<Vec<String>> {
        let dry = PatchParams { dry_run: true, ..PatchParams::apply(MANAGER).force() };
        let mut found = Vec::new();
        for object in &record.objects {
            let id = Id::of(object);
            let api = self.api(object, namespace).await?;
            let Some(live) = api.get_opt(&id.name).await? else {
                found.extend((!removes_itself(object)).then(|| format!("{id} is not there")));
                continue;
            };
            let again = api.patch(&id.name, &dry, &Patch::Apply(object)).await;
            let again = again.with_context(|| format!("comparing {id}"))?;
            if differs(serde_json::to_value(live)?, serde_json::to_value(again)?) {
                found.push(format!("{id} was changed"));
            }
        }
        Ok(found)
    }
}

/// Whether an object goes by itself once it has done its work. Brought again, it would do it again.
fn removes_itself(object: &Value) -> bool {
    object["kind"] == "Job" && object["spec"]["ttlSecondsAfterFinished"].is_number()
}

/// Whether applying the object once more would change it.
fn differs(mut live: Value, mut again: Value) -> bool {
    for object in [&mut live, &mut again] {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|key, _| !OWN.contains(&&**key));
        }
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
    }
    live != again
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As charts have it for migrations: it would run again at each look.
    #[test]
    fn a_job_that_removes_itself_is_not_missed() {
        for (object, goes) in [
            (json!({"kind": "Job", "spec": {"ttlSecondsAfterFinished": 0}}), true),
            (json!({"kind": "Job", "spec": {}}), false),
            (json!({"kind": "Deployment", "spec": {"ttlSecondsAfterFinished": 60}}), false),
        ] {
            assert_eq!(removes_itself(&object), goes, "{object}");
        }
    }

    #[test]
    fn only_what_applying_would_change_is_drift() {
        let live = |replicas: i64| {
            json!({"metadata": {"name": "a", "resourceVersion": replicas.to_string(), "managedFields": [replicas]},
                   "spec": {"replicas": replicas}, "status": {"replicas": replicas}})
        };
        let mut other = live(1);
        other["metadata"]["resourceVersion"] = json!("9");
        other["status"] = json!({});
        assert!(!differs(live(1), other));
        assert!(differs(live(1), live(2)));
    }
}
