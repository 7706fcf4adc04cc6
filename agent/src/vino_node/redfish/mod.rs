//! Redfish for a node's domains, served over HTTP by the project's own emulator of BMCs. Each domain is a system of the
//! same name.
//!
//! ```text
//! boot   a domain's document for a start (pure)
//! console  a domain's serial line, by libvirt
//! power  a domain as a machine that Redfish switches
//! serve  which domains there are, who may log in, HTTP
//! ```

pub mod boot;
pub mod console;
pub mod power;
pub mod serve;
