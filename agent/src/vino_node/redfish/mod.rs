//! Redfish of a node's domains, by the project's own emulator of BMCs: each a system of its name, over HTTP.
//!
//! ```text
//! boot   a domain's document for a start (pure)
//! power  a domain as a machine that Redfish switches
//! serve  which domains there are, who may log in, HTTP
//! ```

pub mod boot;
pub mod power;
pub mod serve;
