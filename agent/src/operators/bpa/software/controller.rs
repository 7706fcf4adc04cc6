//! Queue and turns of software.

use std::time::Duration;

use agent_api::clusters::provisioning::{NodeRole, NodeStatus, Provisioning};
use agent_api::clusters::software::{Package, Software, SoftwareOfNode};
use kube::Api;
use kube::api::ListParams;

use super::tell::What;
use crate::node::plan::{Repository, SoftwareFacts, SoftwarePlan};
use crate::operators::bpa::common::{Common, Place};
use crate::operators::bpa::login::{Login, LoginError};
use crate::operators::kit::{Failures, Next, Object as _, ObjectError, Turn, doing};
use crate::steps::chain;

/// Label with the name of the cluster, and with the owner of uploads.
const CLUSTER: &str = "cluster";
const OWNER: &str = "owner";
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

    async fn turn(&self, object: Software) -> Result<Next, ObjectError> {
        // Packages stay when their object goes: other things may need them by then.
        if object.leaves() {
            return Ok(Next::await_change());
        }
        if let Some(left) = self.failures.left(&object) {
            return Ok(Next::requeue(left));
        }
        let (masters, workers) = match object.spec.packages() {
            Ok(packages) => packages,
            Err(wrong) => {
                self.tell(&object, What::Invalid, wrong.join("\n"), None).await?;
                return Ok(Next::await_change());
            }
        };
        let label = |name: &str| object.metadata.labels.as_ref().and_then(|labels| labels.get(name)).cloned();
        let Some(name) = label(CLUSTER) else {
            let why = format!("the label `{CLUSTER}` is missing: it names the cluster whose nodes get the packages");
            self.tell(&object, What::Invalid, why, None).await?;
            return Ok(Next::await_change());
        };
        let cluster = match self.cluster(&object, &name).await? {
            Ok(cluster) => cluster,
            Err(why) => {
                self.tell(&object, What::Waiting, why, None).await?;
                return Ok(Next::requeue(SOON));
            }
        };
        let login = match self.common.login(&cluster).await {
            Ok(login) => login,
            Err(LoginError::Object(error)) => return Err(error),
            Err(error) => {
                self.tell(&object, What::Failing, chain(&error), None).await?;
                return Ok(Next::requeue(self.failures.one_more(&object)));
            }
        };
        let repositories = repositories(&self.common.place, label(OWNER).as_deref());
        let mut nodes = Vec::new();
        for node in cluster.status.iter().flat_map(|status| &status.nodes) {
            let packages = packages_of(node, &masters, &workers);
            if packages.is_empty() {
                continue;
            }
            let plan = SoftwarePlan { repositories: repositories.clone(), packages };
            nodes.push(self.install(node, &login, &plan).await);
        }
        let failed: Vec<String> =
            nodes.iter().filter_map(|node| Some(format!("{}: {}", node.node, node.error.as_ref()?))).collect();
        if failed.is_empty() {
            self.failures.none(&object.key());
            self.tell(&object, What::Installed, format!("{} nodes have the packages", nodes.len()), Some(nodes))
                .await?;
            return Ok(Next::requeue(AGAIN));
        }
        self.tell(&object, What::Failing, failed.join("\n"), Some(nodes)).await?;
        Ok(Next::requeue(self.failures.one_more(&object)))
    }
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

    /// Installs the packages of one node. Returns its new status.
    async fn install(&self, node: &NodeStatus, login: &Login, plan: &SoftwarePlan) -> SoftwareOfNode {
        let done = async {
            let answer = self.common.agent.ask(login, node, &["software"], &serde_json::to_vec(plan)?).await?;
            Ok::<SoftwareFacts, anyhow::Error>(serde_json::from_slice(&answer)?)
        };
        match done.await {
            Ok(facts) => SoftwareOfNode {
                node: node.name.clone(),
                installed: facts.installed,
                reboot_required: facts.reboot_required,
                error: None,
            },
            Err(error) => SoftwareOfNode {
                node: node.name.clone(),
                installed: Vec::new(),
                reboot_required: false,
                error: Some(format!("{error:#}")),
            },
        }
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
