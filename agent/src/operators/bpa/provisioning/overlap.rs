//! Addresses that a cluster cannot have: its nodes would look for others among its pods and Services, and the servers would be
//! reached no more. Known when the servers are chosen. Pure.

use std::net::IpAddr;

use agent_api::net::Cidr;

use super::decide::Chosen;
use super::wishes::Wanted;

/// Why a new cluster cannot have the addresses that are asked for; `None` if it can. `own`: the box's address.
pub fn overlap(wanted: &Wanted, chosen: &[Chosen], own: IpAddr) -> Option<String> {
    let mut others = vec![("the box".to_owned(), own)];
    others.extend(chosen.iter().map(|node| (format!("the server of {}", node.name), node.ip)));
    let mut wrong = Vec::new();
    if let Some(shared) = wanted.virtual_ip {
        if let Some((whose, _)) = others.iter().find(|(_, address)| *address == shared) {
            wrong.push(format!(
                "spec.kubernetes.virtualIP is `{shared}`, the address of {whose}; hint: name one that nobody has"
            ));
        }
        others.push(("spec.kubernetes.virtualIP".to_owned(), shared));
    }
    if let Some(address) = wanted.endpoint.as_ref().and_then(|(host, _)| host.parse().ok()) {
        others.push(("spec.kubernetes.controlPlaneEndpoint".to_owned(), address));
    }
    let networks = [("pods", "podCIDR", &wanted.pod_cidr), ("Services", "serviceCIDR", &wanted.service_cidr)];
    for (of, key, text) in networks {
        let Some(network) = Cidr::parse(text) else { continue };
        if let Some((whose, address)) = others.iter().find(|(_, address)| network.contains(*address)) {
            wrong.push(format!(
                "the addresses of {of} ({text}) have {address} among them, which is {whose}; hint: choose others by \
                 `spec.kubernetes.{key}`"
            ));
        }
        let other = chosen.iter().find(|node| node.ip.is_ipv4() != network.address.is_ipv4());
        if let Some(node) = other {
            wrong.push(format!(
                "the addresses of {of} ({text}) and that of {} ({}) must both be IPv4, or both IPv6; hint: choose others by \
                 `spec.kubernetes.{key}`",
                node.name, node.ip
            ));
        }
    }
    (!wrong.is_empty()).then(|| wrong.join("\n"))
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::NodeRole;

    use super::super::decide::tests::chosen;
    use super::super::kubeadm::tests::wanted;
    use super::{IpAddr, Wanted, overlap};

    #[test]
    fn nobodys_address_is_one_of_the_cluster() {
        let own: IpAddr = [172, 22, 0, 1].into();
        let nodes = [chosen("m", 10, &[NodeRole::Master]), chosen("w", 11, &[NodeRole::Worker])];
        let good = || wanted(None);
        let pods = |text: &str| Wanted { pod_cidr: text.to_owned(), ..good() };
        let services = |text: &str| Wanted { service_cidr: text.to_owned(), ..good() };
        let shared = |number: u8| Wanted { virtual_ip: Some([172, 22, 0, number].into()), ..good() };
        for (wanted, why) in [
            (good(), ""),
            (shared(250), ""),
            (wanted(Some(("api.site", 6443))), ""),
            (
                pods("172.16.0.0/12"),
                "the addresses of pods (172.16.0.0/12) have 172.22.0.1 among them, which is the box",
            ),
            (services("172.22.0.8/30"), "have 172.22.0.10 among them, which is the server of m"),
            (wanted(Some(("10.244.0.9", 6443))), "which is spec.kubernetes.controlPlaneEndpoint"),
            (Wanted { virtual_ip: Some([10, 244, 64, 9].into()), ..good() }, "which is spec.kubernetes.virtualIP"),
            (shared(11), "virtualIP is `172.22.0.11`, the address of the server of w"),
            (shared(1), "virtualIP is `172.22.0.1`, the address of the box"),
            (pods("fd00::/48"), "of pods (fd00::/48) and that of m (172.22.0.10) must both be IPv4"),
        ] {
            let said = overlap(&wanted, &nodes, own).unwrap_or_default();
            assert!(said.contains(why) && said.is_empty() == why.is_empty(), "{why}: {said}");
        }
    }
}
