//! The status of a cluster, its conditions and events.

use agent_api::clusters::provisioning::{
    ClusterPhase, HOSTS_CHOSEN, NodePhase, NodeStatus, NotChosen, Provisioning, ProvisioningStatus, READY,
};
use agent_api::meta::Time;
use jiff::Timestamp;
use kube::Resource as _;

use super::controller::Controller;
use super::eta::Estimate;
use super::install::Made;
use crate::operators::kit::conditions::merge;
use crate::operators::kit::{Event, NewCondition, Object as _, ObjectError, Reason};

/// The state of a cluster: the reason of its condition and of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The spec is wrong.
    Invalid,
    /// Hosts are missing.
    Unschedulable,
    /// Nodes are installed.
    Installing,
    /// Something failed; it is tried again.
    Failing,
    /// Every node runs.
    Ready,
    /// Nodes that were installed do not run.
    Degraded,
    /// Nodes are reset.
    Deleting,
}

impl Reason for What {
    fn word(self) -> &'static str {
        match self {
            Self::Invalid => "InvalidSpec",
            Self::Unschedulable => "Unschedulable",
            Self::Installing => "Installing",
            Self::Failing => "InstallationFailed",
            Self::Ready => "ClusterReady",
            Self::Degraded => "NodesNotReady",
            Self::Deleting => "Deleting",
        }
    }

    fn is_warning(self) -> bool {
        match self {
            Self::Invalid | Self::Unschedulable | Self::Failing | Self::Degraded => true,
            Self::Installing | Self::Ready | Self::Deleting => false,
        }
    }
}

impl What {
    fn phase(self) -> ClusterPhase {
        match self {
            Self::Unschedulable => ClusterPhase::Pending,
            Self::Installing | Self::Failing => ClusterPhase::Installing,
            Self::Ready => ClusterPhase::Ready,
            Self::Degraded => ClusterPhase::Degraded,
            Self::Invalid => ClusterPhase::Failed,
            Self::Deleting => ClusterPhase::Deleting,
        }
    }
}

/// What is written into the status of a cluster.
pub(super) struct Told {
    pub what: What,
    pub why: String,
    /// Its nodes. `None`: the nodes in the status stay.
    pub nodes: Option<Vec<NodeStatus>>,
    pub not_chosen: Vec<NotChosen>,
    pub made: Option<Made>,
    /// Whether the cluster runs as it was made meanwhile.
    pub stands: bool,
    /// When it and its nodes will be done, as far as that is known.
    pub eta: Estimate,
}

impl Told {
    pub fn new(what: What, why: impl Into<String>) -> Self {
        let (why, eta) = (why.into(), Estimate::default());
        Self { what, why, nodes: None, not_chosen: Vec::new(), made: None, stands: false, eta }
    }
}

/// Whether the status says that nothing is left to do for the spec that it observed.
pub(super) fn is_settled(status: &ProvisioningStatus) -> bool {
    let ready = status.conditions.iter().flatten().find(|condition| condition.kind == READY);
    ready.is_some_and(|ready| [What::Ready, What::Degraded].iter().any(|what| ready.reason == what.word()))
}

/// What is done now, and which nodes have failed at it and try again.
pub(super) fn with_failing(now: &str, nodes: &[NodeStatus]) -> String {
    let failing = nodes.iter().filter(|node| node.phase == NodePhase::Failing);
    failing.fold(now.to_owned(), |told, node| {
        let error = node.error.as_deref().and_then(|error| error.lines().next()).unwrap_or("it failed");
        format!("{told}; {} tries again: {error}", node.name)
    })
}

impl Controller {
    /// Writes the status if it has changed, and an event if the reason has changed.
    pub(super) async fn tell(&self, object: &Provisioning, told: Told) -> Result<(), ObjectError> {
        let before = object.status.clone().unwrap_or_default();
        let what = told.what;
        let status = status(object, told, Timestamp::now());
        if status == before {
            return Ok(());
        }
        let ready = |status: &ProvisioningStatus| {
            let all = status.conditions.iter().flatten();
            all.clone()
                .find(|condition| condition.kind == READY)
                .map(|condition| (condition.reason.clone(), condition.message.clone()))
        };
        let (was, is) = (ready(&before), ready(&status));
        self.common.base.objects.change_status(object, &before, &status).await?;
        let same = was.as_ref().map(|(reason, _)| reason) == is.as_ref().map(|(reason, _)| reason);
        if let Some((_, message)) = is.filter(|is| !same || what.is_warning() && was.as_ref() != Some(is)) {
            let (namespace, name) = object.key();
            log::info!("Provisioning `{namespace}/{name}`: {} {message}", what.word());
            self.common.base.tell(&object.object_ref(&()), &Event::new(what, message)).await;
        }
        Ok(())
    }
}

fn status(object: &Provisioning, told: Told, now: Timestamp) -> ProvisioningStatus {
    let before = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    let mut nodes = told.nodes.unwrap_or_else(|| before.nodes.clone());
    for node in &mut nodes {
        node.eta = told.eta.nodes.get(&node.name).copied().map(Time);
    }
    let runs = |node: &&NodeStatus| node.phase == NodePhase::Installed && node.error.is_none();
    let running = nodes.iter().filter(runs).count();
    let message = if told.what == What::Ready { format!("{running} nodes run") } else { told.why };
    let mut conditions = vec![NewCondition {
        kind: READY,
        holds: told.what == What::Ready,
        reason: told.what.word(),
        message: message.clone(),
        generation,
    }];
    let chosen = match told.what {
        What::Unschedulable | What::Invalid => Some((false, told.what.word(), message)),
        What::Installing | What::Failing | What::Ready | What::Degraded => Some((true, "Chosen", String::new())),
        What::Deleting => None,
    };
    conditions.extend(chosen.map(|(holds, reason, message)| NewCondition {
        kind: HOSTS_CHOSEN,
        holds,
        reason,
        message,
        generation,
    }));
    let begun = before.started_at.or_else(|| (told.what == What::Installing).then_some(Time(now)));
    let done = before.finished_at.or_else(|| (told.what == What::Ready).then_some(Time(now)));
    let made = told.made;
    // Those that leave count no more, unless all do.
    let asked = nodes.iter().filter(|node| node.phase != NodePhase::Removing).count();
    let asked = if asked == 0 { nodes.len() } else { asked };
    let (pod_cidr, service_cidr) = made.as_ref().and_then(|made| made.networks.clone()).unzip();
    ProvisioningStatus {
        cluster: Some(object.cluster().to_owned()),
        phase: if told.stands { ClusterPhase::Degraded } else { told.what.phase() },
        conditions: Some(merge(before.conditions.as_ref(), conditions, now)),
        observed_generation: generation,
        summary: (!nodes.is_empty()).then(|| format!("{running}/{asked}")),
        version: made.as_ref().map(|made| made.version.clone()).or(before.version),
        endpoint: made.as_ref().map(|made| made.endpoint.clone()).or(before.endpoint),
        pod_cidr: pod_cidr.or(before.pod_cidr),
        service_cidr: service_cidr.or(before.service_cidr),
        kubeconfig_secret: made.as_ref().map(|_| super::act::kubeconfig_name(object)).or(before.kubeconfig_secret),
        started_at: begun,
        finished_at: done,
        eta: told.eta.cluster.map(Time),
        nodes,
        not_chosen: told.not_chosen,
    }
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::NodeStatus;
    use serde_json::json;

    use super::with_failing;

    #[test]
    fn a_node_that_tries_again_is_named_with_what_has_failed() {
        let node = |name: &str, phase: &str, error: Option<&str>| -> NodeStatus {
            let node = json!({"name": name, "roles": [], "host": "metal3/m", "macAddress": "52:54:00:22:00:20",
                "ip": "172.22.0.10", "phase": phase, "error": error});
            serde_json::from_value(node).expect("a node")
        };
        let joins = node("m-2", "Installing", None);
        assert_eq!(with_failing("m-2 joins", std::slice::from_ref(&joins)), "m-2 joins");
        let fails = node("m-1", "Failing", Some("`kubeadm join` ended with 1: no answer\nmore"));
        assert_eq!(
            with_failing("m-2 joins", &[joins, fails]),
            "m-2 joins; m-1 tries again: `kubeadm join` ended with 1: no answer"
        );
    }
}
