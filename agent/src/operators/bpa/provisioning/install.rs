//! The work on a cluster's servers, from the first connection to nodes that are Ready: a task of the operator. It can end at
//! any instant and be begun anew: what was done is known by the servers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_api::clusters::provisioning::{NodePhase, NodeRole, NodeStatus};
use agent_api::events::State;
use agent_api::meta::Time;
use futures_util::future::{join_all, try_join_all};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Node as KubernetesNode;
use kube::api::ListParams;
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde::de::DeserializeOwned;

use super::act::ABANDON;
use super::decide::{Chosen, told_key};
use super::wishes::Wanted;
use super::{balance, day_one, kubeadm, lost, route, upgrade};
use crate::cluster::follow;
use crate::node::plan::{CheckPlan, Invitation, Line, NodeFacts, NodePlan, Task};
use crate::operators::bpa::common::{Goods, Place};
use crate::operators::bpa::login::Login;
use crate::operators::bpa::servers::Agent;
use crate::ssh::{Session, SshError};

/// A server that has just been provisioned boots.
const BOOT: Duration = Duration::from_secs(600);
/// A node that has joined becomes Ready when its network runs: images are pulled and started.
const NODE_READY: Duration = Duration::from_secs(1800);
/// What stands for the addresses of pods in flannel's manifest (`packages/flannel/kube-flannel.yaml`).
const POD_CIDR: &str = "{podCIDR}";
/// Namespace of flannel in its manifest.
const FLANNEL: &str = "kube-flannel";
/// Pause between two looks at the nodes.
const LOOK: Duration = Duration::from_secs(3);

/// What a cluster is made of.
pub(super) struct Order {
    /// `namespace/name/uid` of the object.
    pub id: String,
    pub wanted: Wanted,
    pub chosen: Vec<Chosen>,
    pub version: String,
    pub goods: Goods,
    /// What is applied to it beside its network, each a document of YAML.
    pub day_one: Vec<String>,
    pub place: Place,
    pub login: Login,
    pub agent: Arc<Agent>,
    /// The cluster was whole before: it is never begun anew.
    pub existed: bool,
    /// Certificates are made anew.
    pub renew: bool,
    /// Nodes that go.
    pub leaving: Vec<NodeStatus>,
    /// Nodes that go, and do not answer, go without being reset.
    pub abandon: bool,
    /// Where each node's log is written.
    pub logs: PathBuf,
}

/// What came of it.
#[derive(Clone)]
pub(super) struct Made {
    pub kubeconfig: String,
    pub version: String,
    pub endpoint: String,
}

/// Work that runs, as its turns see it.
pub(super) struct Work {
    state: Mutex<Shared>,
}

struct Shared {
    /// In the order of the spec.
    nodes: Vec<NodeStatus>,
    sentence: String,
    steps: BTreeMap<String, (usize, usize)>,
    ended: Option<Result<Made, String>>,
}

impl Work {
    /// Work on these nodes, none of which has begun. `before`: what is known of those that are as they were.
    pub fn new(chosen: &[Chosen], before: &[NodeStatus]) -> Self {
        let known = |name: &str| before.iter().find(|node| node.name == name);
        let node = |chosen: &Chosen| NodeStatus {
            name: chosen.name.clone(),
            roles: chosen.roles.clone(),
            host: told_key(&chosen.host),
            mac_address: chosen.mac.to_string(),
            ip: chosen.ip.to_string(),
            phase: NodePhase::Waiting,
            step: None,
            since: None,
            error: None,
            // A host that was exchanged has another key.
            host_key: known(&chosen.name)
                .filter(|known| known.host == told_key(&chosen.host))
                .and_then(|known| known.host_key.clone()),
            secs: known(&chosen.name).and_then(|known| known.secs),
            installed_at: known(&chosen.name).and_then(|known| known.installed_at),
        };
        let sentence = "reaching the servers by SSH".to_owned();
        let nodes = chosen.iter().map(node).collect();
        Self { state: Mutex::new(Shared { nodes, sentence, steps: BTreeMap::new(), ended: None }) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        // Each change is whole: a panic elsewhere leaves it valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its nodes now.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.lock().nodes.clone()
    }

    /// What it does, in words.
    pub fn sentence(&self) -> String {
        self.lock().sentence.clone()
    }

    /// Its result, once it has ended.
    pub fn ended(&self) -> Option<Result<Made, String>> {
        self.lock().ended.clone()
    }

    /// It has ended.
    pub fn end(&self, result: Result<Made, String>) {
        self.lock().ended = Some(result);
    }

    pub fn say(&self, sentence: impl Into<String>) {
        self.lock().sentence = sentence.into();
    }

    pub fn change(&self, name: &str, change: impl FnOnce(&mut NodeStatus)) {
        if let Some(node) = self.lock().nodes.iter_mut().find(|node| node.name == name) {
            change(node);
        }
    }

    /// What a server's line says.
    fn hear(&self, name: &str, line: &Line) {
        let mut shared = self.lock();
        let counted = shared.steps.get(name).copied().unwrap_or_default();
        match line {
            Line::Steps(all) => {
                shared.steps.insert(name.to_owned(), (0, *all));
            }
            Line::Event(event) => {
                let (done, all) = counted;
                let step = format!("{}/{}", event.phase, event.step);
                let Some(node) = shared.nodes.iter_mut().find(|node| node.name == name) else { return };
                match event.state {
                    State::Started => {
                        node.phase = NodePhase::Installing;
                        node.step = Some(format!("{step} ({} of {all})", done + 1));
                        node.since = Some(Time(Timestamp::now()));
                        node.error = None;
                    }
                    State::Done | State::Skipped => {
                        node.error = None;
                        shared.steps.insert(name.to_owned(), (done + 1, all));
                    }
                    State::Failed => {
                        node.phase = NodePhase::Failing;
                        node.error = event.text("cause").map(str::to_owned);
                    }
                    State::Progress | State::Waiting => {}
                }
            }
            Line::Alive | Line::Done(_) => {}
        }
    }
}

/// A server, connected.
pub(super) struct Server<'a> {
    pub node: &'a Chosen,
    pub session: Session,
    agent: &'static str,
    pub facts: NodeFacts,
}

impl Server<'_> {
    pub fn is_master(&self) -> bool {
        self.node.roles.contains(&NodeRole::Master)
    }

    async fn ask<T: DeserializeOwned>(&self, arguments: &[&str], plan: &[u8]) -> anyhow::Result<T> {
        let mut argv = vec![self.agent, "node"];
        argv.extend(arguments);
        let answer = self.session.output(&argv, plan).await?;
        Ok(serde_json::from_slice(&answer.stdout)?)
    }

    /// What kubectl says on a master, as the cluster's administrator.
    pub async fn kubectl(&self, words: &[&str]) -> Result<Vec<u8>, SshError> {
        let kubectl = ["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"];
        Ok(self.session.output(&[&kubectl[..], words].concat(), b"").await?.stdout)
    }

    /// Has its pods go elsewhere, as `PodDisruptionBudget`s let them; `of` is the node.
    pub async fn drain(&self, of: &str) -> Result<(), SshError> {
        let words = ["drain", of, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=600s"];
        self.kubectl(&words).await.map(drop)
    }
}

/// Does the work.
pub(super) async fn install(order: &Order, work: &Work) -> anyhow::Result<Made> {
    let mut servers = reach(order, work).await?;
    work.say("checking the servers");
    check(order, &mut servers).await?;
    let first_at = first_master(order, &servers)?;
    let first = &servers[first_at];
    // A first install that was cut off goes on below.
    if order.existed && first.facts.member {
        upgrade::upgrade(order, work, &servers, first).await?;
    }
    if order.renew {
        upgrade::renew(order, work, &servers).await?;
    }
    work.say(format!("making {} the control plane", first.node.name));
    let flannel = order.goods.flannel.iter().map(|text| flannel(text, &order.wanted.pod_cidr));
    let manifests = flannel.chain(order.day_one.iter().cloned()).collect();
    let config = kubeadm::init(&order.wanted, &order.version, first.node);
    let kubeconfig = apply(order, work, first, Task::Init { config, manifests }).await?;
    let kubeconfig = kubeconfig.ok_or_else(|| anyhow::anyhow!("{} gave no kubeconfig", first.node.name))?;
    lost::forget_all(order, &servers, &servers[first_at]).await?;
    join(order, work, &servers, first_at).await?;
    work.say("removing nodes that are not wanted any more");
    remove(order, work, &servers[first_at]).await?;
    work.say("waiting for the nodes to be Ready");
    until_ready(order, work, &kubeconfig).await?;
    for server in servers {
        server.session.close().await;
    }
    let endpoint = kubeadm::endpoint(&order.wanted, &order.chosen[0]);
    Ok(Made { kubeconfig, version: order.version.clone(), endpoint })
}

/// Connects to all servers beside each other, leaves the cluster's key there, and brings the agent.
async fn reach<'a>(order: &'a Order, work: &Work) -> anyhow::Result<Vec<Server<'a>>> {
    let one = async |node: &'a Chosen| -> anyhow::Result<Server<'a>> {
        let known = work.nodes().into_iter().find(|known| known.name == node.name).and_then(|node| node.host_key);
        let target = order.login.target(node.ip, known);
        let session = Session::connect(&target, &order.login.identity, BOOT).await?;
        work.change(&node.name, |status| status.host_key = Some(session.host_key().to_owned()));
        leave_key(&session, &order.login).await?;
        let agent = order.agent.bring(&session).await?;
        Ok(Server { node, session, agent, facts: NodeFacts::default() })
    };
    let told = async |node: &'a Chosen| {
        let reached = one(node).await;
        if let Err(error) = &reached {
            work.change(&node.name, |status| status.error = Some(format!("{error:#}")));
        }
        reached
    };
    let reached = join_all(order.chosen.iter().map(told)).await;
    let failed: Vec<String> =
        reached.iter().filter_map(|one| one.as_ref().err()).map(|error| format!("{error:#}")).collect();
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(reached.into_iter().flatten().collect())
}

/// The cluster's key is good for the next connection, when the password may be another one.
async fn leave_key(session: &Session, login: &Login) -> Result<(), SshError> {
    let home = if login.user == "root" { "/root".to_owned() } else { format!("/home/{}", login.user) };
    let script = "home=$(getent passwd \"$1\" | cut -d: -f6); home=${home:-$2}; f=$home/.ssh/authorized_keys; \
                  grep -qxF \"$3\" \"$f\" 2>/dev/null || { install -d -m 700 -o \"$1\" \"$home/.ssh\" && printf '%s\\n' \"$3\" >> \"$f\" && \
                  chmod 600 \"$f\" && chown \"$1\" \"$f\"; }";
    session.output(&["sh", "-c", script, "sh", &login.user, &home, login.authorized.trim()], b"").await.map(drop)
}

/// Asks every server what speaks against it, before any is touched.
async fn check(order: &Order, servers: &mut [Server<'_>]) -> anyhow::Result<()> {
    let brought: Vec<String> = order.goods.programs.iter().map(|program| program.path.clone()).collect();
    let one = async |server: &mut Server<'_>| -> anyhow::Result<()> {
        let plan = CheckPlan {
            cluster: order.id.clone(),
            control_plane: server.is_master(),
            address: server.node.ip,
            reach: order.place.reach(),
            now: Timestamp::now().as_second(),
            brought: brought.clone(),
        };
        server.facts = server.ask(&["check"], &serde_json::to_vec(&plan)?).await?;
        Ok(())
    };
    try_join_all(servers.iter_mut().map(one)).await?;
    let mut problems = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        problems.extend(server.facts.problems.iter().map(|problem| format!("{}: {problem}", server.node.name)));
        let twin = servers[..at].iter().find(|other| other.facts.machine_id == server.facts.machine_id);
        if let Some(twin) = twin.filter(|_| !server.facts.machine_id.is_empty()) {
            problems.push(format!(
                "{} and {} have the same machine id; hint: empty /etc/machine-id in their image, and boot them again",
                twin.node.name, server.node.name
            ));
        }
    }
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// The master that has the cluster; the first one where there is none yet.
fn first_master(order: &Order, servers: &[Server<'_>]) -> anyhow::Result<usize> {
    let masters = || servers.iter().enumerate().filter(|(_, server)| server.is_master());
    if let Some((at, _)) = masters().find(|(_, server)| server.facts.member) {
        return Ok(at);
    }
    anyhow::ensure!(
        !order.existed,
        "no master of the cluster is left, and it is not begun anew over its remains; hint: bring one back, or delete the \
         Provisioning and make it again"
    );
    masters().map(|(at, _)| at).next().ok_or_else(|| anyhow::anyhow!("there is no master"))
}

/// The others: masters one after the other, for etcd's sake, then all workers beside each other.
async fn join(order: &Order, work: &Work, servers: &[Server<'_>], first_at: usize) -> anyhow::Result<()> {
    let first = &servers[first_at];
    let others = || servers.iter().enumerate().filter(|(at, _)| *at != first_at).map(|(_, server)| server);
    let one = async |server: &Server<'_>, invitation: &Invitation| {
        let config = kubeadm::join(&order.wanted, first.node, server.node, invitation);
        apply(order, work, server, Task::Join { config, control_plane: server.is_master() }).await.map(drop)
    };
    for master in others().filter(|server| server.is_master()) {
        work.say(format!("{} joins the control plane", master.node.name));
        let invitation: Invitation = first.ask(&["invite", "--control-plane"], b"").await?;
        one(master, &invitation).await?;
    }
    let workers: Vec<&Server<'_>> = others().filter(|server| !server.is_master()).collect();
    if workers.is_empty() {
        return Ok(());
    }
    work.say(format!("{} workers join", workers.len()));
    let invitation: Invitation = first.ask(&["invite"], b"").await?;
    let ended = join_all(workers.into_iter().map(|worker| one(worker, &invitation))).await;
    let failed: Vec<String> = ended.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Has a server do its part, and follows it. Returns the kubeconfig, if it has one to give.
pub(super) async fn apply(
    order: &Order,
    work: &Work,
    server: &Server<'_>,
    task: Task,
) -> anyhow::Result<Option<String>> {
    let name = &server.node.name;
    let mut files = balance::files(&order.wanted, &order.chosen, server.node);
    files.push(route::file(&order.wanted, server.node));
    let plan = NodePlan {
        cluster: order.id.clone(),
        node: name.clone(),
        address: server.node.ip,
        version: order.version.clone(),
        hosts_toml: order.goods.hosts_toml.clone(),
        programs: order.goods.programs.clone(),
        files,
        task,
    };
    let begun = Timestamp::now();
    let mut log = Vec::new();
    let mut kubeconfig = None;
    let hear = |text: &str| match serde_json::from_str::<Line>(text) {
        Ok(Line::Done(made)) => kubeconfig = made,
        Ok(line) => {
            if let Line::Event(event) = &line {
                log.push(format!("{} {}", Timestamp::now(), serde_json::json!(event)));
            }
            work.hear(name, &line);
        }
        Err(_) => log.push(text.to_owned()),
    };
    let ran = server.session.run(&[server.agent, "node", "apply"], &serde_json::to_vec(&plan)?, hear).await;
    write_log(order, name, &log);
    if let Err(error) = ran {
        work.change(name, |status| {
            status.phase = NodePhase::Failing;
            status.error = Some(crate::steps::chain(&error));
        });
        return Err(error.into());
    }
    let secs = Timestamp::now().as_second() - begun.as_second();
    work.change(name, |status| {
        status.phase = NodePhase::Installed;
        status.step = None;
        status.since = None;
        status.error = None;
        if !server.facts.member {
            status.secs = Some(secs);
            status.installed_at = Some(Time(Timestamp::now()));
        }
    });
    Ok(kubeconfig)
}

/// A log that cannot be written stops nothing.
fn write_log(order: &Order, node: &str, lines: &[String]) {
    let path = order.logs.join(format!("{node}.log"));
    let written = fs_err::create_dir_all(&order.logs).and_then(|()| {
        let mut text = fs_err::read_to_string(&path).unwrap_or_default();
        text.extend(lines.iter().map(|line| format!("{line}\n")));
        crate::host::files::replace(&path, text.as_bytes())
    });
    if let Err(error) = written {
        log::warn!("{error}");
    }
}

/// Nodes that are not wanted any more are drained, as `PodDisruptionBudget`s let it, and leave the cluster. Their servers are
/// reset when they are let go.
async fn remove(order: &Order, work: &Work, first: &Server<'_>) -> anyhow::Result<()> {
    for node in &order.leaving {
        work.say(format!("draining {}", node.name));
        let there = first.kubectl(&["get", "node", &node.name, "--ignore-not-found", "-o", "name"]).await?;
        if there.is_empty() {
            continue;
        }
        if !order.abandon {
            first.drain(&node.name).await?;
        }
        match order.agent.ask(&order.login, node, "reset", b"").await {
            Ok(_) => first.kubectl(&["delete", "node", &node.name, "--ignore-not-found"]).await.map(drop)?,
            Err(error) if order.abandon => {
                log::warn!("{}: {error:#}; it leaves the cluster as it is", node.name);
                lost::forget(first, &node.name, node.roles.contains(&NodeRole::Master)).await?;
            }
            Err(error) => {
                let hint = format!("the annotation `{ABANDON}` of the Provisioning has it leave as it is");
                return Err(error.context(format!("{} is not reset; hint: {hint}", node.name)));
            }
        }
    }
    Ok(())
}

/// flannel's manifest, for this cluster's addresses.
fn flannel(manifest: &str, pod_cidr: &str) -> String {
    manifest.replace(POD_CIDR, pod_cidr)
}

/// Asks the new cluster until every node is Ready.
async fn until_ready(order: &Order, work: &Work, kubeconfig: &str) -> anyhow::Result<()> {
    let client = follow::client_of(Kubeconfig::from_yaml(kubeconfig)?).await?;
    let nodes = Api::<KubernetesNode>::all(client.clone());
    let network = order.wanted.cni != agent_api::clusters::provisioning::Cni::None;
    let begun = tokio::time::Instant::now();
    loop {
        let missing = match nodes.list(&ListParams::default()).await {
            Ok(list) => missing(&order.chosen, &list.items, network),
            Err(error) => Some(format!("the API of the cluster: {error}")),
        };
        // Nodes are Ready before their network is: pods are what clusters are for.
        let missing = if missing.is_none() && network { unready_parts(&client).await } else { missing };
        let Some(missing) = missing else { return Ok(()) };
        anyhow::ensure!(begun.elapsed() < NODE_READY, "not Ready after {} min: {missing}", NODE_READY.as_secs() / 60);
        work.say(format!("waiting for {missing}"));
        tokio::time::sleep(LOOK).await;
    }
}

/// The first part of the cluster itself that does not run: its network, its name service, what leads to Services.
async fn unready_parts(client: &Client) -> Option<String> {
    let all = ListParams::default();
    for namespace in ["kube-system", FLANNEL].into_iter().chain(day_one::NAMESPACES) {
        let sets = Api::<DaemonSet>::namespaced(client.clone(), namespace).list(&all).await;
        let deployments = Api::<Deployment>::namespaced(client.clone(), namespace).list(&all).await;
        let (sets, deployments) = match (sets, deployments) {
            (Ok(sets), Ok(deployments)) => (sets.items, deployments.items),
            (Err(error), _) | (_, Err(error)) => return Some(format!("the API of the cluster: {error}")),
        };
        let found = sets.iter().find_map(unready_set).or_else(|| deployments.iter().find_map(unready_deployment));
        if found.is_some() {
            return found;
        }
    }
    None
}

fn unready_set(set: &DaemonSet) -> Option<String> {
    let (name, status) = (set.metadata.name.as_deref().unwrap_or_default(), set.status.as_ref());
    let (ready, all) = status.map_or((0, 0), |status| (status.number_ready, status.desired_number_scheduled));
    (ready < all.max(1)).then(|| format!("DaemonSet {name}: {ready} of {} pods are ready", all.max(1)))
}

fn unready_deployment(deployment: &Deployment) -> Option<String> {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let available = deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default();
    (available == 0).then(|| format!("Deployment {name}: none of its pods is available"))
}

/// The first node that is not there or not Ready, and why. Without a network of ours, to be there is enough.
pub(super) fn missing(chosen: &[Chosen], nodes: &[KubernetesNode], network: bool) -> Option<String> {
    chosen.iter().find_map(|chosen| {
        let Some(node) = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(&chosen.name)) else {
            return Some(format!("node {}: the cluster does not know it", chosen.name));
        };
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        let holds = ready.is_some_and(|condition| condition.status == "True");
        let why = ready.and_then(|condition| condition.message.clone()).unwrap_or_default();
        (network && !holds).then(|| format!("node {}: {why}", chosen.name))
    })
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::NodeRole;
    use k8s_openapi::api::core::v1::Node as KubernetesNode;
    use serde_json::json;

    use super::super::decide::tests::chosen;
    use super::{flannel, missing, unready_deployment, unready_set};

    #[test]
    fn flannels_own_manifest_gets_the_addresses_of_the_cluster() {
        let carried = include_str!("../../../../../packages/flannel/kube-flannel.yaml");
        let applied = flannel(carried, "10.9.0.0/16");
        assert!(applied.contains(r#""Network": "10.9.0.0/16""#) && !applied.contains("\"{podCIDR}\""), "{applied}");
    }

    #[test]
    fn parts_that_do_not_run_are_named() {
        let set = |ready: i32, all: i32| -> Option<String> {
            let status = json!({"numberReady": ready, "desiredNumberScheduled": all, "currentNumberScheduled": all, "numberMisscheduled": 0});
            let object = json!({"metadata": {"name": "kube-flannel-ds"}, "status": status});
            unready_set(&serde_json::from_value(object).expect("a set"))
        };
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
    fn a_node_that_is_not_ready_is_named_with_its_reason() {
        let chosen = chosen("w", 20, &[NodeRole::Worker]);
        let node = |status: &str| -> Vec<KubernetesNode> {
            let object = json!({"metadata": {"name": "w"}, "status": {"conditions": [
                {"type": "Ready", "status": status, "message": "cni plugin not initialized"}]}});
            vec![serde_json::from_value(object).expect("a node")]
        };
        let told = |nodes: &[KubernetesNode], network| missing(std::slice::from_ref(&chosen), nodes, network);
        assert_eq!(told(&[], true).as_deref(), Some("node w: the cluster does not know it"));
        assert_eq!(told(&node("False"), true).as_deref(), Some("node w: cni plugin not initialized"));
        assert_eq!(told(&node("False"), false), None, "the user brings the network");
        assert_eq!(told(&node("True"), true), None);
    }
}
