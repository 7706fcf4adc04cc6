use std::net::IpAddr;

use agent_api::net::{Cidr, MacAddress};
use jiff::Timestamp;
use rstest::rstest;
use serde_json::json;

use super::rules::{Verdict, is_of_sender, verdict};
use super::{Known, ServerFacts, addresses_in, in_arp, of_host};
use crate::provisioning::segment::leases;

const A: &str = "52:54:00:00:00:0a";
const A2: &str = "52:54:00:00:00:1a";
const B: &str = "52:54:00:00:00:0b";
const SHARED: &str = "0a:00:00:00:00:01";
const NODE_A: &str = "7d1a3c2e-0000-4000-8000-00000000000a";

fn mac(text: &str) -> MacAddress {
    text.parse().expect("a MAC address")
}

/// Server A has the lease of .10, server B that of .11; C has a told address in another network; all have a BMC.
fn known(address: &str) -> Known {
    let server = |macs: &[&str], bmc: &str, told: &[&str], node: &str| ServerFacts {
        macs: macs.iter().copied().chain([SHARED]).map(mac).collect(),
        addresses: told.iter().map(|ip| ip.parse().expect("an address")).collect(),
        bmc: [bmc.parse().expect("an address")].into(),
        node: Some(node.to_owned()),
    };
    let leased = format!("2000000000 {A} 172.22.0.10 a *\n2000000000 {B} 172.22.0.11 b *\n1 {B} 172.22.0.12 b *\n");
    Known {
        address: address.parse().expect("an address"),
        own: vec![[172, 22, 0, 1].into()],
        segment: Some(Cidr { address: [172, 22, 0, 1].into(), prefix: 24 }),
        servers: vec![
            server(&[A, A2], "10.9.0.1", &[], NODE_A),
            server(&[B], "10.9.0.2", &[], "node-b"),
            server(&["52:54:00:00:00:0c"], "10.9.0.3", &["192.0.2.40"], "node-c"),
        ],
        leases: leases::read(&leased),
        now: Timestamp::from_second(1_900_000_000).expect("a time"),
        heard: None.into(),
    }
}

fn pass(query: &str) -> Verdict {
    Verdict::Pass(query.to_owned())
}

#[test]
fn a_look_up_is_answered_for_the_macs_of_who_asks_alone() {
    let looked = |address: &str, query: &str| verdict(&known(address), "/v1/lookup", query);
    let encoded = |macs: &str| pass(&format!("addresses={}", macs.replace(':', "%3A").replace(',', "%2C")));
    assert_eq!(looked("172.22.0.10", &format!("addresses={A}")), encoded(A));
    assert_eq!(looked("172.22.0.10", &format!("addresses={A},{B}&node_uuid={NODE_A}")), encoded(A));
    assert_eq!(looked("172.22.0.10", &format!("addresses={A2}")), encoded(A2), "another card of the same server");
    assert_eq!(looked("192.0.2.40", "addresses=52:54:00:00:00:0C"), encoded("52:54:00:00:00:0C"), "a told address");
    for (address, query) in [
        ("172.22.0.10", format!("addresses={B}")),
        ("172.22.0.10", format!("addresses={SHARED}")),
        ("172.22.0.10", format!("node_uuid={NODE_A}")),
        ("172.22.0.10", String::new()),
        ("172.22.0.12", format!("addresses={B}")),
        ("172.22.0.99", format!("addresses={A}")),
        ("198.51.100.7", format!("addresses={A}")),
        ("10.9.0.1", format!("addresses={A}")),
    ] {
        assert!(matches!(looked(address, &query), Verdict::Refuse(_)), "{address} {query}");
    }
    let all = format!("addresses={A},{B}");
    for own in ["127.0.0.1", "::1", "172.22.0.1"] {
        assert_eq!(looked(own, &all), pass(&all), "{own}");
    }
}

#[test]
fn where_no_lease_tells_it_the_kernel_does() {
    let query = format!("addresses={A},{B},52:54:00:00:00:0c");
    let heard = |address: &str, from: &str| {
        let known = Known { heard: Some(mac(from)).into(), ..known(address) };
        verdict(&known, "/v1/lookup", &query)
    };
    assert_eq!(heard("172.22.0.50", "52:54:00:00:00:0c"), pass("addresses=52%3A54%3A00%3A00%3A00%3A0c"));
    assert!(matches!(heard("172.22.0.50", A), Verdict::Refuse(_)), "the box leased another address to it");
}

#[rstest]
#[case::versions("/", true)]
#[case::version("/v1/", true)]
#[case::life("/v1/heartbeat/7d1a", true)]
#[case::with_password("/v1/nodes", true)]
#[case::double("/v1//lookup", false)]
#[case::ending("/v1/lookup.json", false)]
#[case::encoded("/v1/%6Cookup", false)]
#[case::upper("/v1/LookUp", false)]
#[case::encoded_slash("/v1%2flookup", false)]
#[case::longer("/v1/lookup/x", false)]
#[case::other_version("/v2/lookup", false)]
#[case::report("/v1/continue_inspection.json", false)]
fn other_spellings_of_an_open_path_are_refused(#[case] path: &str, #[case] passes: bool) {
    let query = format!("addresses={B}");
    assert_eq!(matches!(verdict(&known("172.22.0.10"), path, &query), Verdict::Pass(_)), passes, "{path}");
    assert!(matches!(verdict(&known("198.51.100.7"), path, &query), Verdict::Refuse(_)), "{path} from elsewhere");
}

#[test]
fn what_an_inspection_found_is_taken_of_its_own_server_alone() {
    let report = |macs: &[&str]| {
        let cards: Vec<_> = macs.iter().map(|mac| json!({"name": "eth0", "mac_address": mac})).collect();
        json!({"inventory": {"interfaces": cards}})
    };
    let sent = |address: &str, macs: &[&str]| is_of_sender(&known(address), &report(macs)).is_ok();
    assert!(sent("172.22.0.10", &[A, "52:54:00:00:00:77"]), "a card that nobody has seen yet");
    assert!(sent("172.22.0.10", &[A, A2, SHARED]), "a card that several servers have");
    assert!(!sent("172.22.0.10", &[A, B]));
    assert!(!sent("172.22.0.10", &[B]));
    assert!(!sent("172.22.0.10", &[]));
    assert_eq!(verdict(&known("172.22.0.10"), "/v1/continue_inspection", ""), Verdict::PassReport);
    assert!(matches!(verdict(&known("172.22.0.99"), "/v1/continue_inspection", ""), Verdict::Refuse(_)));
}

#[rstest]
#[case::script("boot.ipxe", &["172.22.0.10", "172.22.0.99", "192.0.2.40", "10.9.0.2", "127.0.0.1"], &["198.51.100.7"])]
#[case::medium("redfish/boot-7d1a3c2e-0000-4000-8000-00000000000a-1.iso", &["10.9.0.1", "172.22.0.10", "127.0.0.1"], &["10.9.0.2", "172.22.0.11", "172.22.0.99", "198.51.100.7"])]
#[case::of_nobody("redfish/boot-7d1a3c2e-0000-4000-8000-0000000000ff-1.iso", &["10.9.0.1", "127.0.0.1"], &["172.22.0.10", "172.22.0.99", "198.51.100.7"])]
#[case::by_mac("pxelinux.cfg/01-52-54-00-00-00-0a", &["172.22.0.10"], &["198.51.100.7"])]
#[case::config("7d1a3c2e-0000-4000-8000-00000000000a/config", &["172.22.0.10"], &["172.22.0.11", "192.0.2.40"])]
fn files_are_for_servers_and_those_of_a_node_for_that_node(
    #[case] path: &str,
    #[case] may: &[&str],
    #[case] may_not: &[&str],
) {
    for address in may {
        assert!(known(address).may_fetch(path), "{address} {path}");
    }
    for address in may_not {
        assert!(!known(address).may_fetch(path), "{address} {path}");
    }
}

#[test]
fn a_segment_has_what_its_prefix_covers() {
    let has = |segment: &str, address: &str| {
        let address: IpAddr = address.parse().expect("an address");
        Cidr::parse(segment).expect("a segment").contains(address)
    };
    assert!(has("172.22.0.1/24", "172.22.0.254") && !has("172.22.0.1/24", "172.22.1.1"));
    assert!(has("fd00::1/64", "fd00::9") && !has("fd00::1/64", "fd01::9") && !has("fd00::1/64", "172.22.0.1"));
    assert!(has("10.0.0.1/0", "192.0.2.1") && has("10.0.0.1/32", "10.0.0.1") && !has("10.0.0.1/32", "10.0.0.2"));
    assert_eq!(Cidr::parse("172.22.0.1"), None);
}

#[test]
fn a_host_is_known_by_its_cards_and_its_bmc() {
    let (facts, bmc) = of_host(&json!({
        "spec": {"bootMACAddress": "52:54:00:00:00:0A", "bmc": {"address": "redfish-virtualmedia+https://[fd00::9]:8000/redfish/v1/Systems/1"}},
        "status": {"hardware": {"nics": [{"mac": A2}, {"mac": "none"}]}, "provisioning": {"ID": NODE_A}},
    }));
    assert_eq!(facts.macs, [mac(A), mac(A2)].into());
    assert_eq!((facts.node.as_deref(), bmc.as_deref()), (Some(NODE_A), Some("fd00::9")));
    assert_eq!(of_host(&json!({})), (ServerFacts::default(), None));
    let data =
        json!({"networks": [{"ip_address": "192.0.2.40/24"}, {"type": "ipv4_dhcp"}, {"ip_address": "fd00::40"}]});
    assert_eq!(addresses_in(&data).len(), 2);
}

#[test]
fn where_there_is_no_ip_program_the_kernels_table_says_who_is_heard() {
    let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                 172.22.0.20      0x1         0x0         00:00:00:00:00:00     *        ens4\n\
                 172.22.0.21      0x1         0x2         52:54:00:00:00:0a     *        ens4\n";
    let heard = |address: &str| in_arp(table, address.parse().expect("an address"));
    assert_eq!(heard("172.22.0.21"), Some(mac(A)));
    assert_eq!((heard("172.22.0.20"), heard("172.22.0.22")), (None, None), "asked for in vain; never asked for");
}
