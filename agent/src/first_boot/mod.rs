//! From the switched root to `ready`: first boot, reboot and repair are the same code.
//!
//! ```text
//! observe --> decide (pure) --> act --> record in the ledger
//!
//! site, name ─┬─ network, firewall ──────────────┐
//!             ├─ keys, kubeconfigs, manifests ─┬─┴─ kubelet ─ API ─┬─ controllers
//!             ├─ containerd's state ─ start ───┘                   ├─ objects, labels
//!             └─ clock, content                                    └─ readiness, really asked ─ registry's pod, Ironic, DHCP
//! ```
//!
//! [`phase`] lists the steps, [`crate::steps`] runs one of them (events, retries, ledger), [`mod@run`] holds
//! the order. Each phase is a module: what it observes, what it decides, what it does. The pods of the
//! box are [`crate::services`]: first boot only says when.

pub mod addons;
pub mod content;
pub mod control_plane;
pub mod decide;
pub mod etcd;
pub mod firewall;
pub mod host_services;
pub mod identity;
pub mod leases;
pub mod network;
mod networkd;
pub mod phase;
pub mod ready;
pub mod run;
pub mod runtime;
pub mod site;
pub mod site_objects;
pub mod time;
pub mod watch;

pub use crate::machine::Machine;
pub use run::{Published, run, run_safe};
