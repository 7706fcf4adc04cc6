//! What the pod of DHCP and TFTP on the servers' network reads: its settings, and the machines that it knows. Pure.
//!
//! ```text
//! release, own address ─settings─> RUN ─┐
//! BareMetalHosts ─known─> RUN ──────────┼─ pod (static, kubelet): `foothold-agent dhcp` ─ dnsmasq
//! leases, state, signs on DATA <────────┘
//! ```

use std::net::Ipv4Addr;

use agent_api::servers::Provisioning;
use serde_json::{Value, json};

use super::segment::known;
use super::segment::settings::{LeasedRange, Options, Probing, Settings};

/// What the pod only reads, forgotten at power-off.
pub const RUN: &str = "/run/foothold/dhcp";
/// Leases, and what the guard finds: on DATA.
pub const STATE: &str = "/var/lib/foothold/dhcp";
/// The settings, in [`RUN`].
pub const SETTINGS: &str = "settings.yaml";
/// The known machines, in [`RUN`].
pub const HOSTS: &str = "hosts.yaml";
/// Length of a lease, seconds: longer than an installation takes, and a removed server frees its address within the day.
const LEASE_SECS: u32 = 3600;

/// The settings of DHCP; `None` without a range. `server` is the box's address on the servers' network. Servers get it as
/// their time server, too, if `serves_time`.
pub fn settings(declared: &Provisioning, server: Ipv4Addr, serves_time: bool) -> Option<Settings> {
    let range = declared.range?;
    Some(Settings {
        policy: declared.dhcp,
        server,
        ranges: vec![LeasedRange { start: range.first, end: range.last, netmask: None, router: None }],
        relayed: Vec::new(),
        lease_secs: LEASE_SECS,
        options: Options { ntp: serves_time.then_some(server).into_iter().collect(), ..Options::default() },
        reservations: Vec::new(),
        probing: Probing::default(),
    })
}

/// The part of a `BareMetalHost` that DHCP needs. Fields that change often are left out: the guard reads the file again
/// after each change.
pub fn machine(host: &Value) -> Value {
    let (metadata, nics) = (&host["metadata"], host["status"]["hardware"]["nics"].as_array());
    let booted = nics.into_iter().flatten().filter(|nic| nic["pxe"] == true);
    let booted: Vec<Value> = booted.map(|nic| json!({"mac": nic["mac"], "pxe": true})).collect();
    let mut known = json!({
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": {"bootMACAddress": host["spec"]["bootMACAddress"]},
        "status": {"hardware": {"nics": booted}},
    });
    for annotation in known::ADDRESSES {
        if let Some(address) = metadata["annotations"][annotation].as_str() {
            known["metadata"]["annotations"][annotation] = json!(address);
        }
    }
    known
}

/// The file of known machines.
pub fn hosts<'a>(machines: impl Iterator<Item = &'a Value>) -> String {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": machines.collect::<Vec<_>>()});
    // JSON is YAML.
    format!("{list}\n")
}

#[cfg(test)]
mod tests {
    use agent_api::net::AddressRange;
    use agent_api::servers::Provisioning;
    use serde_json::json;

    use super::{Settings, Value, hosts, machine, settings};
    use crate::provisioning::segment::known::{self, Known};

    #[test]
    fn the_pod_reads_what_the_box_writes() {
        let range = AddressRange { first: [172, 22, 0, 10].into(), last: [172, 22, 0, 100].into() };
        let declared = Provisioning { range: Some(range), ..Provisioning::default() };
        let written = settings(&declared, [172, 22, 0, 1].into(), true).expect("a range");
        let read = Settings::parse(&serde_json::to_string(&written).expect("JSON")).expect("good");
        assert_eq!(read, written);
        assert_eq!(settings(&Provisioning::default(), [172, 22, 0, 1].into(), true), None);
    }

    #[test]
    fn hosts_of_the_cluster_are_known_machines() {
        let host = json!({
            "metadata": {"name": "node-1", "namespace": "metal3", "resourceVersion": "7", "managedFields": []},
            "spec": {"online": true, "bootMACAddress": "52:54:00:00:00:0a"},
            "status": {"lastUpdated": "2026-01-01T00:00:00Z", "hardware": {"nics": [
                {"mac": "52:54:00:00:00:0b", "pxe": true},
                {"mac": "52:54:00:00:00:0c"},
            ]}},
        });
        let known = |all: &[Value]| Known::default().with_hosts(&hosts(all.iter())).expect("hosts");
        let macs: Vec<String> =
            known(&[machine(&host)]).machines.iter().map(|one| one.mac_address.to_string()).collect();
        assert_eq!(macs, ["52:54:00:00:00:0a", "52:54:00:00:00:0b"]);
        assert_eq!(known(&[]), Known::default());
        // The user's address comes before that of a node.
        for (annotations, kept) in [
            (json!({"bpa.akraino.org/address": "172.22.0.9"}), [172, 22, 0, 9]),
            (json!({"bpa.akraino.org/address": "172.22.0.9", known::ADDRESS: "172.22.0.8"}), [172, 22, 0, 8]),
        ] {
            let mut node = host.clone();
            node["metadata"]["annotations"] = annotations;
            assert_eq!(known(&[machine(&node)]).machines[0].address, Some(kept.into()));
        }
    }

    #[test]
    fn ten_thousand_hosts_are_known() {
        let host = |number: u32| {
            let mac = |last: u8| format!("52:54:{last:02x}:00:{:02x}:{:02x}", number >> 8, number & 0xff);
            let annotations = json!({known::ADDRESS: format!("10.1.{}.{}", number >> 8, number & 0xff), "other": "a"});
            let nics = [json!({"mac": mac(0), "pxe": true}), json!({"mac": mac(1), "pxe": true})];
            json!({
                "metadata": {"name": format!("node-{number}"), "namespace": "metal3", "annotations": annotations},
                "spec": {"bootMACAddress": mac(0)}, "status": {"hardware": {"nics": nics}},
            })
        };
        let all: Vec<Value> = (0..10_000).map(host).map(|host| machine(&host)).collect();
        let known = Known::default().with_hosts(&hosts(all.iter())).expect("hosts");
        assert_eq!((known.machines.len(), known.problems.as_slice()), (20_000, &[][..]));
    }

    #[test]
    fn what_changes_again_and_again_is_no_other_file() {
        let host = |version: &str| {
            machine(&json!({
                "metadata": {"name": "node-1", "resourceVersion": version},
                "spec": {"online": true},
                "status": {"lastUpdated": version},
            }))
        };
        assert_eq!(host("1"), host("2"));
    }
}
