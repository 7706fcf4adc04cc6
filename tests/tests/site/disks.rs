//! Which disks of a server are written: RAID volumes of the kernel, and hints by size.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Dhcp, Parts, RESCUE, Site, in_namespace};
use crate::server::Server;
use crate::{BOOT, leaves};

const GIB: u64 = 1 << 30;
const NAME: &str = "server-9";
/// Of one disk: the first volume's, and what must be left for the second.
const FIRST: u64 = 2;
/// A cleaning, beside an inspection or an installation.
const LONG: Duration = Duration::from_secs(1800);

/// What a system says of its disks as its kernel knows them: `NAME TYPE BYTES;` of each from its root filesystem down to
/// the disks, and how many RAID members there are.
const TELLS: &str = "#cloud-config\nruncmd:\n- [sh, -c, 'echo \"root: $(lsblk -bnrso NAME,TYPE,SIZE $(findmnt -no SOURCE /) | \
                     tr \"\\n\" \";\") members: $(lsblk -nro FSTYPE | grep -c linux_raid_member) told by NUMBER\" > /dev/kmsg']\n";

/// What [`TELLS`] says, installed as that number.
async fn tells_disks(server: &Server, number: u8) -> (String, u32) {
    let end = format!(" told by {number}");
    server.says(&end, BOOT).await;
    let said = server.serial();
    let line = said.lines().find(|line| line.contains("root: ") && line.contains(&end)).expect("one line");
    let (_, told) = line.split_once("root: ").expect("it begins so");
    let (root, members) = told.split_once(" members: ").expect("both");
    (root.to_owned(), members.split(' ').next().and_then(|it| it.parse().ok()).expect("a number"))
}

/// Available, with these RAID volumes.
async fn has_volumes(site: &mut Site, volumes: &Value) {
    let done = |host: &Value| {
        let now = &host["status"]["provisioning"];
        now["state"] == "available"
            && host["status"]["errorType"].is_null()
            && now["raid"]["softwareRAIDVolumes"] == *volumes
    };
    site.until(NAME, &format!("available with {volumes}"), LONG, done).await;
}

async fn install(site: &mut Site, number: u8, spec: Value) {
    let name = format!("disks-{number}");
    site.secret(&name, json!({"userData": TELLS.replace("NUMBER", &number.to_string())})).await;
    site.change(NAME, json!({"spec": {"image": site.image(RESCUE), "userData": {"name": name}}})).await;
    site.change(NAME, json!({"spec": spec})).await;
    site.state(NAME, "provisioned", LONG).await;
}

/// Empty lists of a server without a RAID controller ask for nothing. Its system is on the volume that is marked, also
/// when that is the second, and boots from it. Cleared, no member is left; then hints choose the disk, by its size alone.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site volumes_of_its_kernel -- --ignored --nocapture`"]
fn a_server_has_volumes_of_its_kernel_and_then_has_none_and_is_installed_on_the_disk_of_that_size() {
    in_namespace(Parts::make, |parts| async {
        let mut site = Site::start(parts, Dhcp::Guarded).await;
        let server = site.server_of(NAME, "52:54:00:22:00:09", &[8 * GIB, 8 * GIB, 12 * GIB]);
        let both = json!({"hardwareRAIDVolumes": [], "softwareRAIDVolumes": []});
        let bmc = json!({"address": server.address("redfish+https")});
        site.host(NAME, &server, json!({"bmc": bmc, "rootDeviceHints": null, "raid": both})).await;
        has_volumes(&mut site, &json!([])).await;
        server.keep_words("ramdisk");

        let disks = json!([{"deviceName": "/dev/vda"}, {"deviceName": "/dev/vdb"}]);
        let volumes = json!([
            {"level": "1", "sizeGibibytes": FIRST, "physicalDisks": disks},
            {"level": "1", "rootVolume": true, "physicalDisks": disks},
        ]);
        let raid = json!({"raid": {"softwareRAIDVolumes": volumes}});
        site.change(NAME, json!({"spec": raid})).await;
        let made = |host: &Value| {
            let now = &host["status"]["provisioning"];
            now["state"] == "available" && now["raid"]["softwareRAIDVolumes"][1]["rootVolume"] == true
        };
        let host = site.until(NAME, "available with volumes", LONG, made).await;
        site.tell(&host["status"]["provisioning"]["raid"].to_string());
        install(&mut site, 1, json!({})).await;
        let (root, members) = tells_disks(&server, 1).await;
        site.tell(&root);
        let volume = root.split(';').find_map(|it| it.split_once(" raid1 ")?.1.parse::<u64>().ok());
        assert!(volume.is_some_and(|bytes| bytes > FIRST * GIB * 2), "the second volume: {root}");
        assert!(root.contains("vda disk") && root.contains("vdb disk") && !root.contains("vdc"), "{root}");
        // Ironic's agent mirrors the EFI system partition in the same way.
        assert_eq!(members, 6, "two of each volume, two of the partition that it boots from");
        server.keep_words("volumes");

        let none = json!({"image": null, "userData": null, "raid": {"softwareRAIDVolumes": []}});
        site.change(NAME, json!({"spec": none})).await;
        has_volumes(&mut site, &json!([])).await;
        // The older form of the same, with a hint that says no name.
        install(&mut site, 2, json!({"raid": both, "rootDeviceHints": {"minSizeGigabytes": 10}})).await;
        let (root, members) = tells_disks(&server, 2).await;
        site.tell(&root);
        assert!(root.contains("vdc disk") && !root.contains("raid1"), "{root}");
        assert_eq!(members, 0, "none is left");

        let events = site.at("/api/v1/namespaces/metal3/events").await;
        let errors = events["items"].as_array().expect("items").iter();
        let errors: Vec<&Value> =
            errors.filter(|it| it["reason"].as_str().is_some_and(|reason| reason.ends_with("Error"))).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        leaves(site, NAME).await;
    });
}
