//! Tenant clusters, by the kind of Airship's SIP: a tenant gets hosts of the site, and load balancers and a jump host
//! before them.
//!
//! ```text
//! command  its command line
//! run      starts the operator, in one process
//! cluster  one cluster (`SIPCluster`): its hosts, its services
//! pod      what this program does in the pods of those services
//! ```

mod cluster;
pub mod command;
pub mod pod;
mod run;

pub use cluster::Images;
pub use run::{Settings, run};
