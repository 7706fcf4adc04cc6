use std::sync::Arc;

use agent_api::metal3::BareMetalHost;
use rstest::rstest;
use serde_json::{Value, json};

use super::{conflict, macs, rival};

fn host(name: &str, spec: &Value, nics: &Value) -> BareMetalHost {
    let mut host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": name, "namespace": "site", "creationTimestamp": "2026-03-02T08:00:00Z"},
        "spec": {"online": true},
        "status": {"operationalStatus": "OK", "errorMessage": "", "poweredOn": true, "errorCount": 0,
            "provisioning": {"state": "available", "ID": ""}, "hardware": {"nics": nics}}});
    for (field, value) in spec.as_object().expect("fields") {
        host["spec"][field] = value.clone();
    }
    serde_json::from_value(host).expect("a host")
}

const CARD: &str = "52:54:00:00:00:0a";
const USB: &str = "be:3a:f2:b6:05:9f";

/// A card on the bus, the BMC's virtual one on USB.
fn found(pxe: bool) -> Value {
    let pxe = if pxe { json!(true) } else { Value::Null };
    json!([{"name": "eno1", "mac": CARD, "model": "0x8086 0x1572", "pxe": pxe}, {"name": "enxbe3af2b6059f", "mac": USB}])
}

#[rstest]
#[case::the_boot_card(json!({"bootMACAddress": CARD}), found(false), &[(CARD, true)])]
#[case::found_by_the_ramdisk(json!({}), found(true), &[(CARD, true)])]
#[case::by_virtual_media(json!({}), found(false), &[(CARD, false)])]
#[case::an_adapter_that_it_boots_from(json!({"bootMACAddress": USB}), found(false), &[(CARD, false), (USB, true)])]
#[case::an_adapter_that_it_booted_from(
    json!({}), json!([{"name": "usb0", "mac": USB, "pxe": true}, {"name": "eno1", "mac": CARD, "model": "0x1"}]),
    &[(CARD, false), (USB, true)],
)]
#[case::told_by_a_bmc(
    json!({}), json!([{"name": "NIC.1", "mac": CARD}, {"name": "NIC.2", "mac": USB}]), &[(CARD, false), (USB, false)],
)]
#[case::not_inspected(json!({"bootMACAddress": "52:54:00:00:00:0A"}), json!([]), &[(CARD, true)])]
#[case::nothing_known(json!({}), json!([]), &[])]
fn a_port_is_made_for_what_may_boot(#[case] spec: Value, #[case] nics: Value, #[case] expected: &[(&str, bool)]) {
    let macs: Vec<_> = macs(&host("a", &spec, &nics), &[]).into_iter().collect();
    let expected: Vec<_> = expected.iter().map(|(mac, pxe)| ((*mac).to_owned(), *pxe)).collect();
    assert_eq!(macs, expected);
}

/// Whatever it looks like: an address that two servers have is no card's.
#[test]
fn an_address_of_two_hosts_is_nobodys_port_unless_it_boots_from_it() {
    let nics = |own: &str| json!([{"mac": own, "model": "0x1"}, {"mac": USB, "model": "0x1"}]);
    let all: Vec<Arc<BareMetalHost>> = [("a", CARD), ("b", "52:54:00:00:00:0b")]
        .map(|(name, own)| Arc::new(host(name, &json!({"bootMACAddress": own}), &nics(own))))
        .into();
    for one in &all {
        assert_eq!(macs(one, &all).into_keys().collect::<Vec<_>>(), [one.spec.boot_mac_address.clone().expect("told")]);
    }
    assert_eq!(macs(&all[0], &all[..1]).len(), 2, "alone it is a card like any other");
}

#[test]
fn of_two_hosts_that_boot_from_one_address_the_one_that_works_keeps_it() {
    let make = |name: &str, created: &str, id: &str| {
        let mut host = host(name, &json!({"bootMACAddress": CARD}), &json!([]));
        host.metadata.creation_timestamp = serde_json::from_value(json!(created)).expect("a time");
        host.status.as_mut().expect("a status").provisioning.id = id.to_owned();
        Arc::new(host)
    };
    let (early, late) = ("2026-03-02T08:00:00Z", "2026-03-02T09:00:00Z");
    // Both new: the older one. One of them known to Ironic: that one.
    for (ids, loser) in [(["", ""], 1), (["1", "2"], 1), (["", "2"], 0), (["1", ""], 1)] {
        let all = [make("a", early, ids[0]), make("b", late, ids[1])];
        let winner = 1 - loser;
        assert_eq!(rival(&all[winner], &all), None, "{ids:?}");
        let other = rival(&all[loser], &all).expect("the other");
        let names = ["site/a", "site/b"];
        assert_eq!(other, names[winner], "{ids:?}");
        let said = conflict(&all[loser], CARD, &other, &all);
        assert!(names.iter().all(|name| said.contains(name)) && said.contains(CARD), "{said}");
        assert!(said.contains("names another server's card"), "{said}");
        let gone = conflict(&all[loser], CARD, "site/gone", &all);
        assert!(gone.ends_with("if it was removed by force, make `site/gone` again and delete it"), "{gone}");
    }
    let alone = host("c", &json!({}), &json!([]));
    assert_eq!(rival(&alone, &[make("a", early, "1")]), None);
}
