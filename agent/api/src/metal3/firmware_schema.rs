//! `FirmwareSchema`: what the BIOS settings of a model may be.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::host_firmware_settings::IntOrString;

/// What the values of a setting are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AttributeType {
    /// One of `allowable_values`.
    Enumeration,
    /// A text.
    String,
    /// A number.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A password; never set through this.
    Password,
}

/// What a setting may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingSchema {
    /// What its values are; unknown when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attribute_type: Option<AttributeType>,
    /// All values of an enumeration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowable_values: Option<Vec<String>>,
    /// Least value of a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<i64>,
    /// Greatest value of a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper_bound: Option<i64>,
    /// Least length of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_length: Option<i64>,
    /// Greatest length of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length: Option<i64>,
    /// Whether it cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Whether it differs from host to host, such as a serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique: Option<bool>,
}

/// The settings.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "FirmwareSchema",
    plural = "firmwareschemas",
    doc = "What the BIOS settings of a model may be."
)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareSchemaSpec {
    /// Who makes the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_vendor: Option<String>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_model: Option<String>,
    /// Settings by name.
    pub schema: BTreeMap<String, SettingSchema>,
}

impl SettingSchema {
    /// Whether a setting may be given this value. What is not known about the setting is not held against it.
    ///
    /// # Errors
    /// Why not, in the words of the original controller.
    pub fn validate(&self, name: &str, value: &IntOrString) -> Result<(), String> {
        self.problem(name, &value.to_string()).map_or(Ok(()), |why| Err(format!("Setting {name} is invalid, {why}")))
    }

    fn problem(&self, name: &str, value: &str) -> Option<String> {
        if self.read_only == Some(true) {
            return Some("it is ReadOnly".to_owned());
        }
        if name.contains("Password") {
            return Some("Password fields can't be set".to_owned());
        }
        match self.attribute_type? {
            AttributeType::Enumeration => {
                let known = self.allowable_values.iter().flatten().any(|allowed| allowed == value);
                (!known).then(|| format!("unknown enumeration value - {value}"))
            }
            AttributeType::Integer => match value.parse::<i64>() {
                Err(_) => Some(format!("String {value} entered while integer expected")),
                Ok(number) => self.outside(number),
            },
            AttributeType::String => self.ill_sized(value),
            AttributeType::Boolean => {
                (value != "true" && value != "false").then(|| format!("{value} is not a boolean"))
            }
            AttributeType::Password => Some("passwords are immutable".to_owned()),
        }
    }

    fn outside(&self, number: i64) -> Option<String> {
        match (self.lower_bound, self.upper_bound) {
            (Some(low), _) if number < low => Some(format!("integer {number} is below minimum value {low}")),
            (_, Some(high)) if number > high => Some(format!("integer {number} is above maximum value {high}")),
            (Some(_) | None, Some(_) | None) => None,
        }
    }

    /// Lengths are counted in bytes.
    fn ill_sized(&self, text: &str) -> Option<String> {
        let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
        match (self.min_length, self.max_length) {
            (Some(least), _) if length < least => Some(format!("string {text} length is below minimum length {least}")),
            (_, Some(most)) if length > most => Some(format!("string {text} length is above maximum length {most}")),
            (Some(_) | None, Some(_) | None) => None,
        }
    }
}
