use agent_api::metal3::bmc_address::Driver;
use agent_api::metal3::preprovisioning_image::ImageFormat;
use agent_api::metal3::{BareMetalHost, PreprovisioningImage};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::decide::answer;
use super::{Found, Need, found, need, unbootable, wanted};
use crate::operators::metal3::common::Ramdisk;

fn host(state: &str, spec: Value) -> BareMetalHost {
    let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "a", "namespace": "n"}, "spec": {"online": true},
        "status": {"operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true,
            "hardware": {"cpu": {"arch": "aarch64"}}, "provisioning": {"state": state, "ID": "u"}}});
    if let (Some(into), Value::Object(from)) = (object["spec"].as_object_mut(), spec) {
        into.extend(from);
    }
    serde_json::from_value(object).expect("a host")
}

fn image(formats: Value, data: Option<&str>) -> PreprovisioningImage {
    let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "PreprovisioningImage",
        "metadata": {"name": "a", "namespace": "n", "generation": 3},
        "spec": {"architecture": "x86_64"}});
    object["spec"]["acceptFormats"] = formats;
    if let Some(name) = data {
        object["spec"]["networkDataName"] = json!(name);
    }
    serde_json::from_value(object).expect("an image")
}

fn ramdisk() -> Ramdisk {
    let url = |name: &str| Some(format!("http://box/{name}"));
    Ramdisk { kernel: url("kernel"), initrd: url("initrd"), iso: url("iso"), kernel_params: None }
}

fn answered(mut image: PreprovisioningImage, ramdisk: &Ramdisk, data: Option<&str>) -> PreprovisioningImage {
    image.status = Some(answer(&image, ramdisk, data, Timestamp::UNIX_EPOCH));
    image
}

#[test]
fn a_ramdisk_is_needed_where_one_boots() {
    for (state, expected) in [
        ("registering", Need::No),
        ("inspecting", Need::Must),
        ("preparing", Need::Must),
        ("available", Need::May),
        ("provisioning", Need::May),
        ("provisioned", Need::No),
        ("externally provisioned", Need::No),
        ("deprovisioning", Need::Must),
        ("deleting", Need::No),
    ] {
        assert_eq!(need(&host(state, json!({}))), expected, "{state}");
    }
    assert_eq!(need(&host("deprovisioning", json!({"automatedCleaningMode": "disabled"}))), Need::No);
}

#[test]
fn what_is_asked_for_is_what_the_host_boots() {
    let spec = json!({"preprovisioningNetworkDataName": "net"});
    let wish = wanted(&host("inspecting", spec), Driver::RedfishVirtualmedia);
    assert_eq!(wish.accept_formats, Some(vec![ImageFormat::Iso, ImageFormat::Initrd]));
    assert_eq!((wish.architecture.as_deref(), wish.network_data_name.as_deref()), (Some("aarch64"), Some("net")));
    let wish = wanted(&host("inspecting", json!({"architecture": "x86_64"})), Driver::Ipmi);
    assert_eq!(wish.accept_formats, Some(vec![ImageFormat::Initrd]));
    assert_eq!((wish.architecture.as_deref(), wish.network_data_name), (Some("x86_64"), None));
}

#[test]
fn the_box_answers_with_its_own_ramdisk() {
    let iso = answered(image(json!(["iso", "initrd"]), None), &ramdisk(), None);
    assert_eq!(found(&iso, None), Found::Ready(Ramdisk { iso: ramdisk().iso, ..Ramdisk::default() }));
    let initrd = answered(image(json!(["initrd"]), None), &ramdisk(), None);
    assert_eq!(found(&initrd, None), Found::Ready(Ramdisk { iso: None, ..ramdisk() }));
    // Without an ISO, what boots one boots the other too.
    let without = Ramdisk { iso: None, ..ramdisk() };
    let other = answered(image(json!(["iso", "initrd"]), None), &without, None);
    assert_eq!(found(&other, None), Found::Ready(without.clone()));
    let none = answered(image(json!(["iso"]), None), &without, None);
    let Found::Failed(why) = found(&none, None) else { panic!("{none:?}") };
    assert!(why.contains("No acceptable image format"), "{why}");
}

#[test]
fn a_host_of_another_architecture_is_told_that_it_cannot_boot() {
    let told = |spec: Value| unbootable(&host("inspecting", spec));
    for of in ["x86_64", "X86_64", "amd64"] {
        assert_eq!(told(json!({"architecture": of})), None, "{of}");
    }
    for of in ["aarch64", "arm64", "ppc64le"] {
        let said = told(json!({"architecture": of})).expect("refused");
        assert!(said.contains(of) && said.contains("x86_64") && said.contains("hint: "), "{said}");
    }
    assert!(told(json!({})).is_some(), "inspection found another one");
    let mut image = image(json!(["iso"]), None);
    for (of, ready) in [("aarch64", false), ("amd64", true), ("", true)] {
        image.spec.architecture = Some(of.to_owned());
        let answered = answered(image.clone(), &ramdisk(), None);
        match found(&answered, None) {
            Found::Ready(_) => assert!(ready, "{of}"),
            Found::Failed(why) => assert!(!ready && why.contains("for x86_64, not for aarch64"), "{why}"),
            Found::Waits(why) => panic!("{of}: {why}"),
        }
    }
}

#[test]
fn network_data_that_are_missing_or_older_are_told() {
    let missing = answered(image(json!(["iso"]), Some("net")), &ramdisk(), None);
    assert!(matches!(found(&missing, None), Found::Failed(why) if why.contains("NetworkData secret not found")));
    let there = answered(image(json!(["iso"]), Some("net")), &ramdisk(), Some("5"));
    assert!(matches!(found(&there, Some("5")), Found::Ready(_)));
    assert!(matches!(found(&there, Some("6")), Found::Waits(why) if why.contains("older")));
}

#[test]
fn an_answer_to_something_else_is_none() {
    let fresh = image(json!(["iso"]), None);
    assert!(matches!(found(&fresh, None), Found::Waits(_)));
    let mut other = answered(fresh, &ramdisk(), None);
    other.metadata.generation = Some(4);
    assert!(matches!(found(&other, None), Found::Waits(why) if why.contains("not ready")));
    let mut format = answered(image(json!(["iso"]), None), &ramdisk(), None);
    format.spec.accept_formats = Some(vec![ImageFormat::Initrd]);
    assert!(matches!(found(&format, None), Found::Waits(why) if why.contains("no format")));
    let mut architecture = answered(image(json!(["iso"]), None), &ramdisk(), None);
    architecture.spec.architecture = Some("aarch64".to_owned());
    assert!(matches!(found(&architecture, None), Found::Waits(why) if why.contains("architecture")));
}

#[test]
fn the_same_answer_is_the_same_status() {
    let once = answered(image(json!(["iso"]), None), &ramdisk(), None);
    assert_eq!(Some(answer(&once, &ramdisk(), None, Timestamp::now())), once.status);
}

#[test]
fn parameters_of_another_controller_come_along() {
    let mut object = json!(answered(image(json!(["initrd"]), None), &ramdisk(), None));
    object["status"]["extraKernelParams"] = json!("console=ttyS0");
    let theirs: PreprovisioningImage = serde_json::from_value(object).expect("an image");
    let Found::Ready(ramdisk) = found(&theirs, None) else { panic!("{theirs:?}") };
    assert_eq!(ramdisk.kernel_params.as_deref(), Some("console=ttyS0"));
}
