//! The only door to the machine: programs, mounts, block devices, modules, the clock.

mod addresses;
pub mod block;
pub mod clock;
pub mod confined;
pub mod dm;
pub mod files;
mod ioctl;
pub mod keyboard;
pub mod label;
pub mod loopdev;
pub mod module;
pub mod mount;
pub mod packet;
pub mod priority;
pub mod process;
pub mod runner;
pub mod supervise;
pub mod terminal;
pub mod uevent;

pub use addresses::{InterfaceAddress, addresses};
pub use runner::{Output, RunError, Runner, System};
