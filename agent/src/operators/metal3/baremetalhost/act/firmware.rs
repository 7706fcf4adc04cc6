//! BIOS settings and firmware: by clean steps before a host is available, by service steps while it is in use.

use agent_api::metal3::FirmwareUpdate;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::firmware::{Mark, Wanted};
use super::super::tell::{HostEvent, HostReason};
use super::super::wishes;
use super::{Asked, Done, Executor, Job};
use crate::ironic::{Node, ProvisionState};
use crate::operators::metal3::common::ActError;

/// Whether a host's driver can tell and change firmware.
pub(super) fn can(job: &Job<'_>) -> bool {
    job.bmc.is_some_and(|(bmc, _)| bmc.driver.firmware_interface().is_some())
}

impl Executor {
    /// What is to be written into a host, by what Ironic says now; nothing where its driver cannot.
    pub(super) async fn wanted(&self, job: &Job<'_>, node: &Node) -> Result<Wanted, ActError> {
        if !can(job) {
            return Ok(Wanted::default());
        }
        self.firmware.sync(&self.ironic, job.host, node, (Timestamp::now(), 0.5)).await
    }

    /// The steps for that, and only they.
    pub(super) fn firmware_steps(wanted: &Wanted) -> Vec<Value> {
        let updates: Vec<Value> = wanted.updates.iter().map(|update| json!(update)).collect();
        wishes::firmware_steps(&wanted.settings, &updates)
    }

    /// Ironic reads a host's settings when a cleaning begins, from its BMC alone. This one leaves the power as it is.
    pub(super) async fn read_settings(&self, job: &Job<'_>, node: &Node) -> Result<Done, ActError> {
        let step = if node.powered_on() == Some(true) { "power_on" } else { "power_off" };
        let steps = json!([{"interface": "power", "step": step}]);
        let body = json!({"target": "clean", "clean_steps": steps, "disable_ramdisk": true});
        self.ironic.set_provision_state(&node.uuid, &body).await?;
        self.firmware.reads(job.host, Timestamp::now());
        Ok(self.soon())
    }

    /// Updates are written once: that they were begun is kept where a restart finds it.
    pub(super) async fn begun(&self, job: &Job<'_>, updates: &[FirmwareUpdate]) -> Result<(), ActError> {
        if !updates.is_empty() {
            self.firmware.mark(job.host, Mark::Begun(updates), Timestamp::now()).await?;
        }
        Ok(())
    }

    /// Which of the updates that were begun is on the host is not known: all are to be written again.
    pub(super) async fn in_vain(&self, job: &Job<'_>) -> Result<(), ActError> {
        if can(job) {
            self.firmware.mark(job.host, Mark::Failed, Timestamp::now()).await?;
        }
        Ok(())
    }

    /// Ironic wrote everything: the host is as asked for, or it did not take it, which trying at once would not change.
    pub(super) async fn written(&self, job: &Job<'_>, node: &Node) -> Result<Result<(), String>, ActError> {
        let left = self.wanted(job, node).await?.settings;
        if left.is_empty() {
            return Ok(Ok(()));
        }
        let names: Vec<&str> = left.keys().map(String::as_str).collect();
        Ok(Err(format!("BIOS settings were written, but the server did not take them: {}", names.join(", "))))
    }

    /// What may be changed of a host that is in use, by its policy.
    async fn wanted_in_use(&self, job: &Job<'_>, node: &Node) -> Result<Wanted, ActError> {
        let (allowed, mut wanted) = (self.firmware.allowed(job.host), self.wanted(job, node).await?);
        if !allowed.settings {
            wanted.settings.clear();
        }
        if !allowed.updates {
            wanted.updates.clear();
        }
        Ok(wanted)
    }

    /// Changes a host that is in use; Ironic boots it for that, and afterwards again as it was.
    pub(super) async fn service(&self, job: &mut Job<'_>) -> Result<Done, ActError> {
        let Some(node) = job.node else { return Ok(Done::unknown()) };
        match &node.provision_state {
            ProvisionState::Enroll | ProvisionState::Verifying => Ok(Done::unknown()),
            ProvisionState::Active if job.scratch.answered(Asked::Service) => self.serviced(job, node).await,
            ProvisionState::Active => self.begin_service(job, node).await,
            ProvisionState::ServiceFail if job.scratch.answered(Asked::Service) => {
                self.in_vain(job).await?;
                Ok(Done::badly(node.error().unwrap_or(super::install::NO_REASON)))
            }
            ProvisionState::ServiceFail => {
                if node.maintenance {
                    self.ironic.set_maintenance(&node.uuid, None).await?;
                }
                self.in_vain(job).await?;
                self.begin_service(job, node).await
            }
            busy if busy.is_busy() => Ok(self.later()),
            _ => Ok(super::install::stuck(node, "serviced")),
        }
    }

    async fn serviced(&self, job: &Job<'_>, node: &Node) -> Result<Done, ActError> {
        // Settings that the policy does not let through are left, and no failure.
        let allowed = self.firmware.allowed(job.host);
        match self.written(job, node).await? {
            Err(why) if allowed.settings => Ok(Done::badly(why)),
            Ok(()) | Err(_) => Ok(Done::well().tell(HostEvent::new(
                HostReason::ServicingComplete,
                "Servicing of BIOS settings and firmware completed",
            ))),
        }
    }

    async fn begin_service(&self, job: &mut Job<'_>, node: &Node) -> Result<Done, ActError> {
        let wanted = self.wanted_in_use(job, node).await?;
        let steps = Self::firmware_steps(&wanted);
        if steps.is_empty() {
            // What failed is not asked for any more.
            if node.provision_state == ProvisionState::ServiceFail {
                return self.ask(job, node, "abort", None).await;
            }
            return Ok(Done::well());
        }
        let body = json!({"target": "service", "service_steps": steps});
        self.ironic.set_provision_state(&node.uuid, &body).await?;
        job.scratch.asked = Some(Asked::Service);
        self.begun(job, &wanted.updates).await?;
        Ok(self
            .soon()
            .tell(HostEvent::new(HostReason::ServicingStarted, "Servicing of BIOS settings and firmware started")))
    }
}
