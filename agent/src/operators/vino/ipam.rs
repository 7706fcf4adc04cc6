//! Addresses of a subnet: which are free, who gets which. Pure: a pool is changed in memory; [`super::pools`] writes it.
//!
//! ```text
//! static range  192.168.2.10 ... 192.168.2.24    bridges of nodes, interfaces of machines: one address and MAC address each
//! DHCP range    192.168.4.0 ... 192.168.7.255    cut into pieces of 2^step addresses: one piece for each node
//! ```
//! Who asks again gets the same again. A MAC address stays with its owner, also when the owner's IP address changes, and
//! nobody else gets it later. Addresses are numbers of 128 bits, for IPv4 and IPv6 alike.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_api::net::{Cidr, MacAddress};
use agent_api::vino::pool::{AllocatedIp, AllocatedRange, IpPoolSpec, Range};

/// Why there is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpamError {
    /// Text that is no address.
    #[error("IPAM address `{0}` is invalid")]
    Address(String),
    /// Text that is no network.
    #[error("IPAM subnet `{0}` is invalid")]
    Subnet(String),
    /// Text that is no MAC address of one interface.
    #[error("IPAM MAC address `{0}` is invalid, expected one of a single interface, such as `02:00:00:00:00:00`")]
    Mac(String),
    /// Two addresses that are not the ends of a range.
    #[error("IPAM range [{},{}] is invalid: {why}", range.start, range.stop)]
    Range {
        /// The ends.
        range: Range,
        /// What is wrong with them.
        why: String,
    },
    /// A range that is not the pool's.
    #[error("IPAM range [{},{}] in subnet {subnet} is not allocated", range.start, range.stop)]
    NotAllocated {
        /// The subnet.
        subnet: String,
        /// The range.
        range: Range,
    },
    /// Nothing is left.
    #[error(
        "IPAM range [{},{}] in subnet {subnet} is exhausted: {given} of its addresses are given, and `{to}` needs one more; \
         hint: make the range larger, or `count` smaller", range.start, range.stop
    )]
    Exhausted {
        /// The subnet.
        subnet: String,
        /// The range.
        range: Range,
        /// How many of its addresses are in use.
        given: usize,
        /// Who asked for an address.
        to: String,
    },
    /// No piece is left.
    #[error(
        "IPAM range [{},{}] in subnet {subnet} is exhausted: nodes have {given} pieces of {size} addresses, and node `{to}` \
         needs one more; hint: make the range larger, or `instanceSubnetBitStep` smaller", range.start, range.stop
    )]
    NoPiece {
        /// The subnet.
        subnet: String,
        /// The range.
        range: Range,
        /// Pieces that nodes have.
        given: usize,
        /// Addresses of a piece.
        size: u128,
        /// The node.
        to: String,
    },
    /// An owner of another `Vino` has the same name.
    #[error(
        "IPAM `{to}` has its address in subnet {subnet} from Vino `{vino}`; hint: give one of the two another name"
    )]
    Anothers {
        /// The subnet.
        subnet: String,
        /// The name.
        to: String,
        /// The other `Vino`.
        vino: String,
    },
}

/// Who wants an address.
#[derive(Clone, Copy, Debug)]
pub struct Want<'a> {
    /// The `Vino`, as `namespace/name`.
    pub vino: &'a str,
    /// A node's name, or a host's and its network's.
    pub to: &'a str,
    /// The MAC address that it had before its network got another subnet.
    pub mac: Option<MacAddress>,
}

/// An address as a number, and whether it is one of IPv6.
fn number(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), false),
        IpAddr::V6(v6) => (v6.to_bits(), true),
    }
}

fn address(number: u128, is_v6: bool) -> Option<IpAddr> {
    if is_v6 {
        return Some(Ipv6Addr::from_bits(number).into());
    }
    u32::try_from(number).ok().map(|number| Ipv4Addr::from_bits(number).into())
}

fn parse(text: &str) -> Result<IpAddr, IpamError> {
    text.parse().map_err(|_| IpamError::Address(text.to_owned()))
}

/// Ends of a range as numbers.
fn ends(range: &Range) -> Result<(u128, u128, bool), IpamError> {
    let wrong = |why: &str| IpamError::Range { range: range.clone(), why: why.to_owned() };
    let ((start, v6), (stop, also_v6)) = (number(parse(&range.start)?), number(parse(&range.stop)?));
    if v6 != also_v6 {
        return Err(wrong("one end is an IPv4 address, the other one of IPv6"));
    }
    if stop < start {
        return Err(wrong("the last address comes before the first"));
    }
    Ok((start, stop, v6))
}

/// A range whose ends are right.
///
/// # Errors
/// What is wrong with them.
pub fn range(start: &str, stop: &str) -> Result<Range, IpamError> {
    let range = Range { start: start.to_owned(), stop: stop.to_owned() };
    ends(&range).map(|_| range)
}

/// First and last address of a network.
///
/// # Errors
/// Text that is no network.
pub fn whole(subnet: &str) -> Result<Range, IpamError> {
    let cidr = Cidr::parse(subnet).ok_or_else(|| IpamError::Subnet(subnet.to_owned()))?.network();
    let (first, v6) = number(cidr.address);
    let bits = if v6 { 128 } else { 32 } - u32::from(cidr.prefix);
    let last = first | 1u128.checked_shl(bits).map_or(u128::MAX, |size| size - 1);
    let last = address(last, v6).ok_or_else(|| IpamError::Subnet(subnet.to_owned()))?;
    Ok(Range { start: cidr.address.to_string(), stop: last.to_string() })
}

/// Whether two ranges share an address.
///
/// # Errors
/// The ends of one of them are wrong.
pub fn overlap(one: &Range, other: &Range) -> Result<bool, IpamError> {
    let ((a, b, v6), (c, d, also_v6)) = (ends(one)?, ends(other)?);
    Ok(v6 == also_v6 && a <= d && c <= b)
}

/// Name of the object that holds a subnet's pool.
pub fn pool_name(subnet: &str) -> String {
    format!("ippool-{}", subnet.to_lowercase().replace([':', '.', '/'], "-"))
}

/// A pool that has given nothing.
pub fn new_pool(subnet: &str, mac_prefix: &str) -> IpPoolSpec {
    IpPoolSpec {
        subnet: subnet.to_owned(),
        mac_prefix: mac_prefix.to_owned(),
        next_mac: mac_prefix.to_owned(),
        ..IpPoolSpec::default()
    }
}

/// The pool with another first MAC address, for those that are given from now on.
pub fn with_prefix(pool: IpPoolSpec, mac_prefix: &str) -> IpPoolSpec {
    if pool.mac_prefix.eq_ignore_ascii_case(mac_prefix) {
        return pool;
    }
    IpPoolSpec { mac_prefix: mac_prefix.to_owned(), next_mac: mac_prefix.to_owned(), ..pool }
}

/// Adds a range to the pool, unless the pool has it already.
///
/// # Errors
/// Its ends are wrong, or it overlaps with another range of the pool.
pub fn add_range(pool: &mut IpPoolSpec, range: &Range) -> Result<(), IpamError> {
    ends(range)?;
    if pool.ranges.contains(range) {
        return Ok(());
    }
    for other in &pool.ranges {
        if overlap(other, range)? {
            let why = format!("in subnet {} it overlaps with [{},{}]", pool.subnet, other.start, other.stop);
            return Err(IpamError::Range { range: range.clone(), why });
        }
    }
    pool.ranges.push(range.clone());
    Ok(())
}

/// Addresses that no machine can have. IPv4: the network's own, and the broadcast address. IPv6: that of any router (RFC 4291,
/// 2.6.1).
fn reserved(subnet: &str) -> BTreeSet<u128> {
    let whole = whole(subnet).ok().and_then(|range| ends(&range).ok());
    match (whole, Cidr::parse(subnet).map(|cidr| cidr.prefix)) {
        (Some((first, last, false)), Some(1..=30)) => [first, last].into(),
        (Some((first, _, true)), Some(1..=126)) => [first].into(),
        _ => BTreeSet::new(),
    }
}

/// An address of a range that no machine of the subnet can have.
pub fn reserved_in(subnet: &str, range: &Range) -> Option<IpAddr> {
    let (start, stop, v6) = ends(range).ok()?;
    address(*reserved(subnet).range(start..=stop).next()?, v6)
}

/// The next MAC address that nobody has.
fn next_mac(pool: &mut IpPoolSpec, taken: &BTreeSet<MacAddress>) -> Result<MacAddress, IpamError> {
    let own: BTreeSet<MacAddress> = pool.allocated_ips.iter().filter_map(|one| one.mac.parse().ok()).collect();
    let first: MacAddress = pool.next_mac.parse().map_err(|_| IpamError::Mac(pool.next_mac.clone()))?;
    if first.is_group() {
        return Err(IpamError::Mac(pool.next_mac.clone()));
    }
    let mut mac = first;
    while mac.is_zero() || own.contains(&mac) || taken.contains(&mac) {
        mac = after(mac);
        if mac == first {
            return Err(IpamError::Mac(pool.next_mac.clone()));
        }
    }
    pool.next_mac = after(mac).to_string();
    Ok(mac)
}

/// The MAC address after this one. The first byte stays: behind its last address are those of groups.
fn after(mac: MacAddress) -> MacAddress {
    let mut bytes = mac.0;
    for byte in bytes[1..].iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    MacAddress(bytes)
}

/// An address and a MAC address for an owner: those that it has, else the first free ones. `taken`: MAC addresses of other
/// pools.
///
/// # Errors
/// The range is not the pool's, nothing is left, or somebody of another `Vino` is called so.
pub fn allocate(
    pool: &mut IpPoolSpec,
    range: &Range,
    want: Want<'_>,
    taken: &BTreeSet<MacAddress>,
) -> Result<AllocatedIp, IpamError> {
    let subnet = pool.subnet.clone();
    if !pool.ranges.contains(range) {
        return Err(IpamError::NotAllocated { subnet, range: range.clone() });
    }
    let (start, stop, v6) = ends(range)?;
    let had = pool.allocated_ips.iter().position(|one| one.allocated_to == want.to);
    if let Some(one) = had.map(|at| &pool.allocated_ips[at]) {
        if one.vino != want.vino {
            let (to, vino) = (one.allocated_to.clone(), one.vino.clone());
            return Err(IpamError::Anothers { subnet, to, vino });
        }
        let (at, also_v6) = number(parse(&one.ip)?);
        if v6 == also_v6 && (start..=stop).contains(&at) {
            return Ok(one.clone());
        }
    }
    let mut used = reserved(&subnet);
    let given: BTreeSet<u128> =
        pool.allocated_ips.iter().filter_map(|one| Some(number(one.ip.parse().ok()?).0)).collect();
    used.extend(&given);
    let mut free = start;
    for taken in used.range(start..=stop) {
        if *taken > free {
            break;
        }
        free = taken.saturating_add(1);
    }
    let exhausted = || IpamError::Exhausted {
        subnet: subnet.clone(),
        range: range.clone(),
        given: given.range(start..=stop).count(),
        to: want.to.to_owned(),
    };
    if free > stop || used.contains(&free) {
        return Err(exhausted());
    }
    let ip = address(free, v6).ok_or_else(exhausted)?.to_string();
    if let Some(at) = had {
        pool.allocated_ips[at].ip = ip;
        return Ok(pool.allocated_ips[at].clone());
    }
    let is_free = |mac: &MacAddress| pool.allocated_ips.iter().all(|one| one.mac.parse::<MacAddress>() != Ok(*mac));
    let mac = match want.mac.filter(is_free) {
        Some(mac) => mac,
        None => next_mac(pool, taken)?,
    };
    let one = AllocatedIp { allocated_to: want.to.to_owned(), ip, mac: mac.to_string(), vino: want.vino.to_owned() };
    pool.allocated_ips.push(one.clone());
    Ok(one)
}

/// A node's piece of the addresses that are given by DHCP: the one that it has, else the first that is free.
///
/// # Errors
/// No piece is left.
pub fn allocate_piece(
    pool: &mut IpPoolSpec,
    range: &Range,
    bits: u8,
    vino: &str,
    node: &str,
) -> Result<Range, IpamError> {
    let (start, stop, v6) = ends(range)?;
    let size = 1u128 << bits.min(64);
    let pieces = || {
        pool.allocated_ranges.iter().filter_map(|one| {
            let ends = ends(&Range { start: one.start.clone(), stop: one.stop.clone() }).ok()?;
            Some((one, ends))
        })
    };
    let fits = |(first, last, also_v6): (u128, u128, bool)| {
        v6 == also_v6 && start <= first && last <= stop && last - first == size - 1
    };
    let of_node = |one: &AllocatedRange| one.allocated_to == node && one.vino == vino;
    let had = pieces().find(|(one, ends)| of_node(one) && fits(*ends));
    if let Some((one, _)) = had {
        return Ok(Range { start: one.start.clone(), stop: one.stop.clone() });
    }
    let mut first = start;
    let found = loop {
        let Some(last) = first.checked_add(size - 1).filter(|last| *last <= stop) else { break None };
        let taken = pieces().filter(|(one, _)| !of_node(one));
        match taken.map(|(_, ends)| ends).find(|(a, b, also)| *also == v6 && first <= *b && *a <= last) {
            None => break Some((first, last)),
            // Pieces begin at multiples of their size, counted from the range's start.
            Some((_, taken_last, _)) => first = start + ((taken_last - start) / size + 1) * size,
        }
    };
    let ends = found.and_then(|(first, last)| Some((address(first, v6)?, address(last, v6)?)));
    let Some((first, last)) = ends else {
        let (subnet, range) = (pool.subnet.clone(), range.clone());
        return Err(IpamError::NoPiece {
            subnet,
            range,
            given: pool.allocated_ranges.len(),
            size,
            to: node.to_owned(),
        });
    };
    let piece = Range { start: first.to_string(), stop: last.to_string() };
    pool.allocated_ranges.retain(|one| !of_node(one));
    pool.allocated_ranges.push(AllocatedRange {
        allocated_to: node.to_owned(),
        start: piece.start.clone(),
        stop: piece.stop.clone(),
        vino: vino.to_owned(),
    });
    Ok(piece)
}

/// Frees the addresses of a `Vino`, except those whose owner `keeps` them. Removes ranges that are neither used nor
/// `wanted`, and those that are the former form of a wanted one: only this `Vino` has addresses there.
pub fn free(pool: &mut IpPoolSpec, vino: &str, keeps: &dyn Fn(&str) -> bool, wanted: &[Range]) {
    pool.allocated_ips.retain(|one| one.vino != vino || keeps(&one.allocated_to));
    pool.allocated_ranges.retain(|one| one.vino != vino || keeps(&one.allocated_to));
    let ips = &pool.allocated_ips;
    let has = |range: &Range, is_meant: &dyn Fn(&AllocatedIp) -> bool| {
        let Ok((start, stop, v6)) = ends(range) else { return false };
        let mut numbers = ips.iter().filter(|one| is_meant(one)).filter_map(|one| Some(number(one.ip.parse().ok()?)));
        numbers.any(|(at, also_v6)| also_v6 == v6 && (start..=stop).contains(&at))
    };
    pool.ranges.retain(|range| {
        let is_renewed = || wanted.iter().any(|one| overlap(one, range).unwrap_or(false));
        wanted.contains(range) || has(range, &|one| one.vino != vino) || has(range, &|_| true) && !is_renewed()
    });
}

/// Whether no address and no range of the pool is in use.
pub fn is_idle(pool: &IpPoolSpec) -> bool {
    pool.allocated_ips.is_empty() && pool.allocated_ranges.is_empty()
}

#[cfg(test)]
#[path = "ipam_tests.rs"]
mod tests;
