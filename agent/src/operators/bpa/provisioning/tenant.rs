//! Nodes that a `SIPCluster` chose, instead of nodes that the spec describes: `spec.clusterRef`. Pure, except for one read.

use std::collections::BTreeSet;
use std::net::IpAddr;

use agent_api::clusters::provisioning::{ClusterReference, NodeRole, NodeStatus, Provisioning};
use agent_api::meta::{Condition, ConditionStatus};
use agent_api::metal3::BareMetalHost;
use agent_api::net::is_label;
use agent_api::sip::auth::AuthStatus;
use agent_api::sip::cluster::{READY, Role, SipCluster, SipNode, cluster_of};
use kube::ResourceExt as _;

use super::controller::Controller;
use super::wishes::{WantedNode, endpoint};
use crate::operators::kit::{Key, Object as _, ObjectError, told_key};

/// The hosts of a `SIPCluster`, as nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Namespace and name of the `SIPCluster`.
    pub key: Key,
    /// Masters first; those that were nodes before come first, in their order.
    pub nodes: Vec<WantedNode>,
    /// Where its load balancer gives the API: host and port.
    pub endpoint: Option<(String, u16)>,
    /// Who its users are.
    pub auth: Option<AuthStatus>,
}

impl Tenant {
    /// Where its masters come from, for messages.
    pub fn control_plane(&self) -> String {
        format!("the role ControlPlane of SIPCluster {}", told_key(&self.key))
    }
}

impl Controller {
    /// The hosts of the `SIPCluster` that the spec names; `None` when it names none. An error text when there are no hosts
    /// yet.
    pub(super) async fn tenant(&self, object: &Provisioning) -> Result<Result<Option<Tenant>, String>, ObjectError> {
        let Some(key) = reference(object) else { return Ok(Ok(None)) };
        let (namespace, name) = &key;
        let found = self.common.base.objects.get::<SipCluster>(namespace, name).await?;
        Ok(read(object, &key, found.as_ref(), self.common.place.address).map(Some))
    }
}

/// Whether a host is one of the `SIPCluster` that the spec names.
pub(super) fn is_tenants(host: &BareMetalHost, object: &Provisioning) -> bool {
    reference(object).is_some_and(|(namespace, name)| cluster_of(host.labels()) == Some((&namespace, &name)))
}

fn reference(object: &Provisioning) -> Option<Key> {
    let ClusterReference { name, namespace } = object.spec.cluster_ref.as_ref()?;
    Some((namespace.clone().unwrap_or_else(|| object.key().0), name.clone()))
}

/// Why a role has not all of its hosts.
fn lacks(conditions: &[Condition], role: Role) -> Option<&str> {
    match conditions.iter().find(|condition| condition.kind == role.condition()) {
        None => Some("its controller has not said why"),
        Some(condition) => (condition.status != ConditionStatus::True).then_some(&*condition.message),
    }
}

/// `own`: the box's address on the servers' network, where its Services' ports are.
fn read(object: &Provisioning, key: &Key, found: Option<&SipCluster>, own: IpAddr) -> Result<Tenant, String> {
    let named = format!("SIPCluster {}", told_key(key));
    let sip = found.ok_or_else(|| {
        format!("there is no {named}; hint: create it, and `services: {{ sip: {{}} }}` in the box's definition if its kind is unknown")
    })?;
    if sip.leaves() {
        return Err(format!("{named} is being deleted"));
    }
    if sip.is_dry_run() {
        return Err(format!("{named} is a dry run, and has no hosts"));
    }
    let status = sip.status.clone().unwrap_or_default();
    if status.observed_generation != sip.metadata.generation {
        return Err(format!("{named} was changed, and its controller has not looked at it yet"));
    }
    let conditions = status.conditions.unwrap_or_default();
    let lacking: Vec<String> = Role::ALL
        .into_iter()
        .filter(|role| sip.spec.nodes.of(*role).is_some())
        .filter_map(|role| Some((role, lacks(&conditions, role)?)))
        .map(|(role, why)| format!("for the role {}: {why}", role.word()))
        .collect();
    if !lacking.is_empty() {
        return Err(format!("{named} has not all of its hosts {}", lacking.join("; ")));
    }
    let asked = !sip.spec.services.auth.is_empty();
    let auth = status.auth.clone().filter(|_| asked);
    // Its API servers are told of it when they are made, and not again.
    if asked && auth.is_none() && kept(object).is_none() {
        let ready = conditions.iter().find(|condition| condition.kind == READY);
        let why = ready.map_or("its controller has not said why", |condition| &condition.message);
        return Err(format!("{named} has no OIDC provider yet: {why}"));
    }
    let balancer = sip.spec.services.load_balancer_control_plane.first();
    let network = balancer.map(|balancer| balancer.wish.node_interface_id.as_str());
    let active: Vec<&SipNode> = status.nodes.iter().filter(|node| !node.standby).collect();
    if active.is_empty() {
        return Err(format!("{named} asks for no hosts"));
    }
    let before = object.status.as_ref().map(|status| status.nodes.as_slice()).unwrap_or_default();
    let endpoint = balancer.and_then(|balancer| Some((own.to_string(), u16::try_from(balancer.node_port).ok()?)));
    Ok(Tenant { key: key.clone(), nodes: nodes(&active, before, network)?, endpoint: kept(object).or(endpoint), auth })
}

/// The endpoint that the cluster was made with: kubeadm writes it into certificates and kubeconfigs.
fn kept(object: &Provisioning) -> Option<(String, u16)> {
    let status = object.status.as_ref().filter(|status| status.finished_at.is_some())?;
    endpoint(status.endpoint.as_deref()?).ok()
}

fn nodes(active: &[&SipNode], before: &[NodeStatus], network: Option<&str>) -> Result<Vec<WantedNode>, String> {
    let place = |node: &SipNode| before.iter().position(|known| known.host == node.host).unwrap_or(usize::MAX);
    let mut active = active.to_vec();
    active.sort_by_key(|node| (node.role, place(node), node.host.clone()));
    let workers = active.iter().any(|node| node.role == Role::Worker);
    // Names that nodes have had go to nobody else.
    let mut names: BTreeSet<String> = before.iter().map(|node| node.name.clone()).collect();
    let mut nodes = Vec::new();
    for node in active {
        let (namespace, host) = node.host.split_once('/').unwrap_or(("", &node.host));
        let known = before.iter().find(|known| known.host == node.host).map(|known| known.name.clone());
        let name = known.unwrap_or_else(|| {
            let short = host.replace('.', "-");
            if names.contains(&short) { format!("{namespace}-{short}") } else { short }
        });
        if !is_label(&name) {
            return Err(format!("BareMetalHost {}: `{name}` is too long for a node's name (63 characters)", node.host));
        }
        names.insert(name.clone());
        let mut roles = match node.role {
            Role::ControlPlane => vec![NodeRole::Master],
            Role::Worker => vec![NodeRole::Worker],
        };
        if !workers {
            roles.push(NodeRole::Worker);
        }
        let address = network.and_then(|network| node.addresses.get(network)?.parse().ok());
        let host = Some((namespace.to_owned(), host.to_owned()));
        nodes.push(WantedNode { name, roles, host, address, ..WantedNode::default() });
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::{NodeRole, Provisioning};
    use agent_api::sip::cluster::SipCluster;
    use serde_json::{Value, json};

    use super::{Tenant, read};
    use crate::operators::bpa::provisioning::wishes::Wanted;

    fn object(more: &Value) -> Provisioning {
        let mut object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
            "metadata": {"name": "p", "namespace": "tenants"}, "spec": {"clusterRef": {"name": "one"}}});
        for (path, value) in more.as_object().into_iter().flatten() {
            object[path] = value.clone();
        }
        serde_json::from_value(object).expect("a Provisioning")
    }

    fn sip(change: impl FnOnce(&mut Value)) -> SipCluster {
        let node = |role: &str, host: &str, ip: &str| json!({"role": role, "host": host, "addresses": {"oam": ip}});
        let mut object = json!({"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
            "metadata": {"name": "one", "namespace": "tenants", "generation": 2},
            "spec": {
                "nodes": {"ControlPlane": {"labelSelector": {}, "count": {"active": 1, "standby": 0}},
                    "Worker": {"labelSelector": {}, "count": {"active": 2, "standby": 1}}},
                "services": {"loadBalancerControlPlane": [{"nodeInterfaceId": "oam", "nodePort": 30000}]}},
            "status": {"observedGeneration": 2,
                "conditions": [
                    {"type": "ControlPlaneScheduled", "status": "True", "reason": "R", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "WorkerScheduled", "status": "True", "reason": "R", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "nodes": [node("Worker", "b/rack.1", "10.0.0.3"), node("Worker", "a/rack-1", "10.0.0.2"),
                    node("ControlPlane", "b/cp", "10.0.0.1"),
                    {"role": "Worker", "host": "a/spare", "standby": true}]}});
        change(&mut object);
        serde_json::from_value(object).expect("a SIPCluster")
    }

    fn tenant(object: &Provisioning, sip: Option<&SipCluster>) -> Result<Tenant, String> {
        read(object, &("tenants".to_owned(), "one".to_owned()), sip, [172, 22, 0, 1].into())
    }

    #[test]
    fn active_hosts_are_nodes_with_names_of_their_own_behind_the_load_balancer() {
        let object = object(&json!({}));
        let tenant = tenant(&object, Some(&sip(|_| ()))).expect("a tenant");
        let wanted = Wanted::of(&object, Some(&tenant)).expect("good");
        let found: Vec<_> = wanted
            .nodes
            .iter()
            .map(|node| (&*node.name, node.roles[0], node.address.map(|address| address.to_string())))
            .collect();
        let ip = |ip: &str| Some(ip.to_owned());
        assert_eq!(
            found,
            [
                ("cp", NodeRole::Master, ip("10.0.0.1")),
                ("rack-1", NodeRole::Worker, ip("10.0.0.2")),
                ("b-rack-1", NodeRole::Worker, ip("10.0.0.3")),
            ]
        );
        assert_eq!(wanted.endpoint, Some(("172.22.0.1".to_owned(), 30000)));
    }

    #[test]
    fn nodes_keep_their_names_and_the_cluster_its_endpoint() {
        let node = |name: &str, host: &str| json!({"name": name, "roles": ["worker"], "host": host, "macAddress": "", "ip": "", "phase": "Installed"});
        let status = json!({"phase": "Ready", "finishedAt": "2026-01-01T00:00:00Z", "endpoint": "10.0.0.1:6443",
            "nodes": [node("cp", "b/cp"), node("rack-1", "b/rack.1"), node("spare", "c/gone")]});
        let tenant = tenant(&object(&json!({"status": status})), Some(&sip(|_| ()))).expect("a tenant");
        let names: Vec<&str> = tenant.nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["cp", "rack-1", "a-rack-1"]);
        assert_eq!(tenant.endpoint, Some(("10.0.0.1".to_owned(), 6443)));
    }

    #[test]
    fn masters_alone_run_pods_too_and_need_an_odd_number() {
        let alone = sip(|object| {
            object["spec"]["nodes"]["Worker"].take();
            object["status"]["nodes"] = json!([{"role": "ControlPlane", "host": "a/cp"}]);
        });
        let one = tenant(&object(&json!({})), Some(&alone)).expect("a tenant");
        assert_eq!(one.nodes[0].roles, [NodeRole::Master, NodeRole::Worker]);
        assert_eq!(one.nodes[0].address, None);
        let two = sip(|object| {
            let nodes = object["status"]["nodes"].as_array_mut().expect("nodes");
            nodes.push(json!({"role": "ControlPlane", "host": "a/cp-2"}));
        });
        let two = tenant(&object(&json!({})), Some(&two)).expect("a tenant");
        let wrong = Wanted::of(&object(&json!({})), Some(&two)).expect_err("etcd needs more");
        assert_eq!(wrong, ["the role ControlPlane of SIPCluster tenants/one has 2 nodes, and etcd needs 1, 3 or 5"]);
    }

    /// SIP-11: a cluster that is made before its provider is known would never trust it.
    #[test]
    fn the_provider_of_the_login_is_waited_for_before_the_cluster_is_made() {
        let auth = json!({"issuer": "https://172.22.0.1:30005/api/oidc", "clientID": "kubernetes", "usernameClaim": "email",
            "groupsClaim": "groups", "prefix": "oidc:", "signingAlgorithm": "ES256", "ca": "PEM"});
        let asked = |more: &Value| {
            sip(|object| {
                object["spec"]["services"]["auth"] = json!([{"nodePort": 30005}]);
                object["status"]["auth"] = more.clone();
            })
        };
        let why = tenant(&object(&json!({})), Some(&asked(&Value::Null))).expect_err("not yet");
        assert!(why.starts_with("SIPCluster tenants/one has no OIDC provider yet"), "{why}");
        let with = tenant(&object(&json!({})), Some(&asked(&auth))).expect("a tenant");
        let wanted = Wanted::of(&object(&json!({})), Some(&with)).expect("good");
        assert_eq!(wanted.auth.expect("a login").issuer, "https://172.22.0.1:30005/api/oidc");
        let made =
            json!({"status": {"phase": "Ready", "finishedAt": "2026-01-01T00:00:00Z", "endpoint": "10.0.0.1:6443"}});
        assert_eq!(tenant(&object(&made), Some(&asked(&Value::Null))).expect("it goes on").auth, None);
    }

    #[test]
    fn a_sipcluster_that_is_not_there_yet_is_waited_for_in_words() {
        let object = object(&json!({}));
        let why = |sip: Option<&SipCluster>| tenant(&object, sip).expect_err("not yet");
        assert!(why(None).starts_with("there is no SIPCluster tenants/one"), "{}", why(None));
        for (change, expected) in [
            (json!({"path": "/metadata/generation", "value": 3}), "was changed"),
            (json!({"path": "/metadata/annotations", "value": {"sip.airshipit.org/dry-run": "true"}}), "is a dry run"),
            (json!({"path": "/status/nodes", "value": []}), "asks for no hosts"),
            (
                json!({"path": "/status/conditions/1/status", "value": "False"}),
                "not all of its hosts for the role Worker",
            ),
        ] {
            let changed = sip(|object| {
                let (parent, field) = change["path"].as_str().and_then(|path| path.rsplit_once('/')).expect("a path");
                object.pointer_mut(parent).expect("a parent")[field] = change["value"].clone();
            });
            assert!(why(Some(&changed)).contains(expected), "{}", why(Some(&changed)));
        }
    }
}
