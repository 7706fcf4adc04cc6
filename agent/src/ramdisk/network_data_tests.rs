//! What network data become.

use proptest::prelude::{any, proptest};

use super::{NetworkData, prefix_of};

const WHOLE: &str = r#"{
        "links": [
            {"id": "nic0", "type": "phy", "ethernet_mac_address": "52:54:00:AA:00:01", "mtu": 9000},
            {"id": "nic1", "type": "phy", "ethernet_mac_address": "52:54:00:aa:00:02"},
            {"id": "nic2", "type": "phy", "ethernet_mac_address": "52:54:00:aa:00:03"},
            {"id": "pair", "type": "bond", "bond_links": ["nic1", "nic2"], "bond_mode": "802.3ad", "bond_miimon": 50},
            {"id": "tagged", "type": "vlan", "vlan_link": "pair", "vlan_id": 42}
        ],
        "networks": [
            {"id": "a", "link": "nic0", "type": "ipv4", "ip_address": "172.22.0.20", "netmask": "255.255.255.0",
             "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "172.22.0.1"}],
             "services": [{"type": "dns", "address": "172.22.0.53"}]},
            {"id": "b", "link": "tagged", "type": "ipv6", "ip_address": "fd00::20/64", "routes": []},
            {"id": "c", "link": "tagged", "type": "ipv4_dhcp"}
        ],
        "services": [{"type": "dns", "address": "172.22.0.1"}, {"type": "ntp", "address": "here"}]
    }"#;

fn units(text: &str) -> Result<Vec<(String, String)>, String> {
    let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let data = NetworkData::read(&value).map_err(|error| error.to_string())?;
    data.units("10-ironic-").map_err(|error| error.to_string())
}

#[test]
fn cards_bonds_and_vlans_get_their_addresses() {
    let text = units(WHOLE)
        .expect("good")
        .into_iter()
        .fold(String::new(), |text, (name, unit)| text + &format!("# {name}\n{unit}\n"));
    insta::assert_snapshot!(text);
}

#[test]
fn what_cannot_be_meant_is_named() {
    for (from, to, said) in [
        ("52:54:00:AA:00:01", "nowhere", "`ethernet_mac_address`: found `nowhere`"),
        ("172.22.0.20", "172.22.0", "`ip_address`: found `172.22.0`"),
        ("255.255.255.0", "255.0.255.0", "`netmask`: found `255.0.255.0`"),
        ("\"vlan_link\": \"pair\"", "\"vlan_link\": \"nic9\"", "`links.vlan_link`: found `nic9`, which no link has"),
        ("\"nic1\", \"nic2\"", "\"nic1\", \"nic9\"", "`links.bond_links`: found `nic9`, which no link has"),
        ("\"nic1\", \"nic2\"", "", "`links.bond_links`: found `[]`, expected the ids"),
        ("\"link\": \"nic0\"", "\"link\": \"nic9\"", "`networks.link`: found `nic9`, which no link has"),
        ("\"link\": \"nic0\", ", "", "`networks.link`: found nothing, expected the `id`"),
        ("802.3ad", "lacp", "`links.bond_mode`: found `lacp` as `mode`, expected one of `balance-rr`, "),
        ("802.3ad", "7", "`links.bond_mode`: found `7`"),
        ("\"bond_miimon\": 50", "\"bond_fail_over_mac\": \"3\"", "found `3` as `fail_over_mac`"),
        ("\"vlan_id\": 42", "\"vlan_id\": 4095", "`links.vlan_id`"),
        ("802.3ad", "802\\nName=x", "`links.bond_mode`"),
        ("\"id\": \"nic1\"", "\"id\": \"nic0\"", "`links.id`: found `nic0`"),
        ("172.22.0.53", "dns.example", "`services.address`: found `dns.example`"),
        (
            "\"type\": \"ipv4\"",
            "\"type\": \"ipv5\"",
            "`networks.type` of the network `a`: found `ipv5`, expected one of `ipv4`",
        ),
        ("\"type\": \"ipv4\", ", "", "`networks.type` of the network `a`: found nothing"),
        ("\"ip_address\": \"172.22.0.20\", ", "", "`networks.ip_address` of the network `a`: found nothing"),
        ("\"fd00::20/64\"", "null", "`networks.ip_address` of the network `b`: found nothing"),
        ("\"mtu\": 9000", "\"mtu\": 67", "`links.mtu` of the link `nic0`: found `67`, expected 68 to 65535"),
        ("\"mtu\": 9000", "\"mtu\": 65536", "`links.mtu` of the link `nic0`: found `65536`"),
        (
            "\"vlan_id\": 42",
            "\"vlan_id\": 42, \"mtu\": 1501",
            "`links.mtu` of the link `tagged`: found `1501`, expected at most the 1500 of `pair`",
        ),
        (
            "\"bond_miimon\": 50",
            "\"bond_primary\": \"nic0\"",
            "`links.bond_primary` of the link `pair`: found `nic0`, expected one of its",
        ),
        (
            "\"bond_links\": [\"nic1\"",
            "\"bond_links\": [\"nic2\"",
            "`links.bond_links` of the link `pair`: found `nic2`",
        ),
        (
            "{\"id\": \"tagged\"",
            "{\"id\": \"other\", \"type\": \"bond\", \"bond_links\": [\"nic0\", \"nic1\"]}, {\"id\": \"tagged\"",
            "`links.bond_links` of the link `other`: found `nic1`, expected a card of its own, for that one is a part of `pair`",
        ),
        (
            "52:54:00:aa:00:03",
            "52:54:00:AA:00:02",
            "`links.ethernet_mac_address` of the link `nic2`: found `52:54:00:AA:00:02`, expected a MAC address of its own, for that is the one of `nic1`",
        ),
        (
            "\"vlan_link\": \"pair\"",
            "\"vlan_link\": \"tagged\"",
            "`links.vlan_link` of the link `tagged`: found `tagged`, expected links that do not lie on this one themselves",
        ),
        (
            "\"nic1\", \"nic2\"",
            "\"nic1\", \"tagged\"",
            "`links.bond_links` of the link `pair`: found `nic1`, `tagged`, expected links that do not lie on this one",
        ),
        (
            "\"bond_miimon\": 50",
            "\"ethernet_mac_address\": \"here\"",
            "`ethernet_mac_address`: found `here`, expected a MAC address",
        ),
        (
            "\"routes\": []",
            "\"gateway\": \"fd00::x\"",
            "`networks.gateway` of the network `b`: found `fd00::x`, expected an address",
        ),
        ("\"routes\": []", "\"dns_nameservers\": [\"a\"]", "`networks.dns_nameservers` of the network `b`: found `a`"),
        ("\"routes\": []", "\"dns_nameservers\": [1]", "found `1`, expected a list of texts"),
        ("\"routes\": []", "\"dns_search\": [\"a\\nDHCP=yes\"]", "`networks.dns_search` of the network `b`"),
        ("\"routes\": []", "\"metric\": \"low\"", "found `low`, expected a number"),
    ] {
        let error = units(&WHOLE.replacen(from, to, 1)).expect_err(to);
        assert!(error.contains(said), "{error}");
    }
}

/// As CAPM3 writes it: names of links as the kernel has them, name servers below routes, masks of IPv6.
#[test]
fn what_capm3_writes_is_understood() {
    let text = r#"{
            "links": [
                {"id": "eno1", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01", "mtu": 9000},
                {"id": "eno2", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:02", "mtu": 9000},
                {"id": "bond0", "type": "bond", "bond_links": ["eno1", "eno2"], "bond_mode": "802.3ad", "mtu": 9000,
                 "ethernet_mac_address": "52:54:00:00:00:01", "bond_xmit_hash_policy": "layer3+4", "bond_lacp_rate": "fast",
                 "bond_min_links": 1, "bond_primary": "eno1"},
                {"id": "bond0.100", "type": "vlan", "vlan_link": "bond0", "vlan_id": "100", "vlan_mac_address": "52:54:00:00:00:64"},
                {"id": "a name that is too long for the kernel", "type": "vlan", "vlan_link": "bond0", "vlan_id": 200}
            ],
            "networks": [
                {"id": "v4", "link": "bond0.100", "type": "ipv4", "ip_address": "10.1.0.9", "netmask": "255.255.255.0",
                 "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.1.0.1",
                             "services": [{"type": "dns", "address": "10.1.0.53"}]}]},
                {"id": "v6", "link": "bond0.100", "type": "ipv6", "ip_address": "fd00:1::9", "netmask": "ffff:ffff:ffff:ffff::",
                 "routes": [{"network": "::", "netmask": "::", "gateway": "fd00:1::1"}]},
                {"id": "ra", "link": "a name that is too long for the kernel", "type": "ipv6_slaac", "routes": null}
            ],
            "services": [{"type": "dns", "address": "10.1.0.53"}]
        }"#;
    let units = units(text).expect("good");
    let of =
        |name: &str| units.iter().find(|(found, _)| found == name).map(|(_, text)| text.as_str()).unwrap_or_default();
    let all = |name: &str, lines: &[&str]| {
        for line in lines {
            assert!(of(name).contains(&format!("{line}\n")), "{name} has no `{line}`:\n{}", of(name));
        }
    };
    all("10-ironic-00.network", &["MTUBytes=9000", "Bond=bond0", "PrimarySlave=yes", "DHCP=no"]);
    all(
        "10-ironic-02.netdev",
        &["Name=bond0", "Mode=802.3ad", "TransmitHashPolicy=layer3+4", "LACPTransmitRate=fast", "MinLinks=1"],
    );
    all("10-ironic-02.network", &["VLAN=bond0.100", "VLAN=vlan4"]);
    all("10-ironic-03.netdev", &["Name=bond0.100", "Id=100", "MACAddress=52:54:00:00:00:64"]);
    all(
        "10-ironic-03.network",
        &["Address=10.1.0.9/24", "Address=fd00:1::9/64", "DNS=10.1.0.53", "Destination=0.0.0.0/0", "Destination=::/0"],
    );
    all("10-ironic-04.network", &["IPv6AcceptRA=yes", "DHCP=no"]);
    assert_eq!(of("10-ironic-03.network").matches("DNS=").count(), 1);
}

/// One that is called by its place among the links does not take the name of another.
#[test]
fn no_two_links_are_called_the_same() {
    let text = r#"{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"},
        {"id": "the network of the storage", "type": "vlan", "vlan_link": "a", "vlan_id": 7},
        {"id": "vlan1", "type": "vlan", "vlan_link": "a", "vlan_id": 8},
        {"id": "the network of the tenants", "type": "vlan", "vlan_link": "a", "vlan_id": 9}]}"#;
    let units = units(text).expect("good");
    let names = units.iter().filter(|(file, _)| file.ends_with("netdev"));
    let names: Vec<&str> = names.filter_map(|(_, text)| text.lines().nth(1)).collect();
    assert_eq!(names, ["Name=vlan2", "Name=vlan1", "Name=vlan3"]);
}

/// The kernel takes numbers for a bond's words, and files have them; systemd-networkd takes the words alone.
#[test]
fn numbers_of_a_bonds_words_are_told_as_words() {
    let bond = |more: &str| {
        let text = WHOLE.replace("\"bond_mode\": \"802.3ad\", \"bond_miimon\": 50", more);
        units(&text).expect(more).into_iter().find(|(name, _)| name == "10-ironic-03.netdev").expect("a bond").1
    };
    for (written, expected) in [
        ("\"bond_mode\": \"4\"", "Mode=802.3ad"),
        ("\"bond_mode\": 1", "Mode=active-backup"),
        ("\"bond_mode\": \"Active-Backup\"", "Mode=active-backup"),
        ("\"bond_xmit_hash_policy\": \"1\"", "TransmitHashPolicy=layer3+4"),
        ("\"bond_xmit_hash_policy\": \"vlan+srcmac\"", "TransmitHashPolicy=vlan+srcmac"),
        ("\"bond_lacp_rate\": 1", "LACPTransmitRate=fast"),
        ("\"bond_fail_over_mac\": \"2\"", "FailOverMACPolicy=follow"),
        ("\"bond_ad_select\": \"bandwidth\"", "AdSelect=bandwidth"),
        ("\"bond_primary_reselect\": 2", "PrimaryReselectPolicy=failure"),
        ("\"bond_arp_validate\": 3", "ARPValidate=all"),
        ("\"bond_arp_all_targets\": \"0\"", "ARPAllTargets=any"),
        ("\"bond_arp_ip_target\": \"10.0.0.1,10.0.0.2\"", "ARPIPTargets=10.0.0.1 10.0.0.2"),
        ("\"bond_updelay\": 200", "UpDelaySec=200ms"),
    ] {
        let text = bond(written);
        assert!(text.lines().any(|line| line == expected), "{written}: {text}");
    }
}

/// As cloud-init takes them, which the same files were written for.
#[test]
fn addresses_and_routes_without_a_mask_have_the_usual_one() {
    let text = r#"{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}],
            "networks": [
                {"id": "0", "link": "a", "type": "ipv4", "ip_address": "10.1.0.9", "netmask": null,
                 "routes": [{"network": "0.0.0.0", "gateway": "10.1.0.1"}, {"network": "10.9.0.1", "netmask": "", "gateway": "10.1.0.2"}]},
                {"id": "1", "link": "a", "type": "ipv6", "ip_address": "fd00::9", "routes": [{"network": "::", "gateway": "fd00::1"}]},
                {"id": "2", "link": "a", "type": "ipv4", "ip_address": "10.2.0.9/255.255.0.0"}]}"#;
    let unit = units(text).expect("good").remove(0).1;
    let of = |key: &str| unit.lines().filter_map(|line| line.strip_prefix(key)).collect::<Vec<_>>().join(" ");
    assert_eq!(of("Address="), "10.1.0.9/24 fd00::9/64 10.2.0.9/16");
    assert_eq!(of("Destination="), "0.0.0.0/0 10.9.0.1/32 ::/0");
}

/// What cloud-init reads of a network beside the schema, and what ICN and templates of Airship write.
#[test]
fn gateways_name_servers_and_metrics_of_a_network_are_those_of_its_link() {
    let unit = |networks: &str| {
        let card = r#"{"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}"#;
        units(&format!(r#"{{"links": [{card}], "networks": [{networks}]}}"#)).expect(networks).remove(0).1
    };
    let of =
        |unit: &str, key: &str| unit.lines().filter_map(|line| line.strip_prefix(key)).collect::<Vec<_>>().join(" ");
    let text = unit(
        r#"{"id": "0", "link": "a", "type": "ipv4", "ip_address": "10.1.0.9/24", "gateway": "10.1.0.1",
            "dns_nameservers": ["10.1.0.53", "10.1.0.54 10.1.0.55"], "dns_search": "site.example ~example.org",
            "services": [{"type": "dns", "address": "10.1.0.53"}]},
           {"id": "1", "link": "a", "type": "static6", "ip_address": "fd00::9/64", "gateway": "fd00::1", "metric": "50",
            "routes": [{"network": "fd01::/64", "gateway": "fd00::2", "metric": 7}]}"#,
    );
    assert_eq!(of(&text, "DNS="), "10.1.0.53 10.1.0.54 10.1.0.55");
    assert_eq!(of(&text, "Domains="), "site.example ~example.org");
    assert!(text.contains("Address=fd00::9/64\nGateway=10.1.0.1\n"), "{text}");
    assert!(text.contains("\n[Route]\nDestination=::/0\nGateway=fd00::1\nMetric=50\n"), "{text}");
    assert!(text.contains("\n[Route]\nDestination=fd01::/64\nGateway=fd00::2\nMetric=7\n"), "{text}");
    let text = unit(
        r#"{"id": "0", "link": "a", "type": "ipv4_dhcp", "metric": 90, "gateway": "", "dns_nameservers": null},
           {"id": "1", "link": "a", "type": "ipv6_slaac", "metric": 80}"#,
    );
    assert!(text.contains("[DHCPv4]\nClientIdentifier=mac\nRouteMetric=90\n"), "{text}");
    assert!(text.contains("[IPv6AcceptRA]\nRouteMetric=80\n") && !text.contains("Gateway"), "{text}");
}

#[test]
fn a_type_says_who_gives_the_addresses() {
    for (kind, dhcp, listens) in [
        ("ipv4", "no", "no"),
        ("ipv6", "no", "no"),
        ("static", "no", "no"),
        ("static6", "no", "no"),
        ("bridge", "no", "no"),
        ("ipv4_dhcp", "ipv4", "no"),
        ("dhcp", "ipv4", "no"),
        ("dhcp4", "ipv4", "no"),
        ("ipv6_dhcp", "ipv6", "yes"),
        ("dhcp6", "ipv6", "yes"),
        ("ipv6_slaac", "no", "yes"),
        ("ipv6_dhcpv6-stateful", "no", "yes"),
        ("ipv6_dhcpv6-stateless", "no", "yes"),
    ] {
        let text = format!(
            r#"{{"links": [{{"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01", "mtu": 65535}}],
                "networks": [{{"id": "n", "link": "a", "type": "{kind}", "ip_address": "fd00::9"}}]}}"#
        );
        let unit = units(&text).expect(kind).remove(0).1;
        assert!(unit.contains(&format!("\nDHCP={dhcp}\nIPv6AcceptRA={listens}\n")), "{kind}: {unit}");
    }
}

#[test]
fn files_of_other_programs_are_refused_in_words() {
    for (text, whose) in [
        (r#"{"network": {"version": 2, "ethernets": {}}}"#, "netplan"),
        (r#"{"version": 2, "ethernets": {"eno1": {"dhcp4": true}}}"#, "netplan"),
        (r#"{"version": 1, "config": []}"#, "cloud-init"),
        (r#"{"interfaces": [], "dns-resolver": {}}"#, "nmstate"),
        (r#"{"anything": 1}"#, "none of its parts"),
    ] {
        let said = units(text).expect_err(whose);
        assert!(said.contains(whose) && said.contains("expected OpenStack's network data"), "{said}");
    }
    assert_eq!(units("{}"), Ok(Vec::new()));
    assert!(units(r#"{"links": {}}"#).is_err() && units(r#"{"links": [{"id": "a", "mtu": "wide"}]}"#).is_err());
}

#[test]
fn masks_are_prefixes() {
    for (text, prefix) in
        [("24", Some(24)), ("255.255.255.0", Some(24)), ("0.0.0.0", Some(0)), ("255.255.255.255", Some(32))]
    {
        assert_eq!(prefix_of(text), prefix, "{text}");
    }
    assert_eq!((prefix_of("ffff:ffff:ffff:ffff::"), prefix_of("::")), (Some(64), Some(0)));
    assert_eq!((prefix_of("255.0.255.0"), prefix_of("wide")), (None, None));
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(noise in any::<String>(), from in 0..1100_usize, length in 0..40_usize) {
        let _ = units(&noise);
        let cut = |at: usize| (0..=at.min(WHOLE.len())).rev().find(|at| WHOLE.is_char_boundary(*at)).unwrap_or(0);
        let _ = units(&format!("{}{noise}{}", &WHOLE[..cut(from)], &WHOLE[cut(from + length)..]));
    }
}
