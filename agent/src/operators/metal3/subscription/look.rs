//! What is known of a subscription's host.

use agent_api::metal3::annotations::{DETACHED, PAUSED};
use agent_api::metal3::bmc_address::BmcAddress;
use agent_api::metal3::{BareMetalHost, BmcEventSubscription};

use super::controller::Controller;
use crate::ironic::{IronicError, Node, ProvisionState};
use crate::operators::kit::{Object as _, ObjectError};
use crate::operators::metal3::common;

/// What is known of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// There is none.
    Gone,
    /// Nothing is to be done with it.
    Paused,
    /// Ironic was told to forget it.
    Detached,
    /// Its BMC cannot do it; why.
    Unable(String),
    /// Ironic does not know it yet.
    Unregistered,
    /// Ironic knows it by this UUID.
    Node(String),
}

/// What is known of a host without asking Ironic; nothing when Ironic has to be asked.
pub fn known(host: Option<&BareMetalHost>) -> Option<Host> {
    let Some(host) = host else { return Some(Host::Gone) };
    if host.annotation(PAUSED).is_some() {
        return Some(Host::Paused);
    }
    if host.annotation(DETACHED).is_some() {
        return Some(Host::Detached);
    }
    let name = host.metadata.name.as_deref().unwrap_or_default();
    let Some(bmc) = host.spec.bmc.as_ref().filter(|bmc| !bmc.address.is_empty()) else {
        return Some(Host::Unable(format!("the host `{name}` has no BMC")));
    };
    match bmc.address.parse::<BmcAddress>() {
        Err(error) => Some(Host::Unable(format!("the BMC of the host `{name}`: {error}"))),
        Ok(address) if address.driver.is_ipmi() => Some(Host::Unable(format!(
            "the BMC of the host `{name}` is reached by `{}`, which has no subscriptions; hint: they need Redfish",
            address.scheme
        ))),
        Ok(_) => None,
    }
}

/// What Ironic's answer says of a host.
pub fn registered(node: Option<&Node>) -> Host {
    match node {
        Some(node) if !matches!(node.provision_state, ProvisionState::Enroll | ProvisionState::Verifying) => {
            Host::Node(node.uuid.clone())
        }
        Some(_) | None => Host::Unregistered,
    }
}

impl Controller {
    /// What is known of the host, or what Ironic said instead.
    pub(super) async fn look(
        &self,
        subscription: &BmcEventSubscription,
    ) -> Result<Result<Host, IronicError>, ObjectError> {
        let name = subscription.spec.host_name.as_deref().unwrap_or_default();
        let host = match name {
            "" => None,
            name => self.common.host(&subscription.key().0, name).await?,
        };
        if let Some(known) = known(host.as_ref()) {
            return Ok(Ok(known));
        }
        let Some(host) = host else { return Ok(Ok(Host::Gone)) };
        Ok(common::node(&self.common.ironic, &host).await.map(|node| registered(node.as_ref())))
    }
}
