use agent_api::metal3::bmc_address::{BmcAddress, Credentials};
use agent_api::metal3::{BareMetalHost, Image, RootDeviceHints};
use rstest::rstest;
use serde_json::{Map, Value, json};

use super::{
    CloudData, Ramdisk, Registration, config_drive, firmware_steps, hints, image_problem, instance, node_name,
};
use crate::ironic::{Node, Patch, Version};

fn host(spec: Value) -> BareMetalHost {
    let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "a", "namespace": "site", "uid": "5a1ee0f4"},
        "spec": {"online": true, "bmc": {"address": "redfish-virtualmedia://10.0.0.1/redfish/v1/Systems/1", "credentialsName": "s"}}});
    if let (Some(into), Value::Object(from)) = (object["spec"].as_object_mut(), spec) {
        into.extend(from);
    }
    serde_json::from_value(object).expect("a host")
}

fn credentials() -> Credentials {
    Credentials { username: "admin".into(), password: "secret".into() }
}

fn registration(host: &BareMetalHost, ramdisk: &Ramdisk) -> Registration {
    let bmc = host.spec.bmc.as_ref().expect("a BMC").address.parse().expect("an address");
    Registration::of(host, &bmc, &credentials(), Some(ramdisk), None)
}

/// The node as Ironic answers it: what was sent, with the password masked.
fn answered(registration: &Registration) -> Node {
    let mut sent = registration.whole();
    sent["driver_info"]["redfish_password"] = json!("******");
    serde_json::from_value(sent).expect("a node")
}

#[test]
fn a_node_as_registered_needs_no_change() {
    let host = host(json!({"disablePowerOff": true, "architecture": "x86_64"}));
    let ramdisk = Ramdisk { iso: Some("http://box/ipa.iso".into()), ..Ramdisk::default() };
    let registration = registration(&host, &ramdisk);
    let node = answered(&registration);
    assert_eq!(node.name.as_deref(), Some("site~a"));
    assert_eq!(node.driver_info["deploy_iso"], "http://box/ipa.iso");
    assert_eq!(node_name(&host), "site~a");
    assert_eq!(registration.changes(&node, false), []);
    assert_eq!(registration.refused(Version::NEWEST), None);
    assert!(registration.refused(Version::LEAST).is_some());
    // New credentials are told even though Ironic shows none.
    assert!(matches!(&registration.changes(&node, true)[..], [Patch::Add { path, value }]
        if path == "/driver_info" && value["redfish_password"] == "secret"));
}

#[test]
fn a_ramdisk_is_told_with_its_parameters_or_left_as_it_is() {
    let host = host(json!({}));
    let bmc = host.spec.bmc.as_ref().expect("a BMC").address.parse().expect("an address");
    let url = |name: &str| Some(format!("http://box/{name}"));
    let params = Some("console=ttyS0".to_owned());
    let ramdisk = Ramdisk { kernel: url("kernel"), initrd: url("initrd"), iso: None, kernel_params: params };
    let told = registration(&host, &ramdisk);
    let node = answered(&told);
    assert_eq!(node.driver_info["kernel_append_params"], "%default% console=ttyS0");
    assert_eq!(
        (&node.driver_info["deploy_kernel"], node.driver_info.get("deploy_iso")),
        (&json!("http://box/kernel"), None)
    );
    let other = registration(&host, &Ramdisk::default());
    assert!(matches!(&other.changes(&node, false)[..], [Patch::Add { path, value }]
        if path == "/driver_info" && value.get("deploy_kernel").is_none() && value.get("kernel_append_params").is_none()));
    let any = Registration::of(&host, &bmc, &credentials(), None, None);
    assert_eq!(any.changes(&node, false), []);
    // So is its network, where nobody can tell it any more.
    let with_network = Node { network_data: Some(json!({"links": []})), ..node.clone() };
    assert_eq!(any.changes(&with_network, false), [Patch::remove("/network_data")]);
    assert_eq!(any.clone().with_any_network(true).changes(&with_network, false), []);
    assert!(matches!(&any.changes(&node, true)[..], [Patch::Add { value, .. }]
        if value["deploy_ramdisk"] == "http://box/initrd" && value["redfish_password"] == "secret"));
}

#[rstest]
#[case("name", json!("other"), "/name")]
#[case("automated_clean", json!(false), "/automated_clean")]
#[case::taken_back("disable_power_off", json!(true), "/disable_power_off")]
#[case::taken_back_too("network_data", json!({"links": []}), "/network_data")]
#[case("driver_info", json!({"redfish_address": "https://10.0.0.2"}), "/driver_info")]
#[case("properties", json!({"capabilities": "boot_mode:bios,cpu_vt:true"}), "/properties/capabilities")]
fn what_differs_is_changed(#[case] field: &str, #[case] value: Value, #[case] path: &str) {
    let host = host(json!({}));
    let registration = registration(&host, &Ramdisk::default());
    let mut sent = registration.whole();
    sent[field] = value;
    let node: Node = serde_json::from_value(sent).expect("a node");
    let changes = registration.changes(&node, false);
    let paths: Vec<&str> = changes.iter().map(Patch::path).collect();
    assert_eq!(paths, [path]);
    if let [Patch::Add { value, .. }] = &changes[..]
        && path == "/properties/capabilities"
    {
        assert_eq!(value, "cpu_vt:true,boot_mode:uefi");
    }
}

#[test]
fn a_bmcs_certificate_is_checked_by_its_authorities_unless_it_shall_not_be() {
    let verify = |spec: Value, ramdisk: &Ramdisk| {
        let registration = registration(&host(spec), ramdisk).trusting(Some("/run/bmc.crt"));
        registration.whole()["driver_info"].get("redfish_verify_ca").cloned()
    };
    let bmc = |address: &str, any: bool| json!({"bmc": {"address": address, "credentialsName": "secret", "disableCertificateVerification": any}});
    let ramdisk = Ramdisk::default();
    assert_eq!(verify(bmc("redfish://10.0.0.1", false), &ramdisk), Some(json!("/run/bmc.crt")));
    assert_eq!(verify(bmc("redfish://10.0.0.1", true), &ramdisk), Some(json!(false)));
    assert_eq!(verify(bmc("ipmi://10.0.0.1", false), &ramdisk), None);
}

/// Only what is a disc for a BMC is fetched from the box's own URL, and only while its host does not say that it cannot.
#[test]
fn a_bmc_fetches_its_media_by_tls_unless_its_host_says_that_it_cannot() {
    let url = "https://172.22.0.1:6180/provisioning";
    let of = |address: &str, ramdisk: &Ramdisk, transport: Option<&str>, url: Option<&str>| {
        let mut host = host(json!({"bmc": {"address": address, "credentialsName": "secret"}}));
        let annotation = transport.map(|it| ("foothold.dev/virtual-media".to_owned(), it.to_owned()));
        host.metadata.annotations = Some(annotation.into_iter().collect());
        let driver = address.parse::<BmcAddress>().expect("an address").driver;
        registration(&host, ramdisk).media_from(&host, driver, url)
    };
    let (none, serial) =
        (Ramdisk::default(), Ramdisk { kernel_params: Some("console=ttyS0".into()), ..Ramdisk::default() });
    let told = |it: &Registration| {
        let all = it.whole()["driver_info"].clone();
        (all.get("external_http_url").cloned(), all.get("kernel_append_params").cloned())
    };
    let by_tls = (Some(json!(url)), None);
    for scheme in ["redfish-virtualmedia", "ilo5-virtualmedia", "idrac-virtualmedia"] {
        let address = format!("{scheme}://10.0.0.1/redfish/v1/Systems/1");
        assert_eq!(told(&of(&address, &none, None, Some(url))), by_tls, "{scheme}");
        assert_eq!(told(&of(&address, &none, Some("https"), Some(url))), by_tls, "{scheme}");
        assert_eq!(told(&of(&address, &none, Some("http"), Some(url))), (None, None), "{scheme}");
        assert_eq!(told(&of(&address, &none, None, None)), (None, None), "{scheme}: another Ironic has its own");
    }
    for address in ["ipmi://10.0.0.1", "redfish://10.0.0.1/redfish/v1/Systems/1"] {
        assert_eq!(told(&of(address, &none, None, Some(url))), (None, None), "{address}");
    }
    let uefi = "redfish-uefihttp://10.0.0.1/redfish/v1/Systems/1";
    for (ramdisk, params) in [(&none, "%default% ipa-insecure=1"), (&serial, "%default% console=ttyS0 ipa-insecure=1")]
    {
        assert_eq!(told(&of(uefi, ramdisk, None, Some(url))), (None, Some(json!(params))));
    }

    // What is told changes with the annotation, and then nothing more does.
    let media = "redfish-virtualmedia://10.0.0.1/redfish/v1/Systems/1";
    let (with, without) = (of(media, &none, None, Some(url)), of(media, &none, Some("http"), Some(url)));
    for (is, wanted) in [(&with, &without), (&without, &with)] {
        let paths = |changes: Vec<Patch>| changes.iter().map(|it| it.path().to_owned()).collect::<Vec<_>>();
        assert_eq!(paths(wanted.changes(&answered(is), false)), ["/driver_info"]);
        assert_eq!(paths(wanted.changes(&answered(wanted), false)), [""; 0]);
    }
}

/// The interfaces of another driver come with it.
#[test]
fn another_protocol_is_another_driver_with_its_interfaces() {
    let ramdisk = Ramdisk::default();
    let node = answered(&registration(&host(json!({})), &ramdisk));
    let ipmi = json!({"bmc": {"address": "ipmi://10.0.0.1", "credentialsName": "secret"}});
    let changes = registration(&host(ipmi), &ramdisk).changes(&node, false);
    let paths: Vec<&str> = changes.iter().map(Patch::path).collect();
    assert_eq!(paths, ["/driver", "/boot_interface", "/inspect_interface", "/raid_interface", "/driver_info"]);
}

#[test]
fn hints_are_written_with_ironics_operators() {
    let all: RootDeviceHints =
        serde_json::from_value(json!({"deviceName": "/dev/sda", "hctl": "0:0:0:0", "model": "m",
        "vendor": "v", "serialNumber": "s", "minSizeGigabytes": 40, "wwn": "w", "wwnWithExtension": "x",
        "wwnVendorExtension": "y", "rotational": false}))
        .expect("hints");
    let wanted = json!({"name": "s== /dev/sda", "hctl": "s== 0:0:0:0", "model": "<in> m", "vendor": "<in> v",
        "serial": "s== s", "size": ">= 40", "wwn": "s== w", "wwn_with_extension": "s== x",
        "wwn_vendor_extension": "s== y", "rotational": "false"});
    assert_eq!(Value::Object(hints(&all)), wanted);
    let path = RootDeviceHints { device_name: Some("/dev/disk/by-path/p".into()), ..RootDeviceHints::default() };
    assert_eq!(Value::Object(hints(&path)), json!({"by_path": "s== /dev/disk/by-path/p"}));
}

/// What is written, deploy interface of the node, fields of `instance_info` beside the capabilities, the interface's change.
#[rstest]
#[case(json!({"url": "http://i", "checksum": "abc"}), "direct", json!({"image_source": "http://i", "image_checksum": "abc"}), json!(null))]
#[case(json!({"url": "http://i", "checksum": "abc", "checksumType": "sha256", "format": "raw"}), "custom-agent",
    json!({"image_source": "http://i", "image_os_hash_algo": "sha256", "image_os_hash_value": "abc", "image_disk_format": "raw"}),
    json!({"op": "remove", "path": "/deploy_interface"}))]
#[case(json!({"url": "http://i.iso", "format": "live-iso"}), "direct", json!({"boot_iso": "http://i.iso"}),
    json!({"op": "add", "path": "/deploy_interface", "value": "ramdisk"}))]
fn an_instance_has_what_its_image_needs(
    #[case] image: Value,
    #[case] deploy: &str,
    #[case] wanted: Value,
    #[case] interface: Value,
) {
    let host = host(json!({"image": image}));
    let node = Node { deploy_interface: Some(deploy.into()), ..Node::default() };
    let mut changes = json!(instance(&host, &node, host.spec.image.as_ref(), None));
    let mut info = changes[0]["value"].take();
    assert_eq!(info.as_object_mut().expect("an object").remove("capabilities"), Some(json!({"boot_mode": "uefi"})));
    assert_eq!(info, wanted);
    assert_eq!(changes[1], json!({"op": "add", "path": "/instance_uuid", "value": "5a1ee0f4"}));
    assert_eq!(changes[2], interface);
}

#[test]
fn an_image_without_a_checksum_is_refused_before_anything_is_done() {
    let image = |value| serde_json::from_value::<Image>(value).expect("an image");
    assert!(image_problem(&image(json!({"url": "http://i"}))).is_some());
    assert_eq!(image_problem(&image(json!({"url": "http://i", "format": "live-iso"}))), None);
    assert_eq!(image_problem(&image(json!({"url": "oci://i"}))), None);
    assert_eq!(image_problem(&image(json!({"url": "OCI://i"}))), None);
}

#[test]
fn the_config_drive_has_names_of_the_host_unless_told_otherwise() {
    let data = CloudData {
        user: Some("#cloud-config\n".into()),
        network: Some("links: []\n".into()),
        meta: Some("name: other\nrack: 3\n".into()),
    };
    let wanted = json!({
        "meta_data": {"uuid": "5a1ee0f4", "metal3-namespace": "site", "metal3-name": "a", "local-hostname": "a",
            "local_hostname": "a", "name": "other", "rack": 3},
        "user_data": "#cloud-config\n",
        "network_data": {"links": []},
    });
    assert_eq!(config_drive(&host(json!({})), &data), Ok(wanted));
    let empty = CloudData { meta: Some("\n".into()), ..CloudData::default() };
    assert!(config_drive(&host(json!({})), &empty).is_ok(), "a Secret that is still empty says nothing");
}

/// In words of the text, not of the library that reads it.
#[test]
fn what_is_no_data_of_a_config_drive_is_told_in_words() {
    let deep = format!("a: {}{}", "[".repeat(100), "]".repeat(100));
    for (text, words) in [
        ("- a", "is no YAML object: "),
        ("a: 1\na: 2\n", "is no YAML object: "),
        ("a: [\n", "is no YAML object: "),
        // Nothing of a Secret gets into a condition: neither the line nor its neighbours.
        ("a: hunter2\nb: [hunter2\nc: hunter2\n", "is no YAML object: "),
        ("hunter2", "is no YAML object: "),
        (deep.as_str(), "found lists and tables within each other, expected at most 64 levels"),
    ] {
        let network = CloudData { network: Some(text.into()), ..CloudData::default() };
        let meta = CloudData { meta: Some(text.into()), ..CloudData::default() };
        for (data, what) in [(network, "the network data "), (meta, "the metadata ")] {
            let said = config_drive(&host(json!({})), &data).expect_err(text);
            assert!(said.starts_with(what) && said.contains(words), "{said}");
            assert!(
                ["Options", "Policy", "budget", "struct", "hunter2"].iter().all(|word| !said.contains(word)),
                "{said}"
            );
        }
    }
}

#[test]
fn firmware_is_written_before_settings_are() {
    let names = |steps: Vec<Value>| -> Vec<String> {
        steps.iter().map(|step| step["step"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let bios = Map::from_iter([("SriovGlobalEnable".to_owned(), json!("Enabled"))]);
    let updates = [json!({"component": "bios", "url": "http://a/b"})];
    assert_eq!(names(firmware_steps(&bios, &updates)), ["update", "apply_configuration"]);
    assert_eq!(names(firmware_steps(&bios, &[])), ["apply_configuration"]);
    assert!(firmware_steps(&Map::new(), &[]).is_empty());
}
