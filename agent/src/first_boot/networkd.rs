//! Site's networks as files of systemd-networkd. Pure text.
//!
//! ```text
//! netdevs    ─► 10-site-NAME.netdev        what is made
//! interfaces ─► 10-site-MAC.network        one card
//!               10-site-NAME.network       one interface by its name
//!               15-site-NUMBER.network     cards by a pattern, or by their driver
//!               40-site-provisioning...    the box's own address where its servers are, unless an item is about that card
//! ```
//!
//! The first that matches an interface is used; the image's own, by which all others ask DHCP, comes last.
//! Source: systemd.network(5), systemd.netdev(5).

use std::fmt::Write as _;

use agent_api::net::MacAddress;
use agent_api::servers::Provisioning;
use agent_api::site::Networks;
use agent_api::site::interfaces::{
    AdSelect, Bond, BondMode, Bridge, ClientIdentifier, Dhcp, DhcpV4, DhcpV6, FailOverMac, Interface, LacpRate, Netdev,
    NetdevKind, Route, TransmitHashPolicy, WithoutRa,
};

/// How often a bond looks at its links, unless said.
const MII_MONITOR: &str = "100ms";

/// All files: names and texts.
pub fn units(networks: &Networks, servers: Option<&Provisioning>) -> Vec<(String, String)> {
    let mut units: Vec<_> =
        networks.netdevs.iter().map(|one| (format!("10-site-{}.netdev", one.name), netdev(one))).collect();
    let is_made = |name: &str| networks.netdevs.iter().any(|netdev| netdev.name == name);
    let mut own = servers.filter(|servers| servers.address.is_some());
    // What is made and has no item has one that says nothing more.
    let has_item = |netdev: &&Netdev| networks.interfaces.iter().any(|one| one.name.as_ref() == Some(&netdev.name));
    let others = networks.netdevs.iter().filter(|netdev| !has_item(netdev));
    let others = others.map(|netdev| Interface { name: Some(netdev.name.clone()), ..Interface::default() });
    for (number, mut interface) in networks.interfaces.iter().cloned().chain(others).enumerate() {
        if !interface.addresses.is_empty() {
            interface.dns.extend(&networks.dns);
        }
        let here = own.take_if(|servers| is_about(&interface, servers)).and_then(|servers| servers.address);
        if let Some(own) = here.map(|own| own.to_string()).filter(|own| !interface.addresses.contains(own)) {
            interface.addresses.push(own);
        }
        let made = interface.name.as_deref().is_some_and(is_made);
        units.push((file(&interface, number), network(&interface, made, here.is_some())));
    }
    units.extend(own.and_then(servers_network));
    units
}

/// The interface that a file of this name makes.
pub fn made_by(file: &str) -> Option<&str> {
    file.strip_prefix("10-site-")?.strip_suffix(".netdev")
}

fn file(interface: &Interface, number: usize) -> String {
    let whole = interface.name.as_deref().filter(|name| !name.contains(['*', '?', '[']));
    match (&interface.mac_address, whole) {
        (Some(mac), _) => format!("10-site-{}.network", mac.replace(':', "").to_ascii_lowercase()),
        (None, Some(name)) => format!("10-site-{name}.network"),
        (None, None) => format!("15-site-{number:02}.network"),
    }
}

/// Whether the box's address on the servers' network belongs to this interface.
fn is_about(interface: &Interface, servers: &Provisioning) -> bool {
    let mac = |text: &Option<String>| text.as_deref().and_then(MacAddress::from_any);
    let by_mac = mac(&servers.mac_address).is_some() && mac(&servers.mac_address) == mac(&interface.mac_address);
    let by_name = servers.mac_address.is_none() && servers.interface.is_some() && servers.interface == interface.name;
    by_mac || by_name
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

/// The file for the box's own address on the servers' network, where no item of Site is about its card. The card has the
/// address without a cable, too.
fn servers_network(declared: &Provisioning) -> Option<(String, String)> {
    let own = declared.address?;
    let interface = match (&declared.mac_address, &declared.interface) {
        (Some(mac), _) => format!("PermanentMACAddress={mac}"),
        (None, Some(name)) => format!("Name={name}"),
        (None, None) => return None,
    };
    let text = format!(
        "[Match]\n{interface}\nKind=!*\n\n[Link]\nRequiredForOnline=no\n\n[Network]\nAddress={own}\n\
         ConfigureWithoutCarrier=yes\nLLMNR=no\nMulticastDNS=no\n"
    );
    Some(("40-site-provisioning.network".to_owned(), text))
}

#[cfg(test)]
mod tests {
    use agent_api::servers::Provisioning;
    use agent_api::site::Site;

    use super::{made_by, units};

    /// The files of a Site with these lines.
    fn files(lines: &str, servers: Option<&Provisioning>) -> Vec<(String, String)> {
        let site = Site::parse(&format!("apiVersion: foothold.dev/v1\nkind: Site\n{lines}\n")).expect("a Site");
        units(&site.networks, servers)
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
        // Site's files come before it, the image's after it.
        assert!(("10-site-525400123456.network"..="80-dhcp.network").contains(&named[0].0.as_str()));
        insta::assert_snapshot!(named[0].1);
        let by_mac = files("", Some(&servers(Some("enp2s0"), Some("52:54:00:12:34:56"))));
        assert!(by_mac[0].1.contains("\nPermanentMACAddress=52:54:00:12:34:56\n"));
        assert_eq!(files("", Some(&Provisioning { address: None, ..servers(Some("enp2s0"), None) })), []);
    }

    /// Of two files about one card, only the first is read.
    #[test]
    fn an_item_about_the_servers_card_has_their_address_too() {
        for (lines, servers) in [
            (
                "interfaces: [ { macAddress: \"52:54:00:12:34:5A\", addresses: [ 10.0.0.5/24 ] } ]",
                servers(None, Some("52:54:00:12:34:5a")),
            ),
            ("interfaces: [ { name: ens4, mtuBytes: 9000 } ]", servers(Some("ens4"), None)),
            ("netdevs: [ { name: br0, kind: bridge } ]", servers(Some("br0"), None)),
            ("interfaces: [ { name: ens4, addresses: [ 172.22.0.1/24 ] } ]", servers(Some("ens4"), None)),
        ] {
            let files = files(&format!("networks: {{ {lines} }}"), Some(&servers));
            assert!(files.iter().all(|(name, _)| !name.contains("provisioning")), "{files:?}");
            let text = shown(&files);
            assert_eq!(text.matches("Address=172.22.0.1/24\nConfigureWithoutCarrier=yes\n").count(), 1, "{text}");
            assert!(!text.contains("DHCP="), "it has an address and asks for none: {text}");
        }
        let others = files("networks: { interfaces: [ { name: ens5 } ] }", Some(&servers(Some("ens4"), None)));
        assert!(others.iter().any(|(name, _)| name.contains("provisioning")));
    }

    #[test]
    fn what_a_file_makes_is_known_by_its_name() {
        assert_eq!(made_by("10-site-bond0.netdev"), Some("bond0"));
        assert_eq!((made_by("10-site-bond0.network"), made_by("80-dhcp.network")), (None, None));
    }
}
