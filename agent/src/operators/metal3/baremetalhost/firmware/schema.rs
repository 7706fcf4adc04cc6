//! BIOS settings as Ironic tells them, and the name of what they may be.

use std::collections::BTreeMap;

use agent_api::metal3::{AttributeType, SettingSchema};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::ironic::BiosSetting;

/// Digits of the hash in a schema's name.
const DIGITS: usize = 8;

/// BIOS settings of a node. Passwords are in neither of the maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bios {
    /// What they are.
    pub settings: BTreeMap<String, String>,
    /// What they may be.
    pub schema: BTreeMap<String, SettingSchema>,
    /// Name of the `FirmwareSchema` with this schema; nodes with the same schema have the same.
    pub name: String,
}

impl Bios {
    /// As Ironic tells them.
    pub fn of(found: &[BiosSetting]) -> Self {
        let all: BTreeMap<String, SettingSchema> =
            found.iter().map(|setting| (setting.name.clone(), schema(setting))).collect();
        let open = |setting: &&BiosSetting| !is_password(setting);
        let settings = found.iter().filter(open).map(|setting| (setting.name.clone(), text(&setting.value))).collect();
        let schema = found.iter().filter(open).map(|setting| (setting.name.clone(), schema(setting))).collect();
        Self { settings, schema, name: name(&all) }
    }
}

fn is_password(setting: &BiosSetting) -> bool {
    setting.name.contains("Password") || setting.attribute_type.as_deref() == Some("Password")
}

fn schema(setting: &BiosSetting) -> SettingSchema {
    SettingSchema {
        attribute_type: setting.attribute_type.as_deref().and_then(attribute_type),
        allowable_values: setting.allowable_values.as_ref().map(|all| all.iter().map(text).collect()),
        lower_bound: setting.lower_bound,
        upper_bound: setting.upper_bound,
        min_length: setting.min_length,
        max_length: setting.max_length,
        read_only: setting.read_only,
        unique: setting.unique,
    }
}

fn attribute_type(name: &str) -> Option<AttributeType> {
    match name {
        "Enumeration" => Some(AttributeType::Enumeration),
        "String" => Some(AttributeType::String),
        "Integer" => Some(AttributeType::Integer),
        "Boolean" => Some(AttributeType::Boolean),
        "Password" => Some(AttributeType::Password),
        _ => None,
    }
}

const fn type_name(kind: Option<AttributeType>) -> &'static str {
    match kind {
        Some(AttributeType::Enumeration) => "Enumeration",
        Some(AttributeType::String) => "String",
        Some(AttributeType::Integer) => "Integer",
        Some(AttributeType::Boolean) => "Boolean",
        Some(AttributeType::Password) => "Password",
        None => "",
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The name that metal3's operator gives a schema, so that both find the same one: a hash of all its words, sorted.
/// `unique` is not among these words.
fn name(schema: &BTreeMap<String, SettingSchema>) -> String {
    let mut words: Vec<String> = Vec::new();
    for (name, setting) in schema {
        words.extend([name.clone(), type_name(setting.attribute_type).to_owned()]);
        words.extend(setting.allowable_values.iter().flatten().cloned());
        let bounds = [setting.lower_bound, setting.upper_bound, setting.min_length, setting.max_length];
        words.extend(bounds.into_iter().flatten().map(|bound| bound.to_string()));
        words.extend(setting.read_only.map(|read_only| read_only.to_string()));
    }
    words.sort();
    let hash = hex::encode(Sha256::digest(format!("[{}]", words.join(" "))));
    format!("schema-{}", &hash[..DIGITS])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Bios;

    pub fn bios(settings: &Value) -> Bios {
        Bios::of(&serde_json::from_value::<Vec<_>>(settings.clone()).expect("settings"))
    }

    /// Schema and name of metal3's own test.
    #[test]
    fn a_schema_has_the_name_that_metal3_gives_it() {
        let length = |name: &str| json!({"name": name, "attribute_type": "String", "min_length": 0, "max_length": 20});
        let with = |mut setting: Value, read_only: bool| {
            setting["read_only"] = json!(read_only);
            setting
        };
        let choice = |name: &str| json!({"name": name, "attribute_type": "Enumeration", "allowable_values": ["Enabled", "Disabled"]});
        let retries =
            json!({"name": "NetworkBootRetryCount", "attribute_type": "Integer", "lower_bound": 0, "upper_bound": 20});
        let found = bios(&json!([
            length("AssetTag"),
            with(length("CustomPostMessage"), false),
            with(length("L2Cache"), true),
            with(retries, false),
            with(choice("ProcVirtualization"), false),
            with(choice("SecureBoot"), true),
        ]));
        assert_eq!(found.name, "schema-4bcc035f");
    }

    #[test]
    fn passwords_are_not_kept() {
        let found = bios(&json!([
            {"name": "SysPassword", "value": "x", "attribute_type": "String"},
            {"name": "Pin", "value": "1", "attribute_type": "Password"},
            {"name": "Boot", "value": null},
        ]));
        assert_eq!(found.settings.into_iter().collect::<Vec<_>>(), [("Boot".to_owned(), String::new())]);
        assert_eq!(found.schema.into_keys().collect::<Vec<_>>(), ["Boot"]);
    }
}
