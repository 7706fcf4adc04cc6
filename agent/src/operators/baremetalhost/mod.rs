//! What is to be done with a `BareMetalHost`. Pure: no clock, no API server, no Ironic.
//!
//! ```text
//! host, Facts ──► decide ──► Transition ───────────────► apply ──► status, written before anything else happens
//!                   ▲        Wait { reason, until } ───► apply ──► status, seen by the user
//!                   │        Act ──► (executor) ──► Report ──► conclude ──► Transition | Wait | Again
//!                   │        Deleted ──► finalizer is removed
//!                   └──────────────────────────────────────────────┘
//!
//! "" ─► registering ─► inspecting ─► preparing ─► available ─► provisioning ─► provisioned
//!  │         │  └────────────────────────▲  ▲        │ ▲            │               │
//!  ▼         ▼                              └────────┘ └──────── deprovisioning ◄───┘
//! unmanaged  externally provisioned                                 │ (deleted)
//!                                         powering off before delete ─► deleting ─► gone
//! ```
//!
//! The states and their order are those of metal3's baremetal-operator. What differs, because its users suffer from it:
//! a change of the host or of its credentials ends every wait; a host that is detached can be deleted whether or not
//! Ironic answers, from any state and at once; provisioning that fails again and again stops and says so.

pub mod backoff;
mod conclude;
mod decide;
#[cfg(test)]
mod invariants;
mod outcome;
mod power;
mod status;
#[cfg(test)]
mod tests;

pub use conclude::{Report, conclude};
pub use decide::{Credentials, Facts, Ironic, Limits, SecretVersion, Slot, decide};
pub use outcome::{Action, Change, Outcome, Step, WaitReason};
pub use status::apply;
