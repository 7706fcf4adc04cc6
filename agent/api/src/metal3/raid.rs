//! RAID and firmware settings of a host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Nullable, items, present};
use super::image::RootDeviceHints;

/// RAID levels of controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HardwareRaidLevel {
    /// Striped.
    #[serde(rename = "0")]
    Zero,
    /// Mirrored.
    #[serde(rename = "1")]
    One,
    /// With Hamming code.
    #[serde(rename = "2")]
    Two,
    /// With parity.
    #[serde(rename = "5")]
    Five,
    /// With double parity.
    #[serde(rename = "6")]
    Six,
    /// Stripes of mirrors.
    #[serde(rename = "1+0")]
    OneZero,
    /// Stripes of RAID 5.
    #[serde(rename = "5+0")]
    FiveZero,
    /// Stripes of RAID 6.
    #[serde(rename = "6+0")]
    SixZero,
}

/// RAID levels of the kernel that a host can boot from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SoftwareRaidLevel {
    /// Striped.
    #[serde(rename = "0")]
    Zero,
    /// Mirrored.
    #[serde(rename = "1")]
    One,
    /// Stripes of mirrors.
    #[serde(rename = "1+0")]
    OneZero,
}

/// A volume of a RAID controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareRaidVolume {
    /// GiB; as much as there is when absent or 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub size_gibibytes: Option<i64>,
    /// Its level; drivers may support only some.
    pub level: HardwareRaidLevel,
    /// Its name; made up when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub name: Option<String>,
    /// Whether its disks shall rotate; either when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// Disks it takes; as few as the level needs when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub number_of_physical_disks: Option<i64>,
    /// Name of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Names of its disks, in the controller's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical_disks: Option<Vec<String>>,
}

/// A volume of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareRaidVolume {
    /// Whether the image is written to it. True for one volume at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default = "no_root_volume")]
    pub root_volume: Option<bool>,
    /// GiB; as much as there is when absent or 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub size_gibibytes: Option<i64>,
    /// Its level.
    pub level: SoftwareRaidLevel,
    /// Which disks it takes, at least two.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2))]
    pub physical_disks: Option<Vec<RootDeviceHints>>,
}

#[expect(clippy::unnecessary_wraps, reason = "a default has the type of its field")]
fn no_root_volume() -> Option<bool> {
    Some(false)
}

/// The volumes of a host: of a controller or of the kernel, not of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RaidConfig {
    /// Volumes of controllers; `[]` clears what is there. The first one is the root volume unless `rootDeviceHints` says otherwise.
    #[serde(
        rename = "hardwareRAIDVolumes",
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<Vec<HardwareRaidVolume>>")]
    pub hardware_raid_volumes: Option<Nullable<Vec<HardwareRaidVolume>>>,
    /// Volumes of the kernel, one or two, the first one mirrored. Always deleted first.
    #[serde(
        rename = "softwareRAIDVolumes",
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 2), with = "Option<Vec<SoftwareRaidVolume>>")]
    pub software_raid_volumes: Option<Nullable<Vec<SoftwareRaidVolume>>>,
}

impl RaidConfig {
    /// Volumes of controllers.
    pub fn hardware(&self) -> &[HardwareRaidVolume] {
        items(self.hardware_raid_volumes.as_ref())
    }

    /// Volumes of the kernel.
    pub fn software(&self) -> &[SoftwareRaidVolume] {
        items(self.software_raid_volumes.as_ref())
    }
}

/// BIOS settings by common names. No driver knows them any more: see `HostFirmwareSettings`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareConfig {
    /// Virtualization of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [true, false]))]
    pub virtualization_enabled: Option<bool>,
    /// More than one thread per core.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [true, false]))]
    pub simultaneous_multithreading_enabled: Option<bool>,
    /// SR-IOV.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [true, false]))]
    pub sriov_enabled: Option<bool>,
}
