//! `Software`: packages that the nodes of a cluster have, by role, from the box's repositories.
//!
//! ```text
//! the cluster is Ready ─► all nodes are looked at: `foothold-agent node software` ─► what a node lacks is installed at once
//!                                                                                  └► what has another version: `policy`
//! policy   now, in a window, by hand; how many at a time ─► update   drain, install, restart, back ─► status
//!                                                                    └ again every ten minutes: the box may have newer ones
//! ```

mod controller;
mod policy;
mod tell;
mod update;

pub use controller::run;
