//! Machines that are known: the `BareMetalHost`s of a file, as `kubectl get -o yaml` or `foothold-agent hosts` print them.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use agent_api::clusters::provisioning::ADDRESS_ANNOTATION;
use agent_api::metal3::Nic;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::settings::Reservation;
use crate::bmc::manifests;
use agent_api::net::MacAddress;

/// Annotation of a `BareMetalHost`: the address that DHCP keeps for it.
pub const ADDRESS: &str = "foothold.dev/provisioning-address";
/// Annotations with such an address: the user's own, and that of a host which is a node of a cluster.
pub const ADDRESSES: [&str; 2] = [ADDRESS, ADDRESS_ANNOTATION];

/// Machines that are known, and errors of their hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Each MAC address once, each address once.
    pub machines: Vec<Reservation>,
    /// What is wrong with single hosts, in words; the others are known all the same.
    pub problems: Vec<String>,
    macs: HashSet<MacAddress>,
    addresses: HashSet<Ipv4Addr>,
}

impl Known {
    /// Those that the settings name, before any host.
    pub fn of(reservations: &[Reservation]) -> Self {
        Self {
            machines: reservations.to_vec(),
            problems: Vec::new(),
            macs: reservations.iter().map(|one| one.mac_address).collect(),
            addresses: reservations.iter().filter_map(|one| one.address).collect(),
        }
    }

    /// Whether a machine is known.
    pub fn has(&self, mac: MacAddress) -> bool {
        self.macs.contains(&mac)
    }

    /// Adds the hosts that name the MAC address they boot from. Interfaces that inspection marked as boot interfaces count,
    /// too.
    ///
    /// # Errors
    /// Text that is not YAML: the error says why.
    pub fn with_hosts(mut self, text: &str) -> Result<Self, String> {
        for object in manifests::objects(text)?.into_iter().filter(|object| object["kind"] == "BareMetalHost") {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match serde_json::from_value(object) {
                Ok(host) => self.add_host(&name, &host),
                Err(error) => self.problems.push(format!("host `{name}`: {error}")),
            }
        }
        Ok(self)
    }

    fn add_host(&mut self, name: &str, host: &Host) {
        if let Some(mac) = &host.spec.boot_mac_address {
            // Only the interface that is booted from has the host's name: it can stand for one address only.
            let hostname = Some(name.replace(['.', '_'], "-")).filter(|name| (1..=63).contains(&name.len()));
            let annotations = host.metadata.annotations.as_ref();
            let named = |name: &'static str| Some((name, annotations?.get(name)?.as_str()));
            self.add(name, mac, ADDRESSES.into_iter().find_map(named), hostname);
        }
        let nics = host.status.hardware.as_ref().and_then(|found| found.nics.as_ref());
        for nic in nics.into_iter().flatten() {
            if let (Some(true), Some(mac)) = (nic.pxe, &nic.mac) {
                self.add(name, mac, None, None);
            }
        }
    }

    /// `address`: with the annotation that has it.
    fn add(&mut self, name: &str, mac: &str, address: Option<(&str, &str)>, hostname: Option<String>) {
        let mac_address: MacAddress = match mac.parse() {
            Ok(mac) => mac,
            Err(error) => return self.problems.push(format!("host `{name}`: {error}; it is not known")),
        };
        if !self.macs.insert(mac_address) {
            return;
        }
        let address = address.and_then(|(annotation, text)| {
            let kept = match text.parse() {
                // dnsmasq would leave out the whole second machine.
                Ok(address) if self.addresses.insert(address) => Ok(address),
                Ok(_) => Err("is kept for another machine"),
                Err(_) => Err("is no IPv4 address"),
            };
            let tell = |why| {
                self.problems
                    .push(format!("host `{name}`: annotation `{annotation}`: `{text}` {why}; it gets any address"));
            };
            kept.map_err(tell).ok()
        });
        self.machines.push(Reservation { mac_address, address, hostname });
    }
}

/// What is read of a `BareMetalHost`: it is known before inspection has filled in the rest.
#[derive(Debug, Deserialize)]
struct Host {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "bootMACAddress")]
    boot_mac_address: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    hardware: Option<Hardware>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Hardware {
    nics: Option<Vec<Nic>>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::Known;

    fn read(text: &str) -> Result<Known, String> {
        Known::default().with_hosts(text)
    }

    const HOSTS: &str = "
apiVersion: v1
kind: List
items:
- apiVersion: metal3.io/v1alpha1
  kind: BareMetalHost
  metadata: { name: node.1, namespace: metal3, annotations: { foothold.dev/provisioning-address: 172.22.0.50 } }
  spec: { online: true, bootMACAddress: '52:54:00:00:00:0A' }
- { apiVersion: v1, kind: Secret, metadata: { name: a } }
---
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: { name: node2 }
spec: { online: true }
";

    #[test]
    fn hosts_are_known_by_the_address_they_boot_from() {
        let known = read(HOSTS).expect("hosts").machines;
        assert_eq!(known.len(), 1);
        let wanted = ("52:54:00:00:00:0a".to_owned(), Some([172, 22, 0, 50].into()), Some("node-1".to_owned()));
        assert_eq!((known[0].mac_address.to_string(), known[0].address, known[0].hostname.clone()), wanted);
        assert_eq!(read("kind: List\nitems: all of them\n").expect_err("no list"), "`items` is no list");
    }

    #[test]
    fn what_is_wrong_with_one_host_takes_nothing_from_the_others() {
        let host = |name: &str, mac: &str, address: &str| {
            format!(
                "---\nkind: BareMetalHost\nmetadata: {{ name: {name}, annotations: {{ \
                 foothold.dev/provisioning-address: {address} }} }}\nspec: {{ bootMACAddress: '{mac}' }}\n"
            )
        };
        let text = [
            host("long", "52:54:00:00:00:01:02:03", "172.22.0.50"),
            host("nowhere", "52:54:00:00:00:02", "172.22.0.500"),
            "---\nkind: BareMetalHost\nmetadata: { name: shapeless }\nspec: none\n".to_owned(),
            host("first", "52:54:00:00:00:03", "172.22.0.50"),
            host("second", "52:54:00:00:00:04", "172.22.0.50"),
        ];
        let known = read(&text.concat()).expect("hosts");
        let machines = known.machines.iter().map(|one| format!("{} {:?}", one.mac_address, one.address));
        assert_eq!(
            machines.collect::<Vec<_>>(),
            ["52:54:00:00:00:02 None", "52:54:00:00:00:03 Some(172.22.0.50)", "52:54:00:00:00:04 None"]
        );
        insta::assert_snapshot!(known.problems.join("\n"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(noise in any::<String>(), cut in 0..600_usize) {
            let _ = read(&noise);
            let at = (0..=cut.min(HOSTS.len())).rev().find(|at| HOSTS.is_char_boundary(*at)).unwrap_or(0);
            let _ = read(&format!("{}{noise}{}", &HOSTS[..at], &HOSTS[at..]));
        }
    }
}
