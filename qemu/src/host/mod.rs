//! The one door to the host: child processes, scratch folders, free ports.

mod ports;
mod process;
mod scratch;

pub(crate) use ports::free_loopback_ports;
pub(crate) use process::{Invocation, Process, RunError};
pub(crate) use scratch::Scratch;
