//! Controllers of the cluster's resources.
//!
//! ```text
//! baremetalhost    servers of the site, by metal3's `BareMetalHost`; it runs the others, which need its hosts
//!   subscription     events of their BMCs        (`BMCEventSubscription`)
//!   dataimage        ISO images in their drives  (`DataImage`)
//!   hostclaim        who gets which              (`HostClaim`, `HostDeployPolicy`)
//!   preprovisioning  ramdisks made for them      (`PreprovisioningImage`)
//!   switches         their ports, not set up     (`BareMetalSwitch`, `HostNetworkAttachment`)
//! turns            what the indented ones share: queue, turn, writes
//! admission        the webhook of metal3's group
//! ```

pub mod admission;
pub mod baremetalhost;
mod dataimage;
mod hostclaim;
mod preprovisioning;
mod subscription;
mod switches;
mod turns;
