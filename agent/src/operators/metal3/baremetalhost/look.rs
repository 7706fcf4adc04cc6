//! What is known of a host before it is decided on: its credentials, and what Ironic says of it.

use std::time::{Duration, Instant};

use agent_api::metal3::annotations::{self, DeleteAction, PAUSED};
use agent_api::metal3::bmc_address::{BmcAddress, Credentials};
use agent_api::metal3::{BareMetalHost, ProvisioningState};
use jiff::Timestamp;

use super::act::macs;
use super::controller::{Known, Memory, Operator, chance};
use super::decide::{BmcSecret, Facts, Ironic, Slot, lacks_hardware};
use super::{pulses, raid, tell};
use crate::ironic::{IronicError, Node, ProvisionState};
use crate::operators::kit::{Object as _, ObjectError};
use crate::operators::metal3::common::{self, ActError};

/// How long ports of a node are taken to be as they were.
const PORTS: Duration = Duration::from_secs(300);
/// How long Ironic's readiness is taken to be as it was.
const READY: Duration = Duration::from_secs(15);

/// How long Ironic's silence is taken to last: hosts that need none of it do not wait behind those that do.
const SILENT: Duration = Duration::from_secs(5);

/// What Ironic says of a host.
struct Seen {
    ironic: Ironic,
    node: Option<Node>,
    registered: bool,
}

impl Operator {
    /// What is known besides the host.
    pub(super) async fn look(&self, host: &BareMetalHost, memory: &mut Memory) -> Result<Known, ObjectError> {
        let paused = host.annotation(PAUSED).is_some();
        let let_go = annotations::detached(host).is_some_and(|asked| asked.delete_action == DeleteAction::Delete);
        let leaving =
            host.metadata.deletion_timestamp.is_some() && let_go && host.state() != ProvisioningState::Deleting;
        let (credentials, bmc) = if paused || !host.spec.has_bmc() {
            (BmcSecret::Missing("not asked for".to_owned()), None)
        } else {
            self.executor.objects.credentials(host).await?
        };
        let status = host.status.as_ref();
        let known_to_ironic = status.is_some_and(|status| !status.provisioning.id.is_empty());
        let seen = if paused || leaving || !host.spec.has_bmc() && !known_to_ironic {
            Seen { ironic: Ironic::Ready, node: None, registered: true }
        } else {
            self.see(host, bmc.as_ref(), memory).await?
        };
        self.feel(host, seen.node.as_ref(), bmc.as_ref()).await?;
        let now = Timestamp::now();
        let firmware = self.look_at_firmware(host, seen.node.as_ref(), bmc.as_ref(), now).await?;
        let hardware = if !paused && lacks_hardware(host) { self.executor.objects.hardware(host).await? } else { None };
        let facts = Facts {
            now,
            chance: chance(host),
            credentials,
            ironic: seen.ironic,
            registered: seen.registered,
            busy: seen.node.as_ref().is_some_and(|node| node.provision_state.is_busy()),
            adopted: seen.node.as_ref().is_some_and(|node| is_adopted(&node.provision_state)),
            slot: Slot::Held,
            unprepared: raid::is_due(
                host.spec.raid.as_ref(),
                status.and_then(|status| status.provisioning.raid.as_ref()),
            ),
            firmware,
            hardware,
            powered_on: seen.node.as_ref().and_then(Node::powered_on),
            failed_generation: tell::failed_generation(host),
            limits: self.limits,
        };
        Ok(Known { facts, node: seen.node, bmc })
    }

    /// Has the host's BMC asked, while something waits for it.
    async fn feel(
        &self,
        host: &BareMetalHost,
        node: Option<&Node>,
        bmc: Option<&(BmcAddress, Credentials)>,
    ) -> Result<(), ObjectError> {
        let key = host.key();
        let Some((_, credentials)) = bmc.filter(|_| node.is_some_and(pulses::is_waited_for)) else {
            // Who is silent may be at work all the same.
            if node.is_some() || bmc.is_none() {
                self.pulses.rest(&key);
            }
            return Ok(());
        };
        if self.pulses.is_due(&key, Instant::now()) {
            let authority = self.executor.objects.bmc_authority(host).await;
            match authority.map(|authority| pulses::target(host, credentials, authority.as_deref())) {
                Ok(Some(target)) => self.pulses.wish(&key, target),
                Ok(None) => self.pulses.rest(&key),
                Err(error) => {
                    self.pulses.forget(&key);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn see(
        &self,
        host: &BareMetalHost,
        bmc: Option<&(BmcAddress, Credentials)>,
        memory: &mut Memory,
    ) -> Result<Seen, ObjectError> {
        if let Some(ironic) = self.health.still_silent(SILENT) {
            return Ok(Seen { ironic, node: None, registered: true });
        }
        match self.node(host).await {
            Err(error) => Ok(Seen { ironic: self.health.is_silent(&error), node: None, registered: true }),
            Ok(node) => {
                self.health.answers();
                let registered = match (&node, bmc) {
                    (Some(node), Some(bmc)) => self.is_registered(host, node, bmc, memory).await?,
                    // Without credentials nothing can be told to Ironic.
                    (Some(_), None) => true,
                    (None, _) => false,
                };
                Ok(Seen { ironic: Ironic::Ready, node, registered })
            }
        }
    }

    /// The host's node, once Ironic has said that it is ready.
    async fn node(&self, host: &BareMetalHost) -> Result<Option<Node>, IronicError> {
        if !self.health.was_ready_within(READY) {
            self.executor.ironic.ready().await?;
            self.health.is_ready();
        }
        common::node(&self.executor.ironic, host).await
    }

    /// Whether Ironic knows the host as it is: node, settings, ports. What Ironic is at work with is not looked into.
    async fn is_registered(
        &self,
        host: &BareMetalHost,
        node: &Node,
        bmc: &(BmcAddress, Credentials),
        memory: &mut Memory,
    ) -> Result<bool, ObjectError> {
        let same = host.status.as_ref().is_some_and(|status| status.provisioning.id == node.uuid);
        if !same || matches!(node.provision_state, ProvisionState::Enroll | ProvisionState::Verifying) {
            return Ok(false);
        }
        if node.provision_state.is_busy() {
            return Ok(true);
        }
        let wanted = match self.executor.registration(host, bmc).await {
            Ok(Ok(wanted)) => wanted,
            Ok(Err(_)) => return Ok(false),
            Err(ActError::Object(error)) => return Err(error),
            Err(ActError::Ironic(_)) => return Ok(true),
        };
        if !wanted.changes(node, false).is_empty() {
            return Ok(false);
        }
        // Inspection may have found others since then.
        let known = (node.uuid.clone(), macs(host, &[]));
        let fresh = memory.ports.as_ref().is_some_and(|(of, since)| *of == known && since.elapsed() < PORTS);
        if fresh {
            return Ok(true);
        }
        let Ok(ports) = self.executor.ironic.ports_of(&node.uuid).await else { return Ok(true) };
        let Ok(all) = self.executor.has_ports(host, &ports).await else { return Ok(true) };
        memory.ports = all.then(|| (known, Instant::now()));
        Ok(all)
    }
}

/// Whether Ironic knows that a node runs something.
const fn is_adopted(state: &ProvisionState) -> bool {
    match state {
        ProvisionState::Active
        | ProvisionState::Deploying
        | ProvisionState::DeployWait
        | ProvisionState::DeployFail
        | ProvisionState::Deleting
        | ProvisionState::Error
        | ProvisionState::Servicing
        | ProvisionState::ServiceWait
        | ProvisionState::ServiceFail => true,
        ProvisionState::Enroll
        | ProvisionState::Verifying
        | ProvisionState::Manageable
        | ProvisionState::Available
        | ProvisionState::Cleaning
        | ProvisionState::CleanWait
        | ProvisionState::CleanFail
        | ProvisionState::Inspecting
        | ProvisionState::InspectWait
        | ProvisionState::InspectFail
        | ProvisionState::Adopting
        | ProvisionState::AdoptFail
        | ProvisionState::Other(_) => false,
    }
}
