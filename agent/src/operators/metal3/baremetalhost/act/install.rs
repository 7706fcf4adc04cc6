//! Inspecting, preparing, provisioning and deprovisioning.

use agent_api::metal3::{BareMetalHost, FirmwareUpdate, InspectionMode, RaidConfig};
use serde_json::{Value, json};

use super::super::conclude::Report;
use super::super::inventory;
use super::super::outcome::Change;
use super::super::pull_secret;
use super::super::raid::{self, Stage};
use super::super::tell::{HostEvent, HostReason};
use super::super::wishes;
use super::{Asked, Done, Executor, Job};
use crate::ironic::{IronicError, Node, Patch, ProvisionState};
use crate::operators::metal3::common::ActError;

/// When Ironic does not say why.
pub(super) const NO_REASON: &str = "Ironic gives no reason";

/// A node in a state in which this cannot be done and which it does not leave by itself.
pub(super) fn stuck(node: &Node, what: &str) -> Done {
    let error = node.error().map(|error| format!(": {error}")).unwrap_or_default();
    Done::badly(format!("Ironic has the host in `{}`, where it cannot be {what}{error}", node.provision_state))
}

/// What cleaning is to do.
enum Cleaning {
    /// Ironic reads BIOS settings that it does not know; what is to be done is known then.
    Reading,
    /// This, and the firmware that is written.
    Work { firmware: Vec<Value>, updates: Vec<FirmwareUpdate>, raid: Option<Stage> },
}

impl Executor {
    pub(super) async fn inspect(&self, job: &mut Job<'_>, again: bool, reboot: bool) -> Result<Done, ActError> {
        let Some(node) = job.node else { return Ok(Done::unknown()) };
        match &node.provision_state {
            ProvisionState::Enroll | ProvisionState::Verifying => Ok(Done::unknown()),
            ProvisionState::Available => self.ask(job, node, "manage", None).await,
            ProvisionState::Manageable if job.scratch.asked == Some(Asked::Inspect) || inspected(job.host, node) => {
                match self.inspected(job.host, node).await {
                    // It is the inventory that is not there: what was found is lost, or there was nothing to keep.
                    Err(ActError::Ironic(IronicError::NotFound(why))) if job.scratch.answered(Asked::Inspect) => {
                        Ok(Done::badly(format!("Ironic has nothing of what it found in the host: {why}")))
                    }
                    Err(ActError::Ironic(IronicError::NotFound(_))) => self.begin_inspection(job, node, again).await,
                    done => done,
                }
            }
            ProvisionState::Manageable | ProvisionState::InspectFail => {
                if node.provision_state == ProvisionState::InspectFail && job.scratch.answered(Asked::Inspect) {
                    return Ok(Done::badly(node.error().unwrap_or(NO_REASON)));
                }
                self.begin_inspection(job, node, again).await
            }
            ProvisionState::InspectWait if reboot && !job.scratch.rebooted => {
                self.ironic.set_provision_state(&node.uuid, &json!({"target": "abort"})).await?;
                *job.scratch = super::Scratch { rebooted: true, ..super::Scratch::default() };
                Ok(Done { rebooted: true, ..self.soon() })
            }
            busy if busy.is_busy() => Ok(self.later()),
            ProvisionState::CleanFail => self.recover(job, node).await,
            _ => Ok(stuck(node, "inspected")),
        }
    }

    /// Ends the wait for a ramdisk that does not run any more. The action begins again as after a failure, which is not
    /// counted.
    pub(super) async fn begin_anew(&self, job: &mut Job<'_>) -> Result<Done, ActError> {
        let Some(node) = job.node else { return Ok(Done::unknown()) };
        // An image that is half written is taken away again.
        let target = if node.provision_state == ProvisionState::DeployWait { "deleted" } else { "abort" };
        let done = self.ask(job, node, target, None).await?;
        *job.scratch = super::Scratch::default();
        let what = "Nothing was heard of its ramdisk since the box was restarted; what it was to do is begun anew";
        Ok(done.tell(HostEvent::new(HostReason::RamdiskLost, what)))
    }

    async fn begin_inspection(&self, job: &mut Job<'_>, node: &Node, again: bool) -> Result<Done, ActError> {
        let fast = job.host.spec.inspection_mode == Some(InspectionMode::Fast);
        let by_bmc = job.bmc.and_then(|(bmc, _)| bmc.driver.fast_inspect_interface()).filter(|_| fast);
        let interface = by_bmc.unwrap_or("agent");
        if node.inspect_interface.as_deref() != Some(interface) {
            self.ironic.patch_node(&node.uuid, &[Patch::add("/inspect_interface", interface)]).await?;
        }
        let done = self.ask(job, node, "inspect", Some(Asked::Inspect)).await?;
        let what = if again { "Hardware inspection started again" } else { "Hardware inspection started" };
        Ok(done.tell(HostEvent::new(HostReason::InspectionStarted, what)))
    }

    /// Inspection is over: what was found is kept beside the host too.
    async fn inspected(&self, host: &BareMetalHost, node: &Node) -> Result<Done, ActError> {
        let details = inventory::hardware(&self.ironic.inventory(&node.uuid).await?);
        self.objects.save_hardware(host, &details).await?;
        Ok(Done::well()
            .learn(Change::Hardware(Box::new(details)))
            .tell(HostEvent::new(HostReason::InspectionComplete, "Hardware inspection completed")))
    }

    /// Out of a failed cleaning: the node stays off the network of its old system, and may be worked with again.
    async fn recover(&self, job: &mut Job<'_>, node: &Node) -> Result<Done, ActError> {
        if node.maintenance {
            self.ironic.set_maintenance(&node.uuid, None).await?;
        }
        self.ask(job, node, "manage", None).await
    }

    pub(super) async fn prepare(&self, job: &mut Job<'_>) -> Result<Done, ActError> {
        let Some(node) = job.node else { return Ok(Done::unknown()) };
        match &node.provision_state {
            ProvisionState::Enroll | ProvisionState::Verifying => Ok(Done::unknown()),
            ProvisionState::Manageable if job.scratch.answered(Asked::Clean) => match self.written(job, node).await? {
                Ok(()) => Ok(prepared(job.scratch.volumes.take())),
                Err(why) => Ok(Done::badly(why)),
            },
            ProvisionState::Manageable => self.begin_cleaning(job, node).await,
            // Nothing to do leaves it available.
            ProvisionState::Available => match self.cleaning(job, node).await? {
                Ok(None) => Ok(prepared(volumes(job.host))),
                Ok(Some(_)) => self.ask(job, node, "manage", None).await,
                Err(why) => Ok(Done::badly(why)),
            },
            ProvisionState::CleanFail => {
                self.in_vain(job).await?;
                if job.scratch.answered(Asked::Clean) {
                    return Ok(Done::badly(node.error().unwrap_or(NO_REASON)));
                }
                self.recover(job, node).await
            }
            // It was switched off in the midst of it.
            ProvisionState::InspectWait => self.ask(job, node, "abort", None).await,
            ProvisionState::InspectFail => self.ask(job, node, "manage", None).await,
            busy if busy.is_busy() => Ok(self.later()),
            _ => Ok(stuck(node, "prepared")),
        }
    }

    /// What cleaning does: nothing when there is nothing to do, or why it cannot be done.
    async fn cleaning(&self, job: &Job<'_>, node: &Node) -> Result<Result<Option<Cleaning>, String>, ActError> {
        let Some((bmc, _)) = job.bmc else { return Ok(Err("the BMC's address and credentials are not known".into())) };
        let (spec, made) = raid_of(job.host);
        let raid = match raid::next(spec, made, bmc.driver, job.host.spec.root_device_hints.as_ref()) {
            Ok(raid) => raid,
            Err(why) => return Ok(Err(why)),
        };
        let wanted = self.wanted(job, node).await?;
        if wanted.unread {
            return Ok(Ok(Some(Cleaning::Reading)));
        }
        let firmware = Self::firmware_steps(&wanted);
        let work = raid.is_some() || !firmware.is_empty();
        Ok(Ok(work.then_some(Cleaning::Work { firmware, updates: wanted.updates, raid })))
    }

    async fn begin_cleaning(&self, job: &mut Job<'_>, node: &Node) -> Result<Done, ActError> {
        let (mut steps, updates, raid) = match self.cleaning(job, node).await? {
            Err(why) => return Ok(Done::badly(why)),
            Ok(None) => return Ok(prepared(volumes(job.host))),
            Ok(Some(Cleaning::Reading)) => return self.read_settings(job, node).await,
            Ok(Some(Cleaning::Work { firmware, updates, raid })) => (firmware, updates, raid),
        };
        let mut reached = volumes(job.host);
        if let Some(stage) = raid {
            self.ironic.patch_node(&node.uuid, &[Patch::add("/raid_interface", stage.interface)]).await?;
            if !stage.volumes.is_empty() {
                self.ironic.set_raid(&node.uuid, &json!({"logical_disks": stage.volumes})).await?;
            }
            steps.extend(stage.steps);
            reached = Some(Box::new(stage.reached));
        }
        self.ironic.set_provision_state(&node.uuid, &json!({"target": "clean", "clean_steps": steps})).await?;
        job.scratch.asked = Some(Asked::Clean);
        job.scratch.volumes = reached;
        self.begun(job, &updates).await?;
        Ok(self
            .soon()
            .tell(HostEvent::new(HostReason::PreparationStarted, "Preparation of RAID, BIOS and firmware started")))
    }

    pub(super) async fn provision(&self, job: &mut Job<'_>, reboot: bool) -> Result<Done, ActError> {
        let Some(node) = job.node else { return Ok(Done::unknown()) };
        let url = job.host.spec.image_url().to_owned();
        match &node.provision_state {
            ProvisionState::Enroll | ProvisionState::Verifying => Ok(Done::unknown()),
            ProvisionState::Manageable | ProvisionState::Available if node.maintenance => {
                let why = node.maintenance_reason.as_deref().or_else(|| node.error()).unwrap_or(NO_REASON);
                Ok(Done::of(Report::NotYet(format!("Ironic leaves the host alone: {why}"))))
            }
            ProvisionState::Manageable => {
                if let Some(why) = job.host.spec.image.as_ref().and_then(wishes::image_problem) {
                    return Ok(Done::badly(why));
                }
                self.ask(job, node, "provide", Some(Asked::Provide)).await
            }
            ProvisionState::CleanFail if job.scratch.answered(Asked::Provide) => {
                Ok(Done::badly(format!("Cleaning failed: {}", node.error().unwrap_or(NO_REASON))))
            }
            ProvisionState::CleanFail => self.recover(job, node).await,
            ProvisionState::Available => self.deploy(job, node).await,
            ProvisionState::DeployFail => {
                let why = node.error().unwrap_or(NO_REASON);
                let hint = pull_secret::hint(job.host.spec.image.as_ref(), why);
                Ok(Done::badly(format!("Image provisioning failed: {why}{hint}")))
            }
            ProvisionState::DeployWait if reboot && !job.scratch.rebooted => {
                self.ironic.set_power_state(&node.uuid, "rebooting", None).await?;
                job.scratch.rebooted = true;
                Ok(Done { rebooted: true, ..self.soon() })
            }
            ProvisionState::Active => {
                let told =
                    HostEvent::new(HostReason::ProvisioningComplete, format!("Image provisioning completed for {url}"));
                // It has just been started.
                Ok(Done { rebooted: true, ..Done::well().tell(told) })
            }
            busy if busy.is_busy() => Ok(self.later()),
            _ => Ok(stuck(node, "provisioned")),
        }
    }

    async fn deploy(&self, job: &mut Job<'_>, node: &Node) -> Result<Done, ActError> {
        let host = job.host;
        if let Some(why) = host.spec.image.as_ref().and_then(wishes::image_problem) {
            return Ok(Done::badly(why));
        }
        // Until Ironic is asked for it, nothing has failed: what is missing may come.
        let data = match self.objects.cloud_data(host).await? {
            Ok(data) => data,
            Err(why) => return Ok(Done::of(Report::NotYet(why))),
        };
        let drive = match wishes::config_drive(host, &data) {
            Ok(drive) => drive,
            Err(why) => return Ok(Done::of(Report::NotYet(why))),
        };
        let secret = match self.objects.pull_secret(host).await? {
            Ok(secret) => secret,
            Err(why) => return Ok(Done::of(Report::NotYet(why))),
        };
        let changes = wishes::instance(host, node, host.spec.image.as_ref(), secret);
        self.ironic.patch_node(&node.uuid, &changes).await?;
        if let Some(why) = self.ironic.validate(&node.uuid).await? {
            let hint = pull_secret::hint(host.spec.image.as_ref(), &why);
            return Ok(Done::of(Report::NotYet(format!("host validation error: {why}{hint}"))));
        }
        let mut body = json!({"target": "active", "configdrive": drive});
        if let Some(steps) = wishes::deploy_steps(host) {
            body["deploy_steps"] = steps;
        }
        self.ironic.set_provision_state(&node.uuid, &body).await?;
        job.scratch.asked = Some(Asked::Deploy);
        let spec = &host.spec;
        let ramdisks = spec.network_data.is_none() && spec.preprovisioning_network_data_name.is_some();
        let network = if ramdisks { "; its network is that of `preprovisioningNetworkDataName`" } else { "" };
        let what = format!("Image provisioning started for {}{network}", spec.image_url());
        Ok(self.soon().tell(HostEvent::new(HostReason::ProvisioningStarted, what)))
    }

    /// The disks are cleaned unless the host says not to; a host that cannot be cleaned stays where it is.
    pub(super) async fn deprovision(&self, job: &mut Job<'_>) -> Result<Done, ActError> {
        let Some(node) = job.node else { return Ok(Done::unknown()) };
        match &node.provision_state {
            ProvisionState::Enroll | ProvisionState::Verifying => Ok(Done::unknown()),
            ProvisionState::Available => {
                let told = HostEvent::new(HostReason::DeprovisioningComplete, "Image deprovisioning completed");
                Ok(Done { rebooted: true, ..Done::well().tell(told) })
            }
            ProvisionState::Active
            | ProvisionState::DeployFail
            | ProvisionState::Error
            | ProvisionState::DeployWait
            | ProvisionState::ServiceFail
            | ProvisionState::AdoptFail => {
                if node.provision_state == ProvisionState::Error && job.scratch.answered(Asked::Undeploy) {
                    return Ok(Done::badly(format!("Deprovisioning failed: {}", node.error().unwrap_or(NO_REASON))));
                }
                if node.provision_state == ProvisionState::AdoptFail {
                    return self.ask(job, node, "manage", None).await;
                }
                let done = self.ask(job, node, "deleted", Some(Asked::Undeploy)).await?;
                Ok(done.tell(HostEvent::new(HostReason::DeprovisioningStarted, "Image deprovisioning started")))
            }
            ProvisionState::Manageable => self.ask(job, node, "provide", Some(Asked::Provide)).await,
            ProvisionState::CleanFail if job.scratch.asked.is_some() => {
                job.scratch.asked = None;
                Ok(Done::badly(format!("Cleaning failed: {}", node.error().unwrap_or(NO_REASON))))
            }
            ProvisionState::CleanFail => self.recover(job, node).await,
            ProvisionState::InspectFail => self.ask(job, node, "manage", None).await,
            busy if busy.is_busy() => Ok(self.later()),
            _ => Ok(stuck(node, "deprovisioned")),
        }
    }
}

fn prepared(volumes: Option<Box<RaidConfig>>) -> Done {
    Done::well().learn(Change::Prepared(volumes))
}

/// RAID volumes that are asked for, and those that were made.
fn raid_of(host: &BareMetalHost) -> (Option<&RaidConfig>, Option<&RaidConfig>) {
    (host.spec.raid.as_ref(), host.status.as_ref().and_then(|status| status.provisioning.raid.as_ref()))
}

/// RAID volumes of a host when there is nothing to do about them.
fn volumes(host: &BareMetalHost) -> Option<Box<RaidConfig>> {
    let (spec, made) = raid_of(host);
    raid::wanted(spec, made).map(Box::new)
}

/// Whether the node was inspected since the host began to be: told apart from an earlier inspection even after a restart.
fn inspected(host: &BareMetalHost, node: &Node) -> bool {
    let begun =
        host.status.as_ref().and_then(|status| status.operation_history.as_ref()?.inspect.as_ref()?.start.clone());
    let begun = begun.and_then(|begun| begun.0);
    let finished = node.inspection_finished_at.as_ref().and_then(|at| at.parse::<jiff::Timestamp>().ok());
    matches!((begun, finished), (Some(begun), Some(finished)) if finished >= begun.0)
}
