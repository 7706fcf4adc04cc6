//! The JSON Schema of a definition, made from the input types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// A document of a definition. Only for its schema: one generator keeps the names of both kinds apart.
#[derive(JsonSchema)]
#[schemars(untagged, title = "Foothold definition", description = "An Appliance, or the Site beside it.")]
#[expect(dead_code, reason = "the kind decides before anything is deserialized")]
enum Document {
    Appliance(Box<super::input::Appliance>),
    Site(Box<agent_api::site::Site>),
}

/// The schema that `foothold schema` prints and editors use: an Appliance or a Site.
pub fn json_schema() -> Value {
    let mut schema = of::<Document>();
    for (key, word) in [("apiVersion", super::API_VERSION), ("kind", "Site")] {
        if let Some(property) = schema.pointer_mut(&format!("/$defs/Site/properties/{key}")) {
            *property = json!({ "const": word, "description": property.get("description") });
        }
    }
    schema
}

/// The schema of one type, without the `null`s that schemars adds to optional keys: a key is given or left out.
pub(super) fn of<T: JsonSchema>() -> Value {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    without_null(&mut schema);
    schema
}

fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(keys) => {
            if let Some(types) = keys.get("type").and_then(Value::as_array) {
                let kept: Vec<Value> = types.iter().filter(|name| *name != "null").cloned().collect();
                if let [only] = kept.as_slice() {
                    keys.insert("type".to_owned(), only.clone());
                }
            }
            if let Some(variants) = keys.get_mut("anyOf").and_then(Value::as_array_mut) {
                variants.retain(|variant| variant.get("type").and_then(Value::as_str) != Some("null"));
                if let [only] = variants.as_slice()
                    && let Some(Value::String(target)) = only.get("$ref").cloned()
                {
                    keys.remove("anyOf");
                    keys.insert("$ref".to_owned(), Value::String(target));
                }
            }
            keys.retain(|key, value| !(key == "default" && value.is_null()));
            keys.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::json_schema;

    fn keys_of(schema: &Value, reference: &str) -> Vec<String> {
        let target = schema.pointer(reference).and_then(|property| property["$ref"].as_str()).expect("a reference");
        let keys = schema.pointer(target.trim_start_matches('#')).and_then(|found| found["properties"].as_object());
        keys.expect("an object").keys().cloned().collect()
    }

    #[test]
    fn types_of_the_same_name_in_both_kinds_stay_apart() {
        let schema = json_schema();
        assert_eq!(keys_of(&schema, "/$defs/Services/properties/ntp"), ["serve"]);
        assert_eq!(keys_of(&schema, "/$defs/Site/properties/ntp"), ["peers"]);
    }

    #[test]
    fn a_key_is_given_or_left_out_but_never_null() {
        assert!(!json_schema().to_string().contains("\"null\""));
    }
}
