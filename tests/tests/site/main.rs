//! Servers of a site, installed from nothing: the controller, a real API server, real Ironic, the deploy ramdisk, DHCP
//! behind its guard, and emulated servers behind emulated BMCs, all in a network namespace of the test's own. The box is
//! its parts on this machine, or a machine that boots an image.
//!
//! ```text
//! BareMetalHost ─► API server ─► controller ─► Ironic ─► Redfish or IPMI ─► BMC ─► machine (QEMU)
//!                                                 ▲                          │ br0, 172.22.0.0/24
//!                                                 └── ironic-python-agent ◄──┤
//!                        content, boot scripts, media ◄── HTTP, DHCP, TFTP ◄─┘
//! ```
//! `cargo test -p foothold-tests --test site -- --ignored --nocapture` prints what happened when.

#![allow(clippy::needless_pass_by_value, reason = "`json!` where it is needed reads best")]

mod bench;
#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../provisioning/mod.rs"]
mod provisioning;

use std::time::Duration;

use serde_json::{Value, json};

use bench::{Dhcp, Parts, Server, Site, in_namespace};
use foothold_qemu::bmc::Mode;
use foothold_qemu::site::Controller;
use foothold_tests::Appliance;

/// What a machine does under emulation, beside others.
const BOOT: Duration = Duration::from_secs(900);

/// Inspected, installed with user data, cleaned, and let go.
async fn lives(site: &mut Site, server: &Server, name: &str, spec: Value) {
    site.host(name, server, spec).await;
    let host = site.state(name, "available", BOOT).await;
    server.keep_words("ramdisk");
    let hardware = &host["status"]["hardware"];
    assert_eq!(hardware["nics"][0]["mac"], server.mac(), "{hardware}");
    assert!(hardware["ramMebibytes"].as_u64() > Some(1500), "{hardware}");
    assert!(hardware["storage"][0]["sizeBytes"].as_u64() == Some(bench::DISK), "{hardware}");

    let user_data = "#cloud-config\nruncmd: [ [ sh, -c, 'echo user-data was here > /dev/ttyS0' ] ]\n";
    site.secret("user-data", json!({"userData": user_data})).await;
    let spec = json!({"image": site.image(), "userData": {"name": "user-data"}});
    site.change(name, json!({"spec": spec})).await;
    site.state(name, "provisioned", BOOT).await;
    server.says("user-data was here", BOOT).await;
    server.says(&format!("{name} login:"), BOOT).await;
}

/// What the box knows of a server that it booted over its network, and installed.
async fn tells_its_story(site: &Site, server: &Server, name: &str) {
    let story = site.rest(&format!("/api/v1/hosts/metal3/{name}")).await;
    assert_eq!(story["state"], "provisioned", "{story:#}");
    let signs = &story["signs"];
    assert_eq!((&signs["dhcp"]["mac"], &signs["bmc"]["answers"]), (&json!(server.mac()), &json!(true)), "{story:#}");
    assert!(signs["http"]["path"].is_string() && signs["ramdisk"]["heartbeat"].is_string(), "{story:#}");
    let timeline = story["timeline"].as_array().expect("what happened");
    let began = |state: &str| timeline.iter().any(|it| it["kind"] == "state" && it["word"] == state);
    assert!(began("inspecting") && began("provisioning"), "{story:#}");
    let all = site.rest("/api/v1/hosts").await;
    assert_eq!((&all["hosts"][0]["name"], &all["hosts"][0]["error"]), (&json!(name), &Value::Null), "{all:#}");
}

async fn leaves(mut site: Site, name: &str) {
    site.change(name, json!({"spec": {"image": null, "userData": null}})).await;
    site.state(name, "available", BOOT).await;
    site.delete(name).await;
    site.gone(name, BOOT).await;
    site.tell_times();
    site.stop().await;
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn a_server_is_inspected_installed_and_cleaned_by_virtual_media_without_dhcp() {
    in_namespace(Parts::make, |parts| async {
        let mut site = Site::start(parts, Dhcp::Off).await;
        let server = site.server("server-1", "52:54:00:22:00:01");
        let network = json!({
            "links": [{"id": "nic0", "type": "phy", "ethernet_mac_address": server.mac()}],
            "networks": [{"id": "site", "network_id": "site", "link": "nic0", "type": "ipv4", "ip_address": "172.22.0.20",
                          "netmask": "255.255.255.0", "routes": []}],
            "services": [],
        });
        site.secret("network", json!({"networkData": network.to_string()})).await;
        let address = server.address("redfish-virtualmedia+https");
        // Ironic's ramdisk and the system have the same address, one after the other.
        let spec = json!({"bmc": {"address": address}, "preprovisioningNetworkDataName": "network"});
        lives(&mut site, &server, "server-1", spec).await;
        server.answers_ssh([172, 22, 0, 20].into(), BOOT).await;
        leaves(site, "server-1").await;
    });
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn a_server_is_inspected_installed_and_cleaned_over_the_network() {
    in_namespace(Parts::make, |parts| async {
        let mut site = Site::start(parts, Dhcp::Guarded).await;
        let server = site.server("server-2", "52:54:00:22:00:02");
        let address = server.address("redfish+https");
        lives(&mut site, &server, "server-2", json!({"bmc": {"address": address}})).await;
        leaves(site, "server-2").await;
    });
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn a_server_with_bios_and_ipmi_is_inspected_installed_and_cleaned_over_the_network() {
    in_namespace(Parts::make, |parts| async {
        let mut site = Site::start(parts, Dhcp::Guarded).await;
        let server = site.server_with("server-4", "52:54:00:22:00:04", Mode::Legacy, Controller::Ipmi);
        let spec = json!({"bmc": {"address": server.address("ipmi")}, "bootMode": "legacy"});
        lives(&mut site, &server, "server-4", spec).await;
        leaves(site, "server-4").await;
    });
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn a_server_is_inspected_installed_and_cleaned_by_a_box_that_was_just_switched_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let definition = bench::definition(dir.path());
    let make = move || Appliance::of(&definition);
    in_namespace(make, |appliance| {
        let (machine, kubeconfig) = bench::boot(&appliance);
        async move {
            let mut site = Site::booted(machine, &kubeconfig).await;
            let unknown = json!({"online": true, "bmc": {"address": "foo://10.0.0.1", "credentialsName": "none"}});
            let refused = site.refusal("nobody", unknown).await;
            assert!(refused.contains("denied the request: Unknown BMC type 'foo'"), "{refused}");
            let server = site.server("server-3", "52:54:00:22:00:03");
            let address = server.address("redfish+https");
            lives(&mut site, &server, "server-3", json!({"bmc": {"address": address}})).await;
            let screen = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("site-box.png");
            site.machine().expect("it was booted").session.vm.screenshot(&screen).expect("a picture");
            tells_its_story(&site, &server, "server-3").await;
            let dhcp = site.at("/api/v1/namespaces/kube-system/pods?labelSelector=component%3Ddhcp").await;
            assert_eq!(dhcp["items"][0]["status"]["containerStatuses"][0]["restartCount"], 0, "{dhcp:#}");
            leaves(site, "server-3").await;
        }
    });
}
