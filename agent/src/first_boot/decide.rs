//! Decisions without I/O: from what was observed to what will be done.

use std::fmt::Write;
use std::net::IpAddr;

use agent_api::net::Cidr;
use agent_api::site::Site;
use agent_api::site::interfaces::OWN_NAMES;

use crate::cluster::{CLUSTER_ADDRESS, CLUSTER_INTERFACE};
use crate::host::InterfaceAddress;

/// Name of host and node: the one decided earlier, else Site's, else made of release and machine id.
///
/// A node cannot be renamed, so a later Site does not change it.
pub fn hostname(earlier: Option<&str>, site: &Site, release: &str, machine_id: &str) -> String {
    if let Some(name) = earlier.or(site.hostname.as_deref()) {
        return name.to_owned();
    }
    let id: String = machine_id.chars().take(6).collect();
    let clean: String =
        release.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let room = 63 - id.len() - 1;
    let stem: String = clean.trim_matches('-').chars().take(room).collect();
    format!("{}-{id}", stem.trim_end_matches('-'))
}

/// `/etc/hosts`.
pub fn hosts(name: &str) -> String {
    format!("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n{CLUSTER_ADDRESS} {name}\n")
}

/// The address that etcd and the API server advertise: the one decided earlier, else the cluster's
/// own, or with `controlPlane.cidrs` the first that lies in one of them; nothing while no interface has it.
pub fn advertise(earlier: Option<IpAddr>, site: &Site, addresses: &[InterfaceAddress]) -> Option<IpAddr> {
    let cidrs: Vec<Cidr> = site.networks.control_plane.cidrs.iter().filter_map(|cidr| Cidr::parse(cidr)).collect();
    if earlier.is_some() {
        // etcd ends at once where it cannot listen.
        let is_there = |earlier: &IpAddr| addresses.iter().any(|one| one.address == *earlier);
        return earlier.filter(|earlier| *earlier == CLUSTER_ADDRESS || is_there(earlier));
    }
    if cidrs.is_empty() {
        return Some(CLUSTER_ADDRESS.into());
    }
    cidrs.iter().find_map(|cidr| addresses.iter().find(|a| cidr.contains(a.address)).map(|a| a.address))
}

/// Commands for `ip -batch` that make the cluster's own interface.
///
/// Service addresses are routed to it: without a default route the host's own connections to them
/// would fail before kube-proxy's rules, which come after the choice of a route, could redirect them.
pub fn cluster_interface(service_cidr: &str) -> String {
    let name = CLUSTER_INTERFACE;
    format!(
        "link add {name} type dummy\naddress add {CLUSTER_ADDRESS}/32 dev {name}\nlink set {name} up\nroute add {service_cidr} dev {name} src {CLUSTER_ADDRESS}\n"
    )
}

/// Addresses under which others reach the box, sorted: those of the site's interfaces, neither the
/// cluster's own nor those of pods, nor link-local ones.
pub fn site_addresses(addresses: &[InterfaceAddress]) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = addresses.iter().filter(|a| is_site(a)).map(|a| a.address).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Networks of the site that share addresses with the cluster's own: sentences, each with what to do.
pub fn overlaps(addresses: &[InterfaceAddress], clusters: &[(&'static str, Cidr)]) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for one in addresses.iter().filter(|one| is_site(one)) {
        let lan = Cidr { address: one.address, prefix: one.prefix };
        for (name, own) in clusters.iter().filter(|(_, own)| own.overlaps(lan)) {
            let InterfaceAddress { interface, address, prefix } = one;
            told.push(format!(
                "{interface} has {address}/{prefix}, which overlaps `{name}` {own} of the cluster: what has an address in both \
                 is not reached from one of them"
            ));
        }
    }
    told
}

fn is_site(address: &InterfaceAddress) -> bool {
    if OWN_NAMES.iter().any(|prefix| address.interface.starts_with(prefix)) {
        return false;
    }
    match address.address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

/// systemd-resolved's settings for Site's name servers and domains, beside those of the image.
pub fn resolved(dns: &[IpAddr], domains: &[String]) -> String {
    let servers: Vec<String> = dns.iter().map(IpAddr::to_string).collect();
    let lines = [("DNS", servers.join(" ")), ("Domains", domains.join(" "))];
    let said = lines.iter().filter(|(_, words)| !words.is_empty());
    said.fold("[Resolve]\n".to_owned(), |text, (key, words)| text + &format!("{key}={words}\n"))
}

/// chrony's configuration: Site's peers and what DHCP names; serves time if the release says so.
pub fn chrony(peers: &[String], serve: bool) -> String {
    let mut text = String::from(
        "# Written at every boot from Site and the release.\nsourcedir /run/chrony-dhcp\ndriftfile /var/lib/chrony/chrony.drift\nmakestep 1.0 3\nrtcsync\n",
    );
    for peer in peers {
        let _ = writeln!(text, "server {peer} iburst");
    }
    if serve {
        // Without any source the box's own clock is what the site has.
        text.push_str("allow\nlocal stratum 10\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use agent_api::net::Cidr;
    use agent_api::site::{Plane, Site};

    use super::{InterfaceAddress, advertise, chrony, hostname, hosts, overlaps, resolved, site_addresses};

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn on(interface: &str, address: &str) -> InterfaceAddress {
        InterfaceAddress { interface: interface.to_owned(), address: ip(address), prefix: 24 }
    }

    #[test]
    fn a_lan_that_the_cluster_hides_is_told() {
        let clusters = [("podCIDR", "10.244.0.0/16"), ("serviceCIDR", "10.96.0.0/12")];
        let clusters = clusters.map(|(name, text)| (name, Cidr::parse(text).expect("a CIDR")));
        let told = |address: &str| overlaps(&[on("cni0", "10.244.0.1"), on("eth0", address)], &clusters);
        assert_eq!(told("192.168.1.7"), Vec::<String>::new());
        assert!(told("10.97.3.4")[0].starts_with("eth0 has 10.97.3.4/24, which overlaps `serviceCIDR` 10.96.0.0/12"));
        let wide = InterfaceAddress { prefix: 8, ..on("eth0", "10.1.2.3") };
        assert_eq!(overlaps(&[wide], &clusters).len(), 2);
    }

    #[test]
    fn the_name_is_decided_once() {
        let named = Site { hostname: Some("north".to_owned()), ..Site::default() };
        let long = "a".repeat(80);
        let table = [
            (None, &Site::default(), "edge", "edge-4f2a10".to_owned()),
            (None, &named, "edge", "north".to_owned()),
            (Some("edge-4f2a10"), &named, "edge", "edge-4f2a10".to_owned()),
            (None, &Site::default(), "Edge_Box.", "edge-box-4f2a10".to_owned()),
            (None, &Site::default(), long.as_str(), format!("{}-4f2a10", "a".repeat(56))),
        ];
        for (earlier, site, release, expected) in table {
            assert_eq!(hostname(earlier, site, release, "4f2a10c3"), expected);
        }
        assert!(hosts("north").contains("198.18.0.1 north\n"));
    }

    #[test]
    fn the_cluster_advertises_its_own_address_unless_site_wants_another() {
        let site = |cidrs: &[&str]| {
            let mut site = Site::default();
            site.networks.control_plane = Plane { cidrs: cidrs.iter().map(|&c| c.to_owned()).collect() };
            site
        };
        let have = [on("eth0", "192.168.1.7"), on("eth1", "10.1.2.3")];
        let table = [
            (None, site(&[]), Some("198.18.0.1")),
            (None, site(&["10.0.0.0/8"]), Some("10.1.2.3")),
            (None, site(&["172.16.0.0/12"]), None),
            (None, site(&["192.168.0.0/16", "10.0.0.0/8"]), Some("192.168.1.7")),
            (Some(ip("192.168.1.7")), site(&["10.0.0.0/8"]), Some("192.168.1.7")),
            (Some(ip("198.18.0.1")), site(&["10.0.0.0/8"]), Some("198.18.0.1")),
            // Its lease has changed: no other address will do.
            (Some(ip("10.9.9.9")), site(&["10.0.0.0/8"]), None),
        ];
        for (earlier, site, expected) in table {
            assert_eq!(advertise(earlier, &site, &have), expected.map(ip), "{earlier:?} {site:?}");
        }
    }

    #[test]
    fn only_addresses_of_the_site_count() {
        let have = [
            on("lo", "127.0.0.1"),
            on("foothold0", "198.18.0.1"),
            on("cni0", "10.244.0.1"),
            on("enp0s2", "10.0.2.15"),
            on("enp0s2", "fe80::1"),
            on("enp0s3", "169.254.3.4"),
            on("enp0s3", "10.0.1.9"),
            on("enp0s2", "10.0.2.15"),
        ];
        assert_eq!(site_addresses(&have), [ip("10.0.1.9"), ip("10.0.2.15")]);
    }

    #[test]
    fn names_and_time_come_from_site() {
        assert!(resolved(&[ip("10.0.0.2"), ip("10.0.0.3")], &[]).ends_with("]\nDNS=10.0.0.2 10.0.0.3\n"));
        assert!(resolved(&[], &["site.example".to_owned()]).ends_with("]\nDomains=site.example\n"));
        assert!(chrony(&["ntp.site".to_owned()], true).contains("server ntp.site iburst\n"));
        assert!(!chrony(&[], false).contains("allow"));
    }
}
