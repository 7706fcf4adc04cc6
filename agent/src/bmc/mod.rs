//! Baseboard management controllers, asked and not changed.
//!
//! ```text
//! manifests ─ BareMetalHosts, Secrets ─► address ─┬─► redfish (a session, GET) ─ trust, hello (TLS)
//!                                                 └─► ipmi (RMCP+, commands that read)
//!                                                        │ answers
//!                                                        ▼
//!                      console: a host's serial line, over SSH where Redfish says
//!                      rehearsal: all hosts at once ─► judge ─► matrix ─► table | JSON
//!                                                        └─► export: answers of vendors that are not known yet
//! ```

pub mod address;
mod answer;
pub mod command;
pub mod console;
pub mod hello;
pub mod ipmi;
pub mod manifests;
pub mod redfish;
pub mod rehearsal;
pub mod trust;
