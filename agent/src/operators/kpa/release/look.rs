//! Reads what a release needs: other releases, its cluster's kubeconfig, its values.

use std::collections::BTreeSet;

use agent_api::clusters::provisioning::{Provisioning, READY};
use agent_api::clusters::release::{ClusterRelease, Installed, ValuesFrom, ValuesKind};
use agent_api::meta::ConditionStatus;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Map, Value};

use super::controller::Controller;
use super::decide::{add, merge};
use crate::operators::kit::{Key, Object as _, ObjectError, doing, text_of, told_key};

/// Keys of a Secret with a kubeconfig when none is named: Cluster API's, Flux's, ICN's.
const KUBECONFIG: [&str; 3] = ["value", "value.yaml", "admin.conf"];

/// What a release needs, found.
pub(super) struct Found {
    /// Text of the kubeconfig.
    pub kubeconfig: String,
    /// All values, merged.
    pub values: Map<String, Value>,
}

/// An error of the API server, or why something is still missing.
pub(super) type Looked<T> = Result<Result<T, String>, ObjectError>;

impl Controller {
    /// Reads all of it. An error when something is still missing.
    pub(super) async fn look(&self, object: &ClusterRelease) -> Looked<Found> {
        let (namespace, _) = object.key();
        for dependency in &object.spec.depends_on {
            let within = dependency.namespace.as_deref().unwrap_or(&namespace);
            let found = self.base.objects.get::<ClusterRelease>(within, &dependency.name).await?;
            if !found.as_ref().is_some_and(is_ready) {
                let why = if found.is_some() { "is not Ready" } else { "is not there" };
                let all = self.base.watched::<ClusterRelease>().list(&ListParams::default()).await;
                let circle = circle(object, &all.map_err(doing("listing Releases"))?.items);
                return Ok(Err(circle.unwrap_or_else(|| {
                    format!("Release `{within}/{}`, which it depends on, {why}", dependency.name)
                })));
            }
        }
        let kubeconfig = match self.kubeconfig(&namespace, &Installed::of(object)).await? {
            Ok(kubeconfig) => kubeconfig,
            Err(why) => return Ok(Err(why)),
        };
        let mut values = Map::new();
        for from in &object.spec.values_from {
            match self.text(&namespace, from).await? {
                Ok(None) => {}
                Ok(Some(text)) => {
                    if let Err(why) = add(&mut values, from, &text) {
                        return Ok(Err(why));
                    }
                }
                Err(why) => return Ok(Err(why)),
            }
        }
        merge(&mut values, object.spec.values.clone().unwrap_or_default().0);
        Ok(Ok(Found { kubeconfig, values }))
    }

    /// The kubeconfig of the cluster on which the release is or will be installed.
    pub(super) async fn kubeconfig(&self, namespace: &str, installed: &Installed) -> Looked<String> {
        let (secret, key) = match (&installed.cluster, &installed.secret) {
            (Some(cluster), _) => {
                if !self.has_cluster(namespace, cluster).await? {
                    return Ok(Err(format!("there is no Provisioning of the cluster `{cluster}` in `{namespace}`")));
                }
                (format!("{cluster}-kubeconfig"), None)
            }
            (None, Some(reference)) => (reference.name.clone(), reference.key.as_deref()),
            (None, None) => return Ok(Err("no cluster is named".to_owned())),
        };
        let Some(found) = self.base.objects.secret(namespace, &secret).await? else {
            return Ok(Err(format!("Secret `{namespace}/{secret}` with the cluster's kubeconfig is not there yet")));
        };
        let keys = key.map_or_else(|| KUBECONFIG.to_vec(), |key| vec![key]);
        let text = keys.iter().find_map(|key| text_of(&found, key));
        Ok(text.ok_or_else(|| format!("Secret `{namespace}/{secret}` has no {}", keys.join(", "))))
    }

    /// Whether nothing of a release can be left: its cluster is gone, as far as that can be known.
    pub(super) async fn is_gone(&self, namespace: &str, installed: &Installed) -> Result<bool, ObjectError> {
        match (&installed.cluster, &installed.secret) {
            (Some(cluster), _) => Ok(!self.has_cluster(namespace, cluster).await?),
            (None, Some(secret)) => Ok(self.base.objects.secret(namespace, &secret.name).await?.is_none()),
            (None, None) => Ok(true),
        }
    }

    async fn has_cluster(&self, namespace: &str, cluster: &str) -> Result<bool, ObjectError> {
        let api = Api::<Provisioning>::namespaced(self.base.client.clone(), namespace);
        let all = api.list(&ListParams::default()).await.map_err(doing("listing Provisionings"))?;
        Ok(all.items.iter().any(|object| object.cluster() == cluster))
    }

    /// The text of a key with values. `None`: the object or key does not exist, and the spec allows that.
    async fn text(&self, namespace: &str, from: &ValuesFrom) -> Looked<Option<String>> {
        let (name, key) = (&from.name, from.key());
        let found = match from.kind {
            ValuesKind::Secret => {
                self.base.objects.secret(namespace, name).await?.and_then(|secret| text_of(&secret, key))
            }
            ValuesKind::ConfigMap => {
                let map = self.base.objects.get::<ConfigMap>(namespace, name).await?;
                map.and_then(|map| map.data).and_then(|mut data| data.remove(key))
            }
        };
        Ok(match found {
            None if !from.optional => {
                Err(format!("{:?} `{namespace}/{name}` with the key `{key}` is not there", from.kind))
            }
            found => Ok(found),
        })
    }
}

/// The way on which a release depends on itself: it would wait for ever.
fn circle(object: &ClusterRelease, all: &[ClusterRelease]) -> Option<String> {
    let own = object.key();
    let needed = |object: &ClusterRelease| -> Vec<Key> {
        let within = |one: &Option<String>| one.clone().unwrap_or_else(|| object.key().0);
        object.spec.depends_on.iter().map(|one| (within(&one.namespace), one.name.clone())).collect()
    };
    let mut ways: Vec<Vec<Key>> = vec![vec![own.clone()]];
    let mut seen: BTreeSet<Key> = BTreeSet::new();
    while let Some(way) = ways.pop() {
        let last = way.last().unwrap_or(&own);
        let Some(release) = all.iter().find(|release| release.key() == *last) else { continue };
        for next in needed(release) {
            let way: Vec<Key> = way.iter().cloned().chain([next.clone()]).collect();
            if next == own {
                let told: Vec<String> = way.iter().map(|key| format!("`{}`", told_key(key))).collect();
                return Some(format!("it depends on itself: {}; hint: `dependsOn` of one of them", told.join(" -> ")));
            }
            if seen.insert(next) {
                ways.push(way);
            }
        }
    }
    None
}

/// Whether a release is Ready as it is asked for now.
fn is_ready(object: &ClusterRelease) -> bool {
    let Some(status) = &object.status else { return false };
    let mut ready = status.conditions.iter().flatten().filter(|condition| condition.kind == READY);
    status.observed_generation == object.metadata.generation
        && ready.any(|condition| condition.status == ConditionStatus::True)
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::release::ClusterRelease;
    use serde_json::json;

    use super::circle;

    fn release(name: &str, on: &[(&str, Option<&str>)]) -> ClusterRelease {
        let on: Vec<_> = on.iter().map(|(name, namespace)| json!({"name": name, "namespace": namespace})).collect();
        let object = json!({"apiVersion": "kpa.foothold.dev/v1alpha1", "kind": "Release",
            "metadata": {"name": name, "namespace": "site"}, "spec": {"dependsOn": on}});
        serde_json::from_value(object).expect("a release")
    }

    #[test]
    fn a_release_that_waits_for_itself_is_told_on_which_way() {
        let all = [
            release("a", &[("b", None), ("away", None)]),
            release("b", &[("d", None), ("c", Some("site"))]),
            release("c", &[("a", None)]),
            release("d", &[]),
            release("self", &[("self", None)]),
            release("outside", &[("a", None)]),
        ];
        let told = |name: &str| circle(all.iter().find(|one| one.metadata.name.as_deref() == Some(name))?, &all);
        let way = "it depends on itself: `site/a` -> `site/b` -> `site/c` -> `site/a`";
        assert!(told("a").is_some_and(|told| told.starts_with(way)), "{:?}", told("a"));
        assert!(told("self").is_some_and(|told| told.contains("`site/self` -> `site/self`")));
        assert_eq!((told("d"), told("outside")), (None, None));
    }
}
