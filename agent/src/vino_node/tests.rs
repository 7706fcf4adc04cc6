//! Values, templates and what is there, to documents and steps: what a node does.

use std::collections::{BTreeMap, BTreeSet};

use agent_api::vino::values::{Accelerator, DomainState, NetworkValues, NodeValues};

use super::ledger::{DomainEntry, Ledger, NetworkEntry, PoolEntry};
use super::plan::{About, Plan, Step, plan};
use super::report::report;
use super::templates::Templates;
use super::there::{Link, There};
use super::wanted::{Facts, Wanted, wanted};
use super::xml::Element;

fn values() -> NodeValues {
    let text = include_str!("../../tests/fixtures/vino/node-values.yaml");
    serde_saphyr::from_str(text).expect("values")
}

fn facts() -> Facts {
    let screen = ("default-vino-test-cr-vnc".to_owned(), "default-vino-test-cr-node01-master-0".to_owned());
    Facts {
        node_ip: "192.0.2.1".to_owned(),
        accelerator: Accelerator::Kvm,
        numa: vec![BTreeSet::from([0, 1, 2, 3])],
        huge_pages: 4,
        interface: None,
        links: BTreeMap::from([("enp3s7".to_owned(), Link::default())]),
        passwords: BTreeMap::from([(screen, "12345678".to_owned())]),
    }
}

fn all(values: &NodeValues, facts: &Facts, ledger: &Ledger) -> Wanted {
    wanted(values, &Templates::default(), facts, ledger)
}

/// What is there after a plan was done, as libvirt would have it.
fn done(plan: &Plan, wanted: &Wanted) -> (There, Ledger) {
    let (mut there, mut ledger) = (There { links: facts().links, ..There::default() }, Ledger::default());
    for step in &plan.steps {
        match step {
            Step::DefinePool { name, folder, xml } => {
                there.pools.insert(name.clone(), true);
                ledger.pools.insert(name.clone(), PoolEntry { folder: folder.clone(), xml: xml.clone() });
            }
            Step::DefineNetwork { name, hash, .. } => {
                there.networks.insert(name.clone(), true);
                ledger
                    .networks
                    .insert(name.clone(), NetworkEntry { hash: Some(hash.clone()), ..NetworkEntry::default() });
            }
            Step::Plug { network, bridge, interface } => {
                there.links.insert(interface.clone(), Link { master: Some(bridge.clone()), ..Link::default() });
                ledger.networks.entry(network.clone()).or_default().plugged = Some(interface.clone());
            }
            Step::MakeVolume { pool, name, domain, .. } => {
                let volumes = &wanted.domains[domain].as_ref().expect("wanted").volumes;
                let bytes = volumes.iter().find(|volume| volume.name == *name).expect("wanted").bytes;
                there.volumes.insert((pool.clone(), name.clone()), bytes);
            }
            Step::DefineDomain { name, entry, .. } => {
                there.domains.insert(name.clone(), DomainState::ShutOff);
                ledger.domains.insert(name.clone(), entry.clone());
            }
            Step::StartPool { .. } | Step::StartNetwork { .. } => {}
            other => panic!("nothing of the kind for a node that has nothing: {other:?}"),
        }
    }
    (there, ledger)
}

fn domain(wanted: &Wanted, name: &str) -> Element {
    Element::parse(&wanted.domains[name].as_ref().expect("a domain").xml).expect("XML")
}

#[test]
fn the_nodes_own_templates_come_to_documents_of_what_the_values_say() {
    let wanted = all(&values(), &facts(), &Ledger::default());
    assert_eq!(wanted.errors, Vec::<String>::new());
    let network = wanted.networks["management"].as_ref().expect("a network");
    for part in [
        "stp=\"off\" delay=\"0\"",
        "mode=\"open\"",
        "address=\"192.168.2.10\" prefix=\"20\"",
        "start=\"192.168.4.0\" end=\"192.168.4.63\"",
    ] {
        assert!(network.xml.contains(part), "{part}: {}", network.xml);
    }
    assert_eq!((network.bridge.as_deref(), network.plug.as_deref()), (Some("vm-infra"), Some("enp3s7")));
    let master = domain(&wanted, "master-0");
    assert_eq!(master.get("type"), Some("kvm"));
    assert!(master.child("memoryBacking").is_some(), "huge pages");
    let pins = master.child("cputune").expect("pinned").elements().filter(|pin| pin.name == "vcpupin");
    assert_eq!(
        pins.map(|pin| pin.get("cpuset").unwrap_or_default().to_owned()).collect::<Vec<_>>(),
        ["2"],
        "0-1 are excluded"
    );
    let screen = master.child("devices").and_then(|devices| devices.child("graphics")).expect("a screen");
    assert_eq!(screen.get("passwd"), Some("12345678"));
    let worker = wanted.domains["worker-0"].as_ref().expect("a domain");
    let volumes: Vec<(&str, u64)> =
        worker.volumes.iter().map(|volume| (volume.name.as_str(), volume.bytes >> 30)).collect();
    assert_eq!(volumes, [("worker-0", 10), ("worker-0-data", 20)]);
    assert!(domain(&wanted, "worker-0").child("devices").and_then(|devices| devices.child("graphics")).is_none());
}

#[test]
fn without_kvm_machines_are_emulated() {
    let wanted = all(&values(), &Facts { accelerator: Accelerator::Tcg, ..facts() }, &Ledger::default());
    let master = domain(&wanted, "master-0");
    assert_eq!((master.get("type"), master.of_child("cpu", "mode")), (Some("qemu"), Some("maximum")));
}

#[test]
fn what_cannot_be_is_told_for_its_own_domain_and_the_others_go_on() {
    let facts = Facts { huge_pages: 1, passwords: BTreeMap::new(), ..facts() };
    let mut some = values();
    let wanted = all(&some, &facts, &Ledger::default());
    let error = wanted.domains["master-0"].as_ref().expect_err("no password");
    assert!(error.contains("`default-vino-test-cr-vnc` has no key"), "{error}");
    assert!(wanted.domains["worker-0"].is_ok());
    some.domains[0].enable_vnc = false;
    some.domains[1].flavor.vcpus = 3;
    let wanted = all(&some, &facts, &Ledger::default());
    let error = wanted.domains["master-0"].as_ref().expect_err("too few pages");
    assert!(error.contains("needs 4 huge pages of 1 GiB, 1 are left"), "{error}");
    let error = wanted.domains["worker-0"].as_ref().expect_err("too few cores");
    assert!(error.contains("needs 3 cores of one NUMA node"), "{error}");
    some.configuration.cpu_exclude = Some("x".to_owned());
    let wanted = all(&some, &facts, &Ledger::default());
    let told = wanted.domains.values().filter_map(|domain| domain.as_ref().err());
    assert_eq!(told.filter(|error| error.starts_with("`cpuExclude`: `x`")).count(), 2, "both, and both stay");
}

#[test]
fn an_interface_with_addresses_is_not_plugged_in_and_a_bridge_is_used_as_it_is() {
    let mut facts = facts();
    facts.links.insert("enp3s7".to_owned(), Link { addresses: vec!["172.22.0.1".to_owned()], ..Link::default() });
    let wanted = all(&values(), &facts, &Ledger::default());
    let error = wanted.networks["management"].as_ref().expect_err("it would lose them");
    assert!(error.contains("`enp3s7` has the address 172.22.0.1"), "{error}");
    facts
        .links
        .insert("enp3s7".to_owned(), Link { bridge: true, addresses: vec!["172.22.0.1".to_owned()], master: None });
    let wanted = all(&values(), &facts, &Ledger::default());
    let network = wanted.networks["management"].as_ref().expect("a network");
    assert_eq!((network.bridge.as_deref(), &network.plug), (Some("enp3s7"), &None));
    assert!(network.xml.contains("mode=\"bridge\""), "no DHCP but that of its owner: {}", network.xml);
    facts.links.remove("enp3s7");
    let error = all(&values(), &facts, &Ledger::default()).networks["management"].clone().expect_err("none");
    assert!(error.contains("no interface `enp3s7`"), "{error}");
}

/// The addresses of a node are often those of a bridge or bond over its cards.
#[test]
fn an_interface_is_not_taken_out_of_what_somebody_else_put_it_into() {
    let mut facts = facts();
    facts.links.insert("enp3s7".to_owned(), Link { master: Some("br0".to_owned()), ..Link::default() });
    let error = all(&values(), &facts, &Ledger::default()).networks["management"].clone().expect_err("it would leave");
    assert!(error.contains("`enp3s7` is part of `br0`") && error.contains("hint: name `br0`"), "{error}");
    let entry = NetworkEntry { plugged: Some("enp3s7".to_owned()), ..NetworkEntry::default() };
    let ledger = Ledger { networks: BTreeMap::from([("management".to_owned(), entry)]), ..Ledger::default() };
    assert!(all(&values(), &facts, &ledger).networks["management"].is_ok(), "it is in a bridge of ours");
}

/// Else each pass would take it from the one and give it to the other.
#[test]
fn an_interface_is_plugged_into_one_network() {
    let mut some = values();
    some.networks.push(NetworkValues { name: "storage".to_owned(), bridge_name: None, ..some.networks[0].clone() });
    let wanted = all(&some, &facts(), &Ledger::default());
    assert!(wanted.networks["management"].is_ok());
    let error = wanted.networks["storage"].as_ref().expect_err("it is taken");
    assert!(error.contains("`enp3s7` is for network `management` already"), "{error}");
    // A bridge of the node is for all of them.
    let links = BTreeMap::from([("enp3s7".to_owned(), Link { bridge: true, ..Link::default() })]);
    let wanted = all(&some, &Facts { links, ..facts() }, &Ledger::default());
    assert!(wanted.networks.values().all(Result::is_ok));
}

#[test]
fn what_was_made_is_left_alone_until_it_is_asked_for_otherwise() {
    let wanted = all(&values(), &facts(), &Ledger::default());
    let first = plan(&There { links: facts().links, ..There::default() }, &wanted, &Ledger::default());
    assert_eq!(first.wrong, BTreeMap::new());
    let (there, ledger) = done(&first, &wanted);
    let again = all(&values(), &facts(), &ledger);
    assert_eq!(plan(&there, &again, &ledger), Plan::default(), "nothing is left to do");
    let mut more = values();
    more.domains[1].flavor.memory = 3;
    more.domains[1].disk_drives[0].size_gb = Some(25);
    let (mut there, more) = (there, all(&more, &facts(), &ledger));
    there.domains.insert("worker-0".to_owned(), DomainState::Running);
    there.runs.insert("worker-0".to_owned(), "7".to_owned());
    let steps = plan(&there, &more, &ledger).steps;
    let [Step::DefineDomain { entry, .. }, Step::GrowVolume { runs: true, bytes, .. }] = &steps[..] else {
        panic!("{steps:?}")
    };
    assert_eq!((*bytes >> 30, entry.pending.as_deref()), (25, Some("7")), "it waits for another run");
}

#[test]
fn a_volume_is_never_made_smaller() {
    let wanted = all(&values(), &facts(), &Ledger::default());
    let (there, ledger) =
        done(&plan(&There { links: facts().links, ..There::default() }, &wanted, &Ledger::default()), &wanted);
    let mut less = values();
    less.domains[1].flavor.root_size = 5;
    let plan = plan(&there, &all(&less, &facts(), &ledger), &ledger);
    assert_eq!(plan.steps, []);
    assert!(plan.wrong[&About::Domain("worker-0".to_owned())].contains("never made smaller"), "{plan:?}");
}

/// libvirt's definitions went with the pod of before; bridges and volumes did not.
#[test]
fn a_bridge_of_a_pod_of_before_is_made_anew_and_goes_with_its_network() {
    let wanted = all(&values(), &facts(), &Ledger::default());
    let link = |bridge, master: Option<&str>| Link { bridge, master: master.map(str::to_owned), ..Link::default() };
    let links = [("vm-infra", link(true, None)), ("enp3s7", link(false, Some("vm-infra")))];
    let there = There { links: links.map(|(name, link)| (name.to_owned(), link)).into(), ..There::default() };
    let (bridge, interface) = (Some("vm-infra".to_owned()), Some("enp3s7".to_owned()));
    let entry = NetworkEntry { of_libvirt: bridge.clone(), plugged: interface, ..NetworkEntry::default() };
    let ledger = Ledger { networks: BTreeMap::from([("management".to_owned(), entry)]), ..Ledger::default() };
    let steps = plan(&there, &wanted, &ledger).steps;
    let about = About::Network("management".to_owned());
    let steps: Vec<&Step> = steps.iter().filter(|step| step.about() == about).collect();
    let [Step::RemoveBridge { .. }, Step::DefineNetwork { .. }, Step::StartNetwork { .. }, Step::Plug { .. }] =
        steps[..]
    else {
        panic!("{steps:?}")
    };
    let steps = plan(&there, &Wanted::default(), &ledger).steps;
    assert!(matches!(&steps[1], Step::RemoveNetwork { there: None, bridge: Some(_), .. }), "{steps:?}");
    // One that libvirt knows is libvirt's to remove.
    let there = There { networks: BTreeMap::from([("management".to_owned(), true)]), ..there };
    let steps = plan(&there, &Wanted::default(), &ledger).steps;
    assert!(matches!(&steps[1], Step::RemoveNetwork { there: Some(true), bridge: None, .. }), "{steps:?}");
}

/// A power cut between the new definition and the removal must not leave the volume to nobody.
#[test]
fn a_volume_that_is_not_asked_for_any_more_is_known_until_it_is_removed() {
    let wanted = all(&values(), &facts(), &Ledger::default());
    let (mut there, mut ledger) =
        done(&plan(&There { links: facts().links, ..There::default() }, &wanted, &Ledger::default()), &wanted);
    let mut fewer = values();
    fewer.domains[1].disk_drives.clear();
    let fewer = all(&fewer, &facts(), &ledger);
    let steps = plan(&there, &fewer, &ledger).steps;
    let [Step::DefineDomain { entry, .. }, removal @ Step::RemoveVolume { there: true, .. }] = &steps[..] else {
        panic!("{steps:?}")
    };
    assert_eq!(entry.volumes.len(), 2);
    ledger.domains.insert("worker-0".to_owned(), entry.clone());
    assert_eq!(plan(&there, &fewer, &ledger).steps, std::slice::from_ref(removal), "it is tried again");
    there.domains.insert("worker-0".to_owned(), DomainState::Running);
    assert_eq!(plan(&there, &fewer, &ledger).steps, [], "a machine that runs has it still");
}

#[test]
fn what_is_no_longer_asked_for_goes_and_nothing_of_others() {
    let wanted = all(&values(), &facts(), &Ledger::default());
    let (mut there, ledger) =
        done(&plan(&There { links: facts().links, ..There::default() }, &wanted, &Ledger::default()), &wanted);
    there.domains.insert("foreign".to_owned(), DomainState::Running);
    there.domains.insert("worker-0".to_owned(), DomainState::Running);
    let nothing = NodeValues { networks: Vec::new(), domains: Vec::new(), ..values() };
    let steps = plan(&there, &all(&nothing, &facts(), &ledger), &ledger).steps;
    let gone: Vec<String> = steps.iter().map(|step| format!("{:?}", step.about())).collect();
    assert_eq!(
        gone,
        [
            "Domain(\"master-0\")",
            "Domain(\"worker-0\")",
            "Network(\"management\")",
            "Network(\"management\")",
            "Pool(\"vino-default\")"
        ]
    );
    assert!(matches!(&steps[1], Step::RemoveDomain { runs: true, volumes, .. } if volumes.len() == 2), "{steps:?}");
}

#[test]
fn what_somebody_else_made_is_told_and_left() {
    let wanted = all(&values(), &facts(), &Ledger::default());
    let there = There {
        domains: BTreeMap::from([("worker-0".to_owned(), DomainState::Running)]),
        networks: BTreeMap::from([("management".to_owned(), true)]),
        links: facts().links,
        ..There::default()
    };
    let plan = plan(&there, &wanted, &Ledger::default());
    assert!(plan.wrong.contains_key(&About::Network("management".to_owned())));
    let told = report("h", Accelerator::Kvm, &there, &wanted, &Ledger::default(), &plan.wrong);
    let worker = told.domains.iter().find(|domain| domain.name == "worker-0").expect("told");
    assert_eq!(worker.state, DomainState::Absent);
    assert!(worker.error.as_deref().is_some_and(|error| error.contains("ViNO did not make")), "{told:?}");
}

#[test]
fn a_template_of_a_user_that_is_wrong_is_told_and_the_domain_of_before_stays() {
    let wanted = all(&values(), &facts(), &Ledger::default());
    let (there, ledger) =
        done(&plan(&There { links: facts().links, ..There::default() }, &wanted, &Ledger::default()), &wanted);
    let text = "flavorTemplates: { worker: { domainTemplate: \"<domain>\\n<name>{{ domain.name }}</name>\\n{{ nothing.x }}</domain>\" } }";
    let templates =
        Templates::read(&BTreeMap::from([("flavor-templates.yaml".to_owned(), text.to_owned())])).expect("read");
    let broken = super::wanted::wanted(&values(), &templates, &facts(), &ledger);
    let plan = plan(&there, &broken, &ledger);
    assert_eq!(plan.steps, []);
    let error = &plan.wrong[&About::Domain("worker-0".to_owned())];
    assert!(error.starts_with("`domainTemplate` of `worker` in `flavor-templates.yaml`, line 3: "), "{error}");
}

#[test]
fn a_domain_whose_change_came_is_no_longer_pending() {
    let entry = DomainEntry { pending: Some("7".to_owned()), ..DomainEntry::default() };
    let ledger = Ledger { domains: BTreeMap::from([("w".to_owned(), entry)]), ..Ledger::default() };
    let told = report("h", Accelerator::Tcg, &There::default(), &Wanted::default(), &ledger, &BTreeMap::new());
    assert!(told.domains[0].restart_pending);
}

/// Templates as `ViNO`'s own files are written: a date, a filter of Ansible, prefixes that nobody declared, words between.
#[test]
fn templates_as_users_of_vino_write_them_are_taken() {
    let text = r#"
flavorTemplates:
  worker:
    domainTemplate: |
      {% if domain is defined %}
      <domain type="kvm">
        <name>{{ domain.name }}</name>
        <uuid>{{ domain.name | hash('md5') }}</uuid>
        <metadata><vino:flavor>worker</vino:flavor><vino:creationTime>{{ ansible_date_time.date }}</vino:creationTime></metadata>
        <memory unit="GiB">{{ flavors.worker.memory }}</memory>
        {% if flavors.worker.hugepages is defined and flavors.worker.hugepages == true %}
        <memoryBacking/>
        {% endif %}
        {% if node_core_map[domain.name] is defined %}
        # words
        <cputune>{% for core in node_core_map[domain.name] %}<vcpupin vcpu="{{ loop.index0 }}" cpuset="{{ core }}"/>{% endfor %}</cputune>
        {% endif %}
        <devices>
          {% for interface in domain.interfaces %}
          <interface type='bridge'><mac address='{{ interface.macAddress }}'/><source bridge='{{ interface.network }}'/></interface>
          {% endfor %}
          {% if domain.enable_vnc | default(false) %}<graphics type='vnc'/>{% endif %}
        </devices>
      </domain>
      {% endif %}
"#;
    let network = "libvirtNetworks:\n  - name: pxe\n    libvirtTemplate: |\n      <network><name>pxe</name><bridge name='pxe'/><ip address='10.0.0.1'>\
        <dhcp><bootp file='http://{{ pxeBootImageHost | default(ansible_default_ipv4.address) }}:{{ pxeBootImageHostPort | default(80) }}/x'/></dhcp></ip></network>\n";
    let data = BTreeMap::from([
        ("flavor-templates.yaml".to_owned(), text.to_owned()),
        ("network-templates.yaml".to_owned(), network.to_owned()),
    ]);
    let wanted = super::wanted::wanted(&values(), &Templates::read(&data).expect("read"), &facts(), &Ledger::default());
    let worker = domain(&wanted, "worker-0");
    assert!(worker.child("memoryBacking").is_none());
    assert_eq!(worker.child("cputune").map(|tune| tune.elements().count()), Some(1));
    let pxe = wanted.networks["pxe"].as_ref().expect("a network of its own");
    assert!(pxe.xml.contains("http://192.0.2.1:80/x") && pxe.xml.contains("stp=\"off\" delay=\"0\""), "{}", pxe.xml);
}
