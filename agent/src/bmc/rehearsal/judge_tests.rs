//! Tests of the judgement.

use agent_api::rehearsal::CellState;
use rstest::rstest;
use serde_json::json;

use super::*;

fn system(state: &str) -> Value {
    json!({ "PowerState": state, "Actions": { "#ComputerSystem.Reset": { "target": "/reset" } } })
}

#[rstest]
#[case::honest("On", Some("On"), Some("On"), CellState::Good)]
#[case::no_chassis("Off", None, None, CellState::Good)]
#[case::contradicted("On", Some("Off"), Some("On"), CellState::Bad)]
#[case::a_chassis_on_its_way("On", Some("PoweringOn"), Some("On"), CellState::Good)]
#[case::wavering("On", Some("On"), Some("Off"), CellState::Bad)]
#[case::on_its_way("PoweringOn", None, None, CellState::Warn)]
fn power_counts_when_all_say_the_same(
    #[case] first: &str,
    #[case] chassis: Option<&str>,
    #[case] last: Option<&str>,
    #[case] state: CellState,
) {
    let document = |state: Option<&str>| state.map(system);
    let cell = power(&system(first), document(chassis).as_ref(), document(last).as_ref());
    assert_eq!(cell.state, state, "{cell:?}");
}

#[rstest]
#[case::free(json!(["Pxe", "Cd"]), "Disabled", "None", Way::Network, CellState::Good)]
#[case::left_over(json!(["Pxe"]), "Once", "Pxe", Way::Network, CellState::Warn)]
#[case::for_ever(json!(["Pxe"]), "Continuous", "Hdd", Way::Network, CellState::Warn)]
#[case::for_ever_nothing(json!(["Pxe"]), "Continuous", "None", Way::Network, CellState::Good)]
#[case::no_http(json!(["Pxe", "Cd"]), "Disabled", "None", Way::UefiHttp, CellState::Bad)]
#[case::usb(json!(["UsbCd"]), "Disabled", "None", Way::VirtualMedia, CellState::Good)]
#[case::no_list(Value::Null, "Disabled", "None", Way::VirtualMedia, CellState::Warn)]
fn the_override_must_take_what_the_address_needs(
    #[case] list: Value,
    #[case] enabled: &str,
    #[case] target: &str,
    #[case] way: Way,
    #[case] state: CellState,
) {
    let boot = json!({ "Boot": { "BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target,
        "BootSourceOverrideTarget@Redfish.AllowableValues": list } });
    let cell = super::boot(&boot, way);
    assert_eq!(cell.state, state, "{cell:?}");
}

#[rstest]
#[case::none_needed(json!([]), Way::Network, CellState::Skipped)]
#[case::none(json!([]), Way::VirtualMedia, CellState::Bad)]
#[case::floppy_only(json!([{ "Id": "1", "MediaTypes": ["Floppy"] }]), Way::VirtualMedia, CellState::Bad)]
#[case::taken(json!([{ "Id": "1", "MediaTypes": ["CD"], "Inserted": true }]), Way::VirtualMedia, CellState::Warn)]
#[case::by_patch(json!([{ "Id": "1", "MediaTypes": ["CD"], "Inserted": false }]), Way::VirtualMedia, CellState::Warn)]
fn a_drive_for_discs_must_be_there_and_empty(#[case] drives: Value, #[case] way: Way, #[case] state: CellState) {
    let cell = media(drives.as_array().expect("a list"), way);
    assert_eq!(cell.state, state, "{cell:?}");
}

#[rstest]
#[case(0, CellState::Good, "right")]
#[case(-20, CellState::Good, "20 s behind")]
#[case(45, CellState::Warn, "45 s ahead")]
#[case(-86_400, CellState::Bad, "86400 s behind")]
fn a_clock_is_judged_by_its_skew(#[case] skew: i64, #[case] state: CellState, #[case] says: &str) {
    let ours = Timestamp::from_second(1_800_000_000).expect("a time");
    let cell = clock(ours + SignedDuration::from_secs(skew), ours, "");
    assert_eq!((cell.state, cell.says.as_str()), (state, says));
}

#[rstest]
#[case::utc(3, CellState::Good, "3 s ahead, by the clock of its event log")]
#[case::berlin(3605, CellState::Warn, "right if its event log keeps the time of UTC+01:00")]
#[case::nepal(20_700, CellState::Warn, "right if its event log keeps the time of UTC+05:45")]
#[case::new_york(-18_010, CellState::Warn, "right if its event log keeps the time of UTC-05:00")]
#[case::no_zone(3700, CellState::Bad, "3700 s ahead, by the clock of its event log")]
#[case::too_far(86_400, CellState::Bad, "86400 s ahead, by the clock of its event log")]
fn a_clock_without_time_zone_may_be_right_in_local_time(
    #[case] skew: i64,
    #[case] state: CellState,
    #[case] says: &str,
) {
    let ours = Timestamp::from_second(1_800_000_000).expect("a time");
    let cell = ipmi_clock(ours + SignedDuration::from_secs(skew), ours);
    assert_eq!((cell.state, cell.says.as_str()), (state, says));
}

#[rstest]
#[case::a_system(json!({ "@odata.type": "#ComputerSystem.v1_5_0.ComputerSystem" }), None)]
#[case::nameless(json!({ "Boot": {} }), None)]
#[case::its_manager(
    json!({ "@odata.type": "#Manager.v1_3_0.Manager", "Links": { "ManagerForServers": [{ "@odata.id": "/redfish/v1/Systems/2" }] } }),
    Some(("is a Manager", "/redfish/v1/Systems/2"))
)]
#[case::its_chassis(
    json!({ "@odata.type": "#Chassis.v1_3_0.Chassis", "Links": { "ComputerSystems": [{ "@odata.id": "/redfish/v1/Systems/2" }] } }),
    Some(("is a Chassis", "/redfish/v1/Systems/2"))
)]
#[case::the_collection(
    json!({ "@odata.type": "#ComputerSystemCollection.ComputerSystemCollection" }),
    Some(("is a ComputerSystemCollection", "/redfish/v1/Systems/1"))
)]
fn only_a_system_is_a_system(#[case] found: Value, #[case] expected: Option<(&str, &str)>) {
    let cell = no_system("/x", &found, &["/redfish/v1/Systems/1".to_owned()]);
    let told = cell.as_ref().map(|cell| (cell.says.clone(), cell.hint.clone().unwrap_or_default()));
    match (told, expected) {
        (None, None) => {}
        (Some((says, hint)), Some((part, path))) => {
            assert!(says.contains(part) && hint == format!("`spec.bmc.address` may name: {path}"), "{says}; {hint}");
        }
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case::its_own(json!({ "ChassisType": "RackMount", "Links": { "ComputerSystems": [{ "@odata.id": "/s/1/" }] } }), true)]
#[case::a_blade(json!({ "ChassisType": "Blade", "Links": { "ComputerSystems": [{ "@odata.id": "/s/1" }] } }), true)]
#[case::of_two(
    json!({ "ChassisType": "RackMount", "Links": { "ComputerSystems": [{ "@odata.id": "/s/1" }, { "@odata.id": "/s/2" }] } }),
    false
)]
#[case::an_enclosure(json!({ "ChassisType": "Enclosure", "Links": { "ComputerSystems": [{ "@odata.id": "/s/1" }] } }), false)]
#[case::of_another(json!({ "Links": { "ComputerSystems": [{ "@odata.id": "/s/2" }] } }), false)]
#[case::that_does_not_say(json!({ "ChassisType": "RackMount" }), false)]
fn only_a_systems_own_chassis_can_contradict_it(#[case] chassis: Value, #[case] expected: bool) {
    assert_eq!(is_chassis_of(&chassis, "/s/1"), expected);
}
