//! Virtual machines as hosts, by the kinds of Airship's `ViNO`.
//!
//! ```text
//! command     its command line
//! run         starts all of it, in one process
//! controller  queues, and a turn in a few calls
//! look        nodes with their pods, hosts, what users have in ConfigMaps and Secrets
//! decide      what is wrong; which machines a node keeps, gets and loses          (pure)
//! ipam        which addresses are free, who gets which                            (pure)
//! pools       pools of addresses in the cluster, changed by compare-and-swap
//! values      what a node is to have                                              (pure)
//! template    network data of hosts                                               (pure)
//! objects     all other objects                                                   (pure)
//! act         writes them; hosts are made when their machines are there
//! leave       lets everything go: hosts, machines, pods, addresses
//! conclude    what follows from what came of it
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
