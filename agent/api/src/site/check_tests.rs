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
fn keys_are_those_that_sshd_takes() {
    let blob = "AAAAC3NzaC1lZDI1NTE5AAAAIHUj2nTRtTBGTKkZEZyEw4c3DPZi3s4aPbLy7KIw2Xx3";
    for good in [
        format!("ssh-ed25519 {blob}"),
        format!("ssh-ed25519 {blob} me@example.org of mine"),
        format!("from=\"10.0.0.0/8\",no-pty ssh-ed25519 {blob} me"),
    ] {
        assert!(super::is_public_key(&good), "{good}");
    }
    for bad in [
        "ssh-ed25519".to_owned(),
        format!("ssh-unknown {blob}"),
        blob.to_owned(),
        "ssh-ed25519 me@example.org".to_owned(),
        format!("ssh-ed25519 {blob} a\nssh-ed25519 {blob} b"),
    ] {
        assert!(!super::is_public_key(&bad), "{bad}");
    }
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
}
