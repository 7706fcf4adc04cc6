//! What cannot be in the network of the servers, alone and beside the box's interfaces.

use super::{Checks, Path, end_of_subnet};
use crate::net::Cidr;
use crate::servers::{InterfaceChoice, ServersNetwork, Wrong};
use crate::site::Networks;
use crate::site::interfaces::{Card, Interface};

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

    /// The same of a definition's network, told at the item of the Site.
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
