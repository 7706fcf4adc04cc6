//! `Software`: packages that the nodes of a cluster shall have.

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

use crate::meta::{Condition, Time};
use crate::metal3::host_firmware_settings::IntOrString;

/// A package: its name, or `{name: {version: "1.2"}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PackageWish(pub Value);

impl JsonSchema for PackageWish {
    fn schema_name() -> Cow<'static, str> {
        "PackageWish".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // A name or a map: structural schemas have no word for it. The controller says what is wrong, with its path.
        json_schema!({"x-kubernetes-preserve-unknown-fields": true})
    }
}

/// A package, read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version; the newest that the box has when `None`.
    pub version: Option<String>,
}

impl Package {
    /// As `apt-get install` takes it.
    pub fn argument(&self) -> String {
        self.version.as_ref().map_or_else(|| self.name.clone(), |version| format!("{}={version}", self.name))
    }
}

impl PackageWish {
    /// The package, or what is wrong with it. `at` is its path, such as `spec.masterSoftware[0]`.
    ///
    /// # Errors
    /// A sentence with the path, what was found and what was expected.
    pub fn read(&self, at: &str) -> Result<Package, String> {
        let wanted = "expected a package's name, or `{NAME: {version: \"...\"}}`";
        let (name, version) = match &self.0 {
            Value::String(name) => (name, None),
            Value::Object(map) => match map.iter().next() {
                Some((name, of)) if map.len() == 1 => {
                    (name, version(of).map_err(|NoVersion| format!("{at}.{name} is {of}; {wanted}"))?)
                }
                _ => return Err(format!("{at} has {} keys; {wanted}", map.len())),
            },
            other => return Err(format!("{at} is {other}; {wanted}")),
        };
        if !is_package(name) {
            return Err(format!(
                "{at} is `{name}`, which is no name of a Debian package: a to z, 0 to 9, `+`, `-`, `.`, two characters or more"
            ));
        }
        if let Some(version) = version.as_ref().filter(|version| !is_version(version)) {
            return Err(format!("{at}.{name}.version is `{version}`, which is no version of a Debian package"));
        }
        Ok(Package { name: name.clone(), version })
    }
}

/// A value that says of no version.
struct NoVersion;

/// `{version: "1.2"}`, `{}` or nothing.
fn version(of: &Value) -> Result<Option<String>, NoVersion> {
    match of {
        Value::Null => Ok(None),
        Value::Object(map) if map.is_empty() => Ok(None),
        Value::Object(map) if map.len() == 1 => match map.get("version") {
            Some(Value::String(text)) => Ok(Some(text.clone())),
            _ => Err(NoVersion),
        },
        _ => Err(NoVersion),
    }
}

/// Debian policy 5.6.7.
fn is_package(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() >= 2
        && name.bytes().next().is_some_and(good)
        && name.bytes().all(|byte| good(byte) || b"+-.".contains(&byte))
}

/// Debian policy 5.6.12.
fn is_version(version: &str) -> bool {
    version.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
        && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-~:".contains(&byte))
}

/// What is asked for. The label `cluster` says of which cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bpa.akraino.org",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "Software",
    plural = "softwares",
    shortname = "sw",
    status = "SoftwareStatus",
    doc = "Packages that the nodes of a cluster have.",
    printcolumn = r#"{"name":"Cluster","type":"string","jsonPath":".metadata.labels.cluster"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareSpec {
    /// Packages of masters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub master_software: Vec<PackageWish>,
    /// Packages of workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub worker_software: Vec<PackageWish>,
    /// How installed packages go to another version: as soon as there is one, one node after the other, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update: Option<UpdatePolicy>,
}

/// When installed packages go to another version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateWhen {
    /// As soon as the box has another one.
    #[default]
    Now,
    /// Within `window`.
    Window,
    /// When the annotation `foothold.dev/update` gets another value.
    Manual,
}

/// Whether a node is restarted that asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RebootWhen {
    /// Never: the status says that it must be restarted.
    #[default]
    Never,
    /// When it asks for it (`/run/reboot-required`).
    IfRequired,
}

/// A day of the week, by its English name; three letters are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "they are the days")]
pub enum Day {
    #[serde(alias = "mon", alias = "Monday", alias = "Mon")]
    Monday,
    #[serde(alias = "tue", alias = "Tuesday", alias = "Tue")]
    Tuesday,
    #[serde(alias = "wed", alias = "Wednesday", alias = "Wed")]
    Wednesday,
    #[serde(alias = "thu", alias = "Thursday", alias = "Thu")]
    Thursday,
    #[serde(alias = "fri", alias = "Friday", alias = "Fri")]
    Friday,
    #[serde(alias = "sat", alias = "Saturday", alias = "Sat")]
    Saturday,
    #[serde(alias = "sun", alias = "Sunday", alias = "Sun")]
    Sunday,
}

impl JsonSchema for Day {
    fn schema_name() -> Cow<'static, str> {
        "Day".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let capital = |name: &str| name[..1].to_uppercase() + &name[1..];
        let spelt = |name: &str| [name.to_owned(), name[..3].to_owned(), capital(name), capital(&name[..3])];
        let names = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
        json_schema!({"type": "string", "enum": names.iter().flat_map(|name| spelt(name)).collect::<Vec<_>>()})
    }
}

/// Hours in which nodes may be updated. Field names of Rancher's system-upgrade-controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateWindow {
    /// Days on which it begins; every day when there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub days: Vec<Day>,
    /// When it begins, as `HH:MM`.
    #[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub start_time: String,
    /// When it ends, as `HH:MM`: on the next day if that is no later than its beginning. What was begun on a node is ended.
    #[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub end_time: String,
    /// Of the times: a name of the IANA database, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// How installed packages go to another version, when the box has one, or the spec asks for one. What a node lacks is
/// installed at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePolicy {
    /// When.
    #[serde(default)]
    pub when: UpdateWhen,
    /// The hours of `when: Window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<UpdateWindow>,
    /// How many nodes at a time: a number, or a percentage of the cluster's nodes (rounded down, at least one). Masters are
    /// always updated one after the other. One when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// Whether pods leave the node before, as `PodDisruptionBudget`s allow it.
    #[serde(default)]
    pub drain: bool,
    /// Whether it is restarted behind it.
    #[serde(default)]
    pub reboot: RebootWhen,
}

/// What a node has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareOfNode {
    /// Name of the node.
    pub node: String,
    /// The packages, as `name=version`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub installed: Vec<String>,
    /// What has another version than it shall have, as `name old -> new`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lagging: Vec<String>,
    /// The node wants to be restarted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reboot_required: bool,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareStatus {
    /// `Ready`: every node has its packages. `UpToDate`: in the versions that it shall have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// `metadata.generation` that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The value of the annotation `foothold.dev/update` for which all nodes were updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_handled_update: Option<String>,
    /// When the nodes were looked at last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checked: Option<Time>,
    /// What each node has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<SoftwareOfNode>,
}

impl SoftwareSpec {
    /// The packages of both roles: masters', workers'.
    ///
    /// # Errors
    /// All that is wrong, each with its path.
    pub fn packages(&self) -> Result<(Vec<Package>, Vec<Package>), Vec<String>> {
        let mut wrong = Vec::new();
        let mut read = |field: &str, wishes: &[PackageWish]| -> Vec<Package> {
            let mut all = Vec::new();
            for (at, wish) in wishes.iter().enumerate() {
                match wish.read(&format!("spec.{field}[{at}]")) {
                    Ok(package) => all.push(package),
                    Err(why) => wrong.push(why),
                }
            }
            all
        };
        let (masters, workers) =
            (read("masterSoftware", &self.master_software), read("workerSoftware", &self.worker_software));
        if wrong.is_empty() { Ok((masters, workers)) } else { Err(wrong) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Package, PackageWish};

    fn read(value: Value) -> Result<Package, String> {
        PackageWish(value).read("spec.masterSoftware[0]")
    }

    #[test]
    fn a_package_is_a_name_or_a_map_with_a_version() {
        let package =
            |name: &str, version: Option<&str>| Package { name: name.to_owned(), version: version.map(str::to_owned) };
        for (value, expected) in [
            (json!("curl"), package("curl", None)),
            (json!("g++-12"), package("g++-12", None)),
            (json!({"curl": {"version": "8.5.0-2"}}), package("curl", Some("8.5.0-2"))),
            (json!({"curl": null}), package("curl", None)),
            (json!({"curl": {}}), package("curl", None)),
        ] {
            assert_eq!(read(value.clone()), Ok(expected), "{value}");
        }
        assert_eq!(package("curl", Some("1:2")).argument(), "curl=1:2");
    }

    #[test]
    fn what_is_no_package_is_refused_with_its_path() {
        for (value, word) in [
            (json!(7), "spec.masterSoftware[0] is 7"),
            (json!(["curl"]), "spec.masterSoftware[0] is [\"curl\"]"),
            (json!({"a1": {}, "b1": {}}), "has 2 keys"),
            (json!({"curl": {"version": 1.2}}), "spec.masterSoftware[0].curl is"),
            (json!({"curl": {"versoin": "1"}}), "spec.masterSoftware[0].curl is"),
            (json!({"curl": "1"}), "spec.masterSoftware[0].curl is"),
            (json!("curl; reboot"), "no name of a Debian package"),
            (json!("--help"), "no name of a Debian package"),
            (json!("lldpd-*"), "no name of a Debian package"),
            (json!({"curl": {"version": "$(reboot)"}}), "no version of a Debian package"),
        ] {
            let why = read(value.clone()).expect_err("refused");
            assert!(why.contains(word), "{value}: {why}");
        }
    }
}
