//! What Ironic says about a node's BIOS settings and firmware: what it found when it last looked, which is when a node is
//! verified, inspected, cleaned and serviced.

use serde::Deserialize;
use serde_json::Value;

/// A BIOS setting, with what it may be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BiosSetting {
    /// Name, the vendor's own.
    pub name: String,
    /// Value; a text, whatever its type.
    pub value: Value,
    /// `Enumeration`, `String`, `Integer`, `Boolean` or `Password`; the others are not known without it.
    pub attribute_type: Option<String>,
    /// All values of an enumeration.
    pub allowable_values: Option<Vec<Value>>,
    /// Least value of a number.
    pub lower_bound: Option<i64>,
    /// Greatest value of a number.
    pub upper_bound: Option<i64>,
    /// Least length of a text.
    pub min_length: Option<i64>,
    /// Greatest length of a text.
    pub max_length: Option<i64>,
    /// Whether it cannot be changed.
    pub read_only: Option<bool>,
    /// Whether it differs from node to node, such as a serial number.
    pub unique: Option<bool>,
}

/// A component that has firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FirmwareComponent {
    /// `bios`, `bmc`, `nic:ID`.
    pub component: String,
    /// Version that was found first.
    pub initial_version: Option<String>,
    /// Version that it has.
    pub current_version: Option<String>,
    /// Version that was written last.
    pub last_version_flashed: Option<String>,
    /// When that was, as RFC 3339.
    pub updated_at: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{BiosSetting, FirmwareComponent};

    /// Answers of the "Bare Metal API" reference.
    #[test]
    fn answers_are_read_with_nulls_and_links() {
        let setting: BiosSetting = serde_json::from_value(json!({
            "created_at": "2016-08-18T22:28:49.653974+00:00", "links": [], "name": "Virtualization", "value": "Enabled",
            "attribute_type": "Enumeration", "allowable_values": ["Enabled", "Disabled"], "lower_bound": null,
            "max_length": null, "min_length": null, "read_only": false, "reset_required": null, "unique": null,
            "upper_bound": null,
        }))
        .expect("a setting");
        assert_eq!((&*setting.name, setting.read_only, setting.lower_bound), ("Virtualization", Some(false), None));
        let component: FirmwareComponent = serde_json::from_value(json!({
            "created_at": "2016-08-18T22:28:49.653974+00:00", "updated_at": null, "component": "bmc",
            "initial_version": "v1.0.0", "current_version": "v1.0.0", "last_version_flashed": null, "vendor": null,
        }))
        .expect("a component");
        assert_eq!((component.current_version.as_deref(), component.updated_at), (Some("v1.0.0"), None));
    }
}
