//! The smaller kinds: subscriptions, images in drives, claims, ramdisks made for hosts, switches.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::site::{PATIENCE, Site, condition};

const GROUP: &str = "/apis/metal3.io/v1alpha1/namespaces";

fn image() -> Value {
    json!({"url": "http://box/debian.raw", "checksum": "abc", "format": "raw"})
}

/// An object of a kind, in the site's namespace or another.
async fn create(site: &Site, namespace: &str, (plural, kind): (&str, &str), name: &str, spec: Value) {
    let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    site.api.create(&format!("{GROUP}/{namespace}/{plural}"), &object).await.expect("made");
}

/// Waits until an object is as it should be.
async fn until(site: &Site, path: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let object = site.api.get(path).await.expect("asked").unwrap_or_default();
        if is(&object) {
            return object;
        }
        assert!(begun.elapsed() < PATIENCE, "{path} is not {what}: {object}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn gone(site: &Site, path: &str) {
    until(site, path, "gone", Value::is_null).await;
}

const SUBSCRIPTION: (&str, &str) = ("bmceventsubscriptions", "BMCEventSubscription");

#[tokio::test]
async fn a_subscription_is_made_and_removed_at_the_bmc() {
    let site = Site::start("events").await;
    site.host("a", json!({})).await;
    site.secret("headers", &json!({"X-Token": "t"})).await;
    let spec = json!({"hostName": "a", "destination": "https://box/events", "context": "c",
        "httpHeadersRef": {"name": "headers", "namespace": "events"}});
    site.ironic.world().bmcs.failures = 1;
    create(&site, "events", SUBSCRIPTION, "s", spec).await;
    let path = format!("{GROUP}/events/bmceventsubscriptions/s");
    // What failed is told, tried again, and told no more.
    let made = until(&site, &path, "made", |object| object["status"]["subscriptionID"].is_string()).await;
    assert_eq!(made["status"], json!({"subscriptionID": "1"}));
    {
        let world = site.ironic.world();
        let wanted = json!({"Destination": "https://box/events", "Context": "c", "HttpHeaders": [{"X-Token": "t"}]});
        assert_eq!(world.bmcs.subscriptions.get("1"), Some(&wanted));
        let tries = world.changes.iter().filter(|change| change.ends_with("vendor_passthru")).count();
        assert_eq!(tries, 2, "{:?}", world.changes);
    }
    site.api.delete(&path).await.expect("deleted");
    gone(&site, &path).await;
    assert!(site.ironic.world().bmcs.subscriptions.is_empty());
}

#[tokio::test]
async fn a_subscription_that_cannot_be_says_why_and_a_host_that_goes_lets_it_go() {
    let site = Site::start("noevents").await;
    let bmc = json!({"address": "ipmi://10.0.0.1", "credentialsName": "i-bmc"});
    site.host("i", json!({"bmc": bmc, "bootMACAddress": "52:54:00:AB:00:02"})).await;
    for (name, host) in [("ipmi", "i"), ("nobody", "x"), ("later", "a")] {
        create(&site, "noevents", SUBSCRIPTION, name, json!({"hostName": host, "destination": "http://x/"})).await;
    }
    let path = |name: &str| format!("{GROUP}/noevents/bmceventsubscriptions/{name}");
    let says = |text: &'static str| {
        move |object: &Value| object["status"]["error"].as_str().is_some_and(|error| error.contains(text))
    };
    until(&site, &path("ipmi"), "refused", says("they need Redfish")).await;
    until(&site, &path("nobody"), "refused", says("`x` does not exist")).await;
    until(&site, &path("later"), "refused", says("`a` does not exist")).await;
    site.host("a", json!({})).await;
    until(&site, &path("later"), "made", |object| object["status"]["subscriptionID"].is_string()).await;
    site.delete("a").await;
    site.gone("a").await;
    for name in ["later", "ipmi", "nobody"] {
        site.api.delete(&path(name)).await.expect("deleted");
        gone(&site, &path(name)).await;
    }
}

const IMAGE: (&str, &str) = ("dataimages", "DataImage");

#[tokio::test]
async fn an_image_is_in_the_drive_after_the_next_power_cycle() {
    let site = Site::start("drive").await;
    site.host("a", json!({"image": image()})).await;
    site.state("a", "provisioned").await;
    site.until("a", "ready", |host| condition(host, "Ready").0 == "True").await;
    create(&site, "drive", IMAGE, "a", json!({"url": "http://box/one.iso"})).await;
    let path = format!("{GROUP}/drive/dataimages/a");
    let held = until(&site, &path, "held", |object| object["metadata"]["finalizers"][0] == "dataimage.metal3.io").await;
    assert_eq!(held["metadata"]["ownerReferences"][0]["name"], "a");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(site.ironic.world().bmcs.moved.is_empty(), "nothing is put into the drive of a host that runs");

    site.ironic.world().bmcs.failures = 1;
    site.change("a", json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
    let failed = |object: &Value| object["status"]["error"]["count"] == 1;
    let failed = until(&site, &path, "refused once", failed).await;
    assert_eq!(failed["status"]["error"]["message"], "the BMC says no");
    let there = |url: &'static str| move |object: &Value| object["status"]["attachedImage"]["url"] == url;
    let attached = until(&site, &path, "attached", there("http://box/one.iso")).await;
    assert!(attached["status"]["error"].is_null(), "{attached}");
    site.until("a", "on", |host| host["status"]["poweredOn"] == true).await;
    {
        let world = site.ironic.world();
        let node = site.node("a");
        let last: Vec<&str> =
            world.power.iter().filter(|(name, _)| *name == node).map(|(_, power)| power.as_str()).collect();
        assert!(last.ends_with(&["power off", "power on"]), "{last:?}");
        assert_eq!(world.bmcs.moved, ["http://box/one.iso"]);
    }
    site.told("WaitingForDataImage").await;

    // Another image while the host is off: the old one goes out first. A host that is off is told at once.
    site.change("a", json!({"spec": {"online": false}})).await;
    site.until("a", "off", |host| host["status"]["poweredOn"] == false).await;
    site.api.merge(&path, &json!({"spec": {"url": "http://box/two.iso"}})).await.expect("changed");
    until(&site, &path, "exchanged", there("http://box/two.iso")).await;
    assert_eq!(site.ironic.world().bmcs.moved, ["http://box/one.iso", "", "http://box/two.iso"]);
    site.api.delete(&path).await.expect("deleted");
    gone(&site, &path).await;
    assert!(site.ironic.world().bmcs.drives.is_empty());
}

const CLAIM: (&str, &str) = ("hostclaims", "HostClaim");

fn claim_path(namespace: &str, name: &str) -> String {
    format!("{GROUP}/{namespace}/hostclaims/{name}")
}

#[tokio::test]
async fn claims_get_a_host_each_and_give_it_back_clean() {
    let site = Site::start("claims").await;
    for (name, mac) in [("a", "52:54:00:AB:01:01"), ("b", "52:54:00:AB:01:02")] {
        site.host(name, json!({"bootMACAddress": mac})).await;
        site.state(name, "available").await;
        site.change(name, json!({"metadata": {"labels": {"size": "big"}}})).await;
    }
    site.secret("user", &json!({"userData": "#cloud-config\n"})).await;
    let spec = json!({"poweredOn": true, "image": image(), "userData": {"name": "user"},
        "hostSelector": {"matchLabels": {"size": "big"}}});
    for name in ["one", "two", "three"] {
        create(&site, "claims", CLAIM, name, spec.clone()).await;
    }
    let has =
        |object: &Value| condition(object, "Associated").0 == "True" && condition(object, "Synchronized").0 == "True";
    let begun = Instant::now();
    let lucky = loop {
        let mut lucky = Vec::new();
        for name in ["one", "two", "three"] {
            let claim = site.api.get(&claim_path("claims", name)).await.expect("asked").expect("there");
            if has(&claim) {
                lucky.push((name, claim["status"]["bareMetalHost"]["name"].as_str().expect("a host").to_owned()));
            }
        }
        if lucky.len() == 2 {
            break lucky;
        }
        assert!(begun.elapsed() < PATIENCE, "{lucky:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let mut hosts: Vec<&str> = lucky.iter().map(|(_, host)| host.as_str()).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["a", "b"]);
    let unlucky = ["one", "two", "three"].into_iter().find(|name| lucky.iter().all(|(other, _)| other != name));
    let unlucky = claim_path("claims", unlucky.expect("the third"));
    let refused = until(&site, &unlucky, "refused", |object| condition(object, "Associated").0 == "False").await;
    assert_eq!(condition(&refused, "Associated").1, "NoBareMetalHost");

    let (claim, host) = &lucky[0];
    let provisioned = site.state(host, "provisioned").await;
    assert_eq!(provisioned["spec"]["consumerRef"]["name"], *claim);
    assert_eq!(provisioned["spec"]["userData"], json!({"name": "user", "namespace": "claims"}));
    let path = claim_path("claims", claim);
    let told = |object: &Value| object["status"]["poweredOn"] == true && !object["status"]["hardwareData"].is_null();
    until(&site, &path, "told of its host", told).await;
    site.api.delete(&path).await.expect("deleted");
    gone(&site, &path).await;
    // Who had to wait gets it at once, and clean.
    until(&site, &unlucky, "associated", has).await;
    let node = site.node(host);
    let again = site.state(host, "provisioned").await;
    assert_ne!(again["spec"]["consumerRef"]["name"], *claim);
    let world = site.ironic.world();
    assert_eq!(world.deployed.iter().filter(|deployed| deployed["name"] == node.as_str()).count(), 2);
}

/// Namespaces of tenants and of hosts: a control plane of its own, since the controller looks at all namespaces.
#[tokio::test]
async fn a_host_of_another_namespace_is_had_where_a_policy_admits_it() {
    let mut site = Site::alone("infra", Duration::from_millis(150)).await;
    site.settings.namespace = None;
    site.run();
    let tenant = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "tenant", "labels": {"tier": "gold"}}});
    site.api.create("/api/v1/namespaces", &tenant).await.expect("a namespace");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"},
        "stringData": {"userData": "#cloud-config\n"}});
    site.api.create("/api/v1/namespaces/tenant/secrets", &secret).await.expect("a Secret");
    site.host("a", json!({})).await;
    site.state("a", "available").await;
    let spec = json!({"poweredOn": true, "image": image(), "userData": {"name": "mine"}});
    create(&site, "tenant", CLAIM, "c", spec).await;
    let path = claim_path("tenant", "c");
    let refused = |object: &Value| condition(object, "Associated").1 == "NoBareMetalHost";
    until(&site, &path, "refused without a policy", refused).await;
    let bad = json!({"hostClaimNamespaces": {"nameMatches": "^ten("}});
    create(&site, "infra", ("hostdeploypolicies", "HostDeployPolicy"), "bad", bad).await;

    let policy =
        json!({"hostClaimNamespaces": {"nameMatches": "^ten", "hasLabels": [{"name": "tier", "value": "gold"}]}});
    create(&site, "infra", ("hostdeploypolicies", "HostDeployPolicy"), "p", policy).await;
    until(&site, &path, "synchronized", |object| condition(object, "Synchronized").0 == "True").await;
    site.told("InvalidPolicy").await;
    let host = site.state("a", "provisioned").await;
    assert_eq!(host["spec"]["userData"], json!({"name": "a-userdata", "namespace": "infra"}));
    assert_eq!(host["spec"]["consumerRef"]["namespace"], "tenant");
    assert_eq!(site.ironic.world().deployed[0]["configdrive"]["user_data"], "#cloud-config\n");
    let copy = "/api/v1/namespaces/infra/secrets/a-userdata";
    let there = site.api.get(copy).await.expect("asked").expect("copied");
    assert_eq!(there["metadata"]["ownerReferences"][0]["name"], "a");

    site.api.delete(&path).await.expect("deleted");
    gone(&site, &path).await;
    let free = site.state("a", "available").await;
    assert!(free["spec"]["consumerRef"].is_null() && free["spec"]["userData"].is_null(), "{}", free["spec"]);
    assert_eq!(free["spec"]["online"], false);
    gone(&site, copy).await;
}

#[tokio::test]
async fn a_host_gets_the_ramdisk_that_was_made_for_it() {
    let mut site = Site::prepare("ramdisk", Duration::from_millis(150)).await;
    site.settings.preprovisioning_images = true;
    site.settings.ramdisk.iso = Some("http://box/ipa.iso".to_owned());
    site.run();
    site.secret("net", &json!({"networkData": "links: []\n"})).await;
    let bmc = json!({"address": "redfish-virtualmedia://10.0.0.1/redfish/v1/Systems/1", "credentialsName": "a-bmc"});
    site.host("a", json!({"bmc": bmc, "preprovisioningNetworkDataName": "net"})).await;
    site.state("a", "available").await;
    let made = site.api.get(&format!("{GROUP}/ramdisk/preprovisioningimages/a")).await.expect("asked").expect("made");
    assert_eq!(made["spec"]["acceptFormats"], json!(["iso", "initrd"]));
    assert_eq!((&made["status"]["imageUrl"], &made["status"]["format"]), (&json!("http://box/ipa.iso"), &json!("iso")));
    assert_eq!(made["status"]["networkData"]["name"], "net");
    assert_eq!((condition(&made, "Ready").0, condition(&made, "Error").0), ("True".to_owned(), "False".to_owned()));
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "BareMetalHost");
    {
        let world = site.ironic.world();
        let node = world.named(&site.node("a")).expect("a node");
        assert_eq!(node["driver_info"]["deploy_iso"], "http://box/ipa.iso");
    }

    // This one boots no ISO, and there is nothing else.
    site.host("b", json!({"bootMACAddress": "52:54:00:AB:00:09"})).await;
    let host = site.until("b", "refused", |host| host["status"]["errorType"] == "registration error").await;
    let message = host["status"]["errorMessage"].as_str().unwrap_or_default();
    assert!(message.contains("No acceptable image format"), "{message}");
}

#[tokio::test]
async fn switches_are_refused_with_a_reason() {
    let site = Site::start("ports").await;
    let switch = json!({"address": "10.0.0.9", "macAddress": "00:1b:54:aa:00:01", "deviceType": "netmiko_arista_eos",
        "credentials": {"secretName": "s"}});
    create(&site, "ports", ("baremetalswitches", "BareMetalSwitch"), "s", switch).await;
    let attachment = json!({"mode": "access", "nativeVLAN": 10});
    create(&site, "ports", ("hostnetworkattachments", "HostNetworkAttachment"), "n", attachment).await;
    for path in ["baremetalswitches/s", "hostnetworkattachments/n"] {
        let path = format!("{GROUP}/ports/{path}");
        let told = until(&site, &path, "refused", |object| condition(object, "Valid").0 == "False").await;
        let (_, reason, message) = condition(&told, "Valid");
        assert!(reason == "NotSupported" && message.contains("not supported"), "{reason}: {message}");
    }
}
