//! The work on a cluster's servers, from the first connection to nodes that are Ready: a task of the operator. It can be
//! cut at any time and begun again: each server's ledger says what was done.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_api::clusters::provisioning::{NodePhase, NodeStatus};
use agent_api::events::State;
use agent_api::meta::Time;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::decide::Chosen;
use super::eta::{History, Part, Schedule};
use super::leaving::Leaving;
use super::reach::{Reached, Server, check, first_master, reach};
use super::ready::until_ready;
use super::tell::{Told, What, with_failing};
use super::upkeep::Aim;
use super::wishes::Wanted;
use super::{balance, kubeadm, leaving, login, lost, route, upgrade};
use crate::node::plan::{Invitation, Line, NodePlan, Task};
use crate::operators::bpa::common::{Goods, Place};
use crate::operators::bpa::login::Login;
use crate::operators::bpa::servers::Agent;
use crate::operators::kit::told_key;

/// Placeholder of the addresses of pods in flannel's manifest (`packages/flannel/kube-flannel.yaml`).
const POD_CIDR: &str = "{podCIDR}";
/// Namespace of flannel in its manifest.
pub(super) const FLANNEL: &str = "kube-flannel";
/// What stands between two objects of a manifest.
const DOCUMENT: &str = "\n---\n";
/// Most bytes of a node's log.
const LOG: usize = 1 << 20;
/// Pause between two looks at the nodes.
pub(super) const LOOK: Duration = Duration::from_secs(3);

/// What the work needs to know of a cluster.
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
    /// Whether the cluster was complete before: such a cluster is never created again.
    pub existed: bool,
    /// Whether certificates are renewed.
    pub renew: bool,
    /// Nodes that leave the cluster.
    pub leaving: Vec<Leaving>,
    /// Whether nodes that leave may stay without a reset when they do not answer.
    pub abandon: bool,
    /// Where each node's log is written.
    pub logs: PathBuf,
}

/// The result of the work.
#[derive(Clone)]
pub(super) struct Made {
    pub kubeconfig: String,
    pub version: String,
    pub endpoint: String,
    /// Addresses of pods and of Services, where the box chose them.
    pub networks: Option<(String, String)>,
}

/// Work that runs, as turns of the controller see it.
pub(super) struct Work {
    state: Mutex<Shared>,
    aim: Aim,
    history: Arc<History>,
    /// Generation of the object for whose spec it is.
    generation: Option<i64>,
    halt: CancellationToken,
}

struct Shared {
    /// In the order of the spec; then those that leave.
    nodes: Vec<NodeStatus>,
    sentence: String,
    steps: BTreeMap<String, (usize, usize)>,
    schedule: Schedule,
    /// Version that the spec asks for now, if it names one.
    wish: Option<String>,
    /// What was made, though something may be left undone.
    made: Option<Made>,
    ended: Option<Result<Made, String>>,
}

impl Work {
    /// Work on these nodes that has not begun. `before`: the status of nodes that need no work. `leave`: nodes that leave.
    /// `schedule`: what is to be done, as far as times are known.
    pub fn new(
        chosen: &[Chosen],
        before: &[NodeStatus],
        leave: Vec<NodeStatus>,
        aim: Aim,
        schedule: Schedule,
        history: Arc<History>,
    ) -> Self {
        // A host that was exchanged has another key.
        let known = |chosen: &Chosen| before.iter().find(|node| chosen.is(node));
        let node = |chosen: &Chosen| NodeStatus {
            name: chosen.name.clone(),
            roles: chosen.roles.clone(),
            host: told_key(&chosen.host),
            mac_address: chosen.mac.to_string(),
            ip: chosen.ip.to_string(),
            phase: NodePhase::Waiting,
            step: None,
            since: None,
            eta: None,
            error: None,
            host_key: known(chosen).and_then(|known| known.host_key.clone()),
            secs: known(chosen).and_then(|known| known.secs),
            installed_at: known(chosen).and_then(|known| known.installed_at),
        };
        let sentence = "reaching the servers by SSH".to_owned();
        let nodes = chosen.iter().map(node).chain(leave).collect();
        let shared = Shared { nodes, sentence, steps: BTreeMap::new(), schedule, wish: None, made: None, ended: None };
        Self { state: Mutex::new(shared), aim, history, generation: None, halt: CancellationToken::new() }
    }

    /// The same, for the spec of that generation.
    pub fn of(self, generation: Option<i64>) -> Self {
        Self { generation, ..self }
    }

    /// Generation of the object for whose spec it is.
    pub const fn generation(&self) -> Option<i64> {
        self.generation
    }

    /// Ends it, wherever it is, as the end of the operator does: servers go on with what they have begun.
    pub fn halt(&self) {
        self.halt.cancel();
    }

    /// Waits until it is to end.
    pub async fn until_halted(&self) {
        self.halt.cancelled().await;
    }

    /// Whether it was ended before its end.
    pub fn is_halted(&self) -> bool {
        self.halt.is_cancelled()
    }

    /// Whether something fails that a newer spec may not ask for: it would be tried for ever.
    pub fn is_in_the_way_of(&self, generation: Option<i64>) -> bool {
        let failing = |node: &NodeStatus| node.phase == NodePhase::Failing;
        self.generation != generation && self.lock().nodes.iter().any(failing)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        // Each change is whole: a panic elsewhere leaves it valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its nodes now.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.lock().nodes.clone()
    }

    /// What it is for.
    pub const fn aim(&self) -> Aim {
        self.aim
    }

    /// What the status says of it while it runs. Upkeep leaves the nodes as they are told.
    pub fn told(&self, what: What) -> Told {
        let shared = self.lock();
        let eta = shared.schedule.estimate(Timestamp::now(), &self.history);
        let why = with_failing(&shared.sentence, &shared.nodes);
        let nodes = (self.aim == Aim::Spec).then(|| shared.nodes.clone());
        Told { nodes, eta, ..Told::new(what, why) }
    }

    /// A part of the work begins; `node` is empty when it is about the whole cluster.
    pub fn begin(&self, part: Part, node: &str) {
        self.lock().schedule.begin(part, node, Timestamp::now());
    }

    /// That part came to its end.
    pub fn done(&self, part: Part, node: &str) {
        self.lock().schedule.end(part, node, Timestamp::now(), &self.history);
    }

    /// That part has nothing to do.
    pub fn skip(&self, part: Part, node: &str) {
        self.lock().schedule.skip(part, node);
    }

    /// More is to be done, node by node.
    pub fn insert(&self, part: Part, nodes: impl IntoIterator<Item = String>) {
        self.lock().schedule.insert(part, nodes);
    }

    /// The spec asks for this version now, if it names one.
    pub fn wish(&self, version: Option<&str>) {
        self.lock().wish = version.map(str::to_owned);
    }

    /// The version that the spec asks for now, if it is another one.
    pub fn wishes_instead(&self, of: &str) -> Option<String> {
        self.lock().wish.clone().filter(|wish| wish != of)
    }

    /// This was made, whatever is left undone on nodes that do not answer: its kubeconfig may be a renewed one.
    pub fn has_made(&self, made: &Made) {
        self.lock().made = Some(made.clone());
    }

    /// What was made.
    pub fn made(&self) -> Option<Made> {
        self.lock().made.clone()
    }

    /// Its result, once it has ended.
    pub fn ended(&self) -> Option<Result<Made, String>> {
        self.lock().ended.clone()
    }

    /// Whether it has ended.
    pub fn end(&self, result: Result<Made, String>) {
        self.lock().ended = Some(result);
    }

    pub fn say(&self, sentence: impl Into<String>) {
        self.lock().sentence = sentence.into();
    }

    /// A node has left.
    pub fn left(&self, node: &NodeStatus) {
        self.lock().nodes.retain(|one| !is_leaving(one, node));
    }

    /// A node could not leave, for this reason.
    pub fn does_not_leave(&self, node: &NodeStatus, why: &str) {
        if let Some(node) = self.lock().nodes.iter_mut().find(|one| is_leaving(one, node)) {
            node.error = Some(why.to_owned());
        }
    }

    pub fn change(&self, name: &str, change: impl FnOnce(&mut NodeStatus)) {
        if let Some(node) = self.lock().nodes.iter_mut().find(|node| node.name == name) {
            change(node);
        }
    }

    /// Takes over what a line of the server says.
    fn hear(&self, name: &str, part: Option<Part>, line: &Line) {
        let mut shared = self.lock();
        if let (Some(part), Line::Event(event)) = (part, line) {
            let (step, now) = (format!("{}/{}", event.phase, event.step), Timestamp::now());
            match event.state {
                State::Started => shared.schedule.step(part, name, &step, now, &self.history),
                State::Done => shared.schedule.done(part, name, true, now, &self.history),
                State::Skipped => shared.schedule.done(part, name, false, now, &self.history),
                State::Failed | State::Progress | State::Waiting => {}
            }
        }
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

/// Whether `one` is that node, on its way out.
fn is_leaving(one: &NodeStatus, node: &NodeStatus) -> bool {
    one.phase == NodePhase::Removing && one.name == node.name && one.host == node.host
}

/// Does the work.
pub(super) async fn install(order: &Order, work: &Work) -> anyhow::Result<Made> {
    work.insert(Part::Remove, order.leaving.iter().map(|leaving| leaving.node.name.clone()));
    work.begin(Part::Check, "");
    let mut reached = reach(order, work).await?;
    work.say("checking the servers");
    check(order, work, &mut reached.servers).await?;
    leaving::begin_anew(order, &mut reached.servers);
    let first_at = first_master(order, &reached)?;
    work.done(Part::Check, "");
    let Reached { servers, away } = reached;
    let first = &servers[first_at];
    // What is left undone on nodes that do not answer.
    let mut undone = Vec::new();
    // Before the API is asked for anything: with certificates that have ended it answers nobody.
    if order.renew {
        undone.extend(upgrade::renew(order, work, &servers, &away).await?);
    }
    // A first install whose first master was cut off goes on below.
    let runs = first.facts.member && (order.existed || first.facts.whole);
    if runs {
        first.until_api_answers(work).await?;
    }
    leaving::make_way(order, work, runs.then_some(first)).await?;
    if runs {
        undone.extend(upgrade::upgrade(order, work, &servers, first, &away).await?);
    }
    work.say(format!("making {} the control plane", first.node.name));
    let api = kubeadm::host_and_port(&order.wanted, first.node);
    let flannel = order.goods.flannel.as_ref().map(|text| flannel(text, &order.wanted.pod_cidr, api)).transpose()?;
    let manifests = flannel.into_iter().chain(order.day_one.iter().cloned()).collect();
    let config = kubeadm::init(&order.wanted, &order.version, first.node);
    let kubeconfig = apply(order, work, first, Task::Init { config, manifests }).await?;
    let kubeconfig = kubeconfig.ok_or_else(|| anyhow::anyhow!("{} gave no kubeconfig", first.node.name))?;
    lost::forget_all(order, &servers, &servers[first_at]).await?;
    lost::make_room(order, &servers, &away, &servers[first_at]).await?;
    join(order, work, &servers, first_at).await?;
    work.say("removing nodes that are not wanted any more");
    leaving::remove_others(order, work, &servers[first_at]).await?;
    work.say("waiting for the nodes to be Ready");
    work.begin(Part::Ready, "");
    let awaited: Vec<Chosen> = servers.iter().map(|server| server.node.clone()).collect();
    until_ready(order, &awaited, work, &kubeconfig).await?;
    work.done(Part::Ready, "");
    for server in servers {
        server.session.close().await;
    }
    let endpoint = kubeadm::endpoint(&order.wanted, &order.chosen[0]);
    let networks = Some((order.wanted.pod_cidr.clone(), order.wanted.service_cidr.clone()));
    let made = Made { kubeconfig, version: order.version.clone(), endpoint, networks };
    work.has_made(&made);
    anyhow::ensure!(undone.is_empty(), "{}", undone.join("\n"));
    Ok(made)
}

/// The other nodes join: masters one after the other, because etcd takes one new member at a time, then all workers at
/// once.
async fn join(order: &Order, work: &Work, servers: &[Server<'_>], first_at: usize) -> anyhow::Result<()> {
    let first = &servers[first_at];
    let others = || servers.iter().enumerate().filter(|(at, _)| *at != first_at).map(|(_, server)| server);
    let one = async |server: &Server<'_>, invitation: &Invitation| {
        let config = kubeadm::join(&order.wanted, first.node, server.node, invitation);
        apply(order, work, server, Task::Join { config, control_plane: server.is_master() }).await.map(drop)
    };
    for master in others().filter(|server| server.is_master()) {
        work.say(format!("{} joins the control plane", master.node.name));
        let own = first.node.ip.to_string();
        let invitation: Invitation = first.ask(&["invite", "--control-plane", &own], b"").await?;
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

/// Says that a server's part of the work begins. `None`: there is nothing to estimate.
fn begin(work: &Work, server: &Server<'_>, task: &Task) -> Option<Part> {
    let name = &server.node.name;
    let part = match task {
        Task::Renew => return None,
        // It has begun with the drain.
        Task::Upgrade { .. } => return Some(Part::Upgrade),
        Task::Init { .. } => Part::Init,
        Task::Join { control_plane: true, .. } => Part::JoinMaster,
        Task::Join { control_plane: false, .. } => Part::JoinWorker,
    };
    // A member only has looked at what it has.
    if server.facts.member {
        work.skip(part, name);
        return None;
    }
    work.begin(part, name);
    Some(part)
}

/// Starts a server's part of the work and follows it. Returns the kubeconfig, if the server prints one.
pub(super) async fn apply(
    order: &Order,
    work: &Work,
    server: &Server<'_>,
    task: Task,
) -> anyhow::Result<Option<String>> {
    let name = &server.node.name;
    let mut files = balance::files(&order.wanted, &order.chosen, server.node);
    files.push(route::file(&order.wanted, server.node));
    files.extend(login::file(&order.wanted, server.node));
    let part = begin(work, server, &task);
    let plan = NodePlan {
        cluster: order.id.clone(),
        node: name.clone(),
        address: server.node.ip,
        keeps_address: server.node.leased,
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
            work.hear(name, part, &line);
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
    if let Some(part) = part {
        work.done(part, name);
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

/// Writes lines of a node's log. If that fails, the work goes on.
fn write_log(order: &Order, node: &str, lines: &[String]) {
    let path = order.logs.join(format!("{node}.log"));
    let written = fs_err::create_dir_all(&order.logs).and_then(|()| {
        let mut text = fs_err::read_to_string(&path).unwrap_or_default();
        text.extend(lines.iter().map(|line| format!("{line}\n")));
        crate::host::files::replace(&path, newest(&text).as_bytes())
    });
    if let Err(error) = written {
        log::warn!("{error}");
    }
}

/// The newest whole lines of a log that grows with each attempt.
fn newest(log: &str) -> &str {
    let from = log.len().saturating_sub(LOG);
    let ends = log.bytes().skip(from).position(|byte| byte == b'\n');
    match (from, ends) {
        (0, _) => log,
        (_, Some(end)) => &log[from + end + 1..],
        (_, None) => "",
    }
}

/// flannel's manifest, for this cluster's addresses. It is told where the API answers, because kube-proxy's rules may come
/// later than it does: the `ConfigMap` stands right behind the namespace, so that no pod runs before it is there.
fn flannel(manifest: &str, pod_cidr: &str, (host, port): (String, u16)) -> anyhow::Result<String> {
    let (namespace, others) =
        manifest.split_once(DOCUMENT).ok_or_else(|| anyhow::anyhow!("flannel's manifest is a single object"))?;
    let endpoint = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kubernetes-services-endpoint", "namespace": FLANNEL},
        "data": {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port.to_string()},
    });
    let whole = [namespace, &endpoint.to_string(), others].join(DOCUMENT);
    if pod_cidr.contains(':') {
        let (of_ipv4, of_ipv6) =
            (format!("\"Network\": \"{POD_CIDR}\""), "\"EnableIPv4\": false, \"EnableIPv6\": true");
        return Ok(whole.replace(&of_ipv4, &format!("{of_ipv6}, \"IPv6Network\": \"{pod_cidr}\"")));
    }
    Ok(whole.replace(POD_CIDR, pod_cidr))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_api::clusters::provisioning::{NodePhase, NodeRole};
    use serde_json::{Value, json};

    use super::super::decide::tests::chosen;
    use super::{Aim, History, LOG, Schedule, Work, flannel, newest};

    /// A step is tried for ever: the spec may not ask for it any more, and a cluster that is deleted does not.
    #[tokio::test]
    async fn work_that_fails_is_no_obstacle_to_a_newer_spec() {
        let dir = tempfile::tempdir().expect("a folder");
        let (history, nodes) = (Arc::new(History::open(dir.path())), [chosen("m", 10, &[NodeRole::Master])]);
        let work = Work::new(&nodes, &[], Vec::new(), Aim::Spec, Schedule::unknown(), history).of(Some(1));
        for (phase, generation, in_the_way) in [
            (NodePhase::Installing, 1, false),
            (NodePhase::Installing, 2, false),
            (NodePhase::Failing, 1, false),
            (NodePhase::Failing, 2, true),
        ] {
            work.change("m", |node| node.phase = phase);
            assert_eq!(work.is_in_the_way_of(Some(generation)), in_the_way, "{phase:?} {generation}");
        }
        assert!(!work.is_halted());
        work.halt();
        work.until_halted().await;
        assert!(work.is_halted());
    }

    #[test]
    fn a_nodes_log_keeps_its_newest_lines() {
        assert_eq!(newest("one\ntwo\n"), "one\ntwo\n");
        let long = "é".repeat(LOG);
        assert_eq!(newest(&format!("{long}\nlast\n")), "last\n");
        assert_eq!(newest(&long), "", "half a line says nothing");
    }

    #[test]
    fn flannels_own_manifest_gets_the_addresses_of_the_cluster_and_of_its_api() {
        let carried = include_str!("../../../../../packages/flannel/kube-flannel.yaml");
        let applied = flannel(carried, "10.9.0.0/16", ("fd00::1".to_owned(), 8443)).expect("a manifest");
        assert!(applied.contains(r#""Network": "10.9.0.0/16""#) && !applied.contains("\"{podCIDR}\""), "{applied}");
        // flannel asks for the address of the API by the name under which it is written, in its own namespace.
        let objects: Vec<Value> = serde_saphyr::from_multiple(&applied).expect("YAML");
        let kinds: Vec<&str> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
        assert_eq!(kinds[..3], ["Namespace", "ConfigMap", "ServiceAccount"], "{applied}");
        let (told, set) = (&objects[1], objects.last().expect("one"));
        let asks = &set["spec"]["template"]["spec"]["containers"][0]["envFrom"][0]["configMapRef"];
        assert_eq!(
            (&asks["name"], &set["metadata"]["namespace"]),
            (&told["metadata"]["name"], &told["metadata"]["namespace"])
        );
        assert_eq!(told["data"], json!({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "8443"}));
        let of_ipv6 = flannel(carried, "fd00::/48", ("fd00::1".to_owned(), 8443)).expect("a manifest");
        let objects: Vec<Value> = serde_saphyr::from_multiple(&of_ipv6).expect("YAML");
        let net =
            objects.iter().find_map(|object| object["data"]["net-conf.json"].as_str()).expect("flannel's settings");
        let net: Value = serde_json::from_str(net).expect("JSON");
        assert_eq!(
            (&net["EnableIPv4"], &net["EnableIPv6"], &net["IPv6Network"], &net["Network"]),
            (&json!(false), &json!(true), &json!("fd00::/48"), &Value::Null)
        );
        assert!(flannel("kind: Namespace\n", "10.9.0.0/16", (String::new(), 0)).is_err());
    }
}
