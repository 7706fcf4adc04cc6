//! What the controller of `ViNO` has a node make, and what the node's pod says of it. Neither holds a secret.
//!
//! ```text
//! annotation of the Node  airshipit.org/vino.network-values   controller writes, pod reads     NodeValues, YAML
//! annotation of the pod   airshipit.org/vino.node-report      pod writes, controller reads     NodeReport, JSON
//! ConfigMap, Secrets      named in the values                 controller writes, pod reads
//! ```
//! The pod makes whatever the values say, and removes what of its own they say no more: a domain that is not among them goes
//! with its volumes, a network likewise. Without the annotation it changes nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Annotation of a Node: what is to be there, [`NodeValues`] as YAML.
pub const VALUES: &str = "airshipit.org/vino.network-values";
/// Annotation of the node's pod: what is there, [`NodeReport`] as JSON.
pub const REPORT: &str = "airshipit.org/vino.node-report";
/// Port of the node at which Redfish answers.
pub const REDFISH_PORT: u16 = 8000;
/// Port of the node on which SSH leads to their serial consoles.
pub const CONSOLE_PORT: u16 = 8022;
/// Keys of the Secret with the credentials of Redfish. The pod has them in its environment, too, as `BASIC_AUTH_USERNAME` and
/// `BASIC_AUTH_PASSWORD`, as they were when it started.
pub const CREDENTIALS: [&str; 2] = ["username", "password"];
/// Keys of the `ConfigMap` with templates. One that is not there: the pod has its own.
pub const FLAVOR_TEMPLATES: &str = "flavor-templates.yaml";
/// `libvirtNetworks: {NAME: {libvirtTemplate}}`.
pub const NETWORK_TEMPLATES: &str = "network-templates.yaml";
/// `libvirtStorage: [{name, libvirtTemplate}]`.
pub const STORAGE_TEMPLATES: &str = "storage-templates.yaml";

/// What a node is to have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeValues {
    /// The `Vino` that the node belongs to, as `namespace/name`.
    pub vino: String,
    /// `metadata.generation` of the `Vino`.
    pub generation: i64,
    /// Hex digest of all else here but `generation`: the report names it.
    pub hash: String,
    /// Host of boot programs, for templates.
    #[serde(rename = "pxeBootImageHost", skip_serializing_if = "Option::is_none")]
    pub pxe_boot_image_host: Option<String>,
    /// Its port.
    #[serde(rename = "pxeBootImageHostPort", skip_serializing_if = "Option::is_none")]
    pub pxe_boot_image_host_port: Option<u16>,
    /// Networks.
    pub networks: Vec<NetworkValues>,
    /// CPUs.
    pub configuration: CpuValues,
    /// Virtual machines.
    pub domains: Vec<DomainValues>,
    /// Nodes that the `Vino` has.
    pub node_count: usize,
    /// The `ConfigMap` with templates of libvirt, in the namespace of the pod; none when users gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub templates: Option<Named>,
    /// The Secret with the credentials of Redfish ([`CREDENTIALS`]), in the namespace of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Named>,
}

/// An object that the pod reads, and which state of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its `resourceVersion`: another one is read again.
    pub version: String,
}

/// CPUs of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuValues {
    /// Those that no domain is pinned to, such as `0-4,54-60`. Without it nothing is pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_exclude: Option<String>,
}

/// A network of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkValues {
    /// Its name, and that of libvirt's network.
    pub name: String,
    /// `bridge`, `ipv4`, `ipv6`, ... as users say it.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whole subnet, such as `192.168.2.0/20`; bits behind the prefix may be set.
    pub subnet: String,
    /// Mask of the subnet as a mask is written; IPv6 has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netmask: Option<String>,
    /// Addresses that this node may give by DHCP: no other node has them. None: no DHCP here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeValues>,
    /// Address of this node's bridge.
    #[serde(rename = "bridgeIP")]
    pub bridge_ip: String,
    /// MAC address of this node's bridge.
    #[serde(rename = "bridgeMAC")]
    pub bridge_mac: String,
    /// Interface of the bridge; the pod has a name for it when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge_name: Option<String>,
    /// Interface of the node that is plugged into the bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical_interface: Option<String>,
    /// Which of the network templates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libvirt_template: Option<String>,
    /// DNS servers.
    #[serde(rename = "dns_servers", skip_serializing_if = "Vec::is_empty")]
    pub dns_servers: Vec<String>,
    /// Routes, with addresses of this node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteValues>,
}

/// Addresses, both ends included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeValues {
    /// The first.
    pub start: String,
    /// The last.
    pub stop: String,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteValues {
    /// Where to: an address, with a prefix length when there is no mask.
    pub network: String,
    /// Its mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netmask: Option<String>,
    /// By whom.
    pub gateway: String,
}

/// A virtual machine. Redfish knows it by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DomainValues {
    /// Such as `worker-0`.
    pub name: String,
    /// Such as `worker`: which of the flavours and of their templates.
    pub role: String,
    /// The `BareMetalHost`, as `namespace/name`.
    pub host: String,
    /// Size.
    pub flavor: Flavor,
    /// MAC address of the interface that it boots from. Empty: it has no interfaces.
    #[serde(rename = "bootMACAddress")]
    pub boot_mac_address: String,
    /// A screen by VNC.
    #[serde(rename = "enableVNC")]
    pub enable_vnc: bool,
    /// Where the screen's password is: it is asked for with `enable_vnc`, and never that of Redfish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnc: Option<VncValues>,
    /// Interfaces, in their order.
    pub interfaces: Vec<InterfaceValues>,
    /// Disks beyond the first, which is as large as the flavour's `root_size`. When one is called `root`, it is the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disk_drives: Vec<DiskValues>,
    /// The first disk as its system sees it, such as `/dev/vda`.
    pub root_device_name: String,
}

/// Size of a virtual machine. What templates of users have beside it stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Flavor {
    /// CPUs.
    pub vcpus: u32,
    /// Memory, in GiB.
    pub memory: u32,
    /// First disk, in GiB, as libvirt's `unit='G'` is.
    pub root_size: u32,
    /// Memory in huge pages of 1 GiB.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hugepages: bool,
    /// Whatever else there is.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

/// Where the password of a screen is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VncValues {
    /// Secret in the namespace of the pod.
    pub secret: String,
    /// Key in it; the value has 8 characters, which is all that VNC takes.
    pub key: String,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceValues {
    /// Its name.
    pub name: String,
    /// `network`, `bridge`, ... as users say it.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Which network it is plugged into.
    pub network: String,
    /// Most bytes of a frame's content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Whatever templates want.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// Its address.
    pub ip_address: String,
    /// Its MAC address. It never changes while the domain is there.
    pub mac_address: String,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskValues {
    /// Its name, which its volume's name ends with.
    pub name: String,
    /// `qcow2` or `raw`; `qcow2` when there is none.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// A file or device of the node; a volume of the pool when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its size, in GiB, as libvirt's `unit='G'` is; with a `path` it may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_gb: Option<u32>,
    /// It takes room only as it is written.
    pub sparse: bool,
}

impl NodeValues {
    /// The same, with its hash.
    ///
    /// # Errors
    /// Only what cannot be written as JSON, which values never are.
    pub fn sealed(mut self) -> Result<Self, serde_json::Error> {
        let bare = Self { hash: String::new(), generation: 0, ..self.clone() };
        self.hash = hex::encode(Sha256::digest(serde_json::to_vec(&bare)?));
        Ok(self)
    }
}

/// What a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeReport {
    /// Hash of the values that it is about. While they are being made, what is not there yet is missing here.
    pub hash: String,
    /// How domains run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
    /// Domains that are there, whether they are asked for or not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainReport>,
    /// Networks that are there, whether they are asked for or not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkReport>,
    /// What is wrong with the node or the values, such as a refusal of libvirt that is no domain's and no network's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// How a node runs virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// By the processor.
    Kvm,
    /// By emulation.
    Tcg,
}

impl Accelerator {
    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// A domain that is there, or should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DomainReport {
    /// Its name.
    pub name: String,
    /// What libvirt says of it; `absent` when it could not be made.
    pub state: DomainState,
    /// A change that its next start brings: it is not restarted for that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restart_pending: bool,
    /// Why it is not as it is asked for, in libvirt's words where it refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// State of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DomainState {
    /// It is not there.
    #[default]
    Absent,
    /// It is off.
    ShutOff,
    /// It runs.
    Running,
    /// It is paused, or crashed.
    Paused,
}

/// A network that is there, or should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkReport {
    /// Its name.
    pub name: String,
    /// Why it is not as it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl NodeReport {
    /// All that is wrong, in words.
    pub fn wrong(&self) -> Vec<String> {
        let domains = self.domains.iter().filter_map(|it| Some(("domain", &it.name, it.error.as_ref()?)));
        let networks = self.networks.iter().filter_map(|it| Some(("network", &it.name, it.error.as_ref()?)));
        let of_parts = networks.chain(domains).map(|(kind, name, why)| format!("{kind} `{name}`: {why}"));
        self.errors.iter().cloned().chain(of_parts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> NodeValues {
        let text = include_str!("../../../tests/fixtures/vino/node-values.yaml");
        serde_saphyr::from_str(text).expect("values")
    }

    /// The file is what the pod is handed; `tests/operator` holds the controller to it.
    #[test]
    fn values_are_read_back_as_they_were_written() {
        let values = values();
        let again: NodeValues =
            serde_saphyr::from_str(&serde_saphyr::to_string(&values).expect("YAML")).expect("the same");
        assert_eq!(again, values);
        assert_eq!((values.domains.len(), values.networks[0].bridge_ip.as_str()), (2, "192.168.2.10"));
    }

    #[test]
    fn a_hash_is_that_of_what_is_made_and_not_of_the_object_that_asked() {
        let first = values().sealed().expect("sealed");
        assert_eq!(first.hash.len(), 64);
        let later = NodeValues { generation: 9, ..first.clone() }.sealed().expect("sealed");
        assert_eq!(first.hash, later.hash);
        let mut other = first.clone();
        other.networks[0].routes[0].gateway = "192.168.2.11".to_owned();
        assert_ne!(first.hash, other.sealed().expect("sealed").hash);
    }

    #[test]
    fn values_hold_no_password() {
        let text = serde_json::to_string(&values()).expect("JSON").to_lowercase();
        assert!(!text.contains("password"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_said_with_what_it_is_wrong_with() {
        let report: NodeReport = serde_json::from_str(
            r#"{"hash": "a", "accelerator": "tcg", "errors": ["no disk"], "networks": [{"name": "m", "error": "in use"}],
                "domains": [{"name": "w-0", "state": "shutOff"}, {"name": "w-1", "state": "absent", "error": "no memory"}]}"#,
        )
        .expect("a report");
        assert_eq!(report.wrong(), ["no disk", "network `m`: in use", "domain `w-1`: no memory"]);
        assert_eq!(report.accelerator.map(Accelerator::word), Some("tcg"));
        assert_eq!(report.domains[0].state, DomainState::ShutOff);
    }
}
