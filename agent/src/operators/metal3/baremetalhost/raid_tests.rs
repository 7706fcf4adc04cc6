use agent_api::metal3::bmc_address::Driver;
use agent_api::metal3::{RaidConfig, RootDeviceHints};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Stage, is_due, is_making, next, wanted};

fn config(value: &Value) -> Option<RaidConfig> {
    serde_json::from_value(value.clone()).expect("volumes")
}

/// `hardware` and `software` as lists, `null`s or, for `-`, not at all.
fn lists(hardware: &Value, software: &Value) -> Value {
    let mut both = json!({});
    for (name, list) in [("hardwareRAIDVolumes", hardware), ("softwareRAIDVolumes", software)] {
        if *list != json!("-") {
            both[name] = list.clone();
        }
    }
    both
}

fn hardware(level: &str) -> Value {
    json!([{"level": level}])
}

fn software() -> Value {
    json!([{"level": "1", "rootVolume": false}])
}

/// Cleanings until nothing is to be done: who does each, and its steps but for the erasing of old members.
fn cleanings(spec: &Value, made: &Value, driver: Driver) -> (Vec<String>, Option<RaidConfig>) {
    let (spec, mut made) = (config(spec), config(made));
    let mut all = Vec::new();
    while let Some(Stage { interface, steps, reached, .. }) =
        next(spec.as_ref(), made.as_ref(), driver, None).expect("possible")
    {
        let names: Vec<&str> = steps.iter().filter_map(|step| step["step"].as_str()).collect();
        let (erased, rest): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| **name == "erase_devices_metadata");
        assert_eq!(
            erased.len(),
            usize::from(interface == "agent"),
            "old members are erased where the kernel finds them"
        );
        all.push(format!("{interface} {}", rest.join(" ")));
        assert!(is_due(spec.as_ref(), made.as_ref()), "a cleaning is begun from `available`");
        made = Some(reached);
        assert!(all.len() < 4, "{all:?}");
    }
    made = wanted(spec.as_ref(), made.as_ref());
    assert!(!is_due(spec.as_ref(), made.as_ref()), "it is over");
    (all, made)
}

const BY_RAMDISK: &str = "agent delete_configuration";
const MADE_BY_RAMDISK: &str = "agent delete_configuration create_configuration";
const BY_BMC: &str = "redfish delete_configuration";
const MADE_BY_BMC: &str = "redfish delete_configuration create_configuration";

/// metal3's meaning of each list, beside what was made before.
#[test]
fn a_list_that_is_empty_or_absent_clears_what_it_says_and_no_more() {
    let (none, null, empty) = (json!("-"), Value::Null, json!([]));
    let (hard, soft) = (hardware("1"), software());
    let nothing: &[&str] = &[];
    // Lists of the spec, lists that were made, cleanings.
    let table: &[([&Value; 2], [&Value; 2], &[&str])] = &[
        // A fresh host.
        ([&none, &none], [&none, &none], nothing),
        ([&null, &null], [&none, &none], nothing),
        ([&none, &empty], [&none, &none], nothing),
        ([&null, &empty], [&none, &none], nothing),
        ([&empty, &empty], [&none, &none], nothing),
        ([&empty, &none], [&none, &none], &[BY_BMC]),
        ([&empty, &null], [&none, &none], &[BY_BMC]),
        ([&hard, &none], [&none, &none], &[MADE_BY_BMC]),
        ([&hard, &empty], [&none, &none], &[MADE_BY_BMC]),
        ([&none, &soft], [&none, &none], &[MADE_BY_RAMDISK]),
        ([&empty, &soft], [&none, &none], &[MADE_BY_RAMDISK]),
        // After software RAID.
        ([&none, &soft], [&none, &soft], nothing),
        ([&empty, &soft], [&none, &soft], nothing),
        ([&none, &empty], [&none, &soft], &[BY_RAMDISK]),
        ([&null, &empty], [&null, &soft], &[BY_RAMDISK]),
        ([&empty, &empty], [&none, &soft], &[BY_RAMDISK]),
        ([&empty, &empty], [&empty, &soft], &[BY_RAMDISK]),
        ([&none, &none], [&none, &soft], &[BY_RAMDISK]),
        ([&null, &null], [&none, &soft], &[BY_RAMDISK]),
        ([&empty, &none], [&none, &soft], &[BY_RAMDISK]),
        ([&hard, &none], [&none, &soft], &[BY_RAMDISK, MADE_BY_BMC]),
        ([&hard, &empty], [&none, &soft], &[BY_RAMDISK, MADE_BY_BMC]),
        // After hardware RAID.
        ([&hard, &none], [&hard, &none], nothing),
        ([&hard, &empty], [&hard, &none], nothing),
        ([&hard, &null], [&hard, &empty], nothing),
        ([&none, &none], [&hard, &none], nothing),
        ([&null, &null], [&hard, &none], nothing),
        ([&none, &empty], [&hard, &none], nothing),
        ([&empty, &empty], [&hard, &none], nothing),
        ([&empty, &none], [&hard, &none], &[BY_BMC]),
        ([&none, &soft], [&hard, &none], &[MADE_BY_RAMDISK]),
        // After they were cleared.
        ([&empty, &none], [&empty, &none], nothing),
        ([&empty, &null], [&empty, &null], nothing),
        ([&none, &empty], [&none, &empty], nothing),
        ([&empty, &none], [&none, &empty], &[BY_BMC]),
    ];
    for ([hardware, software], [had, kernels], expected) in table {
        let (spec, made) = (lists(hardware, software), lists(had, kernels));
        let said = cleanings(&spec, &made, Driver::Redfish).0;
        assert_eq!(said, *expected, "{spec} beside {made}");
    }
}

/// An absent spec, and one that was never set.
#[test]
fn what_is_not_asked_for_any_more_is_cleared_where_the_kernel_had_it() {
    let made = lists(&json!("-"), &software());
    let (said, reached) = cleanings(&Value::Null, &made, Driver::Ipmi);
    assert_eq!(said, [BY_RAMDISK]);
    assert_eq!(reached, config(&lists(&json!("-"), &json!([]))));
    assert_eq!(cleanings(&Value::Null, &Value::Null, Driver::Ipmi), (Vec::new(), None));
    let kept = lists(&hardware("5"), &json!("-"));
    assert_eq!(cleanings(&Value::Null, &kept, Driver::Redfish), (Vec::new(), config(&kept)));
}

/// Nothing is asked of a controller that there is not; what the controller still has is not forgotten.
#[test]
fn a_host_without_a_raid_controller_has_nothing_to_clear() {
    let (none, empty) = (json!("-"), json!([]));
    let table = [(&none, &empty), (&empty, &none), (&empty, &empty), (&none, &none)];
    for driver in [Driver::Ipmi, Driver::Libvirt] {
        for (hardware, software) in table {
            let spec = lists(hardware, software);
            assert_eq!(cleanings(&spec, &Value::Null, driver).0, Vec::<String>::new(), "{spec}");
        }
        let wanted = config(&lists(&hardware("1"), &none));
        let said = next(wanted.as_ref(), None, driver, None).expect_err("no controller");
        assert_eq!(said, "RAID settings are defined, but the node's driver no-raid does not support RAID");
        assert_eq!(cleanings(&lists(&none, &software()), &Value::Null, driver).0, [MADE_BY_RAMDISK]);
    }
    let both = config(&lists(&hardware("1"), &software()));
    assert!(next(both.as_ref(), None, Driver::Redfish, None).is_err());
    // The volumes of the controller are found again when their turn comes.
    let (_, made) = cleanings(&lists(&empty, &empty), &lists(&hardware("1"), &none), Driver::Redfish);
    let made = serde_json::to_value(made).expect("JSON");
    assert_eq!(cleanings(&lists(&empty, &none), &made, Driver::Redfish).0, [BY_BMC]);
}

#[rstest]
#[case::first(json!([{"level": "1", "rootVolume": true}, {"level": "1"}]), None, [true, false])]
#[case::second(json!([{"level": "1"}, {"level": "1", "rootVolume": true}]), None, [false, true])]
#[case::nobody_says(json!([{"level": "1"}, {"level": "0", "rootVolume": false}]), None, [true, false])]
#[case::hints(json!([{"level": "1"}, {"level": "0"}]), Some(json!({"deviceName": "/dev/sda"})), [false, false])]
#[case::hints_that_say_nothing(json!([{"level": "1"}, {"level": "0"}]), Some(json!({})), [true, false])]
fn the_root_volume_is_the_one_that_says_so(
    #[case] volumes: Value,
    #[case] root: Option<Value>,
    #[case] expected: [bool; 2],
) {
    let root: Option<RootDeviceHints> = root.map(|root| serde_json::from_value(root).expect("hints"));
    let spec = config(&json!({"softwareRAIDVolumes": volumes}));
    let stage = next(spec.as_ref(), None, Driver::Redfish, root.as_ref()).expect("possible").expect("volumes to make");
    let marked: Vec<bool> = stage.volumes.iter().map(|volume| volume["is_root_volume"] == json!(true)).collect();
    assert_eq!(marked, expected);
}

#[test]
fn volumes_are_told_in_ironics_words() {
    let spec = config(&json!({"hardwareRAIDVolumes": [
        {"level": "1", "sizeGibibytes": 10, "rotational": true}, {"level": "5", "name": "data", "sizeGibibytes": 0}]}));
    let stage = next(spec.as_ref(), None, Driver::Redfish, None).expect("possible").expect("volumes to make");
    let first = json!({"size_gb": 10, "raid_level": "1", "is_root_volume": true, "disk_type": "hdd"});
    let second = json!({"size_gb": "MAX", "raid_level": "5", "volume_name": "data"});
    assert_eq!(stage.volumes, [first, second.clone()]);
    let root = RootDeviceHints { wwn: Some("0x5".into()), ..RootDeviceHints::default() };
    let stage = next(spec.as_ref(), None, Driver::Redfish, Some(&root)).expect("possible").expect("volumes to make");
    assert_eq!(stage.volumes[0]["is_root_volume"], Value::Null, "the hints say which disk it is");
    let spec =
        config(&json!({"softwareRAIDVolumes": [{"level": "1", "physicalDisks": [{"model": "m"}, {"model": "n"}]}]}));
    let stage = next(spec.as_ref(), None, Driver::Redfish, None).expect("possible").expect("volumes to make");
    assert_eq!(stage.volumes[0]["physical_disks"][0], json!({"model": "<in> m"}));
    assert_eq!(stage.volumes[0]["controller"], "software");
}

/// A default that the API server adds, or a `null` that it drops, makes no volumes anew.
#[test]
fn another_way_to_say_the_same_is_no_change() {
    let spec = config(&json!({"softwareRAIDVolumes": [{"level": "1", "rootVolume": false, "sizeGibibytes": 0}]}));
    let made = config(&json!({"hardwareRAIDVolumes": null, "softwareRAIDVolumes": [{"level": "1"}]}));
    assert!(!is_due(spec.as_ref(), made.as_ref()));
    assert_eq!(next(spec.as_ref(), made.as_ref(), Driver::Redfish, None), Ok(None));
    assert!(!is_making(spec.as_ref(), made.as_ref()));
}
