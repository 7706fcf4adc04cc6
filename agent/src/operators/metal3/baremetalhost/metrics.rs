//! What is counted, under the names that metal3's operator has.

use agent_api::metal3::{BareMetalHostStatus, ErrorType, OperationMetric};
use metrics_exporter_prometheus::BuildError;

use super::conclude::Report;
use super::outcome::{Action, Step, WaitReason};
use super::tell;
use crate::operators::kit::{Key, metrics};

/// Upper ends of the buckets of durations, in seconds: of registering, and of what boots a server.
const FAST: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const SLOW: &[f64] = &[30.0, 90.0, 180.0, 360.0, 720.0, 1440.0];

/// What takes seconds.
const REGISTER: &str = "metal3_operation_register_duration_seconds";
/// What takes minutes.
const INSPECT: &str = "metal3_operation_inspect_duration_seconds";
/// What takes minutes.
const PROVISION: &str = "metal3_operation_provision_duration_seconds";
/// What takes minutes.
const DEPROVISION: &str = "metal3_operation_deprovision_duration_seconds";

/// Counters that tell by being 0, too. Those of single hosts come with their hosts.
const PLAIN: [&str; 12] = [
    "metal3_credentials_invalid_total",
    "metal3_credentials_missing_total",
    "metal3_credentials_no_management_access_total",
    "metal3_delete_delayed_for_detached_total",
    "metal3_delete_without_deprovisioning_total",
    "metal3_delete_without_powering_off_total",
    "metal3_host_registration_required_total",
    "metal3_host_unmanaged_total",
    "metal3_provisioner_not_ready_total",
    "metal3_reconcile_error_total",
    "metal3_waiting_for_preprov_image_total",
    "foothold_firmware_reads_total",
];

/// What is counted.
#[derive(Debug)]
pub struct Metrics(metrics::Metrics);

/// Labels of a host.
fn of(key: &Key) -> [(&'static str, &str); 2] {
    [("namespace", &key.0), ("host", &key.1)]
}

impl Metrics {
    /// None is counted yet.
    ///
    /// # Errors
    /// A duration has no bucket.
    pub fn new() -> Result<Self, BuildError> {
        let durations = [(REGISTER, FAST), (INSPECT, SLOW), (PROVISION, SLOW), (DEPROVISION, SLOW)];
        metrics::Metrics::new(&PLAIN, &durations).map(Self)
    }

    fn count(&self, name: &'static str) {
        self.0.count(name, &[]);
    }

    /// A turn with a host.
    pub fn turn(&self, key: &Key) {
        self.0.count("metal3_reconcile_total", &of(key));
    }

    /// A turn that the API server broke off.
    pub fn broken_turn(&self) {
        self.count("metal3_reconcile_error_total");
    }

    /// A host waits for a slot; `cleans`: to be deprovisioned.
    pub fn delayed(&self, key: &Key, cleans: bool) {
        let name = if cleans { "metal3_delayed__deprovisioning_total" } else { "metal3_delayed__provisioning_total" };
        self.0.count(name, &of(key));
    }

    /// Ironic does not know a host.
    pub fn unregistered(&self) {
        self.count("metal3_host_registration_required_total");
    }

    /// Ironic was asked for a host's firmware.
    pub fn read_firmware(&self) {
        self.count("foothold_firmware_reads_total");
    }

    /// An error of a host.
    pub fn error(&self, kind: ErrorType) {
        self.0.count("metal3_host_error_total", &[("error_type", tell::word(kind))]);
    }

    /// A host was powered on or off.
    pub fn power(&self, key: &Key, on: bool) {
        let [namespace, host] = of(key);
        let labels = [namespace, host, ("on_off", if on { "on" } else { "off" })];
        self.0.count("metal3_operation_power_change_total", &labels);
    }

    /// Why nothing happens with a host.
    pub fn waits(&self, reason: &WaitReason) {
        match reason {
            WaitReason::NoCredentials(_) => self.count("metal3_credentials_missing_total"),
            WaitReason::BadCredentials(_) => self.count("metal3_credentials_invalid_total"),
            WaitReason::NoBmc => self.count("metal3_host_unmanaged_total"),
            WaitReason::IronicAway(_) => self.count("metal3_provisioner_not_ready_total"),
            WaitReason::DetachedDeleteDelayed => self.count("metal3_delete_delayed_for_detached_total"),
            WaitReason::Paused
            | WaitReason::NoStatus(_)
            | WaitReason::IronicBusy
            | WaitReason::NoSlot
            | WaitReason::Detached
            | WaitReason::Failed(_)
            | WaitReason::GaveUp { .. }
            | WaitReason::NotYet(_)
            | WaitReason::Working(_)
            | WaitReason::Steady
            | WaitReason::PowerUnknown
            | WaitReason::HeldOff(_) => {}
        }
    }

    /// What came of an action.
    pub fn did(&self, action: &Action, report: &Report, next: &Step) {
        match (action, report, next) {
            (_, Report::Waits(_), _) => self.count("metal3_waiting_for_preprov_image_total"),
            (Action::Deprovision, Report::Failed(_), Step::Transition(_)) => {
                self.count("metal3_delete_without_deprovisioning_total");
            }
            (Action::PowerOffForGood, Report::Failed(_), Step::Transition(_)) => {
                self.count("metal3_delete_without_powering_off_total");
            }
            (Action::Register, Report::Failed(_), _) => self.count("metal3_credentials_no_management_access_total"),
            _ => {}
        }
    }

    /// What changed about a host.
    pub fn changed(&self, key: &Key, before: &BareMetalHostStatus, after: &BareMetalHostStatus) {
        let (from, to) = (before.provisioning.state, after.provisioning.state);
        if from != to {
            let labels = [("prev_state", from.name()), ("new_state", to.name())];
            self.0.count("metal3_provisioning_state_change_total", &labels);
        }
        let (old, new) = (before.operation_history.clone().unwrap_or_default(), after.operation_history.clone());
        let new = new.unwrap_or_default();
        for (name, old, new) in [
            (REGISTER, old.register, new.register),
            (INSPECT, old.inspect, new.inspect),
            (PROVISION, old.provision, new.provision),
            (DEPROVISION, old.deprovision, new.deprovision),
        ] {
            if let Some(seconds) = new.filter(|new| old.as_ref() != Some(new)).and_then(|new| length(&new)) {
                self.0.observe(name, &of(key), seconds);
            }
        }
    }

    /// All of it. `gauges`: what is so now.
    pub fn text(&self, gauges: &[(&'static str, usize)]) -> String {
        self.0.text(gauges)
    }
}

/// Seconds of an operation that is over.
fn length(metric: &OperationMetric) -> Option<f64> {
    let start = metric.start.as_ref()?.0?;
    let end = metric.end.as_ref()?.0?;
    Some(end.0.duration_since(start.0).as_secs_f64().max(0.0))
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::{ErrorType, ProvisioningState};
    use serde_json::json;

    use super::super::tests::host;
    use super::{Action, Metrics, Report, Step, WaitReason};

    #[test]
    fn what_happens_is_counted_under_the_names_of_upstream() {
        let metrics = Metrics::new().expect("metrics");
        let at = |start, end| {
            let history = json!({"status": {"operationHistory": {"inspect": {"start": start, "end": end}}}});
            host(ProvisioningState::Inspecting, &history).status.unwrap_or_default()
        };
        let before = at("2026-03-02T08:00:00Z", json!(null));
        let mut after = at("2026-03-02T08:00:00Z", json!("2026-03-02T08:01:30Z"));
        after.provisioning.state = ProvisioningState::Preparing;
        let key = ("metal3".to_owned(), "a".to_owned());
        metrics.changed(&key, &before, &after);
        metrics.error(ErrorType::Inspection);
        metrics.power(&key, true);
        metrics.turn(&key);
        let failed = Report::Failed("no".to_owned());
        metrics.did(&Action::PowerOffForGood, &failed, &Step::Transition(ProvisioningState::Deleting));
        metrics.waits(&WaitReason::NoBmc);
        let text = metrics.text(&[("foothold_provisioning_slots_held", 3)]);
        for line in [
            "metal3_provisioning_state_change_total{prev_state=\"inspecting\",new_state=\"preparing\"} 1",
            "metal3_operation_inspect_duration_seconds_bucket{namespace=\"metal3\",host=\"a\",le=\"30\"} 0",
            "metal3_operation_inspect_duration_seconds_bucket{namespace=\"metal3\",host=\"a\",le=\"90\"} 1",
            "metal3_operation_inspect_duration_seconds_sum{namespace=\"metal3\",host=\"a\"} 90",
            "metal3_host_error_total{error_type=\"InspectionError\"} 1",
            "metal3_operation_power_change_total{namespace=\"metal3\",host=\"a\",on_off=\"on\"} 1",
            "metal3_reconcile_total{namespace=\"metal3\",host=\"a\"} 1",
            "metal3_reconcile_error_total 0",
            "metal3_delete_without_powering_off_total 1",
            "metal3_host_unmanaged_total 1",
            "foothold_provisioning_slots_held 3",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
