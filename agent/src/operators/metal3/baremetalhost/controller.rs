//! The controller: watches hosts and Secrets, decides, writes the status, acts, tells.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_api::metal3::annotations::{self, FINALIZER, HARDWARE_DETAILS, REBOOT, STATUS};
use agent_api::metal3::bmc_address::{BmcAddress, Credentials};
use agent_api::metal3::{BareMetalHost, BareMetalHostStatus, ProvisioningState};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::Recorder;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::sync::Mutex as AsyncMutex;

use super::act::{Done, Executor, Job, Scratch, has_new_credentials};
use super::conclude::{Report, conclude};
use super::decide::{Facts, Limits, Slot, decide};
use super::health::Health;
use super::metrics::Metrics;
use super::objects::namespace;
use super::outcome::{Action, Change, Outcome, Step, WaitReason};
use super::pulses::{self, Pulses};
use super::slots::Slots;
use super::status::apply;
use super::tell::{self, HostEvent, HostReason};
use crate::bmc::rehearsal::Target;
use crate::ironic::Node;
use crate::operators::kit::{Key, Next, Object as _, ObjectError};
use crate::signs;
use crate::steps::chain;

/// Decisions of one turn; a host that needs more has something wrong about it, and is left alone for a while.
const DECISIONS: usize = 40;
/// For that long.
const LOOPING: Duration = Duration::from_secs(10);
/// After an error of the API server.
const RETRY: Duration = Duration::from_secs(1);

/// A node and MAC addresses of it.
type KnownPorts = (String, BTreeMap<String, bool>);

/// What is remembered of a host while the controller runs.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// `resourceVersion` of the host as it was last read or written here: older copies are not decided on.
    version: Option<String>,
    scratch: Scratch,
    /// Node whose ports were all there, with the addresses that were known of it, and when.
    pub ports: Option<(KnownPorts, Instant)>,
    /// Its ramdisk was lost, and what it was to do begun anew: whatever was begun since then was begun by us.
    begun_anew: bool,
}

/// The controller.
pub struct Operator {
    /// What acts.
    pub executor: Executor,
    /// Slots.
    pub slots: Slots,
    /// What is counted.
    pub metrics: Metrics,
    /// Where events go.
    pub recorder: Recorder,
    /// Limits.
    pub limits: Limits,
    /// What the box hears of hosts and serves them; nothing, when nobody tells.
    pub signs: signs::Reader,
    /// BMCs that are waited for; none is asked where nobody runs it.
    pub pulses: Arc<Pulses>,
    /// Since when it runs.
    since: Timestamp,
    memory: Mutex<HashMap<Key, Arc<AsyncMutex<Memory>>>>,
    pub(super) health: Health,
}

/// What is known of a host in one decision.
pub(super) struct Known {
    pub facts: Facts,
    pub node: Option<Node>,
    pub bmc: Option<(BmcAddress, Credentials)>,
}

/// How a turn goes on.
enum Flow {
    /// Decided again, with what is known then.
    Decide,
    /// Over until something changes or this time is over.
    Rest(Next),
}

impl Operator {
    /// A controller that has seen nothing yet.
    ///
    /// # Errors
    /// Nothing can be counted.
    pub fn new(executor: Executor, slots: Slots, recorder: Recorder, limits: Limits) -> anyhow::Result<Self> {
        let (metrics, signs, since) = (Metrics::new()?, signs::Reader::default(), Timestamp::now());
        let (memory, health, pulses) = (Mutex::default(), Health::default(), Arc::default());
        Ok(Self { executor, slots, metrics, recorder, limits, signs, pulses, since, memory, health })
    }

    fn memory(&self, key: &Key) -> Arc<AsyncMutex<Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default().clone()
    }

    /// A host is gone, by whomever.
    pub fn gone(&self, key: &Key) {
        self.forget(key);
    }

    fn forget(&self, key: &Key) {
        self.slots.release(key);
        self.executor.firmware.forget(key);
        self.pulses.forget(key);
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// What runs already keeps its slot. To be called with all hosts before the first turn.
    pub fn keep_slots(&self, hosts: &[Arc<BareMetalHost>]) {
        for host in hosts.iter().filter(|host| has_slot(host)) {
            self.slots.keep(&host.key());
        }
    }

    /// One turn with a host.
    pub async fn reconcile(&self, host: Arc<BareMetalHost>) -> Result<Next, ObjectError> {
        let key = host.key();
        self.metrics.turn(&key);
        let memory = self.memory(&key);
        let mut memory = memory.lock().await;
        let turned = self.turn(&key, &host, &mut memory).await;
        match turned {
            Err(error) if error.is_gone() => {
                self.forget(&key);
                Ok(Next::await_change())
            }
            Err(error) => {
                memory.version = None;
                Err(error)
            }
            Ok(next) => Ok(next),
        }
    }

    /// What follows an error of the API server.
    pub fn failed(&self, error: &ObjectError) -> Next {
        if !error.is_stale() {
            self.metrics.broken_turn();
            log::warn!("{}", chain(error));
        }
        Next::requeue(RETRY)
    }

    async fn turn(&self, key: &Key, cached: &BareMetalHost, memory: &mut Memory) -> Result<Next, ObjectError> {
        let mut host = if memory.version.is_some() && memory.version == cached.metadata.resource_version {
            cached.clone()
        } else {
            let Some(host) = self.executor.objects.get(&key.0, &key.1).await? else {
                self.forget(key);
                return Ok(Next::await_change());
            };
            host
        };
        memory.version.clone_from(&host.metadata.resource_version);
        for _ in 0..DECISIONS {
            let known = self.look(&host, memory).await?;
            let (known, outcome) = self.decided(&host, known);
            match self.follow(&mut host, memory, &known, outcome).await? {
                Flow::Decide => {}
                Flow::Rest(next) => return Ok(next),
            }
        }
        log::warn!("BareMetalHost `{}/{}` is decided on without an end; it is left alone for a while", key.0, key.1);
        Ok(Next::requeue(LOOPING))
    }

    /// A slot is taken only for what needs one.
    fn decided(&self, host: &BareMetalHost, mut known: Known) -> (Known, Outcome) {
        known.facts.slot = Slot::Held;
        let outcome = decide(host, &known.facts);
        if !outcome.takes_slot() || exempt(host) {
            return (known, outcome);
        }
        known.facts.slot = self.slots.ask(&host.key());
        if known.facts.slot == Slot::None {
            let cleans =
                host.state() == ProvisioningState::Deprovisioning || host.metadata.deletion_timestamp.is_some();
            self.metrics.delayed(&host.key(), cleans);
        }
        let outcome = decide(host, &known.facts);
        (known, outcome)
    }

    /// Writes what was decided, then does it, then what came of it, until something is to be decided anew.
    async fn follow(
        &self,
        host: &mut BareMetalHost,
        memory: &mut Memory,
        known: &Known,
        mut outcome: Outcome,
    ) -> Result<Flow, ObjectError> {
        loop {
            self.write(host, memory, known, &outcome).await?;
            match outcome.step {
                Step::Transition(_) => {
                    memory.scratch = Scratch::default();
                    return Ok(Flow::Decide);
                }
                Step::Again => return Ok(Flow::Decide),
                Step::Wait { reason, until } => {
                    // Power that is as wanted needs nobody to ask how the change went.
                    if matches!(reason, WaitReason::Steady | WaitReason::HeldOff(_)) {
                        memory.scratch = Scratch::default();
                    }
                    self.settle(host, &reason);
                    return Ok(Flow::Rest(rest(known.facts.now, until)));
                }
                Step::Deleted => {
                    self.executor.objects.release(host).await?;
                    self.executor.objects.let_go(host, FINALIZER).await?;
                    self.forget(&host.key());
                    return Ok(Flow::Rest(Next::await_change()));
                }
                Step::Act(action) => outcome = self.act(host, memory, known, &action).await?,
            }
        }
    }

    async fn act(
        &self,
        host: &mut BareMetalHost,
        memory: &mut Memory,
        known: &Known,
        action: &Action,
    ) -> Result<Outcome, ObjectError> {
        let mut done = match action {
            Action::RestoreStatus
            | Action::SaveHardwareDetails
            | Action::AddFinalizer
            | Action::RemoveAnnotation(_) => self.change_object(host, memory, action).await?,
            _ => {
                let node = known.node.as_ref();
                if *action == Action::Register && node.is_none() {
                    self.metrics.unregistered();
                }
                let boots = matches!(action, Action::Inspect { .. } | Action::Provision { .. } | Action::Deprovision);
                let lost =
                    boots && !memory.begun_anew && node.is_some_and(|node| self.is_lost(host, node, known.facts.now));
                if matches!(action, Action::PowerOff(_) | Action::Reboot(_)) {
                    for name in annotations::reboots(host).invalid {
                        let what = format!("`{name}` is no JSON object; it asks for a soft reboot");
                        self.tell(host, &HostEvent::new(HostReason::InvalidAnnotationValue, what)).await;
                    }
                }
                let mut job = Job { host, node, bmc: known.bmc.as_ref(), scratch: &mut memory.scratch, lost };
                self.executor.act(&mut job, action).await?
            }
        };
        let mut report = done.report.take().unwrap_or(Report::Done);
        if *action == Action::Register
            && report == Report::Done
            && let Some(why) = self.refusal(host, known).await?
        {
            report = Report::Failed(why);
            done.told.retain(|told| told.reason != HostReason::BmcAccessValidated);
        }
        if let Report::Failed(why) = &mut report
            && pulses::goes_by_bmc(action)
            && let Some(cause) = self.cause(host, known).await?
        {
            *why = format!("{why}; {cause}");
        }
        if *action == Action::Register && report == Report::Done {
            memory.ports = None;
        }
        for told in &done.told {
            match told.reason {
                HostReason::PowerOn => self.metrics.power(&host.key(), true),
                HostReason::PowerOff => self.metrics.power(&host.key(), false),
                HostReason::RamdiskLost => memory.begun_anew = true,
                _ => {}
            }
            self.tell(host, told).await;
        }
        if done.rebooted {
            self.remove_reboot(host, memory).await?;
        }
        if matches!((&report, action), (Report::Failed(_), Action::Prepare | Action::Service)) {
            self.executor.firmware.failed(host);
        }
        let concluded = conclude(host, &known.facts, action, &report);
        self.metrics.did(action, &report, &concluded.step);
        Ok(Outcome { changes: [done.learned, concluded.changes].concat(), step: concluded.step })
    }

    /// What of its BMC something that failed may come of.
    async fn cause(&self, host: &BareMetalHost, known: &Known) -> Result<Option<String>, ObjectError> {
        let target = self.bmc_of(host, known).await?;
        Ok(self.pulses.cause(&host.key(), target.as_ref()).await)
    }

    /// What the host's BMC has against new credentials that Ironic took without trying them, as it does for a node that
    /// it has tried before.
    async fn refusal(&self, host: &BareMetalHost, known: &Known) -> Result<Option<String>, ObjectError> {
        let untried = known.node.as_ref().is_some_and(|node| node.provision_state.is_tried());
        let changed = |status: &BareMetalHostStatus| status.good_credentials.is_some() && has_new_credentials(status);
        if !untried || !host.status.as_ref().is_some_and(changed) {
            return Ok(None);
        }
        match self.bmc_of(host, known).await? {
            Some(target) => Ok(self.pulses.refusal(&target).await),
            None => Ok(None),
        }
    }

    async fn bmc_of(&self, host: &BareMetalHost, known: &Known) -> Result<Option<Target>, ObjectError> {
        let authority = self.executor.objects.bmc_authority(host).await?;
        let credentials = known.bmc.as_ref().map(|(_, credentials)| credentials);
        Ok(credentials.and_then(|credentials| pulses::target(host, credentials, authority.as_deref())))
    }

    /// What is done to the host's own object.
    async fn change_object(
        &self,
        host: &mut BareMetalHost,
        memory: &mut Memory,
        action: &Action,
    ) -> Result<Done, ObjectError> {
        let objects = &self.executor.objects;
        let changed = match action {
            Action::AddFinalizer => objects.hold(host, FINALIZER).await?,
            Action::RemoveAnnotation(name) => {
                objects.merge_metadata(host, json!({"annotations": {*name: null}})).await?
            }
            Action::RestoreStatus => {
                if let Ok(mut status) = annotations::status(host.annotation(STATUS).unwrap_or_default()) {
                    let mut with = host.clone();
                    // It is moved beside the host, and is what ports are made of.
                    if let Some(found) = objects.hardware(host).await? {
                        status.hardware = Some(found);
                    }
                    with.status = Some(status);
                    *host = objects.write_status(&with).await?;
                }
                objects.merge_metadata(host, json!({"annotations": {STATUS: null}})).await?
            }
            Action::SaveHardwareDetails => {
                let text = host.annotation(HARDWARE_DETAILS).unwrap_or_default().to_owned();
                if let Ok(details) = serde_json::from_str(&text) {
                    objects.save_hardware(host, &details).await?;
                    let mut with = host.clone();
                    with.status.get_or_insert_default().hardware = Some(details);
                    *host = objects.write_status(&with).await?;
                } else {
                    let why = format!("`{HARDWARE_DETAILS}` holds no hardware details");
                    self.tell(host, &HostEvent::new(HostReason::InvalidAnnotationValue, why)).await;
                }
                objects.merge_metadata(host, json!({"annotations": {HARDWARE_DETAILS: null}})).await?
            }
            other => unreachable!("{other:?} is Ironic's"),
        };
        *host = changed;
        memory.version.clone_from(&host.metadata.resource_version);
        Ok(Done::default())
    }

    /// The one-time reboot was acted on, or is needless. What clients hold is theirs to remove.
    async fn remove_reboot(&self, host: &mut BareMetalHost, memory: &mut Memory) -> Result<(), ObjectError> {
        if host.annotation(REBOOT).is_none() {
            return Ok(());
        }
        *host = self.executor.objects.merge_metadata(host, json!({"annotations": {REBOOT: null}})).await?;
        memory.version.clone_from(&host.metadata.resource_version);
        Ok(())
    }

    /// The status that an outcome leads to, when it is another one.
    async fn write(
        &self,
        host: &mut BareMetalHost,
        memory: &mut Memory,
        known: &Known,
        outcome: &Outcome,
    ) -> Result<(), ObjectError> {
        // A host that leaves has nobody left to read it; before the finalizer is there, nothing may be known of it.
        if matches!(outcome.step, Step::Deleted | Step::Act(Action::AddFinalizer | Action::RestoreStatus)) {
            return Ok(());
        }
        let (before, now) = (host.status.clone(), known.facts.now);
        let mut status = apply(host, outcome, now);
        let shown = known.node.as_ref().and_then(|node| self.shown(host, node, now));
        let reached = known.node.as_ref().map(tell::reached);
        let seen = tell::Seen { shown, bmc: self.pulses.verdict(&host.key()), reached };
        status.conditions = Some(tell::conditions(host, &status, outcome, &seen, now));
        if before.as_ref() == Some(&status) {
            return Ok(());
        }
        let before = before.unwrap_or_default();
        // Only the words differ: they are written with the next change.
        let quiet = matches!(outcome.step, Step::Act(_) | Step::Again) && outcome.changes.is_empty();
        if quiet {
            return Ok(());
        }
        self.metrics.changed(&host.key(), &before, &status);
        let mut with = host.clone();
        with.status = Some(status);
        *host = self.executor.objects.write_status(&with).await?;
        memory.version.clone_from(&host.metadata.resource_version);
        for (kind, told) in tell::errors(outcome) {
            self.metrics.error(kind);
            self.tell(host, &told).await;
        }
        if outcome.changes.contains(&Change::ProvisioningFailed) {
            log::info!("provisioning of BareMetalHost `{}/{}` failed", namespace(host), host.name_any());
        }
        Ok(())
    }

    /// How far a host is that Ironic is at work with, by its signs of life.
    fn shown(&self, host: &BareMetalHost, node: &Node, now: Timestamp) -> Option<String> {
        Some(signs::look(host, node, self.signs.table().as_deref(), now)?.sentence(node))
    }

    /// Whether its ramdisk is waited for in vain, since the box was away.
    fn is_lost(&self, host: &BareMetalHost, node: &Node, now: Timestamp) -> bool {
        signs::is_lost(host, node, self.signs.table().as_deref(), now, (self.since, self.executor.pace.silence))
    }

    /// Slots are for those that work: others get this one.
    fn settle(&self, host: &BareMetalHost, reason: &WaitReason) {
        let works = matches!(
            reason,
            WaitReason::Working(Action::Inspect { .. } | Action::Provision { .. } | Action::Deprovision)
        );
        let unclear = matches!(
            reason,
            WaitReason::IronicAway(_)
                | WaitReason::IronicBusy
                | WaitReason::NoSlot
                | WaitReason::Working(Action::Register)
        );
        self.metrics.waits(reason);
        if !works && !unclear {
            self.slots.release(&host.key());
        }
    }

    async fn tell(&self, host: &BareMetalHost, told: &HostEvent) {
        self.tell_of(&host.object_ref(&()), told).await;
    }

    pub(super) async fn tell_of(&self, about: &ObjectReference, told: &HostEvent) {
        told.publish(&self.recorder, about).await;
    }
}

/// Whether a host is at work in a slot. What failed and is not tried yet waits for one; while its disks are cleaned after
/// that it has one, though the error is still told.
fn has_slot(host: &BareMetalHost) -> bool {
    use agent_api::metal3::OperationalStatus::{Delayed, Detached};
    let runs = matches!(
        host.state(),
        ProvisioningState::Inspecting | ProvisioningState::Provisioning | ProvisioningState::Deprovisioning
    );
    let idle = host
        .status
        .as_ref()
        .is_none_or(|status| matches!(status.operational_status, Delayed | Detached) || status.error_count > 0);
    runs && !idle && !exempt(host)
}

/// Hosts that boot from virtual media take no slot.
fn exempt(host: &BareMetalHost) -> bool {
    let address = host.spec.bmc.as_ref().and_then(|bmc| bmc.address.parse::<BmcAddress>().ok());
    address.is_some_and(|address| address.driver.uses_virtual_media())
}

/// Spreads waits: the same for one error of one host, so that a wait does not move each time it is looked at.
pub(super) fn chance(host: &BareMetalHost) -> f64 {
    let mut hasher = DefaultHasher::new();
    host.metadata.uid.hash(&mut hasher);
    host.status.as_ref().map(|status| status.error_count).hash(&mut hasher);
    f64::from(u32::try_from(hasher.finish() & 0xffff).unwrap_or_default()) / f64::from(0xffff_u32)
}

fn rest(now: Timestamp, until: Option<Timestamp>) -> Next {
    let Some(until) = until else { return Next::await_change() };
    let pause = Duration::try_from(until.duration_since(now)).unwrap_or_default();
    Next::requeue(pause.max(Duration::from_millis(10)))
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::ProvisioningState;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::tests::host;
    use super::has_slot;

    #[rstest]
    #[case::at_work(ProvisioningState::Inspecting, json!({}), true)]
    #[case::waits_for_one(ProvisioningState::Inspecting, json!({"operationalStatus": "delayed"}), false)]
    #[case::failed(ProvisioningState::Inspecting, json!({"operationalStatus": "error", "errorType": "inspection error", "errorCount": 1}), false)]
    #[case::cleaned_after_a_failure(
        ProvisioningState::Deprovisioning,
        json!({"operationalStatus": "error", "errorType": "provisioning error", "errorCount": 0}),
        true
    )]
    #[case::nothing_is_done(ProvisioningState::Available, json!({}), false)]
    fn a_restarted_controller_counts_who_is_at_work(
        #[case] state: ProvisioningState,
        #[case] status: Value,
        #[case] has: bool,
    ) {
        assert_eq!(has_slot(&host(state, &json!({"status": status}))), has);
        let media = json!({"status": status, "spec": {"bmc": {"address": "redfish-virtualmedia://10.0.0.1"}}});
        assert!(!has_slot(&host(state, &media)));
    }
}
