//! BIOS settings and firmware of hosts, in objects of the hosts' names.
//!
//! ```text
//! HostFirmwareSettings, HostFirmwareComponents, HostUpdatePolicy ─► watch ─► the host's turn
//!                                                                              │
//!   nothing ◄── due: is there anything new to hear from Ironic? ◄──────────────┘
//!                │
//!                ▼
//!   sync ── Ironic's answer ──► settings, components: judge ──► status, conditions, events; only what differs
//!                          └──► schema ──► FirmwareSchema          └──► Standing ──► decide: prepare, service
//! ```
//!
//! `due`, `schema`, `settings` and `components` are pure. The watch keeps of each object only what a decision needs: ten
//! thousand hosts have some hundred settings each.

mod components;
mod condition;
mod due;
mod look;
mod objects;
mod schema;
mod settings;
mod sync;
#[cfg(test)]
mod tests;
mod watch;

pub use components::Mark;
pub use sync::{Firmware, Wanted};
pub use watch::watch;
