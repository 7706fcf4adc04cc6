//! Upgrades a cluster that runs to another version of Kubernetes, node by node, as kubeadm's documents describe it. It can
//! be cut at any time: the cluster itself says which nodes have the new version.

use agent_api::clusters::provisioning::{NodeRole, Provisioning, ProvisioningStatus};
use serde_json::Value;

use super::act::asked_version;
use super::balance;
use super::decide::Chosen;
use super::eta::Part;
use super::install::{Order, Work, apply};
use super::kubeadm::at;
use super::lost::etcdctl;
use super::reach::Server;
use super::wishes::Wanted;
use crate::node::plan::Task;
use crate::operators::bpa::nodes::{drain, is_drained_for, mark, take_pods_again, until_ready};

/// The word of this work on nodes that it drained.
const UPGRADE: &str = "true";

/// Upgrades what has not the version of the order: the cluster and its first master, other masters, workers. `first` is a
/// master that runs. Returns what could not be done because nodes do not answer.
pub(super) async fn upgrade(
    order: &Order,
    work: &Work,
    servers: &[Server<'_>],
    first: &Server<'_>,
    away: &[(&Chosen, String)],
) -> anyhow::Result<Vec<String>> {
    let nodes: Value = serde_json::from_slice(&first.kubectl(&["get", "nodes", "--output=json"]).await?)?;
    let words =
        ["-n", "kube-system", "get", "configmap", "kubeadm-config", "--output=jsonpath={.data.ClusterConfiguration}"];
    let config = first.kubectl(&words).await?;
    let cluster = version_of(&String::from_utf8_lossy(&config));
    if let Some(why) = cluster.as_deref().and_then(|cluster| no_way(cluster, &order.version)) {
        anyhow::bail!("{why}");
    }
    let members: Vec<&Server<'_>> = servers.iter().filter(|server| server.facts.member).collect();
    let alone = members.len() < 2;
    let is_first = |name: &str| name == first.node.name && cluster.as_deref() != Some(&order.version);
    let lags = |name: &str| is_first(name) || lags(&nodes, name, &order.version);
    let turns = in_turn(&members, &first.node.name, |server| (server.node.name.as_str(), server.is_master()));
    let lagging = turns.iter().map(|server| server.node.name.clone()).filter(|name| lags(name));
    work.insert(Part::Upgrade, lagging);
    for server in turns {
        let name = server.node.name.as_str();
        if !lags(name) {
            // One that was drained when the work was cut off takes pods again.
            if is_drained(&nodes, name) {
                take_pods_again(&first.session, name).await?;
            }
            continue;
        }
        if let Some(other) = work.wishes_instead(&order.version) {
            anyhow::bail!("the upgrade to {} was stopped before {name}: the spec asks for {other} now", order.version);
        }
        work.begin(Part::Upgrade, name);
        // What somebody else keeps from new pods stays so.
        let drains = !alone && (!is_cordoned(&nodes, name) || is_drained(&nodes, name));
        if drains {
            mark(&first.session, name, UPGRADE).await?;
        }
        if !alone {
            work.say(format!("draining {name} for {}", order.version));
            drain(&first.session, name).await?;
        }
        if is_first(name) {
            // It lies beside the data, and outlives the pod.
            work.say(format!("keeping a copy of etcd before {}", order.version));
            let path = format!("/var/lib/etcd/before-{}.db", order.version);
            etcdctl(first, &["snapshot", "save", &path]).await?;
        }
        work.say(format!("upgrading {name} to {}", order.version));
        apply(order, work, server, Task::Upgrade { first: is_first(name) }).await?;
        // The kubelet starts the API server anew, too, when something of its pod has changed.
        first.until_api_answers(work).await?;
        until_ready(&first.session, name).await?;
        if drains {
            take_pods_again(&first.session, name).await?;
        }
    }
    Ok(not_upgraded(&nodes, away, &order.version))
}

/// Why a cluster that was made cannot become what its spec asks for: a version that kubeadm does not go to, another endpoint,
/// other networks.
pub(super) fn impossible(object: &Provisioning, wanted: &Wanted) -> Option<String> {
    let status = object.status.as_ref()?;
    let version = || no_way(status.version.as_deref()?, asked_version(object)?);
    let by_box = object.spec.installer.is_none() && status.finished_at.is_some();
    version().or_else(|| by_box.then(|| fixed(status, wanted)).flatten())
}

/// What kubeadm writes into certificates, kubeconfigs and every node when it makes a cluster, and the spec asks for otherwise.
fn fixed(status: &ProvisioningStatus, wanted: &Wanted) -> Option<String> {
    let made = status.endpoint.as_deref()?;
    let of_node = || status.nodes.iter().any(|node| made == at(&node.ip, 6443));
    let asked = match (&wanted.endpoint, wanted.virtual_ip) {
        (Some((host, port)), _) => at(host, *port),
        (None, Some(shared)) => at(&shared.to_string(), balance::PORT),
        (None, None) if of_node() => made.to_owned(),
        (None, None) => "the address of its master".to_owned(),
    };
    if asked != made {
        return Some(format!(
            "the API of the cluster was made as {made}, which its certificates and its nodes name, and cannot become {asked}; \
             hint: ask for {made} again. A cluster that grows to three masters has its `virtualIP` from the start"
        ));
    }
    let networks =
        [("podCIDR", &status.pod_cidr, &wanted.pod_cidr), ("serviceCIDR", &status.service_cidr, &wanted.service_cidr)];
    let changed = networks.into_iter().find(|(_, made, asked)| made.as_ref().is_some_and(|made| made != *asked));
    changed.map(|(key, made, asked)| {
        let made = made.as_deref().unwrap_or_default();
        format!(
            "spec.kubernetes.{key} is `{asked}`, and the cluster was made with `{made}`, which cannot change; hint: write \
             `{key}: {made}`"
        )
    })
}

/// Why a cluster cannot go from one release to another: kubeadm goes to no older one, and over no minor release.
fn no_way(from: &str, to: &str) -> Option<String> {
    let read = |text: &str| semver::Version::parse(text.trim_start_matches('v')).ok();
    let (has, wanted) = (read(from)?, read(to)?);
    if wanted < has {
        return Some(format!(
            "the cluster has Kubernetes {from}, and kubeadm does not go back to {to}; hint: write `version: {from}` or a newer one"
        ));
    }
    (wanted.minor > has.minor + 1).then(|| {
        format!(
            "the cluster has Kubernetes {from}, and kubeadm goes one minor release at a time; hint: upgrade it to a v{}.{} first",
            has.major,
            has.minor + 1
        )
    })
}

/// Nodes that do not answer and have another version, each with the reason.
fn not_upgraded(nodes: &Value, away: &[(&Chosen, String)], version: &str) -> Vec<String> {
    let undone = away.iter().filter(|(node, _)| lags(nodes, &node.name, version));
    undone.map(|(node, why)| format!("{} is not upgraded to {version}: {why}", node.name)).collect()
}

/// Renews the certificates of all masters, one after the other, so that the others answer meanwhile. Returns what could not
/// be done because masters do not answer.
pub(super) async fn renew(
    order: &Order,
    work: &Work,
    servers: &[Server<'_>],
    away: &[(&Chosen, String)],
) -> anyhow::Result<Vec<String>> {
    for server in servers.iter().filter(|server| server.is_master() && server.facts.member) {
        work.say(format!("renewing the certificates of {}", server.node.name));
        apply(order, work, server, Task::Renew).await?;
    }
    let undone = away.iter().filter(|(node, _)| node.roles.contains(&NodeRole::Master));
    Ok(undone.map(|(node, why)| format!("the certificates of {} are not renewed: {why}", node.name)).collect())
}

/// The first master, the other masters, the workers. `of`: name, and whether it is a master.
fn in_turn<'a, T>(members: &'a [T], first: &str, of: impl Fn(&'a T) -> (&'a str, bool)) -> Vec<&'a T> {
    let mut all: Vec<&T> = members.iter().collect();
    all.sort_by_key(|member| {
        let (name, is_master) = of(member);
        (name != first, !is_master)
    });
    all
}

/// `kubernetesVersion` of kubeadm's configuration of the cluster.
fn version_of(config: &str) -> Option<String> {
    let value = config.lines().find_map(|line| line.strip_prefix("kubernetesVersion:"))?;
    Some(value.trim().trim_matches('"').to_owned())
}

fn node<'a>(nodes: &'a Value, name: &str) -> Option<&'a Value> {
    nodes["items"].as_array()?.iter().find(|node| node["metadata"]["name"] == name)
}

/// Version of a node's kubelet.
fn kubelet_of(nodes: &Value, name: &str) -> Option<String> {
    node(nodes, name)?["status"]["nodeInfo"]["kubeletVersion"].as_str().map(str::to_owned)
}

/// Whether a node of the cluster has another version. One that the cluster does not know has yet to join.
fn lags(nodes: &Value, name: &str, version: &str) -> bool {
    kubelet_of(nodes, name).is_some_and(|has| has != version)
}

/// Whether an upgrade drained it.
fn is_drained(nodes: &Value, name: &str) -> bool {
    node(nodes, name).is_some_and(|node| is_drained_for(node, UPGRADE))
}

fn is_cordoned(nodes: &Value, name: &str) -> bool {
    node(nodes, name).is_some_and(|node| node["spec"]["unschedulable"] == true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::decide::tests::chosen;
    use super::super::eta::{History, Schedule};
    use super::super::upkeep::Aim;
    use super::*;
    use crate::operators::bpa::nodes::DRAINED;

    #[test]
    fn the_cluster_says_which_version_it_and_each_node_has() {
        let config =
            "apiServer: {}\nclusterName: one\nkubernetesVersion: v1.36.4\nnetworking:\n  podSubnet: 10.9.0.0/16\n";
        assert_eq!(version_of(config).as_deref(), Some("v1.36.4"));
        let nodes = json!({"items": [{"metadata": {"name": "m"}, "spec": {"unschedulable": true},
            "status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}}]});
        assert_eq!(kubelet_of(&nodes, "m").as_deref(), Some("v1.36.3"));
        assert!(is_cordoned(&nodes, "m") && !is_cordoned(&nodes, "w"));
        assert_eq!(kubelet_of(&nodes, "w"), None);
        // A join that was cut off: there is nothing to drain, and the join goes on behind the upgrade.
        for (name, version, expected) in [("m", "v1.36.3", false), ("m", "v1.36.4", true), ("w", "v1.36.4", false)] {
            assert_eq!(lags(&nodes, name, version), expected, "{name} {version}");
        }
    }

    /// Somebody may keep a node from new pods for reasons of his own.
    #[test]
    fn only_a_node_that_an_upgrade_drained_takes_pods_again_by_itself() {
        let nodes = json!({"items": [
            {"metadata": {"name": "a"}, "spec": {"unschedulable": true}},
            {"metadata": {"name": "b", "annotations": {DRAINED: UPGRADE}}, "spec": {"unschedulable": true}},
            {"metadata": {"name": "c"}, "spec": {}}]});
        assert_eq!(["a", "b", "c", "d"].map(|name| is_drained(&nodes, name)), [false, true, false, false]);
    }

    #[test]
    fn nodes_that_are_away_are_upgraded_when_they_answer_again() {
        let (lags, has) = (chosen("w-0", 21, &[NodeRole::Worker]), chosen("w-1", 22, &[NodeRole::Worker]));
        let nodes = json!({"items": [
            {"metadata": {"name": "w-0"}, "status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}},
            {"metadata": {"name": "w-1"}, "status": {"nodeInfo": {"kubeletVersion": "v1.36.4"}}}]});
        let away = [(&lags, "no answer".to_owned()), (&has, "no answer".to_owned())];
        assert_eq!(not_upgraded(&nodes, &away, "v1.36.4"), ["w-0 is not upgraded to v1.36.4: no answer"]);
        assert!(not_upgraded(&nodes, &[], "v1.36.4").is_empty());
    }

    #[test]
    fn an_upgrade_is_stopped_by_the_wish_for_another_version_and_by_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let work = Work::new(&[], &[], Vec::new(), Aim::Spec, Schedule::unknown(), Arc::new(History::open(dir.path())));
        assert_eq!(work.wishes_instead("v1.36.4"), None);
        work.wish(Some("v1.36.4"));
        assert_eq!(work.wishes_instead("v1.36.4"), None);
        work.wish(Some("v1.35.8"));
        assert_eq!(work.wishes_instead("v1.36.4").as_deref(), Some("v1.35.8"));
        work.wish(None);
        assert_eq!(work.wishes_instead("v1.36.4"), None);
    }

    #[test]
    fn kubeadm_goes_to_the_next_minor_release_at_most_and_never_back() {
        for to in ["v1.36.4", "v1.36.5", "v1.37.0"] {
            assert_eq!(no_way("v1.36.4", to), None, "{to}");
        }
        let back = no_way("v1.36.4", "v1.35.8").expect("refused");
        assert!(back.contains("does not go back to v1.35.8; hint: write `version: v1.36.4`"), "{back}");
        assert!(no_way("v1.36.4", "v1.36.3").is_some());
        // Numbers, not texts.
        assert_eq!(no_way("v1.36.9", "v1.36.10"), None);
        let over = no_way("v1.35.8", "v1.37.0").expect("refused");
        assert!(over.ends_with("hint: upgrade it to a v1.36 first"), "{over}");
    }

    #[test]
    fn the_first_master_is_first_and_workers_are_last() {
        let all = [("w-0", false), ("m-0", true), ("m-1", true), ("w-1", false)];
        let names: Vec<&str> = in_turn(&all, "m-1", |node| (node.0, node.1)).into_iter().map(|node| node.0).collect();
        assert_eq!(names, ["m-1", "m-0", "w-0", "w-1"]);
    }
}
