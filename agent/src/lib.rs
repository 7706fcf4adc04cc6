//! The box's one static binary.
//!
//! ```text
//! init        in the initrd: finds the medium, verifies it, makes DATA, switches root
//! host        the only door to the machine: programs, mounts, devices, modules, clock
//! events      what happens, step by step, and the status that follows
//! ```

pub mod cli;
pub mod events;
pub mod host;
pub mod init;
