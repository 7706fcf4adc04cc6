//! What the box tells somebody who is far away: bundle, report, inventory, timeline.
//!
//! ```text
//! status, events, files, programs ─► bundle ─► redact ─► tar.gz ─┬─► REST
//! events ─► timeline       sysfs ─► inventory      ─► report ────┴─► site: the SITE partition of the box's medium
//! ```
//! No secret leaves the box: what goes in is named one by one, and every text passes `redact`, which
//! knows the values of all Secrets and keys, and what secrets look like. By itself the box writes no logs to a medium.

pub(crate) mod bundle;
pub mod inventory;
pub(crate) mod redact;
pub mod report;
pub mod site;
pub(crate) mod timeline;

pub use site::SiteOut;
