//! `HardwareData`: what inspection found in a host.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who made the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemVendor {
    /// The maker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_name: Option<String>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
}

/// The BIOS or UEFI firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bios {
    /// When it was released, in the vendor's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Who made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The firmware of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Firmware {
    /// BIOS or UEFI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bios: Option<Bios>,
}

/// The processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    /// Architecture, such as `x86_64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// Name of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Clock in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_megahertz: Option<f64>,
    /// Feature flags, as the kernel names them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<Vec<String>>,
    /// Threads of all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
}

/// A VLAN that an interface sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Vlan {
    /// Its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4094))]
    pub id: Option<i32>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What the switch says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lldp {
    /// Chassis of the switch.
    #[serde(rename = "switchID", skip_serializing_if = "Option::is_none")]
    pub switch_id: Option<String>,
    /// Port of the switch.
    #[serde(rename = "portID", skip_serializing_if = "Option::is_none")]
    pub port_id: Option<String>,
    /// Name of the switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_system_name: Option<String>,
}

/// A network interface, once per IP address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Nic {
    /// Its name in Linux.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Vendor and product in hexadecimal, such as `0x8086 0x1572`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}"))]
    pub mac: Option<String>,
    /// An IPv4 or IPv6 address of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Gbit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_gbps: Option<i64>,
    /// VLANs that it sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlans: Option<Vec<Vlan>>,
    /// The untagged VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4094))]
    pub vlan_id: Option<i32>,
    /// Whether the host can boot from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pxe: Option<bool>,
    /// What its switch says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lldp: Option<Lldp>,
    /// Where it sits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
}

impl Nic {
    /// Whether it has ids of its bus, as cards have: a BMC's virtual card on USB has none, and the same address in every
    /// server of a kind.
    pub fn has_id(&self) -> bool {
        self.pci_address.is_some() || self.model.as_ref().is_some_and(|model| !model.is_empty())
    }
}

/// What a disk is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DiskType {
    /// Platters.
    #[serde(rename = "HDD")]
    Hdd,
    /// Flash behind SATA or SAS.
    #[serde(rename = "SSD")]
    Ssd,
    /// Flash on PCI Express.
    #[serde(rename = "NVME")]
    Nvme,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Its name in Linux, one that stays across reboots when there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Other names of it, which may change across reboots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alternate_names: Option<Vec<String>>,
    /// Whether it rotates; `type` says more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// What it is made of.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<DiskType>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Who made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
    /// World wide name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// The vendor's extension of the world wide name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn_vendor_extension: Option<String>,
    /// World wide name with that extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn_with_extension: Option<String>,
    /// SCSI address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hctl: Option<String>,
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareDetails {
    /// Who made the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_vendor: Option<SystemVendor>,
    /// Its firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ram_mebibytes: Option<i64>,
    /// Network interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nics: Option<Vec<Nic>>,
    /// Disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Vec<Storage>>,
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Its name at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// What was found.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "HardwareData",
    plural = "hardwaredata",
    shortname = "hd",
    doc = "What inspection found in the host of the same name.",
    printcolumn(
        name = "Age",
        type_ = "date",
        description = "How long it is here",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct HardwareDataSpec {
    /// What was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareDetails>,
}
