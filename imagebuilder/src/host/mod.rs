//! The only door from the builder to the machine it runs on: subprocesses, namespaces, locks, whole files.
//!
//! Everything here is killed with its parent: children carry a parent-death signal, and what runs in
//! the toolbox is the first process of a PID namespace of its own, so that a killed build leaves no
//! process and no mount.

pub mod block;
pub mod cancel;
pub mod command;
pub mod enter;
pub mod environment;
pub mod files;
pub mod flock;
pub mod needs;
pub mod userns;
