//! RAID volumes and network interfaces of hosts.

use serde_json::{Value, json};

use super::{MAC, host, host_create, verdict};

#[test]
fn volumes_are_accepted_or_refused() {
    let hardware = |volume: Value| json!({"hardwareRAIDVolumes": [volume]});
    let software = |levels: [&str; 2], roots: [bool; 2]| json!({"softwareRAIDVolumes": [{"level": levels[0], "rootVolume": roots[0]}, {"level": levels[1], "rootVolume": roots[1]}]});
    let table = [
        (json!({"hardwareRAIDVolumes": [{"level": "1"}], "softwareRAIDVolumes": []}), None),
        (
            json!({"hardwareRAIDVolumes": [{"level": "1"}], "softwareRAIDVolumes": [{"level": "1"}]}),
            Some("hardwareRAIDVolumes and softwareRAIDVolumes can not be set at the same time"),
        ),
        (hardware(json!({"level": "1", "controller": "c", "physicalDisks": ["a", "b"]})), None),
        (
            hardware(json!({"level": "1", "physicalDisks": ["a", "b"]})),
            Some("'physicalDisks' specified without 'controller' in hardware RAID volume 0"),
        ),
        (
            hardware(json!({"level": "1", "controller": "c", "physicalDisks": ["a", "b"], "numberOfPhysicalDisks": 2})),
            None,
        ),
        (
            hardware(json!({"level": "1", "controller": "c", "physicalDisks": ["a", "b"], "numberOfPhysicalDisks": 3})),
            Some("the 'numberOfPhysicalDisks'[3] and number of 'physicalDisks'[2] is not same for volume 0"),
        ),
        (
            json!({"hardwareRAIDVolumes": [{"level": "1", "name": "os"}, {"level": "5"}, {"level": "5", "name": "os"}]}),
            Some("the names(os) of volume[2] and volume[0] are repeated"),
        ),
        (
            json!({"hardwareRAIDVolumes": [{"level": "1", "name": ""}, {"level": "5", "name": ""}, {"level": "5"}]}),
            None,
        ),
        (json!({"hardwareRAIDVolumes": [], "softwareRAIDVolumes": []}), None),
        (json!({"hardwareRAIDVolumes": null, "softwareRAIDVolumes": null}), None),
        (json!({"hardwareRAIDVolumes": [{"level": "0"}]}), None),
        (software(["1", "0"], [true, false]), None),
        (software(["1", "1"], [false, true]), None),
        (software(["1", "1"], [true, true]), Some("softwareRAIDVolumes[*].rootVolume can only be set once")),
        (
            software(["1", "1+0"], [false, true]),
            Some("softwareRAIDVolumes[1] with rootVolume set must use RAID level 1"),
        ),
        (software(["0", "1"], [false, true]), Some("the level in first volume of software raid must be RAID1")),
        (
            json!({"softwareRAIDVolumes": [{"level": "1+0"}]}),
            Some("the level in first volume of software raid must be RAID1"),
        ),
    ];
    for (raid, wanted) in table {
        verdict(&host_create(&host(&json!({"raid": raid}))), wanted, &raid.to_string());
    }
}

#[test]
fn the_root_volume_or_hints_say_where_the_image_goes() {
    let both = Some("softwareRAIDVolumes[*].rootVolume and rootDeviceHints can not be set at the same time");
    let table = [
        (true, Some(json!({"deviceName": "/dev/sda"})), both),
        (true, Some(json!({})), both),
        (true, None, None),
        (false, Some(json!({"deviceName": "/dev/sda"})), None),
        (false, None, None),
    ];
    for (root, hints, wanted) in table {
        let mut spec = json!({"raid": {"softwareRAIDVolumes": [{"level": "1", "rootVolume": root}]}});
        if let Some(hints) = hints {
            spec["rootDeviceHints"] = hints;
        }
        verdict(&host_create(&host(&spec)), wanted, &spec.to_string());
    }
}

#[test]
fn network_interfaces_are_accepted_or_refused() {
    let interface = |mut selector: Value| {
        selector["hostNetworkAttachment"] = json!({"name": "storage"});
        selector
    };
    let (name, mac) = (json!({"name": "eno1"}), json!({"macAddress": MAC}));
    let table = [
        (vec![], None),
        (vec![name.clone(), json!({"name": "eno2"}), mac.clone()], None),
        (vec![json!({})], Some("networkInterfaces[0]: must specify either name or macAddress")),
        (
            vec![json!({"name": "", "macAddress": ""})],
            Some("networkInterfaces[0]: must specify either name or macAddress"),
        ),
        (
            vec![mac.clone(), json!({"name": "eno1", "macAddress": MAC})],
            Some("networkInterfaces[1]: name and macAddress are mutually exclusive"),
        ),
        (
            vec![name.clone(), mac.clone(), name.clone()],
            Some("networkInterfaces[2]: duplicate interface selector for \"eno1\""),
        ),
        (
            vec![mac, json!({"macAddress": MAC.to_uppercase()})],
            Some("networkInterfaces[1]: duplicate interface selector for \"3C:EC:EF:4A:10:70\""),
        ),
        (vec![name, json!({"name": "ENO1"})], Some("networkInterfaces[1]: duplicate interface selector for \"ENO1\"")),
    ];
    for (selectors, wanted) in table {
        let interfaces: Vec<Value> = selectors.into_iter().map(interface).collect();
        let spec = json!({"networkInterfaces": interfaces});
        verdict(&host_create(&host(&spec)), wanted, &spec.to_string());
    }
}
