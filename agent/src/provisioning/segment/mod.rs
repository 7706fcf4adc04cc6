//! DHCP, TFTP and iPXE on the provisioning segment, and the guard that keeps them from disturbing other DHCP servers.
//!
//! ```text
//! settings, BareMetalHosts ─► known machines ─────────────┐
//! interface ─packets─► guard: who may be answered now ────┼─► dnsmasq's configuration and hosts ─► dnsmasq (child)
//!    │ ▲                 └─► probes (DHCPDISCOVER)        └─► state.json: who is answered, who else answers
//!    │ └──────────────────────┘
//!    └─► signs: the last question and answer of each known machine ─► signs.json
//! ```
//! dnsmasq does all of DHCP and TFTP. It answers who stands in its hosts file; the guard writes that file, and starts
//! dnsmasq only after the first look for other servers. Leases lie in the state folder and outlive both.

pub mod command;
pub mod dnsmasq;
pub mod guard;
pub mod known;
pub mod leases;
pub mod packet;
mod place;
mod run;
pub mod settings;
pub mod signs;
pub mod state;
mod supervised;

pub use run::{Segment, leases as leases_in, serve};
