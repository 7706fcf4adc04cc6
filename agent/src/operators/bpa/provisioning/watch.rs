//! Looks after a cluster that was made: nodes that do not run any more are told, and that they run again.

use std::slice::from_ref;
use std::time::Duration;

use agent_api::clusters::provisioning::{Cni, NodeStatus, Provisioning};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Api;
use kube::api::ListParams;
use kube::config::Kubeconfig;

use super::act::kubeconfig_name;
use super::controller::Controller;
use super::decide::Chosen;
use super::install::missing;
use super::tell::{Told, What};
use super::wishes::Wanted;
use crate::cluster::follow::client_of;
use crate::operators::kit::{Object as _, ObjectError};

/// A cluster that does not answer within this is told as one that does not.
const ANSWER: Duration = Duration::from_secs(10);
/// Key of the kubeconfig in its Secret, as Cluster API has it.
const KEY: &str = "value";

impl Controller {
    /// Asks the cluster for its nodes, and tells what it says. False when nobody can ask: the Secret with its kubeconfig is
    /// gone, and is made again by the work.
    pub(super) async fn watch(
        &self,
        object: &Provisioning,
        wanted: &Wanted,
        chosen: &[Chosen],
    ) -> Result<bool, ObjectError> {
        let (namespace, _) = object.key();
        let Some(secret) = self.common.base.objects.secret(&namespace, &kubeconfig_name(object)).await? else {
            return Ok(false);
        };
        let asked = tokio::time::timeout(ANSWER, nodes_of(&secret)).await;
        let answer = asked.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {} s", ANSWER.as_secs())));
        let before = object.status.as_ref().map(|status| status.nodes.clone()).unwrap_or_default();
        let told = match answer {
            Ok(found) => told(before, chosen, &found, wanted.cni != Cni::None),
            Err(error) => Told::new(What::Degraded, format!("the API of the cluster does not answer: {error:#}")),
        };
        self.tell(object, told).await?;
        Ok(true)
    }
}

async fn nodes_of(secret: &Secret) -> anyhow::Result<Vec<Node>> {
    let text = secret.data.as_ref().and_then(|data| data.get(KEY)).map(|value| value.0.as_slice()).unwrap_or_default();
    let client = client_of(Kubeconfig::from_yaml(&String::from_utf8_lossy(text))?).await?;
    Ok(Api::<Node>::all(client).list(&ListParams::default()).await?.items)
}

/// Each node with what the cluster says of it now.
fn told(mut nodes: Vec<NodeStatus>, chosen: &[Chosen], found: &[Node], network: bool) -> Told {
    for node in &mut nodes {
        let one = chosen.iter().find(|chosen| chosen.name == node.name);
        node.error = one.and_then(|one| missing(from_ref(one), found, network));
    }
    let failing: Vec<&str> = nodes.iter().filter_map(|node| node.error.as_deref()).collect();
    let what = if failing.is_empty() { What::Ready } else { What::Degraded };
    Told { why: failing.join("\n"), nodes: Some(nodes), ..Told::new(what, "") }
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::{NodeRole, NodeStatus};
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::super::decide::tests::chosen;
    use super::super::tell::What;
    use super::told;

    #[test]
    fn a_node_that_stops_is_told_until_it_runs_again() {
        let all = [chosen("m", 20, &[NodeRole::Master]), chosen("w", 21, &[NodeRole::Worker])];
        let node = |name| json!({"name": name, "roles": ["worker"], "host": "metal3/h", "macAddress": "", "ip": "", "phase": "Installed"});
        let status: Vec<NodeStatus> = serde_json::from_value(json!([node("m"), node("w")])).expect("a status");
        let found = |ready: &str| -> Vec<Node> {
            let node = |name: &str, status: &str| {
                json!({"metadata": {"name": name}, "status": {"conditions": [
                    {"type": "Ready", "status": status, "message": "Kubelet stopped posting node status."}]}})
            };
            serde_json::from_value(json!([node("m", "True"), node("w", ready)])).expect("nodes")
        };
        let stopped = told(status.clone(), &all, &found("Unknown"), true);
        assert_eq!((stopped.what, &*stopped.why), (What::Degraded, "node w: Kubelet stopped posting node status."));
        let nodes = stopped.nodes.expect("nodes");
        assert_eq!((&nodes[0].error, nodes[1].error.as_deref()), (&None, Some(&*stopped.why)));
        let back = told(nodes, &all, &found("True"), true);
        assert_eq!((back.what, &*back.why), (What::Ready, ""));
        assert!(back.nodes.expect("nodes").iter().all(|node| node.error.is_none()));
        let lost = told(status, &all, &found("True")[..1], true);
        assert_eq!((lost.what, &*lost.why), (What::Degraded, "node w: the cluster does not know it"));
    }
}
