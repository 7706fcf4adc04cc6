//! Virtual machines of a node of `Vino` are hosts like others: what libvirt and our Redfish make of them, with real Ironic and
//! the deploy ramdisk. The node shares a bridge with the box, which gives its machines their addresses.

use std::net::{Ipv4Addr, SocketAddr};

use agent_api::vino::values::NodeValues;
use serde_json::json;

use crate::BOOT;
use crate::bench::{Dhcp, PASSWORD, Parts, Site, in_namespace, lan};
use crate::vino_node::TestNode;

/// How often a machine is made, becomes available, and goes again; once if it is not set.
const RUNS: &str = "FOOTHOLD_VINO_RUNS";
/// Where the node's Redfish is.
const NODE: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 61);
const MAC: &str = "52:54:00:06:00:01";
/// The node's bridge.
const BRIDGE: &str = "shared";

/// The node with this many machines on its bridge.
fn values(machines: usize) -> NodeValues {
    let card = json!({ "name": "management", "network": "management", "macAddress": MAC, "ipAddress": "" });
    let machine = json!({ "name": "worker-0", "role": "worker", "host": "vino-system/worker-0", "bootMACAddress": MAC,
        "flavor": { "vcpus": 2, "memory": 3, "rootSize": 4 }, "interfaces": [card], "rootDeviceName": "/dev/vda" });
    // The bridge is there, and no address is given on it by the node.
    let network = json!({ "name": "management", "subnet": "172.22.0.0/24", "physicalInterface": BRIDGE });
    let all = json!({ "vino": "default/vino", "networks": [network], "domains": vec![machine; machines] });
    serde_json::from_value::<NodeValues>(all).expect("values").sealed().expect("sealed")
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site virtual_machines -- --ignored --nocapture`"]
fn virtual_machines_become_available_with_real_ironic() {
    let runs = std::env::var(RUNS).map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("{RUNS} is `{text}`")));
    let make = || (Parts::make(), TestNode::start());
    in_namespace(make, move |(parts, node)| {
        lan().address(&format!("{NODE}/24")).expect("an address");
        lan().card("vino", "52:54:00:06:00:fe").expect("a card");
        node.bridge("vino", BRIDGE, "172.22.0.60/24");
        let before = node.everything();
        let report = node.pass(&values(1));
        assert_eq!(report.wrong(), Vec::<String>::new(), "{report:?}");
        let redfish = node.redfish_at(SocketAddr::from((NODE, 0)), PASSWORD);
        async move {
            let mut site = Site::start(parts, Dhcp::Guarded).await;
            for run in 1..=runs {
                let name = format!("worker-0-{run}");
                assert_eq!(node.pass(&values(1)).wrong(), Vec::<String>::new());
                let address = format!("redfish+http://{}/redfish/v1/Systems/worker-0", redfish.address);
                site.host_at(&name, MAC, json!({ "bmc": { "address": address } })).await;
                let host = site.state(&name, "available", BOOT).await;
                let hardware = &host["status"]["hardware"];
                assert_eq!(hardware["nics"][0]["mac"], MAC, "{hardware}");
                let leased = hardware["nics"][0]["ip"].as_str().unwrap_or_default();
                assert!(leased.starts_with("172.22.0."), "no address: {hardware}");
                assert_eq!(hardware["storage"][0]["sizeBytes"], 4_u64 << 30, "{hardware}");
                site.delete(&name).await;
                site.gone(&name, BOOT).await;
                assert_eq!(node.pass(&values(0)).wrong(), Vec::<String>::new());
                site.tell(&format!("run {run} of {runs}: available with {leased}, and gone"));
            }
            let nothing = NodeValues { networks: Vec::new(), ..values(0) };
            assert_eq!(node.pass(&nothing).wrong(), Vec::<String>::new());
            assert_eq!(node.everything(), before, "nothing of it is left");
            site.stop().await;
            // It has a runtime of its own.
            tokio::task::block_in_place(|| drop(redfish));
        }
    });
}
