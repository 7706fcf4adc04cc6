//! Hosts that cannot be two: one BMC and system, or one card that they boot from. The controller takes the first of them
//! and refuses the others, and so does the rehearsal. Pure.

use std::collections::HashMap;

use agent_api::metal3::bmc_address::BmcAddress;
use agent_api::net::MacAddress;
use agent_api::rehearsal::{Cell, Check};

use super::super::manifests::Host;

/// What each host has together with one before it.
pub(super) fn find(hosts: &[Host]) -> Vec<Vec<(Check, Cell)>> {
    let (mut bmcs, mut macs) = (HashMap::new(), HashMap::new());
    let twins = |(index, host): (usize, &Host)| {
        let mut cells = Vec::new();
        if let Ok(bmc) = host.address.trim().parse::<BmcAddress>() {
            let first = *bmcs.entry(bmc.place()).or_insert(index);
            if first != index {
                let says = format!("`{}` has the same BMC and system", name(&hosts[first]));
                let hint = "give each host the address of its own BMC, or delete one of the two hosts";
                cells.push((Check::Reach, Cell::bad(says, hint)));
            }
        }
        if let Some(mac) = &host.boot_mac {
            let known = MacAddress::from_any(mac).map_or_else(|| mac.to_lowercase(), |mac| mac.to_string());
            let first = *macs.entry(known).or_insert(index);
            if first != index {
                let says = format!("`{}` has the same `bootMACAddress` {mac}", name(&hosts[first]));
                let hint = "set each host's `bootMACAddress` to its own card, or delete one of the two hosts";
                cells.push((Check::Boot, Cell::bad(says, hint)));
            }
        }
        cells
    };
    hosts.iter().enumerate().map(twins).collect()
}

fn name(host: &Host) -> String {
    if host.namespace.is_empty() { host.name.clone() } else { format!("{}/{}", host.namespace, host.name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, address: &str, mac: Option<&str>) -> Host {
        Host {
            namespace: "metal".into(),
            name: name.into(),
            address: address.into(),
            boot_mac: mac.map(str::to_owned),
            credentials: Err("none".into()),
            unverified: false,
            authority: None,
        }
    }

    #[test]
    fn the_later_host_is_bad_and_names_the_first() {
        let hosts = [
            host("a", "redfish+https://BMC.example/redfish/v1/Systems/1", Some("52:54:00:00:00:0a")),
            host("b", "redfish-virtualmedia://bmc.example:443/redfish/v1/Systems/1/", Some("52-54-00-00-00-0A")),
            // Another system of the same BMC, another port, another protocol, no address at all.
            host("c", "redfish://bmc.example/redfish/v1/Systems/2", Some("52:54:00:00:00:0b")),
            host("d", "redfish://bmc.example:8443/redfish/v1/Systems/1", None),
            host("e", "ipmi://bmc.example", None),
            host("f", "", None),
            host("g", "", None),
            host("h", "bmc.example:623", Some("52:54:00:00:00:0c")),
        ];
        let told: Vec<Vec<String>> = find(&hosts)
            .into_iter()
            .map(|cells| cells.into_iter().map(|(check, cell)| format!("{}: {}", check.name(), cell.says)).collect())
            .collect();
        let none = Vec::<String>::new();
        let of_b = [
            "reach: `metal/a` has the same BMC and system",
            "boot: `metal/a` has the same `bootMACAddress` 52-54-00-00-00-0A",
        ];
        assert_eq!(told[1], of_b);
        assert_eq!(told[7], ["reach: `metal/e` has the same BMC and system"]);
        for index in [0, 2, 3, 4, 5, 6] {
            assert_eq!(told[index], none, "{}", hosts[index].name);
        }
    }
}
