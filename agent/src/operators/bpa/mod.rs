//! Application clusters of the site, by the kinds of Akraino ICN's Binary Provisioning Agent.
//!
//! ```text
//! command       its command line
//! run           starts the operator, in one process
//! common        what its controllers share: the hosts, the box and what it has for nodes
//! login         how to log in to servers      servers   the agent on them
//! nodes         nodes by a master's kubectl
//! provisioning  clusters            (`Provisioning`)
//! software      packages of nodes   (`Software`)
//! ```

pub mod command;
mod common;
mod login;
mod nodes;
mod provisioning;
mod run;
mod servers;
mod software;

pub use common::{Parts, Place};
pub use run::{Settings, run};
