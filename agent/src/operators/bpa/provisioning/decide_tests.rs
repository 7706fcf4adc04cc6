//! Which host each node gets.

use std::sync::Arc;

use agent_api::clusters::provisioning::{NodeRole, NodeStatus, Provisioning};
use agent_api::metal3::BareMetalHost;
use agent_api::net::MacAddress;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Choice, Chosen, Leases, choose, is_written_anew};
use crate::operators::bpa::provisioning::wishes::Wanted;
use crate::provisioning::segment::leases;

/// A node that has a host, as tests of what follows from the choice need it.
pub fn chosen(name: &str, number: u8, roles: &[NodeRole]) -> Chosen {
    Chosen {
        name: name.to_owned(),
        roles: roles.to_vec(),
        host: ("metal3".to_owned(), name.to_owned()),
        mac: MacAddress([0x52, 0x54, 0, 0, 0, number]),
        ip: [172, 22, 0, number].into(),
        leased: false,
    }
}

fn host(number: u8, memory: i64, change: &Value) -> Arc<BareMetalHost> {
    let mac = format!("52:54:00:00:00:{number:02x}");
    let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": format!("host{number}"), "namespace": "metal3", "labels": {}, "annotations": {}},
        "spec": {"online": true, "bootMACAddress": mac, "bmc": {"address": "ipmi://192.0.2.1", "credentialsName": "c"}},
        "status": {"operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true,
            "provisioning": {"state": "provisioned", "ID": "u"},
            "hardware": {"ramMebibytes": memory, "cpu": {"count": 8},
                "nics": [{"mac": mac.to_uppercase(), "ip": format!("172.22.0.{number}"), "model": "0x1af4 0x0001"}]}}});
    for (path, value) in change.as_object().into_iter().flatten() {
        let (parent, field) = path.rsplit_once('/').expect("a path");
        object.pointer_mut(parent).expect("a parent")[field] = value.clone();
    }
    Arc::new(serde_json::from_value(object).expect("a host"))
}

fn object(spec: &Value) -> Provisioning {
    let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
        "metadata": {"name": "p", "namespace": "default", "uid": "1"}, "spec": spec});
    serde_json::from_value(object).expect("a Provisioning")
}

fn choice(spec: &Value, hosts: &[Arc<BareMetalHost>], leases: &str) -> Choice {
    let object = object(spec);
    let wanted = Wanted::of(&object, None).expect("good wishes");
    let leases = Leases { all: leases::read(leases), now: Timestamp::from_second(1000).expect("a time") };
    choose(&object, &wanted, hosts, &leases)
}

fn names(choice: &Choice) -> Vec<(&str, &str)> {
    assert!(choice.lacking.is_empty(), "{:?}", choice.lacking);
    choice.chosen.iter().map(|chosen| (&*chosen.name, &*chosen.host.1)).collect()
}

fn by_mac(mac: &str) -> Value {
    json!({"masters": [{"m": {"mac-address": mac}}]})
}

#[test]
fn a_host_is_found_by_a_whole_mac_address_in_any_spelling() {
    let hosts = [host(0x11, 1, &json!({})), host(0x12, 1, &json!({}))];
    for spelling in ["52:54:00:00:00:12", "52-54-00-00-00-12", "5254.0000.0012"] {
        let choice = choice(&by_mac(spelling), &hosts, "");
        assert_eq!(names(&choice), [("m", "host18")], "{spelling}");
        assert_eq!(choice.chosen[0].ip.to_string(), "172.22.0.18");
    }
}

#[test]
fn the_four_texts_of_icn() {
    let bare = host(1, 1, &json!({"/status/hardware": {"nics": [{"mac": "52:54:00:00:00:01"}]}}));
    for (spec, hosts, leases, expected) in [
        (by_mac("52:54:00:00:00:09"), vec![], "", "Host with MAC Address 52:54:00:00:00:09 not found"),
        (
            by_mac("52:54:00:00:00:01"),
            vec![bare.clone()],
            "",
            "IP address not found for host with MAC address 52:54:00:00:00:01",
        ),
        (
            by_mac("52:54:00:00:00:01"),
            vec![bare.clone()],
            "900 52:54:00:00:00:01 172.22.0.9 * *",
            "No active ip address lease found for MAC address 52:54:00:00:00:01",
        ),
    ] {
        assert_eq!(choice(&spec, &hosts, leases).lacking, [expected]);
    }
    let choice = choice(&by_mac("52:54:00:00:00:01"), &[bare], "2000 52:54:00:00:00:01 172.22.0.9 * *");
    assert_eq!(choice.chosen[0].ip.to_string(), "172.22.0.9");
}

#[test]
fn resources_choose_the_smallest_host_that_will_do_and_the_most_demanding_first() {
    let hosts = [host(1, 64_000, &json!({})), host(2, 8000, &json!({})), host(3, 16_000, &json!({}))];
    let spec = json!({"masters": [{"m": {"memory": "4Gi"}}], "workers": [{"small": {"cpu": 4}}, {"large": {"memory": "32Gi"}}]});
    assert_eq!(names(&choice(&spec, &hosts, "")), [("m", "host2"), ("small", "host3"), ("large", "host1")]);
    let mut turned = hosts.clone();
    turned.reverse();
    assert_eq!(choice(&spec, &hosts, ""), choice(&spec, &turned, ""));
}

#[test]
fn a_shortfall_is_named() {
    let hosts = [host(1, 2000, &json!({}))];
    let spec = json!({"masters": [{"m": {"mac-address": "52:54:00:00:00:01", "memory": "4Gi", "cpu": 16}}]});
    let why = choice(&spec, &hosts, "").lacking.join("");
    assert!(why.contains("8 processors of 16, 2000 MiB of memory of 4096"), "{why}");
    let spec = json!({"masters": [{"m": {"sriov": true, "qat": true}}]});
    let choice = choice(&spec, &hosts, "");
    assert!(choice.lacking[0].contains("no host has a card for SR-IOV, QAT"), "{choice:?}");
    assert!(choice.not_chosen[0].why.contains("no card for SR-IOV, no label"), "{choice:?}");
}

#[test]
fn sriov_is_read_from_the_cards_and_qat_from_a_label() {
    let nics = json!([{"mac": "52:54:00:00:00:02", "ip": "172.22.0.2", "model": "0x8086 0x1572"}]);
    let hosts = [
        host(1, 1, &json!({})),
        host(
            2,
            1,
            &json!({"/status/hardware/nics": nics,
        "/metadata/labels": {"bpa.akraino.org/qat": "true"}}),
        ),
    ];
    assert_eq!(
        names(&choice(&json!({"masters": [{"m": {"sriov": true, "qat": true}}]}), &hosts, "")),
        [("m", "host2")]
    );
}

#[test]
fn labels_of_a_role_are_demanded() {
    let hosts = [host(1, 1, &json!({})), host(2, 1, &json!({"/metadata/labels": {"rack": "b"}}))];
    let spec = json!({"masters": [{"m": {}}], "nodeSelector": {"masters": {"rack": "b"}}});
    assert_eq!(names(&choice(&spec, &hosts, "")), [("m", "host2")]);
}

#[test]
fn a_host_that_cannot_be_used_is_not_and_the_reason_is_told() {
    for (path, value, word) in [
        (
            "/spec/consumerRef",
            json!({"kind": "HostClaim", "apiVersion": "metal3.io/v1alpha1", "namespace": "a", "name": "b"}),
            "used by HostClaim a/b",
        ),
        (
            "/spec/consumerRef",
            json!({"kind": "Provisioning", "apiVersion": "bpa.akraino.org/v1alpha1", "namespace": "default", "name": "q"}),
            "used by Provisioning default/q",
        ),
        ("/status/provisioning/state", json!("available"), "give it an `image`"),
        ("/status/provisioning/state", json!("provisioning"), "not provisioned yet"),
        ("/status/errorMessage", json!("BMC is away"), "BMC is away"),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"), "being deleted"),
        ("/metadata/annotations", json!({"baremetalhost.metal3.io/paused": ""}), "paused"),
    ] {
        let hosts = [host(1, 8000, &json!({path: value}))];
        for spec in [by_mac("52:54:00:00:00:01"), json!({"masters": [{"m": {"memory": "1Gi"}}]})] {
            let choice = choice(&spec, &hosts, "");
            assert!(choice.lacking.len() == 1 && choice.lacking[0].contains(word), "{path}: {choice:?}");
            assert!(choice.not_chosen[0].why.contains(word), "{path}: {choice:?}");
        }
    }
}

#[test]
fn a_host_without_a_bmc_runs_what_its_user_gave_it() {
    let hosts = [host(1, 1, &json!({"/spec/bmc": null, "/status/provisioning/state": "unmanaged"}))];
    assert_eq!(names(&choice(&by_mac("52:54:00:00:00:01"), &hosts, "")), [("m", "host1")]);
}

#[test]
fn a_node_keeps_the_address_that_the_box_leased_it_when_there_is_no_lease_any_more() {
    let nics = json!([{"mac": "52:54:00:00:00:01"}, {"mac": "52:54:00:00:00:aa"}]);
    let bare =
        |annotations: Value| host(1, 1, &json!({"/status/hardware/nics": nics, "/metadata/annotations": annotations}));
    let of = |mac: &str, host: Arc<BareMetalHost>, leases: &str| {
        let choice = choice(&by_mac(mac), &[host], leases);
        choice.chosen.first().map(|chosen| (chosen.ip.to_string(), chosen.leased))
    };
    let (boot, other) = ("52:54:00:00:00:01", "52:54:00:00:00:aa");
    let lease = |mac: &str| format!("2000 {mac} 172.22.0.9 * *");
    let leased = |yes: bool| Some(("172.22.0.9".to_owned(), yes));
    let kept = json!({"bpa.akraino.org/address": "172.22.0.9"});
    assert_eq!(of(boot, bare(json!({})), &lease(boot)), leased(true));
    assert_eq!(of(boot, bare(kept.clone()), ""), leased(true));
    // DHCP keeps addresses for the card that a host boots from, and for no other.
    assert_eq!(of(other, bare(json!({})), &lease(other)), leased(false));
    assert_eq!(of(other, bare(kept), ""), None);
    // Somebody else gave it this address.
    let own = host(1, 1, &json!({}));
    assert_eq!(of(boot, own, &lease(boot)), Some(("172.22.0.1".to_owned(), false)));
}

#[test]
fn a_node_keeps_its_host() {
    let consumer =
        json!({"kind": "Provisioning", "apiVersion": "bpa.akraino.org/v1alpha1", "namespace": "default", "name": "p"});
    let claimed = host(
        9,
        64_000,
        &json!({"/spec/consumerRef": consumer, "/metadata/annotations": {"bpa.akraino.org/node": "m"},
        "/status/provisioning/state": "deprovisioning"}),
    );
    let hosts = [host(1, 8000, &json!({})), claimed];
    assert_eq!(names(&choice(&json!({"masters": [{"m": {"memory": "4Gi"}}]}), &hosts, "")), [("m", "host9")]);
}

#[test]
fn a_node_with_another_mac_address_gets_the_server_that_has_it() {
    let own = json!({"/metadata/annotations": {"bpa.akraino.org/node": "m"},
        "/spec/consumerRef": {"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning", "namespace": "default", "name": "p"}});
    let hosts = [host(1, 1, &own), host(2, 1, &json!({}))];
    assert_eq!(names(&choice(&by_mac("52:54:00:00:00:01"), &hosts, "")), [("m", "host1")]);
    let lease = "2000 52:54:00:00:00:02 172.22.0.2 * *";
    let other = choice(&by_mac("52:54:00:00:00:02"), &hosts, lease);
    assert_eq!(names(&other), [("m", "host2")]);
    assert_eq!(other.chosen[0].mac.to_string(), "52:54:00:00:00:02");
    // While it is inspected anew nobody knows its other cards.
    let mut own = own;
    own["/status/hardware"] = serde_json::Value::Null;
    let hosts = [host(1, 1, &own)];
    assert_eq!(
        names(&choice(&by_mac("52:54:00:00:00:07"), &hosts, "2000 52:54:00:00:00:07 172.22.0.7 * *")),
        [("m", "host1")]
    );
}

#[test]
fn hosts_of_a_sip_cluster_are_only_for_who_names_it() {
    let labels = json!({"/metadata/labels": {"sip.airshipit.org/cluster-namespace": "a", "sip.airshipit.org/cluster-name": "t"}});
    let hosts = [host(1, 8, &labels)];
    for spec in [by_mac("52:54:00:00:00:01"), json!({"masters": [{"m": {"memory": "1Mi"}}]})] {
        let choice = choice(&spec, &hosts, "");
        assert!(choice.lacking[0].contains("it is of SIPCluster a/t"), "{:?}", choice.lacking);
    }
}

#[test]
fn two_nodes_never_share_a_host() {
    let nics =
        json!([{"mac": "52:54:00:00:00:01", "ip": "172.22.0.1"}, {"mac": "52:54:00:00:00:aa", "ip": "172.22.0.3"}]);
    let hosts = [host(1, 8000, &json!({"/status/hardware/nics": nics}))];
    let spec = json!({"masters": [{"m": {"mac-address": "52:54:00:00:00:01"}}], "workers": [{"w": {"mac-address": "52:54:00:00:00:aa"}}]});
    let choice = choice(&spec, &hosts, "");
    assert_eq!(choice.chosen.len(), 1);
    assert!(choice.lacking[0].contains("another node already"), "{choice:?}");
}

#[test]
fn a_node_whose_os_was_written_after_it_was_installed_is_no_node_any_more() {
    let written = |end: Value| host(1, 4096, &json!({"/status/operationHistory": {"provision": {"end": end}}}));
    let node = |installed: Option<&str>| -> NodeStatus {
        let mut node = json!({"name": "a", "roles": ["worker"], "host": "metal3/host1", "macAddress": "", "ip": "", "phase": "Installed"});
        if let Some(installed) = installed {
            node["installedAt"] = json!(installed);
        }
        serde_json::from_value(node).expect("a node")
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    for (end, installed, expected) in [
        (json!(late), Some(early), true),
        (json!(early), Some(late), false),
        (json!(null), Some(early), false),
        (json!(late), None, false),
    ] {
        assert_eq!(is_written_anew(&written(end.clone()), &node(installed)), expected, "{end} {installed:?}");
    }
}
