//! Servers of the site, by the kinds of metal3's baremetal-operator, with Ironic.
//!
//! ```text
//! command          its command line
//! run              starts all of it, in one process
//! baremetalhost    servers                        (`BareMetalHost`, `HostFirmwareSettings` and so on)
//! subscription     events of their BMCs           (`BMCEventSubscription`)
//! dataimage        ISO images in their drives     (`DataImage`)
//! hostclaim        who gets which                 (`HostClaim`, `HostDeployPolicy`)
//! preprovisioning  ramdisks made for them         (`PreprovisioningImage`)
//! switches         their ports, not set up        (`BareMetalSwitch`, `HostNetworkAttachment`)
//! admission        what the API server refuses    (webhook)
//! common           what all of them share: the hosts, Ironic
//! ```

mod admission;
pub mod baremetalhost;
pub mod command;
mod common;
mod dataimage;
mod hostclaim;
mod preprovisioning;
mod run;
mod subscription;
mod switches;

pub use baremetalhost::{Limits, Registration};
pub use common::{Pace, Ramdisk};
pub use run::{Settings, run};
