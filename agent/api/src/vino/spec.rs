//! `Vino`: virtual machines on nodes of the cluster, as hosts that `BareMetalHost`s stand for.
//!
//! ```text
//! spec.nodeSelector ─► which nodes         spec.networks ─► bridges and addresses on each of them
//! spec.nodes        ─► which machines on each of them, and the labels of their hosts
//! status            ─► conditions, and what each node has
//! ```
//! The fields of Airship's operator keep their names. Those that it had before (`allocationStart`, `instanceSubnet`) are read
//! as well.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::Condition;

/// Held until nothing of it is left.
pub const FINALIZER: &str = "vino.airshipit.org";
/// Label of all that belongs to a `Vino`: its name.
pub const CR_NAME: &str = "vino.airshipit.org/cr-name";
/// Label of all that belongs to a `Vino`: its namespace.
pub const CR_NAMESPACE: &str = "vino.airshipit.org/cr-namespace";
/// Annotation of a host: the node that it is on.
pub const NODE: &str = "vino.airshipit.org/node";
/// Annotation of a host: its domain on that node.
pub const DOMAIN: &str = "vino.airshipit.org/domain";
/// As gateway of a route: the address of the node's own bridge.
pub const BRIDGE: &str = "$vinobridge";
/// Key of a Secret with a template of network data, and of a `ConfigMap` with one of the `DaemonSet`.
pub const TEMPLATE: &str = "template";
/// `ConfigMap` with a template of the `DaemonSet`, for those that name none.
pub const DAEMON_SET_TEMPLATE: &str = "vino-daemonset-template";
/// First MAC address of a network that names none.
pub const MAC_PREFIX: &str = "02:00:00:00:00:00";
/// First disk of a machine that names none.
pub const ROOT_DEVICE: &str = "/dev/vda";
/// Addresses that a node gives by DHCP, as a power of two.
pub const BIT_STEP: u8 = 4;

/// Condition: all of it is as it is asked for.
pub const READY: &str = "Ready";
/// Condition: flavours and templates are right, and are there for the nodes.
pub const CONFIG_MAP_READY: &str = "ConfigMapReady";
/// Condition: the hosts are there, and no others.
pub const BMH_READY: &str = "BMHReady";
/// Condition: the pod runs on each node.
pub const DAEMON_SET_READY: &str = "DaemonSetReady";

/// Nodes, by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Labels that they all have.
    pub match_labels: BTreeMap<String, String>,
}

/// CPUs of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuConfiguration {
    /// Those that no machine has, such as `0-4,54-60`; with it, each machine has CPUs of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"))]
    pub cpu_exclude: Option<String>,
}

/// Where an object is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NamespacedName {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its namespace; that of the `Vino` when it is empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
}

/// A route of the machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VmRoute {
    /// Where to: an address.
    #[schemars(length(min = 2, max = 49))]
    pub network: String,
    /// Its mask or its prefix length.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 45))]
    pub netmask: Option<String>,
    /// By whom: an address, or `$vinobridge` for that of the node's own bridge.
    #[schemars(length(min = 2, max = 45))]
    pub gateway: String,
}

/// A network, on each node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    /// Its name.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$"))]
    pub name: String,
    /// Its addresses, such as `192.168.2.0/20`.
    #[schemars(length(min = 4, max = 49))]
    pub subnet: String,
    /// What network data calls it: `bridge`, `ipv4`, `ipv6`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub kind: Option<String>,
    /// First address that nodes give by DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 45))]
    pub dhcp_allocation_start: Option<String>,
    /// Last address that nodes give by DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 45))]
    pub dhcp_allocation_stop: Option<String>,
    /// How many of them each node has, as a power of two; 4 when absent: 16 addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 24))]
    pub instance_subnet_bit_step: Option<u8>,
    /// First address of bridges and machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 45))]
    pub static_allocation_start: Option<String>,
    /// Last address of bridges and machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 45))]
    pub static_allocation_stop: Option<String>,
    /// `staticAllocationStart`, as it was called before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 45))]
    pub allocation_start: Option<String>,
    /// `staticAllocationStop`, as it was called before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 45))]
    pub allocation_stop: Option<String>,
    /// What nodes give by DHCP, as it was said before: a subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 4, max = 49))]
    pub instance_subnet: Option<String>,
    /// DNS servers.
    #[serde(rename = "dns_servers", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 2, max = 45)))]
    pub dns_servers: Vec<String>,
    /// Routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub routes: Vec<VmRoute>,
    /// First MAC address; those of machines and bridges follow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 17), regex(pattern = "^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$"))]
    pub mac_prefix: Option<String>,
    /// Interface of nodes that is plugged into the bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15))]
    pub physical_interface: Option<String>,
    /// Which template of libvirt's networks; that of its name when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub libvirt_template: Option<String>,
    /// The bridge on nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15))]
    pub bridge_name: Option<String>,
}

/// An interface of machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkInterface {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// What it is.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub kind: Option<String>,
    /// The network that it is plugged into.
    #[schemars(length(min = 1, max = 40))]
    pub network: String,
    /// Most bytes of a frame's content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 68, max = 65535))]
    pub mtu: Option<u16>,
    /// What templates want beside.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// How a disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskOptions {
    /// Its size, in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub size_gb: Option<u32>,
    /// It takes room only as it is written.
    pub sparse: bool,
}

/// A disk of machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiskDrive {
    /// Its name.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$"))]
    pub name: String,
    /// `qcow2` or `raw`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(qcow2|raw)$"))]
    pub kind: Option<String>,
    /// A file or device of the node, in place of a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^/"))]
    pub path: Option<String>,
    /// How it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<DiskOptions>,
}

/// Machines of a kind, on each node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSet {
    /// Its name, and that of its flavour, such as `worker`.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// How many on each node.
    #[schemars(range(min = 0, max = 1000))]
    pub count: u32,
    /// Labels of the hosts; they win over those of the node.
    #[serde(rename = "bmhLabels", skip_serializing_if = "BTreeMap::is_empty")]
    pub bmh_labels: BTreeMap<String, String>,
    /// `ConfigMap` with `domainTemplate` and `volumeTemplate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libvirt_template: Option<NamespacedName>,
    /// Interfaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub network_interfaces: Vec<NetworkInterface>,
    /// Disks beside the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub disk_drives: Vec<DiskDrive>,
    /// Secret whose key `template` makes the hosts' network data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_template: Option<NamespacedName>,
    /// The first disk as a system sees it; `/dev/vda` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = "^/dev/"))]
    pub root_device_name: Option<String>,
    /// The interface that machines boot from; the first when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub boot_interface_name: Option<String>,
    /// A screen by VNC.
    #[serde(rename = "enableVNC", skip_serializing_if = "std::ops::Not::not")]
    pub enable_vnc: bool,
}

/// Credentials of Redfish.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BmcCredentials {
    /// User.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[^:\\s]+$"))]
    pub username: String,
    /// Password.
    #[schemars(length(min = 1, max = 256))]
    pub password: String,
}

impl std::fmt::Debug for BmcCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BmcCredentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// The pods of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetOptions {
    /// `ConfigMap` with the `DaemonSet`, key `template`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaced_name: Option<NamespacedName>,
    /// Image of the container `libvirt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub libvirt_image: Option<String>,
    /// Image of the container `sushy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub sushy_image: Option<String>,
    /// Image of the container `vino-builder`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub vino_builder_image: Option<String>,
    /// It is read and means nothing: the controller reads the nodes itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub node_annotator_image: Option<String>,
}

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "airship.airshipit.org",
    version = "v1",
    namespaced,
    derive = "PartialEq",
    kind = "Vino",
    plural = "vinoes",
    status = "VinoStatus",
    doc = "Virtual machines on nodes of the cluster, as hosts.",
    printcolumn = r#"{"name":"Hosts","type":"string","jsonPath":".status.hosts"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Accelerator","type":"string","jsonPath":".status.accelerator"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct VinoSpec {
    /// Which nodes; all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// CPUs of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<CpuConfiguration>,
    /// Labels of nodes that their hosts have, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 317)))]
    pub node_label_keys_to_copy: Vec<String>,
    /// Networks on each node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub networks: Vec<Network>,
    /// Machines on each node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub nodes: Vec<NodeSet>,
    /// Credentials of Redfish, which the hosts have, too.
    pub bmc_credentials: BmcCredentials,
    /// The pods of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon_set_options: Option<DaemonSetOptions>,
    /// Host of boot programs, for templates of networks.
    #[serde(rename = "pxeBootImageHost", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pxe_boot_image_host: Option<String>,
    /// Its port.
    #[serde(rename = "pxeBootImageHostPort", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub pxe_boot_image_host_port: Option<u16>,
}

/// An object that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VinoNode {
    /// Its name.
    pub name: String,
    /// Hosts that are there.
    pub hosts: usize,
    /// `kvm` (by the processor) or `tcg` (by emulation).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// What it waits for, or what is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VinoStatus {
    /// `Ready`, `ConfigMapReady`, `DaemonSetReady` and `BMHReady`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// `metadata.generation` that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The `ConfigMap` with the templates of libvirt that nodes have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ObjectRef>,
    /// Hosts that are there of those that are asked for, such as `4/5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// How machines run, such as `kvm`, `tcg` or `kvm, tcg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// The nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<VinoNode>,
}

impl Network {
    /// First and last address of bridges and machines.
    pub fn static_range(&self) -> Option<(&str, &str)> {
        let start = self.static_allocation_start.as_deref().or(self.allocation_start.as_deref())?;
        Some((start, self.static_allocation_stop.as_deref().or(self.allocation_stop.as_deref())?))
    }

    /// How many addresses a node gives by DHCP, as a power of two.
    pub fn bit_step(&self) -> u8 {
        self.instance_subnet_bit_step.unwrap_or(BIT_STEP)
    }
}

impl NodeSet {
    /// The interface that machines boot from.
    pub fn boot_interface(&self) -> Option<&str> {
        let first = || self.network_interfaces.first().map(|interface| interface.name.as_str());
        self.boot_interface_name.as_deref().filter(|name| !name.is_empty()).or_else(first)
    }

    /// The first disk as a system sees it.
    pub fn root_device(&self) -> &str {
        self.root_device_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(ROOT_DEVICE)
    }
}
