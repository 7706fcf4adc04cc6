//! `SIPCluster`: hosts for a cluster of somebody's own, and what stands before them.
//!
//! ```text
//! spec.nodes    ─► which hosts, how many     status.nodes ─► which they are    labels on the hosts ─► whose they are
//! spec.services ─► load balancers, jump host conditions   ─► `kubectl wait --for=condition=Ready`
//! ```
//! The fields of Airship's operator keep their names. More than there: `image` may be left out.

use std::collections::BTreeMap;
use std::fmt;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::{Auth, AuthStatus};
use super::selector::LabelSelector;
use crate::meta::Condition;

/// Held until nothing of the cluster is left. The controller puts it there.
pub const FINALIZER: &str = "sip.airship.airshipit.org/finalizer";
/// Label of a host: namespace of the `SIPCluster` that has it.
pub const CLUSTER_NAMESPACE: &str = "sip.airshipit.org/cluster-namespace";
/// Label of a host: name of the `SIPCluster` that has it.
pub const CLUSTER_NAME: &str = "sip.airshipit.org/cluster-name";
/// Label of a host: its role in the cluster.
pub const NODE_TYPE: &str = "sip.airshipit.org/node-type";
/// Annotation of a host that is a standby of its role. Written with the labels, in one change.
pub const STANDBY: &str = "sip.airshipit.org/standby";
/// Annotation of a host: the key that its BMC's SSH server showed when its console was opened first. Another one is refused.
pub const CONSOLE_HOST_KEY: &str = "sip.airshipit.org/console-host-key";
/// Annotation of a `SIPCluster`: with `true`, nothing is done, and the status says what would be.
pub const DRY_RUN: &str = "sip.airshipit.org/dry-run";
/// Condition: the hosts are there, and the services run.
pub const READY: &str = "Ready";
/// Names are `loadbalancer-controlplane-NAME`, and a Service's name has 63 characters.
pub const MOST_NAME: usize = 37;
/// Most hosts of a role, in each of `active` and `standby`.
pub const MOST_NODES: i64 = 1000;
/// Ports of nodes that Services may have, as API servers have them by default.
pub const NODE_PORTS: std::ops::RangeInclusive<i32> = 30000..=32767;

/// Namespace and name of the cluster that a host's labels name.
pub fn cluster_of(labels: &BTreeMap<String, String>) -> Option<(&str, &str)> {
    Some((labels.get(CLUSTER_NAMESPACE)?.as_str(), labels.get(CLUSTER_NAME)?.as_str()))
}

/// What hosts are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Role {
    /// The cluster's API.
    ControlPlane,
    /// Pods.
    Worker,
}

impl Role {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ControlPlane, Self::Worker];

    /// As keys of `spec.nodes` and hosts' labels have it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ControlPlane => "ControlPlane",
            Self::Worker => "Worker",
        }
    }

    /// Type of the condition that says whether the role has its hosts.
    pub const fn condition(self) -> &'static str {
        match self {
            Self::ControlPlane => "ControlPlaneScheduled",
            Self::Worker => "WorkerScheduled",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// How many hosts a role has: the sum. Standbys are the first to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeCount {
    /// Those that the cluster needs.
    #[schemars(range(min = 0, max = 1000))]
    pub active: i64,
    /// Those that stand by.
    #[schemars(range(min = 0, max = 1000))]
    pub standby: i64,
}

/// Hosts of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSet {
    /// Which hosts may be chosen, in all namespaces; all when it is empty.
    pub label_selector: LabelSelector,
    /// Label of hosts that says where they are: of those with the same value one is chosen. A host without it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub topology_key: Option<String>,
    /// How many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<NodeCount>,
}

impl NodeSet {
    /// Hosts in all.
    pub fn target(&self) -> (usize, usize) {
        let count = self.count.unwrap_or_default();
        let number = |count: i64| usize::try_from(count).unwrap_or_default();
        (number(count.active), number(count.standby))
    }

    /// The label of places, where hosts are kept apart.
    pub fn topology(&self) -> Option<&str> {
        self.topology_key.as_deref().filter(|key| !key.is_empty())
    }
}

/// Hosts, by role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeSets {
    /// Hosts of the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<NodeSet>,
    /// Hosts for pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<NodeSet>,
}

impl NodeSets {
    /// Those of a role.
    pub const fn of(&self, role: Role) -> Option<&NodeSet> {
        match role {
            Role::ControlPlane => self.control_plane.as_ref(),
            Role::Worker => self.worker.as_ref(),
        }
    }
}

/// What all services have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceWish {
    /// Image of the pod; the box's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// Labels of the nodes that the pod runs on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// `id` of the network in the hosts' network data at whose address they are reached.
    #[schemars(length(min = 1, max = 253))]
    pub node_interface_id: String,
    /// Address of the Service in the cluster; any when absent.
    #[serde(rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 45))]
    pub cluster_ip: Option<String>,
}

/// A load balancer before the API servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneBalancer {
    /// What all services have.
    #[serde(flatten)]
    pub wish: ServiceWish,
    /// Port of all nodes at which the API answers.
    #[schemars(range(min = 30000, max = 32767))]
    pub node_port: i32,
}

/// Ports, both ends included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortRange {
    /// The first.
    #[schemars(range(min = 30000, max = 32767))]
    pub start: i32,
    /// The last.
    #[schemars(range(min = 30000, max = 32767))]
    pub end: i32,
}

/// A load balancer before the workers: each port leads to the same port of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerBalancer {
    /// What all services have.
    #[serde(flatten)]
    pub wish: ServiceWish,
    /// Its ports, of all nodes.
    pub node_port_range: PortRange,
}

/// How BMCs are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BmcOptions {
    /// Through the proxy of the environment. It is read and means nothing: the jump host asks no BMC, the controller of
    /// hosts does.
    #[serde(default)]
    pub proxy: bool,
}

/// A host from which users enter their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JumpHost {
    /// What all services have.
    #[serde(flatten)]
    pub wish: ServiceWish,
    /// Port of all nodes at which ssh answers.
    #[schemars(range(min = 30000, max = 32767))]
    pub node_port: i32,
    /// How BMCs are reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcOptions>,
    /// Who may come in: lines of `authorized_keys`. There are no passwords.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub ssh_authorized_keys: Vec<String>,
    /// Secret of this namespace whose values are private keys that the nodes take.
    #[serde(rename = "nodeSSHPrivateKeys")]
    #[schemars(length(min = 1, max = 253))]
    pub node_ssh_private_keys: String,
}

/// What stands before the hosts. Of each there is one at most: their names have room for no more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InfraServices {
    /// Before the API servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1))]
    pub load_balancer_control_plane: Vec<ControlPlaneBalancer>,
    /// Before the workers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1))]
    pub load_balancer_worker: Vec<WorkerBalancer>,
    /// Where users come in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1))]
    pub jump_host: Vec<JumpHost>,
    /// Who its users are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1))]
    pub auth: Vec<Auth>,
}

impl InfraServices {
    /// Networks at whose addresses hosts of a role are reached.
    pub fn interfaces(&self, role: Role) -> Vec<&str> {
        let balancers = self.load_balancer_control_plane.iter().filter(|_| role == Role::ControlPlane);
        let workers = self.load_balancer_worker.iter().filter(|_| role == Role::Worker);
        let wishes = balancers.map(|one| &one.wish).chain(workers.map(|one| &one.wish));
        let wishes = wishes.chain(self.jump_host.iter().map(|one| &one.wish));
        let mut all: Vec<&str> = wishes.map(|wish| wish.node_interface_id.as_str()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "airship.airshipit.org",
    version = "v1",
    namespaced,
    derive = "PartialEq",
    kind = "SIPCluster",
    root = "SipCluster",
    plural = "sipclusters",
    status = "SipClusterStatus",
    doc = "Hosts for a cluster of somebody's own, and what stands before them.",
    printcolumn = r#"{"name":"Nodes","type":"string","jsonPath":".status.summary"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Hosts","type":"string","jsonPath":".status.hosts","priority":1}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(default)]
pub struct SipClusterSpec {
    /// The hosts.
    pub nodes: NodeSets,
    /// What stands before them.
    pub services: InfraServices,
}

/// A host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SipNode {
    /// What it is for.
    pub role: Role,
    /// The `BareMetalHost`, as `namespace/name`.
    pub host: String,
    /// It stands by.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
    /// Where it is: value of the label that `topologyKey` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// Why it counts no more. It stays until there is another one for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Its addresses, by network.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses: BTreeMap<String, String>,
}

/// A host that was not chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotChosenHost {
    /// The `BareMetalHost`, as `namespace/name`.
    pub host: String,
    /// Why.
    pub why: String,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SipClusterStatus {
    /// `Ready`, and one for each role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// `metadata.generation` that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Hosts that it has of those that are asked for, such as `ControlPlane 2/2, Worker 1/2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Those that it has, or in a dry run would have, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// Hosts that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<SipNode>,
    /// Hosts that it would have, in a dry run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_choose: Vec<SipNode>,
    /// Hosts that were not chosen, in a dry run or while some are missing: those that are nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_chosen: Vec<NotChosenHost>,
    /// What API servers must be told to trust the OIDC provider, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthStatus>,
}

impl SipCluster {
    /// Whether nothing is done, and all is said.
    pub fn is_dry_run(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(DRY_RUN)).is_some_and(|value| value == "true")
    }
}
