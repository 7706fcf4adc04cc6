//! Which Sites cannot be.

use rstest::rstest;

use super::super::Site;
use super::{Cidr, against_cluster};

/// What is said of a Site with these lines.
fn told(lines: &str) -> Vec<String> {
    let text = format!("apiVersion: foothold.dev/v1\nkind: Site\n{lines}\n");
    let site: Site = serde_saphyr::from_str(&text).expect("a Site");
    super::findings(&site).iter().map(ToString::to_string).collect()
}

fn interfaces(items: &str) -> String {
    format!("networks: {{ interfaces: [ {items} ] }}")
}

const MAC: &str = r#"macAddress: "52:54:00:12:34:56""#;

#[rstest]
#[case::outside("addresses: [ 10.0.0.5/24 ], gateway: 10.0.1.1", "`10.0.1.1` lies outside of 10.0.0.0/24")]
#[case::other_family(
    "addresses: [ \"fd00::5/64\" ], gateway: 10.0.0.1",
    "an IPv4 gateway, and all addresses here are IPv6"
)]
#[case::other_family_4(
    "addresses: [ 10.0.0.5/24 ], gateway: \"fd00::1\"",
    "an IPv6 gateway, and all addresses here are IPv4"
)]
#[case::own("addresses: [ 10.0.0.5/24 ], gateway: 10.0.0.5", "the box's own address")]
#[case::broadcast("addresses: [ 10.0.0.5/24 ], gateway: 10.0.0.255", "the broadcast address of its subnet")]
#[case::no_address("gateway: 10.0.0.1", "without an address of this interface")]
#[case::multicast_gateway("addresses: [ 10.0.0.5/24 ], gateway: 224.0.0.1", "`224.0.0.1` is a multicast address")]
#[case::multicast("addresses: [ 239.1.2.3/24 ]", "a multicast address")]
#[case::loopback("addresses: [ 127.0.0.2/8 ]", "a loopback address")]
#[case::loopback_6("addresses: [ \"::1/128\" ]", "a loopback address")]
#[case::nothing("addresses: [ 0.0.0.0/0 ]", "no address")]
#[case::everything("addresses: [ 10.0.0.5/0 ]", "every address is in the box's own subnet")]
#[case::subnet("addresses: [ 10.0.0.0/24 ]", "the address of the subnet itself")]
#[case::subnet_6("addresses: [ \"fd00::/64\" ]", "the address of the subnet itself")]
#[case::last("addresses: [ 10.0.0.255/24 ]", "the broadcast address of its subnet")]
#[case::reserved("addresses: [ 250.0.0.1/24 ]", "a reserved address")]
#[case::cluster("addresses: [ 198.18.0.1/24 ]", "the cluster's own address")]
#[case::mapped("addresses: [ \"::ffff:10.0.0.5/120\" ]", "an IPv4 address in the form of IPv6")]
#[case::twice(
    "addresses: [ 10.0.0.5/24, 10.0.0.5/16 ]",
    "`10.0.0.5` stands at `networks.interfaces[0].addresses[0]` already"
)]
fn addresses_that_cannot_be_are_told(#[case] rest: &str, #[case] why: &str) {
    let told = told(&interfaces(&format!("{{ {MAC}, {rest} }}")));
    assert!(told.len() == 1 && told[0].contains(why), "{told:?}");
}

#[rstest]
#[case::usual("addresses: [ 10.0.0.5/24 ], gateway: 10.0.0.1")]
#[case::both("addresses: [ 10.0.0.5/24, \"fd00::5/64\" ], gateway: \"fe80::1\"")]
#[case::point_to_point("addresses: [ 10.0.0.0/31 ], gateway: 10.0.0.1")]
#[case::point_to_point_6("addresses: [ \"fd00::/127\" ], gateway: \"fd00::1\"")]
#[case::host("addresses: [ 10.0.0.5/32 ]")]
#[case::link_local("addresses: [ 169.254.1.2/16, \"fe80::5/64\" ]")]
#[case::edge("addresses: [ 10.0.1.0/23, 10.0.0.255/23 ], gateway: 10.0.0.1")]
fn what_can_be_is_taken(#[case] rest: &str) {
    assert_eq!(told(&interfaces(&format!("{{ {MAC}, {rest} }}"))), Vec::<String>::new());
}

#[test]
fn cards_and_addresses_are_told_when_they_stand_there_twice() {
    let upper = r#"macAddress: "52:54:00:AB:cd:56""#;
    let lower = r#"macAddress: "52:54:00:ab:cd:56""#;
    let told = told(&interfaces(&format!(
        "{{ {upper}, addresses: [ 10.0.0.5/24 ] }}, {{ {lower}, addresses: [ 10.0.0.5/16 ] }}, {{ macAddress: \"01:00:5e:00:00:01\" }}, {{ macAddress: \"00:00:00:00:00:00\" }}"
    )));
    let why = [
        "`52:54:00:ab:cd:56` stands at `networks.interfaces[0].macAddress` already",
        "`10.0.0.5` stands at",
        "of no card",
        "of no card",
    ];
    assert!(told.len() == 4 && told.iter().zip(why).all(|(told, why)| told.contains(why)), "{told:?}");
    let servers = "networks: { interfaces: [ { macAddress: \"52:54:00:12:34:56\", addresses: [ 10.0.0.5/24 ] } ], \
                   provisioning: { interface: { name: eno2 }, address: 10.0.0.5/24 } }";
    assert!(self::told(servers)[0].starts_with("`networks.provisioning.address`: `10.0.0.5` stands at"));
}

const CARD: &str = r#"{ macAddress: "52:54:00:12:34:56", bond: b }"#;

/// `netdevs` and `interfaces`; what is said of them.
#[rstest]
#[case::lacp(
    "{ name: b, kind: bond, bond: { mode: 802.3ad, lacpTransmitRate: fast, minLinks: 1, miiMonitorSec: 50ms } }",
    CARD
)]
#[case::backup(
    "{ name: b, kind: bond, bond: { mode: active-backup, failOverMACPolicy: active } }",
    r#"{ name: "eno*", bond: b }, { name: ens1, bond: b, primarySlave: true }"#
)]
#[case::arp(
    "{ name: b, kind: bond, bond: { mode: active-backup, arpIntervalSec: 1s, arpIPTargets: [ 10.0.0.1 ] } }",
    CARD
)]
#[case::vlan(
    "{ name: v.10, kind: vlan, vlan: { id: 10 } }",
    "{ name: ens1, vlan: [ v.10 ] }, { name: v.10, addresses: [ 10.0.0.5/24 ], gateway: 10.0.0.1 }"
)]
#[case::vlans_in_vlans(
    "{ name: out, kind: vlan, vlan: { id: 10 } }, { name: in, kind: vlan, vlan: { id: 10 } }",
    "{ name: ens1, vlan: [ out ] }, { name: out, vlan: [ in ] }"
)]
#[case::vlan_on_a_bridge(
    "{ name: v, kind: vlan, vlan: { id: 10 } }, { name: br, kind: bridge }",
    "{ name: ens1, bridge: br }, { name: br, vlan: [ v ] }"
)]
#[case::bond_in_a_bridge(
    "{ name: b, kind: bond }, { name: br, kind: bridge, bridge: { stp: true, forwardDelaySec: 2s } }",
    r#"{ macAddress: "52:54:00:12:34:56", bond: b }, { name: b, bridge: br }"#
)]
#[case::routes("", r#"{ name: ens1, addresses: [ 10.0.0.5/24, "fd00::5/64" ], routes: [ { destination: 10.1.0.0/16, gateway: 10.0.0.9, metric: 5, preferredSource: 10.0.0.5 }, { destination: "::/0", gateway: "fe80::1" }, { destination: 10.9.0.0/16 }, { destination: 0.0.0.0/0, gateway: 192.0.2.1, gatewayOnLink: true } ] }"#)]
#[case::dhcp(
    "",
    "{ name: ens1, dhcp: yes, routes: [ { destination: 10.1.0.0/16, gateway: 10.0.0.9 } ], dhcpV4: { sendOption: [ '60:string:a b' ], requestOptions: [ 121 ], userClass: [ x ], hostname: edge } }"
)]
#[case::a_gateway_beside_dhcp("", "{ name: ens1, dhcp: ipv4, gateway: 10.0.0.1 }")]
#[case::by_driver(
    "",
    "{ driver: mlx5_core, dhcp: ipv6, ipv6AcceptRA: true, dhcpV6: { withoutRA: solicit }, domains: [ site.example, '~internal.example', '~.' ] }"
)]
fn networks_that_the_field_has_are_taken(#[case] netdevs: &str, #[case] items: &str) {
    assert_eq!(told(&format!("networks: {{ netdevs: [ {netdevs} ], interfaces: [ {items} ] }}")), Vec::<String>::new());
}

#[rstest]
#[case::no_parts("{ name: b, kind: bond }", "", "no item of `interfaces` is a part of `b`")]
#[case::vlan_on_nothing("{ name: v, kind: vlan, vlan: { id: 1 } }", "", "no item of `interfaces` is a part of `v`")]
#[case::vlan_on_two(
    "{ name: v, kind: vlan, vlan: { id: 1 } }",
    "{ name: a, vlan: [ v ] }, { name: c, vlan: [ v ] }",
    "lies on several interfaces"
)]
#[case::no_number("{ name: v, kind: vlan }", "{ name: a, vlan: [ v ] }", "the VLAN `v` has no number")]
#[case::number("{ name: v, kind: vlan, vlan: { id: 4095 } }", "{ name: a, vlan: [ v ] }", "`4095` is no VLAN")]
#[case::one_number_twice(
    "{ name: v, kind: vlan, vlan: { id: 7 } }, { name: w, kind: vlan, vlan: { id: 7 } }",
    "{ name: a, vlan: [ v, w ] }",
    "`w` has the number of `v`"
)]
#[case::other_kind(
    "{ name: v, kind: vlan, vlan: { id: 7 }, bond: { mode: 802.3ad } }",
    "{ name: a, vlan: [ v ] }",
    "settings of a bond, and `v` is a vlan"
)]
#[case::long("{ name: a-name-of-16-cha, kind: bridge }", "", "`a-name-of-16-cha` is no name of an interface")]
#[case::own("{ name: cni0, kind: bridge }", "", "names that begin with `cni`")]
#[case::name_twice("{ name: x, kind: bridge }, { name: x, kind: bridge }", "", "the name of an earlier item")]
#[case::rate(
    "{ name: b, kind: bond, bond: { mode: active-backup, lacpTransmitRate: fast } }",
    CARD,
    "`networks.netdevs[0].bond.lacpTransmitRate`: mode `active-backup` has no such setting"
)]
#[case::hash(
    "{ name: b, kind: bond, bond: { transmitHashPolicy: layer3+4 } }",
    CARD,
    "mode `balance-rr` has no such setting"
)]
#[case::arp_with_lacp(
    "{ name: b, kind: bond, bond: { mode: 802.3ad, arpIntervalSec: 1s, arpIPTargets: [ 10.0.0.1 ] } }",
    CARD,
    "no such setting"
)]
#[case::half_arp("{ name: b, kind: bond, bond: { mode: active-backup, arpIntervalSec: 1s } }", CARD, "need each other")]
#[case::both_monitors(
    "{ name: b, kind: bond, bond: { miiMonitorSec: 1s, arpIntervalSec: 1s, arpIPTargets: [ 10.0.0.1 ] } }",
    CARD,
    "links are looked at, and ARP is asked"
)]
#[case::time("{ name: b, kind: bond, bond: { miiMonitorSec: often } }", CARD, "`often` is no time")]
#[case::milliseconds(
    "{ name: b, kind: bond, bond: { miiMonitorSec: \"100\" } }",
    CARD,
    "`100` without a unit is 100 seconds"
)]
#[case::no_bond("", CARD, "no item of `netdevs` is called `b`")]
#[case::no_such_kind("{ name: b, kind: bridge }", CARD, "`b` is a bridge")]
#[case::part_with_address(
    "{ name: b, kind: bond }",
    r#"{ macAddress: "52:54:00:12:34:56", bond: b, addresses: [ 10.0.0.5/24 ] }"#,
    "has no `addresses` of its own"
)]
#[case::part_with_vlan(
    "{ name: b, kind: bond }, { name: v, kind: vlan, vlan: { id: 1 } }",
    "{ name: a, bond: b, vlan: [ v ] }",
    "has no `vlan` of its own"
)]
#[case::two_masters(
    "{ name: b, kind: bond }, { name: br, kind: bridge }",
    "{ name: a, bond: b, bridge: br }",
    "a part of a bond and of a bridge"
)]
#[case::bond_in_bond(
    "{ name: b, kind: bond }, { name: c, kind: bond }",
    "{ name: a, bond: c }, { name: c, bond: b }",
    "a bond cannot be a part of the bond `b`"
)]
#[case::itself("{ name: v, kind: vlan, vlan: { id: 1 } }", "{ name: v, vlan: [ v ] }", "`v` is a part of itself")]
#[case::primary(
    "{ name: b, kind: bond, bond: { mode: 802.3ad } }",
    "{ name: a, bond: b, primarySlave: true }",
    "prefers no part"
)]
#[case::primary_of_nothing("", "{ name: a, primarySlave: true }", "no bond can prefer")]
#[case::about_nothing("", "{ addresses: [ 10.0.0.5/24 ] }", "is about no interface")]
#[case::pattern_with_address("", r#"{ name: "eno*", addresses: [ 10.0.0.5/24 ] }"#, "can match several cards")]
#[case::driver_with_address("", "{ driver: igb, addresses: [ 10.0.0.5/24 ] }", "can match several cards")]
#[case::item_twice(
    "",
    "{ name: a, mtuBytes: 1500 }, { name: a, dhcp: yes }",
    "`a` stands at `networks.interfaces[0].name` already"
)]
#[case::netdev_by_mac("{ name: br, kind: bridge }", r#"{ name: br, macAddress: "52:54:00:12:34:56" }"#, "not a card")]
#[case::mtu("", "{ name: a, mtuBytes: 60 }", "`60` is no MTU")]
#[case::mtu_6("", r#"{ name: a, mtuBytes: 1000, addresses: [ "fd00::5/64" ] }"#, "too little for IPv6")]
#[case::mtu_of_vlan(
    "{ name: v, kind: vlan, vlan: { id: 1 } }",
    "{ name: a, vlan: [ v ], mtuBytes: 1500 }, { name: v, mtuBytes: 9000 }",
    "`v` on it has 9000"
)]
#[case::mtu_of_part(
    "{ name: b, kind: bond }",
    "{ name: a, bond: b, mtuBytes: 1500 }, { name: b, mtuBytes: 9000 }",
    "the bond `b` has 9000"
)]
#[case::route_from_within(
    "",
    "{ name: a, addresses: [ 10.0.0.5/24 ], routes: [ { destination: 10.1.2.3/16, gateway: 10.0.0.1 } ] }",
    "expected the network: `10.1.0.0/16`"
)]
#[case::route_outside(
    "",
    "{ name: a, addresses: [ 10.0.0.5/24 ], routes: [ { destination: 10.1.0.0/16, gateway: 10.7.0.1 } ] }",
    "lies outside of 10.0.0.0/24"
)]
#[case::route_of_two(
    "",
    r#"{ name: a, addresses: [ 10.0.0.5/24 ], routes: [ { destination: 10.1.0.0/16, gateway: "fd00::1" } ] }"#,
    "one family"
)]
#[case::source(
    "",
    "{ name: a, addresses: [ 10.0.0.5/24 ], routes: [ { destination: 10.1.0.0/16, preferredSource: 10.0.0.6 } ] }",
    "no address of this interface"
)]
#[case::domain("", "{ name: a, domains: [ 'a b' ] }", "`a b` is no domain")]
#[case::dns("", "{ name: a, dns: [ 127.0.0.1 ] }", "a loopback address")]
#[case::option("", "{ name: a, dhcpV4: { sendOption: [ 'edge' ] } }", "`edge` is not valid")]
#[case::class("", r#"{ name: a, dhcpV4: { vendorClassIdentifier: "a\nDHCP=no" } }"#, "several lines")]
#[case::no_dhcp(
    "",
    "{ name: a, addresses: [ 10.0.0.5/24 ], dhcpV4: { useDNS: false } }",
    "which this interface does not ask"
)]
fn networks_that_cannot_be_are_told(#[case] netdevs: &str, #[case] items: &str, #[case] why: &str) {
    let told = told(&format!("networks: {{ netdevs: [ {netdevs} ], interfaces: [ {items} ] }}"));
    assert!(told.len() == 1 && told[0].contains(why), "{told:#?}");
}

/// Of two ways to one network the kernel keeps the one that it hears of last.
#[rstest]
#[case::two_gateways(
    "{ name: a, addresses: [ 10.0.0.5/24 ], gateway: 10.0.0.1 }, { name: b, addresses: [ 10.1.0.5/24 ], gateway: 10.1.0.1 }",
    &["`networks.interfaces[1].gateway`: the way to 0.0.0.0/0 stands at `networks.interfaces[0].gateway` already"]
)]
#[case::a_gateway_and_a_route(
    "{ name: a, addresses: [ \"fd00::5/64\" ], gateway: \"fd00::1\", routes: [ { destination: \"::/0\", gateway: \"fd00::2\" } ] }",
    &["`networks.interfaces[0].routes[0].destination`: the way to ::/0 stands at `networks.interfaces[0].gateway` already"]
)]
#[case::of_both_families(
    "{ name: a, addresses: [ 10.0.0.5/24, \"fd00::5/64\" ], gateway: 10.0.0.1, routes: [ { destination: \"::/0\", gateway: \"fd00::1\" } ] }",
    &[]
)]
#[case::by_metric(
    "{ name: a, addresses: [ 10.0.0.5/24 ], gateway: 10.0.0.1 }, { name: b, addresses: [ 10.1.0.5/24 ], routes: [ { destination: 0.0.0.0/0, gateway: 10.1.0.1, metric: 900 } ] }",
    &[]
)]
#[case::one_subnet_on_two_wires(
    "{ name: a, addresses: [ 10.0.0.5/24 ] }, { name: b, addresses: [ 10.0.0.6/24 ] }",
    &["`networks.interfaces[1].addresses[0]`: `10.0.0.0/24` is the subnet of `networks.interfaces[0].addresses[0]`, too"]
)]
#[case::two_addresses_of_one_subnet("{ name: a, addresses: [ 10.0.0.5/24, 10.0.0.6/24 ] }", &[])]
#[case::hosts("{ name: a, addresses: [ 10.0.0.5/32 ] }, { name: b, addresses: [ 10.0.0.6/32 ] }", &[])]
fn what_the_last_one_would_win_is_told(#[case] items: &str, #[case] expected: &[&str]) {
    let told = told(&interfaces(items));
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    assert!(told.iter().zip(expected).all(|(told, expected)| told.starts_with(expected)), "{told:#?}");
}

/// In Site, and in the definition, which has the same words.
#[rstest]
#[case::loopback("127.0.0.1/24", None, &["address"])]
#[case::multicast("224.0.0.1/24", None, &["address"])]
#[case::subnet("172.22.0.0/24", None, &["address"])]
#[case::broadcast("172.22.0.255/24", None, &["address"])]
#[case::cluster("198.18.0.1/24", None, &["address"])]
#[case::range_to_the_end("172.22.0.1/24", Some("172.22.0.10-172.22.0.255"), &["range"])]
#[case::range_from_the_start("172.22.0.9/24", Some("172.22.0.0-172.22.0.5"), &["range"])]
#[case::good("172.22.0.1/24", Some("172.22.0.2-172.22.0.254"), &[])]
fn the_servers_network_is_one_that_can_be(#[case] address: &str, #[case] range: Option<&str>, #[case] keys: &[&str]) {
    let interface = crate::servers::InterfaceChoice { mac_address: None, name: Some("ens4".to_owned()) };
    let [own, leased] = [Some(address), range].map(|text| text.map(str::to_owned));
    let servers =
        crate::servers::ServersNetwork { interface: Some(interface), address: own, range: leased, dhcp: None };
    let found = super::of_servers(&servers, &super::Path::of("services.provisioning"));
    let told: Vec<String> = found.iter().map(|finding| finding.path.to_string()).collect();
    assert_eq!(told, keys.iter().map(|key| format!("services.provisioning.{key}")).collect::<Vec<_>>(), "{found:?}");
    let range = range.map_or_else(String::new, |range| format!(", range: {range}"));
    let site = format!("networks: {{ provisioning: {{ interface: {{ name: ens4 }}, address: {address}{range} }} }}");
    assert_eq!(self::told(&site).len(), keys.len());
}

#[rstest]
#[case::own(
    "addresses: [ 172.22.0.50/24 ]",
    "172.22.0.50 in it, which stands at `networks.interfaces[0].addresses[0]`"
)]
#[case::router(
    "addresses: [ 172.22.0.1/24 ], gateway: 172.22.0.99",
    "172.22.0.99 in it, which stands at `networks.interfaces[0].gateway`"
)]
#[case::route(
    "addresses: [ 172.22.0.1/24 ], routes: [ { destination: 10.0.0.0/8, gateway: 172.22.0.20 } ]",
    "172.22.0.20 in it, which stands at `networks.interfaces[0].routes[0].gateway`"
)]
#[case::name_server(
    "addresses: [ 172.22.0.1/24 ], dns: [ 172.22.0.100 ]",
    "172.22.0.100 in it, which stands at `networks.interfaces[0].dns[0]`"
)]
fn what_is_leased_is_nobodys(#[case] card: &str, #[case] why: &str) {
    let site = |range: &str| {
        format!(
            "networks: {{ interfaces: [ {{ name: eno1, {card} }} ], \
             provisioning: {{ interface: {{ name: eno1 }}, range: {range} }} }}"
        )
    };
    let all = told(&site("172.22.0.10-172.22.0.100"));
    assert!(all.len() == 1 && all[0].contains(why), "{all:?}");
    assert_eq!(told(&site("172.22.0.101-172.22.0.200")), Vec::<String>::new());
}

#[test]
fn authorities_of_clients_are_whole_certificates() {
    let with = |pem: &str| told(&format!("access: {{ clientCa: \"{pem}\" }}"));
    let (begin, end) = ("-----BEGIN CERTIFICATE-----\\n", "-----END CERTIFICATE-----\\n");
    let one = format!("{begin}MIIB\\nAAAA\\n{end}");
    for good in [one.clone(), format!("# of the site\\n{one}{one}")] {
        assert_eq!(with(&good), Vec::<String>::new());
    }
    for bad in [
        format!("{begin}MIIB\\n"),
        format!("{begin}not base64\\n{end}"),
        format!("{begin}AAAA\\n{end}"),
        format!("{one}{begin}MIIB"),
        "-----BEGIN PRIVATE KEY-----".to_owned(),
    ] {
        assert!(with(&bad).len() == 1 && with(&bad)[0].starts_with("`access.clientCa`"), "{bad}");
    }
}

#[test]
fn words_that_systemd_networkd_does_not_know_are_refused() {
    let read = |item: &str| Site::parse(&format!("apiVersion: foothold.dev/v1\nkind: Site\nnetworks: {{ {item} }}\n"));
    for (item, why) in [
        ("interfaces: [ { name: a, dhcp: maybe } ]", "`yes`, `no`, `ipv4` or `ipv6`"),
        ("interfaces: [ { name: a, mtu: 9000 } ]", "mtuBytes"),
        ("netdevs: [ { name: b, kind: team } ]", "bond"),
        ("netdevs: [ { name: b, kind: bond, bond: { mode: lacp } } ]", "802.3ad"),
        ("netdevs: [ { name: b, kind: vlan, vlan: { id: 70000 } } ]", "line 3"),
    ] {
        let told = read(item).expect_err(item).to_string();
        assert!(told.contains(why), "{told}");
    }
    for item in ["dhcp: yes", "dhcp: true", "dhcp: no", "dhcp: false", "dhcp: ipv4"] {
        read(&format!("interfaces: [ {{ name: a, {item} }} ]")).expect(item);
    }
}

#[rstest]
#[case("a b", "no host")]
#[case("ntp.example.org iburst", "no host")]
#[case("ntp.example.org:123", "no host")]
#[case("10.0.0.300", "no host")]
#[case("-x.org", "no host")]
#[case("a..b", "no host")]
#[case("x\\ny", "no host")]
#[case("", "empty")]
#[case("224.0.1.1", "multicast")]
#[case("127.0.0.1", "loopback")]
fn time_servers_are_hosts(#[case] peer: &str, #[case] why: &str) {
    let told = told(&format!("ntp: {{ peers: [ \"{peer}\" ] }}"));
    assert!(told.len() == 1 && told[0].contains(why), "{told:?}");
}

#[test]
fn hosts_name_servers_and_planes_are_checked() {
    let good = "ntp: { peers: [ ntp.example.org, pool_1.ntp.org., 192.0.2.1, \"2001:db8::1\", ntp ] }\nnetworks: { dns: [ 9.9.9.9, \"fe80::1\" ], controlPlane: { cidrs: [ 0.0.0.0/0, 10.0.0.0/8 ] } }";
    assert_eq!(told(good), Vec::<String>::new());
    let bad = told(
        "networks: { dns: [ 127.0.0.53, 255.255.255.255, 0.0.0.0 ], controlPlane: { cidrs: [ 224.0.0.0/4, 10.0.0.0 ] } }",
    );
    assert_eq!(bad.len(), 5, "{bad:?}");
}

#[test]
fn keys_that_sign_a_site_are_those_of_minisign() {
    let good = "access: { siteKeys: [ RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3 ] }";
    assert_eq!(told(good), Vec::<String>::new());
    for bad in ["access: { siteKeys: [ RWQ ] }", "access: { siteKeys: [ \"untrusted comment: a key\" ] }"] {
        assert!(told(bad)[0].contains("`access.siteKeys[0]`"), "{bad}");
    }
}

#[test]
fn access_that_nobody_has_is_refused_with_its_place() {
    let blob = "AAAAC3NzaC1lZDI1NTE5AAAAIHUj2nTRtTBGTKkZEZyEw4c3DPZi3s4aPbLy7KIw2Xx3";
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let good = format!("access: {{ tokenSha256: {hash}, sshAuthorizedKeys: [ \"ssh-ed25519 {blob} me\" ] }}");
    assert_eq!(told(&good), Vec::<String>::new());
    let zeros = "0".repeat(64);
    let told = told(&format!(
        "access: {{ tokenSha256: \"{zeros}\", sshAuthorizedKeys: [ \"ssh-ed25519 {blob}\", \"ssh-dss {blob}\", \"ssh-ed25519 AAAA... me\" ] }}"
    ));
    let why =
        ["`access.tokenSha256`: this is a placeholder", "Keys[1]`: sshd takes no keys", "Keys[2]`: this public key is"];
    assert!(told.len() == 3 && told.iter().zip(why).all(|(told, why)| told.contains(why)), "{told:#?}");
}

/// The servers' address would be on a card that the kernel takes for a bond or a bridge.
#[rstest]
#[case::by_name(
    "{ name: eno2, bond: b }, { name: eno3, bond: b }",
    "name: eno2",
    Some("name`: `eno2` is a part of the bond `b`, expected `b`")
)]
#[case::by_pattern("{ name: \"eno*\", bond: b }", "name: eno2", Some("`eno2` is a part of the bond `b`"))]
#[case::bridge("{ name: eno3, bond: b }, { name: b, bridge: br }", "name: b", Some("`b` is a part of the bridge `br`"))]
#[case::by_mac(
    "{ macAddress: \"52:54:00:12:34:56\", bond: b }",
    "macAddress: \"52:54:00:12:34:56\"",
    Some("macAddress`: `52:54:00:12:34:56` is a part of the bond `b`")
)]
#[case::pattern("{ name: eno3, bond: b }", "name: \"eno*\"", Some("name`: `eno*` is no name of an interface"))]
#[case::the_bond("{ name: \"*\", bond: b }", "name: b", None)]
#[case::another_card("{ name: \"eno*\", bond: b }", "name: ens1", None)]
#[case::an_item_of_its_own("{ name: \"eno*\", bond: b }, { name: eno2, mtuBytes: 9000 }", "name: eno2", None)]
#[case::an_item_beside("{ name: eno3, bond: b }, { name: \"ens*\", mtuBytes: 9000 }", "name: ens2", None)]
fn the_servers_card_is_no_part_of_another(#[case] items: &str, #[case] card: &str, #[case] why: Option<&str>) {
    let netdevs = "{ name: b, kind: bond }, { name: br, kind: bridge }";
    let told = told(&format!(
        "networks: {{ netdevs: [ {netdevs} ], interfaces: [ {items} ], provisioning: {{ interface: {{ {card} }}, address: 172.22.0.1/24 }} }}"
    ));
    assert_eq!(told.len(), usize::from(why.is_some()), "{told:#?}");
    assert!(why.is_none_or(|why| told[0].contains(why)), "{told:#?}");
}

/// What lies on an interface fits into it, also where nothing is said of that.
#[rstest]
#[case::card(
    "{ name: a, vlan: [ v ] }, { name: v, mtuBytes: 9000 }",
    Some("[0].mtuBytes`: no MTU is said, which means 1500, and `v` on it has 9000")
)]
#[case::by_mac(
    "{ macAddress: \"52:54:00:12:34:56\", vlan: [ v ] }, { name: v, mtuBytes: 1501 }",
    Some("1501 at least")
)]
#[case::bond(
    "{ name: a, bond: b, mtuBytes: 9000 }, { name: b, vlan: [ v ] }, { name: v, mtuBytes: 9000 }",
    Some("[1].mtuBytes`")
)]
#[case::bridge(
    "{ name: a, bridge: br }, { name: br, vlan: [ v ] }, { name: v, mtuBytes: 9000 }",
    Some("[1].mtuBytes`")
)]
#[case::said("{ name: a, vlan: [ v ], mtuBytes: 9000 }, { name: v, mtuBytes: 9000 }", None)]
#[case::usual("{ name: a, vlan: [ v ] }, { name: v, mtuBytes: 1500 }", None)]
#[case::said_of_the_bond(
    "{ name: a, bond: b }, { name: b, vlan: [ v ], mtuBytes: 9000 }, { name: v, mtuBytes: 9000 }",
    None
)]
#[case::said_of_the_ports(
    "{ name: a, bridge: br, mtuBytes: 9000 }, { name: br, vlan: [ v ] }, { name: v, mtuBytes: 9000 }",
    None
)]
#[case::said_by_dhcp(
    "{ name: a, vlan: [ v ], dhcp: ipv4, dhcpV4: { useMTU: true } }, { name: v, mtuBytes: 9000 }",
    None
)]
fn a_vlan_is_not_wider_than_what_it_lies_on(#[case] items: &str, #[case] why: Option<&str>) {
    let made = |name: &str, kind: &str| {
        items.contains(&format!("name: {name},")).then(|| format!("{{ name: {name}, kind: {kind} }},"))
    };
    let others: String = [made("b", "bond"), made("br", "bridge")].into_iter().flatten().collect();
    let netdevs = format!("{others} {{ name: v, kind: vlan, vlan: {{ id: 7 }} }}");
    let told = told(&format!("networks: {{ netdevs: [ {netdevs} ], interfaces: [ {items} ] }}"));
    assert_eq!(told.len(), usize::from(why.is_some()), "{told:#?}");
    assert!(why.is_none_or(|why| told[0].contains(why)), "{told:#?}");
}

#[test]
fn networks_of_the_cluster_are_told_wherever_they_stand() {
    let text = "apiVersion: foothold.dev/v1\nkind: Site\nnetworks: { dns: [ 10.96.0.10 ], controlPlane: { cidrs: [ 10.0.0.0/8 ] }, \
                interfaces: [ { macAddress: \"52:54:00:12:34:56\", addresses: [ 10.244.3.1/24 ] } ] }\n";
    let site = Site::parse(text).expect("a Site");
    let clusters = [("podCIDR", "10.244.0.0/16"), ("serviceCIDR", "10.96.0.0/12")];
    let clusters = clusters.map(|(name, text)| (name, Cidr::parse(text).expect("a CIDR")));
    let found = against_cluster(&site, &clusters);
    assert_eq!(found.iter().map(|finding| finding.warning).collect::<Vec<_>>(), [true, true, false, false]);
    let text = "apiVersion: foothold.dev/v1\nkind: Site\nntp: { peers: [ 10.96.0.1, ntp.example.org ] }\nnetworks: { \
                interfaces: [ { name: a, addresses: [ 10.0.0.5/24 ], dns: [ 10.244.0.9 ], gateway: 10.0.0.1, \
                routes: [ { destination: 10.244.3.0/24, gateway: 10.0.0.9 }, { destination: 172.16.0.0/12, gateway: 10.0.0.9 }, \
                { destination: \"::/0\", gateway: \"fe80::1\", gatewayOnLink: true } ] } ] }\n";
    let site = Site::parse(text).expect("a Site");
    let found: Vec<_> = against_cluster(&site, &clusters).iter().map(|finding| finding.path.to_string()).collect();
    let expected = ["networks.interfaces[0].routes[0].destination", "networks.interfaces[0].dns[0]", "ntp.peers[0]"];
    assert_eq!(found, expected);
}
