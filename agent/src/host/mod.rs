//! The only door to the machine: programs, mounts, block devices, modules, the clock.

pub mod runner;

pub use runner::{Output, RunError, Runner, System};
