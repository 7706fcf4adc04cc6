use std::fmt::Debug;

use kube::CustomResourceExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn fixtures() -> Vec<Value> {
    let files = [include_str!("fixtures/baremetalhosts.yaml"), include_str!("fixtures/others.yaml")];
    files.into_iter().flat_map(|text| serde_saphyr::from_str::<Vec<Value>>(text).expect("a list of objects")).collect()
}

/// The schema of a kind as JSON.
fn schema(kind: &str) -> Value {
    let definition = crds::all().into_iter().find(|it| it.spec.names.kind == kind).expect("a kind");
    serde_json::to_value(&definition.spec.versions[0].schema.as_ref().expect("a schema").open_api_v3_schema)
        .expect("JSON")
}

fn again<T: DeserializeOwned + Serialize + Debug>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|problem| panic!("{object:#}: {problem}"));
    serde_json::to_value(typed).expect("JSON")
}

#[test]
fn the_committed_manifests_are_the_generated_ones() {
    crate::committed::check("metal3.io_", &crds::manifests().expect("YAML"));
}

#[test]
fn a_manifest_says_what_the_definition_says() {
    for ((_, text), definition) in crds::manifests().expect("YAML").iter().zip(crds::all()) {
        let read: Value = serde_saphyr::from_str(text).expect("YAML");
        assert_eq!(read, serde_json::to_value(definition).expect("JSON"));
    }
}

#[test]
fn objects_come_back_as_they_were() {
    let mut kinds = std::collections::BTreeSet::new();
    for object in fixtures() {
        let kind = object["kind"].as_str().expect("a kind").to_owned();
        let back = match kind.as_str() {
            "BareMetalHost" => again::<BareMetalHost>(&object),
            "BareMetalSwitch" => again::<BareMetalSwitch>(&object),
            "BMCEventSubscription" => again::<BmcEventSubscription>(&object),
            "DataImage" => again::<DataImage>(&object),
            "FirmwareSchema" => again::<FirmwareSchema>(&object),
            "HardwareData" => again::<HardwareData>(&object),
            "HostClaim" => again::<HostClaim>(&object),
            "HostDeployPolicy" => again::<HostDeployPolicy>(&object),
            "HostFirmwareComponents" => again::<HostFirmwareComponents>(&object),
            "HostFirmwareSettings" => again::<HostFirmwareSettings>(&object),
            "HostNetworkAttachment" => again::<HostNetworkAttachment>(&object),
            "HostUpdatePolicy" => again::<HostUpdatePolicy>(&object),
            "PreprovisioningImage" => again::<PreprovisioningImage>(&object),
            other => panic!("{other}"),
        };
        assert_eq!(back, object, "{kind}");
        kinds.insert(kind);
    }
    assert_eq!(kinds.len(), 13);
}

/// Every field of every schema stands in some fixture: nothing is left out of the test above.
#[test]
fn the_fixtures_have_every_field() {
    fn missing(schema: &Value, values: &[&Value], path: &str, found: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let below: Vec<&Value> = values.iter().filter_map(|value| value.get(name)).collect();
            if below.is_empty() {
                found.push(format!("{path}.{name}"));
            }
            missing(property, &below, &format!("{path}.{name}"), found);
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                let lists = values.iter().filter_map(|value| value.as_array()).flatten();
                let maps = values.iter().filter_map(|value| value.as_object()).flat_map(|map| map.values());
                let below: Vec<&Value> = lists.chain(maps).collect();
                missing(&schema[inner], &below, path, found);
            }
        }
    }
    // Types that stand at several places are written out once.
    let elsewhere = [".status.provisioning.", ".lastAttemptedImage.", ".physicalDisks.", ".softwareRAIDVolumes."];
    let repeated = ["HostClaim.spec.consumerRef.", "HostClaim.spec.image.", "HardwareData.", ".conditions."];
    let repeated_too = ["Data.namespace", ".metaData.name", ".switchPort.switchSystemName"];
    let fixtures = fixtures();
    let mut found = Vec::new();
    for definition in crds::all() {
        let kind = definition.spec.names.kind;
        let objects: Vec<&Value> = fixtures.iter().filter(|object| object["kind"] == kind.as_str()).collect();
        missing(&schema(&kind), &objects, &kind, &mut found);
    }
    let known = |path: &String| elsewhere.iter().chain(&repeated).chain(&repeated_too).any(|part| path.contains(part));
    found.retain(|path| !known(path));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_schemas_accept_the_fixtures_and_would_prune_nothing() {
    fn check(value: &Value, schema: &Value, path: &str) {
        if value.is_null() {
            assert_eq!(schema["nullable"], true, "{path} is null");
            return;
        }
        if schema["x-kubernetes-int-or-string"] == true {
            assert!(value.is_i64() || value.is_string(), "{path}");
            return;
        }
        let fits = match schema["type"].as_str().unwrap_or_else(|| panic!("{path} has no type")) {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            other => panic!("{path}: {other}"),
        };
        assert!(fits, "{path}: {value} is not of {}", schema["type"]);
        if let Some(allowed) = schema["enum"].as_array() {
            assert!(allowed.contains(value), "{path}: {value} is none of {allowed:?}");
        }
        let at_least = |least: &Value, is: usize| least.as_u64().is_none_or(|least| is as u64 >= least);
        let at_most = |most: &Value, is: usize| most.as_u64().is_none_or(|most| is as u64 <= most);
        if let Some(text) = value.as_str() {
            assert!(at_least(&schema["minLength"], text.len()) && at_most(&schema["maxLength"], text.len()), "{path}");
        }
        if let Some(number) = value.as_f64() {
            let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
            assert!(least.is_none_or(|it| number >= it) && most.is_none_or(|it| number <= it), "{path}");
        }
        if let Some(items) = value.as_array() {
            assert!(at_least(&schema["minItems"], items.len()) && at_most(&schema["maxItems"], items.len()), "{path}");
            for item in items {
                check(item, &schema["items"], path);
            }
        }
        for (name, field) in value.as_object().into_iter().flatten() {
            let property = schema["properties"].get(name).or(schema.get("additionalProperties"));
            check(field, property.unwrap_or_else(|| panic!("{path}.{name} is unknown")), &format!("{path}.{name}"));
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            assert!(value.get(name.as_str().expect("a name")).is_some(), "{path}: {name} is missing");
        }
    }
    for object in fixtures() {
        let kind = object["kind"].as_str().expect("a kind");
        let schema = schema(kind);
        for part in ["spec", "status"].into_iter().filter(|part| object.get(part).is_some()) {
            check(&object[part], &schema["properties"][part], &format!("{kind}.{part}"));
        }
    }
}

/// The rules of structural schemas of apiextensions/v1.
#[test]
fn the_schemas_are_structural() {
    fn check(schema: &Value, path: &str) {
        let fields = schema.as_object().unwrap_or_else(|| panic!("{path} is no schema"));
        let forbidden = [
            "$ref",
            "$schema",
            "definitions",
            "dependencies",
            "deprecated",
            "id",
            "patternProperties",
            "readOnly",
            "writeOnly",
            "xml",
            "oneOf",
            "anyOf",
            "allOf",
            "not",
        ];
        for name in forbidden {
            assert!(!fields.contains_key(name), "{path} has {name}");
        }
        if fields.get("x-kubernetes-int-or-string") == Some(&json!(true)) {
            assert!(!fields.contains_key("type"), "{path}");
            return;
        }
        assert!(fields.get("type").is_some_and(Value::is_string), "{path} has no type");
        assert!(!(fields.contains_key("properties") && fields.contains_key("additionalProperties")), "{path}");
        if let Some(allowed) = fields.get("enum").and_then(Value::as_array) {
            assert!(!allowed.is_empty() && !allowed.contains(&Value::Null), "{path}: {allowed:?}");
        }
        if let Some(keys) = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array) {
            assert_eq!(fields["x-kubernetes-list-type"], "map", "{path}");
            let required = fields["items"]["required"].as_array().expect("required");
            assert!(keys.iter().all(|key| required.contains(key)), "{path}");
        }
        for (name, property) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            check(property, &format!("{path}.{name}"));
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(below) = fields.get(inner) {
                check(below, path);
            }
        }
    }
    for definition in crds::all() {
        let kind = definition.spec.names.kind;
        let schema = schema(&kind);
        assert_eq!(schema["type"], "object");
        check(&schema, &kind);
    }
}

/// Kind, plural, short names, whether status is a subresource, columns in order.
type Row = (&'static str, &'static str, &'static [&'static str], bool, &'static [&'static str]);

#[test]
fn names_and_columns_are_those_that_users_know() {
    let table: [Row; 13] = [
        (
            "BareMetalHost",
            "baremetalhosts",
            &["bmh", "bmhost"],
            true,
            &[
                "Status:1:string:.status.operationalStatus",
                "State:0:string:.status.provisioning.state",
                "Consumer:0:string:.spec.consumerRef.name",
                "BMC:1:string:.spec.bmc.address",
                "Online:0:string:.spec.online",
                "Error:0:string:.status.errorType",
                "Age:0:date:.metadata.creationTimestamp",
            ],
        ),
        (
            "BareMetalSwitch",
            "baremetalswitches",
            &["bms"],
            true,
            &[
                "Driver:0:string:.spec.driver",
                "Device Type:0:string:.spec.deviceType",
                "Address:0:string:.spec.address",
                "Credential Type:0:string:.spec.credentials.type",
            ],
        ),
        (
            "BMCEventSubscription",
            "bmceventsubscriptions",
            &["bes", "bmcevent"],
            true,
            &["Error:0:string:.status.error", "Age:0:date:.metadata.creationTimestamp"],
        ),
        ("DataImage", "dataimages", &[], true, &[]),
        ("FirmwareSchema", "firmwareschemas", &[], false, &[]),
        ("HardwareData", "hardwaredata", &["hd"], false, &["Age:0:date:.metadata.creationTimestamp"]),
        ("HostClaim", "hostclaims", &[], true, &[]),
        ("HostDeployPolicy", "hostdeploypolicies", &[], true, &[]),
        ("HostFirmwareComponents", "hostfirmwarecomponents", &[], true, &[]),
        ("HostFirmwareSettings", "hostfirmwaresettings", &["hfs"], true, &[]),
        (
            "HostNetworkAttachment",
            "hostnetworkattachments",
            &[],
            true,
            &[
                "Mode:0:string:.spec.mode",
                "Native VLAN:0:integer:.spec.nativeVLAN",
                "Age:0:date:.metadata.creationTimestamp",
            ],
        ),
        ("HostUpdatePolicy", "hostupdatepolicies", &[], false, &[]),
        (
            "PreprovisioningImage",
            "preprovisioningimages",
            &["ppimg"],
            true,
            &[
                "Ready:0:string:.status.conditions[?(@.type=='Ready')].status",
                "Reason:0:string:.status.conditions[?(@.type=='Ready')].reason",
            ],
        ),
    ];
    let all = crds::all();
    assert_eq!(all.len(), table.len());
    for (definition, (kind, plural, short, status, columns)) in all.iter().zip(table) {
        let (spec, names) = (&definition.spec, &definition.spec.names);
        assert_eq!((names.kind.as_str(), names.plural.as_str()), (kind, plural));
        assert_eq!(definition.metadata.name.as_deref(), Some(format!("{plural}.metal3.io").as_str()));
        assert_eq!(names.singular.as_deref(), Some(kind.to_lowercase().as_str()));
        assert_eq!(names.list_kind.as_deref(), Some(format!("{kind}List").as_str()));
        assert_eq!(names.short_names.as_deref().unwrap_or_default(), short, "{kind}");
        assert_eq!((spec.group.as_str(), spec.scope.as_str()), (GROUP, "Namespaced"));
        let [version] = spec.versions.as_slice() else { panic!("{kind}") };
        assert_eq!((version.name.as_str(), version.served, version.storage), (VERSION, true, true));
        let subresource = version.subresources.as_ref().is_some_and(|all| all.status.is_some());
        assert_eq!(subresource, status, "{kind}");
        let told: Vec<String> = version
            .additional_printer_columns
            .iter()
            .flatten()
            .map(|column| {
                format!("{}:{}:{}:{}", column.name, column.priority.unwrap_or(0), column.type_, column.json_path)
            })
            .collect();
        assert_eq!(told, columns, "{kind}");
    }
    assert_eq!(BareMetalHost::crd_name(), "baremetalhosts.metal3.io");
}

/// What schemas say beyond names and types.
#[test]
fn the_schemas_have_the_limits_and_defaults_that_users_know() {
    let mac = "[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}";
    let host = "BareMetalHost/properties/spec/properties/";
    let state = "BareMetalHost/properties/status/properties/";
    let table = [
        (format!("{host}automatedCleaningMode/default"), json!("metadata")),
        (format!("{host}automatedCleaningMode/enum"), json!(["metadata", "disabled"])),
        (format!("{host}bootMACAddress/pattern"), json!(mac)),
        (format!("{host}bootMode/enum"), json!(["UEFI", "UEFISecureBoot", "legacy"])),
        (format!("{host}inspectionMode/enum"), json!(["disabled", "agent", "fast"])),
        (format!("{host}image/properties/checksumType/enum"), json!(["md5", "sha256", "sha512", "auto"])),
        (format!("{host}image/properties/format/enum"), json!(["raw", "qcow2", "vdi", "vmdk", "live-iso"])),
        (format!("{host}image/required"), json!(["url"])),
        (format!("{host}bmc/required"), json!(["address", "credentialsName"])),
        (format!("{host}userData/x-kubernetes-map-type"), json!("atomic")),
        (format!("{host}consumerRef/x-kubernetes-map-type"), json!("atomic")),
        (format!("{host}raid/properties/hardwareRAIDVolumes/nullable"), json!(true)),
        (format!("{host}raid/properties/softwareRAIDVolumes/maxItems"), json!(2)),
        (format!("{host}raid/properties/softwareRAIDVolumes/items/properties/physicalDisks/minItems"), json!(2)),
        (format!("{host}raid/properties/softwareRAIDVolumes/items/properties/rootVolume/default"), json!(false)),
        (
            format!("{host}raid/properties/hardwareRAIDVolumes/items/properties/level/enum"),
            json!(["0", "1", "2", "5", "6", "1+0", "5+0", "6+0"]),
        ),
        (format!("{host}raid/properties/hardwareRAIDVolumes/items/properties/name/maxLength"), json!(64)),
        ("BareMetalHost/properties/spec/required".into(), json!(["online"])),
        (format!("{state}conditions/maxItems"), json!(32)),
        (format!("{state}conditions/x-kubernetes-list-type"), json!("map")),
        (format!("{state}errorCount/default"), json!(0)),
        (format!("{state}operationHistory/properties/register/properties/end/nullable"), json!(true)),
        (
            format!("{state}operationalStatus/enum"),
            json!(["", "OK", "discovered", "error", "delayed", "detached", "servicing"]),
        ),
        ("HostNetworkAttachment/properties/spec/properties/mtu/maximum".into(), json!(9216.0)),
        ("HostNetworkAttachment/properties/spec/properties/mode/default".into(), json!("access")),
        ("HostNetworkAttachment/properties/spec/properties/allowedVLANs/items/pattern".into(), json!(r"^\d+(-\d+)?$")),
        ("BareMetalSwitch/properties/spec/properties/driver/default".into(), json!("generic-switch")),
        ("BareMetalSwitch/properties/spec/properties/credentials/properties/type/default".into(), json!("password")),
        ("HardwareData/properties/spec/default".into(), json!({})),
        (
            "HostFirmwareSettings/properties/spec/properties/settings/additionalProperties/x-kubernetes-int-or-string"
                .into(),
            json!(true),
        ),
    ];
    for (path, wanted) in table {
        let (kind, pointer) = path.split_once('/').expect("a path");
        assert_eq!(schema(kind).pointer(&format!("/{pointer}")), Some(&wanted), "{path}");
    }
    assert_eq!(schema("BareMetalHost").pointer("/properties/spec/properties/online/nullable"), None);
}

#[test]
fn a_setting_takes_what_its_schema_says() {
    let read = |value: Value| serde_json::from_value::<SettingSchema>(value).expect("a schema");
    let choice = json!({"attribute_type": "Enumeration", "allowable_values": ["On"]});
    let number = json!({"attribute_type": "Integer", "lower_bound": 1, "upper_bound": 3});
    let text = json!({"attribute_type": "String", "min_length": 2, "max_length": 3});
    let truth = json!({"attribute_type": "Boolean"});
    // Schema, value, what speaks against it.
    let table = [
        (json!({}), json!("anything"), ""),
        (json!({"read_only": true}), json!("anything"), "it is ReadOnly"),
        (choice.clone(), json!("On"), ""),
        (choice, json!("on"), "unknown enumeration value - on"),
        (number.clone(), json!(3), ""),
        (number.clone(), json!("4"), "integer 4 is above maximum value 3"),
        (number.clone(), json!(0), "integer 0 is below minimum value 1"),
        (number, json!("two"), "String two entered while integer expected"),
        (json!({"attribute_type": "Integer", "upper_bound": 9}), json!(10), "integer 10 is above maximum value 9"),
        (json!({"attribute_type": "Integer"}), json!(99), ""),
        (text.clone(), json!("a"), "string a length is below minimum length 2"),
        (text.clone(), json!("abcd"), "string abcd length is above maximum length 3"),
        (text, json!("abc"), ""),
        (truth.clone(), json!("true"), ""),
        (truth, json!("yes"), "yes is not a boolean"),
        (json!({"attribute_type": "Password"}), json!("secret"), "passwords are immutable"),
    ];
    for (schema, value, problem) in table {
        let typed: IntOrString = serde_json::from_value(value.clone()).expect("a value");
        let wanted = if problem.is_empty() { Ok(()) } else { Err(format!("Setting Name is invalid, {problem}")) };
        assert_eq!(read(schema.clone()).validate("Name", &typed), wanted, "{schema} {value}");
    }
    let password = read(json!({})).validate("SetupPassword", &IntOrString::String("secret".to_owned()));
    assert_eq!(password, Err("Setting SetupPassword is invalid, Password fields can't be set".to_owned()));
}

fn annotated(annotations: &Value) -> BareMetalHost {
    let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "spec": {"online": true},
        "metadata": {"name": "a", "annotations": annotations}});
    serde_json::from_value(object).expect("a host")
}

#[test]
fn reboot_annotations_add_up() {
    use annotations::{RebootMode, reboots};
    // Annotations; once, held by, hard, force, invalid.
    let table = [
        (json!({}), false, 0, false, false, 0),
        (json!({"reboot.metal3.io": ""}), true, 0, false, false, 0),
        (json!({"reboot.metal3.io/capm3": ""}), false, 1, false, false, 0),
        (json!({"reboot.metal3.io/a": "", "reboot.metal3.io/b": "{\"mode\":\"hard\"}"}), false, 2, true, false, 0),
        (json!({"reboot.metal3.io": "{\"mode\":\"soft\",\"force\":true}"}), true, 0, false, true, 0),
        (json!({"reboot.metal3.io": "now!"}), true, 0, false, false, 1),
        (json!({"reboot.metal3.iodine": ""}), false, 0, false, false, 0),
    ];
    for (annotations, once, held, hard, force, invalid) in table {
        let asked = reboots(&annotated(&annotations));
        assert_eq!((asked.once, asked.held_by.len(), asked.force), (once, held, force), "{annotations}");
        assert_eq!((asked.mode == RebootMode::Hard, asked.invalid.len()), (hard, invalid), "{annotations}");
        assert_eq!(asked.any(), once || held > 0);
    }
}

#[test]
fn the_detached_annotation_may_say_anything() {
    use annotations::{DeleteAction, Detached, detached};
    let detach = |delete_action, force| Some(Detached { delete_action, force });
    let table = [
        (json!({}), None),
        (json!({"baremetalhost.metal3.io/detached": ""}), detach(DeleteAction::Delete, false)),
        (json!({"baremetalhost.metal3.io/detached": "true"}), detach(DeleteAction::Delete, false)),
        (
            json!({"baremetalhost.metal3.io/detached": "{\"deleteAction\":\"delay\"}"}),
            detach(DeleteAction::Delay, false),
        ),
        (
            json!({"baremetalhost.metal3.io/detached": "{\"deleteAction\":\"?\",\"force\":true}"}),
            detach(DeleteAction::Delete, true),
        ),
    ];
    for (annotations, wanted) in table {
        assert_eq!(detached(&annotated(&annotations)), wanted, "{annotations}");
    }
}
