use serde_json::{Value, json};

use super::super::{
    BareMetalHost, BmcEventSubscription, DataImage, HostClaim, HostFirmwareComponents, HostNetworkAttachment,
};
use super::*;

mod devices;

fn object<T: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: &Value) -> T {
    let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "site"}, "spec": spec});
    serde_json::from_value(object).unwrap_or_else(|problem| panic!("{spec}: {problem}"))
}

/// A host with these fields besides `online`, which is true unless they say otherwise.
fn host(fields: &Value) -> BareMetalHost {
    let mut spec = json!({"online": true});
    for (name, value) in fields.as_object().expect("fields") {
        spec[name] = value.clone();
    }
    object("BareMetalHost", "test", &spec)
}

fn at(address: &str) -> Value {
    json!({"address": address, "credentialsName": "secret"})
}

fn annotated(spec: &Value, annotations: &Value) -> BareMetalHost {
    let mut host = host(spec);
    host.metadata.annotations = serde_json::from_value(annotations.clone()).expect("annotations");
    host
}

/// Accepted, or refused with exactly this message.
fn verdict(problems: &[String], wanted: Option<&str>, what: &str) {
    assert_eq!(message(problems).as_deref(), wanted, "{what}");
}

const MAC: &str = "3c:ec:ef:4a:10:70";
const SUM: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

#[test]
fn a_host_is_accepted_or_refused_by_its_bmc() {
    let table = [
        (json!({}), None),
        (json!({"bmc": at("")}), None),
        (json!({"bmc": at("ipmi://10.20.0.9")}), None),
        (json!({"bmc": at("test:10.20.0.9")}), Some("Unknown BMC type 'test' for address test:10.20.0.9")),
        (
            json!({"bmc": at("ipmi://-rack.site.example")}),
            Some("failed to parse BMC address information: BMC address hostname/IP : [-rack.site.example] is invalid"),
        ),
        (json!({"bmc": at("redfish://127.0.0.1"), "raid": {"hardwareRAIDVolumes": [{"level": "1"}]}}), None),
        (
            json!({"bmc": at("ipmi://10.20.0.9"), "raid": {"hardwareRAIDVolumes": [{"level": "1"}]}}),
            Some("BMC driver ipmi does not support configuring RAID"),
        ),
        (json!({"bmc": at("ipmi://10.20.0.9"), "raid": {"hardwareRAIDVolumes": []}}), None),
        (json!({"firmware": {"virtualizationEnabled": true}}), None),
        (json!({"bmc": at("ipmi://10.20.0.9"), "firmware": {}}), Some("firmware settings for ipmi are not supported")),
        (
            json!({"bmc": at("idrac-virtualmedia://10.20.0.9"), "firmware": {}}),
            Some("firmware settings for idrac are not supported"),
        ),
        (json!({"bmc": at("libvirt://10.20.0.9")}), Some("BMC driver libvirt requires a BootMACAddress value")),
        (json!({"bmc": at("libvirt://10.20.0.9"), "bootMACAddress": MAC}), None),
        (json!({"bmc": at("redfish-virtualmedia+http://10.20.0.9")}), None),
        (
            json!({"bmc": at("redfish-virtualmedia+http://10.20.0.9"), "inspectionMode": "disabled"}),
            Some("BMC driver redfish-virtualmedia+http requires a BootMACAddress value"),
        ),
        (
            json!({"bmc": at("redfish://10.20.0.9"), "bootMACAddress": "00:00:00:00:00"}),
            Some("address 00:00:00:00:00: invalid MAC address"),
        ),
        (json!({"bmc": at("redfish://10.20.0.9"), "bootMACAddress": "3cec.ef4a.1070"}), None),
        (json!({"bmc": at("redfish://10.20.0.9"), "bootMode": "UEFISecureBoot"}), None),
        (
            json!({"bmc": at("libvirt://10.20.0.9"), "bootMACAddress": MAC, "bootMode": "UEFISecureBoot"}),
            Some("BMC driver libvirt does not support secure boot"),
        ),
        (json!({"bmc": at("redfish://10.20.0.9"), "inspectionMode": "fast"}), None),
        (
            json!({"bmc": at("ipmi://10.20.0.9"), "inspectionMode": "fast"}),
            Some("BMC driver ipmi does not support fast (out-of-band) inspection"),
        ),
        (json!({"disablePowerOff": true}), None),
        (
            json!({"disablePowerOff": true, "online": false}),
            Some("node can't simultaneously have online set to false and have power off disabled"),
        ),
    ];
    for (fields, wanted) in table {
        verdict(&host_create(&host(&fields)), wanted, &fields.to_string());
    }
}

#[test]
fn a_host_is_accepted_or_refused_by_its_name() {
    let characters = Some("BareMetalHost resource name cannot contain characters other than [A-Za-z0-9._-]");
    let uuid = Some("BareMetalHost resource name cannot be a UUID");
    let table = [
        ("rack1-u07.site_a", None),
        ("test~", characters),
        ("2f6d1b58-0d6c-4f59-8f0c-93a1f1a58c11", uuid),
        ("2f6d1b580d6c4f598f0c93a1f1a58c11", uuid),
        ("2f6d1b58-0d6c-4f59-8f0c-93a1f1a58c1z", None),
    ];
    for (name, wanted) in table {
        let host: BareMetalHost = object("BareMetalHost", name, &json!({"online": true}));
        verdict(&host_create(&host), wanted, name);
    }
}

#[test]
fn root_device_hints_are_accepted_or_refused() {
    let table = [
        ("/dev/sda", None),
        ("/dev/disk/by-path/pci-0000:01:00.0-scsi-0:2:0:0", None),
        ("", None),
        ("sda", Some("device name of root device hint must be a /dev/ path, not \"sda\"")),
        (
            "/dev/disk/by-uuid/5ca1ab1e",
            Some(
                "device name of root device hint must be path in /dev/ or /dev/disk/by-path/, not \"/dev/disk/by-uuid/5ca1ab1e\"",
            ),
        ),
    ];
    for (name, wanted) in table {
        verdict(&host_create(&host(&json!({"rootDeviceHints": {"deviceName": name}}))), wanted, name);
    }
}

#[test]
fn images_are_accepted_or_refused() {
    let table = [
        (json!({"url": "https://example.com/image", "checksum": SUM}), None),
        (json!({"url": "ftp://example.com/image", "checksum": SUM}), None),
        (json!({"url": "https://example.com/image", "format": "live-iso"}), None),
        (json!({"url": "oci://example.com/image"}), None),
        (
            json!({"url": "oci://example.com/image", "checksum": SUM}),
            Some("spec.image.checksum must be empty for OCI images (oci:// images have embedded checksums)"),
        ),
        (json!({"url": "https://example.com/image"}), Some("checksum is required for normal images")),
        (
            json!({"url": "test1", "checksum": SUM}),
            Some("image URL test1 is invalid: parse \"test1\": invalid URI for request"),
        ),
        (json!({"url": "", "checksum": SUM}), Some("image URL  is invalid: parse \"\": empty url")),
        (
            json!({"url": "file:///etc/shadow", "checksum": SUM}),
            Some("image URL file:///etc/shadow is invalid: invalid scheme in URL, \"file\" not allowed"),
        ),
    ];
    for (image, wanted) in table {
        verdict(&host_create(&host(&json!({"image": image}))), wanted, &image.to_string());
        let claim: HostClaim = object("HostClaim", "test", &json!({"poweredOn": true, "image": image}));
        verdict(&host_claim(&claim), wanted, &image.to_string());
    }
}

#[test]
fn secrets_of_other_namespaces_are_refused() {
    for field in ["userData", "networkData", "metaData"] {
        for namespace in ["site", ""] {
            let reference = json!({"name": "s", "namespace": namespace});
            verdict(&host_create(&host(&json!({field: reference}))), None, field);
        }
        let other = json!({"name": "s", "namespace": "other"});
        let wanted = |resource| {
            format!(
                "{resource}.metal3.io \"test\" is forbidden: {field}: cross-namespace Secret references are not allowed"
            )
        };
        verdict(&host_create(&host(&json!({field: other}))), Some(&wanted("baremetalhosts")), field);
        let claim: HostClaim = object("HostClaim", "test", &json!({"poweredOn": true, field: other}));
        verdict(&host_claim(&claim), Some(&wanted("hostclaims")), field);
    }
}

#[test]
fn annotations_are_accepted_or_refused() {
    let modes = Some("invalid mode in the reboot.metal3.io annotation, allowed are \"hard\", \"soft\" or \"\"");
    let status = "baremetalhost.metal3.io/status";
    let table = [
        ("reboot.metal3.io", "", None),
        ("reboot.metal3.io/client", "{\"mode\":\"hard\",\"force\":true}", None),
        ("reboot.metal3.io", "{\"mode\":\"medium\"}", modes),
        ("reboot.metal3.io/my-key", "{\"mode\":\"medium\"}", modes),
        (
            "reboot.metal3.io",
            "{\"mode\":",
            Some("failed to unmarshal the data from the reboot.metal3.io annotation: unexpected end of JSON input"),
        ),
        ("reboot.metal3.io.example", "{\"mode\":\"medium\"}", None),
        ("inspect.metal3.io", "disabled", None),
        ("inspect.metal3.io", "", None),
        (
            "inspect.metal3.io",
            "enabled",
            Some("invalid value for the inspect.metal3.io annotation, allowed are \"disabled\" or \"\""),
        ),
        ("foothold.dev/virtual-media", "http", None),
        ("foothold.dev/virtual-media", "https", None),
        (
            "foothold.dev/virtual-media",
            "HTTP",
            Some("invalid value for the foothold.dev/virtual-media annotation, allowed are \"https\" or \"http\""),
        ),
        (status, "", None),
        (status, "{\"operationalStatus\":\"OK\"}", None),
        (status, "{\"operationalStatus\":\"OK\",\"errorType\":\"\",\"provisioning\":{\"image\":{}}}", None),
        (
            status,
            "{\"InvalidField\":\"NotOK\"}",
            Some("error decoding status annotation: json: unknown field \"InvalidField\""),
        ),
        (
            status,
            "{\"operationalStatus\":\"NotOK\"}",
            Some("invalid operationalStatus 'NotOK' in the baremetalhost.metal3.io/status annotation"),
        ),
        (
            status,
            "{\"errorType\":\"No Error\"}",
            Some("invalid errorType 'No Error' in the baremetalhost.metal3.io/status annotation"),
        ),
        (status, "{\"operationalStatus\":\"OK\"", Some("error decoding status annotation: unexpected EOF")),
        (status, "{\"provisioning\":{\"state\":\"provisioned\",\"bootMode\":\"\",\"customDeploy\":null}}", None),
        (
            status,
            "{\"provisioning\":{\"state\":\"Provisioned\"}}",
            Some(
                "error decoding status annotation: unknown variant `Provisioned`, expected one of ``, `unmanaged`, `registering`, `match profile`, `inspecting`, `preparing`, `ready`, `available`, `provisioning`, `provisioned`, `externally provisioned`, `deprovisioning`, `powering off before delete`, `deleting`",
            ),
        ),
        ("example.com/other", "anything", None),
    ];
    for (annotation, value, wanted) in table {
        let host = annotated(&json!({}), &json!({annotation: value}));
        verdict(&host_create(&host), wanted, &format!("{annotation}={value}"));
    }
}

#[test]
fn hardware_details_need_inspection_switched_off() {
    let details =
        json!({"ramMebibytes": 4096, "nics": [{"mac": MAC}], "cpu": {"clockMegahertz": 2494.224}}).to_string();
    let must = "when hardware details are provided, inspection must be disabled (either via inspect.metal3.io annotation or inspectionMode field)";
    let decoding = "error decoding the inspect.metal3.io/hardwaredetails annotation:";
    let off = json!({"inspectionMode": "disabled"});
    let table = [
        (&off, details.as_str(), None),
        (&json!({}), &details, Some(must.to_owned())),
        (&off, "{\"INVALIDField\":{}}", Some(format!("{decoding} json: unknown field \"INVALIDField\""))),
        (&off, "{\"ramMebibytes\":1", Some(format!("{decoding} unexpected EOF"))),
        (
            &off,
            "{\"ramMebibytes\":\"1\"}",
            Some(format!(
                "{decoding} json: cannot unmarshal string into Go struct field HardwareDetails.ramMebibytes of type integer"
            )),
        ),
    ];
    for (spec, value, wanted) in table {
        let host = annotated(spec, &json!({"inspect.metal3.io/hardwaredetails": value}));
        verdict(&host_create(&host), wanted.as_deref(), value);
    }
    let host =
        annotated(&json!({}), &json!({"inspect.metal3.io": "disabled", "inspect.metal3.io/hardwaredetails": details}));
    verdict(&host_create(&host), None, "by the annotation");
}

#[test]
fn inspection_is_said_once_or_the_same_twice() {
    let contradicts = Some("inspect.metal3.io annotation and inspectionMode field have contradicting values");
    for (mode, annotation, wanted) in
        [("disabled", "disabled", None), ("agent", "", None), ("agent", "disabled", contradicts)]
    {
        let host = annotated(&json!({"inspectionMode": mode}), &json!({"inspect.metal3.io": annotation}));
        verdict(&host_create(&host), wanted, mode);
    }
}

#[test]
fn changes_of_a_host_are_accepted_or_refused() {
    let address = Some(
        "BMC address can not be changed if the BMH is not in the Registering state, or if the BMH is not detached",
    );
    let (a, b) = (json!({"bmc": at("ipmi://10.0.0.1")}), json!({"bmc": at("ipmi://10.0.0.2")}));
    let mac = |mac: &str| json!({"bootMACAddress": mac});
    let external = |on: bool| json!({"externallyProvisioned": on});
    // Before, after, state, operational status.
    let table = [
        (a.clone(), a.clone(), "provisioned", "OK", None),
        (a.clone(), b.clone(), "provisioned", "OK", address),
        (a.clone(), b.clone(), "registering", "error", None),
        (a.clone(), b, "provisioned", "detached", None),
        (json!({}), a, "unmanaged", "discovered", None),
        (mac(MAC), mac(MAC), "available", "OK", None),
        (mac(MAC), mac("3C:EC:EF:4A:10:70"), "available", "OK", None),
        (json!({}), mac(MAC), "available", "OK", None),
        (
            mac(MAC),
            mac("3c:ec:ef:4a:10:71"),
            "available",
            "OK",
            Some("bootMACAddress can not be changed once it is set"),
        ),
        (mac(MAC), json!({}), "available", "OK", Some("bootMACAddress can not be changed once it is set")),
        (external(false), external(true), "available", "OK", None),
        (
            external(false),
            external(true),
            "inspecting",
            "OK",
            Some("externallyProvisioned can only be enabled when in Available state, currently in inspecting"),
        ),
        (external(true), external(false), "externally provisioned", "OK", None),
        (
            json!({}),
            json!({"disablePowerOff": true, "online": false}),
            "available",
            "OK",
            Some("node can't simultaneously have online set to false and have power off disabled"),
        ),
    ];
    for (before, after, state, operational, wanted) in table {
        let mut new = host(&after);
        let status = json!({"operationalStatus": operational, "errorMessage": "", "poweredOn": true,
            "provisioning": {"state": state, "ID": ""}});
        new.status = serde_json::from_value(status).expect("a status");
        verdict(&host_update(&host(&before), &new), wanted, &format!("{before} -> {after}, {state}"));
    }
}

#[test]
fn all_problems_are_told_at_once_and_each_once() {
    let wrong = host(&json!({"bmc": at("ipmi://-a"), "rootDeviceHints": {"deviceName": "sda"}}));
    let told = message(&host_create(&wrong)).expect("refused");
    assert_eq!(
        told,
        "[failed to parse BMC address information: BMC address hostname/IP : [-a] is invalid, \
         device name of root device hint must be a /dev/ path, not \"sda\"]"
    );
}

#[test]
fn images_for_drives_and_firmware_are_accepted_or_refused() {
    let table = [
        ("https://example.com/a.iso", None),
        ("oci://example.com/a", None),
        ("ftp://example.com/a.iso", Some("invalid scheme in URL, \"ftp\" not allowed")),
        ("", Some("parse \"\": empty url")),
        ("a.iso", Some("parse \"a.iso\": invalid URI for request")),
    ];
    for (url, problem) in table {
        let image: DataImage = object("DataImage", "test", &json!({"url": url}));
        let wanted = problem.map(|problem| format!("URL \"{url}\" is invalid: {problem}"));
        verdict(&data_image(&image), wanted.as_deref(), url);
        let updates = json!({"updates": [{"component": "bios", "url": url}]});
        let components: HostFirmwareComponents = object("HostFirmwareComponents", "test", &updates);
        let wanted =
            problem.map(|problem| format!("invalid URL \"{url}\" in FirmwareUpdate in component \"bios\": {problem}"));
        verdict(&firmware_components(&components), wanted.as_deref(), url);
    }
}

#[test]
fn subscriptions_are_accepted_or_refused() {
    let wanted = |fields: &Value| {
        let mut spec = json!({"hostName": "a", "destination": "https://example.com/events"});
        for (name, value) in fields.as_object().expect("fields") {
            spec[name] = value.clone();
        }
        object::<BmcEventSubscription>("BMCEventSubscription", "test", &spec)
    };
    let namespace = "httpHeadersRef secret must be in the same namespace as the BMCEventSubscription";
    let table = [
        (json!({}), None),
        (json!({"hostName": ""}), Some("hostName cannot be empty")),
        (json!({"httpHeadersRef": {"name": "h", "namespace": "site"}}), None),
        (json!({"httpHeadersRef": {"name": "h"}}), Some(namespace)),
        (json!({"httpHeadersRef": {"name": "h", "namespace": "other"}}), Some(namespace)),
        (json!({"destination": ""}), Some("destination cannot be empty")),
        (json!({"destination": "abc"}), Some("destination is invalid: parse \"abc\": invalid URI for request")),
        (json!({"destination": "http://example.com"}), Some("hostname-only destination must have a trailing slash")),
        (json!({"destination": "http://example.com/"}), None),
    ];
    for (fields, problem) in table {
        verdict(&event_subscription_create(&wanted(&fields)), problem, &fields.to_string());
    }
    let (old, new) = (wanted(&json!({})), wanted(&json!({"context": "x"})));
    verdict(&event_subscription_update(&old, &old), None, "the same");
    verdict(
        &event_subscription_update(&old, &new),
        Some("subscriptions cannot be updated, please recreate it"),
        "another",
    );
}

#[test]
fn claims_are_accepted_or_refused_by_what_they_select() {
    let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "a/b", "operator": operator, "values": values}]});
    let on = "in match expression on label key a/b";
    let table = [
        (json!({"matchLabels": {"site.example.com/row": "1", "plain": ""}}), None),
        (json!({"matchLabels": {"": "x"}}), Some("=x: name part must be non-empty".to_owned())),
        (json!({"matchLabels": {"/a": "x"}}), Some("/a=x: prefix part must be non-empty".to_owned())),
        (json!({"matchLabels": {"a": "x y"}}), Some("a=x y: a valid label must be an empty string".to_owned())),
        (json!({"matchLabels": {"a/b/c": "x"}}), Some("a/b/c=x: a qualified name must consist of".to_owned())),
        (json!({"matchLabels": {"UP/a": "x"}}), Some("UP/a=x: prefix part a lowercase RFC 1123".to_owned())),
        (
            json!({"matchLabels": {"a": "x".repeat(64)}}),
            Some(format!("a={}: must be no more than 63 characters", "x".repeat(64))),
        ),
        (expression("in", &["x", "y"]), None),
        (expression("in", &[]), Some(format!("matchExpr 1: At least one value in list for operator in {on}"))),
        (expression("=", &["x"]), None),
        (expression("==", &["x", "y"]), Some(format!("matchExpr 1: exactly one value for operator == {on}"))),
        (expression("notin", &["-"]), Some("matchExpr 1 (value \"-\"): a valid label must".to_owned())),
        (expression("exists", &[]), None),
        (expression("!", &["x"]), Some(format!("matchExpr 1: values not authorized for operator ! {on}"))),
        (expression("gt", &["1"]), Some(format!("matchExpr 1: invalid operation gt {on}"))),
    ];
    for (selector, wanted) in table {
        let claim: HostClaim = object("HostClaim", "test", &json!({"poweredOn": true, "hostSelector": selector}));
        let told = message(&host_claim(&claim));
        match &wanted {
            None => assert_eq!(told, None, "{selector}"),
            Some(start) => {
                let told = told.unwrap_or_default();
                assert!(told.trim_start_matches('[').starts_with(start.as_str()), "{selector}: {told}");
            }
        }
    }
}

#[test]
fn attachments_are_accepted_or_refused() {
    let attachment = |spec: &Value| object::<HostNetworkAttachment>("HostNetworkAttachment", "storage", spec);
    let table = [
        (json!({"mode": "access", "nativeVLAN": 1}), None),
        (json!({"mode": "trunk", "nativeVLAN": 1, "allowedVLANs": ["100", "200-300"]}), None),
        (
            json!({"mode": "access", "nativeVLAN": 1, "allowedVLANs": ["100"]}),
            Some("allowedVLANs cannot be specified for access mode"),
        ),
        (
            json!({"mode": "trunk", "nativeVLAN": 1, "allowedVLANs": ["4095"]}),
            Some("allowedVLANs[0] \"4095\": VLAN ID 4095 out of range 1-4094"),
        ),
        (
            json!({"mode": "hybrid", "nativeVLAN": 1, "allowedVLANs": ["1", "30-20"]}),
            Some("allowedVLANs[1] \"30-20\": range start (30) must be less than end (20)"),
        ),
        (
            json!({"mode": "hybrid", "nativeVLAN": 1, "allowedVLANs": ["x"]}),
            Some("allowedVLANs[0] \"x\": invalid VLAN ID: strconv.Atoi: parsing \"x\": invalid syntax"),
        ),
    ];
    for (spec, wanted) in &table {
        verdict(&network_attachment_create(&attachment(spec)), *wanted, &spec.to_string());
    }
    let (old, new) = (attachment(&table[0].0), attachment(&table[1].0));
    let users = [host(&json!({"networkInterfaces": [{"name": "eno1", "hostNetworkAttachment": {"name": "storage"}}]}))];
    verdict(&network_attachment_update(&old, &new, &[]), None, "nobody uses it");
    verdict(&network_attachment_update(&old, &old, &users), None, "nothing changes");
    verdict(
        &network_attachment_update(&old, &new, &users),
        Some("HostNetworkAttachment spec is immutable while referenced by BMH interfaces: site/test[eno1]"),
        "in use",
    );
    verdict(&network_attachment_delete(&old, &[]), None, "nobody uses it");
    verdict(
        &network_attachment_delete(&old, &users),
        Some(
            "hostnetworkattachments.metal3.io \"storage\" is forbidden: cannot delete attachment while referenced by BMH interfaces: site/test[eno1]",
        ),
        "in use",
    );
}

mod fuzz {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::super::annotations::{detached, reboots};
    use super::*;

    const NAMES: [&str; 6] = [
        "baremetalhost.metal3.io/status",
        "baremetalhost.metal3.io/detached",
        "inspect.metal3.io",
        "inspect.metal3.io/hardwaredetails",
        "reboot.metal3.io",
        "reboot.metal3.io/client",
    ];

    /// Anything, or something that begins like what is wanted.
    fn value() -> impl Strategy<Value = String> {
        let words = r#"[{}\[\]:,"0-9.e+-]|"mode"|"force"|"nics"|"hardware"|"provisioning"|"state"|"cpu"|true|null"#;
        prop_oneof![".{0,60}", proptest::collection::vec(words, 0..24).prop_map(|words| words.concat())]
    }

    proptest! {
        #[test]
        fn no_annotation_makes_it_panic(name in 0..NAMES.len(), value in value(), off in any::<bool>()) {
            let mode = if off { "disabled" } else { "agent" };
            let host = annotated(&json!({"inspectionMode": mode}), &json!({NAMES[name]: value}));
            let _ = (message(&host_create(&host)), reboots(&host), detached(&host));
        }

        #[test]
        fn no_url_makes_it_panic(url in "(https?|oci|ftp)?:?/{0,3}[@\\[\\]:%./?#&=a-z0-9 -]{0,40}") {
            let _ = host_create(&host(&json!({"image": {"url": url, "checksum": "x"}, "bmc": at(&url)})));
        }
    }
}
