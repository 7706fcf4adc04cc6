//! The JSON Schema of a definition, made from the input types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// The schema that `foothold schema` prints and editors use: an Appliance or a Site.
pub fn json_schema() -> Value {
    let mut appliance = of::<super::input::Appliance>();
    let mut site = of::<agent_api::site::Site>();
    let mut definitions = serde_json::Map::new();
    for schema in [&mut appliance, &mut site] {
        let Some(schema) = schema.as_object_mut() else { continue };
        schema.remove("$schema");
        if let Some(Value::Object(own)) = schema.remove("$defs") {
            definitions.extend(own);
        }
    }
    if let Some(kind) = site.pointer_mut("/properties/kind") {
        *kind = json!({ "const": "Site" });
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Foothold definition",
        "oneOf": [appliance, site],
        "$defs": definitions,
    })
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
