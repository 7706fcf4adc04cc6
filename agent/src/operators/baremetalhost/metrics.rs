//! What is counted, under the names that metal3's operator has, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use agent_api::metal3::{BareMetalHostStatus, ErrorType, OperationMetric};

use super::conclude::Report;
use super::outcome::{Action, Step, WaitReason};
use super::slots::Key;
use super::story;

/// Upper ends of the buckets of durations, in seconds: of registering, and of what boots a server.
const FAST: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const SLOW: &[f64] = &[30.0, 90.0, 180.0, 360.0, 720.0, 1440.0];

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

#[derive(Clone, Debug, Default)]
struct Durations {
    /// Bucket by bucket, each with those below it.
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
}

/// Values by name, then by labels.
type Table<T> = Mutex<BTreeMap<&'static str, BTreeMap<String, T>>>;

/// What is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    counters: Table<u64>,
    durations: Table<Durations>,
}

/// Labels of a host.
fn of(key: &Key) -> String {
    format!("namespace=\"{}\",host=\"{}\"", key.0, key.1)
}

impl Metrics {
    /// One more.
    pub fn count(&self, name: &'static str) {
        self.add(name, String::new());
    }

    /// One more, of a host.
    pub fn count_of(&self, name: &'static str, key: &Key) {
        self.add(name, of(key));
    }

    fn add(&self, name: &'static str, labels: String) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        *counters.entry(name).or_default().entry(labels).or_default() += 1;
    }

    /// An error of a host.
    pub fn error(&self, kind: ErrorType) {
        self.add("metal3_host_error_total", format!("error_type=\"{}\"", story::word(kind)));
    }

    /// A host was powered on or off.
    pub fn power(&self, key: &Key, on: bool) {
        let labels = format!("{},on_off=\"{}\"", of(key), if on { "on" } else { "off" });
        self.add("metal3_operation_power_change_total", labels);
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
            let labels = format!("prev_state=\"{from}\",new_state=\"{to}\"");
            self.add("metal3_provisioning_state_change_total", labels);
        }
        let (old, new) = (before.operation_history.clone().unwrap_or_default(), after.operation_history.clone());
        let new = new.unwrap_or_default();
        for (name, old, new) in [
            (REGISTER, old.register, new.register),
            ("metal3_operation_inspect_duration_seconds", old.inspect, new.inspect),
            ("metal3_operation_provision_duration_seconds", old.provision, new.provision),
            ("metal3_operation_deprovision_duration_seconds", old.deprovision, new.deprovision),
        ] {
            if let Some(seconds) = new.filter(|new| old.as_ref() != Some(new)).and_then(|new| length(&new)) {
                self.observe(name, key, seconds);
            }
        }
    }

    fn observe(&self, name: &'static str, key: &Key, seconds: f64) {
        let mut durations = self.durations.lock().unwrap_or_else(PoisonError::into_inner);
        let one = durations.entry(name).or_default().entry(of(key)).or_default();
        let ends = buckets(name);
        one.count += 1;
        one.sum += seconds;
        one.buckets.resize(ends.len(), 0);
        for (bucket, end) in one.buckets.iter_mut().zip(ends) {
            *bucket += u64::from(seconds <= *end);
        }
    }

    /// All of it. `gauges`: what is so now.
    pub fn text(&self, gauges: &[(&str, usize)]) -> String {
        let mut text = String::new();
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let silent = PLAIN.iter().filter(|name| !counters.contains_key(*name));
        for name in silent {
            let _ = writeln!(text, "# TYPE {name} counter\n{name} 0");
        }
        for (name, values) in &counters {
            let _ = writeln!(text, "# TYPE {name} counter");
            for (labels, value) in values {
                let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        }
        for (name, values) in self.durations.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = writeln!(text, "# TYPE {name} histogram");
            for (labels, one) in values {
                for (bucket, end) in one.buckets.iter().zip(buckets(name)) {
                    let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{end}\"}} {bucket}");
                }
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", one.count);
                let _ = writeln!(text, "{name}_sum{{{labels}}} {}\n{name}_count{{{labels}}} {}", one.sum, one.count);
            }
        }
        for (name, value) in gauges {
            let _ = writeln!(text, "# TYPE {name} gauge\n{name} {value}");
        }
        text
    }
}

/// The name of what takes seconds.
const REGISTER: &str = "metal3_operation_register_duration_seconds";

fn buckets(name: &str) -> &'static [f64] {
    if name == REGISTER { FAST } else { SLOW }
}

/// Seconds of an operation that is over.
fn length(metric: &OperationMetric) -> Option<f64> {
    let start = metric.start.as_ref()?.0?;
    let end = metric.end.as_ref()?.0?;
    Some(end.0.duration_since(start.0).as_secs_f64().max(0.0))
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::{ErrorType, ProvisioningState as State};
    use serde_json::json;

    use super::super::tests::host;
    use super::{Action, Metrics, Report, Step, WaitReason};

    #[test]
    fn what_happens_is_counted_under_the_names_of_upstream() {
        let metrics = Metrics::default();
        let at = |start, end| {
            let history = json!({"status": {"operationHistory": {"inspect": {"start": start, "end": end}}}});
            host(State::Inspecting, &history).status.unwrap_or_default()
        };
        let before = at("2026-03-02T08:00:00Z", json!(null));
        let mut after = at("2026-03-02T08:00:00Z", json!("2026-03-02T08:01:30Z"));
        after.provisioning.state = State::Preparing;
        let key = ("metal3".to_owned(), "a".to_owned());
        metrics.changed(&key, &before, &after);
        metrics.error(ErrorType::Inspection);
        metrics.power(&key, true);
        metrics.count_of("metal3_reconcile_total", &key);
        let failed = Report::Failed("no".to_owned());
        metrics.did(&Action::PowerOffForGood, &failed, &Step::Transition(State::Deleting));
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
