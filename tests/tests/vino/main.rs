//! A node of `Vino`: the real libvirt, QEMU and dnsmasq out of its image, in namespaces of their own, with what the agent
//! has them do.

mod node;

use agent_api::vino::values::{DomainState, NodeValues};
use foothold_agent::vino_node::builder::Given;
use node::TestNode;
use serde_json::json;

/// Two small machines on one network with DHCP.
fn values() -> NodeValues {
    let interface =
        |mac: &str| json!({ "name": "management", "network": "management", "macAddress": mac, "ipAddress": "" });
    let domain = |name: &str, mac: &str| {
        json!({ "name": name, "role": "worker", "host": format!("vino/{name}"), "flavor": { "vcpus": 1, "memory": 1, "rootSize": 1 },
            "bootMACAddress": mac, "interfaces": [interface(mac)], "rootDeviceName": "/dev/vda" })
    };
    let network = json!({ "name": "management", "subnet": "192.168.2.0/24", "bridgeIP": "192.168.2.1", "bridgeMAC": "52:54:00:06:00:00",
        "range": { "start": "192.168.2.100", "stop": "192.168.2.110" }, "physicalInterface": "uplink" });
    let all = json!({ "vino": "default/vino", "pxeBootImageHost": "192.168.2.1", "networks": [network],
        "domains": [domain("worker-0", "52:54:00:06:00:01"), domain("worker-1", "52:54:00:06:00:02")] });
    serde_json::from_value::<NodeValues>(all).expect("values").sealed().expect("sealed")
}

/// A template that libvirt refuses for its furlongs.
fn refused() -> Given {
    let template = "<domain type='qemu'><name>{{ domain.name }}</name><memory unit='furlong'>1</memory><os><type>hvm</type></os></domain>";
    TestNode::given(&format!("flavorTemplates: {{ worker: {{ domainTemplate: \"{template}\" }} }}"))
}

fn without_errors(report: &agent_api::vino::values::NodeReport) {
    assert_eq!(report.wrong(), Vec::<String>::new(), "{report:?}");
}

/// Made, done again, changed, refused, and gone: nothing is left. No machine is switched on.
#[test]
fn machines_are_made_of_values_changed_and_removed_and_nothing_is_left() {
    let node = TestNode::start();
    let before = node.everything();
    let report = node.pass(&values());
    without_errors(&report);
    let states: Vec<_> = report.domains.iter().map(|domain| (domain.name.as_str(), domain.state)).collect();
    assert_eq!(states, [("worker-0", DomainState::ShutOff), ("worker-1", DomainState::ShutOff)]);
    let made = node.everything();
    assert_eq!(node.pass(&values()), report, "done again");
    assert_eq!(node.everything(), made, "and nothing is another");
    let link = node.run(&["ip", "-details", "link", "show", "management"]);
    assert!(link.contains("stp_state 0") && link.contains("forward_delay 0"), "{link}");
    assert!(node.run(&["ip", "link", "show", "uplink"]).contains("master management"));

    let mut more = values();
    more.domains[0].flavor.root_size = 2;
    more.domains.truncate(1);
    let report = node.pass(&more.sealed().expect("sealed"));
    without_errors(&report);
    assert_eq!(report.domains.len(), 1);
    assert!(node.virsh(&["vol-dumpxml", "worker-0", "--pool", "vino-default"]).contains(">2147483648<"));
    assert!(!node.virsh(&["vol-list", "vino-default"]).contains("worker-1"), "its volume went with it");

    // What libvirt refuses changes nothing, and is told in its words.
    let was = node.virsh(&["dumpxml", "worker-0"]);
    let given = refused();
    let mut both = values();
    both.domains[0].flavor.root_size = 2;
    let report = node.pass_with(&both, &given);
    let told: Vec<_> =
        report.domains.iter().map(|domain| (domain.state, domain.error.clone().unwrap_or_default())).collect();
    assert!(told.iter().all(|(_, error)| error.contains("furlong")), "{told:?}");
    assert_eq!((told[0].0, told[1].0), (DomainState::ShutOff, DomainState::Absent));
    assert_eq!(node.virsh(&["dumpxml", "worker-0"]), was);
    assert!(!node.virsh(&["vol-list", "vino-default"]).contains("worker-1"), "nothing is half made");

    let report = node.pass(&NodeValues { networks: Vec::new(), domains: Vec::new(), ..values() });
    without_errors(&report);
    assert_eq!((report.domains.len(), report.networks.len()), (0, 0));
    assert_eq!(node.everything(), before, "nothing is left");
}

/// The node's next pod has another libvirt, which knows nothing of before: bridges and volumes are still there.
#[test]
fn what_a_pod_of_before_made_is_taken_over_and_goes_without_a_rest() {
    let node = TestNode::start();
    let before = node.everything();
    without_errors(&node.pass(&values()));
    let made = node.everything();
    node.forget();
    without_errors(&node.pass(&values()));
    assert_eq!(node.everything(), made);
    assert!(node.run(&["ip", "link", "show", "uplink"]).contains("master management"));

    // What libvirt refuses now has its disk for all that.
    node.forget();
    let given = refused();
    let report = node.pass_with(&values(), &given);
    assert_eq!(report.wrong().iter().filter(|why| why.contains("furlong")).count(), 2, "{report:?}");
    assert!(node.virsh(&["vol-list", "vino-default"]).contains("worker-0"), "nobody's data are lost");

    // One that is not asked for any more leaves no disk to the next of its name.
    node.forget();
    let mut fewer = values();
    fewer.domains.truncate(1);
    without_errors(&node.pass(&fewer.sealed().expect("sealed")));
    assert!(!node.virsh(&["vol-list", "vino-default"]).contains("worker-1"));
    node.forget();
    without_errors(&node.pass(&NodeValues { networks: Vec::new(), domains: Vec::new(), ..values() }));
    assert_eq!(node.everything(), before, "nothing is left");
}

/// Redfish by the name of a domain, with basic authentication: media, boot order, power; a lease by DHCP; a change while it
/// runs.
#[test]
fn a_machine_is_switched_by_redfish_and_gets_a_lease() {
    let node = TestNode::start();
    node.guard();
    let before = node.everything();
    without_errors(&node.pass(&values()));
    let redfish = node.redfish();
    let system = "/redfish/v1/Systems/worker-0";
    assert_eq!(redfish.status("GET", system, None, ("admin", "wrong")), 401);
    assert_eq!(redfish.status("GET", "/redfish/v1/Systems/worker-9", None, ("admin", "secret")), 404);
    let all = redfish.get("/redfish/v1/Systems");
    assert_eq!(all["Members"].as_array().map(Vec::len), Some(2), "{all}");
    let told = redfish.get(system);
    assert_eq!(
        (told["PowerState"].as_str(), told["MemorySummary"]["TotalSystemMemoryGiB"].as_f64()),
        (Some("Off"), Some(1.0))
    );

    let iso = redfish.image(b"an image");
    let drive = "/redfish/v1/Managers/worker-0/VirtualMedia/Cd";
    redfish.change("POST", &format!("{drive}/Actions/VirtualMedia.InsertMedia"), &json!({ "Image": iso }));
    assert_eq!(redfish.get(drive)["Inserted"], json!(true));
    let boot = json!({ "Boot": { "BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once" } });
    redfish.change("PATCH", system, &boot);
    let reset = format!("{system}/Actions/ComputerSystem.Reset");
    redfish.change("POST", &reset, &json!({ "ResetType": "On" }));
    assert_eq!(redfish.get(system)["PowerState"], json!("On"));
    let live = node.virsh(&["dumpxml", "worker-0"]);
    assert!(live.contains("/var/lib/libvirt/vino-media/"), "the medium is in the drive: {live}");
    let own = node.virsh(&["dumpxml", "--inactive", "worker-0"]);
    assert!(!own.contains("vino-media"), "the definition is as it was made");
    assert_eq!(redfish.get(system)["Boot"]["BootSourceOverrideEnabled"], json!("Disabled"), "once");
    redfish.change("POST", &format!("{drive}/Actions/VirtualMedia.EjectMedia"), &json!({}));
    assert!(!node.virsh(&["dumpxml", "worker-0"]).contains("vino-media"), "it is taken out of a machine that runs");

    // The firmware asks for an address by the network: nothing on the bridge holds the answer up.
    TestNode::wait("a lease by DHCP", || node.virsh(&["net-dhcp-leases", "management"]).contains("52:54:00:06:00:01"));

    let mut larger = values();
    larger.domains[0].flavor.memory = 2;
    let report = node.pass(&larger.clone().sealed().expect("sealed"));
    let worker = &report.domains[0];
    assert_eq!((worker.state, worker.restart_pending, &worker.error), (DomainState::Running, true, &None));
    redfish.change("POST", &reset, &json!({ "ResetType": "ForceOff" }));
    assert_eq!(redfish.get(system)["PowerState"], json!("Off"));
    let report = node.pass(&larger.sealed().expect("sealed"));
    assert!(!report.domains[0].restart_pending, "its next start brings it");
    assert!(node.virsh(&["dumpxml", "worker-0"]).contains("2097152"));

    redfish.change("POST", &reset, &json!({ "ResetType": "On" }));
    let report = node.pass(&NodeValues { networks: Vec::new(), domains: Vec::new(), ..values() });
    without_errors(&report);
    assert_eq!(node.virsh(&["list", "--all"]).trim(), "", "a machine that runs goes, too");

    for _ in 0..3 {
        without_errors(&node.pass(&values()));
        assert_eq!(redfish.get(system)["PowerState"], json!("Off"), "it is there for the first who asks");
        without_errors(&node.pass(&NodeValues { networks: Vec::new(), domains: Vec::new(), ..values() }));
        TestNode::wait("it to be gone", || redfish.status("GET", system, None, ("admin", "secret")) == 404);
    }
    assert_eq!(node.everything(), before, "nothing is left, of the services neither");
}
