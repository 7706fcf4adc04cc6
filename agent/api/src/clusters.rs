//! Resources of `bpa.akraino.org/v1alpha1`: application clusters of the site. Group, kinds and old fields are those of
//! Akraino ICN's operator, so that its users' files go on working.
//!
//! ```text
//! Provisioning   servers that become a cluster      user writes, controller reports
//! Software       packages that its nodes have       user writes, controller reports
//! ```

pub mod crds;
pub mod provisioning;
pub mod software;
