//! The controller of `BareMetalHost`s: what is to be done with a host is decided without any I/O, and done by Ironic.
//!
//! ```text
//! watch       which hosts are to have a turn, and when
//! controller  a turn with a host: look, decide, write the status, act, conclude
//! look        what is known of a host before that   health   what Ironic said last
//! decide      what is done (power: with its power)  outcome  a decision; status   what it changes
//! act         an action as calls of Ironic          wishes, inventory   what Ironic is told, what it found
//! conclude    what follows from an action's result  objects  the cluster's objects that belong to a host
//! tell        conditions and events                 metrics  what is counted
//! pulses      BMCs that are waited for, asked in their own right
//! slots       who may be worked on at a time
//! pull_secret, secret_text   what Secrets hold: the login of a registry, texts of a config drive
//! raid        RAID volumes: what is asked for, what was made, the next cleaning
//! firmware    BIOS settings and firmware: what is asked for, what there is, what is to be written
//! [`crate::signs`]  signs of life of a host, told in its condition `Progressing`
//! ```
//!
//! The decision is pure: no clock, no API server, no Ironic.
//!
//! ```text
//! host, Facts ──► decide ──► Transition ───────────────► apply ──► status, written before anything else happens
//!                   ▲        Wait { reason, until } ───► apply ──► status, seen by the user
//!       firmware ───┤        Act ──► (act) ──────► Report ──► conclude ──► Transition | Wait | Again
//!                   │        Deleted ──► finalizer is removed
//!                   └──────────────────────────────────────────────┘
//!
//! "" ─► registering ─► inspecting ─► preparing ─► available ─► provisioning ─► provisioned
//!  │         │  └────────────────────────▲  ▲        │ ▲            │               │
//!  ▼         ▼                              └────────┘ └──────── deprovisioning ◄───┘
//! unmanaged  externally provisioned                                 │ (deleted)
//!                                         powering off before delete ─► deleting ─► gone
//!
//! available ─► preparing      RAID volumes, BIOS settings or firmware are not as asked for: clean steps
//! provisioned ─► provisioned  `servicing` on its way from off to on, where `HostUpdatePolicy` says `onReboot`: service steps
//! ```
//!
//! The states and their order are those of metal3's baremetal-operator. What differs, because its users suffer from it:
//! a change of the host or of its credentials ends every wait, and none is longer than a quarter of an hour; a host that is
//! detached can be deleted whether or not Ironic answers, from any state and at once; provisioning that fails again and
//! again stops and says so, and what it needs and is not there (a Secret, a BMC that answers) is waited for.

mod act;
mod conclude;
mod controller;
mod decide;
mod firmware;
mod health;
#[cfg(test)]
mod invariants;
pub mod inventory;
mod look;
mod metrics;
#[cfg(test)]
mod moved_tests;
mod objects;
mod outcome;
mod power;
mod pull_secret;
mod pulses;
mod raid;
mod secret_text;
mod slots;
mod status;
mod tell;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unknown_tests;
#[cfg(test)]
mod waits_tests;
mod watch;
mod wishes;

pub use act::Executor;
pub use conclude::{Report, conclude};
pub use controller::Operator;
pub use decide::{BmcSecret, Facts, Ironic, Limits, SecretVersion, Slot, Standing, Wish, decide};
pub use firmware::watch as watch_firmware;
pub use outcome::{Action, Change, Outcome, Step, WaitReason};
pub use pulses::Pulses;
pub use slots::Slots;
pub use status::apply;
pub use watch::Queues;
pub use wishes::Registration;
