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
mod booted;
#[path = "../cluster/mod.rs"]
mod cluster;
mod clusters;
mod conforms;
mod cuts;
mod day_one;
mod disks;
mod exported;
mod faults;
mod foreign;
mod formed;
mod lives;
#[path = "../provisioning/mod.rs"]
mod provisioning;
mod ramdisk;
mod server;
mod several;
mod software;
mod upgraded;
#[path = "../vino/node.rs"]
mod vino_node;
mod virtual_machines;
#[path = "../../../agent/tests/segment/wire.rs"]
mod wire;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use bench::{Dhcp, NODE, Parts, RESCUE, Site, has_image, in_namespace};
use booted::with_booted_box;
use foothold_agent::ironic::ProvisionState;
use foothold_qemu::bmc::Mode;
use foothold_qemu::site::Controller;
use server::Server;

/// What a machine does under emulation, beside others.
const BOOT: Duration = Duration::from_secs(900);

/// `network_data.json` of `OpenStack`: an address of its own for the server's only card.
fn network_data(server: &Server, address: &str) -> String {
    let network = json!({
        "links": [{"id": "nic0", "type": "phy", "ethernet_mac_address": server.mac()}],
        "networks": [{"id": "site", "network_id": "site", "link": "nic0", "type": "ipv4", "ip_address": address,
                      "netmask": "255.255.255.0", "routes": []}],
        "services": [],
    });
    network.to_string()
}

/// Inspected, installed with user data, cleaned, and let go.
async fn lives(site: &mut Site, server: &Server, name: &str, spec: Value) {
    site.host(name, server, spec).await;
    // Its clock had lost its time.
    server.says(" s behind: it is that of the box now", BOOT).await;
    let host = site.state(name, "available", BOOT).await;
    server.keep_words("ramdisk");
    let hardware = &host["status"]["hardware"];
    assert_eq!(hardware["nics"][0]["mac"], server.mac(), "{hardware}");
    assert!(hardware["ramMebibytes"].as_u64() > Some(1500), "{hardware}");
    assert!(hardware["storage"][0]["sizeBytes"].as_u64() == Some(bench::DISK), "{hardware}");

    let user_data = "#cloud-config\nruncmd: [ [ sh, -c, 'echo user-data was here > /dev/kmsg' ] ]\n";
    site.secret("user-data", json!({"userData": user_data})).await;
    let spec = json!({"image": site.image(RESCUE), "userData": {"name": "user-data"}});
    site.change(name, json!({"spec": spec})).await;
    site.state(name, "provisioned", BOOT).await;
    server.says("user-data was here", BOOT).await;
    server.says(&format!("{name} login:"), BOOT).await;
}

/// What the box knows of a server that it booted over its network, and installed.
fn tells_its_story(site: &Site, server: &Server, name: &str) {
    let story = site.rest(&format!("/api/v1/hosts/metal3/{name}"));
    assert_eq!(story["state"], "provisioned", "{story:#}");
    let signs = &story["signs"];
    assert_eq!((&signs["dhcp"]["mac"], &signs["bmc"]["answers"]), (&json!(server.mac()), &json!(true)), "{story:#}");
    assert!(signs["http"]["path"].is_string() && signs["ramdisk"]["heartbeat"].is_string(), "{story:#}");
    let timeline = story["timeline"].as_array().expect("what happened");
    let began = |state: &str| timeline.iter().any(|it| it["kind"] == "state" && it["word"] == state);
    assert!(began("inspecting") && began("provisioning"), "{story:#}");
    let all = site.rest("/api/v1/hosts");
    assert_eq!((&all["hosts"][0]["name"], &all["hosts"][0]["error"]), (&json!(name), &Value::Null), "{all:#}");
}

/// Ironic's database is lost: the server is known anew as what it is, and does not notice.
async fn is_adopted(site: &mut Site, server: &Server, name: &str) {
    let [before, ..] = &site.nodes().await[..] else { panic!("Ironic does not know the server") };
    let (before, said) = (before.0.uuid.clone(), server.serial());
    site.lose_database().await;
    let anew = |host: &Value| {
        let status = &host["status"];
        let id = status["provisioning"]["ID"].as_str().unwrap_or_default();
        !id.is_empty() && id != before && status["operationalStatus"] == "OK"
    };
    let host = site.until(name, "adopted", BOOT, anew).await;
    assert_eq!(host["status"]["provisioning"]["state"], "provisioned", "{host:#}");
    let begun = Instant::now();
    let (node, ports) = loop {
        let nodes = site.nodes().await;
        let [(node, ports)] = &nodes[..] else { panic!("one server is {nodes:?}") };
        if node.provision_state == ProvisionState::Active {
            break (node.clone(), ports.clone());
        }
        assert!(begun.elapsed() < BOOT, "not adopted: {node:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    assert_eq!(ports.iter().map(|port| &*port.address).collect::<Vec<_>>(), [server.mac()], "{ports:?}");
    assert_eq!(host["status"]["provisioning"]["ID"], node.uuid, "{host:#}");
    was_left_alone(server, &said);
}

/// It was neither switched off nor started anew since it had said this.
fn was_left_alone(server: &Server, said: &str) {
    let now = server.serial();
    let since = now.strip_prefix(said).unwrap_or_else(|| panic!("it was switched off:\n{now}"));
    assert!(!since.contains("Linux version"), "it was started anew:\n{since}");
}

/// Another image, with other user data and an address of its own, takes the place of the first one.
async fn is_imaged_again(site: &mut Site, server: &Server, name: &str) {
    site.secret("second-network", json!({"networkData": network_data(server, "172.22.0.21")})).await;
    let user_data = "#cloud-config\nruncmd: [ [ sh, -c, 'kubeadm version -o short > /dev/kmsg' ] ]\n";
    site.secret("second", json!({"userData": user_data})).await;
    let image = site.image(NODE);
    let spec = json!({"image": image, "userData": {"name": "second"}, "networkData": {"name": "second-network"}});
    site.change(name, json!({"spec": spec})).await;
    site.until(name, "imaged again", 2 * BOOT, has_image(&image)).await;
    server.says("v1.36.4", BOOT).await;
    server.answers_ssh([172, 22, 0, 21].into(), BOOT).await;
    server.keep_words("node");
}

/// It goes on as it is, and nobody here knows of it any more.
async fn is_let_go(site: &mut Site, server: &Server, name: &str) {
    let said = server.serial();
    site.change(name, json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": ""}}})).await;
    let detached = |host: &Value| host["status"]["operationalStatus"] == "detached";
    site.until(name, "detached", BOOT, detached).await;
    assert!(site.nodes().await.is_empty(), "Ironic still knows it");
    site.delete(name).await;
    site.gone(name, BOOT).await;
    was_left_alone(server, &said);
    server.answers_ssh([172, 22, 0, 21].into(), BOOT).await;
}

async fn leaves(mut site: Site, name: &str) {
    site.change(name, json!({"spec": {"image": null, "userData": null}})).await;
    site.state(name, "available", BOOT).await;
    site.delete(name).await;
    site.gone(name, BOOT).await;
    site.stop().await;
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn a_server_is_inspected_installed_and_cleaned_by_virtual_media_without_dhcp() {
    in_namespace(Parts::make, |parts| async {
        let mut site = Site::start(parts, Dhcp::Off).await;
        let server = site.server("server-1", "52:54:00:22:00:01");
        site.secret("network", json!({"networkData": network_data(&server, "172.22.0.20")})).await;
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
        let server = site.server_with("server-4", "52:54:00:22:00:04", Mode::Legacy, Controller::Ipmi, &[bench::DISK]);
        let spec = json!({"bmc": {"address": server.address("ipmi")}, "bootMode": "legacy"});
        lives(&mut site, &server, "server-4", spec).await;
        leaves(site, "server-4").await;
    });
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn a_server_outlives_ironics_database_gets_another_image_and_is_let_go() {
    in_namespace(
        || Parts::with(&[RESCUE, NODE]),
        |parts| async {
            let mut site = Site::start(parts, Dhcp::Guarded).await;
            let (name, mac) = ("server-5", "52:54:00:22:00:05");
            let server = site.server_with(name, mac, Mode::Legacy, Controller::Ipmi, &[bench::DISK]);
            let spec = json!({"bmc": {"address": server.address("ipmi")}, "bootMode": "legacy"});
            lives(&mut site, &server, name, spec).await;
            is_adopted(&mut site, &server, name).await;
            is_imaged_again(&mut site, &server, name).await;
            is_let_go(&mut site, &server, name).await;
            site.stop().await;
        },
    );
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn a_server_is_inspected_installed_and_cleaned_by_a_box_that_was_just_switched_on() {
    with_booted_box(&[RESCUE], |mut site| async move {
        let unknown = json!({"online": true, "bmc": {"address": "foo://10.0.0.1", "credentialsName": "none"}});
        let refused = site.refusal("nobody", unknown).await;
        assert!(refused.contains("denied the request: Unknown BMC type 'foo'"), "{refused}");
        let server = site.server("server-3", "52:54:00:22:00:03");
        let address = server.address("redfish+https");
        lives(&mut site, &server, "server-3", json!({"bmc": {"address": address}})).await;
        let screen = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("site-box.png");
        site.booted_box().machine().session.vm.screenshot(&screen).expect("a picture");
        tells_its_story(&site, &server, "server-3");
        let dhcp = site.at("/api/v1/namespaces/kube-system/pods?labelSelector=component%3Ddhcp").await;
        assert_eq!(dhcp["items"][0]["status"]["containerStatuses"][0]["restartCount"], 0, "{dhcp:#}");
        leaves(site, "server-3").await;
    });
}
