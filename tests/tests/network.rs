//! What a Site says of networks, on the kernel and the systemd-networkd of the box.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use agent_api::ports;
use foothold::cli::Network;
use foothold::host::command::Run;
use foothold_qemu::site::{BRIDGE, Lan, Namespace};
use foothold_qemu::{Nic, Segment, Tools};
use foothold_tests::client::{Client, Kubernetes};
use foothold_tests::{Appliance, How};
use serde_json::{Value, json};

/// A Site whose two cards are one by LACP, with an IPv4 VLAN and an IPv6 one on it; `number` is the end of all its addresses.
fn site(dir: &Path, number: u8) -> PathBuf {
    let text = format!(
        r#"
apiVersion: foothold.dev/v1
kind: Site
networks:
  netdevs:
    - {{ name: pair, kind: bond, bond: {{ mode: 802.3ad, lacpTransmitRate: fast, transmitHashPolicy: layer3+4, minLinks: 1 }} }}
    - {{ name: office, kind: vlan, vlan: {{ id: 10 }} }}
    - {{ name: storage, kind: vlan, vlan: {{ id: 20 }} }}
    - {{ name: machines, kind: bridge }}
  interfaces:
    - {{ macAddress: "{one}", bond: pair }}
    - {{ macAddress: "{two}", bond: pair }}
    - {{ name: pair, vlan: [ office, storage ], mtuBytes: 9000 }}
    - {{ name: office, addresses: [ 192.0.2.{number}/24 ], mtuBytes: 1500 }}
    - {{ name: storage, bridge: machines, mtuBytes: 9000 }}
    - {{ name: machines, addresses: [ "fd00:20::{number}/64" ], mtuBytes: 9000, routes: [ {{ destination: "fd00:30::/64", gateway: "fd00:20::99" }} ] }}
"#,
        one = mac(number, 1),
        two = mac(number, 2),
    );
    let path = dir.join(format!("site-{number}.yaml"));
    fs_err::write(&path, text).expect("written");
    path
}

fn mac(number: u8, card: u8) -> String {
    format!("52:54:00:09:{number:02x}:{card:02x}")
}

/// Has the kubelet of one box ask for the web page at addresses of the other, which it reaches by its networks alone.
fn reaches(kubernetes: &Kubernetes<'_>, addresses: &[(&str, &str)]) {
    let container = |(name, address): &(&str, &str)| {
        let page = json!({ "scheme": "HTTPS", "host": address, "port": 8443, "path": "/" });
        json!({ "name": name, "image": "registry.k8s.io/pause:3.10.2", "readinessProbe": { "httpGet": page, "periodSeconds": 2 } })
    };
    let containers: Vec<_> = addresses.iter().map(container).collect();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "looks" },
        "spec": { "containers": containers, "tolerations": [{ "operator": "Exists" }] } });
    kubernetes.create(pods, &pod);
    let is_ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    if kubernetes.wait(pods, "looks", is_ready).is_none() {
        let events = kubernetes.get("/api/v1/namespaces/default/events");
        panic!("{:#}\n{events:#}", kubernetes.get(&format!("{pods}/looks"))["status"]);
    }
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test network -- --ignored`"]
fn two_boxes_reach_each_other_by_a_bond_its_vlans_and_a_bridge() {
    let dir = tempfile::tempdir().expect("a folder");
    let appliance = Appliance::get();
    let wires = [Segment::new(), Segment::new()];
    let cards = |number: u8| -> Vec<Nic> {
        wires.iter().zip(1..).map(|(wire, card)| Nic::segment(wire).mac(mac(number, card))).collect()
    };
    let (first, second) = (cards(1), cards(2));
    let sites = [site(dir.path(), 1), site(dir.path(), 2)];
    let how = |nics, number: usize| How { network: Network::User, nics, site: Some(&sites[number]), ..How::default() };
    let mut one = appliance.boot(how(&first, 0));
    let mut other = appliance.boot_beside(&one, how(&second, 1));
    one.until_ready();
    other.until_ready();

    let client = one.client();
    let kubernetes = client.kubernetes();
    reaches(&kubernetes, &[("office", "192.0.2.2"), ("storage", "fd00:20::2")]);

    let bundle = client.support_bundle();
    let text = |name: &str| bundle.iter().find(|(path, _)| path.ends_with(name)).expect("in the bundle").1.clone();
    let addresses = text("network/addresses.txt");
    for expected in [
        "bond mode 802.3ad",
        "lacp_rate fast",
        "xmit_hash_policy layer3+4",
        "ad_num_ports 2",
        "vlan protocol 802.1Q id 10",
    ] {
        assert!(addresses.contains(expected), "`{expected}` in {addresses}");
    }
    let line = |name: &str| {
        addresses.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {addresses}"))
    };
    assert!(line(": pair:").contains("mtu 9000") && line(": office@pair").contains("mtu 1500"), "{addresses}");
    assert!(line(": storage@pair").contains("master machines"), "{addresses}");
    assert!(text("network/routes-ipv6.txt").contains("fd00:30::/64 via fd00:20::99 dev machines"));
}

/// A router that tells of a network of IPv6, and gives addresses by DHCP for those who want one from it. IPv4 is answered by
/// nobody.
fn router(folder: &Path) -> Run {
    let program = Tools::program_or_make("usr/sbin/dnsmasq").unwrap_or_else(|error| panic!("{error}"));
    let at = |name: &str| folder.join(name).display().to_string();
    Run::new(&program[0])
        .args(&program[1..])
        .args(["--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--port=0", "--enable-ra", "--log-dhcp"])
        .args([
            &format!("--interface={BRIDGE}"),
            "--bind-interfaces",
            "--dhcp-range=fd00:7::100,fd00:7::1ff,slaac,64,1h",
        ])
        .args([format!("--dhcp-leasefile={}", at("leases")), format!("--pid-file={}", at("pid"))])
        .args([format!("--log-facility={}", at("router.log"))])
}

/// A box with two cards on a network without IPv4: one has what the router says, the other an address by Site. The box is
/// ready, says all of its addresses, and is used by each.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test network -- --ignored`"]
fn a_box_on_a_network_with_ipv6_alone_is_ready_and_used() {
    let tools = Tools::program_or_make("usr/bin/ip").and_then(|_| Tools::locate()).expect("a toolbox");
    let appliance = Appliance::get();
    Namespace::make().unwrap_or_else(|error| panic!("{error}")).run(move || {
        let dir = tempfile::tempdir().expect("a folder");
        let lan = Lan::make(&tools).expect("a bridge");
        for address in ["fd00:7::1/64", "fd00:8::1/64"] {
            lan.address(address).expect("an address");
        }
        let _router = router(dir.path()).start().expect("a router");
        let site = dir.path().join("site.yaml");
        let text = format!(
            "apiVersion: foothold.dev/v1\nkind: Site\nnetworks:\n  interfaces:\n    - {{ macAddress: \"{}\", addresses: [ \"fd00:8::2/64\" ] }}\n",
            mac(3, 2)
        );
        fs_err::write(&site, text).expect("written");
        let cables = ["one", "two"].map(|name| lan.cable(name).expect("a cable"));
        let cards: Vec<Nic> =
            cables.iter().zip(1..).map(|(cable, card)| Nic::device(cable).mac(mac(3, card))).collect();
        let mut machine = appliance.boot(How { nics: &cards, site: Some(&site), ..How::default() });
        let ready = machine.until_ready();
        let addresses = ready.detail["addresses"].as_array().expect("addresses").clone();
        let addresses: Vec<&str> = addresses.iter().filter_map(Value::as_str).collect();
        // By the router's prefix and the card's MAC address (RFC 4291, appendix A), by DHCP, by Site.
        let own: [Ipv6Addr; 2] = ["fd00:7::5054:ff:fe09:301", "fd00:8::2"].map(|text| text.parse().expect("an address"));
        for expected in own {
            assert!(addresses.contains(&&*expected.to_string()), "{expected} in {addresses:?}");
        }
        let leased = |text: &&str| text.parse::<Ipv6Addr>().is_ok_and(|ip| (0x100..0x200).contains(&(ip.to_bits() & 0xffff)) && ip.segments()[..2] == [0xfd00, 7]);
        assert!(addresses.iter().any(leased), "{addresses:?}");
        for address in own {
            let at = |port| SocketAddr::from((address, port));
            let client = Client::new(at(ports::WEB), at(ports::KUBERNETES_API), machine.token());
            assert!(client.get("/api/v1/status").contains("\"ready\":true"));
            let nodes = client.kubernetes().get("/api/v1/nodes");
            assert_eq!(nodes["items"].as_array().map(Vec::len), Some(1), "{nodes}");
        }
    });
}
