//! The status that a decision leads to.

use agent_api::metal3::{
    BareMetalHost, BareMetalHostStatus, ErrorType, Nullable, OperationHistory, OperationMetric, OperationalStatus,
    ProvisioningState, Time,
};
use jiff::Timestamp;

use super::outcome::{Change, Outcome, Step};

/// The status after a decision: what is written before the step is done. The same status when nothing changes.
pub fn apply(host: &BareMetalHost, outcome: &Outcome, now: Timestamp) -> BareMetalHostStatus {
    let before = host.status.clone().unwrap_or_default();
    let mut status = before.clone();
    for change in &outcome.changes {
        changed(&mut status, host, change, now);
    }
    if let Step::Transition(next) = outcome.step {
        enter(&mut status, host, next, now);
    }
    if status != before {
        status.last_updated = Some(Time(now));
    }
    status
}

fn changed(status: &mut BareMetalHostStatus, host: &BareMetalHost, change: &Change, now: Timestamp) {
    match change {
        Change::Error(kind, message) => {
            status.error_type = Some(*kind);
            status.error_message.clone_from(message);
            status.error_count += 1;
            status.operational_status = OperationalStatus::Error;
        }
        Change::Note(operational, message) => {
            status.operational_status = *operational;
            status.error_message.clone_from(message);
        }
        Change::ClearError => {
            status.error_type = None;
            status.error_message.clear();
            status.operational_status = OperationalStatus::Ok;
        }
        Change::ResetCount => status.error_count = 0,
        Change::Operational(operational) => status.operational_status = *operational,
        Change::ProvisioningFailed => status.provisioning_fail_count += 1,
        Change::Attempt => {
            if status.last_attempted_image != host.spec.image {
                status.provisioning_fail_count = 0;
            }
            status.last_attempted_image.clone_from(&host.spec.image);
            status.provisioning.root_device_hints.clone_from(&host.spec.root_device_hints);
        }
        Change::ResetTries => status.provisioning_fail_count = 0,
        Change::Provisioned => {
            status.provisioning_fail_count = 0;
            status.provisioning.image.clone_from(&host.spec.image);
            status.provisioning.custom_deploy.clone_from(&host.spec.custom_deploy);
        }
        Change::Unprovisioned => {
            status.provisioning.image = None;
            status.provisioning.custom_deploy = None;
        }
        Change::ForgetSettings => {
            status.provisioning.root_device_hints = None;
            status.provisioning.raid = None;
        }
        Change::ForgetRaid => status.provisioning.raid = None,
        Change::Tried(version) => status.tried_credentials = Some(version.clone()),
        Change::Good(version) => status.good_credentials = Some(version.clone()),
        Change::Powered(on) => status.powered_on = *on,
        Change::BeginRegister => begin(status, ProvisioningState::Registering, now),
        Change::EndRegister => end(status, ProvisioningState::Registering, now),
        Change::Id(id) => status.provisioning.id.clone_from(id),
        Change::Hardware(found) => status.hardware = Some((**found).clone()),
        Change::Prepared(volumes) => {
            status.provisioning.raid = volumes.as_deref().cloned();
            status.provisioning.root_device_hints.clone_from(&host.spec.root_device_hints);
        }
    }
}

fn enter(status: &mut BareMetalHostStatus, host: &BareMetalHost, next: ProvisioningState, now: Timestamp) {
    let last = status.provisioning.state;
    end(status, last, now);
    begin(status, next, now);
    status.provisioning.state = next;
    match next {
        ProvisioningState::Registering | ProvisioningState::Inspecting | ProvisioningState::Provisioning => {
            status.provisioning.boot_mode = Some(host.spec.boot_mode.unwrap_or_default());
        }
        // The error that led there is told until cleaning succeeds; it stops nothing that comes.
        ProvisioningState::Deprovisioning if status.error_type == Some(ErrorType::Provisioning) => {
            status.error_count = 0;
        }
        // Nor does what went wrong before hold up a deletion.
        ProvisioningState::Deprovisioning
        | ProvisioningState::PoweringOffBeforeDelete
        | ProvisioningState::Deleting
            if host.metadata.deletion_timestamp.is_some() =>
        {
            status.error_count = 0;
        }
        ProvisioningState::None
        | ProvisioningState::Unmanaged
        | ProvisioningState::MatchProfile
        | ProvisioningState::Preparing
        | ProvisioningState::Ready
        | ProvisioningState::Available
        | ProvisioningState::Provisioned
        | ProvisioningState::ExternallyProvisioned
        | ProvisioningState::Deprovisioning
        | ProvisioningState::PoweringOffBeforeDelete
        | ProvisioningState::Deleting => {}
    }
}

fn begin(status: &mut BareMetalHostStatus, state: ProvisioningState, now: Timestamp) {
    let history = status.operation_history.get_or_insert_default();
    if let Some(metric) = metric(history, state).filter(|metric| !is_running(metric)) {
        *metric = OperationMetric { start: Some(at(now)), end: Some(Nullable(None)) };
    }
}

fn end(status: &mut BareMetalHostStatus, state: ProvisioningState, now: Timestamp) {
    let history = status.operation_history.get_or_insert_default();
    if let Some(metric) = metric(history, state).filter(|metric| is_running(metric)) {
        metric.end = Some(at(now));
    }
}

/// The times of a state that has some.
fn metric(history: &mut OperationHistory, state: ProvisioningState) -> Option<&mut OperationMetric> {
    let metric = match state {
        ProvisioningState::Registering => &mut history.register,
        ProvisioningState::Inspecting => &mut history.inspect,
        ProvisioningState::Provisioning => &mut history.provision,
        ProvisioningState::Deprovisioning => &mut history.deprovision,
        ProvisioningState::None
        | ProvisioningState::Unmanaged
        | ProvisioningState::MatchProfile
        | ProvisioningState::Preparing
        | ProvisioningState::Ready
        | ProvisioningState::Available
        | ProvisioningState::Provisioned
        | ProvisioningState::ExternallyProvisioned
        | ProvisioningState::PoweringOffBeforeDelete
        | ProvisioningState::Deleting => return None,
    };
    Some(metric.get_or_insert_default())
}

/// Whether it has a start and no end.
fn is_running(metric: &OperationMetric) -> bool {
    moment(metric.start.as_ref()).is_some() && moment(metric.end.as_ref()).is_none()
}

const fn at(now: Timestamp) -> Nullable<Time> {
    Nullable(Some(Time(now)))
}

fn moment(time: Option<&Nullable<Time>>) -> Option<Time> {
    time.and_then(|time| time.0)
}
