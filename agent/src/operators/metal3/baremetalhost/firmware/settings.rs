//! The status of a host's BIOS settings, and which of them are to be changed.

use agent_api::metal3::{
    AttributeType, HostFirmwareSettings, HostFirmwareSettingsStatus, IntOrString, NamespacedName, SettingSchema, Time,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::condition::{self, Told};
use super::schema::Bios;

/// Reason of conditions that are well.
const SUCCESS: &str = "Success";
/// Reason of `Valid` when it is not.
const INVALID: &str = "ConfigurationError";

/// What follows from what is asked for and what there is.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The status; `lastUpdated` is that of before when nothing changed.
    pub status: HostFirmwareSettingsStatus,
    /// What speaks against what is asked for, in metal3's words.
    pub problems: Vec<String>,
    /// Settings to change by name, of the types that the BMC has; none when there are problems.
    pub changes: Map<String, Value>,
}

/// Judges what an object asks for. A setting that has its value already is no problem, even one that cannot be changed:
/// a status may be copied into a spec as a whole.
pub fn judge(object: &HostFirmwareSettings, bios: &Bios, now: Timestamp) -> Judged {
    let differs = |(name, value): &(&String, &IntOrString)| {
        bios.settings.get(*name).is_none_or(|has| !same(bios.schema.get(*name), has, value))
    };
    let wanted: Vec<_> = object.spec.settings.iter().filter(differs).collect();
    let problems: Vec<String> = wanted.iter().filter_map(|(name, value)| problem(name, value, bios)).collect();
    let changes = if problems.is_empty() {
        wanted.iter().map(|(name, value)| ((*name).clone(), typed(bios.schema.get(*name), value))).collect()
    } else {
        Map::new()
    };
    let wrong = format!("Invalid BIOS setting: {}", condition::named(&problems, "; "));
    let told =
        Told { changed: !wanted.is_empty(), fine: SUCCESS, wrong: (!problems.is_empty()).then_some((INVALID, wrong)) };
    let before = object.status.clone().unwrap_or_default();
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let schema = (!bios.schema.is_empty()).then(|| NamespacedName { namespace, name: bios.name.clone() });
    let conditions = condition::conditions(before.conditions.as_ref(), &told, object.metadata.generation, now);
    let mut status = HostFirmwareSettingsStatus {
        schema,
        settings: bios.settings.clone(),
        last_updated: before.last_updated,
        conditions: Some(conditions),
    };
    if object.status.as_ref() != Some(&status) {
        status.last_updated = Some(Time(now));
    }
    Judged { status, problems, changes }
}

fn problem(name: &str, value: &IntOrString, bios: &Bios) -> Option<String> {
    if name.contains("Password") {
        return Some("cannot set Password field".to_owned());
    }
    if !bios.settings.contains_key(name) {
        return Some(format!("setting {name} is not in the Status field"));
    }
    bios.schema.get(name)?.validate(name, value).err()
}

/// Whether a setting has its value. Ironic tells a truth value as Python writes it.
fn same(schema: Option<&SettingSchema>, has: &str, wanted: &IntOrString) -> bool {
    let wanted = wanted.to_string();
    match schema.and_then(|schema| schema.attribute_type) {
        Some(AttributeType::Boolean) => has.eq_ignore_ascii_case(&wanted),
        Some(AttributeType::Enumeration | AttributeType::String | AttributeType::Integer | AttributeType::Password)
        | None => has == wanted,
    }
}

/// A value of the type that the BMC has: Ironic finds a text where a number is to be another value, and fails.
fn typed(schema: Option<&SettingSchema>, value: &IntOrString) -> Value {
    let text = value.to_string();
    match schema.and_then(|schema| schema.attribute_type) {
        Some(AttributeType::Integer) => text.parse::<i64>().map_or_else(|_| json!(text), |number| json!(number)),
        Some(AttributeType::Boolean) => json!(text == "true"),
        Some(AttributeType::Enumeration | AttributeType::String | AttributeType::Password) => json!(text),
        None => json!(value),
    }
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::{Condition, ConditionStatus};

    use super::super::super::tests::start;
    use super::*;

    fn bios() -> Bios {
        let found = json!([
            {"name": "Turbo", "value": "Enabled", "attribute_type": "Enumeration", "allowable_values": ["Enabled", "Disabled"], "read_only": false},
            {"name": "Retries", "value": "5", "attribute_type": "Integer", "lower_bound": 0, "upper_bound": 9},
            {"name": "Tag", "value": "rack1", "attribute_type": "String", "min_length": 2, "max_length": 8},
            {"name": "Quiet", "value": "True", "attribute_type": "Boolean"},
            {"name": "Serial", "value": "X1", "attribute_type": "String", "read_only": true},
            {"name": "Odd", "value": "1"},
        ]);
        Bios::of(&serde_json::from_value::<Vec<_>>(found).expect("settings"))
    }

    fn asking(settings: &Value) -> HostFirmwareSettings {
        serde_json::from_value(json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "HostFirmwareSettings",
            "metadata": {"name": "a", "namespace": "site", "generation": 3}, "spec": {"settings": settings},
        }))
        .expect("an object")
    }

    fn told(status: &HostFirmwareSettingsStatus, kind: &str) -> Condition {
        let all = status.conditions.iter().flatten();
        all.into_iter().find(|it| it.kind == kind).cloned().expect("a condition")
    }

    #[test]
    fn what_is_asked_for_is_held_against_what_may_be() {
        // Asked for; what is written; what speaks against it.
        let table = [
            (json!({}), json!({}), vec![]),
            (json!({"Turbo": "Enabled", "Retries": 5, "Quiet": "true", "Serial": "X1"}), json!({}), vec![]),
            (json!({"Turbo": "Disabled"}), json!({"Turbo": "Disabled"}), vec![]),
            (json!({"Retries": "7", "Quiet": "false"}), json!({"Retries": 7, "Quiet": false}), vec![]),
            (json!({"Tag": 12, "Odd": 2}), json!({"Tag": "12", "Odd": 2}), vec![]),
            (json!({"Nothing": 1}), json!({}), vec!["setting Nothing is not in the Status field"]),
            (json!({"Serial": "X2"}), json!({}), vec!["Setting Serial is invalid, it is ReadOnly"]),
            (json!({"SysPassword": "x"}), json!({}), vec!["cannot set Password field"]),
            (
                json!({"Turbo": "On", "Retries": 10, "Tag": "rack1-u14"}),
                json!({}),
                vec![
                    "Setting Retries is invalid, integer 10 is above maximum value 9",
                    "Setting Tag is invalid, string rack1-u14 length is above maximum length 8",
                    "Setting Turbo is invalid, unknown enumeration value - On",
                ],
            ),
            // One that is wrong keeps the right ones back.
            (
                json!({"Retries": 6, "Turbo": "On"}),
                json!({}),
                vec!["Setting Turbo is invalid, unknown enumeration value - On"],
            ),
        ];
        for (asked, changes, problems) in table {
            let judged = judge(&asking(&asked), &bios(), start());
            assert_eq!(
                (json!(judged.changes), judged.problems),
                (changes, problems.iter().map(ToString::to_string).collect()),
                "{asked}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let judged = judge(&asking(&json!({"Turbo": "On"})), &bios(), start());
        let valid = told(&judged.status, "Valid");
        assert_eq!((valid.status, &*valid.reason), (ConditionStatus::False, "ConfigurationError"));
        assert_eq!(valid.message, "Invalid BIOS setting: Setting Turbo is invalid, unknown enumeration value - On");
        let changed = told(&judged.status, "ChangeDetected");
        assert_eq!(
            (changed.status, &*changed.reason, changed.observed_generation),
            (ConditionStatus::True, "Success", Some(3))
        );
        assert_eq!(judged.status.schema.map(|it| it.namespace).as_deref(), Some("site"));
        assert_eq!(judged.status.settings["Quiet"], "True");
    }

    #[test]
    fn the_same_is_not_written_again() {
        let mut object = asking(&json!({"Turbo": "Disabled"}));
        let first = judge(&object, &bios(), start());
        assert_eq!(first.status.last_updated, Some(Time(start())));
        object.status = Some(first.status.clone());
        let later = start() + jiff::SignedDuration::from_secs(60);
        assert_eq!(judge(&object, &bios(), later).status, first.status);
        object.metadata.generation = Some(4);
        assert_eq!(judge(&object, &bios(), later).status.last_updated, Some(Time(later)));
    }
}
