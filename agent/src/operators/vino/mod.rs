//! Virtual machines as hosts, by the kinds of Airship's `ViNO`.
//!
//! ```text
//! command     its command line
//! run         starts the operator, in one process
//! controller  queues, and a turn in a few calls
//! look        reads nodes with their pods, hosts, ConfigMaps and Secrets of users
//! decide      errors of the spec; which machines a node keeps, gets and loses     (pure)
//! ipam        which addresses are free, who gets which                            (pure)
//! pools       pools of addresses in the cluster, changed by compare-and-swap
//! values      what each node shall have                                           (pure)
//! template    network data of hosts                                               (pure)
//! objects     all other objects                                                   (pure)
//! act         writes them; creates hosts once their machines are there
//! leave       deletes everything: hosts, machines, pods, addresses
//! conclude    one step of a turn after the other
//! tell        status, conditions, events
//! ```

mod act;
pub mod command;
mod conclude;
mod controller;
mod decide;
pub mod ipam;
mod leave;
mod look;
mod objects;
pub mod pools;
mod run;
mod tell;
mod template;
mod values;

pub use objects::Ground;
pub use run::{Settings, run};
