//! What comes late, is changed on the way, or was wrong at first.

use serde_json::{Value, json};

use crate::ironic::PASSWORD;
use crate::site::{Site, condition};
use crate::{MAC, image};

/// Has the controller look again.
async fn poke(site: &Site, name: &str) {
    site.change(name, json!({"metadata": {"annotations": {"poke": "1"}}})).await;
}

/// What is told of why a host does not go on.
fn waits(host: &Value) -> &str {
    host["status"]["errorMessage"].as_str().unwrap_or_default()
}

/// No try is lost for what is not there yet, and nothing is given up.
#[tokio::test]
async fn what_an_image_needs_may_come_later() {
    let site = Site::start("late").await;
    site.host("a", json!({"bootMACAddress": MAC, "image": image("abc"), "userData": {"name": "user"}})).await;
    let missing = "the Secret `late/user` with `userData` does not exist";
    let host = site.until("a", "waiting", |host| waits(host) == missing).await;
    assert_eq!(host["status"]["provisioning"]["state"], "provisioning");
    assert_eq!(condition(&host, "Progressing").1, "Waiting");
    assert!(host["status"]["provisioningFailCount"].as_i64().unwrap_or_default() == 0, "{host}");
    // Nor for a BMC that is away meanwhile.
    let node = site.node("a");
    let alone = |alone: bool| {
        let mut world = site.ironic.world();
        let uuid = world.named(&node).expect("a node")["uuid"].as_str().expect("a UUID").to_owned();
        let node = world.nodes.get_mut(&uuid).expect("there");
        node["maintenance"] = json!(alone);
        node["maintenance_reason"] = json!("the BMC does not answer");
    };
    alone(true);
    site.secret("user", &json!({"userData": "#cloud-config\n"})).await;
    poke(&site, "a").await;
    site.until("a", "waiting for its BMC", |host| waits(host).ends_with("the BMC does not answer")).await;
    alone(false);
    site.change("a", json!({"metadata": {"annotations": {"poke": "2"}}})).await;
    let host = site.state("a", "provisioned").await;
    assert_eq!((waits(&host), site.ironic.world().deployed.len()), ("", 1));
}

/// Whatever is done for the one would be done to what the other runs.
#[tokio::test]
async fn a_bmc_is_one_hosts_only() {
    let site = Site::start("twice").await;
    let same =
        json!({"address": "redfish-virtualmedia://10.0.0.1:443/redfish/v1/Systems/a/", "credentialsName": "b-bmc"});
    site.host("a", json!({"bootMACAddress": MAC})).await;
    site.state("a", "available").await;
    site.host("b", json!({"bmc": same})).await;
    let host = site.until("b", "refused", |host| host["status"]["errorType"] == "registration error").await;
    assert!(waits(&host).ends_with("conflicts with BareMetalHost twice/a, which has it"), "{host}");
    assert_eq!(site.ironic.world().nodes.len(), 1);
    site.delete("a").await;
    site.gone("a").await;
    site.change("b", json!({"spec": {"description": "the other one is gone"}})).await;
    site.state("b", "available").await;
}

#[tokio::test]
async fn the_image_goes_to_the_disk_that_is_asked_for_when_it_is() {
    let site = Site::start("disk").await;
    site.host("a", json!({"bootMACAddress": MAC, "rootDeviceHints": {"deviceName": "/dev/vda"}})).await;
    site.state("a", "available").await;
    let spec = json!({"rootDeviceHints": {"deviceName": "/dev/vdb"}, "image": image("abc")});
    site.change("a", json!({"spec": spec})).await;
    let host = site.state("a", "provisioned").await;
    let written = site.ironic.world().deployed[0]["instance_info"]["root_device"].clone();
    assert_eq!(written, json!({"name": "s== /dev/vdb"}));
    assert_eq!(host["status"]["provisioning"]["rootDeviceHints"], json!({"deviceName": "/dev/vdb"}));
}

/// It is free for use in Ironic then, which adopts no such node.
#[tokio::test]
async fn a_host_that_was_deprovisioned_may_be_installed_by_somebody_else() {
    let site = Site::start("given").await;
    site.host("a", json!({"bootMACAddress": MAC, "image": image("abc")})).await;
    site.state("a", "provisioned").await;
    site.change("a", json!({"spec": {"image": null}})).await;
    site.state("a", "available").await;
    assert_eq!(site.ironic.world().named(&site.node("a")).expect("a node")["provision_state"], "available");
    site.change("a", json!({"spec": {"externallyProvisioned": true}})).await;
    site.until("a", "as it shall be", |host| {
        host["status"]["provisioning"]["state"] == "externally provisioned" && condition(host, "Ready").0 == "True"
    })
    .await;
    let world = site.ironic.world();
    assert_eq!(
        (&world.named(&site.node("a")).expect("a node")["provision_state"], world.deployed.len()),
        (&json!("active"), 1)
    );
}

/// A protocol that the BMC does not speak, and a password that it does not know.
#[tokio::test]
async fn a_bmc_address_may_be_corrected_to_another_protocol() {
    let site = Site::start("protocol").await;
    site.secret("a-bmc", &json!({"username": "admin", "password": "wrong"})).await;
    let bmc = |address: &str| json!({"address": address, "credentialsName": "a-bmc"});
    site.host_only("a", json!({"bootMACAddress": MAC, "bmc": bmc("ipmi://10.0.0.1")})).await;
    site.until("a", "refused", |host| host["status"]["errorType"] == "registration error").await;
    let secret = format!("/api/v1/namespaces/{}/secrets/a-bmc", site.namespace);
    site.api.merge(&secret, &json!({"stringData": {"password": PASSWORD}})).await.expect("changed");
    site.change("a", json!({"spec": {"bmc": bmc("redfish://10.0.0.1/redfish/v1/Systems/1")}})).await;
    site.state("a", "available").await;
    let world = site.ironic.world();
    let node = world.named(&site.node("a")).expect("a node");
    assert_eq!((node["driver"].as_str(), node["driver_info"].get("ipmi_address")), (Some("redfish"), None));
}

/// A reboot is asked for once and forced at once; a client's hold is the client's to take back.
#[tokio::test]
async fn what_a_client_holds_off_stays_off_until_the_client_lets_go() {
    let site = Site::start("held").await;
    let annotations = |drain: Value, once: Value| json!({"metadata": {"annotations": {"reboot.metal3.io/drain": drain, "reboot.metal3.io": once}}});
    site.ironic.world().faults.silence = true;
    site.host("a", json!({"bootMACAddress": MAC, "image": image("abc")})).await;
    let waits = |node: &Value| node["provision_state"] == "inspect wait";
    site.until("a", "waiting for its ramdisk", |_| site.ironic.world().named(&site.node("a")).is_some_and(waits)).await;
    site.ironic.world().faults.silence = false;
    site.change("a", annotations(json!("{\"mode\":\"hard\"}"), json!("{\"force\":true}"))).await;
    let once = |host: &Value| !host["metadata"]["annotations"]["reboot.metal3.io"].is_null();
    site.state("a", "provisioned").await;
    let host = site.until("a", "held off", |host| condition(host, "Progressing").1 == "HeldOff").await;
    assert_eq!((&host["status"]["poweredOn"], once(&host)), (&json!(false), false), "{host}");
    assert!(condition(&host, "Progressing").2.contains("drain"), "{host}");
    site.change("a", annotations(Value::Null, Value::Null)).await;
    site.until("a", "on", |host| host["status"]["poweredOn"] == true).await;
}

/// A pivot moves its `HardwareData` beside it: ports are made of the interfaces that it names.
#[tokio::test]
async fn a_host_that_is_moved_finds_its_hardware_beside_it() {
    let site = Site::start("pivot").await;
    let nic = "52:54:00:ab:00:99";
    let data = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HardwareData", "metadata": {"name": "a"},
        "spec": {"hardware": {"hostname": "kept", "nics": [{"name": "ens3", "mac": nic}]}}});
    let path = format!("/apis/metal3.io/v1alpha1/namespaces/{}/hardwaredata", site.namespace);
    site.api.create(&path, &data).await.expect("HardwareData");
    let status = json!({"operationalStatus": "OK", "errorMessage": "", "poweredOn": true, "errorCount": 0,
        "provisioning": {"state": "provisioned", "ID": "elsewhere", "image": image("abc")}});
    site.secret("a-bmc", &json!({"username": "admin", "password": PASSWORD})).await;
    let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "a", "annotations": {"baremetalhost.metal3.io/status": status.to_string()}},
        "spec": {"online": true, "image": image("abc"), "bootMACAddress": MAC,
            "bmc": {"address": "redfish://10.0.0.2", "credentialsName": "a-bmc"}}});
    let path = format!("/apis/metal3.io/v1alpha1/namespaces/{}/baremetalhosts", site.namespace);
    site.api.create(&path, &host).await.expect("a host");
    let host = site.until("a", "ready", |host| condition(host, "Ready").0 == "True").await;
    assert_eq!(host["status"]["hardware"]["hostname"], "kept");
    let world = site.ironic.world();
    assert!(world.ports.contains_key(nic) && world.deployed.is_empty(), "{:?}", world.ports);
}

/// What broke off inside Ironic leaves a target that nobody works for.
#[tokio::test]
async fn a_power_change_that_broke_off_is_asked_for_again() {
    let site = Site::start("switch").await;
    site.host("a", json!({"bootMACAddress": MAC, "image": image("abc")})).await;
    site.state("a", "provisioned").await;
    site.until("a", "on", |host| host["status"]["poweredOn"] == true).await;
    site.ironic.world().faults.unswitched = 2;
    site.change("a", json!({"spec": {"online": false}})).await;
    site.until("a", "off", |host| host["status"]["poweredOn"] == false).await;
    assert_eq!(site.ironic.world().faults.unswitched, 0);
    site.change("a", json!({"spec": {"online": true}})).await;
    site.until("a", "on again", |host| host["status"]["poweredOn"] == true).await;
}

/// What hangs inside Ironic is told; what it leaves when it is started anew is done.
#[tokio::test]
async fn a_power_change_that_never_ends_is_told() {
    let site = Site::start("endless").await;
    site.host("a", json!({"bootMACAddress": MAC, "image": image("abc")})).await;
    site.state("a", "provisioned").await;
    site.until("a", "on", |host| host["status"]["poweredOn"] == true).await;
    let switched = |target: Value, by: Value| {
        let mut world = site.ironic.world();
        let uuid = world.find(&site.node("a")).expect("a node");
        let node = world.nodes.get_mut(&uuid).expect("there");
        node["driver_internal_info"] = json!({"last_power_state_change": "2026-03-02T08:00:00.125000"});
        (node["target_power_state"], node["reservation"]) = (target, by);
    };
    switched(json!("power off"), json!("box"));
    site.change("a", json!({"spec": {"online": false}})).await;
    let host = site.until("a", "told", |host| host["status"]["errorType"] == "power management error").await;
    let why = "Ironic has been at the change to `power off` since 2026-03-02T08:00:00Z, and does not end";
    assert!(waits(&host).starts_with(why), "{host}");
    switched(json!("power off"), Value::Null);
    site.change("a", json!({"spec": {"description": "Ironic was started anew"}})).await;
    let host = site.until("a", "off", |host| host["status"]["poweredOn"] == false).await;
    assert_eq!(waits(&host), "");
}
