//! `Software`: packages that the nodes of a cluster have, by role, from the box's repositories.
//!
//! ```text
//! the cluster is Ready ─► one node after the other: `foothold-agent node software` ─► what it has ─► status
//!                         (masters' and workers' packages)                            └ again every ten minutes: what lags
//!                                                                                       behind the box's repositories is upgraded
//! ```

mod controller;
mod tell;

pub use controller::run;
