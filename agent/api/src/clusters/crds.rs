//! Manifests of the resource kinds of `bpa.akraino.org` and `kpa.foothold.dev`, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, ValidationRule,
};
use kube::CustomResourceExt;

use super::provisioning::Provisioning;
use super::release::ClusterRelease;
use super::software::Software;

/// Most nodes that one item of `masters` or `workers` names.
const MOST_IN_ITEM: i64 = 16;
/// A label of DNS (RFC 1123), in CEL.
const NAMES: &str = "self.all(name, size(name) <= 63 && name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))";

/// Of the nodes of a cluster, in CEL.
const ONE_PLACE: &str = "!has(self.clusterRef) || ((!has(self.masters) || size(self.masters) == 0) && (!has(self.workers) || \
                         size(self.workers) == 0) && !has(self.nodeSelector))";

/// All kinds, ready for the API server.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut all = vec![Provisioning::crd(), Software::crd(), ClusterRelease::crd()];
    for definition in &mut all {
        definition.spec.names.list_kind = Some(format!("{}List", definition.spec.names.kind));
    }
    check_names(&mut all[0]);
    check_nodes(&mut all[0]);
    all
}

/// File name and text of each manifest.
///
/// # Errors
/// Only what cannot be written as YAML, which a definition never is.
pub fn manifests() -> Result<Vec<(String, String)>, serde_saphyr::ser::Error> {
    let text = |definition: CustomResourceDefinition| {
        let (group, plural) = (&definition.spec.group, &definition.spec.names.plural);
        Ok((format!("{group}_{plural}.yaml"), serde_saphyr::to_string(&definition)?))
    };
    all().into_iter().map(text).collect()
}

/// What the derive cannot say: nodes are named as hosts are.
fn check_names(definition: &mut CustomResourceDefinition) {
    let schemas =
        definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for schema in schemas {
        for role in ["masters", "workers"] {
            let Some(item) =
                property(schema, "spec").and_then(|spec| property(spec, role)).and_then(|list| list.items.as_mut())
            else {
                continue;
            };
            if let JSONSchemaPropsOrArray::Schema(map) = item {
                map.max_properties = Some(MOST_IN_ITEM);
                map.x_kubernetes_validations = Some(vec![ValidationRule {
                    rule: NAMES.to_owned(),
                    message: Some(
                        "a node's name has a to z, 0 to 9 and `-` inside, and at most 63 characters".to_owned(),
                    ),
                    ..ValidationRule::default()
                }]);
            }
        }
    }
}

/// Nodes come from one place.
fn check_nodes(definition: &mut CustomResourceDefinition) {
    let schemas =
        definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for spec in schemas.filter_map(|schema| property(schema, "spec")) {
        spec.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
            rule: ONE_PLACE.to_owned(),
            message: Some("clusterRef takes the place of masters, workers and nodeSelector: leave one out".to_owned()),
            ..ValidationRule::default()
        });
    }
}

fn property<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    schema.properties.as_mut()?.get_mut(name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Provisioning, manifests};
    use crate::committed;

    #[test]
    fn the_committed_manifests_are_the_generated_ones() {
        let all = manifests().expect("YAML");
        for group in ["bpa.akraino.org_", "kpa.foothold.dev_"] {
            let own: Vec<_> = all.iter().filter(|(name, _)| name.starts_with(group)).cloned().collect();
            committed::check(group, &own);
        }
    }

    /// What ICN's users have, with its spellings.
    #[test]
    fn samples_of_icn_come_back_as_they_were() {
        for spec in [
            json!({"masters": [{"master": {"mac-address": "00:c6:14:04:61:b2"}}]}),
            json!({
                "masters": [{"master-1": {"mac-address": "00:e1:ba:ce:df:bd", "cpu": 10, "memory": "4Gi"}}],
                "workers": [
                    {"worker-1": {"mac-address": "00:c4:13:04:62:b5"}},
                    {"worker-2": {"cpu": 20, "memory": 8, "sriov": true, "qat": false}},
                ],
                "KUDPlugins": ["onap4k8s", "emco"],
                "PodSubnet": "10.244.64.0/18",
            }),
            json!({"masters": [{"master": {"mac-address": "00:c6:14:04:61:b2"}}], "hostfile": "/root/go/hosts.ini"}),
        ] {
            let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
                "metadata": {"name": "p", "labels": {"cluster": "a", "owner": "c1"}}, "spec": spec});
            let read: Provisioning = serde_json::from_value(object.clone()).expect("read");
            assert_eq!(read.cluster(), "a");
            assert_eq!(serde_json::to_value(read).expect("JSON")["spec"], object["spec"]);
        }
    }

    #[test]
    fn kinds_have_the_short_names_and_columns_of_icn_and_more() {
        let all: Vec<Value> = super::all().into_iter().map(|definition| json!(definition)).collect();
        assert_eq!(
            (&all[0]["spec"]["names"]["shortNames"], &all[1]["spec"]["names"]["shortNames"]),
            (&json!(["bpa"]), &json!(["sw"]))
        );
        assert_eq!(all[0]["metadata"]["name"], "provisionings.bpa.akraino.org");
        assert_eq!(all[1]["metadata"]["name"], "softwares.bpa.akraino.org");
        assert!(all.iter().all(|kind| kind["spec"]["versions"][0]["subresources"]["status"].is_object()));
    }
}
