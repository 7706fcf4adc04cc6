//! Manifests of the kinds of `ViNO`, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, ValidationRule,
};
use kube::CustomResourceExt;

use super::pool::IpPool;
use super::spec::Vino;
use crate::sip::crds::at;

/// A path of properties, `[]` for items; a rule in CEL; what is said when it does not hold.
type Rule = (&'static str, &'static str, &'static str);

/// Where the schema of a `Vino` is mended.
const RULES: [Rule; 16] = [
    (
        "",
        "size(self.metadata.name) <= 63",
        "metadata.name has at most 63 characters: it is a label of all that is made",
    ),
    ("spec.networks", "self.all(a, self.exists_one(b, a.name == b.name))", "two networks have one name"),
    ("spec.nodes", "self.all(a, self.exists_one(b, a.name == b.name))", "two kinds of nodes have one name"),
    (
        "spec",
        "!has(self.nodes) || self.nodes.all(n, !has(n.networkInterfaces) || n.networkInterfaces.all(i, has(self.networks) && \
         self.networks.exists(w, w.name == i.network)))",
        "an interface in `nodes` names a network that is not in `networks`",
    ),
    ("spec.networks[]", "isCIDR(self.subnet)", "`subnet` is no network such as `192.168.2.0/20`"),
    (
        "spec.networks[]",
        "has(self.staticAllocationStart) && has(self.staticAllocationStop) || has(self.allocationStart) && \
         has(self.allocationStop)",
        "`staticAllocationStart` and `staticAllocationStop` are missing: bridges and machines have their addresses from there",
    ),
    (
        "spec.networks[]",
        "[has(self.staticAllocationStart) ? self.staticAllocationStart : '', has(self.staticAllocationStop) ? \
         self.staticAllocationStop : '', has(self.allocationStart) ? self.allocationStart : '', has(self.allocationStop) ? \
         self.allocationStop : '', has(self.dhcpAllocationStart) ? self.dhcpAllocationStart : '', \
         has(self.dhcpAllocationStop) ? self.dhcpAllocationStop : ''].all(a, a == '' || isIP(a) && (!isCIDR(self.subnet) || \
         cidr(self.subnet).containsIP(a)))",
        "an end of `staticAllocation` or `dhcpAllocation` is no address of `subnet`",
    ),
    (
        "spec.networks[]",
        "has(self.dhcpAllocationStart) == has(self.dhcpAllocationStop)",
        "of `dhcpAllocationStart` and `dhcpAllocationStop` only one is there",
    ),
    (
        "spec.networks[]",
        "!has(self.instanceSubnet) || isCIDR(self.instanceSubnet)",
        "`instanceSubnet` is no network such as `192.168.4.0/22`",
    ),
    ("spec.networks[].dns_servers", "self.all(a, isIP(a))", "a DNS server is no address"),
    (
        "spec.networks[].routes[]",
        "isIP(self.gateway) || self.gateway == '$vinobridge'",
        "`gateway` is neither an address nor `$vinobridge`",
    ),
    ("spec.networks[].routes[]", "isIP(self.network) || isCIDR(self.network)", "`network` is no address"),
    (
        "spec.nodes[]",
        "!has(self.bootInterfaceName) || self.bootInterfaceName == '' || has(self.networkInterfaces) && \
         self.networkInterfaces.exists(i, i.name == self.bootInterfaceName)",
        "`bootInterfaceName` names no interface of `networkInterfaces`",
    ),
    (
        "spec.nodes[].networkInterfaces",
        "self.all(a, self.exists_one(b, a.name == b.name))",
        "two interfaces have one name",
    ),
    (
        "spec.nodes[].networkInterfaces",
        "self.all(a, self.exists_one(b, a.network == b.network))",
        "two interfaces of a machine are in one network: it has one address there",
    ),
    (
        "spec.nodes[].diskDrives[]",
        "has(self.path) || has(self.options) && has(self.options.sizeGb)",
        "a disk has neither `path` nor `options.sizeGb`",
    ),
];
/// What must be said though the types forgive.
const REQUIRED: [(&str, &[&str]); 8] = [
    ("spec", &["bmcCredentials"]),
    ("spec.bmcCredentials", &["username", "password"]),
    ("spec.nodeSelector", &["matchLabels"]),
    ("spec.networks[]", &["name", "subnet"]),
    ("spec.networks[].routes[]", &["network", "gateway"]),
    ("spec.nodes[]", &["name", "count"]),
    ("spec.nodes[].networkInterfaces[]", &["name", "network"]),
    ("spec.nodes[].diskDrives[]", &["name"]),
];
const POOL_RULES: [Rule; 1] = [("spec", "isCIDR(self.subnet)", "`subnet` is no network such as `10.0.0.0/16`")];
const POOL_REQUIRED: [(&str, &[&str]); 1] = [("spec", &["subnet", "ranges", "allocatedIPs", "macPrefix", "nextMAC"])];

fn mended(
    mut definition: CustomResourceDefinition,
    rules: &[Rule],
    required: &[(&str, &[&str])],
) -> CustomResourceDefinition {
    definition.spec.names.list_kind = Some(format!("{}List", definition.spec.names.kind));
    let schemas =
        definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for schema in schemas {
        for (path, rule, message) in rules {
            if let Some(at) = at(schema, path) {
                at.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
                    rule: (*rule).to_owned(),
                    message: Some((*message).to_owned()),
                    ..ValidationRule::default()
                });
            }
        }
        for (path, names) in required {
            require(schema, path, names);
        }
    }
    definition
}

fn require(schema: &mut JSONSchemaProps, path: &str, names: &[&str]) {
    if let Some(at) = at(schema, path) {
        at.required = Some(names.iter().map(|name| (*name).to_owned()).collect());
    }
    for name in names {
        if let Some(at) = at(schema, &format!("{path}.{name}")) {
            at.default = None;
        }
    }
}

/// All kinds, ready for the API server.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![mended(IpPool::crd(), &POOL_RULES, &POOL_REQUIRED), mended(Vino::crd(), &RULES, &REQUIRED)]
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{POOL_REQUIRED, POOL_RULES, REQUIRED, RULES, all, at, manifests};
    use crate::committed;
    use crate::vino::pool::IpPool;
    use crate::vino::spec::Vino;

    #[test]
    fn the_committed_manifests_are_the_generated_ones() {
        let all = manifests().expect("YAML");
        for (one, prefix) in all.iter().zip(["airship.airshipit.org_ip", "airship.airshipit.org_vino"]) {
            committed::check(prefix, std::slice::from_ref(one));
        }
    }

    /// A path that leads nowhere would check nothing.
    #[test]
    fn each_rule_and_each_required_field_has_its_place() {
        let places = |rules: &[super::Rule], required: &[(&str, &[&str])]| -> Vec<String> {
            let of_names =
                required.iter().flat_map(|(path, names)| names.iter().map(move |name| format!("{path}.{name}")));
            rules.iter().map(|(path, ..)| (*path).to_owned()).chain(of_names).collect()
        };
        let places = [places(&POOL_RULES, &POOL_REQUIRED), places(&RULES, &REQUIRED)];
        for (mut definition, places) in all().into_iter().zip(places) {
            let schema = definition.spec.versions[0].schema.as_mut().and_then(|it| it.open_api_v3_schema.as_mut());
            let schema = schema.expect("a schema");
            for path in places {
                assert!(at(schema, &path).is_some(), "{path}");
            }
        }
    }

    /// VIN-1: what Airship's users have, with its spellings.
    #[test]
    fn files_of_airships_users_come_back_as_they_were() {
        let read = |text: &str| -> Value { serde_saphyr::from_str(text).expect("YAML") };
        for text in [
            include_str!("../../../tests/fixtures/vino/vino.yaml"),
            include_str!("../../../tests/fixtures/vino/vino-before.yaml"),
        ] {
            let object = read(text);
            let vino: Vino = serde_json::from_value(object.clone()).expect("a Vino");
            assert_eq!(serde_json::to_value(&vino).expect("JSON")["spec"], object["spec"]);
            assert_eq!(vino.spec.nodes.iter().map(|node| node.count).sum::<u32>(), 5);
            assert_eq!(vino.spec.networks[0].static_range().expect("a range").0, "192.168.2.10");
            assert_eq!(
                (vino.spec.nodes[0].boot_interface(), vino.spec.nodes[0].root_device()),
                (Some("management"), "/dev/vda")
            );
        }
        let object = read(include_str!("../../../tests/fixtures/vino/ippool.yaml"));
        let pool: IpPool = serde_json::from_value(object.clone()).expect("an IPPool");
        assert_eq!(serde_json::to_value(&pool).expect("JSON")["spec"], object["spec"]);
    }

    #[test]
    fn the_kinds_are_called_as_airship_calls_them() {
        let names = all().into_iter().map(|it| (it.metadata.name.unwrap_or_default(), it.spec.names.kind));
        let expected = [("ippools.airship.airshipit.org", "IPPool"), ("vinoes.airship.airshipit.org", "Vino")];
        assert_eq!(names.collect::<Vec<_>>(), expected.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
        let kind = json!(all()[1]);
        let version = &kind["spec"]["versions"][0];
        assert!(version["name"] == "v1" && version["subresources"]["status"].is_object());
        assert_eq!(kind["spec"]["scope"], "Namespaced");
    }

    #[test]
    fn a_password_is_not_written_into_a_log() {
        let vino = Vino::new(
            "a",
            crate::vino::spec::VinoSpec {
                bmc_credentials: crate::vino::spec::BmcCredentials {
                    username: "u".to_owned(),
                    password: "hidden".to_owned(),
                },
                ..Default::default()
            },
        );
        assert!(!format!("{vino:?}").contains("hidden"));
    }
}
