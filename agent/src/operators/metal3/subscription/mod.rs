//! `BMCEventSubscription`: events that a host's BMC sends to somebody, by Ironic's vendor passthru (Redfish only).
//!
//! ```text
//! finalizer ─► create_subscription ─► status.subscriptionID ─► (deleted) delete_subscription ─► gone
//!                     │ fails: status.error, tried again, ever less often
//! ```
//!
//! A host that is gone, that Ironic was told to forget, or that has no Redfish lets it go without further ado.

mod act;
mod conclude;
mod controller;
mod decide;
mod look;
mod tell;

pub use controller::run;
