//! Site's networks as files of systemd-networkd. Pure text.
//!
//! ```text
//! provisioning ─► 05-site-provisioning...    the box's own address where its servers are, with what the item about that card says
//! netdevs      ─► 10-site-NAME.netdev        what is made
//! interfaces   ─► 10-site-MAC.network        one card
//!                 10-site-NAME.network       one interface by its name
//!                 15-site-NUMBER.network     cards by a pattern, or by their driver
//! ```
//!
//! The first that matches an interface is used; the image's own, by which all others ask DHCP, comes last.
//! Source: systemd.network(5), systemd.netdev(5).

use std::fmt::Write as _;

use agent_api::servers::Provisioning;
use agent_api::site::Networks;
use agent_api::site::interfaces::{
    AdSelect, Bond, BondMode, Bridge, Card, ClientIdentifier, Dhcp, DhcpV4, DhcpV6, FailOverMac, Interface, LacpRate,
    Netdev, NetdevKind, Route, TransmitHashPolicy, WithoutRa,
};

/// The file of the servers' network: before those of Site.
const SERVERS: &str = "05-site-provisioning.network";
/// How often a bond looks at its links, unless said.
const MII_MONITOR: &str = "100ms";

/// All files: names and texts. `cards`: those that the box has; what is not known of them is what the kernel has not found yet.
pub fn units(networks: &Networks, servers: Option<&Provisioning>, cards: &[Card]) -> Vec<(String, String)> {
    let mut units: Vec<_> =
        networks.netdevs.iter().map(|one| (format!("10-site-{}.netdev", one.name), netdev(one))).collect();
    // What is made and has no item has one that says nothing more.
    let has_item = |netdev: &&Netdev| networks.interfaces.iter().any(|one| one.name.as_ref() == Some(&netdev.name));
    let others = networks.netdevs.iter().filter(|netdev| !has_item(netdev));
    let others = others.map(|netdev| Interface { name: Some(netdev.name.clone()), ..Interface::default() });
    let mut items: Vec<Interface> = networks.interfaces.iter().cloned().chain(others).collect();
    for item in items.iter_mut().filter(|item| !item.addresses.is_empty()) {
        item.dns.extend(&networks.dns);
    }
    let is_made = |item: &Interface| networks.netdevs.iter().any(|netdev| item.name.as_ref() == Some(&netdev.name));
    if let Some(merged) = servers.and_then(|servers| of_servers(&items, servers, cards)) {
        units.push((SERVERS.to_owned(), network(&merged, is_made(&merged), true)));
    }
    units.extend(
        items.iter().enumerate().map(|(number, item)| (file(item, number), network(item, is_made(item), false))),
    );
    units
}

/// The interface that has the box's own address where its servers are, with all that the item about it says: of two files about
/// one card only the first is read.
fn of_servers(items: &[Interface], servers: &Provisioning, cards: &[Card]) -> Option<Interface> {
    let own = servers.address?.to_string();
    let (mac, name) = (servers.mac_address.as_deref(), servers.interface.as_deref());
    let declared = Card::of(mac, name.filter(|_| mac.is_none()));
    if declared == Card::default() {
        return None;
    }
    let is_it = |card: &&Card| if mac.is_some() { card.mac == declared.mac } else { card.name == declared.name };
    let mut item = cards.iter().find(is_it).unwrap_or(&declared).item_in(items);
    let mut by = Interface { mac_address: mac.map(str::to_owned), name: declared.name.clone(), ..Interface::default() };
    // A part of a bond or a bridge has no address: the whole has it.
    let whole = |item: Option<usize>| item.and_then(|it| items[it].bond.clone().or_else(|| items[it].bridge.clone()));
    for _ in items {
        let Some(name) = whole(item) else { break };
        item = Card::of(None, Some(&name)).item_in(items);
        by = Interface { name: Some(name), ..Interface::default() };
    }
    let said = item.map(|item| items[item].clone()).unwrap_or_default();
    let mut merged = Interface { mac_address: by.mac_address, name: by.name, driver: None, ..said };
    if !merged.addresses.contains(&own) {
        merged.addresses.push(own);
    }
    Some(merged)
}

/// The interface that a file of this name makes.
pub fn made_by(file: &str) -> Option<&str> {
    file.strip_prefix("10-site-")?.strip_suffix(".netdev")
}

fn file(interface: &Interface, number: usize) -> String {
    let whole = interface.name.as_deref().filter(|_| !interface.is_several());
    match (&interface.mac_address, whole) {
        (Some(mac), _) => format!("10-site-{}.network", mac.replace(':', "").to_ascii_lowercase()),
        (None, Some(name)) => format!("10-site-{name}.network"),
        (None, None) => format!("15-site-{number:02}.network"),
    }
}

/// `made`: it is one of `netdevs`. `without_carrier`: it has its addresses without a cable, too.
fn network(interface: &Interface, made: bool, without_carrier: bool) -> String {
    let mut text = String::from("[Match]\n");
    let by =
        [("PermanentMACAddress", &interface.mac_address), ("Name", &interface.name), ("Driver", &interface.driver)];
    for (key, value) in by {
        line(&mut text, key, value.as_deref());
    }
    if !made {
        text.push_str("Kind=!*\n");
    }
    let dhcp = interface.dhcp();
    text.push_str("\n[Link]\nRequiredForOnline=no\n");
    line(&mut text, "MTUBytes", interface.mtu_bytes);
    text.push_str("\n[Network]\n");
    if interface.dhcp.is_some() || dhcp != Dhcp::No {
        line(&mut text, "DHCP", Some(dhcp.word()));
    }
    if interface.bond.is_some() || interface.bridge.is_some() {
        text.push_str("LinkLocalAddressing=no\nIPv6AcceptRA=no\n");
    } else {
        let listens = interface.ipv6_accept_ra.or(matches!(dhcp, Dhcp::Yes | Dhcp::Ipv6).then_some(true));
        line(&mut text, "IPv6AcceptRA", listens.map(yes_or_no));
    }
    line(&mut text, "Bond", interface.bond.as_deref());
    if interface.primary_slave {
        text.push_str("PrimarySlave=yes\n");
    }
    line(&mut text, "Bridge", interface.bridge.as_deref());
    for vlan in &interface.vlan {
        line(&mut text, "VLAN", Some(vlan));
    }
    for address in &interface.addresses {
        line(&mut text, "Address", Some(address));
    }
    if without_carrier {
        text.push_str("ConfigureWithoutCarrier=yes\n");
    }
    line(&mut text, "Gateway", interface.gateway);
    for server in &interface.dns {
        line(&mut text, "DNS", Some(server));
    }
    for domain in &interface.domains {
        line(&mut text, "Domains", Some(domain));
    }
    text.push_str("LLMNR=no\nMulticastDNS=no\n");
    if matches!(dhcp, Dhcp::Yes | Dhcp::Ipv4) {
        dhcp_v4(&mut text, interface.dhcp_v4.as_ref().unwrap_or(&DhcpV4::default()));
    }
    if let Some(settings) = interface.dhcp_v6.as_ref().filter(|_| matches!(dhcp, Dhcp::Yes | Dhcp::Ipv6)) {
        dhcp_v6(&mut text, settings);
    }
    for one in &interface.routes {
        route(&mut text, one);
    }
    text
}

/// A line, where there is something to say.
fn line(text: &mut String, key: &str, value: Option<impl std::fmt::Display>) {
    if let Some(value) = value {
        let _ = writeln!(text, "{key}={value}");
    }
}

const fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn dhcp_v4(text: &mut String, dhcp: &DhcpV4) {
    let identifier = match dhcp.client_identifier.unwrap_or(ClientIdentifier::Mac) {
        ClientIdentifier::Mac => "mac",
        ClientIdentifier::Duid => "duid",
    };
    let _ = write!(text, "\n[DHCPv4]\nClientIdentifier={identifier}\nUseHostname=no\n");
    line(text, "Hostname", dhcp.hostname.as_deref());
    line(text, "VendorClassIdentifier", dhcp.vendor_class_identifier.as_deref().map(escaped));
    for class in &dhcp.user_class {
        line(text, "UserClass", Some(escaped(class)));
    }
    for option in &dhcp.request_options {
        line(text, "RequestOptions", Some(option));
    }
    for option in &dhcp.send_option {
        line(text, "SendOption", Some(escaped(option)));
    }
    let used = [
        ("UseDNS", dhcp.use_dns),
        ("UseNTP", dhcp.use_ntp),
        ("UseRoutes", dhcp.use_routes),
        ("UseGateway", dhcp.use_gateway),
        ("UseMTU", dhcp.use_mtu),
    ];
    for (key, used) in used {
        line(text, key, used.map(yes_or_no));
    }
    line(text, "RouteMetric", dhcp.route_metric);
}

/// `%` begins a specifier, `\` an escape (systemd.unit(5), systemd.syntax(7)); quotes hold words together.
fn escaped(text: &str) -> String {
    let quoted = text.replace('\\', "\\\\").replace('%', "%%").replace('"', "\\\"");
    if quoted.contains([' ', '\'', '"']) { format!("\"{quoted}\"") } else { quoted }
}

fn dhcp_v6(text: &mut String, dhcp: &DhcpV6) {
    text.push_str("\n[DHCPv6]\n");
    for (key, used) in [("UseDNS", dhcp.use_dns), ("UseNTP", dhcp.use_ntp), ("UseAddress", dhcp.use_address)] {
        line(text, key, used.map(yes_or_no));
    }
    line(text, "WithoutRA", dhcp.without_ra.map(WithoutRa::word));
}

fn route(text: &mut String, route: &Route) {
    let _ = writeln!(text, "\n[Route]\nDestination={}", route.destination);
    line(text, "Gateway", route.gateway);
    if route.gateway_on_link {
        text.push_str("GatewayOnLink=yes\n");
    }
    // IPv6 has no scopes of routes.
    if route.gateway.is_none() && !route.destination.contains(':') {
        text.push_str("Scope=link\n");
    }
    line(text, "Metric", route.metric);
    line(text, "PreferredSource", route.preferred_source);
}

fn netdev(netdev: &Netdev) -> String {
    let mut text = format!("[NetDev]\nName={}\nKind={}\n", netdev.name, netdev.kind.word());
    line(&mut text, "MACAddress", netdev.mac_address.as_deref());
    match netdev.kind {
        NetdevKind::Bond => bond(&mut text, &netdev.bond.clone().unwrap_or_default()),
        NetdevKind::Vlan => {
            text.push_str("\n[VLAN]\n");
            line(&mut text, "Id", netdev.vlan.map(|vlan| vlan.id));
        }
        NetdevKind::Bridge => {
            bridge(&mut text, &netdev.bridge.clone().unwrap_or_default());
        }
    }
    text
}

fn bond(text: &mut String, bond: &Bond) {
    text.push_str("\n[Bond]\n");
    line(text, "Mode", bond.mode.map(BondMode::word));
    line(text, "TransmitHashPolicy", bond.transmit_hash_policy.map(TransmitHashPolicy::word));
    line(text, "LACPTransmitRate", bond.lacp_transmit_rate.map(LacpRate::word));
    let monitored = bond.mii_monitor_sec.as_deref().or(bond.arp_interval_sec.is_none().then_some(MII_MONITOR));
    line(text, "MIIMonitorSec", monitored);
    line(text, "UpDelaySec", bond.up_delay_sec.as_deref());
    line(text, "DownDelaySec", bond.down_delay_sec.as_deref());
    line(text, "MinLinks", bond.min_links);
    line(text, "AdSelect", bond.ad_select.map(AdSelect::word));
    line(text, "FailOverMACPolicy", bond.fail_over_mac_policy.map(FailOverMac::word));
    line(text, "ARPIntervalSec", bond.arp_interval_sec.as_deref());
    for target in &bond.arp_ip_targets {
        line(text, "ARPIPTargets", Some(target));
    }
}

fn bridge(text: &mut String, bridge: &Bridge) {
    text.push_str("\n[Bridge]\n");
    line(text, "STP", bridge.stp.map(yes_or_no));
    line(text, "Priority", bridge.priority);
    line(text, "ForwardDelaySec", bridge.forward_delay_sec.as_deref());
}

#[cfg(test)]
mod tests {
    use agent_api::servers::Provisioning;
    use agent_api::site::Site;
    use agent_api::site::interfaces::Card;
    use rstest::rstest;

    use super::{SERVERS, made_by, units};

    /// The files of a Site with these lines.
    fn files(lines: &str, servers: Option<&Provisioning>) -> Vec<(String, String)> {
        let site = Site::parse(&format!("apiVersion: foothold.dev/v1\nkind: Site\n{lines}\n")).expect("a Site");
        units(&site.networks, servers, &[])
    }

    fn shown(files: &[(String, String)]) -> String {
        files.iter().fold(String::new(), |text, (name, file)| text + &format!("# {name}\n{file}\n"))
    }

    #[test]
    fn cards_have_the_addresses_that_site_gives_them() {
        let text = "networks:\n  dns: [ 10.0.0.2 ]\n  interfaces:\n    - macAddress: \"52:54:00:AB:CD:EF\"\n      \
                    addresses: [ 10.0.0.5/24, \"fd00::5/64\" ]\n      gateway: 10.0.0.1\n";
        insta::assert_snapshot!(shown(&files(text, None)));
    }

    #[test]
    fn bonds_vlans_and_bridges_are_those_of_site() {
        let text = r#"
networks:
  netdevs:
    - { name: bond0, kind: bond, bond: { mode: 802.3ad, lacpTransmitRate: fast, transmitHashPolicy: layer3+4, minLinks: 1 } }
    - { name: storage, kind: vlan, vlan: { id: 42 } }
    - { name: office, kind: vlan, vlan: { id: 7 } }
    - { name: machines, kind: bridge, bridge: { stp: false } }
    - { name: spare, kind: bond, bond: { mode: active-backup, arpIntervalSec: 1s, arpIPTargets: [ 10.0.0.1, 10.0.0.2 ] } }
  interfaces:
    - { macAddress: "52:54:00:00:00:01", bond: bond0 }
    - { macAddress: "52:54:00:00:00:02", bond: bond0 }
    - { name: bond0, vlan: [ storage, office ], mtuBytes: 9000 }
    - name: storage
      addresses: [ 10.1.0.5/24 ]
      routes: [ { destination: 10.2.0.0/16, gateway: 10.1.0.1, metric: 50 }, { destination: 10.3.0.0/16 } ]
      dns: [ 10.1.0.53 ]
      domains: [ storage.example, ~internal.example ]
    - { name: office, bridge: machines }
    - { name: "ens1*", bond: spare }
    - { name: ens10, bond: spare, primarySlave: true }
    - driver: ixgbe
      dhcp: ipv4
      dhcpV4: { clientIdentifier: duid, vendorClassIdentifier: edge, sendOption: [ "224:string:rack 7" ], useDNS: false, routeMetric: 100 }
    - { name: ens20, dhcp: ipv6, dhcpV6: { withoutRA: solicit } }
    - { name: ens21, dhcp: no, ipv6AcceptRA: true }
"#;
        insta::assert_snapshot!(shown(&files(text, None)));
    }

    fn servers(interface: Option<&str>, mac: Option<&str>) -> Provisioning {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let address = Some("172.22.0.1/24".parse().expect("an address"));
        Provisioning { address, interface: text(interface), mac_address: text(mac), ..Provisioning::default() }
    }

    #[test]
    fn the_box_has_its_own_address_where_the_servers_are() {
        let named = files("", Some(&servers(Some("enp2s0"), None)));
        // It comes before all others: the first file that is about a card is the only one that is read.
        assert!(named[0].0 == SERVERS && SERVERS < "10-site-525400123456.network");
        insta::assert_snapshot!(named[0].1);
        let by_mac = files("", Some(&servers(Some("enp2s0"), Some("52:54:00:12:34:56"))));
        assert!(by_mac[0].1.contains("\nPermanentMACAddress=52:54:00:12:34:56\n"));
        assert_eq!(files("", Some(&Provisioning { address: None, ..servers(Some("enp2s0"), None) })), []);
    }

    /// Of two files about one card, only the first is read: it has what the item says, and the servers' address.
    #[rstest]
    #[case::by_mac(
        "interfaces: [ { macAddress: \"52:54:00:12:34:5A\", addresses: [ 10.0.0.5/24 ] } ]",
        servers(None, Some("52:54:00:12:34:5a")),
        &["PermanentMACAddress=52:54:00:12:34:5a", "Kind=!*", "Address=10.0.0.5/24"]
    )]
    #[case::by_name(
        "interfaces: [ { name: \"eno*\", mtuBytes: 1400 }, { name: eno4, mtuBytes: 9000 } ]",
        servers(Some("eno4"), None),
        &["Name=eno4", "MTUBytes=9000"]
    )]
    #[case::made("netdevs: [ { name: br0, kind: bridge } ]", servers(Some("br0"), None), &["Name=br0"])]
    #[case::the_same_address(
        "interfaces: [ { name: ens4, addresses: [ 172.22.0.1/24 ] } ]",
        servers(Some("ens4"), None),
        &["Name=ens4"]
    )]
    #[case::by_pattern(
        "interfaces: [ { name: \"ens*\", mtuBytes: 9000, routes: [ { destination: 10.9.0.0/16 } ] } ]",
        servers(Some("ens4"), None),
        &["Name=ens4", "MTUBytes=9000", "Destination=10.9.0.0/16"]
    )]
    #[case::mac_of_the_named_card(
        "interfaces: [ { macAddress: \"52:54:00:12:34:56\", mtuBytes: 9000, addresses: [ 10.0.0.5/24 ] } ]",
        servers(Some("ens4"), None),
        &["Name=ens4", "MTUBytes=9000", "Address=10.0.0.5/24"]
    )]
    #[case::name_of_the_card_with_that_mac(
        "interfaces: [ { name: \"ens[4-6]\", mtuBytes: 9000 } ]",
        servers(None, Some("52:54:00:12:34:56")),
        &["PermanentMACAddress=52:54:00:12:34:56", "MTUBytes=9000"]
    )]
    #[case::by_driver(
        "interfaces: [ { driver: ixgbe, mtuBytes: 1400 }, { driver: \"virtio*\", mtuBytes: 9000 } ]",
        servers(Some("ens4"), None),
        &["Name=ens4", "MTUBytes=9000"]
    )]
    #[case::not_there_yet(
        "interfaces: [ { driver: \"virtio*\", mtuBytes: 9000 } ]",
        servers(Some("ens9"), None),
        &["Name=ens9", "Kind=!*"]
    )]
    #[case::part_of_a_bond(
        "netdevs: [ { name: b, kind: bond }, { name: br, kind: bridge } ], \
         interfaces: [ { name: \"ens*\", bond: b }, { name: b, bridge: br, mtuBytes: 9000 } ]",
        servers(Some("ens4"), None),
        &["Name=br"]
    )]
    fn the_servers_card_has_their_address_and_what_its_item_says(
        #[case] lines: &str,
        #[case] servers: Provisioning,
        #[case] expected: &[&str],
    ) {
        let site = Site::parse(&format!("apiVersion: foothold.dev/v1\nkind: Site\nnetworks: {{ {lines} }}\n"));
        let mac = "52:54:00:12:34:56".parse().ok();
        let card = Card { mac, name: Some("ens4".to_owned()), driver: Some("virtio_net".to_owned()) };
        let files = units(&site.expect("a Site").networks, Some(&servers), &[Card::default(), card]);
        let first = files.iter().map(|(name, _)| name).filter(|name| name.ends_with(".network")).min();
        assert_eq!(first.map(String::as_str), Some(SERVERS));
        let text = &files.iter().find(|(name, _)| name == SERVERS).expect("a file").1;
        assert_eq!(text.matches("Address=172.22.0.1/24\n").count(), 1, "{text}");
        assert!(text.contains("\nConfigureWithoutCarrier=yes\n"), "{text}");
        assert!(!text.contains("DHCP="), "it has an address and asks for none: {text}");
        for line in expected {
            assert!(text.lines().any(|found| found == *line), "no `{line}`: {text}");
        }
        assert!(!text.contains("Driver=") && !text.contains("Bond="), "{text}");
        let rest = files.iter().filter(|(name, _)| name != SERVERS);
        assert_eq!(rest.filter(|(_, text)| text.contains("ConfigureWithoutCarrier")).count(), 0);
    }

    #[test]
    fn what_a_file_makes_is_known_by_its_name() {
        assert_eq!(made_by("10-site-bond0.netdev"), Some("bond0"));
        assert_eq!((made_by("10-site-bond0.network"), made_by("80-dhcp.network")), (None, None));
    }
}
