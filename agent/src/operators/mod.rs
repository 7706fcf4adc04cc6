//! Controllers of the cluster's resources.
//!
//! ```text
//! baremetalhost  servers of the site, by metal3's `BareMetalHost`
//! admission      the webhook of metal3's group
//! ```

pub mod admission;
pub mod baremetalhost;
