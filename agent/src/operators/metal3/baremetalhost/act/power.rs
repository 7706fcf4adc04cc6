//! Power.

use agent_api::metal3::DataImage;
use agent_api::metal3::annotations::RebootMode;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::super::objects::namespace;
use super::super::tell::{HostEvent, HostReason};
use super::{Asked, Done, Executor, Job};
use crate::ironic::Node;
use crate::operators::metal3::common::ActError;
use crate::operators::metal3::dataimage;
use crate::signs;

/// Seconds that an operating system has to shut down.
const SOFT_SECONDS: u32 = 180;
/// A change of power that takes Ironic longer does not end: it asks a BMC in vain for some minutes.
const SWITCHED_WITHIN: SignedDuration = SignedDuration::from_mins(15);

impl Executor {
    pub(super) async fn power_on(&self, job: &mut Job<'_>) -> Result<Done, ActError> {
        if let Some(done) = self.wait_for_drive(job).await? {
            return Ok(done);
        }
        self.power(job, Some(true), "power on", None, HostEvent::new(HostReason::PowerOn, "Host powered on")).await
    }

    /// A host whose drive is not as its `DataImage` asks for starts when it is: what it is to boot with or to read must be
    /// there. That controller has it looked at then.
    async fn wait_for_drive(&self, job: &mut Job<'_>) -> Result<Option<Done>, ActError> {
        let (namespace, name) = (namespace(job.host), job.host.name_any());
        let image = self.objects.get::<DataImage>(namespace, &name).await?;
        if !image.is_some_and(|image| dataimage::holds_power(job.host, &image)) {
            return Ok(None);
        }
        let done = self.later();
        if job.scratch.asked == Some(Asked::Drive) {
            return Ok(Some(done));
        }
        job.scratch.asked = Some(Asked::Drive);
        let what = "The host is powered on when its virtual drive is as the DataImage of its name asks for";
        Ok(Some(done.tell(HostEvent::new(HostReason::WaitingForDataImage, what))))
    }

    pub(super) async fn power_off(&self, job: &mut Job<'_>, mode: RebootMode) -> Result<Done, ActError> {
        let (target, seconds, what) = match mode {
            RebootMode::Soft => ("soft power off", Some(SOFT_SECONDS), "Host soft powered off"),
            RebootMode::Hard => ("power off", None, "Host powered off"),
        };
        self.power(job, Some(false), target, seconds, HostEvent::new(HostReason::PowerOff, what)).await
    }

    pub(super) async fn reboot(&self, job: &mut Job<'_>, mode: RebootMode) -> Result<Done, ActError> {
        let (target, seconds) = match mode {
            RebootMode::Soft => ("soft rebooting", Some(SOFT_SECONDS)),
            RebootMode::Hard => ("rebooting", None),
        };
        self.power(job, None, target, seconds, HostEvent::new(HostReason::Reboot, "Host rebooted")).await
    }

    pub(super) async fn power_off_for_good(&self, job: &mut Job<'_>) -> Result<Done, ActError> {
        if job.host.spec.disable_power_off == Some(true) {
            return Ok(Done::well());
        }
        self.power_off(job, RebootMode::Hard).await
    }

    /// `wanted`: what the power shall be; `None` when it shall only have been changed.
    async fn power(
        &self,
        job: &mut Job<'_>,
        wanted: Option<bool>,
        target: &str,
        seconds: Option<u32>,
        told: HostEvent,
    ) -> Result<Done, ActError> {
        let Some(node) = job.node else { return Ok(Done::unknown()) };
        if node.is_being_switched() {
            let since = signs::node::bmc(node).commanded.map(|since| since.0);
            let endless = since.filter(|since| Timestamp::now().duration_since(*since) > SWITCHED_WITHIN);
            return Ok(endless.map_or_else(|| self.soon(), |since| Done::badly(never_ends(node, since))));
        }
        let asked = job.scratch.answered(Asked::Power);
        if wanted.map_or(asked && node.error().is_none(), |wanted| node.powered_on() == Some(wanted)) {
            return Ok(Done::well());
        }
        if let Some(error) = node.error().filter(|_| asked) {
            return Ok(Done::badly(error));
        }
        self.ironic.set_power_state(&node.uuid, target, seconds).await?;
        job.scratch.asked = Some(Asked::Power);
        Ok(self.soon().tell(told))
    }
}

fn never_ends(node: &Node, since: Timestamp) -> String {
    let target = node.target_power_state.as_deref().unwrap_or_default();
    format!("Ironic has been at the change to `{target}` since {since:.0}, and does not end; hint: start Ironic anew")
}
