//! `Provisioning`: servers of the site that shall become a Kubernetes cluster.
//!
//! ```text
//! spec.masters, spec.workers ─► which servers     status.nodes ─► what became of each
//! spec.kubernetes, ssh       ─► what they run     conditions   ─► `kubectl wait --for=condition=Ready`
//! ```
//! The fields of Akraino ICN's operator keep their names (`mac-address`, `KUDPlugins`, `PodSubnet`); all others are optional.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{Condition, Time};
use crate::metal3::host_firmware_settings::IntOrString;

/// Held until nothing of the cluster is left.
pub const FINALIZER: &str = "provisioning.bpa.akraino.org/cluster";
/// Label of a `Provisioning` with the name of its cluster; without it the cluster is called as the object.
pub const CLUSTER_LABEL: &str = "cluster";
/// Annotation of a claimed `BareMetalHost`: what its node is called in the cluster.
pub const NODE_ANNOTATION: &str = "bpa.akraino.org/node";
/// Annotation of a claimed `BareMetalHost`: the address that the box's DHCP leased to its node, and keeps for it.
pub const ADDRESS_ANNOTATION: &str = "bpa.akraino.org/address";
/// Condition: every node of the cluster runs.
pub const READY: &str = "Ready";
/// Condition: each node has a server.
pub const HOSTS_CHOSEN: &str = "HostsChosen";
/// Most nodes of one role.
pub const MOST_NODES: usize = 500;

/// Which server a node gets: the one with this MAC address, or any with these resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct NodeWish {
    /// MAC address of one of its network cards, in any spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Processors (threads) that it has at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cpu: Option<i64>,
    /// Memory that it has at least, as a quantity of Kubernetes (`64Gi`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<IntOrString>,
    /// It has a network card that can do SR-IOV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sriov: Option<bool>,
    /// It has Intel `QuickAssist`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qat: Option<bool>,
}

/// Nodes by their names. Each item holds one, as ICN's samples have it; more are read, too.
pub type Wishes = Vec<BTreeMap<String, NodeWish>>;

/// Labels that servers must have, by role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector {
    /// Of masters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub masters: BTreeMap<String, String>,
    /// Of workers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workers: BTreeMap<String, String>,
}

/// Who connects the pods of different nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Cni {
    /// flannel, with VXLAN.
    #[default]
    Flannel,
    /// Nobody: nodes become Ready when the user has brought something.
    None,
}

/// Who makes the volumes of claims that name no `StorageClass`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StorageWish {
    /// local-path-provisioner: folders of the node that uses them. Their size is not limited.
    LocalPath,
    /// Nobody: claims wait until the user has brought something.
    None,
}

/// The Kubernetes of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesWish {
    /// Version, such as `v1.36.4`; the box's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^v[0-9]+\.[0-9]+\.[0-9]+$"))]
    pub version: Option<String>,
    /// Addresses of pods; `PodSubnet` when absent, else `10.244.64.0/18`.
    #[serde(rename = "podCIDR", skip_serializing_if = "Option::is_none")]
    pub pod_cidr: Option<String>,
    /// Addresses of Services; `10.244.0.0/18` when absent.
    #[serde(rename = "serviceCIDR", skip_serializing_if = "Option::is_none")]
    pub service_cidr: Option<String>,
    /// `HOST` or `HOST:PORT` at which the API is reached; the first master's address when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub control_plane_endpoint: Option<String>,
    /// A free address of the servers' network, instead: the masters keep it among themselves (keepalived, `HAProxy`), and the API
    /// is reached at its port 8443.
    #[serde(rename = "virtualIP", skip_serializing_if = "Option::is_none")]
    pub virtual_ip: Option<String>,
    /// Who connects the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cni: Option<Cni>,
    /// Whether it has the metrics API (`kubectl top`, autoscalers); where the box carries metrics-server when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<bool>,
    /// Who makes volumes; local-path-provisioner, where the box carries it, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageWish>,
}

/// How the servers are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SshWish {
    /// Who logs in; `root` when absent. Anybody else needs `sudo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[a-z_][a-z0-9_.-]*$"))]
    pub user: Option<String>,
    /// Secret of this namespace with `password`, or `ssh-privatekey` (ICN's `id_rsa` is read, too); `ssh-key-secret` when
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalSecret>,
    /// Port; 22 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
}

/// An installer in an image of the user's, in place of the box's own: ICN's `KuD`, kubespray. It finds the inventory in
/// `/opt/kud/multi-cluster/CLUSTER`, leaves `artifacts/admin.conf` there, and ends with 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstallerWish {
    /// The image; the box has it.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// What runs in it, with the cluster's name and ICN's arguments behind it; `./installer` when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub command: Vec<String>,
}

/// A Secret of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalSecret {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A `SIPCluster` of Airship, whose hosts become the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; that of the `Provisioning` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bpa.akraino.org",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "Provisioning",
    plural = "provisionings",
    shortname = "bpa",
    status = "ProvisioningStatus",
    doc = "Servers of the site that become a Kubernetes cluster.",
    printcolumn = r#"{"name":"Cluster","type":"string","jsonPath":".status.cluster"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Nodes","type":"string","jsonPath":".status.summary"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version"}"#,
    printcolumn = r#"{"name":"ETA","type":"string","jsonPath":".status.eta"}"#,
    printcolumn = r#"{"name":"Endpoint","type":"string","jsonPath":".status.endpoint","priority":1}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningSpec {
    /// Nodes of the control plane; without workers they run pods, too.
    #[serde(default)]
    #[schemars(length(max = MOST_NODES))]
    pub masters: Wishes,
    /// Nodes that run pods. One with a master's name and no other MAC address is that master, with both roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_NODES))]
    pub workers: Wishes,
    /// A `SIPCluster`, in place of `masters`, `workers` and `nodeSelector`: its hosts are the nodes, those of its control plane
    /// the masters. Those that stand by are none. The API is reached at its load balancer where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterReference>,
    /// Add-ons of the `KuD` installer. They are handed to an `installer` image of the user's; the box's own installer
    /// has none.
    #[serde(rename = "KUDPlugins", default, skip_serializing_if = "Vec::is_empty")]
    pub kud_plugins: Vec<String>,
    /// Addresses of pods.
    #[serde(rename = "PodSubnet", skip_serializing_if = "Option::is_none")]
    pub pod_subnet: Option<String>,
    /// Where ICN's first releases wrote the inventory. It is read and means nothing: the inventory has its own folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostfile: Option<String>,
    /// The Kubernetes of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesWish>,
    /// How the servers are reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshWish>,
    /// Labels that the servers must have, by role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// Who installs the cluster; the box when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installer: Option<InstallerWish>,
}

/// How far a cluster is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterPhase {
    /// Servers are chosen, or waited for.
    #[default]
    Pending,
    /// Nodes are installed, added or removed.
    Installing,
    /// Every node runs.
    Ready,
    /// It was made, and not all of its nodes run, or its spec asks for what cannot be had: the condition says which.
    Degraded,
    /// It cannot go on before somebody does what the condition says.
    Failed,
    /// It is being removed.
    Deleting,
}

impl ClusterPhase {
    /// Whether every node was installed.
    pub const fn is_formed(self) -> bool {
        matches!(self, Self::Ready | Self::Degraded)
    }
}

/// What a node does in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeRole {
    /// The control plane, with etcd.
    Master,
    /// Pods.
    Worker,
}

/// How far a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodePhase {
    /// Something else comes first.
    #[default]
    Waiting,
    /// A step runs on it.
    Installing,
    /// It is part of the cluster.
    Installed,
    /// A step failed; it is tried again.
    Failing,
    /// It is drained and reset.
    Removing,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its name in the cluster.
    pub name: String,
    /// What it does there.
    pub roles: Vec<NodeRole>,
    /// The `BareMetalHost`, as `namespace/name`.
    pub host: String,
    /// MAC address of the card by which it was chosen, or has its address.
    pub mac_address: String,
    /// Its address.
    pub ip: String,
    /// How far it is.
    pub phase: NodePhase,
    /// The step that runs or failed, such as `kubernetes/init (7 of 9)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// When that step began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When it will be done, by what earlier nodes took. Absent where nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta: Option<Time>,
    /// What went wrong last, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its ssh host key (`ssh-ed25519 AAAA...`), as first seen; another one is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// Seconds that its installation took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secs: Option<i64>,
    /// When it was installed: a server whose OS was written later is installed anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed_at: Option<Time>,
}

/// A server that was not chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotChosen {
    /// The `BareMetalHost`, as `namespace/name`.
    pub host: String,
    /// Why.
    pub why: String,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningStatus {
    /// Name of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// How far it is.
    #[serde(default)]
    pub phase: ClusterPhase,
    /// `Ready` and `HostsChosen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// `metadata.generation` that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Installed nodes of all, such as `2/3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Version of Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `HOST:PORT` of the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Addresses of its pods, as it was made.
    #[serde(rename = "podCIDR", skip_serializing_if = "Option::is_none")]
    pub pod_cidr: Option<String>,
    /// Addresses of its Services, as it was made.
    #[serde(rename = "serviceCIDR", skip_serializing_if = "Option::is_none")]
    pub service_cidr: Option<String>,
    /// Secret of this namespace with the kubeconfig (key `value`, as Cluster API has it, and `admin.conf`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret: Option<String>,
    /// When the installation began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When every node was Ready for the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// When it will be Ready, by what earlier work took. Absent where nobody knows, and when nothing is worked on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta: Option<Time>,
    /// Its nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeStatus>,
    /// Servers that were not chosen, while some are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_chosen: Vec<NotChosen>,
}

impl Provisioning {
    /// Name of the cluster: the label `cluster`, else the object's own name.
    pub fn cluster(&self) -> &str {
        let labels = self.metadata.labels.as_ref();
        let label = labels.and_then(|labels| labels.get(CLUSTER_LABEL)).map(String::as_str);
        label.filter(|name| !name.is_empty()).or(self.metadata.name.as_deref()).unwrap_or_default()
    }
}

/// All clusters, as REST tells them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterList {
    /// By namespace and name.
    pub clusters: Vec<ClusterStory>,
}

/// One cluster, as REST tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterStory {
    /// Namespace of its `Provisioning`.
    pub namespace: String,
    /// Name of its `Provisioning`.
    pub name: String,
    /// What is known of it.
    pub status: ProvisioningStatus,
}
