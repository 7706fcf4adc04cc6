//! `Release`: a chart or manifests of the box, installed on an application cluster by Helm. Fields have the names of Flux's
//! `HelmRelease` (`helm.toolkit.fluxcd.io/v2`) where they mean the same.

use std::fmt;
use std::time::Duration;

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::meta::{Condition, Time};

/// Finalizer: the release is uninstalled before its object goes.
pub const FINALIZER: &str = "kpa.foothold.dev/release";
/// Condition: whether the last test passed.
pub const TEST_SUCCESS: &str = "TestSuccess";
/// How long Helm waits for hooks and objects when `timeout` says nothing; Flux's.
pub const TIMEOUT: Duration = Duration::from_secs(300);
/// How often a release is compared with its cluster when `interval` says nothing.
pub const INTERVAL: Duration = Duration::from_secs(600);
/// Longest name of a release, Helm's.
const NAME: usize = 53;
/// What a value comes from when `valuesKey` says nothing; Flux's.
const VALUES_KEY: &str = "values.yaml";

/// An object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyReference {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its key. Default: `value`, else `value.yaml`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The cluster, by its kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// The Secret.
    pub secret_ref: KeyReference,
}

/// A chart of the box: a file, or an image of its registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseChart {
    /// A chart that `helm package` made, by its path on port 6180: `files/web-1.2.3.tgz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A chart in the box's registry: `charts/web`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Version of the one in the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Kinds that values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ValuesKind {
    /// A `ConfigMap`.
    ConfigMap,
    /// A Secret.
    Secret,
}

/// Values from an object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesFrom {
    /// Its kind.
    pub kind: ValuesKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its key. Default: `values.yaml`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values_key: Option<String>,
    /// Where the text of that key goes as one value: `auth.password`. Without it the text is YAML with values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_path: Option<String>,
    /// It may be missing. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

impl ValuesFrom {
    /// The key that counts.
    pub fn key(&self) -> &str {
        self.values_key.as_deref().unwrap_or(VALUES_KEY)
    }
}

/// Another release that must be Ready before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dependency {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace. Default: that of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// What happens after an upgrade that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePolicy {
    /// The release before is restored. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
}

/// Whether the chart's tests are run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TestPolicy {
    /// They are, behind each install and upgrade. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enable: bool,
}

/// What happens when the cluster no longer has what the release says; Flux's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DriftMode {
    /// It is mended, also fields that somebody else has taken for his own.
    Enabled,
    /// It is told.
    #[default]
    Warn,
    /// Nobody looks.
    Disabled,
}

/// Looks for drift.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriftDetection {
    /// What happens then.
    #[serde(default)]
    pub mode: DriftMode,
}

/// Values as YAML has them: any map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Values(pub Map<String, Value>);

impl JsonSchema for Values {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Values".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kpa.foothold.dev",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "Release",
    root = "ClusterRelease",
    plural = "releases",
    shortname = "rel",
    status = "ReleaseStatus",
    doc = "A chart or manifests of the box on an application cluster.",
    printcolumn = r#"{"name":"Cluster","type":"string","jsonPath":".spec.clusterRef.name"}"#,
    printcolumn = r#"{"name":"Chart","type":"string","jsonPath":".status.chart"}"#,
    printcolumn = r#"{"name":"Revision","type":"integer","jsonPath":".status.revision"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseSpec {
    /// The cluster of servers, by the name in the label `cluster` of its `Provisioning` in this namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<LocalReference>,
    /// Any other cluster, by a kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// The chart. Either this or `manifests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart: Option<ReleaseChart>,
    /// Files with objects, by their paths on port 6180: `files/web.yaml`. Nothing in them is a template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub manifests: Vec<String>,
    /// Name of Helm's release. Default: the object's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_name: Option<String>,
    /// Namespace there, made where it is missing. Default: the object's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_namespace: Option<String>,
    /// Releases that must be Ready before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub depends_on: Vec<Dependency>,
    /// Values, over all of `valuesFrom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Values>,
    /// Values from objects, later ones over earlier ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub values_from: Vec<ValuesFrom>,
    /// How long Helm waits for the objects to be well, and for each hook: `90s`, `10m`. Default: `5m`. What takes three times
    /// that in all is ended, or six times with `upgrade: { rollback: true }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// How often it is compared with the cluster. Default: `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// Nothing is done while it is true. If the object is deleted meanwhile, what is installed stays. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// What happens after an upgrade that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<UpgradePolicy>,
    /// Tests of the chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<TestPolicy>,
    /// Whether somebody changed on the cluster what the release says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_detection: Option<DriftDetection>,
}

/// An object that is not as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyObject {
    /// `Deployment default/web`.
    pub object: String,
    /// Why.
    pub message: String,
}

/// Where Helm has a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Installed {
    /// The cluster of servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The kubeconfig of any other cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<KeyReference>,
    /// Namespace there.
    pub namespace: String,
    /// Name of the release.
    pub name: String,
}

impl Installed {
    /// Where the spec wants it.
    pub fn of(object: &ClusterRelease) -> Self {
        let own = |text: &Option<String>| text.clone().unwrap_or_default();
        let (spec, metadata) = (&object.spec, &object.metadata);
        Self {
            cluster: spec.cluster_ref.as_ref().map(|reference| reference.name.clone()),
            secret: spec.kube_config.as_ref().map(|config| config.secret_ref.clone()),
            namespace: spec.target_namespace.clone().unwrap_or_else(|| own(&metadata.namespace)),
            name: spec.release_name.clone().unwrap_or_else(|| own(&metadata.name)),
        }
    }
}

impl fmt::Display for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseStatus {
    /// `Ready`, `TestSuccess`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// `metadata.generation` that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Name and version of the chart that is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart: Option<String>,
    /// Helm's revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Number of its objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<i64>,
    /// Those that are not as they should be, the first ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy: Vec<UnhealthyObject>,
    /// Digest of chart, values and cluster that were installed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied: Option<String>,
    /// Where Helm's release is, or is being installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<Installed>,
    /// When the cluster was looked at last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checked: Option<Time>,
    /// Attempts since it worked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<i64>,
}

impl ReleaseSpec {
    /// All that is wrong with it, each with its path.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.cluster_ref.is_some() == self.kube_config.is_some() {
            wrong.push("spec needs `clusterRef` or `kubeConfig`, and not both".to_owned());
        }
        match (&self.chart, self.manifests.as_slice()) {
            (None, []) => wrong.push("spec needs `chart` or `manifests`".to_owned()),
            (Some(_), [_, ..]) => wrong.push("spec has `chart` and `manifests`; make two releases of them".to_owned()),
            (Some(chart), []) => match (&chart.file, &chart.image) {
                (Some(file), None) => wrong.extend(path_of("spec.chart.file", file)),
                (None, Some(image)) if chart.version.is_none() => {
                    wrong.push(format!("spec.chart.version is missing: which `{image}` is meant"));
                }
                (None, Some(_)) => {}
                _ => wrong.push("spec.chart needs `file` or `image`, and not both".to_owned()),
            },
            (None, files) => {
                for (at, file) in files.iter().enumerate() {
                    wrong.extend(path_of(&format!("spec.manifests[{at}]"), file));
                }
            }
        }
        for (key, text) in [("timeout", &self.timeout), ("interval", &self.interval)] {
            if let Some(text) = text.as_ref().filter(|text| duration(text).is_none()) {
                wrong.push(format!("spec.{key} is `{text}`; expected a duration such as `90s`, `10m` or `1h30m`"));
            }
        }
        for (key, name, most) in
            [("releaseName", &self.release_name, NAME), ("targetNamespace", &self.target_namespace, 63)]
        {
            if let Some(name) = name.as_ref().filter(|name| !crate::net::is_label(name) || name.len() > most) {
                wrong.push(format!("spec.{key} is `{name}`; expected a to z, 0 to 9 and `-` inside, at most {most}"));
            }
        }
        wrong
    }

    /// How long Helm waits for hooks and objects.
    pub fn timeout(&self) -> Duration {
        self.timeout.as_deref().and_then(duration).unwrap_or(TIMEOUT)
    }

    /// How often the cluster is looked at.
    pub fn interval(&self) -> Duration {
        self.interval.as_deref().and_then(duration).unwrap_or(INTERVAL)
    }

    /// What happens when it drifts.
    pub fn drift(&self) -> DriftMode {
        self.drift_detection.as_ref().map(|detection| detection.mode).unwrap_or_default()
    }
}

/// A path on the content port, below its root.
fn path_of(at: &str, path: &str) -> Option<String> {
    let good = |part: &str| !part.is_empty() && part != "." && part != "..";
    (!path.split('/').all(good))
        .then(|| format!("{at} is `{path}`; expected a path on port 6180 such as `files/web.tgz`"))
}

/// A duration as Go and Flux write it, in hours, minutes and seconds: `1h30m`, `90s`. More than none.
fn duration(text: &str) -> Option<Duration> {
    let (mut secs, mut number) = (0_u64, String::new());
    for c in text.chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let factor = match c {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        secs = secs.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        number.clear();
    }
    (number.is_empty() && secs > 0).then(|| Duration::from_secs(secs))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: Value) -> ReleaseSpec {
        serde_json::from_value(value).expect("a spec")
    }

    #[test]
    fn what_is_wrong_is_told_with_its_path() {
        let right =
            json!({"clusterRef": {"name": "one"}, "chart": {"file": "files/web-1.0.0.tgz"}, "timeout": "1h30m"});
        assert_eq!(spec(right.clone()).wrong(), Vec::<String>::new());
        assert_eq!(spec(right.clone()).timeout(), Duration::from_secs(5400));
        for (change, word) in [
            (json!({"clusterRef": null}), "spec needs `clusterRef` or `kubeConfig`"),
            (json!({"kubeConfig": {"secretRef": {"name": "k"}}}), "not both"),
            (json!({"chart": null}), "spec needs `chart` or `manifests`"),
            (json!({"manifests": ["files/a.yaml"]}), "make two releases"),
            (json!({"chart": {}}), "spec.chart needs `file` or `image`"),
            (json!({"chart": {"image": "charts/web"}}), "spec.chart.version is missing"),
            (json!({"chart": {"file": "../etc/x"}}), "spec.chart.file is `../etc/x`"),
            (json!({"chart": null, "manifests": ["files//a"]}), "spec.manifests[0] is `files//a`"),
            (json!({"timeout": "soon"}), "spec.timeout is `soon`"),
            (json!({"timeout": "5"}), "spec.timeout is `5`"),
            (json!({"interval": "0s"}), "spec.interval is `0s`"),
            (json!({"releaseName": "Web"}), "spec.releaseName is `Web`"),
            (json!({"releaseName": "a".repeat(54)}), "at most 53"),
            (json!({"targetNamespace": "a_b"}), "spec.targetNamespace is `a_b`"),
        ] {
            let mut value = right.clone();
            for (key, to) in change.as_object().expect("a map") {
                value[key] = to.clone();
            }
            let wrong = spec(value).wrong();
            assert!(wrong.len() == 1 && wrong[0].contains(word), "{change}: {wrong:?}");
        }
    }
}
