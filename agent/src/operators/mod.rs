//! Controllers of the cluster's resources.
//!
//! ```text
//! baremetalhost  servers of the site, by metal3's `BareMetalHost`
//! ```

pub mod baremetalhost;
