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
    pub fn accepts(&self, value: &IntOrString) -> bool {
        let text = value.to_string();
        let within = |number: i64, low: Option<i64>, high: Option<i64>| match (low, high) {
            (Some(low), Some(high)) => (low..=high).contains(&number),
            (Some(_) | None, None) | (None, Some(_)) => true,
        };
        if self.read_only == Some(true) {
            return false;
        }
        match self.attribute_type {
            Some(AttributeType::Enumeration) => self.allowable_values.iter().flatten().any(|allowed| *allowed == text),
            Some(AttributeType::Integer) => {
                text.parse().is_ok_and(|number| within(number, self.lower_bound, self.upper_bound))
            }
            Some(AttributeType::String) => {
                i64::try_from(text.len()).is_ok_and(|length| within(length, self.min_length, self.max_length))
            }
            Some(AttributeType::Boolean) => text == "true" || text == "false",
            Some(AttributeType::Password) => false,
            None => true,
        }
    }
}
