//! Charts and manifests on application clusters, after Akraino ICN's Kubernetes Provisioning Agent: `kpa.foothold.dev`.
//!
//! ```text
//! command  its command line
//! run      starts the operator, in one process
//! release  one release on one cluster (`Release`)
//! ```

pub mod command;
mod release;
mod run;

pub use run::{Settings, run};
