//! `SIPCluster`: hosts for a cluster of somebody's own, and what stands before them.
//!
//! ```text
//! controller  queues, and a turn in a few calls
//! look        the hosts, what their Secrets say
//! decide      who is kept, claimed, given back                     (pure)
//! infra       what stands before the hosts
//! act         writes that on the hosts; lets everything go
//! tell        status, conditions, events
//! ```

mod act;
mod controller;
mod decide;
mod infra;
mod look;
mod tell;

pub use controller::run;
pub use infra::{Images, requests};
