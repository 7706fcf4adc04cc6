use rstest::rstest;
use serde_json::{Value, json};

use agent_api::sip::cluster::{CLUSTER_NAME, CLUSTER_NAMESPACE};

use super::*;

fn vino(namespace: &str, name: &str, created: &str, networks: &Value) -> Vino {
    serde_json::from_value(json!({"apiVersion": "airship.airshipit.org/v1", "kind": "Vino",
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": created},
        "spec": {"networks": networks, "bmcCredentials": {"username": "a", "password": "b"}}}))
    .expect("a Vino")
}

fn network(name: &str, subnet: &str, start: &str, stop: &str) -> Value {
    json!({"name": name, "subnet": subnet, "staticAllocationStart": start, "staticAllocationStop": stop})
}

fn sample() -> Vino {
    serde_saphyr::from_str(include_str!("../../../tests/fixtures/vino/vino.yaml")).expect("a Vino")
}

fn host(node: &str, domain: &str, in_use: Option<&str>, leaves: bool) -> Existing {
    Existing { node: node.to_owned(), domain: domain.to_owned(), leaves, in_use: in_use.map(str::to_owned) }
}

fn names(made: &Machines) -> Vec<&str> {
    made.wanted.iter().map(|(_, name)| name.as_str()).collect()
}

#[test]
fn a_node_gets_what_is_asked_for_and_keeps_it() {
    let sets = sample().spec.nodes;
    let made = machines(&sets, "n", true, &[]);
    assert_eq!(names(&made), ["master-0", "worker-0", "worker-1", "worker-2", "worker-3"]);
    let hosts: Vec<Existing> = made.wanted.iter().map(|(_, name)| host("n", name, None, false)).collect();
    assert_eq!(machines(&sets, "n", true, &hosts), made);
    assert_eq!(machines(&sets, "other", true, &hosts), made, "hosts of another node are none of its own");
}

/// What a cluster runs on is not taken away for a smaller number.
#[test]
fn those_that_are_nobodys_go_first_and_somebodys_do_not_go() {
    let mut sets = sample().spec.nodes;
    let hosts = |used: &[u32]| -> Vec<Existing> {
        let one =
            |number: u32| host("n", &format!("worker-{number}"), used.contains(&number).then_some("it is used"), false);
        (0..4).map(one).chain([host("n", "master-0", None, false)]).collect()
    };
    sets[1].count = 2;
    let made = machines(&sets, "n", true, &hosts(&[3]));
    assert_eq!(names(&made), ["master-0", "worker-0", "worker-3"]);
    assert_eq!((made.remove.clone(), made.stuck.len()), (vec!["worker-2".to_owned(), "worker-1".to_owned()], 0));
    let made = machines(&sets, "n", true, &hosts(&[0, 2, 3]));
    assert_eq!(made.remove, ["worker-1"]);
    assert_eq!(made.stuck, [("worker-3".to_owned(), "it is used".to_owned())]);
    assert_eq!(names(&made), ["master-0", "worker-0", "worker-2"]);
    assert_eq!(made.lasting, ["worker-1", "worker-3"], "their machines stay until their hosts are gone");
    // A kind that is not asked for any more, and a node that is not.
    sets.remove(1);
    assert_eq!(machines(&sets, "n", true, &hosts(&[1])).remove, ["worker-3", "worker-2", "worker-0"]);
    let made = machines(&sets, "n", false, &hosts(&[1]));
    assert!(made.wanted.is_empty() && made.remove.len() == 4 && made.stuck.len() == 1);
}

#[test]
fn a_number_is_given_again_when_its_host_is_gone_and_not_before() {
    let mut sets = sample().spec.nodes;
    sets.remove(0);
    sets[0].count = 3;
    let hosts = [host("n", "worker-0", None, true), host("n", "worker-2", None, false)];
    let made = machines(&sets, "n", true, &hosts);
    assert_eq!(names(&made), ["worker-1", "worker-2", "worker-3"]);
    assert_eq!(made.lasting, ["worker-0"]);
    assert_eq!(names(&machines(&sets, "n", true, &hosts[1..])), ["worker-0", "worker-1", "worker-2"]);
}

/// VIN-3.
#[test]
fn labels_of_a_kind_win_over_those_of_the_node_and_a_missing_one_is_named() {
    let object = sample();
    let mut set = object.spec.nodes[0].clone();
    let node = |labels: Value| -> BTreeMap<String, String> { serde_json::from_value(labels).expect("labels") };
    let whole = node(json!({"airshipit.org/server": "s1", "airshipit.org/rack": "r1", "other": "x"}));
    let labels = host_labels(&object, &set, &whole).expect("labels");
    assert_eq!(
        json!(labels),
        json!({"airshipit.org/server": "s1", "airshipit.org/rack": "r1",
        "airshipit.org/k8s-role": "master", CR_NAME: "vino-test-cr", CR_NAMESPACE: ""})
    );
    let missing = host_labels(&object, &set, &node(json!({"airshipit.org/server": "s1", "airshipit.org/rack": ""})));
    assert_eq!(missing, Err(vec!["airshipit.org/rack".to_owned()]), "no empty label");
    set.bmh_labels.insert("airshipit.org/rack".to_owned(), "mine".to_owned());
    let labels = host_labels(&object, &set, &whole).expect("labels");
    assert_eq!(labels["airshipit.org/rack"], "mine");
    assert!(host_labels(&object, &set, &node(json!({"airshipit.org/server": "s1"}))).is_ok());
}

#[test]
fn the_later_of_two_is_told_what_it_shares_with_the_first() {
    let first = vino("a", "one", "2026-01-01T00:00:00Z", &json!([network("m", "10.0.0.0/16", "10.0.1.1", "10.0.1.9")]));
    let later = |networks: &Value| vino("b", "two", "2026-01-02T00:00:00Z", networks);
    for (networks, words) in [
        (
            json!([network("n", "10.0.0.0/16", "10.0.1.9", "10.0.1.20")]),
            Some("[10.0.1.9,10.0.1.20] and [10.0.1.1,10.0.1.9]"),
        ),
        (json!([network("n", "10.0.0.0/16", "10.0.2.1", "10.0.2.20")]), None),
        (
            json!([network("n", "10.0.128.0/17", "10.0.200.1", "10.0.200.9")]),
            Some("their subnets 10.0.128.0/17 and 10.0.0.0/16"),
        ),
        (json!([network("n", "10.1.0.0/16", "10.1.1.1", "10.1.1.9")]), None),
        (json!([network("n", "fd00::/64", "fd00::1", "fd00::9")]), None),
    ] {
        let later = later(&networks);
        let told = conflicts(&later, [&first, &later]);
        match words {
            Some(words) => {
                assert!(told.len() == 1 && told[0].contains(words), "{told:?}");
                assert!(told[0].contains("network `n` and network `m` of Vino `a/one`"), "{told:?}");
            }
            None => assert!(told.is_empty(), "{told:?}"),
        }
        assert!(conflicts(&first, [&first, &later]).is_empty(), "who was first goes on");
    }
    let (a, b) =
        (vino("a-b", "c", "2026-01-01T00:00:00Z", &json!([])), vino("a", "b-c", "2026-01-02T00:00:00Z", &json!([])));
    assert!(conflicts(&b, [&a])[0].contains("hosts of the same names, `a-b-c-...`"));
}

#[rstest]
#[case(json!([network("m", "10.0.0.0/33", "10.0.0.1", "10.0.0.2")]), "subnet is `10.0.0.0/33`")]
#[case(json!([network("m", "10.0.0.0/24", "10.0.1.1", "10.0.1.2")]), "the static range [10.0.1.1,10.0.1.2] is not in 10.0.0.0/24")]
#[case(json!([network("m", "10.0.0.0/24", "10.0.0.9", "10.0.0.2")]), "the last address comes before the first")]
#[case(json!([{"name": "m", "subnet": "10.0.0.0/24"}]), "the static range: IPAM address `` is invalid")]
#[case(json!([{"name": "m", "subnet": "10.0.0.0/24", "staticAllocationStart": "10.0.0.1", "staticAllocationStop": "10.0.0.9",
    "dhcpAllocationStart": "10.0.0.8", "dhcpAllocationStop": "10.0.0.99"}]), "have addresses in common")]
#[case(json!([{"name": "m", "subnet": "10.0.0.0/24", "staticAllocationStart": "10.0.0.1", "staticAllocationStop": "10.0.0.9",
    "dhcpAllocationStart": "10.0.0.128", "dhcpAllocationStop": "10.0.0.255"}]), "the DHCP range has 10.0.0.255, which no machine")]
#[case(json!([{"name": "m", "subnet": "10.0.0.0/24", "staticAllocationStart": "10.0.0.1", "staticAllocationStop": "10.0.0.9",
    "bridgeName": "br"}, {"name": "n", "subnet": "10.1.0.0/24", "staticAllocationStart": "10.1.0.1", "staticAllocationStop": "10.1.0.9",
    "bridgeName": "br"}]), "bridgeName is `br`, which is that of `m`, too")]
#[case(json!([network("m", "10.0.0.0/24", "10.0.0.1", "10.0.0.2"), network("n", "10.0.0.128/25", "10.0.0.129", "10.0.0.130")]),
    "overlaps with 10.0.0.0/24 of `m`")]
fn what_is_wrong_with_networks_is_said(#[case] networks: Value, #[case] words: &str) {
    let told = wrong(&vino("a", "b", "2026-01-01T00:00:00Z", &networks)).join("\n");
    assert!(told.contains(words), "{told}");
}

/// Hosts with such labels would be refused when their machines run already, or would be somebody else's.
#[rstest]
#[case("/nodes/0/bmhLabels", json!({"a b": "x"}), "spec.nodes[0].bmhLabels: found `a b`, which no label is called")]
#[case("/nodes/0/bmhLabels", json!({"rack": "r 1"}), "spec.nodes[0].bmhLabels: the value of `rack` is `r 1`")]
#[case("/nodes/0/bmhLabels", json!({CR_NAME: "other"}), "`vino.airshipit.org/cr-name`, which says whose a host is")]
#[case("/nodes/0/bmhLabels", json!({CLUSTER_NAME: "x"}), "`sip.airshipit.org/cluster-name`, which says whose a host is")]
#[case("/nodeLabelKeysToCopy", json!([CR_NAMESPACE]), "spec.nodeLabelKeysToCopy: found `vino.airshipit.org/cr-namespace`")]
#[case("/nodeLabelKeysToCopy", json!(["/"]), "spec.nodeLabelKeysToCopy: found `/`")]
#[case("/nodeSelector/matchLabels", json!({"pool": "a/b"}), "spec.nodeSelector.matchLabels: the value of `pool` is `a/b`")]
fn what_is_wrong_with_labels_is_said(#[case] path: &str, #[case] value: Value, #[case] words: &str) {
    let mut spec = serde_json::to_value(sample().spec).expect("JSON");
    *spec.pointer_mut(path).expect("a place") = value;
    let object = Vino::new("v", serde_json::from_value(spec).expect("a spec"));
    let told = wrong(&object);
    assert!(told.len() == 1 && told[0].contains(words), "{words}: {told:?}");
}

#[test]
fn what_airships_users_ask_for_is_right() {
    assert_eq!(wrong(&sample()), Vec::<String>::new());
    let mut object = sample();
    object.spec.nodes[0].network_interfaces[0].network = "other".to_owned();
    object.spec.nodes[1].boot_interface_name = Some("eth9".to_owned());
    object.spec.bmc_credentials.password.clear();
    let told = wrong(&object).join("\n");
    for words in ["names network `other`, which is not there", "bootInterfaceName is `eth9`", "there is no default"] {
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn a_host_is_in_use_when_somebody_has_it_or_it_has_a_system() {
    let host = |labels: Value, spec: Value, state: &str| -> BareMetalHost {
        let mut all = json!({"online": true});
        all.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
        serde_json::from_value(json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"namespace": "a", "name": "h", "labels": labels}, "spec": all,
            "status": {"provisioning": {"state": state, "ID": "", "image": {"url": ""}}, "operationalStatus": "OK",
                "errorMessage": "", "errorCount": 0, "poweredOn": false}}))
        .expect("a host")
    };
    assert_eq!(in_use(&host(json!({}), json!({}), "available")), None);
    let of_sip = json!({CLUSTER_NAMESPACE: "t", CLUSTER_NAME: "one"});
    assert_eq!(in_use(&host(of_sip, json!({}), "available")).as_deref(), Some("SIPCluster t/one has it"));
    let consumer = json!({"consumerRef": {"kind": "Provisioning", "namespace": "p", "name": "x"}});
    assert_eq!(in_use(&host(json!({}), consumer, "available")).as_deref(), Some("Provisioning p/x has it"));
    for (spec, state) in [(json!({}), "provisioned"), (json!({"image": {"url": "http://a/b"}}), "available")] {
        assert_eq!(in_use(&host(json!({}), spec, state)).as_deref(), Some("it has a system, or is getting one"));
    }
}
