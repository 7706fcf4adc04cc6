//! The controller of virtual machines on the box (`Vino`): its kinds, namespace, rights and pod.
//!
//! All that it makes is in one namespace, and only there it may make anything: pods of nodes, which are privileged, hosts,
//! Secrets, pools of addresses. Elsewhere it reads what `Vino`s name, and writes one annotation of nodes.

use agent_api::events::{Phase, PhaseWord};
use agent_api::vino::crds;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::api::ObjectMeta;

use super::deployed::{self, Controller, place, rule};
use super::{Ground, PODS_LOG, Service, metal3, seen};
use crate::cluster::api::Api;
use crate::cluster::objects::{ObjectsError, Placed};
use crate::machine::Machine;
use crate::steps::{Missing, Step};

/// The controller, with its kinds and rights.
pub const STEP: Step = Step {
    phase: PhaseWord::new(Phase::Services.name()),
    name: "vino-operator",
    next: "it is tried again",
    log: PODS_LOG,
};

/// Name of all its objects.
const NAME: &str = "vino-operator";
/// What it is for a user.
const TITLE: &str = "the controller of virtual machines";
/// Image with libvirt, QEMU, Redfish and the agent.
pub const IMAGE: &str = "foothold.dev/vino:";
/// Namespace of all that it makes: Airship's.
const NAMESPACE: &str = "vino-system";
/// What nodes' pods may do in the whole cluster.
const NODE: &str = "vino-node";
/// Metrics and health, on the loopback address.
const METRICS: u16 = 8089;
const RBAC: &str = "rbac.authorization.k8s.io";

/// The controller.
#[derive(Debug)]
pub struct Vino {
    /// Image of the controller.
    own: String,
    /// Image of the nodes' pods.
    image: String,
    interface: Option<String>,
}

impl Vino {
    /// `own`: image of the controller. `image`: image of nodes' pods. `interface`: the interface of nodes for networks that
    /// name none.
    pub const fn with(own: String, image: String, interface: Option<String>) -> Self {
        Self { own, image, interface }
    }

    /// `None` if the release does not declare it.
    pub fn of(machine: &Machine) -> Option<Self> {
        let release = machine.release();
        let declared = release.vino.as_ref()?;
        let reference = |name: &str| Some(release.image(name)?.reference.clone());
        Some(Self { own: reference(metal3::IMAGE)?, image: reference(IMAGE)?, interface: declared.interface.clone() })
    }

    /// Starts it, and waits until it is there.
    async fn bring_up(&self, on: Ground<'_>, api: &Api) {
        let place = || async { deployed::apply(api, &objects(self)?).await };
        deployed::bring_up(on, &STEP, place, || is_there(api)).await;
    }
}

impl Service for Vino {
    fn step(&self) -> &'static Step {
        &STEP
    }

    fn start<'a>(&'a self, on: Ground<'a>, api: &'a Api) -> BoxFuture<'a, ()> {
        Box::pin(self.bring_up(on, api))
    }

    fn ask<'a>(&'a self, _machine: &'a Machine, api: &'a Api) -> BoxFuture<'a, Result<(), Missing>> {
        Box::pin(is_there(api))
    }

    fn tend<'a>(&'a self, on: Ground<'a>) -> BoxFuture<'a, ()> {
        Box::pin(seen::follow_machines(on))
    }
}

async fn is_there(api: &Api) -> Result<(), Missing> {
    deployed::ask(api, &Controller::path(NAME), TITLE).await
}

/// All objects, in the order in which they are needed.
pub fn objects(vino: &Vino) -> Result<Vec<Placed>, ObjectsError> {
    let mut objects: Vec<Placed> = crds::all().iter().map(place).collect::<Result<_, _>>()?;
    let controller = controller(vino);
    objects.push(place(&namespace())?);
    objects.extend(controller.rights()?);
    objects.extend(own_rights()?);
    objects.push(controller.deployment()?);
    Ok(objects)
}

fn namespace() -> Namespace {
    // Pods of nodes make bridges and run virtual machines.
    let labels = [("pod-security.kubernetes.io/enforce".to_owned(), "privileged".to_owned())];
    let metadata =
        ObjectMeta { name: Some(NAMESPACE.to_owned()), labels: Some(labels.into()), ..ObjectMeta::default() };
    Namespace { metadata, ..Namespace::default() }
}

/// The controller's rights in its namespace, and the rights of the nodes' pods.
fn own_rights() -> Result<[Placed; 4], ObjectsError> {
    let within = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        ..ObjectMeta::default()
    };
    let to = |kind: &str, name: &str| RoleRef {
        api_group: Some(RBAC.to_owned()),
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    let operator = Subject {
        kind: "ServiceAccount".to_owned(),
        name: NAME.to_owned(),
        namespace: Some(deployed::NAMESPACE.to_owned()),
        ..Subject::default()
    };
    let pods = Subject {
        kind: "Group".to_owned(),
        name: format!("system:serviceaccounts:{NAMESPACE}"),
        api_group: Some(RBAC.to_owned()),
        ..Subject::default()
    };
    let role = Role { metadata: within(NAME), rules: Some(rules_within()) };
    let binding = RoleBinding { metadata: within(NAME), role_ref: to("Role", NAME), subjects: Some(vec![operator]) };
    let everywhere = || ObjectMeta { name: Some(NODE.to_owned()), ..ObjectMeta::default() };
    let read_nodes = vec![rule(&[""], &["nodes"], &["get", "list", "watch"])];
    let node = ClusterRole { metadata: everywhere(), rules: Some(read_nodes), ..ClusterRole::default() };
    let of_pods =
        ClusterRoleBinding { metadata: everywhere(), role_ref: to("ClusterRole", NODE), subjects: Some(vec![pods]) };
    Ok([place(&role)?, place(&binding)?, place(&node)?, place(&of_pods)?])
}

fn rules_within() -> Vec<PolicyRule> {
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    vec![
        rule(&[""], &["secrets", "configmaps", "serviceaccounts"], &all),
        rule(&["apps"], &["daemonsets"], &all),
        rule(&["metal3.io"], &["baremetalhosts"], &all),
        rule(&["airship.airshipit.org"], &["ippools"], &["get", "list", "create", "update", "delete"]),
        // It gives pods of nodes no right that it has not itself: they write their report on their own pod.
        rule(&[RBAC], &["roles", "rolebindings"], &["get", "create", "patch", "delete"]),
        rule(&[""], &["pods"], &["get", "list", "watch", "patch"]),
    ]
}

fn controller(vino: &Vino) -> Controller {
    let metrics = format!("127.0.0.1:{METRICS}");
    let args =
        ["operator", "vino", "--image", &vino.image, "--runtime-namespace", NAMESPACE, "--metrics-address", &metrics];
    let interface = vino.interface.as_deref().into_iter().flat_map(|name| ["--interface", name]);
    Controller {
        name: NAME,
        image: vino.own.clone(),
        args: args.into_iter().chain(interface).map(str::to_owned).collect(),
        rules: vec![
            rule(&["airship.airshipit.org"], &["vinoes"], &["get", "list", "watch", "patch"]),
            rule(&["airship.airshipit.org"], &["vinoes/status"], &["patch"]),
            // What nodes are to have is an annotation of theirs.
            rule(&[""], &["nodes"], &["get", "list", "watch", "patch"]),
            // Templates that `Vino`s name, wherever they are.
            rule(&[""], &["secrets", "configmaps"], &["get", "list", "watch"]),
            rule(&["", "events.k8s.io"], &["events"], &["create", "patch"]),
        ],
        health_port: METRICS,
        memory_limit: Some("256Mi"),
        ..Controller::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Controller, NAME, Vino, objects};

    fn vino(interface: Option<&str>) -> Vino {
        Vino {
            own: "foothold.dev/agent:1".to_owned(),
            image: "foothold.dev/vino:1".to_owned(),
            interface: interface.map(str::to_owned),
        }
    }

    #[test]
    fn kinds_and_namespace_come_first_and_the_pod_last() {
        let all = objects(&vino(Some("ens5"))).expect("placed");
        assert_eq!(all.len(), 2 + 1 + 3 + 4 + 1);
        let kinds = all.iter().map(|placed| placed.object["kind"].as_str().unwrap_or_default());
        assert_eq!(
            kinds.collect::<Vec<_>>()[..4],
            ["CustomResourceDefinition", "CustomResourceDefinition", "Namespace", "ServiceAccount"]
        );
        assert_eq!(all[10].path(), Controller::path(NAME));
        let args = all[10].object["spec"]["template"]["spec"]["containers"][0]["args"].as_array().expect("arguments");
        assert_eq!(args[args.len() - 2..], [json!("--interface"), json!("ens5")]);
    }

    /// Outside of its namespace it makes nothing and deletes nothing.
    #[test]
    fn what_it_may_do_everywhere_is_to_read_and_to_annotate() {
        let all = objects(&vino(None)).expect("placed");
        for role in all.iter().filter(|placed| placed.object["kind"] == "ClusterRole") {
            for rule in role.object["rules"].as_array().expect("rules") {
                let makes = |verb: &Value| ["create", "delete", "update", "*"].iter().any(|it| verb == it);
                let is_event = rule["resources"] == json!(["events"]);
                assert!(is_event || !rule["verbs"].as_array().expect("verbs").iter().any(makes), "{rule}");
                let secrets = rule["resources"].as_array().expect("resources").contains(&json!("secrets"));
                assert!(!secrets || rule["verbs"] == json!(["get", "list", "watch"]), "{rule}");
            }
        }
    }
}
