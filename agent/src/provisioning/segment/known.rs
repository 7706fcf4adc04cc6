//! Machines that are known: the `BareMetalHost`s of a file, as `kubectl get -o yaml` or `foothold-agent hosts` print them.

use agent_api::metal3::Nic;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::settings::{Mac, Reservation};
use crate::bmc::manifests;

/// Annotation of a `BareMetalHost`: the address that DHCP keeps for it.
pub const ADDRESS: &str = "foothold.dev/provisioning-address";

/// The hosts that say the MAC address they boot from. Interfaces that inspection marked as booted from count, too.
///
/// # Errors
/// What is no YAML, or no `BareMetalHost`, in words.
pub fn read(text: &str) -> Result<Vec<Reservation>, String> {
    let mut known = Vec::new();
    for object in manifests::objects(text)?.into_iter().filter(|object| object["kind"] == "BareMetalHost") {
        let host: Host = serde_json::from_value(object).map_err(|error| error.to_string())?;
        of_host(&host, &mut known)?;
    }
    Ok(known)
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

/// Adds what a host is known by.
fn of_host(host: &Host, known: &mut Vec<Reservation>) -> Result<(), String> {
    let name = host.metadata.name.clone().unwrap_or_default();
    let mut add = |mac: &str, address: Option<&str>, hostname: Option<String>| {
        let mac_address: Mac = mac.parse().map_err(|error| format!("host `{name}`: {error}"))?;
        let wrong = |text: &str| format!("host `{name}`: annotation `{ADDRESS}`: `{text}` is no IPv4 address");
        let address = address.map(|text| text.parse().map_err(|_| wrong(text))).transpose()?;
        if !known.iter().any(|one: &Reservation| one.mac_address == mac_address) {
            known.push(Reservation { mac_address, address, hostname });
        }
        Ok::<(), String>(())
    };
    if let Some(mac) = &host.spec.boot_mac_address {
        // Only the interface that is booted from has the host's name: it can stand for one address only.
        let hostname = Some(name.replace(['.', '_'], "-")).filter(|name| (1..=63).contains(&name.len()));
        let address = host.metadata.annotations.as_ref().and_then(|all| all.get(ADDRESS));
        add(mac, address.map(String::as_str), hostname)?;
    }
    let nics = host.status.hardware.as_ref().and_then(|found| found.nics.as_ref());
    for nic in nics.into_iter().flatten() {
        if let (Some(true), Some(mac)) = (nic.pxe, &nic.mac) {
            add(mac, None, None)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::read;
    use proptest::prelude::{any, proptest};

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
        let known = read(HOSTS).expect("hosts");
        assert_eq!(known.len(), 1);
        let wanted = ("52:54:00:00:00:0a".to_owned(), Some([172, 22, 0, 50].into()), Some("node-1".to_owned()));
        assert_eq!((known[0].mac_address.to_string(), known[0].address, known[0].hostname.clone()), wanted);
        let bad = read(&HOSTS.replace("172.22.0.50", "nowhere")).expect_err("no address");
        assert_eq!(bad, "host `node.1`: annotation `foothold.dev/provisioning-address`: `nowhere` is no IPv4 address");
        assert_eq!(read("kind: List\nitems: all of them\n").expect_err("no list"), "`items` is no list");
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
