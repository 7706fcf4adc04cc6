//! Charts on a cluster, by Helm: what the pod of a release does, and what can be read about a release without Helm.
//!
//! ```text
//! controller ─► Job: plan, kubeconfig ─► command ─► chart   fetched from the box, or made of manifests
//!                                            ├────► images  what it pulls, and whether the box has it
//!                                            ├────► run     helm upgrade --install, test, uninstall
//!                                            └────► Report, as the pod's termination message
//! controller ─► look: Helm's record in the cluster ─► health of each object, drift
//!               record   what Helm writes of a release, and how one that was cut off is unlocked    (pure)
//! ```
//! Nothing that Helm does is implemented a second time here.

mod chart;
pub mod command;
mod images;
pub mod look;
mod record;
mod run;

use std::time::Duration;

use agent_api::clusters::release::UnhealthyObject;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use command::Deed;

/// What Helm does one after another within a call, each as long as its `--timeout`: hooks before, the objects, hooks behind.
const PARTS: u32 = 3;
/// How much longer than its own limit Helm may run.
const MORE: Duration = Duration::from_secs(60);
/// How much longer than Helm the pod may take: to fetch the chart, and to ask for its images.
const POD: Duration = Duration::from_secs(300);
/// Longest run of Helm, whatever the plan says.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// What Helm gets to record how far it came when it must end.
pub const GRACE: Duration = Duration::from_secs(60);

/// What a pod is told to do with a release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleasePlan {
    /// Name of Helm's release.
    pub name: String,
    /// Its namespace in the cluster.
    pub namespace: String,
    /// What is installed.
    pub source: Source,
    /// All values, merged.
    pub values: Map<String, Value>,
    /// How long Helm waits for the objects, and for each hook.
    pub timeout: Duration,
    /// Whether a failed upgrade is rolled back.
    pub rollback: bool,
    /// Whether the chart's tests are run.
    pub test: bool,
    /// `http://BOX:6180`.
    pub content: String,
    /// `BOX:5000`.
    pub registry: String,
}

impl ReleasePlan {
    /// Longest run of a call of Helm that waits for hooks and objects. Before that Helm ends by itself.
    pub fn limit(&self) -> Duration {
        self.timeout.saturating_mul(PARTS).saturating_add(MORE).min(LONGEST)
    }

    /// Longest run of an install or upgrade: one that fails and is taken back has everything twice.
    pub fn apply_limit(&self) -> Duration {
        let times = if self.rollback { 2 } else { 1 };
        self.limit().saturating_mul(times)
    }

    /// Longest run of the pod: all calls of Helm, and what is done before.
    pub fn pod_limit(&self, deed: Deed) -> Duration {
        let calls = match deed {
            Deed::Apply if self.test => self.apply_limit().saturating_add(self.limit() + GRACE),
            Deed::Apply => self.apply_limit(),
            Deed::Remove => self.limit(),
        };
        calls.saturating_add(POD + GRACE)
    }
}

/// What is installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// A packed chart, by its path on the content port.
    File(String),
    /// A chart in the registry.
    Image {
        /// Its name there.
        name: String,
        /// Its version.
        version: String,
    },
    /// Files with objects, by their paths on the content port.
    Manifests(Vec<String>),
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Name and version of the chart.
    pub chart: String,
    /// Helm's revision.
    pub revision: i64,
    /// Number of objects.
    pub objects: usize,
    /// Objects that are not as they should be, the first ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy: Vec<UnhealthyObject>,
    /// Whether the tests passed, when they ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tested: Option<bool>,
    /// What failed, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What Kubernetes keeps of a termination message, in bytes.
const MESSAGE: usize = 4096;

impl Report {
    /// The report as a termination message, short enough that Kubernetes keeps all of it.
    pub fn message(&self) -> serde_json::Result<String> {
        let mut report = self.clone();
        loop {
            let text = serde_json::to_string(&report)?;
            if text.len() <= MESSAGE {
                return Ok(text);
            }
            if report.unhealthy.len() > 1 {
                report.unhealthy.pop();
            } else {
                let error = report.error.unwrap_or_default();
                let keep = error.chars().count().saturating_sub(200);
                report.error = Some(error.chars().take(keep).collect());
                report.unhealthy.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_as_long_as_kubernetes_keeps_it() {
        let unhealthy = UnhealthyObject { object: "Deployment default/web".to_owned(), message: "m".repeat(900) };
        let short = Report { revision: 1, unhealthy: vec![unhealthy.clone()], ..Report::default() };
        assert_eq!(serde_json::from_str::<Report>(&short.message().expect("JSON")).expect("a report"), short);
        let long = Report { unhealthy: vec![unhealthy; 9], error: Some("é".repeat(3000)), ..Report::default() };
        let message = long.message().expect("JSON");
        let read: Report = serde_json::from_str(&message).expect("a report");
        assert!(message.len() <= MESSAGE && read.error.expect("an error").starts_with('é'), "{message}");
    }
}
