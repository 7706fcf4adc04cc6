//! What is counted, under the names that metal3's operator has, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use agent_api::metal3::{BareMetalHostStatus, ErrorType, OperationMetric, ProvisioningState as State};

use super::story;

/// Upper ends of the buckets of durations, in seconds: seconds to hours.
const BUCKETS: [f64; 10] = [1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0];

/// Counters that tell by being 0, too.
const PLAIN: [&str; 9] = [
    "metal3_reconcile_total",
    "metal3_reconcile_error_total",
    "metal3_credentials_missing_total",
    "metal3_credentials_invalid_total",
    "metal3_delayed__provisioning_total",
    "metal3_delayed__deprovisioning_total",
    "metal3_delete_without_deprovision_total",
    "metal3_delete_without_poweroff_total",
    "foothold_firmware_reads_total",
];

#[derive(Clone, Debug, Default)]
struct Durations {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

/// What is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    counters: Mutex<BTreeMap<&'static str, BTreeMap<String, u64>>>,
    durations: Mutex<BTreeMap<&'static str, Durations>>,
}

impl Metrics {
    /// One more.
    pub fn count(&self, name: &'static str) {
        self.add(name, String::new());
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
    pub fn power(&self, on: bool) {
        self.add("metal3_operation_power_change_total", format!("state=\"{}\"", if on { "on" } else { "off" }));
    }

    /// What changed about a host.
    pub fn changed(&self, before: &BareMetalHostStatus, after: &BareMetalHostStatus) {
        let (from, to) = (before.provisioning.state, after.provisioning.state);
        if from != to {
            let labels = format!("prev_state=\"{from}\",new_state=\"{to}\"");
            self.add("metal3_provisioning_state_change_total", labels);
            if to == State::Deleting && matches!(from, State::Provisioned | State::Provisioning | State::Deprovisioning)
            {
                self.count("metal3_delete_without_deprovision_total");
            }
            if to == State::Deleting && from != State::PoweringOffBeforeDelete {
                self.count("metal3_delete_without_poweroff_total");
            }
        }
        let (old, new) = (before.operation_history.clone().unwrap_or_default(), after.operation_history.clone());
        let new = new.unwrap_or_default();
        for (name, old, new) in [
            ("metal3_operation_register_duration_seconds", old.register, new.register),
            ("metal3_operation_inspect_duration_seconds", old.inspect, new.inspect),
            ("metal3_operation_provision_duration_seconds", old.provision, new.provision),
            ("metal3_operation_deprovision_duration_seconds", old.deprovision, new.deprovision),
        ] {
            if let Some(seconds) = new.filter(|new| old.as_ref() != Some(new)).and_then(|new| length(&new)) {
                self.observe(name, seconds);
            }
        }
    }

    fn observe(&self, name: &'static str, seconds: f64) {
        let mut durations = self.durations.lock().unwrap_or_else(PoisonError::into_inner);
        let one = durations.entry(name).or_default();
        one.count += 1;
        one.sum += seconds;
        for (bucket, end) in one.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= end);
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
        for (name, one) in self.durations.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = writeln!(text, "# TYPE {name} histogram");
            for (bucket, end) in one.buckets.iter().zip(BUCKETS) {
                let _ = writeln!(text, "{name}_bucket{{le=\"{end}\"}} {bucket}");
            }
            let _ = writeln!(
                text,
                "{name}_bucket{{le=\"+Inf\"}} {0}\n{name}_sum {1}\n{name}_count {0}",
                one.count, one.sum
            );
        }
        for (name, value) in gauges {
            let _ = writeln!(text, "# TYPE {name} gauge\n{name} {value}");
        }
        text
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
    use agent_api::metal3::{ErrorType, ProvisioningState as State};
    use serde_json::json;

    use super::super::tests::host;
    use super::Metrics;

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
        metrics.changed(&before, &after);
        metrics.error(ErrorType::Inspection);
        metrics.power(true);
        metrics.count("metal3_reconcile_total");
        let text = metrics.text(&[("foothold_provisioning_slots_held", 3)]);
        for line in [
            "metal3_provisioning_state_change_total{prev_state=\"inspecting\",new_state=\"preparing\"} 1",
            "metal3_operation_inspect_duration_seconds_bucket{le=\"60\"} 0",
            "metal3_operation_inspect_duration_seconds_bucket{le=\"180\"} 1",
            "metal3_operation_inspect_duration_seconds_sum 90",
            "metal3_host_error_total{error_type=\"InspectionError\"} 1",
            "metal3_operation_power_change_total{state=\"on\"} 1",
            "metal3_reconcile_total 1",
            "metal3_reconcile_error_total 0",
            "foothold_provisioning_slots_held 3",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
