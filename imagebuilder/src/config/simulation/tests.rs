//! Right and wrong simulations.

use std::path::Path;

use super::*;
use crate::problems;

const FILE: &str = "../images/simulation/simulation.yaml";

fn wrong(text: &str) -> String {
    let problems = check(Path::new("tests/definitions/site.yaml"), text.to_owned()).expect_err("it is wrong");
    problems::render(&problems, false)
}

#[test]
fn the_simulation_that_everybody_starts_from_is_right() {
    let simulation = load(Path::new(FILE)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(simulation.servers.len(), 3);
    let drivers: Vec<Driver> = simulation.servers.iter().map(|server| server.driver).collect();
    assert_eq!(drivers, [Driver::Redfish, Driver::RedfishVirtualmedia, Driver::Ipmi]);
    assert_eq!(simulation.servers[2].listen.port(), 623);
    assert_eq!((simulation.address.to_string().as_str(), simulation.prefix), ("172.22.0.254", 24));
}

#[test]
fn all_problems_of_a_simulation_are_told_at_once_with_their_places() {
    insta::assert_snapshot!(wrong(
        "apiVersion: foothold.dev/v1\nkind: Simulation\nnetwork: { address: 172.22.0.0/24 }\n\
         box: { image: none.qcow2, macAddress: \"53:54:00:22:00:99\", memory: 1MiB }\nservers:\n\
         - name: One\n  macAddress: \"52:54:00:22:00:01\"\n  cpus: 0\n  colour: red\n\
         \x20 bmc: { type: ipmi, address: 172.22.0.201, password: longer than sixteen, profile: idrac,\n\
         \x20        faults: { flaps: { answered: 1, dropped: 1 } } }\n\
         - name: two\n  macAddress: \"52:54:00:22:00:01\"\n  bmc: { type: redfish, address: 10.0.0.1 }\n"
    ));
}

#[test]
fn the_whole_way_is_right_and_its_order_is_kept() {
    let simulation = load(Path::new("../images/simulation/cluster.yaml")).unwrap_or_else(|error| panic!("{error}"));
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let Some(SimulatedBox { image: BoxImage::Definition(definition), .. }) = &simulation.appliance else {
        panic!("a definition: {:?}", simulation.appliance)
    };
    assert_eq!(name(definition), "cluster-appliance.yaml");
    let waits: Vec<&str> = simulation.until.iter().map(|wanted| wanted.name.as_str()).collect();
    let after: Vec<_> = simulation
        .apply
        .iter()
        .map(|given| (name(&given.file), given.after.map(|at| waits[at]), given.cluster.as_ref().map(Name::as_str)))
        .collect();
    assert_eq!(after[0], ("cluster.provisioning.yaml".to_owned(), None, None));
    assert_eq!(after[1], ("cluster.application.yaml".to_owned(), Some("cluster"), Some("one")));
    assert!(after.contains(&("cluster.grown.yaml".to_owned(), Some("release"), None)), "{after:?}");
    assert_eq!(simulation.apply.iter().filter(|given| given.delete).count(), 3);
    let application =
        simulation.until.iter().find(|wanted| wanted.name.as_str() == "application").expect("it is there");
    assert_eq!(application.within, Duration::from_secs(20 * 60));
}

#[test]
fn what_is_applied_or_awaited_in_no_right_way_is_told() {
    insta::assert_snapshot!(wrong(
        "apiVersion: foothold.dev/v1\nkind: Simulation\nservers: []\napply:\n\
         - { file: none.yaml, after: never, cluster: One }\nuntil:\n\
         - { name: a, object: --all, for: Ready, within: soon }\n- { name: a, object: pods, for: condition=Ready }\n"
    ));
    insta::assert_snapshot!(wrong(
        "apiVersion: foothold.dev/v1\nkind: Simulation\nbox: { macAddress: \"52:54:00:22:00:99\" }\nservers: []\n"
    ));
}

#[test]
fn an_address_beside_the_network_or_given_twice_is_refused() {
    let server = |name: &str, mac: &str, address: &str| {
        format!(
            "- name: {name}\n  macAddress: \"52:54:00:22:00:{mac}\"\n\
             \x20 bmc: {{ type: redfish, address: {address}, password: p, profile: irmc }}\n"
        )
    };
    let servers = [("a", "01", "10.0.0.1"), ("b", "02", "172.22.0.201"), ("b", "03", "172.22.0.201")];
    let servers: String = servers.iter().map(|(name, mac, address)| server(name, mac, address)).collect();
    insta::assert_snapshot!(wrong(&format!("apiVersion: foothold.dev/v1\nkind: Simulation\nservers:\n{servers}")));
}

#[test]
fn a_profile_whose_scheme_no_host_takes_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("dell.yaml");
    let known = fs_err::read_to_string("../qemu/src/bmc/profiles/idrac.yaml").expect("a profile");
    fs_err::write(&file, known.replace("media: idrac-virtualmedia", "media: dell-virtualmedia")).expect("written");
    let told = wrong(&format!(
        "apiVersion: foothold.dev/v1\nkind: Simulation\nservers:\n- name: a\n  macAddress: \"52:54:00:22:00:01\"\n\
         \x20 bmc: {{ type: redfish, address: 172.22.0.201, password: p, profile: {} }}\n",
        file.display()
    ));
    assert!(told.contains("begins with `dell-virtualmedia`") && told.contains("mend `schemes`"), "{told}");
}
