//! Addresses of the machine, by interface.

use std::net::IpAddr;

use nix::sys::socket::SockaddrStorage;

/// An interface and an address it has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Name of the interface.
    pub interface: String,
    /// Address.
    pub address: IpAddr,
    /// Bits that name its subnet.
    pub prefix: u8,
}

/// Every address of every interface now.
pub fn addresses() -> anyhow::Result<Vec<InterfaceAddress>> {
    let mut found = Vec::new();
    for one in nix::ifaddrs::getifaddrs()? {
        let Some(address) = one.address else { continue };
        if let Some(address) = ip(&address) {
            let prefix = one.netmask.as_ref().and_then(ip).map_or_else(|| width(address), ones);
            found.push(InterfaceAddress { interface: one.interface_name, address, prefix });
        }
    }
    Ok(found)
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn ones(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(v4) => v4.to_bits().leading_ones(),
        IpAddr::V6(v6) => v6.to_bits().leading_ones(),
    };
    u8::try_from(ones).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::addresses;

    #[test]
    fn loopback_is_seen() {
        let all = addresses().expect("addresses");
        let lo = all.iter().find(|one| one.interface == "lo" && one.address.is_ipv4()).expect("loopback");
        assert_eq!((lo.address.to_string().as_str(), lo.prefix), ("127.0.0.1", 8));
    }
}
