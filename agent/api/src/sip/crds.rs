//! Manifests of the resource kinds of `airship.airshipit.org`, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, ValidationRule,
};
use kube::CustomResourceExt;

use super::cluster::SipCluster;

/// Where the schema is mended: path of properties, `[]` for items; rule in CEL, message.
const RULES: [(&str, &str, &str); 5] = [
    (
        "",
        "size(self.metadata.name) <= 37 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name has a to z first, then a to z, 0 to 9 and `-` inside, and at most 37 characters: Services are \
         named `loadbalancer-controlplane-NAME`",
    ),
    ("spec.nodes.ControlPlane.labelSelector.matchExpressions[]", VALUES, VALUES_SAID),
    ("spec.nodes.Worker.labelSelector.matchExpressions[]", VALUES, VALUES_SAID),
    (
        "spec.services.loadBalancerWorker[].nodePortRange",
        "self.start <= self.end",
        "the end of the range comes before its start",
    ),
    ("spec.services.auth[].upstream", "has(self.oidc) != has(self.ldap)", "an upstream is either `oidc` or `ldap`"),
];
const VALUES: &str = "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : \
                      !has(self.values) || size(self.values) == 0";
const VALUES_SAID: &str = "`In` and `NotIn` need values, `Exists` and `DoesNotExist` take none";
/// Keys that the schema requires although the types do not: so an object that was stored without them can still be read,
/// and its status says what is missing.
const REQUIRED: [(&str, &[&str]); 7] = [
    ("spec", &["services"]),
    ("spec.nodes.ControlPlane", &["count"]),
    ("spec.nodes.Worker", &["count"]),
    ("spec.services.loadBalancerControlPlane[]", &["nodeInterfaceId", "nodePort"]),
    ("spec.services.loadBalancerWorker[]", &["nodeInterfaceId", "nodePortRange"]),
    ("spec.services.jumpHost[]", &["nodeInterfaceId", "nodePort", "nodeSSHPrivateKeys"]),
    ("spec.services.auth[]", &["nodePort"]),
];

/// What may be left out, and means nothing: an empty text, which it is by default, is none.
const FORGOTTEN: &str = "spec.services.auth[].nodeInterfaceId";

/// All kinds, ready for the API server.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut definition = SipCluster::crd();
    definition.spec.names.list_kind = Some(format!("{}List", definition.spec.names.kind));
    let schemas =
        definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for schema in schemas {
        for (path, rule, message) in RULES {
            if let Some(at) = at(schema, path) {
                at.x_kubernetes_validations = Some(vec![ValidationRule {
                    rule: rule.to_owned(),
                    message: Some(message.to_owned()),
                    ..ValidationRule::default()
                }]);
            }
        }
        for (path, names) in REQUIRED {
            if let Some(at) = at(schema, path) {
                at.required = Some(names.iter().map(|name| (*name).to_owned()).collect());
            }
        }
        for (path, names) in REQUIRED {
            for name in names {
                if let Some(at) = at(schema, &format!("{path}.{name}")) {
                    at.default = None;
                }
            }
        }
        if let Some(at) = at(schema, FORGOTTEN) {
            at.default = None;
        }
    }
    vec![definition]
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

/// The schema at a path.
pub(crate) fn at<'a>(schema: &'a mut JSONSchemaProps, path: &str) -> Option<&'a mut JSONSchemaProps> {
    let mut here = schema;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        here = here.properties.as_mut()?.get_mut(part.trim_end_matches("[]"))?;
        if part.ends_with("[]") {
            here = match here.items.as_mut()? {
                JSONSchemaPropsOrArray::Schema(item) => item,
                JSONSchemaPropsOrArray::Schemas(_) => return None,
            };
        }
    }
    Some(here)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{FORGOTTEN, REQUIRED, RULES, all, manifests};
    use crate::committed;
    use crate::sip::cluster::SipCluster;

    #[test]
    fn the_committed_manifests_are_the_generated_ones() {
        committed::check("airship.airshipit.org_sip", &manifests().expect("YAML"));
    }

    /// A path that leads nowhere would check nothing.
    #[test]
    fn each_rule_and_each_required_field_has_its_place() {
        let mut definition = crate::sip::crds::all().remove(0);
        let schema = definition.spec.versions[0].schema.as_mut().and_then(|it| it.open_api_v3_schema.as_mut());
        let schema = schema.expect("a schema");
        for path in RULES.iter().map(|(path, ..)| *path).chain(REQUIRED.iter().map(|(path, _)| *path)) {
            assert!(super::at(schema, path).is_some(), "{path}");
        }
        for (path, names) in REQUIRED {
            for name in names {
                let path = format!("{path}.{name}");
                assert!(super::at(schema, &path).is_some(), "{path}");
            }
        }
        assert!(super::at(schema, FORGOTTEN).is_some_and(|at| at.default.is_none()));
    }

    /// SIP-1: what Airship's users have, with its spellings.
    #[test]
    fn a_file_of_airships_users_comes_back_as_it_was() {
        let object: Value =
            serde_saphyr::from_str(include_str!("../../../tests/fixtures/sip/sipcluster.yaml")).expect("YAML");
        let read: SipCluster = serde_json::from_value(object.clone()).expect("read");
        assert_eq!(serde_json::to_value(&read).expect("JSON")["spec"], object["spec"]);
        let (active, standby) = read.spec.nodes.control_plane.as_ref().expect("hosts").target();
        assert_eq!((active, standby), (1, 1));
    }

    #[test]
    fn the_kind_is_called_as_airship_calls_it() {
        let kind = json!(all()[0]);
        assert_eq!(kind["metadata"]["name"], "sipclusters.airship.airshipit.org");
        assert_eq!(
            (&kind["spec"]["names"]["kind"], &kind["spec"]["scope"]),
            (&json!("SIPCluster"), &json!("Namespaced"))
        );
        let version = &kind["spec"]["versions"][0];
        assert!(version["name"] == "v1" && version["subresources"]["status"].is_object());
    }

    /// A map without `count` was a crash there, and one that the API server has already must stop nobody here.
    #[test]
    fn what_the_schema_would_refuse_is_read_all_the_same() {
        let object = json!({"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "metadata": {"name": "a"},
            "spec": {"nodes": {"Worker": {}}}});
        let read: SipCluster = serde_json::from_value(object).expect("read");
        assert_eq!(read.spec.nodes.worker.expect("hosts").target(), (0, 0));
    }
}
