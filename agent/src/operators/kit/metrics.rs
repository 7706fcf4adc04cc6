//! What an operator counts, in Prometheus' text. Names and labels are the operator's; those of an original stay as its
//! users' dashboards have them.

use metrics::{Key, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusRecorder};

/// Where the values come from, for filters that nobody sets.
static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Counters and durations of one operator: not of the process, so that tests have their own.
#[derive(Debug)]
pub struct Metrics(PrometheusRecorder);

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    let labels: Vec<Label> = labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect();
    Key::from_parts(name, labels)
}

impl Metrics {
    /// None is counted yet. `counters`: those without labels, which tell by being 0, too. `durations`: the names, each with
    /// the upper ends of its buckets in seconds.
    ///
    /// # Errors
    /// A duration has no bucket.
    pub fn new(counters: &[&'static str], durations: &[(&'static str, &[f64])]) -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for (name, ends) in durations {
            builder = builder.set_buckets_for_metric(Matcher::Full((*name).to_owned()), ends)?;
        }
        let metrics = Self(builder.build_recorder());
        for name in counters {
            metrics.0.register_counter(&key(name, &[]), &METADATA).absolute(0);
        }
        Ok(metrics)
    }

    /// One more.
    pub fn count(&self, name: &'static str, labels: &[(&'static str, &str)]) {
        self.0.register_counter(&key(name, labels), &METADATA).increment(1);
    }

    /// Something took so long.
    pub fn observe(&self, name: &'static str, labels: &[(&'static str, &str)], seconds: f64) {
        self.0.register_histogram(&key(name, labels), &METADATA).record(seconds);
    }

    /// All of it. `gauges`: what is so now.
    pub fn text(&self, gauges: &[(&'static str, usize)]) -> String {
        for (name, value) in gauges {
            let value = u32::try_from(*value).unwrap_or(u32::MAX);
            self.0.register_gauge(&key(name, &[]), &METADATA).set(f64::from(value));
        }
        self.0.handle().render()
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn values_are_told_as_prometheus_reads_them() {
        let metrics = Metrics::new(&["quiet_total"], &[("wait_seconds", &[0.5, 30.0])]).expect("metrics");
        metrics.count("done_total", &[("namespace", "a"), ("kind", "b")]);
        metrics.observe("wait_seconds", &[("kind", "b")], 2.0);
        let text = metrics.text(&[("open", 3)]);
        for line in [
            "# TYPE quiet_total counter",
            "quiet_total 0",
            "done_total{namespace=\"a\",kind=\"b\"} 1",
            "# TYPE wait_seconds histogram",
            "wait_seconds_bucket{kind=\"b\",le=\"0.5\"} 0",
            "wait_seconds_bucket{kind=\"b\",le=\"30\"} 1",
            "wait_seconds_bucket{kind=\"b\",le=\"+Inf\"} 1",
            "wait_seconds_sum{kind=\"b\"} 2",
            "wait_seconds_count{kind=\"b\"} 1",
            "# TYPE open gauge",
            "open 3",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
