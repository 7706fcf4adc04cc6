//! Firmware in a host's turn.

use agent_api::metal3::BareMetalHost;
use agent_api::metal3::annotations::{DETACHED, PAUSED};
use agent_api::metal3::bmc_address::{BmcAddress, Credentials};
use jiff::Timestamp;

use super::super::controller::{Operator, chance};
use super::super::decide::Standing;
use crate::ironic::{Node, ProvisionState};
use crate::operators::kit::ObjectError;

impl Operator {
    /// Updates the host's firmware objects where its driver can read firmware. The result is what a decision needs.
    pub(in super::super) async fn look_at_firmware(
        &self,
        host: &BareMetalHost,
        node: Option<&Node>,
        bmc: Option<&(BmcAddress, Credentials)>,
        now: Timestamp,
    ) -> Result<Standing, ObjectError> {
        let can = bmc.is_some_and(|(bmc, _)| bmc.driver.firmware_interface().is_some());
        let Some(node) = node.filter(|_| can && is_kept(host)) else { return Ok(Standing::default()) };
        let executor = &self.executor;
        let look = executor.firmware.look(&executor.ironic, host, node, (now, chance(host))).await?;
        if look.asked {
            self.metrics.read_firmware();
        }
        for (about, told) in &look.told {
            self.tell_of(about, told).await;
        }
        let servicing = matches!(
            node.provision_state,
            ProvisionState::Servicing | ProvisionState::ServiceWait | ProvisionState::ServiceFail
        );
        Ok(Standing { servicing, ..look.standing })
    }
}

/// Whether a host's objects are kept: nobody asks for anything of one that is leaving.
fn is_kept(host: &BareMetalHost) -> bool {
    host.metadata.deletion_timestamp.is_none()
        && host.annotation(DETACHED).is_none()
        && host.annotation(PAUSED).is_none()
}
