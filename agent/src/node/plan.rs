//! What the operator tells a server, and what the server answers. The operator and the server run the same release.

use std::net::IpAddr;

use agent_api::events::Event;
use agent_api::release::Digest;
use serde::{Deserialize, Serialize};

/// A file that the server needs, and where the box has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Path on the server.
    pub path: String,
    /// Where it is fetched from.
    pub url: String,
    /// Its digest.
    pub digest: Digest,
}

/// What is done with the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Task {
    /// It becomes the first member of the control plane.
    Init {
        /// kubeadm's configuration.
        config: String,
        /// Objects that are applied afterwards, in this order, each a document of YAML.
        manifests: Vec<String>,
    },
    /// It joins.
    #[serde(rename_all = "camelCase")]
    Join {
        /// kubeadm's configuration.
        config: String,
        /// As a member of the control plane.
        control_plane: bool,
    },
    /// It is upgraded to the plan's version.
    Upgrade {
        /// Whether it is the first server: then the cluster is upgraded, too.
        first: bool,
    },
    /// All its certificates that kubeadm keeps are renewed.
    Renew,
}

/// Where the server has the patches for kubeadm's objects (`patches.directory` of its configuration) while kubeadm runs.
pub const PATCHES: &str = "/run/foothold-node/patches";

/// Placeholder in a [`NodeFile`]: the interface that has the server's address.
pub const INTERFACE: &str = "{interface}";
/// Placeholder in a [`NodeFile`]: the length of that address's prefix.
pub const PREFIX: &str = "{prefix}";

/// The interface with the route to Services.
pub const SERVICES_INTERFACE: &str = "kube-services";
/// The file that has systemd make it.
pub const SERVICES_DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/20-services.conf";

/// keepalived's configuration, where the masters have a virtual address.
pub const KEEPALIVED_CONF: &str = "/etc/keepalived/keepalived.conf";

/// A file of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFile {
    /// Its path.
    pub path: String,
    /// Its whole text.
    pub text: String,
}

/// What a server shall be. It holds tokens: it is never logged.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    /// The cluster, as `namespace/name/uid` of its object.
    pub cluster: String,
    /// Name of the node.
    pub node: String,
    /// Its address.
    pub address: IpAddr,
    /// Whether the box leased it that address: it keeps it as its own.
    pub keeps_address: bool,
    /// Version of Kubernetes, such as `v1.36.4`.
    pub version: String,
    /// containerd's `hosts.toml` for every registry: the box.
    pub hosts_toml: String,
    /// Files that are fetched if they are missing.
    pub programs: Vec<Program>,
    /// Files that a member of the control plane has beside kubeadm's, such as static pods.
    pub files: Vec<NodeFile>,
    /// What is done.
    pub task: Task,
}

/// The input of `node check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckPlan {
    /// The cluster, as `namespace/name/uid` of its object.
    pub cluster: String,
    /// Whether it becomes a member of the control plane.
    pub control_plane: bool,
    /// The server's address, as the operator knows it.
    pub address: IpAddr,
    /// `HOST:PORT` of the box's content and registry, which it must reach.
    pub reach: Vec<String>,
    /// The box's time, seconds since 1970.
    pub now: i64,
    /// Paths of the programs that will be fetched if they are missing.
    pub brought: Vec<String>,
}

/// The input of `node reset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResetPlan {
    /// The cluster that the server leaves, as `namespace/name/uid` of its object.
    pub cluster: String,
}

/// What a server is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// Its operating system, as it calls itself.
    pub os: String,
    /// Its kernel.
    pub kernel: String,
    /// Its machine id.
    pub machine_id: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Free space where images and pods go, in MiB.
    pub free_mib: u64,
    /// Whether it is a node of this cluster already, or was about to become one.
    pub member: bool,
    /// Whether it was made a node of this cluster to the end.
    pub whole: bool,
    /// Whether a command that was begun before still changes it: kubeadm is not cut off when the operator ends.
    pub busy: bool,
    /// Why it cannot become a node: sentences, each with what to do.
    pub problems: Vec<String>,
}

/// How others join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Invitation {
    /// Token, good for a quarter of an hour.
    pub token: String,
    /// `sha256:...` of the authority's key.
    pub ca_hash: String,
    /// Key of the control plane's certificates, which are kept in the cluster for two hours; only when they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_key: Option<String>,
}

/// A line that `node apply` prints.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// Number of all steps, first of all.
    Steps(usize),
    /// What a step did.
    Event(Box<Event>),
    /// A sign of life: without it, a lost connection would not be noticed.
    Alive,
    /// Everything is done; the kubeconfig of a new cluster.
    Done(Option<String>),
}

/// A repository of packages on the box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repository {
    /// Name of its files on the server.
    pub name: String,
    /// Its URL.
    pub url: String,
    /// Suite and components as apt has them: `trixie main`, or `./`.
    pub suite: String,
    /// Where its key is.
    pub key_url: String,
}

/// The input of `node software`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SoftwarePlan {
    /// Where packages come from, and from nowhere else.
    pub repositories: Vec<Repository>,
    /// Packages, as `name` or `name=version`.
    pub packages: Vec<String>,
    /// What is installed stays in its version: it is only told what would change.
    #[serde(default)]
    pub only_missing: bool,
}

/// The answer of `node software`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareFacts {
    /// Each package with its version: `name=version`.
    pub installed: Vec<String>,
    /// What would go to another version, or go, as `name old -> new`.
    #[serde(default)]
    pub lagging: Vec<String>,
    /// Whether the server must be restarted.
    pub reboot_required: bool,
}
