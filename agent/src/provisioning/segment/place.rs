//! Whether an interface is in the subnet of the addresses that are leased on it, and whether a machine's address is. If it is
//! not, dnsmasq answers nobody there, or by another address, and does not say so.

use std::net::Ipv4Addr;

use super::settings::{LeasedRange, Settings};

/// An address of a subnet, and its mask.
pub type Masked = (Ipv4Addr, Ipv4Addr);

/// Which addresses machines can have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ground {
    own: Vec<Ipv4Addr>,
    /// Those that are served; nothing while one of them is not known.
    subnets: Option<Vec<Masked>>,
}

impl Ground {
    /// By the settings, and by what an interface has: a range of the segment without a mask has the interface's.
    pub fn of(settings: &Settings, have: &[Masked]) -> Self {
        let mask = |range: &LeasedRange| {
            let by_interface =
                || have.iter().find(|(own, mask)| is_one(*own, range.start, *mask)).map(|(_, mask)| *mask);
            range.netmask.or_else(by_interface)
        };
        let all = settings.ranges.iter().chain(&settings.relayed);
        let subnets = all.map(|range| Some((range.start, mask(range)?))).collect();
        let own = have.iter().map(|(own, _)| *own).chain([settings.server]).collect();
        Self { own, subnets }
    }

    /// What is wrong with an address for a machine, behind the address.
    pub fn wrong(&self, address: Ipv4Addr) -> Option<String> {
        let subnets = self.subnets.as_deref().unwrap_or_default();
        let within = || subnets.iter().filter(|(of, mask)| is_one(*of, address, *mask));
        // First and last of a subnet are the subnet itself and everybody in it.
        let host = |mask: Ipv4Addr| u32::from(address) & !u32::from(mask);
        let is_end =
            |(_, mask): &Masked| u32::from(*mask).count_zeros() > 1 && [0, !u32::from(*mask)].contains(&host(*mask));
        let is_nobody = address.is_loopback() || address.is_unspecified() || address.is_multicast();
        if is_nobody || address.is_broadcast() || within().any(is_end) {
            Some("is no address of one machine".to_owned())
        } else if self.own.contains(&address) {
            Some("is the box's own".to_owned())
        } else if self.subnets.is_some() && within().next().is_none() {
            Some("is in no subnet that is served".to_owned())
        } else {
            None
        }
    }
}

fn is_one(one: Ipv4Addr, other: Ipv4Addr, mask: Ipv4Addr) -> bool {
    (u32::from(one) ^ u32::from(other)) & u32::from(mask) == 0
}

/// IPv4 addresses of an interface, with their masks.
pub fn addresses(interface: &str) -> Vec<Masked> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let v4 = |address: Option<nix::sys::socket::SockaddrStorage>| Some(address?.as_sockaddr_in()?.ip());
    all.filter(|one| one.interface_name == interface)
        .filter_map(|one| Some((v4(one.address)?, v4(one.netmask)?)))
        .collect()
}

/// What is wrong with the addresses that an interface has, if anything.
pub fn wrong(interface: &str, have: &[Masked], ranges: &[LeasedRange]) -> Option<String> {
    let reaches = |other: Ipv4Addr| have.iter().any(|(own, mask)| is_one(*own, other, *mask));
    let beside = ranges.iter().find(|range| !reaches(range.start) || !reaches(range.end))?;
    let own = have.iter().map(|(own, mask)| format!("{own}/{}", u32::from(*mask).leading_ones()));
    let own = own.collect::<Vec<_>>().join(", ");
    let own = if own.is_empty() { "no IPv4 address".to_owned() } else { own };
    let LeasedRange { start, end, .. } = beside;
    Some(format!(
        "nobody can be given an address of `{start}-{end}`: `{interface}` has {own}, expected an address in one subnet \
         with them"
    ))
}

#[cfg(test)]
mod tests {
    use super::{LeasedRange, addresses, wrong};

    fn range(last: u8) -> LeasedRange {
        LeasedRange { start: [172, 22, 0, 10].into(), end: [172, 22, 0, last].into(), netmask: None, router: None }
    }

    #[test]
    fn addresses_beside_the_interface_are_told() {
        let own = |own: [u8; 4], bits: u32| (own.into(), (u32::MAX << (32 - bits)).into());
        assert_eq!(wrong("ens4", &[own([172, 22, 0, 1], 24)], &[range(100)]), None);
        assert_eq!(wrong("ens4", &[own([10, 5, 0, 7], 16), own([172, 22, 0, 1], 24)], &[range(100)]), None);
        assert_eq!(wrong("ens4", &[], &[]), None, "relayed subnets are elsewhere");
        insta::assert_snapshot!(wrong("ens4", &[own([10, 5, 0, 7], 16)], &[range(100)]).expect("beside"));
        insta::assert_snapshot!("half", wrong("ens4", &[own([172, 22, 0, 1], 26)], &[range(100)]).expect("half"));
        insta::assert_snapshot!("none", wrong("no-such0", &addresses("no-such0"), &[range(100)]).expect("no address"));
    }

    #[test]
    fn a_real_interface_is_looked_at() {
        let here =
            LeasedRange { start: [127, 0, 0, 10].into(), end: [127, 0, 0, 20].into(), netmask: None, router: None };
        assert_eq!(wrong("lo", &addresses("lo"), &[here]), None);
    }
}
