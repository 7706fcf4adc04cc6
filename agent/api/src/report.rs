//! What the box writes to its SITE partition, below `foothold/`: `report.json` ([`Report`]), the same as text, and
//! `inventory.json` ([`Inventory`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rest::{BoxStatus, Timeline};

/// `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The box's clock, RFC 3339, UTC.
    pub written: String,
    /// Why it was written.
    pub because: Reason,
    /// As `GET /api/v1/status`.
    pub status: BoxStatus,
    /// As `GET /api/v1/timeline`.
    pub timeline: Timeline,
}

/// Why a report was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The box was ready.
    Ready,
    /// A step stayed failed.
    Failed {
        /// `phase/step`.
        step: String,
    },
    /// Somebody asked by REST.
    Asked,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("the box is ready"),
            Self::Failed { step } => write!(f, "{step} has failed"),
            Self::Asked => f.write_str("somebody asked"),
        }
    }
}

/// `inventory.json`. What the machine does not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// The machine as a whole, from SMBIOS.
    pub machine: Machine,
    /// Firmware.
    pub firmware: Firmware,
    /// Processors.
    pub cpu: Cpu,
    /// Memory that the kernel has, MiB.
    pub memory_mib: u64,
    /// Whole disks.
    pub disks: Vec<Disk>,
    /// Network interfaces that are devices.
    pub nics: Vec<Nic>,
}

/// The machine as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Who made it.
    pub vendor: String,
    /// What they call it.
    pub product: String,
    /// Serial number.
    pub serial: String,
    /// UUID.
    pub uuid: String,
    /// Serial number of the board.
    pub board_serial: String,
    /// Serial number of the chassis.
    pub chassis_serial: String,
}

/// Firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Firmware {
    /// `bios` or `uefi`.
    pub kind: String,
    /// Who made it.
    pub vendor: String,
    /// Version.
    pub version: String,
    /// Date, as the firmware writes it.
    pub date: String,
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    /// Model of the first.
    pub model: String,
    /// Packages.
    pub sockets: usize,
    /// Cores of all packages.
    pub cores: usize,
    /// Threads of all cores.
    pub threads: usize,
    /// Whether they can run virtual machines.
    pub virtualization: bool,
}

/// A whole disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Kernel name in this boot.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// `nvme`, `sata`, `scsi`, `virtio`, `usb`, `mmc` or `other`.
    pub bus: String,
    /// Serial number.
    pub serial: String,
    /// Model.
    pub model: String,
    /// Whether it can be taken out.
    pub removable: bool,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nic {
    /// Name in this boot.
    pub name: String,
    /// Hardware address.
    pub mac_address: String,
    /// Driver.
    pub driver: String,
    /// Where it is attached, such as `0000:00:03.0`.
    pub place: String,
    /// Mbit/s, when a cable is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbps: Option<i64>,
    /// Whether a cable is in.
    pub carrier: bool,
}
