//! BIOS settings and firmware, as users of metal3 ask for them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::site::{Site, condition};

const IMAGE: &str = "http://box/debian.raw";

fn path(site: &Site, plural: &str, name: &str) -> String {
    format!("{}/{name}", all(site, plural))
}

fn all(site: &Site, plural: &str) -> String {
    format!("/apis/metal3.io/v1alpha1/namespaces/{}/{plural}", site.namespace)
}

/// Waits until an object is as it should be.
async fn until(site: &Site, plural: &str, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let (path, begun) = (path(site, plural, name), Instant::now());
    loop {
        let object = site.api.get(&path).await.expect("asked").unwrap_or_default();
        if is(&object) {
            return object;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{path} is not {what}: {object}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn settings(site: &Site, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    until(site, "hostfirmwaresettings", name, what, is).await
}

async fn ask(site: &Site, plural: &str, name: &str, spec: Value) {
    site.api.merge(&path(site, plural, name), &json!({"spec": spec})).await.expect("changed");
}

fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).0 == "True"
}

async fn reboot(site: &Site, name: &str) {
    site.change(name, json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
}

#[tokio::test]
async fn settings_are_told_held_against_their_schema_and_written() {
    let site = Site::start("bios").await;
    site.host("a", json!({})).await;
    let host = site.state("a", "available").await;
    let told = settings(&site, "a", "told", |object| holds(object, "Valid")).await;
    let there = json!({"ProcTurboMode": "Enabled", "BootRetries": "5", "SerialNumber": "X1"});
    assert_eq!(told["status"]["settings"], there, "and no password");
    let owner = &told["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&host["metadata"]["uid"], &json!(true)));
    assert!(!holds(&told, "ChangeDetected"));
    let components = until(&site, "hostfirmwarecomponents", "a", "told", |object| holds(object, "Valid")).await;
    let names: Vec<&Value> =
        components["status"]["components"].as_array().expect("a list").iter().map(|one| &one["component"]).collect();
    assert_eq!(names, ["bios", "bmc"]);

    // Hosts of a model have one schema, which goes with the last of them; a host without Redfish has nothing.
    site.host("b", json!({"bmc": {"address": "redfish://10.0.0.2", "credentialsName": "b-bmc"}})).await;
    let ipmi = json!({"bmc": {"address": "ipmi://10.0.0.3", "credentialsName": "c-bmc"}});
    site.host("c", ipmi).await;
    let other = settings(&site, "b", "told", |object| holds(object, "Valid")).await;
    assert_eq!(other["status"]["schema"], told["status"]["schema"]);
    let name = told["status"]["schema"]["name"].as_str().expect("a name").to_owned();
    let schema = until(&site, "firmwareschemas", &name, "shared", |object| {
        object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 2)
    })
    .await;
    assert_eq!(schema["spec"]["schema"]["BootRetries"]["upper_bound"], 9);
    site.state("c", "available").await;
    for plural in ["hostfirmwaresettings", "hostfirmwarecomponents"] {
        assert_eq!(site.api.get(&path(&site, plural, "c")).await.expect("asked"), None);
    }

    // What cannot be is told, and changes nothing.
    let wrong = json!({"settings": {"ProcTurboMode": "Sideways", "SerialNumber": "X2", "BootRetries": 7}});
    ask(&site, "hostfirmwaresettings", "a", wrong).await;
    let refused = settings(&site, "a", "refused", |object| condition(object, "Valid").0 == "False").await;
    let (_, reason, message) = condition(&refused, "Valid");
    assert_eq!(reason, "ConfigurationError");
    for part in [
        "Invalid BIOS setting",
        "ProcTurboMode is invalid, unknown enumeration value - Sideways",
        "SerialNumber is invalid, it is ReadOnly",
    ] {
        assert!(message.contains(part), "{message}");
    }
    site.told("ValidationFailed").await;
    assert!(site.ironic.world().firmware.steps.is_empty());
    site.state("a", "available").await;

    let right = json!({"settings": {"ProcTurboMode": "Disabled", "SerialNumber": null, "BootRetries": "7"}});
    ask(&site, "hostfirmwaresettings", "a", right).await;
    let written = settings(&site, "a", "written", |object| object["status"]["settings"]["BootRetries"] == "7").await;
    assert!(holds(&written, "Valid") && !holds(&written, "ChangeDetected"), "{written}");
    let steps = json!([{"interface": "bios", "step": "apply_configuration", "args": {"settings": [
        {"name": "BootRetries", "value": 7}, {"name": "ProcTurboMode", "value": "Disabled"}]}}]);
    assert_eq!(site.ironic.world().firmware.steps, [("clean".to_owned(), steps)]);
    site.state("a", "available").await;
}

/// Ironic reads settings when it gets to know a host and when it cleans one; who did not answer then is not asked again.
#[tokio::test]
async fn settings_that_ironic_could_not_read_are_read_once_they_are_asked_for() {
    let site = Site::start("unread").await;
    site.ironic.world().firmware.unread = true;
    site.host("a", json!({})).await;
    site.state("a", "available").await;
    let told = settings(&site, "a", "told", |object| holds(object, "Valid")).await;
    assert_eq!(told["status"]["settings"], json!({}));
    ask(&site, "hostfirmwaresettings", "a", json!({"settings": {"BootRetries": "7"}})).await;
    let written = settings(&site, "a", "written", |object| object["status"]["settings"]["BootRetries"] == "7").await;
    assert!(holds(&written, "Valid") && !holds(&written, "ChangeDetected"), "{written}");
    let reading = json!([{"interface": "power", "step": "power_on"}]);
    let steps = json!([{"interface": "bios", "step": "apply_configuration", "args": {"settings": [
        {"name": "BootRetries", "value": 7}]}}]);
    assert_eq!(site.ironic.world().firmware.steps, [("clean".to_owned(), reading), ("clean".to_owned(), steps)]);
    site.state("a", "available").await;
}

#[tokio::test]
async fn updates_are_written_once_and_nothing_is_asked_in_vain() {
    let site = Site::start("updates").await;
    site.host("a", json!({})).await;
    site.state("a", "available").await;
    let update = |component: &str| json!({"component": component, "url": format!("http://box/{component}.bin")});
    ask(&site, "hostfirmwarecomponents", "a", json!({"updates": [update("psu")]})).await;
    let refused =
        until(&site, "hostfirmwarecomponents", "a", "refused", |object| condition(object, "Valid").0 == "False").await;
    assert_eq!(condition(&refused, "Valid").1, "InvalidComponent");
    ask(&site, "hostfirmwarecomponents", "a", json!({"updates": [update("bios")]})).await;
    let written = until(&site, "hostfirmwarecomponents", "a", "written", |object| {
        object["status"]["components"][0]["currentVersion"] == "2.0"
    })
    .await;
    assert_eq!(written["status"]["updates"], json!([update("bios")]));
    assert!(holds(&written, "Valid") && !holds(&written, "ChangeDetected"), "{written}");
    site.state("a", "available").await;
    let steps = json!([{"interface": "firmware", "step": "update", "args": {"settings": [update("bios")]}}]);
    assert_eq!(site.ironic.world().firmware.steps, [("clean".to_owned(), steps)]);

    site.until("a", "ready", |host| condition(host, "Ready").0 == "True").await;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let (reads, before) = (site.ironic.world().firmware.reads, written);
    for turn in ["1", "2", "3"] {
        site.change("a", json!({"metadata": {"annotations": {"turn": turn}}})).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(site.ironic.world().firmware.reads, reads);
    let after = until(&site, "hostfirmwarecomponents", "a", "there", |object| !object.is_null()).await;
    assert_eq!(version(&after), version(&before));
    // One that somebody deleted comes back.
    site.api.delete(&path(&site, "hostfirmwaresettings", "a")).await.expect("deleted");
    settings(&site, "a", "back", |object| holds(object, "Valid")).await;
}

#[tokio::test]
async fn settings_that_a_server_does_not_take_are_no_endless_loop() {
    let site = Site::start("stubborn").await;
    site.ironic.world().firmware.stubborn = true;
    site.host("a", json!({})).await;
    site.state("a", "available").await;
    ask(&site, "hostfirmwaresettings", "a", json!({"settings": {"BootRetries": 8}})).await;
    let host = site.until("a", "failed", |host| host["status"]["errorType"] == "preparation error").await;
    let message = host["status"]["errorMessage"].as_str().unwrap_or_default();
    assert!(message.ends_with("the server did not take them: BootRetries"), "{message}");
    assert_eq!(site.ironic.world().firmware.steps.len(), 1);
    // Another wish is tried at once.
    ask(&site, "hostfirmwaresettings", "a", json!({"settings": {"BootRetries": 5}})).await;
    site.state("a", "available").await;
}

#[tokio::test]
async fn a_host_in_use_is_changed_at_its_next_reboot() {
    let mut site = Site::prepare("service", Duration::from_millis(700)).await;
    site.run();
    site.host("a", json!({"image": {"url": IMAGE, "checksum": "abc"}})).await;
    site.state("a", "provisioned").await;
    ask(&site, "hostfirmwaresettings", "a", json!({"settings": {"BootRetries": 8}})).await;
    settings(&site, "a", "seen", |object| holds(object, "ChangeDetected") && holds(object, "Valid")).await;
    let rebooted = |host: &Value| {
        host["metadata"]["annotations"]["reboot.metal3.io"].is_null() && condition(host, "Ready").0 == "True"
    };
    // Without a policy, a host in use stays as it is.
    reboot(&site, "a").await;
    site.until("a", "rebooted", rebooted).await;
    assert!(site.ironic.world().firmware.steps.is_empty());

    let policy = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HostUpdatePolicy",
        "metadata": {"name": "a"}, "spec": {"firmwareSettings": "onReboot"}});
    site.api.create(&all(&site, "hostupdatepolicies"), &policy).await.expect("a policy");
    until(&site, "hostupdatepolicies", "a", "owned", |policy| {
        policy["metadata"]["ownerReferences"][0]["kind"] == "BareMetalHost"
    })
    .await;
    site.ironic.world().firmware.fails = true;
    reboot(&site, "a").await;
    site.until("a", "servicing", |host| host["status"]["operationalStatus"] == "servicing").await;
    let host = site.until("a", "failed", |host| host["status"]["errorType"] == "servicing error").await;
    assert!(host["status"]["errorMessage"].as_str().is_some_and(|why| why.contains("the file is damaged")), "{host}");
    let metrics = site.served("/metrics").await;
    assert!(metrics.contains("metal3_host_error_total{error_type=\"ServicingError\"} 1"), "{metrics}");

    // Another wish is tried at once.
    site.ironic.world().firmware.fails = false;
    ask(&site, "hostfirmwaresettings", "a", json!({"settings": {"BootRetries": 9}})).await;
    let written = settings(&site, "a", "written", |object| object["status"]["settings"]["BootRetries"] == "9").await;
    assert!(!holds(&written, "ChangeDetected"), "{written}");
    let host = site.until("a", "ready", |host| condition(host, "Ready").0 == "True").await;
    let status = &host["status"];
    assert_eq!((&status["operationalStatus"], &status["poweredOn"]), (&json!("OK"), &json!(true)));
    assert_eq!(status["provisioning"]["state"], "provisioned");
    let world = site.ironic.world();
    let (target, steps) = world.firmware.steps.last().expect("steps");
    assert_eq!((&**target, &steps[0]["args"]["settings"]), ("service", &json!([{"name": "BootRetries", "value": 9}])));
    assert_eq!((world.firmware.steps.len(), world.deployed.len()), (2, 1), "nothing is installed again");
}

/// What was asked for and could not be had may be taken back.
#[tokio::test]
async fn a_failed_change_of_a_host_in_use_can_be_taken_back() {
    let site = Site::start("abort").await;
    site.host("a", json!({"image": {"url": IMAGE, "checksum": "abc"}})).await;
    site.state("a", "provisioned").await;
    let policy = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HostUpdatePolicy",
        "metadata": {"name": "a"}, "spec": {"firmwareUpdates": "onReboot"}});
    site.api.create(&all(&site, "hostupdatepolicies"), &policy).await.expect("a policy");
    site.ironic.world().firmware.fails = true;
    let update = json!({"component": "bmc", "url": "http://box/bmc.bin"});
    ask(&site, "hostfirmwarecomponents", "a", json!({"updates": [update]})).await;
    until(&site, "hostfirmwarecomponents", "a", "seen", |object| holds(object, "ChangeDetected")).await;
    reboot(&site, "a").await;
    site.until("a", "failed", |host| host["status"]["errorType"] == "servicing error").await;
    ask(&site, "hostfirmwarecomponents", "a", json!({"updates": []})).await;
    let host = site.until("a", "ready", |host| condition(host, "Ready").0 == "True").await;
    assert_eq!((&host["status"]["operationalStatus"], &host["status"]["errorType"]), (&json!("OK"), &Value::Null));
    let node = site.ironic.world().named(&site.node("a")).cloned().expect("a node");
    assert_eq!((&node["provision_state"], &node["maintenance"]), (&json!("active"), &json!(false)));
    assert_eq!(site.ironic.world().deployed.len(), 1);
}
