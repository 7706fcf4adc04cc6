//! What cannot be in Site's `netdevs` and `interfaces`: values that the kernel or systemd-networkd refuse, and parts that do not
//! fit together. systemd-networkd itself only logs what it does not understand, and goes on without.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{Checks, Path, is_host, never_a_host};
use crate::net::{Cidr, MacAddress, is_interface_name};
use crate::site::Networks;
use crate::site::interfaces::{Bond, BondMode, Dhcp, DhcpV4, Interface, Netdev, NetdevKind, OWN_NAMES, Route};

/// Smallest MTU of IPv4 (RFC 791) and of IPv6 (RFC 8200, 5), and the largest there is.
const MTU: (u32, u32, u32) = (68, 1280, 65_535);
/// MTU of a card of which nothing is said (`ETH_DATA_LEN`).
const USUAL_MTU: u32 = 1500;
/// Most addresses that a bond asks by ARP (`BOND_MAX_ARP_TARGETS`).
const ARP_TARGETS: usize = 16;
/// Types of an option that DHCP sends.
const OPTION_TYPES: [&str; 6] = ["uint8", "uint16", "uint32", "ipv4address", "ipv6address", "string"];

/// What a Site makes of the box's networks, by name.
struct Made<'a> {
    netdevs: BTreeMap<&'a str, &'a Netdev>,
    interfaces: &'a [Interface],
}

impl Made<'_> {
    /// The items that say something of this interface.
    fn of<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'b Interface> {
        self.interfaces.iter().filter(move |one| one.name.as_deref() == Some(name))
    }

    fn kind(&self, name: &str) -> Option<NetdevKind> {
        self.netdevs.get(name).map(|netdev| netdev.kind)
    }

    /// The netdevs that need this one: the bond or bridge it is a part of, the VLANs on it.
    fn above<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'b str> {
        self.of(name).flat_map(|one| one.bond.iter().chain(&one.bridge).chain(&one.vlan)).map(String::as_str)
    }

    /// The MTU of an interface: what is said, else that of what is below it. A bond has the usual one and gives it to its parts.
    /// `seen`: those above it.
    fn mtu(&self, name: &str, seen: &mut BTreeSet<String>) -> u32 {
        if let Some(said) = self.of(name).find_map(|one| one.mtu_bytes) {
            return said;
        }
        let is_below = |one: &&Interface| match self.kind(name) {
            Some(NetdevKind::Vlan) => one.vlan.iter().any(|vlan| vlan == name),
            Some(NetdevKind::Bridge) => one.bridge.as_deref() == Some(name),
            Some(NetdevKind::Bond) | None => false,
        };
        if !seen.insert(name.to_owned()) {
            return USUAL_MTU;
        }
        let below = self.interfaces.iter().filter(is_below);
        let of_one = |one: &Interface, seen: &mut _| match (one.mtu_bytes, one.name.as_deref()) {
            (Some(said), _) => said,
            (None, Some(name)) => self.mtu(name, seen),
            (None, None) => USUAL_MTU,
        };
        below.map(|one| of_one(one, seen)).min().unwrap_or(USUAL_MTU)
    }

    /// Whether the way up from it comes back to it.
    fn is_circle(&self, name: &str) -> bool {
        let (mut open, mut seen) = (vec![name], BTreeSet::new());
        while let Some(one) = open.pop() {
            for above in self.above(one) {
                if above == name {
                    return true;
                }
                if seen.insert(above.to_owned()) {
                    open.extend(self.netdevs.get_key_value(above).map(|(known, _)| *known));
                }
            }
        }
        false
    }
}

impl Checks {
    pub(super) fn interfaces(&mut self, networks: &Networks) {
        let mut made = Made { netdevs: BTreeMap::new(), interfaces: &networks.interfaces };
        for (number, netdev) in networks.netdevs.iter().enumerate() {
            let path = Path::of("networks.netdevs").index(number);
            self.netdev(&path, netdev);
            if made.netdevs.insert(&netdev.name, netdev).is_some() {
                let found = format!("`{}` is the name of an earlier item, too", netdev.name);
                self.add(&path.key("name"), found, "each name once", "give one of them another name");
            }
        }
        let mut names: BTreeMap<&str, Path> = BTreeMap::new();
        for (number, interface) in networks.interfaces.iter().enumerate() {
            let path = Path::of("networks.interfaces").index(number);
            self.interface(&path, interface, &made);
            let Some(name) = interface.name.as_deref().filter(|_| interface.mac_address.is_none()) else { continue };
            if let Some(first) = names.get(name) {
                let found = format!("`{name}` stands at `{first}` already");
                self.add(&path.key("name"), found, "each interface once", "give one item all that is said of it");
            } else {
                names.insert(name, path.key("name"));
            }
        }
        for (number, netdev) in networks.netdevs.iter().enumerate() {
            self.parts(&Path::of("networks.netdevs").index(number), netdev, &made);
        }
    }

    fn netdev(&mut self, path: &Path, netdev: &Netdev) {
        let name = &netdev.name;
        if !is_interface_name(name) {
            let hint = format!("for example `{}0`", netdev.kind.word());
            let expected = "at most 15 letters, digits, `.`, `_` and `-`";
            self.add(&path.key("name"), format!("`{name}` is no name of an interface"), expected, &hint);
        } else if let Some(start) = OWN_NAMES.iter().find(|start| name.starts_with(**start)) {
            let found = format!("names that begin with `{start}` are those of the box's own interfaces");
            self.add(&path.key("name"), found, "another name", &format!("for example `{}0`", netdev.kind.word()));
        }
        if let Some(mac) = &netdev.mac_address {
            self.mac(&path.key("macAddress"), mac, "leave it out: then it has that of a part");
        }
        let sections = [
            ("bond", NetdevKind::Bond, netdev.bond.is_some()),
            ("vlan", NetdevKind::Vlan, netdev.vlan.is_some()),
            ("bridge", NetdevKind::Bridge, netdev.bridge.is_some()),
        ];
        for (key, _, _) in sections.into_iter().filter(|(_, kind, said)| *said && *kind != netdev.kind) {
            let found = format!("settings of a {key}, and `{name}` is a {}", netdev.kind.word());
            self.add(&path.key(key), found, "those of its kind", "correct `kind`, or leave them out");
        }
        match (netdev.kind, netdev.vlan) {
            (NetdevKind::Vlan, None) => {
                let hint = "ask who looks after the switch";
                self.add(path, format!("the VLAN `{name}` has no number"), "`vlan: { id: ... }`", hint);
            }
            (NetdevKind::Vlan, Some(vlan)) if !(1..4095).contains(&vlan.id) => {
                let hint = "ask who looks after the switch";
                self.add(&path.key("vlan.id"), format!("`{}` is no VLAN", vlan.id), "1 to 4094", hint);
            }
            _ => {}
        }
        if let Some(bond) = netdev.bond.as_ref().filter(|_| netdev.kind == NetdevKind::Bond) {
            self.bond(&path.key("bond"), bond);
        }
        if let Some(delay) = netdev.bridge.as_ref().and_then(|bridge| bridge.forward_delay_sec.as_deref()) {
            self.span(&path.key("bridge.forwardDelaySec"), delay, false);
        }
    }

    fn bond(&mut self, path: &Path, bond: &Bond) {
        let mode = bond.mode.unwrap_or(BondMode::BalanceRr);
        let spans = [
            ("miiMonitorSec", &bond.mii_monitor_sec),
            ("upDelaySec", &bond.up_delay_sec),
            ("downDelaySec", &bond.down_delay_sec),
            ("arpIntervalSec", &bond.arp_interval_sec),
        ];
        for (key, span) in spans {
            if let Some(text) = span {
                self.span(&path.key(key), text, true);
            }
        }
        let lacp = mode == BondMode::Lacp;
        let hashes = matches!(mode, BondMode::Lacp | BondMode::BalanceXor | BondMode::BalanceTlb);
        let asks = !matches!(mode, BondMode::Lacp | BondMode::BalanceTlb | BondMode::BalanceAlb);
        let arp = bond.arp_interval_sec.is_some() || !bond.arp_ip_targets.is_empty();
        let mut only = |key: &'static str, said: bool, holds: bool, modes: &str| {
            if said && !holds {
                let found = format!("mode `{}` has no such setting", mode.word());
                self.add(&path.key(key), found, format!("it with {modes}"), "leave it out, or choose another `mode`");
            }
        };
        only("lacpTransmitRate", bond.lacp_transmit_rate.is_some(), lacp, "`802.3ad`");
        only("adSelect", bond.ad_select.is_some(), lacp, "`802.3ad`");
        only("minLinks", bond.min_links.is_some(), lacp, "`802.3ad`");
        only(
            "transmitHashPolicy",
            bond.transmit_hash_policy.is_some(),
            hashes,
            "`802.3ad`, `balance-xor` or `balance-tlb`",
        );
        only("arpIntervalSec", arp, asks, "`active-backup`, `balance-rr`, `balance-xor` or `broadcast`");
        let failover = bond.fail_over_mac_policy.is_some();
        only("failOverMACPolicy", failover, mode == BondMode::ActiveBackup, "`active-backup`");
        if arp && (bond.arp_interval_sec.is_none() || bond.arp_ip_targets.is_empty()) {
            let expected = "`arpIntervalSec` and `arpIPTargets` together";
            self.add(path, "one of two settings that need each other", expected, "give both, or none");
        }
        if arp && bond.mii_monitor_sec.is_some() {
            let found = "links are looked at, and ARP is asked";
            self.add(&path.key("miiMonitorSec"), found, "one of the two", "the kernel takes only one: leave one out");
        }
        for (number, target) in bond.arp_ip_targets.iter().enumerate() {
            let path = path.key("arpIPTargets").index(number);
            if let Some(what) = never_a_host(*target).or((!target.is_ipv4()).then_some("no address of IPv4")) {
                self.add(&path, format!("`{target}` is {what}"), "the address of a router", "ask the network's owner");
            } else if number == ARP_TARGETS {
                self.add(&path, "more than the kernel takes", "at most 16 addresses", "two or three are usual");
            }
        }
    }

    /// What a bond, a VLAN or a bridge is made of.
    fn parts(&mut self, path: &Path, netdev: &Netdev, made: &Made<'_>) {
        let name = netdev.name.as_str();
        if made.is_circle(name) {
            let found = format!("`{name}` is a part of itself, by what `interfaces` says");
            return self.add(
                &path.key("name"),
                found,
                "parts that are cards in the end",
                "follow `bond`, `bridge` and `vlan`",
            );
        }
        let hint = match netdev.kind {
            NetdevKind::Bond => format!("say `bond: {name}` in the items of its cards"),
            NetdevKind::Vlan => format!("say `vlan: [ {name} ]` in the item of the card or bond that it lies on"),
            // One without ports is what a machine of the box's own can be attached to.
            NetdevKind::Bridge => return,
        };
        let is_part = |one: &&Interface| match netdev.kind {
            NetdevKind::Bond => one.bond.as_deref() == Some(name),
            NetdevKind::Vlan => one.vlan.iter().any(|vlan| vlan == name),
            NetdevKind::Bridge => false,
        };
        let parts = made.interfaces.iter().filter(is_part).count();
        if parts == 0 {
            let found = format!("no item of `interfaces` is a part of `{name}`");
            self.add(&path.key("name"), found, "one at least", &hint);
        } else if netdev.kind == NetdevKind::Vlan && parts > 1 {
            let found = format!("`{name}` lies on several interfaces");
            let hint = "make a VLAN of its own for each, with the same number";
            self.add(&path.key("name"), found, "one interface below a VLAN", hint);
        }
    }

    fn interface(&mut self, path: &Path, interface: &Interface, made: &Made<'_>) {
        self.matches(path, interface, made);
        let mut subnets = Vec::new();
        for (number, text) in interface.addresses.iter().enumerate() {
            let path = path.key("addresses").index(number);
            if let Some(cidr) = self.cidr(&path, text) {
                self.own_address(&path, text, cidr);
                subnets.push(cidr);
            }
        }
        // What is said of an address that is none is enough.
        let all = subnets.len() == interface.addresses.len();
        let asks = interface.dhcp.is_some_and(|dhcp| dhcp != Dhcp::No);
        if let Some(gateway) = interface.gateway {
            let (path, told) = (path.key("gateway"), self.list.len());
            if all && !(asks && subnets.is_empty()) {
                self.gateway(&path, gateway, &subnets);
            }
            // Of one that cannot be, that is enough.
            if self.list.len() == told {
                let everywhere = if gateway.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
                self.way(&path, Cidr { address: everywhere, prefix: 0 }, None);
            }
        }
        for (number, route) in interface.routes.iter().enumerate() {
            self.route(&path.key("routes").index(number), route, all.then_some((&*subnets, asks)));
        }
        self.name_servers(&path.key("dns"), &interface.dns);
        self.domains(&path.key("domains"), &interface.domains);
        self.part(path, interface, made);
        self.mtu(path, interface, &subnets, made);
        if let Some(dhcp) = &interface.dhcp_v4 {
            self.dhcp_v4(&path.key("dhcpV4"), dhcp);
        }
        let unused = [
            ("dhcpV4", interface.dhcp_v4.is_some(), [Dhcp::Yes, Dhcp::Ipv4]),
            ("dhcpV6", interface.dhcp_v6.is_some(), [Dhcp::Yes, Dhcp::Ipv6]),
        ];
        for (key, _, _) in unused.into_iter().filter(|(_, said, by)| *said && !by.contains(&interface.dhcp())) {
            let found = "settings of DHCP, which this interface does not ask";
            self.add(
                &path.key(key),
                found,
                "`dhcp: yes` beside it",
                "say what is asked for in `dhcp`, or leave it out",
            );
        }
    }

    /// Which interfaces the item is about.
    fn matches(&mut self, path: &Path, interface: &Interface, made: &Made<'_>) {
        let hint = "it is printed by `ip link` on the box, and stands on its label";
        if let Some(text) = &interface.mac_address
            && let Some(mac) = self.mac(&path.key("macAddress"), text, hint)
        {
            match self.macs.get(&mac).cloned() {
                Some(first) => {
                    let found = format!("`{text}` stands at `{first}` already");
                    let hint = "give one item all addresses of the card";
                    self.add(&path.key("macAddress"), found, "each card once", hint);
                }
                None => drop(self.macs.insert(mac, path.key("macAddress"))),
            }
        }
        if let Some(name) = interface.name.as_deref().filter(|name| !is_pattern(name)) {
            let expected = "at most 15 letters, digits, `.`, `_` and `-`, or a pattern such as `eno*`";
            let hint = "`ip link` on the box prints them";
            self.add(&path.key("name"), format!("`{name}` is no name of an interface"), expected, hint);
        }
        if let Some(driver) = interface.driver.as_deref().filter(|driver| !is_pattern(driver)) {
            let hint = "`ethtool -i` on the box prints it";
            let expected = "a name such as `ixgbe`";
            self.add(&path.key("driver"), format!("`{driver}` is no driver"), expected, hint);
        }
        let (mac, name) = (interface.mac_address.is_some(), interface.name.as_deref());
        if !mac && name.is_none() && interface.driver.is_none() {
            let expected = "`macAddress`, `name` or `driver`";
            let hint = "say by one of them which card it is about";
            return self.add(path, "this item is about no interface", expected, hint);
        }
        let netdev = name.and_then(|name| made.kind(name));
        if let Some(kind) = netdev.filter(|_| mac || interface.driver.is_some()) {
            let found = format!("`{}` is a {} of `netdevs`, not a card", name.unwrap_or_default(), kind.word());
            self.add(&path.key("name"), found, "its name alone", "leave out `macAddress` and `driver`");
        }
        if interface.is_several() && !interface.addresses.is_empty() {
            let found = "a pattern can match several cards, which would have the same addresses";
            let hint = "name one card, by `macAddress` or by its whole `name`";
            self.add(&path.key("addresses"), found, "no addresses", hint);
        }
    }

    fn mac(&mut self, path: &Path, text: &str, hint: &str) -> Option<MacAddress> {
        let expected = "six pairs of hex digits such as \"52:54:00:12:34:56\"";
        match text.parse::<MacAddress>() {
            Err(_) => self.add(path, format!("`{text}` is not a MAC address"), expected, hint),
            Ok(mac) if mac.is_group() || mac.is_zero() => {
                self.add(path, format!("`{text}` is the address of no card"), "the address of one card", hint);
            }
            Ok(mac) => return Some(mac),
        }
        None
    }

    /// What it is a part of, and what lies on it.
    fn part(&mut self, path: &Path, interface: &Interface, made: &Made<'_>) {
        let own = interface.name.as_deref().and_then(|name| made.kind(name));
        let uses = [("bond", &interface.bond, NetdevKind::Bond), ("bridge", &interface.bridge, NetdevKind::Bridge)];
        for (key, name, kind) in uses {
            if let Some(name) = name {
                self.is_made(&path.key(key), name, kind, made);
            }
        }
        for (number, name) in interface.vlan.iter().enumerate() {
            let path = path.key("vlan").index(number);
            self.is_made(&path, name, NetdevKind::Vlan, made);
            let id = |name: &str| made.netdevs.get(name).and_then(|netdev| netdev.vlan).map(|vlan| vlan.id);
            if let Some(other) =
                interface.vlan[..number].iter().find(|other| id(other).is_some() && id(other) == id(name))
            {
                let found = format!("`{name}` has the number of `{other}`");
                self.add(&path, found, "each number once on an interface", "correct `vlan.id` of one of them");
            }
        }
        let Some((key, above)) = uses.iter().find_map(|(key, name, _)| name.as_deref().map(|name| (*key, name))) else {
            if interface.primary_slave {
                let found = "no bond can prefer what is no part of one";
                self.add(&path.key("primarySlave"), found, "`bond: ...` beside it", "say which bond, or leave it out");
            }
            return;
        };
        if interface.bond.is_some() && interface.bridge.is_some() {
            let found = "an interface cannot be a part of a bond and of a bridge";
            self.add(&path.key("bridge"), found, "one of the two", "say `bridge` in the item of the bond");
        }
        let nested = match (key, own) {
            ("bond", Some(_)) => Some("cards"),
            ("bridge", Some(NetdevKind::Bridge)) => Some("cards, bonds and VLANs"),
            _ => None,
        };
        if let (Some(parts), Some(own)) = (nested, own) {
            let found = format!("a {} cannot be a part of the {key} `{above}`", own.word());
            self.add(&path.key(key), found, format!("{parts} as parts"), "the kernel refuses it");
        }
        let mode_of = |bond: &Netdev| bond.bond.as_ref().and_then(|bond| bond.mode).unwrap_or(BondMode::BalanceRr);
        let prefers =
            |mode: &BondMode| matches!(mode, BondMode::ActiveBackup | BondMode::BalanceTlb | BondMode::BalanceAlb);
        if interface.primary_slave
            && let Some(mode) = made.netdevs.get(above).map(|bond| mode_of(bond)).filter(|mode| !prefers(mode))
        {
            let found = format!("a bond of mode `{}` prefers no part", mode.word());
            let expected = "it with `active-backup`, `balance-tlb` or `balance-alb`";
            self.add(&path.key("primarySlave"), found, expected, "leave it out, or choose another `mode`");
        }
        let said = [
            ("addresses", !interface.addresses.is_empty()),
            ("gateway", interface.gateway.is_some()),
            ("routes", !interface.routes.is_empty()),
            ("dns", !interface.dns.is_empty()),
            ("domains", !interface.domains.is_empty()),
            ("dhcp", interface.dhcp.is_some_and(|dhcp| dhcp != Dhcp::No)),
            ("ipv6AcceptRA", interface.ipv6_accept_ra == Some(true)),
            ("vlan", !interface.vlan.is_empty() && key == "bond"),
        ];
        for (what, _) in said.into_iter().filter(|(_, said)| *said) {
            let found = format!("a part of the {key} `{above}` has no `{what}` of its own");
            let hint = format!("give them to `{above}`, in an item with `name: {above}`");
            self.add(&path.key(what), found, "nothing here", &hint);
        }
    }

    fn is_made(&mut self, path: &Path, name: &str, kind: NetdevKind, made: &Made<'_>) {
        let word = kind.word();
        match made.kind(name) {
            Some(found) if found == kind => {}
            Some(found) => {
                let found = format!("`{name}` is a {}", found.word());
                self.add(path, found, format!("a {word} of `netdevs`"), "correct the name, or its `kind`");
            }
            None => {
                let hint = format!("add `{{ name: {name}, kind: {word}, ... }}` to `networks.netdevs`");
                self.add(path, format!("no item of `netdevs` is called `{name}`"), format!("a {word}"), &hint);
            }
        }
    }

    fn mtu(&mut self, path: &Path, interface: &Interface, subnets: &[Cidr], made: &Made<'_>) {
        let (least, least_v6, most) = MTU;
        let path = path.key("mtuBytes");
        let Some(mtu) = interface.mtu_bytes else { return self.mtu_of_vlans(&path, interface, made) };
        let v6 = subnets.iter().any(|cidr| !cidr.address.is_ipv4());
        if !(least..=most).contains(&mtu) {
            self.add(&path, format!("`{mtu}` is no MTU"), "68 to 65535 bytes", "1500 is usual, 9000 for jumbo frames");
        } else if v6 && mtu < least_v6 {
            self.add(&path, format!("`{mtu}` is too little for IPv6"), "1280 bytes at least", "RFC 8200, section 5");
        }
        let wider = |name: &String| made.of(name).filter_map(|one| one.mtu_bytes).find(|own| *own > mtu);
        for vlan in &interface.vlan {
            if let Some(wider) = wider(vlan) {
                let found = format!("`{mtu}`, and `{vlan}` on it has {wider}");
                self.add(&path, found, format!("{wider} at least"), "what lies on an interface fits into it");
            }
        }
        if let Some((above, wider)) = interface.bond.as_ref().and_then(|bond| wider(bond).map(|wider| (bond, wider))) {
            let found = format!("`{mtu}`, and the bond `{above}` has {wider}");
            self.add(&path, found, format!("{wider}"), "leave it out: the bond gives its MTU to its parts");
        }
    }

    /// VLANs on an interface whose own MTU is not said. Where DHCP gives it, it is not known here.
    fn mtu_of_vlans(&mut self, path: &Path, interface: &Interface, made: &Made<'_>) {
        if interface.dhcp_v4.as_ref().is_some_and(|dhcp| dhcp.use_mtu == Some(true)) {
            return;
        }
        let own = interface.name.as_deref().map_or(USUAL_MTU, |name| made.mtu(name, &mut BTreeSet::new()));
        for vlan in &interface.vlan {
            if let Some(wider) = made.of(vlan).filter_map(|one| one.mtu_bytes).find(|wider| *wider > own) {
                let found = format!("no MTU is said, which means {own}, and `{vlan}` on it has {wider}");
                let hint = format!("say `mtuBytes: {wider}` here: what lies on an interface fits into it");
                self.add(path, found, format!("{wider} at least"), &hint);
            }
        }
    }

    /// `own`: the addresses of the interface where all of them are good, and whether it asks DHCP for others.
    fn route(&mut self, path: &Path, route: &Route, own: Option<(&[Cidr], bool)>) {
        let hint = "it is the network behind the router, such as `10.0.0.0/8`";
        let Some(to) = self.cidr(&path.key("destination"), &route.destination) else { return };
        if to.network() != to {
            let found = format!("`{}` is an address in a network", route.destination);
            self.add(&path.key("destination"), found, format!("the network: `{}`", to.network()), hint);
        } else if never_a_host(to.address).is_some_and(|_| !to.address.is_unspecified()) {
            self.add(&path.key("destination"), format!("`{}` is routed nowhere", route.destination), "a network", hint);
        }
        let family = |address: IpAddr| if address.is_ipv4() { "IPv4" } else { "IPv6" };
        for (key, address) in [("gateway", route.gateway), ("preferredSource", route.preferred_source)] {
            let Some(address) = address else { continue };
            if address.is_ipv4() != to.address.is_ipv4() {
                let found = format!(
                    "`{address}` is {}, and `{}` is {}",
                    family(address),
                    route.destination,
                    family(to.address)
                );
                self.add(&path.key(key), found, "one family", "a route is of IPv4 or of IPv6");
                return;
            }
        }
        self.way(&path.key("destination"), to.network(), route.metric);
        let Some((own, asks)) = own else { return };
        match (route.gateway, route.gateway_on_link) {
            (None, true) => {
                let found = "there is no gateway to be on the link";
                self.add(&path.key("gatewayOnLink"), found, "`gateway: ...` beside it", "leave it out");
            }
            (Some(gateway), false) if !asks => self.gateway(&path.key("gateway"), gateway, own),
            (Some(gateway), _) => {
                if let Some(what) = never_a_host(gateway) {
                    self.add(&path.key("gateway"), format!("`{gateway}` is {what}"), "the address of a router", hint);
                }
            }
            (None, false) => {}
        }
        if let Some(source) =
            route.preferred_source.filter(|source| !asks && own.iter().all(|cidr| cidr.address != *source))
        {
            let found = format!("`{source}` is no address of this interface");
            self.add(&path.key("preferredSource"), found, "one of `addresses`", "correct it, or leave it out");
        }
    }

    pub(super) fn name_servers(&mut self, path: &Path, servers: &[IpAddr]) {
        for (number, server) in servers.iter().enumerate() {
            if let Some(what) = never_a_host(*server) {
                let expected = "the address of a name server";
                self.add(&path.index(number), format!("`{server}` is {what}"), expected, "ask the network's owner");
            }
        }
    }

    pub(super) fn domains(&mut self, path: &Path, domains: &[String]) {
        for (number, domain) in domains.iter().enumerate() {
            let name = domain.strip_prefix('~').unwrap_or(domain);
            if !is_host(name) && domain != "~." {
                let expected = "a domain such as `example.org`, or `~example.org`";
                let hint = "one domain an item";
                self.add(&path.index(number), format!("`{domain}` is no domain"), expected, hint);
            }
        }
    }

    fn dhcp_v4(&mut self, path: &Path, dhcp: &DhcpV4) {
        if let Some(name) = dhcp.hostname.as_deref().filter(|name| !is_host(name)) {
            self.add(
                &path.key("hostname"),
                format!("`{name}` is no host"),
                "a host name",
                "leave it out to send that of the box",
            );
        }
        let hint = "the DHCP server's owner knows what it expects";
        let texts = dhcp.vendor_class_identifier.iter().map(|text| (path.key("vendorClassIdentifier"), text));
        let classes =
            dhcp.user_class.iter().enumerate().map(|(number, text)| (path.key("userClass").index(number), text));
        for (path, text) in texts.chain(classes) {
            if !is_line(text) || text.contains(' ') {
                self.add(&path, "this text is empty, or has spaces or several lines", "one word", hint);
            }
        }
        for (number, option) in dhcp.request_options.iter().enumerate().filter(|(_, option)| [0, 255].contains(*option))
        {
            let path = path.key("requestOptions").index(number);
            self.add(&path, format!("`{option}` is no option"), "1 to 254", hint);
        }
        for (number, option) in dhcp.send_option.iter().enumerate() {
            let path = path.key("sendOption").index(number);
            let mut words = option.splitn(3, ':');
            let (code, kind, value) = (words.next(), words.next(), words.next());
            let good = code.and_then(|code| code.parse::<u8>().ok()).is_some_and(|code| (1..255).contains(&code))
                && kind.is_some_and(|kind| OPTION_TYPES.contains(&kind))
                && value.is_some_and(is_line);
            if !good {
                let expected = "`NUMBER:TYPE:VALUE`, such as `60:string:edge`";
                self.add(&path, format!("`{}` is not valid", option.escape_debug()), expected, hint);
            }
        }
    }

    /// A time as systemd.time(7) writes it, of one part. Of what a bond does each 100 ms, other tools write the milliseconds
    /// alone.
    fn span(&mut self, path: &Path, text: &str, of_bond: bool) {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let unit = text[digits..].trim();
        let expected = "a number with its unit, such as `100ms`";
        if digits == 0 || digits > 9 || !["us", "ms", "s", "sec", "min", ""].contains(&unit) {
            self.add(path, format!("`{text}` is no time"), expected, "a number without a unit is seconds");
        } else if of_bond && unit.is_empty() && digits > 1 {
            let found = format!("`{text}` without a unit is {text} seconds");
            self.warn(path, found, expected, &format!("write `{text}ms` or `{text}s`"));
        }
    }
}

/// A name, or a pattern of some (glob(7)).
fn is_pattern(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"._-*?[]".contains(&b);
    (1..=64).contains(&text.len())
        && text.bytes().all(inner)
        && (text.contains(['*', '?', '[']) || is_interface_name(text))
}

/// Text of one line.
fn is_line(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}
