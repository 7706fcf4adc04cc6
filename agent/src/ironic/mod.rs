//! Ironic's API, as much as the operators need of it: typed, thin, JSON over HTTP(S).
//!
//! ```text
//! client   one call a method: version negotiation, credentials, errors in Ironic's own words
//! node     what Ironic says about a node
//! firmware what it says about BIOS settings and firmware
//! ```
//!
//! By the "Bare Metal API" reference, microversions 1.89 to 1.95 (Ironic 29 is release 2025.1).

mod client;
mod firmware;
mod node;

/// How long Ironic waits for a sign of a ramdisk before it gives up: its own default for inspecting, deploying and
/// cleaning, which the box's Ironic is configured with.
pub const CALLBACK_SECS: i64 = 1800;

#[cfg(test)]
pub use client::drivers;
pub use client::{Client, IronicError, Settings, Version};
pub use firmware::{BiosSetting, FirmwareComponent};
pub use node::{Node, Patch, Port, ProvisionState};
