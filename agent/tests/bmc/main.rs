//! The rehearsal, against emulated BMCs of `foothold-qemu` over HTTPS on loopback, and against OpenIPMI's simulator.

mod command;
mod faults;
mod ipmi_sim;
mod pulse;
mod site;
mod vendors;
