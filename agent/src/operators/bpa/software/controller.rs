//! Queue and turns of software.

use std::time::Duration;

use agent_api::clusters::provisioning::{NodePhase, NodeRole, NodeStatus, Provisioning};
use agent_api::clusters::software::{Package, Software, SoftwareOfNode};
use futures_util::future::join_all;
use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;

use super::policy::{Go, Policy};
use super::tell::{Told, What};
use super::update::Site;
use crate::node::plan::{Repository, SoftwareFacts, SoftwarePlan};
use crate::operators::bpa::common::{Common, Place};
use crate::operators::bpa::login::{Login, LoginError};
use crate::operators::kit::{Failures, Next, Object as _, ObjectError, Turn, doing};
use crate::steps::chain;

/// Label with the name of the cluster, and with the owner of uploads.
const CLUSTER: &str = "cluster";
const OWNER: &str = "owner";
/// Annotation by which an update is asked for: each new value counts once.
const UPDATE: &str = "foothold.dev/update";
/// So many nodes are looked at at the same time.
const AT_ONCE: usize = 10;
/// Pause until a cluster that is not Ready is looked at again.
const SOON: Duration = Duration::from_secs(15);
/// Pause until nodes are compared with the box's repositories again.
const AGAIN: Duration = Duration::from_secs(600);

/// The controller.
pub(super) struct Controller {
    pub common: Common,
    pub failures: Failures,
}

/// Runs the controller of software.
pub async fn run(common: Common) {
    let (store, changed) = common.base.changed::<Software>();
    let controller = Controller { common: common.clone(), failures: Failures::default() };
    common.base.run(controller, store, vec![changed]).await;
}

impl Turn for Controller {
    type Kind = Software;

    async fn turn(&self, mut object: Software) -> Result<Next, ObjectError> {
        // Packages stay when their object goes: other things may need them by then.
        if object.leaves() {
            return Ok(Next::await_change());
        }
        if let Some(left) = self.failures.left(&object) {
            return Ok(Next::requeue(left));
        }
        let (packages, policy) = (object.spec.packages(), Policy::read(object.spec.update.as_ref()));
        let ((masters, workers), policy) = match (packages, policy) {
            (Ok(packages), Ok(policy)) => (packages, policy),
            (packages, policy) => {
                let wrong = [packages.err(), policy.err()].into_iter().flatten().flatten().collect::<Vec<_>>();
                self.tell(&mut object, Told::of(What::Invalid, wrong.join("\n"))).await?;
                return Ok(Next::await_change());
            }
        };
        let label = |name: &str| object.metadata.labels.as_ref().and_then(|labels| labels.get(name)).cloned();
        let Some(name) = label(CLUSTER) else {
            let why = format!("the label `{CLUSTER}` is missing: it names the cluster whose nodes get the packages");
            self.tell(&mut object, Told::of(What::Invalid, why)).await?;
            return Ok(Next::await_change());
        };
        let cluster = match self.cluster(&object, &name).await? {
            Ok(cluster) => cluster,
            Err(why) => {
                self.tell(&mut object, Told::of(What::Waiting, why)).await?;
                return Ok(Next::requeue(SOON));
            }
        };
        let login = match self.common.login(&cluster).await {
            Ok(login) => login,
            Err(LoginError::Object(error)) => return Err(error),
            Err(error) => {
                self.tell(&mut object, Told::of(What::Failing, chain(&error))).await?;
                return Ok(Next::requeue(self.failures.one_more(&object)));
            }
        };
        let repositories = repositories(&self.common.place, label(OWNER).as_deref());
        let members = members(&cluster, &repositories, &masters, &workers);
        let asked = Asked {
            policy,
            request: annotation(&object, UPDATE),
            handled: object.status.as_ref().and_then(|status| status.last_handled_update.clone()),
        };
        let site = Site::new(&object, &cluster, &login);
        self.bring(&mut object, &site, &members, &asked).await
    }
}

/// A node that has packages to have.
pub(super) struct Member<'a> {
    pub node: &'a NodeStatus,
    pub plan: SoftwarePlan,
}

impl Member<'_> {
    fn is_master(&self) -> bool {
        self.node.roles.contains(&NodeRole::Master)
    }
}

/// How updates are asked for.
struct Asked {
    policy: Policy,
    /// The annotation by which an update is asked for.
    request: Option<String>,
    /// Its value for which all nodes were updated.
    handled: Option<String>,
}

impl Asked {
    fn go(&self) -> Go {
        self.policy.go(self.request.as_deref(), self.handled.as_deref(), Timestamp::now())
    }

    /// Whether a node is to be updated.
    fn is_due(&self, node: &SoftwareOfNode) -> bool {
        node.error.is_none() && (!node.lagging.is_empty() || self.policy.reboot && node.reboot_required)
    }
}

fn annotation(object: &Software, name: &str) -> Option<String> {
    object.metadata.annotations.as_ref()?.get(name).cloned()
}

fn members<'a>(
    cluster: &'a Provisioning,
    repositories: &[Repository],
    masters: &[Package],
    workers: &[Package],
) -> Vec<Member<'a>> {
    let nodes = cluster.status.iter().flat_map(|status| &status.nodes);
    let member = |node: &'a NodeStatus| {
        let packages = packages_of(node, masters, workers);
        Member { node, plan: SoftwarePlan { repositories: repositories.to_vec(), packages, only_missing: false } }
    };
    // One that leaves needs nothing any more.
    let stays = nodes.filter(|node| node.phase != NodePhase::Removing);
    stays.map(member).filter(|member| !member.plan.packages.is_empty()).collect()
}

impl Controller {
    /// Brings nodes to what is asked for, and tells how far they are.
    async fn bring(
        &self,
        object: &mut Software,
        site: &Site<'_>,
        members: &[Member<'_>],
        asked: &Asked,
    ) -> Result<Next, ObjectError> {
        let mut nodes = self.complete(site.login, members).await;
        let goes = asked.go() == Go::Now;
        let due: Vec<usize> = (0..nodes.len()).filter(|at| goes && asked.is_due(&nodes[*at])).collect();
        let mut wrong = Vec::new();
        if object.spec.update.is_some() {
            let now: Vec<&str> = due.iter().map(|at| &*members[*at].node.name).collect();
            wrong = site.give_back(&now).await;
        }
        let steps = if wrong.is_empty() {
            asked.policy.steps(site.nodes().len(), due.iter().map(|at| (*at, members[*at].is_master())).collect())
        } else {
            Vec::new()
        };
        let mut updated = 0;
        for step in steps {
            // A window may have ended meanwhile.
            if asked.go() != Go::Now {
                break;
            }
            let all: Vec<&Member<'_>> = step.iter().map(|at| &members[*at]).collect();
            let names: Vec<&str> = all.iter().map(|member| &*member.node.name).collect();
            let why = format!("updating {} ({updated} of {} are done)", names.join(", "), due.len());
            self.tell(object, Told { what: What::Updating, why, nodes: Some(nodes.clone()), ..Told::default() })
                .await?;
            updated += step.len();
            let ended = self.renew_all(site, &asked.policy, &all).await;
            for (at, ended) in step.iter().zip(ended) {
                nodes[*at] = of_node(&members[*at], ended);
            }
            // What breaks one node is not done to the next.
            if step.iter().any(|at| nodes[*at].error.is_some()) {
                break;
            }
        }
        wrong.extend(nodes.iter().filter_map(|node| Some(format!("{}: {}", node.node, node.error.as_ref()?))));
        self.conclude(object, nodes, &wrong, asked).await
    }

    /// Tells how far the nodes are, and when they are looked at again.
    async fn conclude(
        &self,
        object: &mut Software,
        nodes: Vec<SoftwareOfNode>,
        wrong: &[String],
        asked: &Asked,
    ) -> Result<Next, ObjectError> {
        let late: Vec<String> = nodes.iter().filter(|node| asked.is_due(node)).map(lag).collect();
        let (lag, again) = match asked.go() {
            _ if late.is_empty() => (None, AGAIN),
            Go::Now => (Some(("UpdateFailed", late.join("\n"))), AGAIN),
            Go::Later { reason, why, left } => {
                (Some((reason, format!("{}\n{why}", late.join("\n")))), left.map_or(AGAIN, |left| left.min(AGAIN)))
            }
        };
        if !wrong.is_empty() {
            let told = Told { what: What::Failing, why: wrong.join("\n"), nodes: Some(nodes), lag, handled: None };
            self.tell(object, told).await?;
            return Ok(Next::requeue(self.failures.one_more(object)));
        }
        self.failures.none(&object.key());
        let handled = asked.request.clone().filter(|_| late.is_empty());
        let why = format!("{} nodes have the packages", nodes.len());
        self.tell(object, Told { what: What::Installed, why, nodes: Some(nodes), lag, handled }).await?;
        Ok(Next::requeue(again))
    }

    /// Installs what nodes lack, and looks at what lags behind on them.
    async fn complete(&self, login: &Login, members: &[Member<'_>]) -> Vec<SoftwareOfNode> {
        let one = async |member: &Member<'_>| {
            let plan = SoftwarePlan { only_missing: true, ..member.plan.clone() };
            of_node(member, self.ask(login, member.node, &plan).await)
        };
        let mut nodes = Vec::new();
        for some in members.chunks(AT_ONCE) {
            nodes.extend(join_all(some.iter().map(one)).await);
        }
        nodes
    }

    /// Runs the plan on a node.
    pub(super) async fn ask(
        &self,
        login: &Login,
        node: &NodeStatus,
        plan: &SoftwarePlan,
    ) -> anyhow::Result<SoftwareFacts> {
        let answer = self.common.agent.ask(login, node, &["software"], &serde_json::to_vec(plan)?).await?;
        Ok(serde_json::from_slice(&answer)?)
    }
}

/// The status of a node.
fn of_node(member: &Member<'_>, ended: anyhow::Result<SoftwareFacts>) -> SoftwareOfNode {
    let node = member.node.name.clone();
    match ended {
        Ok(facts) => SoftwareOfNode {
            node,
            installed: facts.installed,
            lagging: facts.lagging,
            reboot_required: facts.reboot_required,
            error: None,
        },
        Err(error) => SoftwareOfNode {
            node,
            installed: Vec::new(),
            lagging: Vec::new(),
            reboot_required: false,
            error: Some(format!("{error:#}")),
        },
    }
}

/// What a node waits for, for people.
fn lag(node: &SoftwareOfNode) -> String {
    let what = if node.lagging.is_empty() { "it must be restarted".to_owned() } else { node.lagging.join(", ") };
    format!("{}: {what}", node.node)
}

impl Controller {
    /// The cluster of that name in the same namespace, or why it cannot be worked with.
    async fn cluster(&self, object: &Software, name: &str) -> Result<Result<Provisioning, String>, ObjectError> {
        let (namespace, _) = object.key();
        let api = Api::<Provisioning>::namespaced(self.common.base.client.clone(), &namespace);
        let all = api.list(&ListParams::default()).await.map_err(doing("listing Provisionings"))?;
        let found = all.items.into_iter().find(|cluster| cluster.cluster() == name);
        let Some(cluster) = found else {
            return Ok(Err(format!("there is no Provisioning of the cluster `{name}` in the namespace `{namespace}`")));
        };
        let ready = cluster.status.as_ref().is_some_and(|status| status.phase.is_formed());
        Ok(if ready { Ok(cluster) } else { Err(format!("the cluster `{name}` is not Ready yet")) })
    }
}

/// The packages of a node's roles, each once, as `apt-get` takes them.
fn packages_of(node: &NodeStatus, masters: &[Package], workers: &[Package]) -> Vec<String> {
    let of = |role, packages: &[Package]| if node.roles.contains(&role) { packages.to_vec() } else { Vec::new() };
    let mut all = [of(NodeRole::Master, masters), of(NodeRole::Worker, workers)].concat();
    all.sort();
    all.dedup();
    all.iter().map(Package::argument).collect()
}

/// What the release carries, and what the owner uploaded.
fn repositories(place: &Place, owner: Option<&str>) -> Vec<Repository> {
    let content = place.content();
    let carried = Repository {
        name: "carried".to_owned(),
        url: format!("{content}/debian"),
        suite: "trixie main".to_owned(),
        key_url: format!("{content}/debian/foothold.asc"),
    };
    let plain = |owner: &&str| {
        !owner.is_empty() && owner.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let uploaded = owner.filter(plain).map(|owner| Repository {
        name: "uploaded".to_owned(),
        url: format!("{content}/debian-uploads/{owner}"),
        suite: "./".to_owned(),
        key_url: format!("{content}/debian-uploads/{owner}/key.asc"),
    });
    [carried].into_iter().chain(uploaded).collect()
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::{NodePhase, NodeRole, NodeStatus};
    use agent_api::clusters::software::Package;

    use super::{Place, packages_of, repositories};

    fn node(roles: &[NodeRole]) -> NodeStatus {
        NodeStatus {
            name: "n".to_owned(),
            roles: roles.to_vec(),
            host: "metal3/n".to_owned(),
            mac_address: String::new(),
            ip: "172.22.0.20".to_owned(),
            phase: NodePhase::Installed,
            step: None,
            since: None,
            eta: None,
            error: None,
            host_key: None,
            secs: None,
            installed_at: None,
        }
    }

    #[test]
    fn a_node_gets_the_packages_of_its_roles() {
        let package =
            |name: &str, version: Option<&str>| Package { name: name.to_owned(), version: version.map(str::to_owned) };
        let (masters, workers) =
            ([package("curl", Some("8.5")), package("jq", None)], [package("jq", None), package("lldpd", None)]);
        for (roles, expected) in [
            (&[NodeRole::Master][..], &["curl=8.5", "jq"][..]),
            (&[NodeRole::Worker], &["jq", "lldpd"]),
            (&[NodeRole::Master, NodeRole::Worker], &["curl=8.5", "jq", "lldpd"]),
        ] {
            assert_eq!(packages_of(&node(roles), &masters, &workers), expected, "{roles:?}");
        }
    }

    #[test]
    fn uploads_are_those_of_the_owner() {
        let place = Place { address: [172, 22, 0, 1].into(), version: "v1.36.4".to_owned() };
        let urls = |owner| repositories(&place, owner).into_iter().map(|one| one.url).collect::<Vec<_>>();
        assert_eq!(urls(None), ["http://172.22.0.1:6180/debian"]);
        assert_eq!(urls(Some("c1")), ["http://172.22.0.1:6180/debian", "http://172.22.0.1:6180/debian-uploads/c1"]);
        assert_eq!(urls(Some("../c1")), ["http://172.22.0.1:6180/debian"]);
    }
}
