//! What is known of an image, its host and the host's drive.

use agent_api::metal3::bmc_address::BmcAddress;
use agent_api::metal3::{BareMetalHost, DataImage, ProvisioningState};

use super::controller::{BUSY, Controller};
use crate::operators::kit::{Next, Object as _, ObjectError};
use crate::operators::metal3::common;

/// What Ironic says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Whether anything is in it.
    pub full: bool,
    /// Whether the host is powered off.
    pub off: bool,
    /// Whether the host runs an image, so that the drive is nobody else's.
    pub installed: bool,
}

/// The image that the status says is in the drive.
pub(super) fn attached(image: &DataImage) -> Option<&str> {
    let attached = image.status.as_ref()?.attached_image.as_ref()?;
    Some(attached.url.as_str()).filter(|url| !url.is_empty())
}

/// The image that shall be in the drive.
pub(super) fn wanted(image: &DataImage) -> Option<&str> {
    Some(image.spec.url.as_str()).filter(|url| !url.is_empty() && !image.leaves())
}

/// Whether a host runs an image, so that Ironic needs its drive for nothing.
pub(super) fn installed(host: &BareMetalHost) -> bool {
    matches!(host.state(), ProvisioningState::Provisioned | ProvisioningState::ExternallyProvisioned)
}

/// Whether the BMC has a virtual drive at all.
pub(super) fn has_drive(host: &BareMetalHost) -> bool {
    let address = host.spec.bmc.as_ref().and_then(|bmc| bmc.address.parse::<BmcAddress>().ok());
    address.is_some_and(|address| !address.driver.is_ipmi())
}

impl Controller {
    /// What Ironic says, and what is done by it.
    pub(super) async fn look(&self, image: &DataImage, host: &BareMetalHost) -> Result<Next, ObjectError> {
        // A host is looked at every few seconds, and each change of it leads here.
        if let Some(left) = self.failures.left(image) {
            return Ok(Next::requeue(left));
        }
        let node = match common::node(&self.common.ironic, host).await {
            Ok(node) => node,
            Err(error) => return self.failed(image, &error).await,
        };
        let Some(node) = node else {
            // A host that Ironic will know again may still have the image in its drive.
            if image.leaves() && host.leaves() {
                self.let_go(image).await?;
            }
            return Ok(Next::await_change());
        };
        if node.reservation.is_some() {
            return Ok(Next::requeue(self.common.pace.short));
        }
        if node.provision_state.is_busy() {
            return Ok(Next::requeue(BUSY));
        }
        let full = match self.common.ironic.media_inserted(&node.uuid).await {
            Ok(full) => full,
            Err(error) => return self.failed(image, &error).await,
        };
        let drive = Drive { full, off: node.powered_on() == Some(false), installed: installed(host) };
        self.act(image, &node, drive).await
    }
}
