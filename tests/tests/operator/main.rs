//! The controller of `BareMetalHost`s between a real API server and a fake Ironic. Numbers are those of the issues in
//! which users of metal3's operator told what these tests show not to happen here.

#![allow(clippy::needless_pass_by_value, reason = "`json!` where it is needed reads best")]

#[path = "../cluster/mod.rs"]
mod cluster;
mod clusters;
mod consoles;
mod firmware;
mod fleet;
mod ironic;
mod kinds;
mod late;
mod login;
mod media;
mod releases;
mod site;
mod tenants;
mod vino;

use std::time::{Duration, Instant};

use foothold_agent::operators::metal3::Limits;
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use site::{Site, condition};

const MAC: &str = "52:54:00:AB:00:01";

fn image(checksum: &str) -> Value {
    json!({"url": "http://box/debian.raw", "checksum": checksum, "checksumType": "auto", "format": "raw"})
}

#[tokio::test]
async fn a_host_goes_its_whole_way() {
    let site = Site::start("life").await;
    site.host("a", json!({"bootMACAddress": MAC, "rootDeviceHints": {"deviceName": "/dev/vda"}})).await;
    let host = site.state("a", "available").await;
    assert_eq!(host["status"]["hardware"]["ramMebibytes"], 2048);
    let data = format!("/apis/metal3.io/v1alpha1/namespaces/{}/hardwaredata/a", site.namespace);
    let data = site.api.get(&data).await.expect("asked").expect("written");
    assert_eq!(data["spec"]["hardware"], host["status"]["hardware"]);
    assert_eq!(data["metadata"]["ownerReferences"][0]["kind"], "BareMetalHost");
    {
        let world = site.ironic.world();
        let node = world.named(&site.node("a")).expect("a node");
        assert_eq!(node["uuid"], host["status"]["provisioning"]["ID"]);
        assert_eq!(node["driver_info"]["redfish_address"], "https://10.0.0.1");
        assert_eq!(world.ports[&MAC.to_lowercase()]["pxe_enabled"], true);
    }

    site.secret("user", &json!({"userData": "#cloud-config\n"})).await;
    site.secret("network", &json!({"networkData": "links: []\n"})).await;
    let spec = json!({"image": image("abc"), "userData": {"name": "user"}, "networkData": {"name": "network"}});
    site.change("a", json!({"spec": spec})).await;
    let host = site.state("a", "provisioned").await;
    let deployed = site.ironic.world().deployed[0].clone();
    assert_eq!(deployed["configdrive"]["user_data"], "#cloud-config\n");
    assert_eq!(deployed["configdrive"]["meta_data"]["metal3-name"], "a");
    assert_eq!(deployed["configdrive"]["network_data"], json!({"links": []}));
    let info = &deployed["instance_info"];
    assert_eq!((&info["image_source"], &info["image_checksum"]), (&json!("http://box/debian.raw"), &json!("abc")));
    assert_eq!(info["root_device"], json!({"name": "s== /dev/vda"}));
    assert_eq!(deployed["instance_uuid"], host["metadata"]["uid"]);
    site.until("a", "ready", |host| condition(host, "Ready").0 == "True").await;

    site.change("a", json!({"spec": {"online": false}})).await;
    site.until("a", "off", |host| host["status"]["poweredOn"] == false).await;
    site.change("a", json!({"spec": {"online": true}})).await;
    site.until("a", "on", |host| host["status"]["poweredOn"] == true).await;
    site.change("a", json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
    site.until("a", "rebooted", |host| {
        host["metadata"]["annotations"]["reboot.metal3.io"].is_null() && host["status"]["poweredOn"] == true
    })
    .await;

    site.change("a", json!({"spec": {"image": null, "userData": null}})).await;
    let host = site.state("a", "available").await;
    for operation in ["register", "inspect", "provision", "deprovision"] {
        assert!(host["status"]["operationHistory"][operation]["end"].is_string(), "{operation}: {host}");
    }
    site.delete("a").await;
    site.gone("a").await;
    assert!(site.ironic.world().nodes.is_empty() && site.ironic.world().ports.is_empty());
    let events = site.events().await;
    for reason in [
        "Registered",
        "BMCAccessValidated",
        "InspectionStarted",
        "InspectionComplete",
        "ProvisioningStarted",
        "ProvisioningComplete",
        "DeprovisioningStarted",
        "DeprovisioningComplete",
        "PowerOn",
        "PowerOff",
    ] {
        assert!(events.iter().any(|event| event == reason), "{reason}: {events:?}");
    }
    let metrics = site.served("/metrics").await;
    let labels = format!("{{namespace=\"{}\",host=\"a\"}}", site.namespace);
    for name in ["metal3_reconcile_total{labels} ", "metal3_operation_provision_duration_seconds_count{labels} 1"] {
        let line = name.replace("{labels}", &labels);
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    assert_eq!((&*site.served("/healthz").await, &*site.served("/readyz").await), ("ok", "ok"));
}

/// #1119, #3211, #834: nodes and all ports come back, the host is adopted, nothing is powered or written.
#[tokio::test]
async fn a_lost_database_is_made_again_and_no_power_changes() {
    let site = Site::start("lost").await;
    site.host("a", json!({"bootMACAddress": MAC, "image": image("abc")})).await;
    let before = site.state("a", "provisioned").await;
    site.until("a", "ready", |host| condition(host, "Ready").0 == "True").await;
    let (power, ports) = {
        let world = site.ironic.world();
        (world.power.clone(), world.ports.keys().cloned().collect::<Vec<_>>())
    };
    // The one that inspection found is made again too: the ramdisk calls back by it.
    let found = before["status"]["hardware"]["nics"][0]["mac"].as_str().expect("a MAC").to_owned();
    site.ironic.wipe();
    site.change("a", json!({"metadata": {"annotations": {"poke": "1"}}})).await;
    let old = before["status"]["provisioning"]["ID"].clone();
    site.until("a", "known again", |host| host["status"]["provisioning"]["ID"] != old).await;
    let begun = Instant::now();
    loop {
        {
            let world = site.ironic.world();
            if world.named(&site.node("a")).is_some_and(|node| node["provision_state"] == "active") {
                assert!(ports.iter().chain([&found]).all(|mac| world.ports.contains_key(mac)), "{:?}", world.ports);
                assert_eq!(world.power, power, "no power change");
                assert_eq!(world.deployed.len(), 1, "nothing is written again");
                break;
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "not adopted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let after = site.state("a", "provisioned").await;
    let history = |host: &Value| host["status"]["operationHistory"]["provision"].clone();
    assert_eq!(history(&after), history(&before));
}

/// #1163: the condition says what is waited for and what helps; what helps takes less than 30 s.
#[tokio::test]
async fn without_ironic_a_host_can_be_let_go() {
    let site = Site::start("away").await;
    site.host("a", json!({})).await;
    site.state("a", "available").await;
    site.ironic.world().faults.hangs = true;
    site.delete("a").await;
    let host = site.until("a", "waiting", |host| condition(host, "Healthy").1 == "IronicAway").await;
    let message = condition(&host, "Healthy").2;
    assert!(message.contains("no answer within 10 s") && message.contains("hint: the annotation"), "{message}");
    let detached = json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": ""}}});
    site.change("a", detached).await;
    let took = site.gone("a").await;
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// #1729, #3213, #3487: neither deprovisioned nor powered off, and nothing is waited for.
#[tokio::test]
async fn a_deletion_right_after_detaching_leaves_the_server_alone() {
    let site = Site::start("detach").await;
    site.host("a", json!({"image": image("abc")})).await;
    site.state("a", "provisioned").await;
    site.until("a", "ready", |host| condition(host, "Ready").0 == "True").await;
    let power = {
        let mut world = site.ironic.world();
        world.changes.clear();
        world.power.clone()
    };
    site.change("a", json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": ""}}})).await;
    site.delete("a").await;
    let took = site.gone("a").await;
    assert!(took < Duration::from_secs(30), "{took:?}");
    let world = site.ironic.world();
    assert!(world.nodes.is_empty());
    assert_eq!(world.power, power);
    assert!(!world.changes.iter().any(|change| change.contains("/states/")), "{:?}", world.changes);
}

/// BMO-12: the Secret's change is what ends the wait, not the clock.
#[tokio::test]
async fn right_credentials_are_tried_at_once() {
    let site = Site::start("credentials").await;
    site.secret("a-bmc", &json!({"username": "admin", "password": "wrong"})).await;
    site.host_only("a", json!({})).await;
    let host = site.until("a", "refused", |host| host["status"]["errorType"] == "registration error").await;
    assert_eq!(host["status"]["errorMessage"], "Failed to get power state for node: wrong password");
    let path = format!("/api/v1/namespaces/{}/secrets/a-bmc", site.namespace);
    let begun = Instant::now();
    site.api.merge(&path, &json!({"stringData": {"password": ironic::PASSWORD}})).await.expect("changed");
    let host = site.state("a", "available").await;
    assert!(begun.elapsed() < Duration::from_secs(50), "the first wait after an error is a minute or more");
    assert_eq!(host["status"]["goodCredentials"], host["status"]["triedCredentials"]);
    // #1053: no finalizer to race with, and the Secret goes with its host.
    let secret = site.api.get(&path).await.expect("asked").expect("there");
    assert_eq!(secret["metadata"]["labels"]["environment.metal3.io"], "baremetal");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["name"], "a");
    assert!(secret["metadata"]["finalizers"].is_null());
}

/// #3468, #194, #798: an end after so many tries, told with image, checksum and Ironic's words; another image at once.
#[tokio::test]
async fn a_bad_image_is_given_up_and_another_one_tried_at_once() {
    let mut site = Site::prepare("image", Duration::from_millis(100)).await;
    site.settings.limits = Limits { provisioning_tries: 2 };
    site.run();
    site.host("a", json!({"image": image("bad")})).await;
    let host = site.until("a", "given up", |host| condition(host, "Progressing").1 == "GaveUp").await;
    assert_eq!(host["status"]["provisioningFailCount"], 2);
    let message = host["status"]["errorMessage"].as_str().unwrap_or_default();
    for part in ["Image failed to verify against checksum", "http://box/debian.raw", "checksum bad"] {
        assert!(message.contains(part), "{message}");
    }
    let tries = site.ironic.world().changes.len();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(site.ironic.world().changes.len(), tries, "nothing is done any more");
    let begun = Instant::now();
    site.change("a", json!({"spec": {"image": {"url": "http://box/other.raw", "checksum": "good"}}})).await;
    let host = site.state("a", "provisioned").await;
    assert!(begun.elapsed() < Duration::from_secs(50));
    assert_eq!(host["status"]["provisioningFailCount"], 0);
}

/// #1182, BMO-13: what could not be cleaned stays where it is; #798: the user's change is tried at once.
#[tokio::test]
async fn a_host_that_cannot_be_cleaned_gets_no_power_from_us() {
    let site = Site::start("clean").await;
    site.host("a", json!({"image": image("abc")})).await;
    site.state("a", "provisioned").await;
    {
        let mut world = site.ironic.world();
        world.faults.cleaning = true;
        world.changes.clear();
    }
    site.change("a", json!({"spec": {"image": null}})).await;
    let host = site.until("a", "failed", |host| host["status"]["errorType"] == "provisioning error").await;
    assert_eq!(host["status"]["provisioning"]["state"], "deprovisioning");
    let (status, reason, message) = condition(&host, "Healthy");
    assert_eq!((&*status, &*reason), ("False", "ProvisioningError"));
    assert!(message.contains("no space left"), "{message}");
    {
        let mut world = site.ironic.world();
        assert!(!world.changes.iter().any(|change| change.contains("states/power")), "{:?}", world.changes);
        world.faults.cleaning = false;
    }
    site.change("a", json!({"spec": {"description": "disk replaced"}})).await;
    site.state("a", "available").await;
}

/// #1284, #930: a failed inspection is told and tried again; a busy Ironic is asked again.
#[tokio::test]
async fn what_fails_once_or_is_busy_is_tried_again() {
    let site = Site::start("again").await;
    {
        let mut world = site.ironic.world();
        world.faults.inspections = 1;
        world.faults.locked_every = Some(3);
    }
    site.host("a", json!({"bootMACAddress": MAC})).await;
    let host = site.until("a", "failed", |host| host["status"]["errorType"] == "inspection error").await;
    assert!(condition(&host, "Progressing").2.contains("tried again at"), "{host}");
    site.change("a", json!({"spec": {"description": "cable plugged in"}})).await;
    site.state("a", "available").await;
    site.change("a", json!({"spec": {"image": image("abc")}})).await;
    site.state("a", "provisioned").await;
    site.delete("a").await;
    site.gone("a").await;
    // #482: nothing is left behind.
    assert!(site.ironic.world().nodes.is_empty());
}

/// The controller may end at any time: what it had begun goes on, and is not begun again.
#[tokio::test]
async fn a_restarted_controller_goes_on_where_it_was() {
    let mut site = Site::prepare("restart", Duration::from_millis(1500)).await;
    site.run();
    site.host("a", json!({"bootMACAddress": MAC, "image": image("abc")})).await;
    for state in ["inspecting", "provisioning"] {
        site.state("a", state).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        site.stop();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        site.run();
    }
    site.state("a", "provisioned").await;
    let world = site.ironic.world();
    assert_eq!(world.deployed.len(), 1);
    assert_eq!(world.changes.iter().filter(|change| *change == "POST /v1/nodes").count(), 1);
}

/// Servers that asked while the box was away were not answered, and do not ask again.
#[tokio::test]
async fn what_nobody_answered_while_the_controller_was_away_is_begun_anew() {
    let mut site = Site::prepare("silence", Duration::from_millis(150)).await;
    site.settings.pace.silence = SignedDuration::from_secs(1);
    site.run();
    site.ironic.world().faults.silence = true;
    site.host("a", json!({"bootMACAddress": MAC})).await;
    nobody_answers(&mut site, "inspect wait").await;
    site.state("a", "available").await;
    site.ironic.world().faults.silence = true;
    site.change("a", json!({"spec": {"image": image("abc")}})).await;
    nobody_answers(&mut site, "wait call-back").await;
    site.state("a", "provisioned").await;
    assert_eq!(site.ironic.world().deployed.len(), 1);
    site.told("RamdiskLost").await;
}

/// What broke off inside Ironic leaves a node in a state that nothing ends.
#[tokio::test]
async fn a_node_that_ironic_has_nobody_at_work_with_is_made_known_anew() {
    let mut site = Site::prepare("abandoned", Duration::from_millis(150)).await;
    site.settings.pace.abandoned = SignedDuration::from_secs(1);
    site.run();
    site.host("a", json!({"bootMACAddress": MAC})).await;
    let before = site.state("a", "available").await;
    site.ironic.world().faults.abandoned = 1;
    site.change("a", json!({"spec": {"image": image("abc")}})).await;
    let host = site.state("a", "provisioned").await;
    assert_ne!(host["status"]["provisioning"]["ID"], before["status"]["provisioning"]["ID"]);
    assert_eq!(site.ironic.world().deployed.len(), 1);
    assert_eq!(site.ironic.world().nodes.len(), 1);
    site.told("NodeAbandoned").await;
}

/// The only node waits for its ramdisk, which does not come while the controller lives, nor after it: but the next would.
async fn nobody_answers(site: &mut Site, state: &str) {
    let node = site.node("a");
    let waits = |site: &Site| site.ironic.world().named(&node).is_some_and(|node| node["provision_state"] == state);
    let begun = Instant::now();
    while !waits(site) {
        assert!(begun.elapsed() < site::PATIENCE, "not in {state}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Of a controller that powered the server on itself, Ironic's patience is what counts.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(waits(site), "{state} was given up");
    site.stop();
    site.ironic.world().faults.silence = false;
    tokio::time::sleep(Duration::from_secs(1)).await;
    site.run();
}

/// #2465, #431: a host that somebody else installed is adopted as it is; one whose status is told keeps it.
#[tokio::test]
async fn hosts_that_come_with_what_they_run_are_left_as_they_are() {
    let site = Site::start("moved").await;
    site.host("a", json!({"externallyProvisioned": true, "bootMACAddress": MAC})).await;
    site.state("a", "externally provisioned").await;
    site.until("a", "ready", |host| condition(host, "Ready").0 == "True").await;
    assert_eq!(site.ironic.world().power, [], "no power change");
    assert!(site.ironic.world().deployed.is_empty());

    let status = json!({"operationalStatus": "OK", "errorMessage": "", "poweredOn": true, "errorCount": 0,
        "hardware": {"hostname": "kept"}, "provisioning": {"state": "provisioned", "ID": "elsewhere", "image": image("abc")}});
    site.secret("b-bmc", &json!({"username": "admin", "password": ironic::PASSWORD})).await;
    let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "b", "annotations": {"baremetalhost.metal3.io/status": status.to_string()}},
        "spec": {"online": true, "image": image("abc"), "bmc": {"address": "redfish://10.0.0.2", "credentialsName": "b-bmc"}}});
    let path = format!("/apis/metal3.io/v1alpha1/namespaces/{}/baremetalhosts", site.namespace);
    site.api.create(&path, &host).await.expect("a host");
    let host = site.until("b", "ready", |host| condition(host, "Ready").0 == "True").await;
    assert_eq!(host["status"]["provisioning"]["state"], "provisioned");
    assert_eq!(host["status"]["hardware"]["hostname"], "kept");
    assert!(host["metadata"]["annotations"]["baremetalhost.metal3.io/status"].is_null());
    let world = site.ironic.world();
    assert!(world.power.is_empty() && world.deployed.is_empty());
    assert!(!world.changes.iter().any(|change| change.contains("states/power")), "{:?}", world.changes);
}

/// What metal3's webhooks refuse is refused in their words, and nothing passes unseen while nobody answers.
#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let mut site = Site::prepare("refused", Duration::from_millis(150)).await;
    site.settings.webhook = Some(site::free_address());
    site.run();
    site.asks_what_is_admitted().await;
    let path = format!("/apis/metal3.io/v1alpha1/namespaces/{}/baremetalhosts", site.namespace);
    let host = |address: &str| {
        json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "a"},
            "spec": {"online": true, "bmc": {"address": address, "credentialsName": "a-bmc"}}})
    };
    let refused = site.api.create(&path, &host("foo://10.0.0.1")).await.expect_err("refused").to_string();
    let said = "admission webhook \"baremetalhost.metal3.io\" denied the request: Unknown BMC type 'foo' for address foo://10.0.0.1";
    assert!(refused.contains(said), "{refused}");

    site.host("a", json!({"bootMACAddress": MAC})).await;
    site.state("a", "available").await;
    let moved = json!({"spec": {"bootMACAddress": "52:54:00:AB:00:02"}});
    let refused = site.api.merge(&site.path("a"), &moved).await.expect_err("refused").to_string();
    assert!(refused.ends_with("denied the request: bootMACAddress can not be changed once it is set"), "{refused}");

    site.stop();
    let change = json!({"spec": {"description": "moved to rack 2"}});
    let refused = site.api.merge(&site.path("a"), &change).await.expect_err("nobody answers").to_string();
    assert!(refused.contains("failed calling webhook"), "{refused}");
    // With another certificate, at the same address.
    site.run();
    site.asks_what_is_admitted().await;
    site.change("a", change).await;
    site.delete("a").await;
    site.gone("a").await;
}
