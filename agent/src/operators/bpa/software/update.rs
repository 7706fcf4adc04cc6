//! Brings nodes to other versions, a few at a time: drained, updated, restarted, and back.
//!
//! ```text
//! due ─► steps (masters one by one, workers as many as may be away)
//! a step: drain ─► install ─► restart, if it asks for it ─► Ready ─► takes pods again        a node that fails ends it
//! ```
//! A node that was drained bears a mark: when the operator ends on the way, a later turn finds it.

use std::time::Duration;

use agent_api::clusters::provisioning::{NodeRole, NodeStatus, Provisioning};
use agent_api::clusters::software::Software;
use anyhow::{Context as _, bail};
use futures_util::future::join_all;
use serde_json::Value;

use super::controller::{Controller, Member};
use super::policy::Policy;
use crate::node::plan::SoftwareFacts;
use crate::operators::bpa::login::Login;
use crate::operators::bpa::nodes::{drain, is_drained_for, kubectl, mark, take_pods_again, until_ready};
use crate::operators::bpa::servers::connect;
use crate::operators::kit::{Object as _, told_key};
use crate::ssh::Session;

/// How long the API of a cluster may be away: its only master may just be restarted.
const API: Duration = Duration::from_secs(600);
/// How long a server may take to restart.
const RESTART: Duration = Duration::from_secs(900);
/// Pause between two looks.
const LOOK: Duration = Duration::from_secs(5);

/// A cluster whose nodes are updated.
pub(super) struct Site<'a> {
    pub cluster: &'a Provisioning,
    pub login: &'a Login,
    /// The mark of nodes that are drained for this object.
    pub mark: String,
}

impl<'a> Site<'a> {
    pub fn new(object: &Software, cluster: &'a Provisioning, login: &'a Login) -> Self {
        Self { cluster, login, mark: told_key(&object.key()) }
    }

    pub fn nodes(&self) -> &'a [NodeStatus] {
        self.cluster.status.as_ref().map(|status| status.nodes.as_slice()).unwrap_or_default()
    }

    /// A connection to a master whose API answers.
    async fn master(&self) -> anyhow::Result<Session> {
        let begun = tokio::time::Instant::now();
        loop {
            let mut why = "it has no master".to_owned();
            for master in self.nodes().iter().filter(|node| node.roles.contains(&NodeRole::Master)) {
                let ready = async {
                    let session = connect(self.login, master).await?;
                    kubectl(&session, &["get", "--raw", "/readyz"]).await?;
                    anyhow::Ok(session)
                };
                match ready.await {
                    Ok(session) => return Ok(session),
                    Err(error) => why = format!("{}: {error:#}", master.name),
                }
            }
            if begun.elapsed() >= API {
                bail!("no API of the cluster answers for {} min: {why}", API.as_secs() / 60);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Nodes that were drained for this object and are not among `due` take pods again. Returns what went wrong.
    pub async fn give_back(&self, due: &[&str]) -> Vec<String> {
        let given = async {
            let master = self.master().await?;
            let nodes: Value = serde_json::from_slice(&kubectl(&master, &["get", "nodes", "--output=json"]).await?)?;
            for name in marked(&nodes, &self.mark).into_iter().filter(|name| !due.contains(&name.as_str())) {
                until_ready(&master, &name).await?;
                take_pods_again(&master, &name).await?;
            }
            anyhow::Ok(())
        };
        given.await.err().map(|error| format!("nodes that were drained: {error:#}")).into_iter().collect()
    }

    /// Drains a node. Returns whether it takes pods again behind it: not if somebody else keeps it from new pods.
    async fn empty(&self, name: &str) -> anyhow::Result<bool> {
        let master = self.master().await?;
        let node: Value = serde_json::from_slice(&kubectl(&master, &["get", "node", name, "--output=json"]).await?)?;
        let ours = is_drained_for(&node, &self.mark);
        let returns = ours || node["spec"]["unschedulable"] != true;
        if returns {
            mark(&master, name, &self.mark).await?;
        }
        if let Err(error) = drain(&master, name).await {
            // Nothing was done to it: the cluster need not do without it until this is tried again.
            if returns {
                take_pods_again(&master, name).await?;
            }
            return Err(error).context("draining it");
        }
        Ok(returns)
    }
}

/// Names of nodes that bear this mark.
fn marked(nodes: &Value, mark: &str) -> Vec<String> {
    let all = nodes["items"].as_array().into_iter().flatten();
    let ours = all.filter(|node| is_drained_for(node, mark));
    ours.filter_map(|node| node["metadata"]["name"].as_str()).map(str::to_owned).collect()
}

impl Controller {
    /// Updates a node.
    async fn renew(&self, site: &Site<'_>, policy: &Policy, member: &Member<'_>) -> anyhow::Result<SoftwareFacts> {
        let name = &member.node.name;
        // The pods of a lone node have nowhere else to go.
        let drains = policy.drain && site.nodes().len() > 1;
        let returns = if drains { site.empty(name).await? } else { false };
        let done = async {
            let mut facts = self.ask(site.login, member.node, &member.plan).await?;
            if policy.reboot && facts.reboot_required {
                restart(site, member.node).await?;
                facts.reboot_required = false;
            }
            anyhow::Ok(facts)
        };
        let done = done.await;
        if returns {
            let master = site.master().await?;
            let back = async {
                until_ready(&master, name).await?;
                take_pods_again(&master, name).await
            };
            // What went wrong before is worth more words.
            let back = back.await;
            if done.is_ok() {
                back.context("it was drained, and does not come back")?;
            }
        }
        done
    }

    /// Updates the nodes of one step at the same time.
    pub(super) async fn renew_all(
        &self,
        site: &Site<'_>,
        policy: &Policy,
        step: &[&Member<'_>],
    ) -> Vec<anyhow::Result<SoftwareFacts>> {
        join_all(step.iter().map(|member| self.renew(site, policy, member))).await
    }
}

/// Restarts a server, and waits until it is a node again.
async fn restart(site: &Site<'_>, node: &NodeStatus) -> anyhow::Result<()> {
    let boot = async || {
        let session = connect(site.login, node).await?;
        let said = session.output(&["cat", "/proc/sys/kernel/random/boot_id"], b"").await?;
        anyhow::Ok((session, String::from_utf8_lossy(&said.stdout).trim().to_owned()))
    };
    let (session, before) = boot().await?;
    // The connection may end before the answer.
    if let Err(error) = session.output(&["systemctl", "--no-block", "reboot"], b"").await {
        log::debug!("{}: {error}", node.name);
    }
    let begun = tokio::time::Instant::now();
    let now = loop {
        tokio::time::sleep(LOOK).await;
        match boot().await {
            Ok((_, now)) if now != before => break now,
            Ok(_) if begun.elapsed() < RESTART => {}
            Ok(_) => bail!("it was told to restart, and has not after {} min", RESTART.as_secs() / 60),
            Err(error) if begun.elapsed() >= RESTART => {
                return Err(error).context("it was restarted, and does not answer");
            }
            Err(_) => {}
        }
    };
    // Until its kubelet speaks again, the cluster has what the node was before.
    let master = site.master().await?;
    let booted = format!("--for=jsonpath={{.status.nodeInfo.bootID}}={now}");
    kubectl(&master, &["wait", &booted, &format!("node/{}", node.name), "--timeout=600s"]).await?;
    until_ready(&master, &node.name).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::operators::bpa::nodes::DRAINED;

    #[test]
    fn a_node_that_was_drained_for_something_else_is_left_alone() {
        let nodes = json!({"items": [
            {"metadata": {"name": "a", "annotations": {DRAINED: "default/one"}}},
            {"metadata": {"name": "b", "annotations": {DRAINED: "true"}}},
            {"metadata": {"name": "c", "annotations": {DRAINED: "default/two"}}},
            {"metadata": {"name": "d"}}]});
        assert_eq!(marked(&nodes, "default/one"), ["a"]);
        assert!(marked(&json!({}), "default/one").is_empty());
    }
}
