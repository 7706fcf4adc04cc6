//! A box that loses its power at every stage of a server's way: it goes on where it was, and the server comes to be as wanted.

use std::time::Duration;

use foothold_qemu::bmc::Power as _;
use serde_json::{Value, json};

use crate::BOOT;
use crate::bench::{RESCUE, Site, in_state};
use crate::booted::with_booted_box;
use crate::server::Server;
use crate::was_left_alone;

/// What Ironic waits for a ramdisk at most, and another boot of it.
const LONG: Duration = Duration::from_secs(3600);

/// A server and its host.
struct One {
    name: &'static str,
    server: Server,
}

/// What is being done with a host, in words.
fn progressing(host: &Value) -> &str {
    let mut conditions = host["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|it| it["type"] == "Progressing").and_then(|it| it["message"].as_str()).unwrap_or_default()
}

fn is_in(host: &Value, state: &str) -> bool {
    host["status"]["provisioning"]["state"] == state
}

/// What a host goes through until it is installed, and from then on.
const WAYS: [&[&str]; 2] = [
    &["registering", "inspecting", "preparing", "available", "provisioning", "provisioned"],
    &["deprovisioning", "available", "deleting"],
];

/// Whether a host has left a state behind.
fn is_past(host: &Value, state: &str) -> bool {
    let way = WAYS.into_iter().find(|way| way.contains(&state)).expect("a state of a way");
    way.iter().skip_while(|known| **known != state).skip(1).any(|later| is_in(host, later))
}

impl One {
    /// The ramdisk was started since the server was last switched on, rather than what is on its disk.
    fn has_ramdisk(&self) -> bool {
        let serial = self.server.serial();
        serial.contains("Linux version") && !serial.contains("login:")
    }

    /// The box has no power from the instant on at which the host is like this, or is past it because the box was long in
    /// coming up. When it is back, it has a word for what it does.
    async fn without_power_when(&self, site: &mut Site, state: &str, what: &str, is: impl Fn(&Value) -> bool) {
        let host = site.until(self.name, what, BOOT, |host| is(host) || is_past(host, state)).await;
        if !is(&host) {
            return site.tell(&format!("{} is past this: {what}", self.name));
        }
        site.tell(&format!("{} has no box when {what}: {}", self.name, progressing(&host)));
        site.lose_power().await;
        let host = site.get(self.name).await.expect("it is there");
        let (error, does) = (host["status"]["errorMessage"].as_str().unwrap_or_default(), progressing(&host));
        site.tell(&format!("{} has a box again: {does} {error}", self.name));
        let rests = in_state("available")(&host) || in_state("provisioned")(&host);
        assert!(rests || !does.is_empty() || !error.is_empty(), "nothing is said of {host:#}");
    }

    async fn made(&self, site: &Site) {
        let spec = json!({"bmc": {"address": self.server.address("redfish+https")}});
        site.host(self.name, &self.server, spec).await;
    }

    async fn registered(&self, site: &mut Site) {
        self.made(site).await;
        let registering = |host: &Value| !host["status"]["provisioning"]["state"].is_null();
        self.without_power_when(site, "registering", "registering", registering).await;
    }

    async fn inspected(&self, site: &mut Site) {
        let on = |host: &Value| is_in(host, "inspecting") && self.server.0.power().is_on();
        self.without_power_when(site, "inspecting", "it asks for DHCP to be inspected", on).await;
        let ramdisk = |host: &Value| is_in(host, "inspecting") && self.has_ramdisk();
        self.without_power_when(site, "inspecting", "its ramdisk starts to inspect it", ramdisk).await;
        site.state(self.name, "available", LONG).await;
    }

    async fn provisioned(&self, site: &mut Site) {
        let user_data = "#cloud-config\nruncmd: [ [ sh, -c, 'echo user-data was here > /dev/kmsg' ] ]\n";
        site.secret("user-data", json!({"userData": user_data})).await;
        let spec = json!({"image": site.image(RESCUE), "userData": {"name": "user-data"}});
        site.change(self.name, json!({"spec": spec})).await;
        self.without_power_when(site, "provisioning", "it begins to be provisioned", |host| {
            is_in(host, "provisioning")
        })
        .await;
        let written = |host: &Value| progressing(host).contains("image is being written");
        self.without_power_when(site, "provisioning", "its image is written", written).await;
        site.state(self.name, "provisioned", LONG).await;
        self.server.says("user-data was here", BOOT).await;
        self.server.says(&format!("{} login:", self.name), BOOT).await;
        let said = self.server.serial();
        self.without_power_when(site, "provisioned", "provisioned", in_state("provisioned")).await;
        site.state(self.name, "provisioned", BOOT).await;
        was_left_alone(&self.server, &said);
    }

    async fn gone(&self, site: &mut Site) {
        site.change(self.name, json!({"spec": {"image": null, "userData": null}})).await;
        self.without_power_when(site, "deprovisioning", "it begins to be deprovisioned", |host| {
            is_in(host, "deprovisioning")
        })
        .await;
        let ramdisk = |host: &Value| is_in(host, "deprovisioning") && self.has_ramdisk();
        self.without_power_when(site, "deprovisioning", "its ramdisk starts to clean it", ramdisk).await;
        site.state(self.name, "available", LONG).await;
        site.delete(self.name).await;
        site.tell(&format!("{} has no box when it is deleted", self.name));
        site.lose_power().await;
        site.gone(self.name, BOOT).await;
    }
}

/// A server that no host stands for yet.
fn one(site: &mut Site) -> One {
    One { name: "server-9", server: site.server("server-9", "52:54:00:22:00:09") }
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn a_server_is_inspected_though_the_box_loses_its_power_at_every_stage() {
    with_booted_box(&[RESCUE], |mut site| async move {
        let one = one(&mut site);
        one.registered(&mut site).await;
        one.inspected(&mut site).await;
        site.stop().await;
    });
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn a_server_is_installed_and_cleaned_though_the_box_loses_its_power_at_every_stage() {
    with_booted_box(&[RESCUE], |mut site| async move {
        let one = one(&mut site);
        one.made(&site).await;
        site.state(one.name, "available", LONG).await;
        one.provisioned(&mut site).await;
        one.gone(&mut site).await;
        site.stop().await;
    });
}
