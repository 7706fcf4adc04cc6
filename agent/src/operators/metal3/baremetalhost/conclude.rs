//! What follows from what came of an action.

use agent_api::metal3::annotations::{DETACHED, INSPECT, REBOOT};
use agent_api::metal3::{BareMetalHost, BareMetalHostStatus, ErrorType, OperationalStatus, ProvisioningState};
use jiff::SignedDuration;

use super::decide::{BmcSecret, Facts, PATIENCE, is_noted, version};
use super::outcome::{Action, Change, Outcome, Step, WaitReason};
use super::raid;
use crate::operators::kit::backoff;

/// Until it is looked again for what is missing.
const MISSING: SignedDuration = SignedDuration::from_secs(30);
/// Until a host is looked at again whose ramdisk is being made.
const MADE: SignedDuration = SignedDuration::from_mins(5);
/// Until a detached host is looked at again.
const IDLE: SignedDuration = SignedDuration::from_secs(600);

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// It goes on; when to ask again.
    Continues(SignedDuration),
    /// It is done.
    Done,
    /// It failed, in Ironic's words.
    Failed(String),
    /// It cannot be begun before somebody has made something; what that is.
    Waits(String),
    /// It cannot be begun; what is missing, which nothing of the host's was done for.
    NotYet(String),
    /// Ironic does not know the host.
    Unknown,
}

/// What follows.
pub fn conclude(host: &BareMetalHost, facts: &Facts, action: &Action, report: &Report) -> Outcome {
    let status = host.status.clone().unwrap_or_default();
    match report {
        Report::Continues(pause) => {
            let mut changes: Vec<Change> = going_on(&status).into_iter().collect();
            // Over the error of an earlier try.
            if *action == Action::Service && !changes.is_empty() {
                changes.push(Change::Operational(OperationalStatus::Servicing));
            }
            Outcome::wait(WaitReason::Working(action.clone()), facts.after(*pause)).with(changes)
        }
        Report::Done => done(host, facts, action),
        Report::Failed(message) => failed(host, &status, facts, action, message),
        Report::Waits(what) => Outcome::wait(WaitReason::NotYet(what.clone()), facts.after(MADE)),
        Report::NotYet(missing) => {
            let note = Change::Note(OperationalStatus::Error, missing.clone());
            let told = is_noted(&status) && status.error_message == *missing;
            Outcome::wait(WaitReason::NotYet(missing.clone()), facts.after(MISSING)).with((!told).then_some(note))
        }
        Report::Unknown => unknown(host, facts, action),
    }
}

/// An error that is being tried again is not one any more, except where it leads to another state, and why provisioning
/// failed: that stays to be read while the disks are cleaned after it. What was missing is there.
fn going_on(status: &BareMetalHostStatus) -> Option<Change> {
    if is_noted(status) {
        return Some(Change::ClearError);
    }
    let cleaned_after = status.provisioning.state == ProvisioningState::Deprovisioning
        && status.provisioning_fail_count > 0
        && status.error_count == 0;
    let kept =
        status.provisioning.state == ProvisioningState::Provisioning || cleaned_after || status.error_type.is_none();
    (!kept).then_some(Change::ClearError)
}

fn done(host: &BareMetalHost, facts: &Facts, action: &Action) -> Outcome {
    let state = host.state();
    let deleting = host.metadata.deletion_timestamp.is_some();
    let success = [Change::ClearError, Change::ResetCount];
    match action {
        Action::RestoreStatus
        | Action::SaveHardwareDetails
        | Action::AddFinalizer
        | Action::RemoveAnnotation(_)
        | Action::Adopt
        | Action::PowerOff(_) => Outcome::only(Step::Again),
        Action::Register => {
            let good = match &facts.credentials {
                BmcSecret::Found(secret) => Some(Change::Good(version(secret))),
                BmcSecret::Missing(_) | BmcSecret::Bad(_) => None,
            };
            Outcome::only(Step::Again).with(success).with([Change::EndRegister]).with(good)
        }
        // The annotation has done its work once the host was inspected.
        Action::Inspect { again: true, .. } => Outcome::act(Action::RemoveAnnotation(INSPECT)).with(success),
        Action::Inspect { again: false, .. } => Outcome::to(ProvisioningState::Preparing).with(success),
        Action::Prepare => Outcome::to(ProvisioningState::Available).with(success),
        Action::Provision { .. } => {
            Outcome::to(ProvisioningState::Provisioned).with(success).with([Change::Provisioned])
        }
        Action::PowerOn => Outcome::only(Step::Again).with(success).with([Change::Powered(true)]),
        Action::Reboot(_) => Outcome::act(Action::RemoveAnnotation(REBOOT)).with(success),
        // A host that may not be powered off was rebooted by it; of others the annotation is gone already.
        Action::Service if host.spec.disable_power_off == Some(true) && host.annotation(REBOOT).is_some() => {
            Outcome::act(Action::RemoveAnnotation(REBOOT)).with(success)
        }
        Action::Service => Outcome::only(Step::Again).with(success),
        Action::Deprovision => {
            let next = if deleting { ProvisioningState::PoweringOffBeforeDelete } else { ProvisioningState::Available };
            // Why provisioning failed stays to be read until it is tried again.
            let why = host.status.as_ref().is_some_and(|status| {
                status.error_type == Some(ErrorType::Provisioning) && status.provisioning_fail_count > 0
            });
            let success = if why { vec![Change::ResetCount] } else { success.to_vec() };
            Outcome::to(next).with(success).with([Change::Unprovisioned])
        }
        Action::PowerOffForGood => {
            Outcome::to(ProvisioningState::Deleting).with(success).with([Change::Powered(false)])
        }
        Action::Detach if state == ProvisioningState::Deleting => Outcome::only(Step::Deleted),
        Action::Detach => Outcome::wait(WaitReason::Detached, facts.after(IDLE))
            .with(success)
            .with([Change::Operational(OperationalStatus::Detached)]),
        Action::Forget => Outcome::only(Step::Deleted),
    }
}

fn failed(
    host: &BareMetalHost,
    status: &BareMetalHostStatus,
    facts: &Facts,
    action: &Action,
    message: &str,
) -> Outcome {
    let errors = status.error_count + 1;
    let gives_up = host.metadata.deletion_timestamp.is_some() && errors > PATIENCE;
    if gives_up && *action == Action::Deprovision {
        return Outcome::to(ProvisioningState::PoweringOffBeforeDelete).with([Change::ResetCount]);
    }
    if gives_up && matches!(action, Action::PowerOffForGood | Action::Register) {
        return Outcome::to(ProvisioningState::Deleting).with([Change::ResetCount]);
    }
    // Somebody wants it to be let go, whatever Ironic keeps of it.
    if *action == Action::Forget && host.annotation(DETACHED).is_some() {
        return Outcome::only(Step::Deleted);
    }
    let kind = kind(action, host.state());
    if matches!(action, Action::Provision { .. }) {
        // On to deprovisioning, which the next decision finds by the error.
        let error = Change::Error(kind, of_image(host, message));
        return Outcome::only(Step::Again).with([error, Change::ProvisioningFailed]);
    }
    let error = Change::Error(kind, message.to_owned());
    let until = backoff::until(facts.now, errors, facts.chance);
    // Volumes that were to be others are neither the old ones nor the new.
    let (spec, made) = (host.spec.raid.as_ref(), status.provisioning.raid.as_ref());
    let raid = *action == Action::Prepare && raid::is_making(spec, made);
    Outcome::wait(WaitReason::Failed(kind), Some(until)).with([error]).with(raid.then_some(Change::ForgetRaid))
}

/// A failure with what was being written: it is the first thing to look at.
fn of_image(host: &BareMetalHost, message: &str) -> String {
    let Some(image) = &host.spec.image else { return message.to_owned() };
    let checksum = image.checksum.as_deref().unwrap_or("none");
    format!("{message} (image {}, checksum {checksum})", image.url)
}

/// What an action's failure is called.
const fn kind(action: &Action, state: ProvisioningState) -> ErrorType {
    match action {
        Action::Register | Action::Adopt => match state {
            ProvisioningState::Provisioned | ProvisioningState::ExternallyProvisioned => {
                ErrorType::ProvisionedRegistration
            }
            ProvisioningState::None
            | ProvisioningState::Unmanaged
            | ProvisioningState::Registering
            | ProvisioningState::MatchProfile
            | ProvisioningState::Inspecting
            | ProvisioningState::Preparing
            | ProvisioningState::Ready
            | ProvisioningState::Available
            | ProvisioningState::Provisioning
            | ProvisioningState::Deprovisioning
            | ProvisioningState::PoweringOffBeforeDelete
            | ProvisioningState::Deleting => ErrorType::Registration,
        },
        Action::RestoreStatus | Action::SaveHardwareDetails | Action::AddFinalizer | Action::RemoveAnnotation(_) => {
            ErrorType::Registration
        }
        Action::Inspect { .. } => ErrorType::Inspection,
        Action::Prepare => ErrorType::Preparation,
        Action::Service => ErrorType::Servicing,
        Action::Provision { .. } | Action::Deprovision | Action::Forget => ErrorType::Provisioning,
        Action::PowerOn | Action::PowerOff(_) | Action::Reboot(_) | Action::PowerOffForGood => {
            ErrorType::PowerManagement
        }
        Action::Detach => ErrorType::Detach,
    }
}

/// A host that Ironic does not know is registered again, or let go when it is to be deleted and cannot be registered.
fn unknown(host: &BareMetalHost, facts: &Facts, action: &Action) -> Outcome {
    let has_credentials = matches!(facts.credentials, BmcSecret::Found(_));
    match action {
        Action::Forget => Outcome::only(Step::Deleted),
        Action::Detach => done(host, facts, action),
        Action::Deprovision | Action::PowerOffForGood if !has_credentials => Outcome::to(ProvisioningState::Deleting),
        Action::RestoreStatus
        | Action::SaveHardwareDetails
        | Action::AddFinalizer
        | Action::RemoveAnnotation(_)
        | Action::Register
        | Action::Inspect { .. }
        | Action::Prepare
        | Action::Adopt
        | Action::Service
        | Action::Provision { .. }
        | Action::PowerOn
        | Action::PowerOff(_)
        | Action::Reboot(_)
        | Action::Deprovision
        | Action::PowerOffForGood => Outcome::only(Step::Again),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::tests::{facts, failed, host};
    use super::{Action, Change, ProvisioningState, Report, conclude};

    /// #194.
    #[test]
    fn why_provisioning_failed_is_told_while_the_disks_are_cleaned() {
        let goes_on = Report::Continues(SignedDuration::from_secs(3));
        let mut fields = failed("provisioning error", 0);
        fields["status"]["provisioningFailCount"] = 1.into();
        let cleaned = host(ProvisioningState::Deprovisioning, &fields);
        assert_eq!(conclude(&cleaned, &facts(), &Action::Deprovision, &goes_on).changes, []);
        // An error of the cleaning itself is over when it is tried again.
        fields["status"]["errorCount"] = 1.into();
        let again = host(ProvisioningState::Deprovisioning, &fields);
        assert_eq!(conclude(&again, &facts(), &Action::Deprovision, &goes_on).changes, [Change::ClearError]);
    }
}
