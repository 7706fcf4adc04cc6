//! Power.

use agent_api::metal3::annotations::RebootMode;

use super::super::story::Told;
use super::{ActError, Asked, Done, Executor, Job};

/// Seconds that an operating system has to shut down.
const SOFT_SECONDS: u32 = 180;

impl Executor {
    pub(super) async fn power_on(&self, job: &mut Job<'_>) -> Result<Done, ActError> {
        self.power(job, Some(true), "power on", None, Told::normal("PowerOn", "Host powered on")).await
    }

    pub(super) async fn power_off(&self, job: &mut Job<'_>, mode: RebootMode) -> Result<Done, ActError> {
        let (target, seconds, what) = match mode {
            RebootMode::Soft => ("soft power off", Some(SOFT_SECONDS), "Host soft powered off"),
            RebootMode::Hard => ("power off", None, "Host powered off"),
        };
        self.power(job, Some(false), target, seconds, Told::normal("PowerOff", what)).await
    }

    pub(super) async fn reboot(&self, job: &mut Job<'_>, mode: RebootMode) -> Result<Done, ActError> {
        let (target, seconds) = match mode {
            RebootMode::Soft => ("soft rebooting", Some(SOFT_SECONDS)),
            RebootMode::Hard => ("rebooting", None),
        };
        self.power(job, None, target, seconds, Told::normal("Reboot", "Host rebooted")).await
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
        told: Told,
    ) -> Result<Done, ActError> {
        let Some(node) = job.node else { return Ok(Done::unknown()) };
        if node.target_power_state.is_some() {
            return Ok(self.soon());
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
