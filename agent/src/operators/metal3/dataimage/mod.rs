//! `DataImage`: an ISO image in the virtual drive of the provisioned host of the same name, by Ironic's `vmedia`.
//!
//! ```text
//! controller   turn and queues   look   host and drive   decide   pure: what is done
//! act          does it           conclude   Ironic said no   tell   the status
//! ```
//!
//! ```text
//! host on        nothing: what runs there may read the drive
//! host off       the image goes in, an older one out before it ─► status.attachedImage
//! to be powered on   waits until the drive is as asked for (`holds_power`)
//! deleted        out of the drive when the host is off, then gone; at once when the drive is empty
//! ```
//!
//! So an image that comes while the host runs is there after the next power cycle, as metal3's operator has it. A host
//! that is gone or detached lets its image go; what Ironic itself has in the drive of a host that is being worked on is
//! left alone.

mod act;
mod conclude;
mod controller;
mod decide;
mod look;
mod tell;

pub use controller::run;
pub use decide::holds_power;
