//! Machines that are known: the `BareMetalHost`s of a file, as `kubectl get -o yaml` or `foothold-agent hosts` print them.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

use agent_api::clusters::provisioning::ADDRESS_ANNOTATION;
use agent_api::metal3::Nic;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::place::Ground;
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
    /// Whose they are; of nobody when the settings name them.
    macs: HashMap<MacAddress, Option<String>>,
    addresses: HashSet<Ipv4Addr>,
    ground: Ground,
}

impl Known {
    /// Those that the settings name, before any host. `ground`: which addresses a machine can have.
    pub fn of(reservations: &[Reservation], ground: Ground) -> Self {
        let mut known = Self { ground, ..Self::default() };
        for one in reservations {
            let mut one = one.clone();
            let wrong = one.address.and_then(|address| Some((address, known.ground.wrong(address)?)));
            if let Some((address, why)) = wrong {
                let mac = one.mac_address;
                known.problems.push(format!("reservation `{mac}`: address `{address}` {why}; it gets any address"));
                one.address = None;
            }
            known.macs.insert(one.mac_address, None);
            known.addresses.extend(one.address);
            known.machines.push(one);
        }
        known
    }

    /// Whether a machine is known.
    pub fn has(&self, mac: MacAddress) -> bool {
        self.macs.contains_key(&mac)
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
        let namespace = host.metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        let owner = namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
        if let Some(mac) = &host.spec.boot_mac_address {
            // Only the interface that is booted from has the host's name: it can stand for one address only.
            let hostname = Some(name.replace(['.', '_'], "-")).filter(|name| (1..=63).contains(&name.len()));
            let annotations = host.metadata.annotations.as_ref();
            let named = |name: &'static str| Some((name, annotations?.get(name)?.as_str()));
            match self.machine(name, mac) {
                Some(mac) if self.is_new(mac, &owner) => {
                    let address = ADDRESSES.into_iter().find_map(named).and_then(|it| self.address(name, it));
                    self.machines.push(Reservation { mac_address: mac, address, hostname });
                }
                Some(mac) => {
                    if let Some(Some(other)) = self.macs.get(&mac).filter(|other| other.as_ref() != Some(&owner)) {
                        self.problems.push(format!(
                            "host `{name}`: `bootMACAddress` {mac} is that of host `{other}`; the first one's name and \
                             address count"
                        ));
                    }
                }
                None => {}
            }
        }
        let nics = host.status.hardware.as_ref().and_then(|found| found.nics.as_ref());
        for nic in nics.into_iter().flatten() {
            if let (Some(true), Some(mac)) = (nic.pxe, &nic.mac)
                && let Some(mac) = self.machine(name, mac)
                // An adapter may have been in several servers.
                && self.is_new(mac, &owner)
            {
                self.machines.push(Reservation { mac_address: mac, address: None, hostname: None });
            }
        }
    }

    /// A card of a host, in any spelling.
    fn machine(&mut self, name: &str, mac: &str) -> Option<MacAddress> {
        let read = MacAddress::from_any(mac).map_or_else(|| mac.parse(), Ok);
        read.map_err(|error| self.problems.push(format!("host `{name}`: {error}; it is not known"))).ok()
    }

    fn is_new(&mut self, mac: MacAddress, owner: &str) -> bool {
        let is_new = !self.macs.contains_key(&mac);
        if is_new {
            self.macs.insert(mac, Some(owner.to_owned()));
        }
        is_new
    }

    /// The address that an annotation keeps for a host, if it can have it.
    fn address(&mut self, name: &str, (annotation, text): (&str, &str)) -> Option<Ipv4Addr> {
        let kept = match text.parse() {
            Ok(address) => match self.ground.wrong(address) {
                Some(why) => Err(why),
                // dnsmasq would leave out the whole second machine.
                None if self.addresses.insert(address) => Ok(address),
                None => Err("is kept for another machine".to_owned()),
            },
            Err(_) => Err("is no IPv4 address".to_owned()),
        };
        let tell = |why| format!("host `{name}`: annotation `{annotation}`: `{text}` {why}; it gets any address");
        kept.map_err(|why| self.problems.push(tell(why))).ok()
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

    use super::super::settings::Settings;
    use super::{Ground, Known};

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

    /// On a segment whose interface has an address; behind it a relayed subnet.
    fn ground() -> Ground {
        let text = "server: 172.22.0.1\nranges: [ { start: 172.22.0.10, end: 172.22.0.100 } ]\n\
                    relayed: [ { start: 10.1.0.10, end: 10.1.0.99, netmask: 255.255.255.0 } ]\n";
        Ground::of(&Settings::parse(text).expect("good"), &[([172, 22, 0, 1].into(), [255, 255, 255, 0].into())])
    }

    fn one(name: &str, mac: &str, address: &str) -> String {
        format!(
            "---\nkind: BareMetalHost\nmetadata: {{ name: {name}, namespace: metal, annotations: {{ \
             foothold.dev/provisioning-address: {address} }} }}\nspec: {{ bootMACAddress: '{mac}' }}\n"
        )
    }

    #[test]
    fn an_address_that_no_machine_can_have_is_told() {
        for (address, told) in [
            ("172.22.0.50", None),
            // In the subnet, but beside the range: kept for one machine alone.
            ("172.22.0.200", None),
            ("10.1.0.200", None),
            ("172.22.1.50", Some("is in no subnet that is served")),
            ("10.99.0.5", Some("is in no subnet that is served")),
            ("172.22.0.1", Some("is the box's own")),
            ("127.0.0.1", Some("is no address of one machine")),
            ("0.0.0.0", Some("is no address of one machine")),
            ("224.0.0.1", Some("is no address of one machine")),
            ("255.255.255.255", Some("is no address of one machine")),
            ("172.22.0.0", Some("is no address of one machine")),
            ("10.1.0.255", Some("is no address of one machine")),
        ] {
            let known = Known::of(&[], ground()).with_hosts(&one("a", "52:54:00:00:00:01", address)).expect("hosts");
            let expected = told.map(|why| {
                let annotation = "annotation `foothold.dev/provisioning-address`";
                format!("host `a`: {annotation}: `{address}` {why}; it gets any address")
            });
            assert_eq!(known.problems, expected.iter().cloned().collect::<Vec<_>>());
            assert_eq!(known.machines[0].address.is_some(), expected.is_none(), "{address}");
            let reservations = [super::Reservation { address: address.parse().ok(), ..known.machines[0].clone() }];
            let known = Known::of(&reservations, ground());
            let said = told
                .map(|why| format!("reservation `52:54:00:00:00:01`: address `{address}` {why}; it gets any address"));
            assert_eq!((known.problems, known.machines.len()), (said.into_iter().collect(), 1));
        }
        // Without an interface nobody knows its subnet.
        let settings = Settings::parse("server: 172.22.0.1\nranges: [ { start: 172.22.0.10, end: 172.22.0.100 } ]\n");
        let known = Known::of(&[], Ground::of(&settings.expect("good"), &[]));
        let known = known.with_hosts(&one("a", "52:54:00:00:00:01", "10.99.0.5")).expect("hosts");
        assert_eq!(known.problems, Vec::<String>::new());
    }

    #[test]
    fn a_card_of_two_hosts_is_told_and_every_spelling_is_one() {
        let text = one("a", "52-54-00-00-00-0A", "172.22.0.50") + &one("b", "52:54:00:00:00:0a", "172.22.0.51");
        let known = Known::of(&[], ground()).with_hosts(&text).expect("hosts");
        assert_eq!(
            known.problems,
            [
                "host `b`: `bootMACAddress` 52:54:00:00:00:0a is that of host `metal/a`; the first one's name and address count"
            ]
        );
        assert_eq!(known.machines.len(), 1);
        assert_eq!(known.machines[0].address, Some([172, 22, 0, 50].into()));
        // The settings go before hosts, and a host's own card is found in it again.
        let own = "---\nkind: BareMetalHost\nmetadata: { name: a }\nspec: { bootMACAddress: '5254.0000.000a' }\n\
                   status: { hardware: { nics: [ { mac: '52:54:00:00:00:0a', pxe: true }, { mac: '52-54-00-00-00-0b', pxe: true } ] } }\n";
        let known = Known::of(&known.machines, ground()).with_hosts(own).expect("hosts");
        assert_eq!((known.problems.len(), known.machines.len()), (0, 2), "{:?}", known.problems);
        let known = Known::default().with_hosts(own).expect("hosts");
        assert_eq!((known.problems.len(), known.machines.len()), (0, 2), "{:?}", known.problems);
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
