//! What of a cluster does not run: nodes, and the parts of the cluster itself.

use std::time::Duration;

use agent_api::clusters::provisioning::Cni;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Node as KubernetesNode;
use kube::api::ListParams;
use kube::config::Kubeconfig;
use kube::{Api, Client};

use super::day_one;
use super::decide::Chosen;
use super::install::{FLANNEL, LOOK, Order, Work};
use crate::cluster::{follow, local_path, metrics_server};

/// The parts of the cluster itself. What else is in their namespaces is its users'.
const PARTS: [&str; 5] = ["kube-proxy", "kube-flannel-ds", "coredns", metrics_server::NAME, local_path::NAME];
/// A node that has joined becomes Ready when its network runs: images are pulled and started.
const NODE_READY: Duration = Duration::from_secs(1800);

/// Asks the new cluster until all expected nodes are Ready.
pub(super) async fn until_ready(
    order: &Order,
    awaited: &[Chosen],
    work: &Work,
    kubeconfig: &str,
) -> anyhow::Result<()> {
    let client = follow::client_of(Kubeconfig::from_yaml(kubeconfig)?).await?;
    let nodes = Api::<KubernetesNode>::all(client.clone());
    let network = order.wanted.cni != Cni::None;
    let begun = tokio::time::Instant::now();
    loop {
        let names = || awaited.iter().map(|node| node.name.as_str());
        let (missing, away) = match nodes.list(&ListParams::default()).await {
            Ok(list) => (missing(names(), &list.items, network), away(names(), &list.items)),
            Err(error) => (Some(format!("the API of the cluster: {error}")), 0),
        };
        // Nodes are Ready before their network is: pods are what clusters are for.
        let missing = if missing.is_none() && network { unready_parts(&client, away).await } else { missing };
        let Some(missing) = missing else { return Ok(()) };
        anyhow::ensure!(begun.elapsed() < NODE_READY, "not Ready after {} min: {missing}", NODE_READY.as_secs() / 60);
        work.say(format!("waiting for {missing}"));
        tokio::time::sleep(LOOK).await;
    }
}

/// Nodes that are not waited for and do not run: parts of the cluster have pods there, too.
fn away<'a>(awaited: impl Iterator<Item = &'a str>, nodes: &[KubernetesNode]) -> i32 {
    let awaited: Vec<&str> = awaited.collect();
    let others = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).filter(|name| !awaited.contains(name));
    let away = others.filter(|name| missing([*name], nodes, true).is_some()).count();
    i32::try_from(away).unwrap_or(i32::MAX)
}

/// The first part of the cluster itself that does not run: its network, CoreDNS, or kube-proxy. `away`: nodes that do not run.
async fn unready_parts(client: &Client, away: i32) -> Option<String> {
    let all = ListParams::default();
    for namespace in ["kube-system", FLANNEL].into_iter().chain(day_one::NAMESPACES) {
        let sets = Api::<DaemonSet>::namespaced(client.clone(), namespace).list(&all).await;
        let deployments = Api::<Deployment>::namespaced(client.clone(), namespace).list(&all).await;
        let (sets, deployments) = match (sets, deployments) {
            (Ok(sets), Ok(deployments)) => (sets.items, deployments.items),
            (Err(error), _) | (_, Err(error)) => return Some(format!("the API of the cluster: {error}")),
        };
        let own = |name: Option<&str>| name.is_some_and(|name| PARTS.contains(&name));
        let mut sets = sets.iter().filter(|set| own(set.metadata.name.as_deref()));
        let mut deployments = deployments.iter().filter(|deployment| own(deployment.metadata.name.as_deref()));
        let found = sets.find_map(|set| unready_set(set, away));
        let found = found.or_else(|| deployments.find_map(unready_deployment));
        if found.is_some() {
            return found;
        }
    }
    None
}

fn unready_set(set: &DaemonSet, away: i32) -> Option<String> {
    let (name, status) = (set.metadata.name.as_deref().unwrap_or_default(), set.status.as_ref());
    let (ready, all) = status.map_or((0, 0), |status| (status.number_ready, status.desired_number_scheduled));
    (ready < all.saturating_sub(away).max(1))
        .then(|| format!("DaemonSet {name}: {ready} of {} pods are ready", all.max(1)))
}

fn unready_deployment(deployment: &Deployment) -> Option<String> {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let available = deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default();
    (available == 0).then(|| format!("Deployment {name}: none of its pods is available"))
}

/// The first node that is missing or not Ready, and why. A cluster without our network has no Ready nodes yet: there it is
/// enough that the node exists.
pub(super) fn missing<'a>(
    names: impl IntoIterator<Item = &'a str>,
    nodes: &[KubernetesNode],
    network: bool,
) -> Option<String> {
    names.into_iter().find_map(|name| {
        let Some(node) = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name)) else {
            return Some(format!("node {name}: the cluster does not know it"));
        };
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        let holds = ready.is_some_and(|condition| condition.status == "True");
        let why = ready.and_then(|condition| condition.message.clone()).unwrap_or_default();
        (network && !holds).then(|| format!("node {name}: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node as KubernetesNode;
    use serde_json::json;

    use super::{away, missing, unready_deployment, unready_set};

    #[test]
    fn parts_that_do_not_run_are_named() {
        let set_with = |ready: i32, all: i32, away: i32| -> Option<String> {
            let status = json!({"numberReady": ready, "desiredNumberScheduled": all, "currentNumberScheduled": all, "numberMisscheduled": 0});
            let object = json!({"metadata": {"name": "kube-flannel-ds"}, "status": status});
            unready_set(&serde_json::from_value(object).expect("a set"), away)
        };
        let set = |ready, all| set_with(ready, all, 0);
        // One server is off: its pod is wanted all the same.
        assert_eq!((set_with(2, 3, 1), set_with(1, 3, 1).is_some(), set_with(0, 0, 1).is_some()), (None, true, true));
        assert_eq!(set(1, 2).as_deref(), Some("DaemonSet kube-flannel-ds: 1 of 2 pods are ready"));
        assert_eq!(set(0, 0).as_deref(), Some("DaemonSet kube-flannel-ds: 0 of 1 pods are ready"), "not scheduled yet");
        assert_eq!(set(2, 2), None);
        let deployment = |available: i32| -> Option<String> {
            let object = json!({"metadata": {"name": "coredns"}, "status": {"availableReplicas": available}});
            unready_deployment(&serde_json::from_value(object).expect("a Deployment"))
        };
        assert_eq!(deployment(0).as_deref(), Some("Deployment coredns: none of its pods is available"));
        assert_eq!(deployment(1), None);
    }

    #[test]
    fn nodes_that_are_off_and_not_waited_for_are_counted() {
        let node = |name: &str, status: &str| -> KubernetesNode {
            let object = json!({"metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": status}]}});
            serde_json::from_value(object).expect("a node")
        };
        let nodes = [node("m", "True"), node("w", "Unknown"), node("x", "True")];
        assert_eq!((away(["m", "w"].into_iter(), &nodes), away(["m"].into_iter(), &nodes)), (0, 1));
    }

    #[test]
    fn a_node_that_is_not_ready_is_named_with_its_reason() {
        let node = |status: &str| -> Vec<KubernetesNode> {
            let object = json!({"metadata": {"name": "w"}, "status": {"conditions": [
                {"type": "Ready", "status": status, "message": "cni plugin not initialized"}]}});
            vec![serde_json::from_value(object).expect("a node")]
        };
        let told = |nodes: &[KubernetesNode], network| missing(["w"], nodes, network);
        assert_eq!(told(&[], true).as_deref(), Some("node w: the cluster does not know it"));
        assert_eq!(told(&node("False"), true).as_deref(), Some("node w: cni plugin not initialized"));
        assert_eq!(told(&node("False"), false), None, "the user brings the network");
        assert_eq!(told(&node("True"), true), None);
    }
}
