//! Application clusters of the site. Group, kinds and old fields of `bpa.akraino.org/v1alpha1` are those of Akraino ICN's
//! operator, so that its users' files go on working; `kpa.foothold.dev/v1alpha1` is ours.
//!
//! ```text
//! Provisioning   servers that become a cluster      user writes, controller reports
//! Software       packages that its nodes have       user writes, controller reports
//! Release        a chart or manifests on it         user writes, controller reports
//! ```

pub mod crds;
pub mod provisioning;
pub mod release;
pub mod software;
