//! Addresses of the machine, by interface.

use std::net::IpAddr;

/// An interface and an address it has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Name of the interface.
    pub interface: String,
    /// Address.
    pub address: IpAddr,
}

/// Every address of every interface now.
pub fn addresses() -> anyhow::Result<Vec<InterfaceAddress>> {
    let mut found = Vec::new();
    for one in nix::ifaddrs::getifaddrs()? {
        let Some(address) = one.address else { continue };
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
        if let Some(address) = v4.or(v6) {
            found.push(InterfaceAddress { interface: one.interface_name, address });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::addresses;

    #[test]
    fn loopback_is_seen() {
        assert!(addresses().expect("addresses").iter().any(|a| a.interface == "lo"));
    }
}
