//! `SIPCluster`: hosts for the cluster of a tenant, and the load balancers and jump host before them.
//!
//! ```text
//! controller  queues, and a turn in a few calls
//! look        reads the hosts and their Secrets
//! decide      which hosts are kept, claimed, given back            (pure)
//! infra       load balancers, jump host and login
//! consoles    serial lines of hosts, for users of the jump host
//! act         writes the decision on the hosts; deletes a cluster
//! tell        status, conditions, events
//! ```

mod act;
mod consoles;
mod controller;
mod decide;
mod infra;
mod look;
mod tell;

pub use controller::run;
pub use infra::{Images, requests};
