//! Manifests of the resource kinds, made from the types.
//!
//! The files `agent/api/crds/*.yaml` are what the API server is given; a test says when they are old.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::json;

use super::{
    BareMetalHost, BareMetalSwitch, BmcEventSubscription, DataImage, FirmwareSchema, HardwareData, HostClaim,
    HostDeployPolicy, HostFirmwareComponents, HostFirmwareSettings, HostNetworkAttachment, HostUpdatePolicy,
    PreprovisioningImage,
};

/// Fields that may be `null`; others that are `null` are refused.
const NULLABLE: [&str; 4] = ["hardwareRAIDVolumes", "softwareRAIDVolumes", "start", "end"];

/// All kinds in the order of their names, ready for the API server.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut all: Vec<_> = [
        BareMetalHost::crd(),
        BareMetalSwitch::crd(),
        BmcEventSubscription::crd(),
        DataImage::crd(),
        FirmwareSchema::crd(),
        HardwareData::crd(),
        HostClaim::crd(),
        HostDeployPolicy::crd(),
        HostFirmwareComponents::crd(),
        HostFirmwareSettings::crd(),
        HostNetworkAttachment::crd(),
        HostUpdatePolicy::crd(),
        PreprovisioningImage::crd(),
    ]
    .into();
    all.iter_mut().for_each(as_served);
    all
}

/// File name and text of each manifest.
///
/// # Errors
/// Only what cannot be written as YAML, which a definition never is.
pub fn manifests() -> Result<Vec<(String, String)>, serde_saphyr::ser::Error> {
    all()
        .into_iter()
        .map(|definition| Ok((format!("metal3.io_{}.yaml", definition.spec.names.plural), yaml(&definition)?)))
        .collect()
}

fn yaml(definition: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(definition)
}

/// What the derive cannot say: which fields may be `null`, and who has a status subresource.
fn as_served(definition: &mut CustomResourceDefinition) {
    let kind = definition.spec.names.kind.clone();
    definition.spec.names.list_kind = Some(format!("{kind}List"));
    for version in &mut definition.spec.versions {
        // As it was always served: the policy's status is part of the object.
        if kind == "HostUpdatePolicy" {
            version.subresources = None;
        }
        let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) else {
            continue;
        };
        refuse_null(schema, false);
        spec_may_be_absent(schema);
    }
}

/// An object without a spec is a valid one where nothing in it is required: the API server gives it an empty one.
fn spec_may_be_absent(root: &mut JSONSchemaProps) {
    let Some(spec) = root.properties.as_mut().and_then(|properties| properties.get_mut("spec")) else { return };
    if spec.required.as_ref().is_none_or(Vec::is_empty) {
        spec.default = Some(JSON(json!({})));
    }
}

/// `nullable` only where a field says so.
fn refuse_null(schema: &mut JSONSchemaProps, keep: bool) {
    if !keep {
        schema.nullable = None;
    }
    for (name, property) in schema.properties.iter_mut().flatten() {
        refuse_null(property, NULLABLE.contains(&name.as_str()));
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => refuse_null(item, false),
        Some(JSONSchemaPropsOrArray::Schemas(all)) => all.iter_mut().for_each(|item| refuse_null(item, false)),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        refuse_null(values, false);
    }
}
