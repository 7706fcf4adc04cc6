//! A release as its cluster has it: what Helm recorded, how each object is, and whether somebody changed it.

use std::io::Read as _;

use agent_api::clusters::release::UnhealthyObject;
use agent_api::yaml;
use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde_json::Value;

use crate::cluster::apply::declared::Id;
use crate::cluster::apply::health;
use crate::cluster::follow;

/// Helm's field manager (server-side apply).
const MANAGER: &str = "helm";
/// Most bytes of a record of Helm's: it fits a Secret when packed.
const MOST: u64 = 64 << 20;
/// Fields that the API server sets by itself.
const OWN: [&str; 5] = ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"];

/// The objects of a manifest.
///
/// # Errors
/// The manifest is not YAML.
pub fn documents(manifest: &str) -> anyhow::Result<Vec<Value>> {
    let read: Vec<Value> = serde_saphyr::from_multiple_with_options(manifest, yaml::options(manifest))
        .map_err(|error| anyhow::anyhow!("the chart's objects are no YAML: {}", yaml::told(&error)))?;
    Ok(read.into_iter().filter(|object| object["kind"].is_string()).collect())
}

/// An application cluster.
pub struct Cluster(Client);

/// What Helm recorded of the release as it is installed now.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its revision.
    pub revision: i64,
    /// `deployed`, `failed` and the like.
    pub status: String,
    /// Its objects.
    pub objects: Vec<Value>,
}

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
        let secrets = Api::<Secret>::namespaced(self.0.clone(), namespace);
        let own = ListParams::default().labels(&format!("owner=helm,name={name}"));
        let records = secrets.list(&own).await.context("asking the cluster for Helm's records")?;
        let mut found = Vec::new();
        for secret in records.items {
            let data = secret.data.and_then(|mut data| data.remove("release")).context("a record of Helm is empty")?;
            found.push(record(&data.0)?);
        }
        Ok(found.into_iter().max_by_key(|record| record.revision))
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
                found.push(format!("{id} is not there"));
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

/// A record of Helm: JSON, packed, in base64 (Helm's `storage/driver`).
fn record(data: &[u8]) -> anyhow::Result<Record> {
    let packed = STANDARD.decode(data).context("a record of Helm is no base64")?;
    let mut text = Vec::new();
    GzDecoder::new(&*packed)
        .take(MOST + 1)
        .read_to_end(&mut text)
        .context("a record of Helm is not packed with gzip")?;
    ensure!(text.len() as u64 <= MOST, "a record of Helm has more than {MOST} bytes");
    let read: Value = serde_json::from_slice(&text).context("a record of Helm is no JSON")?;
    Ok(Record {
        revision: read["version"].as_i64().context("a record of Helm has no version")?,
        status: read["info"]["status"].as_str().unwrap_or_default().to_owned(),
        objects: documents(read["manifest"].as_str().unwrap_or_default())?,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::json;

    use super::*;

    #[test]
    fn helms_record_is_read_as_helm_writes_it() {
        let text = json!({"name": "web", "version": 4, "info": {"status": "deployed"},
            "manifest": "---\n# Source: web/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n\n"});
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(text.to_string().as_bytes()).expect("packed");
        let data = STANDARD.encode(packer.finish().expect("packed"));
        let read = record(data.as_bytes()).expect("a record");
        assert_eq!((read.revision, read.status.as_str(), read.objects.len()), (4, "deployed", 1));
        assert!(record(b"?").expect_err("refused").to_string().contains("base64"));
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
