//! What the initrd found and made, handed to the agent as `/run/foothold/boot.json`.

use serde::{Deserialize, Serialize};

/// Where the initrd leaves its facts.
pub const BOOT_FACTS: &str = "/run/foothold/boot.json";
/// Events of this boot, one JSON line each.
pub const EVENTS: &str = "/run/foothold/events.jsonl";
/// The verified release manifest of this boot.
pub const RELEASE: &str = "/run/foothold/release.json";
/// Where the medium's file system is mounted.
pub const MEDIUM: &str = "/run/foothold/medium";
/// Where each layer is mounted, by name.
pub const LAYERS: &str = "/run/foothold/layers";
/// Damage of the medium, one [`MediumFailure`] a line.
pub const MEDIUM_FAILURES: &str = "/run/foothold/medium-failures.jsonl";

/// How the box was asked to start (`foothold.mode=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Bring everything up.
    #[default]
    Run,
    /// Only console and REST: for looking at a box that does not come up.
    Safe,
    /// Verify every blob of the medium, say so and stop.
    Check,
}

/// Where DATA is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "on")]
pub enum DataFound {
    /// A partition.
    Partition {
        /// Kernel name, such as `vda4`.
        device: String,
        /// Whether this boot made it.
        created: bool,
    },
    /// Memory, and why nothing else was possible.
    Ram {
        /// Why.
        reason: String,
    },
}

/// `/run/foothold/boot.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootFacts {
    /// Release id, 64 hex digits.
    pub release: String,
    /// How the box was asked to start.
    pub mode: Mode,
    /// Kernel name of the device that holds the store, such as `vda3` or `sr0`.
    pub medium: String,
    /// Where DATA is.
    pub data: DataFound,
    /// Machine id, 32 hex digits.
    pub machine_id: String,
    /// Whether this is the first boot on this DATA.
    pub first_boot: bool,
    /// Whether the clock had to be set to the build time.
    pub clock_was_before_build: bool,
}

/// One damaged place of the medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MediumFailure {
    /// Layer, or blob.
    pub what: String,
    /// Device.
    pub device: String,
    /// Block number, of 4096 bytes.
    pub block: u64,
    /// One line for the screen: what is damaged and what to do.
    pub message: String,
}
