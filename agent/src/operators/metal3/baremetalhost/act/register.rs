//! Making a host known to Ironic, again and again: its database may be lost at any time.

use std::sync::Arc;

use agent_api::metal3::bmc_address::{BmcAddress, Credentials};
use agent_api::metal3::{BareMetalHost, BareMetalHostStatus, BootMode, Image, ProvisioningState};
use kube::ResourceExt as _;

use super::super::conclude::Report;
use super::super::outcome::Change;
use super::super::tell::{HostEvent, HostReason};
use super::super::wishes::{self, Registration};
use super::{Asked, Done, Executor, Job, LEAVING, Unfit, ports};
use crate::ironic::{IronicError, Node, ProvisionState};
use crate::operators::kit::Object as _;
use crate::operators::metal3::common::{self, ActError};
use crate::signs;

impl Executor {
    /// What Ironic shall know about a host.
    pub async fn registration(
        &self,
        host: &BareMetalHost,
        bmc: &(BmcAddress, Credentials),
    ) -> Result<Result<Registration, Unfit>, ActError> {
        let ramdisk = match self.ramdisk(host, bmc.0.driver).await? {
            Ok(ramdisk) => ramdisk,
            Err(unfit) => return Ok(Err(unfit)),
        };
        let (mut data, mut any) = (None, false);
        if let Some(name) = host.spec.preprovisioning_network_data_name.as_ref().filter(|name| !name.is_empty()) {
            let text = self.objects.secret_text(host, name, "networkData").await?;
            match text.and_then(|text| wishes::network_data(&text)) {
                Ok(found) => data = Some(found),
                // A Secret that goes together with its host goes first.
                Err(_) if host.leaves() => any = true,
                Err(why) => return Ok(Err(Unfit::Wrong(why))),
            }
        }
        let registration = Registration::of(host, &bmc.0, &bmc.1, ramdisk.as_ref(), data).with_any_network(any);
        let registration = registration.trusting(self.bmc_authorities.as_deref());
        Ok(Ok(registration.media_from(host, bmc.0.driver, self.external_http_url.as_deref())))
    }

    pub(super) async fn register(&self, job: &mut Job<'_>) -> Result<Done, ActError> {
        let Some(bmc) = job.bmc else { return Ok(Done::badly("the BMC's address and credentials are not known")) };
        if let Some(why) = impossible(job.host, &bmc.0) {
            return Ok(Done::badly(why));
        }
        // Before it is known: whatever is done with the one would be done to what the other runs.
        if job.node.is_none()
            && let Some(other) = owner(job.host, &bmc.0, &self.hosts.state())
        {
            let address = job.host.spec.bmc.as_ref().map_or("", |bmc| &bmc.address);
            return Ok(Done::badly(format!(
                "BMC address {address} conflicts with BareMetalHost {other}, which has it"
            )));
        }
        if job.node.is_none()
            && let Some(other) = ports::rival(job.host, &self.hosts.state())
        {
            let mac = job.host.spec.boot_mac_address.as_deref().unwrap_or_default();
            return Ok(Done::badly(ports::conflict(job.host, mac, &other, &self.hosts.state())));
        }
        let wanted = match self.registration(job.host, bmc).await? {
            Ok(wanted) => wanted,
            Err(Unfit::Wrong(why)) => return Ok(Done::badly(why)),
            // Its controller has the host looked at when it is made.
            Err(Unfit::Waits(why)) => return Ok(Done::of(Report::Waits(why))),
        };
        if let Some(why) = wanted.refused(self.ironic.version().await?) {
            return Ok(Done::badly(why));
        }
        let mut told = Vec::new();
        let mut node = match job.node {
            Some(node) => node.clone(),
            None => match self.enroll(job.host, &wanted).await? {
                Ok(node) => {
                    told.push(HostEvent::new(HostReason::Registered, "Registered new host"));
                    job.scratch.asked = None;
                    node
                }
                Err(why) => return Ok(Done::badly(why)),
            },
        };
        if let Some(why) = self.ensure_ports(job.host, &node).await? {
            return Ok(Done::badly(why).learn(Change::Id(node.uuid.clone())));
        }
        // While Ironic is at work with a node it takes no changes.
        if node.provision_state.is_busy() {
            // Nothing has tried them yet.
            if node.provision_state != ProvisionState::Verifying && is_told_anew(job) {
                return Ok(self.later().learn(Change::Id(node.uuid.clone())));
            }
        } else {
            let changes = wanted.changes(&node, job.scratch.asked != Some(Asked::Manage) && is_told_anew(job));
            if !changes.is_empty() {
                node = self.ironic.patch_node(&node.uuid, &changes).await?;
            }
            // Ironic gave up asking the BMC; or a detachment was taken back half-way.
            let ours = node.maintenance_reason.as_deref() == Some(LEAVING);
            if node.fault.as_deref() == Some(signs::node::LOST) || node.maintenance && ours {
                self.ironic.set_maintenance(&node.uuid, None).await?;
            }
        }
        let mut done = self.manage(job, &node).await?.learn(Change::Id(node.uuid.clone()));
        done.told.splice(0..0, told);
        Ok(done)
    }

    /// A node that is not known by UUID or name: found by its MAC address when it has no name, else made.
    async fn enroll(&self, host: &BareMetalHost, wanted: &Registration) -> Result<Result<Node, String>, ActError> {
        if let Some(mac) = &host.spec.boot_mac_address
            && let Some(port) = self.ironic.port_by_address(mac).await?
            && let Some(node) = self.ironic.node(&port.node_uuid).await?
        {
            return Ok(match &node.name {
                Some(name) => Err(ports::conflict(host, mac, &ports::host_of(name), &self.hosts.state())),
                None => Ok(node),
            });
        }
        match self.ironic.create_node(&wanted.whole()).await {
            Ok(node) => Ok(Ok(node)),
            // It was made a moment ago by a call whose answer was lost.
            Err(IronicError::Taken(why)) => Ok(self.ironic.node(&common::node_name(host)).await?.ok_or(why)),
            Err(error) => Err(error.into()),
        }
    }

    /// Has the BMC tried.
    async fn manage(&self, job: &mut Job<'_>, node: &Node) -> Result<Done, ActError> {
        match &node.provision_state {
            ProvisionState::Enroll => match node.error() {
                Some(error) if job.scratch.answered(Asked::Manage) => Ok(Done::badly(error)),
                _ if node.target_provision_state.is_some() => Ok(self.soon()),
                _ => self.ask(job, node, "manage", Some(Asked::Manage)).await,
            },
            ProvisionState::Verifying => Ok(self.soon()),
            ProvisionState::Manageable
            | ProvisionState::Available
            | ProvisionState::Deploying
            | ProvisionState::DeployWait
            | ProvisionState::DeployFail
            | ProvisionState::Active
            | ProvisionState::Deleting
            | ProvisionState::Error
            | ProvisionState::Cleaning
            | ProvisionState::CleanWait
            | ProvisionState::CleanFail
            | ProvisionState::Inspecting
            | ProvisionState::InspectWait
            | ProvisionState::InspectFail
            | ProvisionState::Adopting
            | ProvisionState::AdoptFail
            | ProvisionState::Servicing
            | ProvisionState::ServiceWait
            | ProvisionState::ServiceFail
            | ProvisionState::Other(_) => {
                job.scratch.answered(Asked::Manage);
                Ok(Done::well().tell(HostEvent::new(HostReason::BmcAccessValidated, "Verified access to BMC")))
            }
        }
    }

    /// Tells Ironic that a host runs what it runs: nothing is booted, no power changes.
    pub(super) async fn adopt(&self, job: &mut Job<'_>) -> Result<Done, ActError> {
        let Some(node) = job.node else { return Ok(Done::unknown()) };
        match &node.provision_state {
            ProvisionState::Manageable | ProvisionState::AdoptFail => {
                if node.provision_state == ProvisionState::AdoptFail && job.scratch.answered(Asked::Adopt) {
                    return Ok(Done::badly(format!(
                        "Host adoption failed: {}",
                        node.error().unwrap_or("no reason given")
                    )));
                }
                let image = installed(job.host);
                let changes = wishes::instance(job.host, node, image, None);
                self.ironic.patch_node(&node.uuid, &changes).await?;
                self.ask(job, node, "adopt", Some(Asked::Adopt)).await
            }
            ProvisionState::Enroll => Ok(Done::unknown()),
            ProvisionState::Active => Ok(Done::well()),
            // It was free for use, and somebody else installs it from now on.
            ProvisionState::Available | ProvisionState::InspectFail
                if job.host.state() == ProvisioningState::ExternallyProvisioned =>
            {
                self.ask(job, node, "manage", None).await
            }
            // A node that is not a lost one: what it is doing ends first. A deployed image is not adopted over.
            busy if busy.is_busy() => Ok(self.soon()),
            other => Ok(Done::badly(format!(
                "Ironic has the host in `{other}`, where it cannot be adopted; hint: detach and attach it again"
            ))),
        }
    }
}

/// Another host that has the same BMC, and had it first.
fn owner(host: &BareMetalHost, bmc: &BmcAddress, all: &[Arc<BareMetalHost>]) -> Option<String> {
    let age = |one: &BareMetalHost| (one.creation_timestamp().map(|time| time.0), one.key());
    let has_it = |one: &&Arc<BareMetalHost>| {
        let address = one.spec.bmc.as_ref().and_then(|bmc| bmc.address.parse::<BmcAddress>().ok());
        age(one) < age(host) && address.is_some_and(|address| address.is_same(bmc))
    };
    all.iter().find(has_it).map(|one| one.key()).map(|(namespace, name)| format!("{namespace}/{name}"))
}

/// Whether Ironic has other credentials than the Secret.
fn is_told_anew(job: &Job<'_>) -> bool {
    job.node.is_some() && job.host.status.as_ref().is_none_or(has_new_credentials)
}

/// Whether the credentials that are tried are others than those that worked last, if any did.
pub fn has_new_credentials(status: &BareMetalHostStatus) -> bool {
    status.tried_credentials != status.good_credentials
}

/// Why a host cannot be had with its driver.
fn impossible(host: &BareMetalHost, bmc: &BmcAddress) -> Option<String> {
    let secure = host.spec.boot_mode == Some(BootMode::UefiSecureBoot) && !bmc.driver.supports_secure_boot();
    let mac = bmc.driver.needs_mac() && host.spec.boot_mac_address.as_deref().unwrap_or_default().is_empty();
    if secure {
        Some(format!("BMC driver {} does not support secure boot", bmc.scheme))
    } else {
        mac.then(|| format!("BMC driver {} requires a BootMACAddress value", bmc.scheme))
    }
}

/// The image that a host has.
fn installed(host: &BareMetalHost) -> Option<&Image> {
    let had = host.status.as_ref().and_then(|status| status.provisioning.image.as_ref());
    let wanted = host.spec.image.as_ref().filter(|_| host.state() == ProvisioningState::ExternallyProvisioned);
    had.or(wanted)
}
