//! Descriptions of a site that other systems have, made into the objects that the box reads.
//!
//! ```text
//! icn   hosts of Akraino ICN (`nodes.json`, machine values) ─► BareMetalHosts and their Secrets
//! ```

pub mod icn;
