//! What cannot be in the network of the servers, alone and beside the box's interfaces.

use std::net::IpAddr;

use super::{Checks, Path, end_of_subnet, servers_of};
use crate::net::{AddressRange, Cidr};
use crate::servers::{InterfaceChoice, ServersNetwork, Wrong};
use crate::site::interfaces::{Card, Interface};
use crate::site::{Networks, Site};

impl Checks {
    pub(super) fn servers(&mut self, servers: &ServersNetwork, path: &Path) {
        let (declared, wrong) = servers.resolve();
        for Wrong { key, found, expected, hint } in wrong {
            self.add(&path.key(key), found, expected, hint);
        }
        if let Some(own) = declared.address {
            let cidr = Cidr { address: own.address.into(), prefix: own.prefix };
            self.own_address(&path.key("address"), &own.to_string(), cidr);
            let mut ends = declared.range.iter().flat_map(|range| [range.first, range.last]);
            let none = ends.find_map(|end| end_of_subnet(Cidr { address: end.into(), ..cidr }));
            if let (Some(range), Some(what)) = (declared.range, none) {
                let found = format!("`{range}` has {what} in it");
                self.add(&path.key("range"), found, "addresses of servers", "leave out the first and the last one");
            }
        }
    }

    /// A part of a bond or a bridge has no address: the whole has it. `path`: where the servers' network stands.
    pub(super) fn servers_card(&mut self, networks: &Networks, servers: &ServersNetwork, path: &Path) {
        if let Some((_, part)) = part_of(networks, servers) {
            let path = path.key(if part.by_mac { "interface.macAddress" } else { "interface.name" });
            let Part { card, kind, whole, .. } = part;
            let found = format!("`{card}` is a part of the {kind} `{whole}`");
            self.add(&path, found, format!("`{whole}`"), &format!("say `interface: {{ name: {whole} }}`"));
        }
    }

    /// Addresses that the box leases must be nobody's: the Site names some that are the box's or another machine's.
    pub(super) fn leased(&mut self, site: &Site, servers: &ServersNetwork, path: &Path) {
        let Some(range) = servers.range.as_deref().and_then(|text| text.parse::<AddressRange>().ok()) else { return };
        let held = addresses_of(&site.networks).into_iter().chain(servers_of(site));
        let inside = |address: IpAddr| matches!(address, IpAddr::V4(address) if range.contains(address));
        for (at, address) in held.filter(|(_, address)| inside(*address)) {
            let found = format!("`{range}` has {address} in it, which stands at `{at}`");
            self.add(&path.key("range"), found, "addresses that nobody has", "begin behind it, or end before it");
        }
    }

    /// [`Self::servers_card`] of a definition's network, told at the item of the Site.
    pub(super) fn card_beside(&mut self, networks: &Networks, servers: &ServersNetwork) {
        if let Some((number, part)) = part_of(networks, servers) {
            let Part { card, kind, whole, .. } = part;
            let path = Path::of("networks.interfaces").index(number).key(kind);
            let found = format!("`{card}` of `services.provisioning` would be a part of the {kind} `{whole}`");
            let hint =
                format!("say `interface: {{ name: {whole} }}` there, or give this Site a `networks.provisioning`");
            self.add(&path, found, "another card", &hint);
        }
    }
}

/// Addresses that the box has by its interfaces, and those of their routers.
fn addresses_of(networks: &Networks) -> Vec<(Path, IpAddr)> {
    let mut all = Vec::new();
    for (number, interface) in networks.interfaces.iter().enumerate() {
        let path = Path::of("networks.interfaces").index(number);
        let own = interface.addresses.iter().enumerate();
        let own = own.filter_map(|(number, text)| Some((number, Cidr::parse(text)?.address)));
        all.extend(own.map(|(number, address)| (path.key("addresses").index(number), address)));
        all.extend(interface.gateway.map(|gateway| (path.key("gateway"), gateway)));
        let routes = interface.routes.iter().enumerate();
        let gateways = routes.filter_map(|(number, route)| Some((number, route.gateway?)));
        all.extend(gateways.map(|(number, gateway)| (path.key("routes").index(number).key("gateway"), gateway)));
    }
    all
}

/// A card of the servers' network that lies below something.
struct Part<'a> {
    card: &'a str,
    by_mac: bool,
    kind: &'static str,
    whole: &'a str,
}

/// The number of the item that makes the servers' card a part of something, and of what.
fn part_of<'a>(networks: &'a Networks, servers: &'a ServersNetwork) -> Option<(usize, Part<'a>)> {
    let InterfaceChoice { mac_address, name } = servers.interface.as_ref()?;
    let by_mac = mac_address.is_some();
    let name = name.as_deref().filter(|_| !by_mac);
    let card = Card::of(mac_address.as_deref(), name);
    let number = card.item_in(&networks.interfaces)?;
    // No pattern is about what the box makes.
    let made = networks.netdevs.iter().any(|netdev| Some(netdev.name.as_str()) == name);
    if made && networks.interfaces.get(number).is_some_and(Interface::is_several) {
        return None;
    }
    let Interface { bond, bridge, .. } = networks.interfaces.get(number)?;
    let whole = [("bond", bond), ("bridge", bridge)];
    let (kind, whole) = whole.into_iter().find_map(|(kind, whole)| Some((kind, whole.as_deref()?)))?;
    let card = mac_address.as_deref().or(name)?;
    Some((number, Part { card, by_mac, kind, whole }))
}
