//! Does what was decided, by calls of Ironic and of the API server, and reports what came of it.
//!
//! ```text
//! Action ──► act ──► one call of Ironic, by the state that the node is in ──► Report, what was learned, events
//! ```
//!
//! Every action may be begun again at any time: what was already asked for is seen by the node's state. Only whether a
//! failure is the answer to this try or to an earlier one is remembered, in [`Scratch`]; a restart costs one more try.

mod firmware;
mod install;
mod ports;
mod power;
mod ramdisk;
mod register;

pub use ports::macs;
pub use register::has_new_credentials;

use std::sync::Arc;

use agent_api::metal3::bmc_address::{BmcAddress, Credentials};
use agent_api::metal3::{BareMetalHost, RaidConfig};
use jiff::{SignedDuration, Timestamp};
use kube::runtime::reflector::Store;
use serde_json::json;

use super::conclude::Report;
use super::firmware::Firmware;
use super::outcome::{Action, Change};
use super::tell::{HostEvent, HostReason};
use crate::ironic::{Client, IronicError, Node, Patch};
use crate::operators::kit::{ObjectError, Objects};
use crate::operators::metal3::common::{ActError, Pace};
use crate::operators::metal3::preprovisioning;

/// Why Ironic leaves a node alone that it is about to forget.
const LEAVING: &str = "the host is leaving";

/// What was asked of Ironic in this try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To try the BMC.
    Manage,
    /// To inspect.
    Inspect,
    /// To clean with steps.
    Clean,
    /// To clean and make available.
    Provide,
    /// To write the image.
    Deploy,
    /// To take the image away.
    Undeploy,
    /// To take the host as it is.
    Adopt,
    /// To change the power.
    Power,
    /// To change the firmware of an instance.
    Service,
    /// Nothing yet: the drive is waited for.
    Drive,
}

/// What is remembered of a host from one try to the next; lost with the process.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// What was asked of Ironic.
    pub asked: Option<Asked>,
    /// The ramdisk was rebooted as the annotation says.
    pub rebooted: bool,
    /// RAID volumes that are there once the cleaning ends that was asked for, whatever is asked for by then.
    pub volumes: Option<Box<RaidConfig>>,
}

impl Scratch {
    /// Whether this was asked and not answered; it counts as answered now.
    fn answered(&mut self, asked: Asked) -> bool {
        let was = self.asked == Some(asked);
        if was {
            self.asked = None;
        }
        was
    }
}

/// A host that something is done with.
pub struct Job<'a> {
    /// The host.
    pub host: &'a BareMetalHost,
    /// Its node.
    pub node: Option<&'a Node>,
    /// Its BMC.
    pub bmc: Option<&'a (BmcAddress, Credentials)>,
    /// What is remembered of it.
    pub scratch: &'a mut Scratch,
    /// Its ramdisk is waited for in vain.
    pub lost: bool,
}

/// What came of an action.
#[derive(Debug, Default)]
pub struct Done {
    /// In the state machine's words.
    pub report: Option<Report>,
    /// What is known now.
    pub learned: Vec<Change>,
    /// Events for the user.
    pub told: Vec<HostEvent>,
    /// Reboot annotations were acted on, and go.
    pub rebooted: bool,
}

impl Done {
    fn of(report: Report) -> Self {
        Self { report: Some(report), ..Self::default() }
    }

    /// It is done.
    fn well() -> Self {
        Self::of(Report::Done)
    }

    /// It failed.
    fn badly(why: impl Into<String>) -> Self {
        Self::of(Report::Failed(why.into()))
    }

    /// Ironic does not know the host.
    fn unknown() -> Self {
        Self::of(Report::Unknown)
    }

    fn tell(mut self, told: HostEvent) -> Self {
        self.told.push(told);
        self
    }

    fn learn(mut self, change: Change) -> Self {
        self.learned.push(change);
        self
    }
}

/// Does what was decided.
pub struct Executor {
    /// Ironic.
    pub ironic: Arc<Client>,
    /// The cluster.
    pub objects: Objects,
    /// All hosts, as they are watched.
    pub hosts: Store<BareMetalHost>,
    /// What is known of firmware.
    pub firmware: Arc<Firmware>,
    /// How often Ironic is asked.
    pub pace: Pace,
    /// File on Ironic's machine with the authorities of BMCs' certificates; Ironic's own when `None`.
    pub bmc_authorities: Option<String>,
    /// URL below which BMCs fetch virtual media; Ironic's own when `None`.
    pub external_http_url: Option<String>,
    /// Which ramdisk hosts get.
    pub preprovisioning: preprovisioning::Settings,
}

/// Why a host cannot be registered as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Something is wrong with it.
    Wrong(String),
    /// Its ramdisk is not made yet; why.
    Waits(String),
}

impl Executor {
    /// Does something with a host. Refusals of Ironic are reports; errors are of the API server only, and are tried
    /// again as a whole.
    pub async fn act(&self, job: &mut Job<'_>, action: &Action) -> Result<Done, ObjectError> {
        let acted = match action {
            Action::RestoreStatus
            | Action::SaveHardwareDetails
            | Action::AddFinalizer
            | Action::RemoveAnnotation(_) => {
                // They change the object itself, which is the controller's.
                Ok(Done::well())
            }
            Action::Detach | Action::Forget => self.forget(job).await,
            _ if job.node.is_some_and(|node| node.is_abandoned(Timestamp::now(), self.pace.abandoned)) => {
                self.register_anew(job).await
            }
            _ if job.lost => self.begin_anew(job).await,
            Action::Register => self.register(job).await,
            Action::Inspect { again, reboot } => self.inspect(job, *again, *reboot).await,
            Action::Prepare => self.prepare(job).await,
            Action::Adopt => self.adopt(job).await,
            Action::Provision { reboot } => self.provision(job, *reboot).await,
            Action::Deprovision => self.deprovision(job).await,
            Action::Service => self.service(job).await,
            Action::PowerOn => self.power_on(job).await,
            Action::PowerOff(mode) => self.power_off(job, *mode).await,
            Action::Reboot(mode) => self.reboot(job, *mode).await,
            Action::PowerOffForGood => self.power_off_for_good(job).await,
        };
        match acted {
            Ok(done) => Ok(done),
            Err(ActError::Object(error)) => Err(error),
            // Nobody's fault: busy, or away, which the next look at it tells.
            Err(ActError::Ironic(error)) if error.is_passing() => Ok(self.soon()),
            Err(ActError::Ironic(IronicError::NotFound(_))) => Ok(Done::unknown()),
            Err(ActError::Ironic(error)) => Ok(Done::badly(error.to_string())),
        }
    }

    /// It goes on; asked again in seconds.
    fn soon(&self) -> Done {
        Done::of(Report::Continues(SignedDuration::try_from(self.pace.short).unwrap_or_default()))
    }

    /// It goes on for minutes.
    fn later(&self) -> Done {
        Done::of(Report::Continues(SignedDuration::try_from(self.pace.long).unwrap_or_default()))
    }

    /// Another provision state, and what is remembered of it.
    async fn ask(&self, job: &mut Job<'_>, node: &Node, target: &str, asked: Option<Asked>) -> Result<Done, ActError> {
        self.ironic.set_provision_state(&node.uuid, &json!({"target": target})).await?;
        job.scratch.asked = asked.or(job.scratch.asked);
        Ok(self.soon())
    }

    /// Ironic forgets a node, whatever it is doing: maintenance keeps it from touching the server on the way.
    async fn forget(&self, job: &Job<'_>) -> Result<Done, ActError> {
        let Some(node) = job.node else { return Ok(Done::well()) };
        if !node.maintenance {
            self.ironic.set_maintenance(&node.uuid, Some(LEAVING)).await?;
        }
        if node.instance_uuid.is_some() {
            self.ironic.patch_node(&node.uuid, &[Patch::remove("/instance_uuid")]).await?;
        }
        self.ironic.delete_node(&node.uuid).await?;
        Ok(Done::well().learn(Change::Id(String::new())))
    }

    /// Out of a state that nobody ends: what follows is what follows the loss of Ironic's database.
    async fn register_anew(&self, job: &mut Job<'_>) -> Result<Done, ActError> {
        let state = job.node.map(|node| node.provision_state.to_string()).unwrap_or_default();
        self.forget(job).await?;
        *job.scratch = Scratch::default();
        let what = format!("Ironic has the host in `{state}` and nobody at work with it; it gets to know it anew");
        Ok(Done::unknown().tell(HostEvent::new(HostReason::NodeAbandoned, what)))
    }
}

#[cfg(test)]
mod tests;
