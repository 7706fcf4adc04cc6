//! Tenant clusters, by the kind of Airship's SIP: hosts of the site for a cluster of somebody's own, and what stands before
//! them.
//!
//! ```text
//! command  its command line
//! run      starts all of it, in one process
//! cluster  one cluster (`SIPCluster`): its hosts, its services
//! pod      what this program does in the pods of those services
//! ```

mod cluster;
pub mod command;
mod pod;
mod run;

pub use cluster::Images;
pub use run::{Settings, run};
