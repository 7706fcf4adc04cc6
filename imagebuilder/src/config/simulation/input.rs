//! The simulation as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::input::ApiVersion;

/// A site on this machine: servers behind emulated BMCs, and the box that installs them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Foothold simulation")]
pub struct Simulation {
    /// Version of this format.
    #[schemars(required)]
    #[expect(dead_code, reason = "there is one, which the schema names")]
    pub api_version: Option<ApiVersion>,
    /// Kind of the document.
    #[schemars(required)]
    #[expect(dead_code, reason = "there is one, which the schema names")]
    pub kind: Option<Kind>,
    /// The network that all of them are on.
    #[serde(default)]
    pub network: Network,
    /// Namespace of the `BareMetalHosts` that are printed. Default: `metal3`.
    #[schemars(title = "a DNS label")]
    pub namespace: Option<String>,
    /// The box. Without it there are servers alone.
    #[serde(rename = "box")]
    pub appliance: Option<Appliance>,
    /// The servers.
    #[schemars(required)]
    pub servers: Option<Vec<Server>>,
    /// What is applied to the box when it is ready, in this order; the servers are, before all of it.
    #[serde(default)]
    pub apply: Option<Vec<Apply>>,
    /// What is waited for then, in this order. `--until done` ends with the last of them.
    #[serde(default)]
    pub until: Option<Vec<Condition>>,
}

/// A file for a cluster.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Apply {
    /// Objects in YAML; relative to this file.
    #[schemars(required, title = "a file")]
    pub file: Option<String>,
    /// Name of the condition that must be met before. Default: none.
    pub after: Option<String>,
    /// Name of the cluster of servers that gets it. Default: the box's own.
    #[schemars(title = "a DNS label")]
    pub cluster: Option<String>,
    /// Deletes the objects instead. Default: false.
    #[serde(default)]
    pub delete: Option<bool>,
}

/// A condition, as `kubectl wait` takes it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Condition {
    /// Its name, by which it is told.
    #[schemars(required, title = "a DNS label")]
    pub name: Option<String>,
    /// The object, or all of a kind with `--all`: `provisioning/one`.
    #[schemars(required, title = "an object such as `provisioning/one`, or a kind for all of its objects")]
    pub object: Option<String>,
    /// Its namespace. Default: `default`.
    #[schemars(title = "a DNS label")]
    pub namespace: Option<String>,
    /// What must hold: `condition=Ready`, `jsonpath={.status.phase}=Running`, `create` or `delete`.
    #[serde(rename = "for")]
    #[schemars(required, title = "`condition=NAME`, `jsonpath={PATH}=VALUE`, `create` or `delete`")]
    pub holds: Option<String>,
    /// Name of the cluster of servers that has it. Default: the box's own.
    #[schemars(title = "a DNS label")]
    pub cluster: Option<String>,
    /// How long it may take: a duration. Default: `60m`.
    #[schemars(title = "a duration such as `90m`")]
    pub within: Option<String>,
}

/// Kinds of this document.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub enum Kind {
    /// The only kind.
    Simulation,
}

/// The network.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Network {
    /// Address of this machine there, with the length of the prefix. Default: `172.22.0.254/24`.
    #[schemars(title = "an address such as `172.22.0.254/24`")]
    pub address: Option<String>,
}

/// The box.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Appliance {
    /// Its image: raw, qcow2 or ISO; relative to this file. Either this or `definition`.
    #[schemars(title = "a file")]
    pub image: Option<String>,
    /// The definition of its image, which is built when it is not there; relative to this file.
    #[schemars(title = "a file")]
    pub definition: Option<String>,
    /// Hardware address of its card on the network, as `services.provisioning.interface` of its definition names it.
    #[schemars(required, title = "a MAC address such as \"52:54:00:22:00:99\"")]
    pub mac_address: Option<String>,
    /// A Site for it; relative to this file.
    #[schemars(title = "a file")]
    pub site: Option<String>,
    /// Memory. Default: `4GiB`.
    #[schemars(title = "a size such as `4GiB`", extend("x-form" = "size"))]
    pub memory: Option<String>,
    /// Processors. Default: 2.
    pub cpus: Option<i64>,
    /// Firmware. Default: `uefi`.
    pub firmware: Option<Firmware>,
}

/// Firmware of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Firmware {
    /// BIOS.
    Bios,
    /// UEFI.
    #[default]
    Uefi,
}

/// A server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Server {
    /// Name, also of its `BareMetalHost`.
    #[schemars(required, title = "a DNS label")]
    pub name: Option<String>,
    /// Hardware address of its only card.
    #[schemars(required, title = "a MAC address such as \"52:54:00:22:00:01\"")]
    pub mac_address: Option<String>,
    /// Firmware. Default: `uefi`.
    pub firmware: Option<Firmware>,
    /// Memory. Default: `2560MiB`, which the ramdisk that installs needs.
    #[schemars(title = "a size such as `2560MiB`", extend("x-form" = "size"))]
    pub memory: Option<String>,
    /// Processors. Default: 2.
    pub cpus: Option<i64>,
    /// Size of its disk, which is empty. Default: `8GiB`.
    #[schemars(title = "a size such as `8GiB`", extend("x-form" = "size"))]
    pub disk: Option<String>,
    /// The OS image that its `BareMetalHost` asks for, one of the box's `images/`: `debian-node`. Default: none.
    #[schemars(title = "a DNS label")]
    pub image: Option<String>,
    /// What switches it.
    #[schemars(required)]
    pub bmc: Option<Bmc>,
}

/// A BMC.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bmc {
    /// What it speaks, and how its server boots.
    #[serde(rename = "type")]
    #[schemars(required)]
    pub driver: Option<Driver>,
    /// Its address on the network.
    #[schemars(required, title = "an address such as `172.22.0.201`")]
    pub address: Option<String>,
    /// Its port. Default: 443, or 623 for IPMI.
    pub port: Option<i64>,
    /// Name of its only account. Default: `admin`.
    pub user: Option<String>,
    /// The account's password.
    #[schemars(required)]
    pub password: Option<String>,
    /// What its vendor does in its own way: `generic` (the default), `idrac`, `ilo`, `supermicro`, or a data file,
    /// relative to this one. Redfish only.
    #[schemars(title = "the name of a profile, or a file")]
    pub profile: Option<String>,
    /// What is wrong with it.
    #[serde(default)]
    pub faults: Faults,
}

/// Ways to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// Redfish; the server boots over the network.
    Redfish,
    /// Redfish; the server boots from a medium that its BMC shows it.
    RedfishVirtualmedia,
    /// IPMI over LAN; the server boots over the network.
    Ipmi,
}

/// What is wrong with a BMC. Nothing by default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Faults {
    /// Every answer is late by so many milliseconds; with IPMI those of the chassis.
    pub delay_ms: Option<u64>,
    /// Answers come and go. Redfish only.
    pub flaps: Option<Flaps>,
    /// It says nothing ever. Default: false.
    pub silent: Option<bool>,
    /// The right password is refused, too. Default: false.
    pub refuse_credentials: Option<bool>,
    /// What it says about power. Default: `honest`.
    pub power: Option<PowerFault>,
}

/// Of `answered + dropped` requests the last ones are dropped, again and again.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Flaps {
    /// Requests that are answered.
    #[schemars(required)]
    pub answered: Option<u64>,
    /// Requests whose connection is closed.
    #[schemars(required)]
    pub dropped: Option<u64>,
}

/// How a BMC lies about power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PowerFault {
    /// Not at all.
    Honest,
    /// On is told as off, and off as on.
    Inverted,
    /// The state changes with every other answer.
    Wavering,
    /// A reset is answered with success, and nothing happens.
    Deaf,
}
