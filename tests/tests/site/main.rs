//! Servers of a site, installed from nothing: the controller, a real API server, real Ironic, the deploy ramdisk, DHCP
//! behind its guard, and emulated servers behind emulated BMCs, all in a network namespace of the test's own.
//!
//! ```text
//! BareMetalHost ─► API server ─► controller ─► Ironic ─► Redfish ─► BMC ─► machine (QEMU)
//!                                                 ▲                          │ br0, 172.22.0.0/24
//!                                                 └── ironic-python-agent ◄──┤
//!                        content, boot scripts, media ◄── HTTP, DHCP, TFTP ◄─┘
//! ```

#![allow(clippy::needless_pass_by_value, reason = "`json!` where it is needed reads best")]

mod bench;
#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../provisioning/mod.rs"]
mod provisioning;

use std::time::Duration;

use serde_json::json;

use bench::{Site, in_namespace};

/// What a machine does under emulation, beside others.
const BOOT: Duration = Duration::from_secs(900);

#[test]
fn a_server_without_network_boot_is_inspected_installed_and_cleaned_by_virtual_media() {
    in_namespace(|parts| async {
        let mut site = Site::start(parts).await;
        let server = site.server("server-1", "52:54:00:22:00:01");
        let address = server.address("redfish-virtualmedia+https");
        site.host("server-1", &server, json!({"bmc": {"address": address}})).await;
        let host = site.state("server-1", "available", BOOT).await;
        let hardware = &host["status"]["hardware"];
        assert_eq!(hardware["nics"][0]["mac"], "52:54:00:22:00:01", "{hardware}");
        assert!(hardware["ramMebibytes"].as_u64() > Some(1500), "{hardware}");
        assert!(hardware["storage"][0]["sizeBytes"].as_u64() == Some(bench::DISK), "{hardware}");

        let user_data = "#cloud-config\nruncmd: [ [ sh, -c, 'echo user-data was here > /dev/ttyS0' ] ]\n";
        site.secret("server-1-user-data", json!({"userData": user_data, "value": user_data})).await;
        let spec = json!({"image": site.image(), "userData": {"name": "server-1-user-data"}});
        site.change("server-1", json!({"spec": spec})).await;
        site.state("server-1", "provisioned", BOOT).await;
        server.says("user-data was here", BOOT).await;
        server.says("server-1 login:", BOOT).await;

        site.change("server-1", json!({"spec": {"image": null, "userData": null}})).await;
        site.state("server-1", "available", BOOT).await;
        site.delete("server-1").await;
        site.gone("server-1", BOOT).await;
        site.tell_times();
        site.stop().await;
    });
}
