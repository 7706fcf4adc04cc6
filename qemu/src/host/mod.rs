//! The one door to the host: child processes, scratch folders, free ports.

mod ports;
mod process;
mod scratch;

pub(crate) use ports::free_loopback_ports;
#[cfg(test)]
pub(crate) use process::enter_network_of_process;
pub use process::in_network_of_process;
pub(crate) use process::{Invocation, Process, RunError};
pub(crate) use scratch::Scratch;
