//! What the user reads of a host: conditions of its status, and Kubernetes events with the reasons that metal3's operator
//! gives them.
//!
//! ```text
//! Manageable                Ironic knows the host, its BMC let us in, and Ironic has not lost it since
//! AvailableForProvisioning  it may be given an image
//! Provisioned               it has one
//! Ready                     it is as it shall be
//! Progressing               something is being done, how far it is by the host's last sign of life, or why nothing is;
//!                           and until when
//! Healthy                   what is wrong; `observedGeneration` is that of the spec which was tried
//! BMCAnswers                what its BMC says when it is asked, as long as something waits for it
//! ```

use agent_api::host_story::BMC_ANSWERS;
use agent_api::metal3::annotations::{DETACHED, PAUSED, STATUS};
use agent_api::metal3::{
    BareMetalHost, BareMetalHostStatus, Condition, ConditionStatus, ErrorType, OperationalStatus, ProvisioningState,
    Time,
};
use jiff::Timestamp;

use super::outcome::{Action, Change, Outcome, Step, WaitReason};
use crate::bmc::rehearsal::Trouble;
use crate::ironic::Node;
use crate::operators::kit::conditions::merge;
use crate::operators::kit::{Event, NewCondition, Reason};
use crate::signs;

/// The condition that tells of errors.
const HEALTHY: &str = "Healthy";
/// Kind of the condition that tells what is being done.
const PROGRESSING: &str = "Progressing";
/// Kind of the condition that tells whether the host can be worked with.
const MANAGEABLE: &str = "Manageable";
/// Why it cannot, in metal3's word, when Ironic has lost its BMC.
const POWER_FAILURE: &str = "PowerFailure";

/// Reason of an event of a host, in the words of metal3's operator where it has the same event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostReason {
    /// Ironic knows the host now.
    Registered,
    /// Its BMC lets us in.
    BmcAccessValidated,
    /// Inspection has begun.
    InspectionStarted,
    /// What is in the host is known.
    InspectionComplete,
    /// RAID, BIOS or firmware are being changed.
    PreparationStarted,
    /// The image is being written.
    ProvisioningStarted,
    /// The host has its image.
    ProvisioningComplete,
    /// The image is being taken away.
    DeprovisioningStarted,
    /// The host has no image.
    DeprovisioningComplete,
    /// BIOS or firmware of a host in use are being changed.
    ServicingStarted,
    /// That is over.
    ServicingComplete,
    /// The host was powered on.
    PowerOn,
    /// The host was powered off.
    PowerOff,
    /// The host was rebooted.
    Reboot,
    /// It is powered on once its drive is as its `DataImage` asks for.
    WaitingForDataImage,
    /// An annotation is not written as it should be.
    InvalidAnnotationValue,
    /// A firmware object asks for what cannot be.
    ValidationFailed,
    /// Nothing was heard of a ramdisk since the box was restarted.
    RamdiskLost,
    /// Ironic does not go on with a node that it works with.
    NodeAbandoned,
    /// Something failed.
    Failed(ErrorType),
}

impl Reason for HostReason {
    fn word(self) -> &'static str {
        match self {
            Self::Registered => "Registered",
            Self::BmcAccessValidated => "BMCAccessValidated",
            Self::InspectionStarted => "InspectionStarted",
            Self::InspectionComplete => "InspectionComplete",
            Self::PreparationStarted => "PreparationStarted",
            Self::ProvisioningStarted => "ProvisioningStarted",
            Self::ProvisioningComplete => "ProvisioningComplete",
            Self::DeprovisioningStarted => "DeprovisioningStarted",
            Self::DeprovisioningComplete => "DeprovisioningComplete",
            Self::ServicingStarted => "ServicingStarted",
            Self::ServicingComplete => "ServicingComplete",
            Self::PowerOn => "PowerOn",
            Self::PowerOff => "PowerOff",
            Self::Reboot => "Reboot",
            Self::WaitingForDataImage => "WaitingForDataImage",
            Self::InvalidAnnotationValue => "InvalidAnnotationValue",
            Self::ValidationFailed => "ValidationFailed",
            Self::RamdiskLost => "RamdiskLost",
            Self::NodeAbandoned => "NodeAbandoned",
            Self::Failed(error) => word(error),
        }
    }

    fn is_warning(self) -> bool {
        match self {
            Self::InvalidAnnotationValue
            | Self::ValidationFailed
            | Self::RamdiskLost
            | Self::NodeAbandoned
            | Self::Failed(_) => true,
            Self::Registered
            | Self::BmcAccessValidated
            | Self::InspectionStarted
            | Self::InspectionComplete
            | Self::PreparationStarted
            | Self::ProvisioningStarted
            | Self::ProvisioningComplete
            | Self::DeprovisioningStarted
            | Self::DeprovisioningComplete
            | Self::ServicingStarted
            | Self::ServicingComplete
            | Self::PowerOn
            | Self::PowerOff
            | Self::Reboot
            | Self::WaitingForDataImage => false,
        }
    }
}

/// An event of a host.
pub type HostEvent = Event<HostReason>;

/// One word for an error.
pub const fn word(error: ErrorType) -> &'static str {
    match error {
        ErrorType::ProvisionedRegistration => "ProvisionedRegistrationError",
        ErrorType::Registration => "RegistrationError",
        ErrorType::Inspection => "InspectionError",
        ErrorType::Preparation => "PreparationError",
        ErrorType::Provisioning => "ProvisioningError",
        ErrorType::PowerManagement => "PowerManagementError",
        ErrorType::Detach => "DetachError",
        ErrorType::Servicing => "ServicingError",
    }
}

/// Errors that an outcome tells of.
pub fn errors(outcome: &Outcome) -> impl Iterator<Item = (ErrorType, HostEvent)> {
    outcome.changes.iter().filter_map(|change| match change {
        Change::Error(kind, message) => Some((*kind, HostEvent::new(HostReason::Failed(*kind), message.clone()))),
        _ => None,
    })
}

/// `metadata.generation` that the host's error is about.
pub fn failed_generation(host: &BareMetalHost) -> Option<i64> {
    let conditions = host.status.as_ref()?.conditions.as_ref()?;
    let unhealthy = conditions.iter().find(|it| it.kind == HEALTHY && it.status == ConditionStatus::False)?;
    unhealthy.observed_generation
}

/// What is seen of a host besides what Ironic says.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How far what is done is, as the host's signs of life show it.
    pub shown: Option<String>,
    /// What its BMC answers, as long as something waits for it.
    pub bmc: Option<Result<(), Trouble>>,
    /// Whether Ironic reaches its BMC, or why not; nothing when Ironic did not tell.
    pub reached: Option<Result<(), String>>,
}

/// Whether Ironic reaches a node's BMC: one that does not answer for some minutes it gives up, and asks seldom.
pub fn reached(node: &Node) -> Result<(), String> {
    let sign = signs::node::bmc(node);
    if node.fault.as_deref() != Some(signs::node::LOST) {
        return Ok(());
    }
    Err(sign.problem.unwrap_or_else(|| "it does not say why".to_owned()))
}

impl Seen {
    /// What is wrong with the BMC comes before how far the host is without it.
    fn words(&self, asked: &str) -> String {
        let shown = self.shown.as_deref().unwrap_or(asked);
        match &self.bmc {
            Some(Err(trouble)) => format!("{trouble}; {shown}"),
            Some(Ok(())) | None => shown.to_owned(),
        }
    }
}

/// Conditions of a status that an outcome led to. `host`: as it was before.
pub fn conditions(
    host: &BareMetalHost,
    status: &BareMetalHostStatus,
    outcome: &Outcome,
    seen: &Seen,
    now: Timestamp,
) -> Vec<Condition> {
    let before = host.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    // What is waited for is what was waited for before Ironic had no time to say how far it is.
    if matches!(outcome.step, Step::Wait { reason: WaitReason::IronicBusy, .. }) && !before.is_empty() {
        return before;
    }
    let state = status.provisioning.state;
    let fine = status.error_type.is_none() && status.operational_status != OperationalStatus::Error;
    let tried = errors(outcome).next().is_some();
    // An error is about the spec that was tried, whatever the spec is now.
    let kept = before.iter().find(|it| it.kind == HEALTHY && it.status == ConditionStatus::False && !tried && !fine);
    let generation = |kind: &str| match kept {
        Some(kept) if kind == HEALTHY => kept.observed_generation,
        Some(_) | None => host.metadata.generation,
    };
    let lost = lost(status, seen, &before);
    let all = [
        manageable(state, status, lost.as_deref()),
        available(host, status, fine, lost.as_deref()),
        provisioned(state),
        ready(outcome, fine, lost.as_deref(), &before),
        progressing(outcome, seen, lost.as_deref(), &before),
        healthy(outcome, status, fine),
    ];
    let all = all.into_iter().chain(bmc_answers(seen)).map(|(kind, holds, reason, message)| {
        let generation = generation(kind);
        NewCondition { kind, holds, reason, message, generation }
    });
    let mut all = merge(Some(&before), all, now);
    // What it answered when something waited for it says nothing about now.
    all.retain(|it| it.kind != BMC_ANSWERS || seen.bmc.is_some());
    // What is done now is told with the time since when it is done, not with that of what was done before it.
    let told_anew = |new: &Condition| {
        before.iter().any(|old| old.kind == new.kind && (old.reason != new.reason || old.message != new.message))
    };
    for progressing in all.iter_mut().filter(|it| it.kind == PROGRESSING && told_anew(it)) {
        progressing.last_transition_time = Time(now);
    }
    all
}

type Line = (&'static str, bool, &'static str, String);

/// Why Ironic does not reach the host's BMC any more. What it told last stays told until it tells something else.
fn lost(status: &BareMetalHostStatus, seen: &Seen, before: &[Condition]) -> Option<String> {
    let without = matches!(
        status.provisioning.state,
        ProvisioningState::None
            | ProvisioningState::Unmanaged
            | ProvisioningState::Registering
            | ProvisioningState::Deleting
    );
    if without || status.operational_status == OperationalStatus::Detached {
        return None;
    }
    if let Some(reached) = &seen.reached {
        return reached.as_ref().err().map(|why| format!("Ironic does not reach the host's BMC: {why}"));
    }
    let told = before.iter().find(|it| it.kind == MANAGEABLE && it.reason == POWER_FAILURE);
    told.map(|told| told.message.clone())
}

fn manageable(state: ProvisioningState, status: &BareMetalHostStatus, unreached: Option<&str>) -> Line {
    let known = !status.provisioning.id.is_empty() && status.good_credentials.is_some();
    let lost = matches!(status.error_type, Some(ErrorType::Registration | ErrorType::ProvisionedRegistration));
    if let Some(why) = unreached.filter(|_| !lost) {
        return (MANAGEABLE, false, POWER_FAILURE, why.to_owned());
    }
    let (holds, reason) = match (state, known, lost) {
        (ProvisioningState::None | ProvisioningState::Unmanaged, ..) => (false, "NoBMC"),
        (.., true) => (false, "RegistrationError"),
        (_, true, false) => (true, "Registered"),
        (_, false, false) => (false, "NotRegistered"),
    };
    let message = if lost { status.error_message.clone() } else { String::new() };
    (MANAGEABLE, holds, reason, message)
}

fn available(host: &BareMetalHost, status: &BareMetalHostStatus, fine: bool, lost: Option<&str>) -> Line {
    let kind = "AvailableForProvisioning";
    let there = matches!(status.provisioning.state, ProvisioningState::Available | ProvisioningState::Ready);
    if !there {
        let state = status.provisioning.state.name();
        let state = if state.is_empty() { "new" } else { state };
        return (kind, false, "NotAvailable", format!("the host is {state}"));
    }
    match (&host.spec.consumer_ref, host.metadata.deletion_timestamp.is_some()) {
        (_, true) => (kind, false, "Deleted", String::new()),
        (Some(consumer), _) => {
            let name = consumer.name.as_deref().unwrap_or_default();
            (kind, false, "Consumed", format!("{name} has it"))
        }
        (None, _) if !fine => (kind, false, "Error", status.error_message.clone()),
        (None, _) => match lost {
            Some(why) => (kind, false, POWER_FAILURE, why.to_owned()),
            None => (kind, true, "Available", String::new()),
        },
    }
}

fn provisioned(state: ProvisioningState) -> Line {
    let (holds, reason) = match state {
        ProvisioningState::Provisioned => (true, "Provisioned"),
        ProvisioningState::ExternallyProvisioned => (true, "ExternallyProvisioned"),
        ProvisioningState::Provisioning => (false, "Provisioning"),
        ProvisioningState::Deprovisioning => (false, "Deprovisioning"),
        ProvisioningState::None
        | ProvisioningState::Unmanaged
        | ProvisioningState::Registering
        | ProvisioningState::MatchProfile
        | ProvisioningState::Inspecting
        | ProvisioningState::Preparing
        | ProvisioningState::Ready
        | ProvisioningState::Available
        | ProvisioningState::PoweringOffBeforeDelete
        | ProvisioningState::Deleting => (false, "NotProvisioned"),
    };
    ("Provisioned", holds, reason, String::new())
}

/// A step on the way says nothing new: what was told stays.
fn ready(outcome: &Outcome, fine: bool, lost: Option<&str>, before: &[Condition]) -> Line {
    let kind = "Ready";
    if let Some(why) = lost.filter(|_| fine) {
        return (kind, false, POWER_FAILURE, why.to_owned());
    }
    match &outcome.step {
        Step::Wait { reason: WaitReason::Steady, .. } if fine => (kind, true, "Steady", String::new()),
        Step::Wait { reason, .. } => (kind, false, told(reason).0, String::new()),
        Step::Transition(_) | Step::Deleted => (kind, false, "Progressing", String::new()),
        Step::Act(_) | Step::Again => {
            let held = before.iter().any(|it| it.kind == kind && it.status == ConditionStatus::True);
            if held && fine {
                (kind, true, "Steady", String::new())
            } else {
                (kind, false, "Progressing", String::new())
            }
        }
    }
}

fn bmc_answers(seen: &Seen) -> Option<Line> {
    Some(match seen.bmc.as_ref()? {
        Ok(()) => (BMC_ANSWERS, true, "Answers", String::new()),
        Err(trouble) => (BMC_ANSWERS, false, trouble.word, trouble.to_string()),
    })
}

fn progressing(outcome: &Outcome, seen: &Seen, lost: Option<&str>, before: &[Condition]) -> Line {
    let kind = PROGRESSING;
    let under_way = |action| {
        let (word, asked) = doing(action);
        (kind, true, word, seen.words(asked))
    };
    match &outcome.step {
        Step::Wait { reason: WaitReason::Working(action), .. } => under_way(action),
        Step::Wait { reason, until } => {
            let (word, mut message) = told(reason);
            if let (WaitReason::PowerUnknown, Some(why)) = (reason, lost) {
                why.clone_into(&mut message);
            }
            // Moments that move with every look would be written with every look.
            if let (WaitReason::Failed(_), Some(until)) = (reason, until) {
                message = format!("tried again at {until:.0}, or at once when the host or its credentials change");
            }
            (kind, false, word, message)
        }
        Step::Transition(next) if next.name().is_empty() => (kind, true, "Transition", String::new()),
        Step::Transition(next) => (kind, true, "Transition", format!("the host is {next} now")),
        Step::Act(action) => match before.iter().find(|it| it.kind == kind) {
            // Written once it is seen to be under way.
            Some(old) if old.status == ConditionStatus::False => (kind, false, "Deciding", String::new()),
            _ => under_way(action),
        },
        Step::Again | Step::Deleted => (kind, true, "Deciding", String::new()),
    }
}

fn healthy(outcome: &Outcome, status: &BareMetalHostStatus, fine: bool) -> Line {
    if fine {
        return (HEALTHY, true, "OK", String::new());
    }
    let reason = match (status.error_type, &outcome.step) {
        (Some(kind), _) => word(kind),
        (None, Step::Wait { reason: WaitReason::IronicAway(_), .. }) => "IronicAway",
        (None, _) => "Waiting",
    };
    (HEALTHY, false, reason, status.error_message.clone())
}

/// One word for what is done, and what is waited for while the host shows nothing of it.
const fn doing(action: &Action) -> (&'static str, &'static str) {
    match action {
        Action::RestoreStatus => ("RestoringStatus", ""),
        Action::SaveHardwareDetails => ("SavingHardwareDetails", ""),
        Action::AddFinalizer | Action::RemoveAnnotation(_) => ("Deciding", ""),
        Action::Register => ("Registering", "Ironic is told of the host, and tries its BMC"),
        Action::Inspect { .. } => ("Inspecting", "Ironic is asked to inspect the host"),
        Action::Prepare => ("Preparing", "Ironic is asked to prepare the host"),
        Action::Adopt => ("Adopting", "Ironic is asked to take the host over as it is"),
        Action::Service => ("Servicing", "Ironic is asked to service the host"),
        Action::Provision { .. } => ("Provisioning", "Ironic is asked to write the host's image"),
        Action::PowerOn => ("PoweringOn", "Ironic is asked to power the host on"),
        Action::PowerOff(_) | Action::PowerOffForGood => ("PoweringOff", "Ironic is asked to power the host off"),
        Action::Reboot(_) => ("Rebooting", "Ironic is asked to restart the host"),
        Action::Deprovision => ("Deprovisioning", "Ironic is asked to take the host's image away"),
        Action::Detach => ("Detaching", "Ironic is asked to forget the host"),
        Action::Forget => ("Deleting", "Ironic is asked to forget the host"),
    }
}

fn told(reason: &WaitReason) -> (&'static str, String) {
    match reason {
        WaitReason::Paused => ("Paused", format!("left alone as long as it has the annotation `{PAUSED}`")),
        WaitReason::NoStatus(why) => (
            "InvalidAnnotationValue",
            format!("the annotation `{STATUS}` holds no status: {why}; hint: mend it, or remove it from a new host"),
        ),
        WaitReason::NoBmc => ("NoBMC", "the host has no BMC".to_owned()),
        WaitReason::NoCredentials(why) => ("NoCredentials", why.clone()),
        WaitReason::BadCredentials(why) => ("BadCredentials", why.clone()),
        WaitReason::IronicAway(why) => ("IronicAway", why.clone()),
        WaitReason::IronicBusy => ("IronicBusy", "Ironic takes its time to answer; it is asked again".to_owned()),
        WaitReason::NoSlot => (
            "Delayed",
            "as many hosts as may be are inspected, provisioned and deprovisioned; this one is queued".to_owned(),
        ),
        WaitReason::Detached => ("Detached", format!("left alone as long as it has the annotation `{DETACHED}`")),
        WaitReason::DetachedDeleteDelayed => {
            ("DeletionDelayed", "the host is deleted once the annotation `detached` is removed".to_owned())
        }
        WaitReason::Failed(kind) => (word(*kind), String::new()),
        WaitReason::GaveUp { tries } => {
            ("GaveUp", format!("provisioning failed {tries} times; hint: a change of `spec` is tried at once"))
        }
        WaitReason::NotYet(missing) => ("Waiting", missing.clone()),
        WaitReason::Working(action) => (doing(action).0, String::new()),
        WaitReason::Steady => ("Steady", String::new()),
        WaitReason::PowerUnknown => (
            "PowerUnknown",
            "the host's BMC has not told yet whether it is powered on; Ironic asks it every minute".to_owned(),
        ),
        WaitReason::HeldOff(clients) => ("HeldOff", format!("held powered off by {}", clients.join(", "))),
    }
}

#[cfg(test)]
#[path = "tell_tests.rs"]
mod tests;
