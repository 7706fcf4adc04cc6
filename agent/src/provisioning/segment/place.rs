//! Whether an interface is in the subnet of the addresses that are leased on it. If it is not, dnsmasq answers nobody there
//! and does not say so.

use std::net::Ipv4Addr;

use super::settings::LeasedRange;

/// What is wrong with the addresses that an interface has now, if anything.
pub fn wrong(interface: &str, ranges: &[LeasedRange]) -> Option<String> {
    judge(interface, &addresses(interface), ranges)
}

/// IPv4 addresses of an interface, with their masks.
fn addresses(interface: &str) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let v4 = |address: Option<nix::sys::socket::SockaddrStorage>| Some(address?.as_sockaddr_in()?.ip());
    all.filter(|one| one.interface_name == interface)
        .filter_map(|one| Some((v4(one.address)?, v4(one.netmask)?)))
        .collect()
}

fn judge(interface: &str, have: &[(Ipv4Addr, Ipv4Addr)], ranges: &[LeasedRange]) -> Option<String> {
    let reaches =
        |other: Ipv4Addr| have.iter().any(|(own, mask)| (u32::from(*own) ^ u32::from(other)) & u32::from(*mask) == 0);
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
    use super::{LeasedRange, judge, wrong};

    fn range(last: u8) -> LeasedRange {
        LeasedRange { start: [172, 22, 0, 10].into(), end: [172, 22, 0, last].into(), netmask: None, router: None }
    }

    #[test]
    fn addresses_beside_the_interface_are_told() {
        let own = |own: [u8; 4], bits: u32| (own.into(), (u32::MAX << (32 - bits)).into());
        assert_eq!(judge("ens4", &[own([172, 22, 0, 1], 24)], &[range(100)]), None);
        assert_eq!(judge("ens4", &[own([10, 5, 0, 7], 16), own([172, 22, 0, 1], 24)], &[range(100)]), None);
        assert_eq!(judge("ens4", &[], &[]), None, "relayed subnets are elsewhere");
        insta::assert_snapshot!(judge("ens4", &[own([10, 5, 0, 7], 16)], &[range(100)]).expect("beside"));
        insta::assert_snapshot!("half", judge("ens4", &[own([172, 22, 0, 1], 26)], &[range(100)]).expect("half"));
        insta::assert_snapshot!("none", wrong("no-such0", &[range(100)]).expect("no address"));
    }

    #[test]
    fn a_real_interface_is_looked_at() {
        let here =
            LeasedRange { start: [127, 0, 0, 10].into(), end: [127, 0, 0, 20].into(), netmask: None, router: None };
        assert_eq!(wrong("lo", &[here]), None);
    }
}
