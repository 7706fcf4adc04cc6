//! Phase `addons`: what kubeadm adds to a new cluster. Applied as soon as the API server writes. A new cluster begins with one
//! pod of CoreDNS; the second follows `ready`.

use std::time::Duration;

use anyhow::Context;
use reqwest::StatusCode;
use serde_json::json;
use tokio::time::sleep;

use super::control_plane::Credentials;
use super::{Machine, phase};
use crate::cluster::api::{Api, ApiError};
use crate::cluster::apply::health;
use crate::cluster::objects::{self, Placed};
use crate::cluster::{Node, TEMPLATES, state};
use crate::steps::{Key, Missing, Outcome, Steps, done};

/// Pause before an object is tried again whose namespace is not there yet.
const AGAIN: Duration = Duration::from_millis(200);
/// Pause between two looks at pods that come up.
const LOOK: Duration = Duration::from_secs(1);
/// How often such an object is tried.
const TRIES: usize = 50;
/// Path of CoreDNS's Deployment.
const COREDNS: &str = "/apis/apps/v1/namespaces/kube-system/deployments/coredns";
/// Paths of objects that tell whether the recorded ones are still there.
const WITNESSES: [&str; 2] = [COREDNS, "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"];

/// What is applied: all but the Node, and the Node's labels.
pub struct Wanted {
    objects: Vec<Placed>,
    nodes: Vec<Placed>,
    key: Key,
}

/// Reads the template of the release.
pub fn read(machine: &Machine, node: &Node, credentials: &Credentials) -> anyhow::Result<Wanted> {
    let path = machine.at(TEMPLATES).join(objects::FILE);
    let template = fs_err::read_to_string(&path)?;
    let key = Key::of([template.as_str(), &node.name, &node.server(), &credentials.ca]);
    let (objects, nodes) = objects::split_node(objects::read(&template, node, &credentials.ca)?);
    Ok(Wanted { objects: objects::urgent_first(objects), nodes, key })
}

/// Under what the ledger has the objects once they are applied.
pub fn key(machine: &Machine, node: &Node, credentials: &Credentials) -> anyhow::Result<Key> {
    Ok(read(machine, node, credentials)?.key)
}

/// Applies all objects but the Node's labels.
pub async fn objects(machine: &Machine, steps: &Steps, node: &Node, credentials: &Credentials, api: &Api) {
    let act = || async {
        let wanted = read(machine, node, credentials)?;
        if steps.is_current(&phase::OBJECTS, &wanted.key) && witnesses(api).await? {
            return Ok(Outcome::Current(()));
        }
        let mut created = 0;
        for placed in &wanted.objects {
            let new = apply_patiently(api, placed).await.with_context(|| format!("applying {}", placed.title()))?;
            created += usize::from(new);
        }
        steps.record(&phase::OBJECTS, &wanted.key)?;
        Ok(Outcome::Done((), json!({"objects": wanted.objects.len(), "created": created})))
    };
    steps.perform(&phase::OBJECTS, act).await;
}

/// Gives CoreDNS as many pods as kubeadm does, if it began with fewer ([`state::REPLICAS`]), and waits for them.
pub async fn all_of_coredns(steps: &Steps, api: &Api) {
    let act = || async {
        let found = api.get(COREDNS).await?.unwrap_or_default();
        let label = found["metadata"]["labels"][state::REPLICAS].as_str();
        let Some(wanted) = label.and_then(|label| label.parse::<u64>().ok()) else { return Ok(Outcome::Current(())) };
        let replicas = found["spec"]["replicas"].as_u64().unwrap_or_default().max(wanted);
        let change = json!({"metadata": {"labels": {(state::REPLICAS): null}}, "spec": {"replicas": replicas}});
        api.merge(COREDNS, &change).await?;
        let ask = || async {
            let what = "all pods of CoreDNS";
            let found = api.get(COREDNS).await.map_err(|error| Missing::new("the API server", error.to_string()))?;
            let found = found.ok_or_else(|| Missing::new(what, "its Deployment is not there"))?;
            let health = health::of(&found);
            if health.healthy { Ok(()) } else { Err(Missing::new(what, health.message)) }
        };
        steps.wait(&phase::COREDNS, LOOK, ask).await;
        done(())
    };
    steps.perform(&phase::COREDNS, act).await;
}

async fn witnesses(api: &Api) -> Result<bool, ApiError> {
    for path in WITNESSES {
        if api.get(path).await?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A namespace of the system may still be missing in the API server's first seconds.
async fn apply_patiently(api: &Api, placed: &Placed) -> Result<bool, ApiError> {
    let mut tries = 0;
    loop {
        match objects::apply(api, placed).await {
            Err(error) if tries < TRIES && error.status() == Some(StatusCode::NOT_FOUND) => {
                tries += 1;
                sleep(AGAIN).await;
            }
            other => return other,
        }
    }
}

/// Labels the Node as kubeadm does, once the kubelet has registered it.
pub async fn node_labels(machine: &Machine, steps: &Steps, node: &Node, credentials: &Credentials, api: &Api) {
    let act = || async {
        let wanted = read(machine, node, credentials)?;
        let path = format!("/api/v1/nodes/{}", node.name);
        let ask = || async {
            let what = format!("node `{}`", node.name);
            match api.get(&path).await {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err(Missing::new(what, "the kubelet has not registered it")),
                Err(error) => Err(Missing::new(what, error.to_string())),
            }
        };
        steps.wait(&phase::NODE_LABELS, Duration::from_millis(300), ask).await;
        let found = api.get(&path).await?.unwrap_or_default();
        let labels = &found["metadata"]["labels"];
        let has = |placed: &Placed| {
            let wanted = placed.object["metadata"]["labels"].as_object();
            wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
        };
        if wanted.nodes.iter().all(has) {
            return Ok(Outcome::Current(()));
        }
        for placed in &wanted.nodes {
            objects::apply(api, placed).await?;
        }
        done(())
    };
    steps.perform(&phase::NODE_LABELS, act).await;
}
