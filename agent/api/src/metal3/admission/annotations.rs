//! Rules of the annotations of hosts and claims.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::Value;

use super::super::annotations::{
    self, BY_HTTP, BY_TLS, HARDWARE_DETAILS, INSPECT, REBOOT, STATUS, VIRTUAL_MEDIA, reboot_client,
};
use super::super::{BareMetalHost, HardwareData, HardwareDetails};

/// All values of `operationalStatus`.
const OPERATIONAL_STATUS: [&str; 7] = ["", "OK", "discovered", "error", "delayed", "detached", "servicing"];
/// All values of `errorType`.
const ERROR_TYPE: [&str; 9] = [
    "",
    "provisioned registration error",
    "registration error",
    "inspection error",
    "preparation error",
    "provisioning error",
    "power management error",
    "detach error",
    "servicing error",
];

pub(super) fn check(host: &BareMetalHost, problems: &mut Vec<String>) {
    for (annotation, value) in host.metadata.annotations.iter().flatten() {
        let checked = match annotation.as_str() {
            STATUS => status(value),
            INSPECT => one_of(INSPECT, value, ["disabled", ""]),
            HARDWARE_DETAILS => hardware_details(value, host.inspection_disabled()),
            VIRTUAL_MEDIA => one_of(VIRTUAL_MEDIA, value, [BY_TLS, BY_HTTP]),
            other if reboot_client(other).is_some() => reboot(value),
            _ => Ok(()),
        };
        problems.extend(checked.err());
    }
}

pub(super) fn reboot(value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    let arguments = read(value, true)
        .map_err(|problem| format!("failed to unmarshal the data from the {REBOOT} annotation: {problem}"))?;
    let wrong = |field: &str, value: &Value, wanted: &str| {
        format!(
            "failed to unmarshal the data from the {REBOOT} annotation: json: cannot unmarshal {} into Go struct field RebootAnnotationArguments.{field} of type {wanted}",
            kind(value)
        )
    };
    match &arguments {
        Value::Null => Ok(()),
        Value::Object(fields) => {
            if let Some(force) = fields.get("force").filter(|force| !force.is_boolean() && !force.is_null()) {
                return Err(wrong("force", force, "bool"));
            }
            match fields.get("mode") {
                None | Some(Value::Null) => Ok(()),
                Some(Value::String(mode)) if ["hard", "soft", ""].contains(&mode.as_str()) => Ok(()),
                Some(Value::String(_)) => {
                    Err(format!("invalid mode in the {REBOOT} annotation, allowed are \"hard\", \"soft\" or \"\""))
                }
                Some(other) => Err(wrong("mode", other, "v1alpha1.RebootMode")),
            }
        }
        other => Err(format!(
            "failed to unmarshal the data from the {REBOOT} annotation: json: cannot unmarshal {} into Go value of type v1alpha1.RebootAnnotationArguments",
            kind(other)
        )),
    }
}

fn one_of(annotation: &str, value: &str, allowed: [&str; 2]) -> Result<(), String> {
    if allowed.contains(&value) {
        Ok(())
    } else {
        let [one, other] = allowed;
        Err(format!("invalid value for the {annotation} annotation, allowed are \"{one}\" or \"{other}\""))
    }
}

fn status(value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    let status = decoded(value, "BareMetalHostStatus", || part(BareMetalHost::crd(), &["status"]))
        .map_err(|problem| format!("error decoding status annotation: {problem}"))?;
    for (field, allowed) in [("operationalStatus", &OPERATIONAL_STATUS[..]), ("errorType", &ERROR_TYPE[..])] {
        let value = status.get(field).and_then(Value::as_str).unwrap_or_default();
        if !allowed.contains(&value) {
            return Err(format!("invalid {field} '{value}' in the {STATUS} annotation"));
        }
    }
    // Other fields have words of their own, too: with one that is none, the host would lose its status.
    annotations::status(value).map(drop).map_err(|problem| format!("error decoding status annotation: {problem}"))
}

fn hardware_details(value: &str, inspection_disabled: bool) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    if !inspection_disabled {
        return Err("when hardware details are provided, inspection must be disabled (either via inspect.metal3.io annotation or inspectionMode field)".into());
    }
    decoded(value, "HardwareDetails", || part(HardwareData::crd(), &["spec", "hardware"]))
        .and_then(|_| serde_json::from_str::<HardwareDetails>(value).map_err(|problem| problem.to_string()))
        .map(drop)
        .map_err(|problem| format!("error decoding the {HARDWARE_DETAILS} annotation: {problem}"))
}

/// The schema of a part of a resource.
fn part(
    definition: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    path: &[&str],
) -> Option<JSONSchemaProps> {
    let mut schema = definition.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
    for name in path {
        schema = schema.properties?.remove(*name)?;
    }
    Some(schema)
}

/// JSON whose fields are all known and of the right types. Fields may be missing: the schema's `required` is not asked.
fn decoded(text: &str, go_type: &str, schema: impl Fn() -> Option<JSONSchemaProps>) -> Result<Value, String> {
    let value = read(text, false)?;
    let Some(schema) = schema() else { return Ok(value) };
    known(&value, &schema, go_type)?;
    Ok(value)
}

/// The first JSON value of a text; with `whole`, there may be nothing behind it.
fn read(text: &str, whole: bool) -> Result<Value, String> {
    let worded = |error: &serde_json::Error| {
        let eof = if whole { "unexpected end of JSON input" } else { "unexpected EOF" };
        if error.is_eof() { eof.to_owned() } else { error.to_string() }
    };
    if whole {
        return serde_json::from_str(text).map_err(|error| worded(&error));
    }
    match serde_json::Deserializer::from_str(text).into_iter::<Value>().next() {
        Some(value) => value.map_err(|error| worded(&error)),
        None => Err("EOF".into()),
    }
}

fn known(value: &Value, schema: &JSONSchemaProps, path: &str) -> Result<(), String> {
    let wanted = schema.type_.as_deref().unwrap_or_default();
    let fits = match value {
        Value::Null => true,
        Value::Bool(_) => wanted == "boolean",
        Value::Number(number) => wanted == "number" || wanted == "integer" && !number.is_f64(),
        Value::String(_) => wanted == "string",
        Value::Array(_) => wanted == "array",
        Value::Object(_) => wanted == "object",
    };
    if !fits {
        return Err(format!("json: cannot unmarshal {} into Go struct field {path} of type {wanted}", kind(value)));
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let property = schema.properties.as_ref().and_then(|properties| properties.get(name));
                let other = match &schema.additional_properties {
                    Some(JSONSchemaPropsOrBool::Schema(schema)) => Some(schema.as_ref()),
                    Some(JSONSchemaPropsOrBool::Bool(_)) | None => None,
                };
                let Some(schema) = property.or(other) else { return Err(format!("json: unknown field \"{name}\"")) };
                known(field, schema, &format!("{path}.{name}"))?;
            }
            Ok(())
        }
        Value::Array(items) => match &schema.items {
            Some(JSONSchemaPropsOrArray::Schema(schema)) => items.iter().try_for_each(|item| known(item, schema, path)),
            Some(JSONSchemaPropsOrArray::Schemas(_)) | None => Ok(()),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// A JSON type as Go calls it.
const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
