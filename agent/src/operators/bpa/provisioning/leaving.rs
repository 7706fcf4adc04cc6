//! Nodes that leave a cluster: the spec does not name them any more, or names them for another server. They stay in the status
//! until they are out of the cluster and their servers are reset, so that an attempt that fails, or is cut off, loses none.

use std::sync::Arc;

use agent_api::clusters::provisioning::{NodePhase, NodeRole, NodeStatus, Provisioning};
use agent_api::metal3::BareMetalHost;

use super::decide::{Chosen, has_system, is_of, is_written_anew};
use super::eta::Part;
use super::install::{Order, Work};
use super::lost;
use super::reach::Server;
use crate::operators::bpa::nodes::drain;
use crate::operators::kit::{Object as _, told_key};

/// A node that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    pub node: NodeStatus,
    /// Whether its server was entered and has the OS that it had then: it is drained and reset.
    pub stands: bool,
}

impl Leaving {
    pub fn is_master(&self) -> bool {
        self.node.roles.contains(&NodeRole::Master)
    }

    /// Whether something that stays needs its name or its server.
    fn is_in_the_way(&self, chosen: &[Chosen]) -> bool {
        chosen.iter().any(|chosen| chosen.name == self.node.name || told_key(&chosen.host) == self.node.host)
    }
}

/// Nodes of the status that are not among the chosen ones, on the same servers.
pub(super) fn leaving(object: &Provisioning, chosen: &[Chosen], hosts: &[Arc<BareMetalHost>]) -> Vec<Leaving> {
    let stays = |node: &NodeStatus| chosen.iter().any(|chosen| chosen.is(node));
    let stands = |node: &NodeStatus| {
        let host = hosts.iter().find(|host| told_key(&host.key()) == node.host);
        let runs = |host: &Arc<BareMetalHost>| is_of(host, object) && has_system(host) && !is_written_anew(host, node);
        node.host_key.is_some() && host.is_some_and(runs)
    };
    let nodes = object.status.as_ref().map(|status| status.nodes.as_slice()).unwrap_or_default();
    nodes.iter().filter(|node| !stays(node)).map(|node| Leaving { node: node.clone(), stands: stands(node) }).collect()
}

/// Why a cluster that the box made cannot have these nodes: none of the masters that it has would stay.
pub(super) fn no_master_stays(
    object: &Provisioning,
    chosen: &[Chosen],
    hosts: &[Arc<BareMetalHost>],
) -> Option<String> {
    let status = object.status.as_ref().filter(|status| status.finished_at.is_some())?;
    let stays =
        |node: &NodeStatus| node.roles.contains(&NodeRole::Master) && chosen.iter().any(|chosen| chosen.is(node));
    // What another's installer does about it, nobody knows.
    if object.spec.installer.is_some() || status.nodes.iter().any(stays) {
        return None;
    }
    let gone: Vec<String> = leaving(object, chosen, hosts)
        .iter()
        .filter(|leaving| leaving.stands && leaving.is_master())
        .map(|leaving| format!("{} ({})", leaving.node.name, leaving.node.host))
        .collect();
    (!gone.is_empty()).then(|| {
        format!(
            "none of the cluster's masters would stay: {}; hint: keep one, with its name and its server, until others have \
             joined, or delete the Provisioning and make it again",
            gone.join(", ")
        )
    })
}

/// The servers of nodes that leave are members no more, whatever they have: a name that moves to another server, or a server
/// that gets another name, begins anew.
pub(super) fn begin_anew(order: &Order, servers: &mut [Server<'_>]) {
    for server in servers {
        let host = told_key(&server.node.host);
        if order.leaving.iter().any(|leaving| leaving.node.host == host) {
            server.facts.member = false;
        }
    }
}

/// Before others join: nodes leave whose name or server is needed. `first`: a master that runs, if there is a cluster yet.
pub(super) async fn make_way(order: &Order, work: &Work, first: Option<&Server<'_>>) -> anyhow::Result<()> {
    remove(order, work, first, |leaving| leaving.is_in_the_way(&order.chosen)).await
}

/// When the others have joined: all others leave.
pub(super) async fn remove_others(order: &Order, work: &Work, first: &Server<'_>) -> anyhow::Result<()> {
    remove(order, work, Some(first), |leaving| !leaving.is_in_the_way(&order.chosen)).await
}

/// They are drained, as `PodDisruptionBudget`s let it, leave the cluster, and their servers are reset. One that cannot be
/// removed holds up no other.
async fn remove(
    order: &Order,
    work: &Work,
    first: Option<&Server<'_>>,
    which: impl Fn(&Leaving) -> bool,
) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for leaving in order.leaving.iter().filter(|leaving| which(leaving)) {
        let node = &leaving.node;
        work.say(format!("draining {}", node.name));
        work.begin(Part::Remove, &node.name);
        match remove_one(order, leaving, first).await {
            Ok(()) => {
                work.left(node);
                work.done(Part::Remove, &node.name);
            }
            Err(error) => {
                let why = format!("{error:#}");
                work.does_not_leave(node, &why);
                failed.push(why);
            }
        }
    }
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

async fn remove_one(order: &Order, leaving: &Leaving, first: Option<&Server<'_>>) -> anyhow::Result<()> {
    let name = leaving.node.name.as_str();
    if leaving.stands {
        if let Some(first) = first.filter(|_| !order.abandon) {
            let there = first.kubectl(&["get", "node", name, "--ignore-not-found", "-o", "name"]).await?;
            if !there.is_empty() {
                drain(&first.session, name).await?;
            }
        }
        match order.agent.reset(&order.login, &leaving.node, &order.id).await {
            Ok(()) => {}
            Err(error) if order.abandon => log::warn!("{name}: {error:#}; it leaves the cluster as it is"),
            Err(error) => return Err(error.context(format!("{name} is not reset; hint: {}", lost::leave_as_it_is()))),
        }
    }
    // kubeadm only warns when etcd keeps a member that it wiped.
    match first {
        Some(first) => lost::forget(first, name, leaving.is_master().then_some(&*leaving.node.ip)).await,
        None => Ok(()),
    }
}

/// The nodes as the status has them while they leave.
pub(super) fn told(leaving: &[Leaving]) -> Vec<NodeStatus> {
    let told = |leaving: &Leaving| NodeStatus {
        phase: NodePhase::Removing,
        step: None,
        since: None,
        eta: None,
        ..leaving.node.clone()
    };
    leaving.iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_api::clusters::provisioning::{NodePhase, NodeRole, Provisioning};
    use agent_api::metal3::BareMetalHost;
    use serde_json::{Value, json};

    use super::super::decide::Chosen;
    use super::super::decide::tests::chosen;
    use super::super::eta::{History, Schedule};
    use super::super::upkeep::Aim;
    use super::{Work, leaving, no_master_stays, told};

    fn node(name: &str, role: &str, host: &str) -> Value {
        json!({"name": name, "roles": [role], "host": format!("metal3/{host}"), "macAddress": "52:54:00:00:00:01",
            "ip": "172.22.0.1", "phase": "Installed", "hostKey": "ssh-ed25519 AAAA"})
    }

    fn object(nodes: &[Value]) -> Provisioning {
        let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
            "metadata": {"name": "p", "namespace": "default", "uid": "1"}, "spec": {"masters": []},
            "status": {"nodes": nodes, "finishedAt": "2026-01-01T00:00:00Z"}});
        serde_json::from_value(object).expect("an object")
    }

    fn host(name: &str, by: &str) -> Arc<BareMetalHost> {
        let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": name, "namespace": "metal3"},
            "spec": {"online": true, "consumerRef": {"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
                "namespace": "default", "name": by}}});
        Arc::new(serde_json::from_value(host).expect("a host"))
    }

    /// Names of those that leave, and whether their servers are reset.
    fn names(object: &Provisioning, chosen: &[Chosen], hosts: &[Arc<BareMetalHost>]) -> Vec<(String, bool)> {
        leaving(object, chosen, hosts).into_iter().map(|leaving| (leaving.node.name, leaving.stands)).collect()
    }

    #[test]
    fn a_node_leaves_when_nobody_asks_for_it_on_its_server() {
        let object = object(&[node("m", "master", "m"), node("w", "worker", "w"), node("x", "worker", "x")]);
        let hosts = [host("m", "p"), host("w", "p"), host("x", "another")];
        let stay = [chosen("m", 1, &[NodeRole::Master]), chosen("w", 2, &[NodeRole::Worker])];
        let yes = |name: &str, stands: bool| (name.to_owned(), stands);
        assert_eq!(names(&object, &stay, &hosts), [yes("x", false)], "its server is another's by now");
        assert_eq!(names(&object, &stay[..1], &hosts), [yes("w", true), yes("x", false)]);
        let mut moved = stay.clone();
        moved[1].host = ("metal3".to_owned(), "y".to_owned());
        assert_eq!(names(&object, &moved, &hosts), [yes("w", true), yes("x", false)], "its name is on another server");
        let in_the_way: Vec<bool> =
            leaving(&object, &moved, &hosts).iter().map(|leaving| leaving.is_in_the_way(&moved)).collect();
        assert_eq!(in_the_way, [true, false]);
        let mut renamed = stay.clone();
        renamed[1].name = "v".to_owned();
        let all = leaving(&object, &renamed, &hosts);
        assert!(all[0].is_in_the_way(&renamed), "its server gets another name");
    }

    #[test]
    fn a_node_is_told_until_it_has_left() {
        let object = object(&[node("m", "master", "m"), node("w", "worker", "w")]);
        let hosts = [host("m", "p"), host("w", "p"), host("y", "p")];
        let mut moved = [chosen("m", 1, &[NodeRole::Master]), chosen("w", 2, &[NodeRole::Worker])];
        moved[1].host = ("metal3".to_owned(), "y".to_owned());
        let leave = leaving(&object, &moved, &hosts);
        let dir = tempfile::tempdir().expect("a folder");
        let history = Arc::new(History::open(dir.path()));
        let before = &object.status.as_ref().expect("a status").nodes;
        let work = Work::new(&moved, before, told(&leave), Aim::Spec, Schedule::unknown(), history);
        let now = || {
            let nodes = work.nodes().into_iter();
            nodes.map(|node| (node.host, node.phase, node.host_key.is_some(), node.error)).collect::<Vec<_>>()
        };
        let told = |host: &str, phase, known| (host.to_owned(), phase, known, None);
        let begun = [
            told("metal3/m", NodePhase::Waiting, true),
            told("metal3/y", NodePhase::Waiting, false),
            told("metal3/w", NodePhase::Removing, true),
        ];
        assert_eq!(now(), begun);
        // What is said of the node is about the server that it gets.
        work.change("w", |node| node.phase = NodePhase::Installed);
        work.does_not_leave(&leave[0].node, "a budget");
        assert_eq!(now()[1].1, NodePhase::Installed);
        assert_eq!(now()[2], ("metal3/w".to_owned(), NodePhase::Removing, true, Some("a budget".to_owned())));
        work.left(&leave[0].node);
        assert_eq!(now().len(), 2);
    }

    #[test]
    fn one_master_with_its_name_and_its_server_stays() {
        let object = object(&[node("m", "master", "m"), node("n", "master", "n")]);
        let hosts = [host("m", "p"), host("n", "p")];
        let why = |chosen: &[Chosen]| no_master_stays(&object, chosen, &hosts);
        let master = |name: &str, number: u8| chosen(name, number, &[NodeRole::Master]);
        assert_eq!(why(&[master("m", 1), master("n", 2)]), None);
        assert_eq!(why(&[master("n", 2)]), None, "one of two");
        let error = why(&[master("x", 3)]).expect("both go");
        assert!(error.contains("m (metal3/m), n (metal3/n)"), "{error}");
        let mut renamed = master("m", 1);
        renamed.name = "first".to_owned();
        assert!(why(&[renamed]).is_some(), "its server would be reset");
    }
}
