//! Tenant clusters: hosts and services for a cluster of somebody's own. Group, kind, fields, labels, names and reasons of
//! `airship.airshipit.org/v1` are those of Airship's SIP, so that its users' files go on working.
//!
//! ```text
//! SIPCluster   hosts of the site, and load balancers, jump host and login for them  user writes, controller reports
//! ```

pub mod auth;
pub mod cluster;
pub mod crds;
pub mod selector;
