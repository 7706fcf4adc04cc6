//! Files as ICN has them, and files that are wrong.

use proptest::prelude::{any, proptest};
use serde_json::Value;
use sha_crypt::{PasswordVerifier, ShaCrypt};

use super::{Choices, Converted, Input, convert, yaml};

const NODES: &str = include_str!("fixtures/nodes.json");
const CONFIG: &str = include_str!("fixtures/user_config.sh");
const SITE: &str = include_str!("fixtures/site.yaml");
const VALUES: &str = include_str!("fixtures/values.yaml");

fn choices() -> Choices {
    Choices {
        namespace: "metal3".into(),
        server: [172, 22, 0, 1].into(),
        ssh_keys: vec!["ssh-ed25519 AAAA operator".into()],
    }
}

fn inputs(files: &[(&str, &str)]) -> Vec<Input> {
    files.iter().map(|(file, text)| Input { file: (*file).into(), text: (*text).into() }).collect()
}

fn good(files: &[(&str, &str)]) -> Converted {
    convert(&inputs(files), &choices()).expect("good files")
}

/// What is told, a line each.
fn told(files: &[(&str, &str)]) -> String {
    let problems = convert(&inputs(files), &choices()).expect_err("bad files");
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn text(converted: &Converted) -> String {
    yaml(&converted.objects).expect("YAML")
}

fn secret<'a>(converted: &'a Converted, name: &str) -> &'a Value {
    converted.objects.iter().find(|it| it["metadata"]["name"] == name).expect("a secret")
}

#[test]
fn nodes_and_the_provider_network_become_secrets_and_hosts() {
    let converted = good(&[("nodes.json", NODES), ("user_config.sh", CONFIG)]);
    let mut shown = text(&converted);
    let data = secret(&converted, "node1-user-data")["stringData"]["userData"].as_str().expect("a text");
    let hash = data.split(['"', '\'', '\n', ' ']).find(|it| it.starts_with("$6$")).expect("a hash");
    ShaCrypt::default().verify_password(b"mypasswd", hash).expect("the hash of the password");
    for part in shown.clone().split(['"', '\'', '\n', ' ']).filter(|it| it.starts_with("$6$rounds=4096$")) {
        shown = shown.replace(part, "HASH");
    }
    insta::assert_snapshot!(shown);
    insta::assert_snapshot!("notes", converted.notes.join("\n"));
}

#[test]
fn releases_of_the_machine_chart_become_hosts_and_others_are_told() {
    let converted = good(&[("site.yaml", SITE)]);
    insta::assert_snapshot!(text(&converted));
    assert_eq!(
        converted.notes,
        [
            "site.yaml:1: this Namespace is no host",
            "site.yaml:36: this HelmRelease of the chart `deploy/cluster` is no host"
        ]
    );
}

#[test]
fn values_of_the_machine_chart_become_a_host() {
    insta::assert_snapshot!(text(&good(&[("values.yaml", VALUES)])));
}

/// What an R6 values file says of the disk and of the node's addresses, whatever else it says.
#[test]
fn a_host_without_an_image_keeps_its_disk_and_its_addresses() {
    let values =
        |more: &str| format!("machineName: a\nbmcAddress: ipmi://10.0.0.2\nbmcUsername: a\nbmcPassword: b\n{more}");
    let ethernets = "networkData:\n  links: { ethernets: { baremetal: { macAddress: 00:1e:67:fe:f4:19 }, other: { macAddress: 00:1e:67:fe:f4:1a } } }\n";
    let networks = |networks: &str| values(&format!("{ethernets}  networks: {networks}\n"));
    let table = [
        (values(""), None),
        (values("imageName: a.qcow2\n"), None),
        (
            networks("{ ipv4: { baremetal: { ipAddress: 10.10.110.21/24 }, other: { ipAddress: 10.10.112.2/24 } } }"),
            Some("10.10.110.21"),
        ),
        (networks("{ ipv4: { a: { link: baremetal, ipAddress: 10.10.110.21/24 } } }"), Some("10.10.110.21")),
        (
            networks(
                "{ ipv6: { baremetal: { ipAddress: \"fd00::21/64\" } }, ipv4: { baremetal: { ipAddress: 10.10.110.21/24 } } }",
            ),
            Some("10.10.110.21,fd00::21"),
        ),
        (
            networks(
                "{ ipv4: { b: { link: baremetal, ipAddress: 10.0.0.2/24 }, a: { link: baremetal, ipAddress: 10.0.0.1/24 } } }",
            ),
            Some("10.0.0.1,10.0.0.2"),
        ),
        (networks("{ ipv4DHCP: { baremetal: {} }, ipv4: { other: { ipAddress: 10.10.112.2/24 } } }"), None),
        (
            values(
                "networks: { baremetal: { macAddress: 00:1e:67:fe:f4:19, type: ipv4, ipAddress: 10.10.110.21/24 } }\n",
            ),
            Some("10.10.110.21"),
        ),
    ];
    for (values, expected) in table {
        let converted = good(&[("values.yaml", &values)]);
        let host = converted.objects.iter().find(|it| it["kind"] == "BareMetalHost").expect("a host");
        assert_eq!(host["spec"]["rootDeviceHints"], serde_json::json!({"minSizeGigabytes": 48}), "{values}");
        assert_eq!(host["metadata"]["annotations"]["icn.akraino.org/node-ip"].as_str(), expected, "{values}");
    }
    let nodes = good(&[(
        "nodes.json",
        "{ \"nodes\": [ { \"name\": \"a\", \"ipmi_driver_info\": { \"address\": \"10.0.0.2\", \"username\": \"a\", \"password\": \"b\" } } ] }",
    )]);
    assert!(text(&nodes).contains("minSizeGigabytes: 48"));
}

/// Each release's files, as its own examples have them; what says nothing of hosts is noted.
#[test]
fn files_of_every_release_are_read_and_what_means_nothing_here_is_noted() {
    let bmc = "bmcAddress: ipmi://10.0.0.2\n    bmcUsername: a\n    bmcPassword: b\n";
    let early = format!(
        "machines:\n  pod11-node1:\n    {bmc}  pod11-node2:\n    machineName: other\n    {}flux: {{ branch: master }}\n",
        bmc.replace("10.0.0.2", "10.0.0.3")
    );
    let converted = good(&[("values.yaml", &early)]);
    let hosts = converted.objects.iter().filter(|it| it["kind"] == "BareMetalHost");
    let names: Vec<_> = hosts.map(|it| it["metadata"]["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["pod11-node1", "other"]);
    assert_eq!(converted.notes, ["values.yaml:11: `flux`: nothing of a host is made of it"]);
    let unnamed = told(&[("values.yaml", &early.replace("pod11-node1", "Pod_1"))]);
    assert!(unnamed.contains("found `Pod_1`, expected a host name"), "{unnamed}");

    let networks = |networks: &str| {
        format!(
            "machineName: a\nbmcAddress: ipmi://10.0.0.2\nbmcUsername: a\nbmcPassword: b\nnetworkData:\n  links:\n    ethernets: \
             {{ provisioning: {{ macAddress: 00:1e:67:fe:f4:19 }}, private_nic: {{ macAddress: 00:1e:67:fe:f4:1a }} }}\n  \
             networks: {networks}\n"
        )
    };
    // The first charts name a card with each of its networks.
    let card = "macAddress: 00:1e:67:fe:f4:19, type";
    let flat = format!("    networks: {{ a: {{ {card}: ipv4_dhcp }}, b: {{ {card}: ipv6_dhcp }} }}\n");
    let converted = good(&[("values.yaml", &format!("machines:\n  one:\n    {bmc}{flat}"))]);
    let data = secret(&converted, "one-network-data")["stringData"]["networkData"].as_str().expect("a text");
    let data: Value = serde_saphyr::from_str(data).expect("YAML");
    let links = data["networks"].as_array().expect("a list").iter().map(|it| it["link"].clone());
    assert_eq!(
        (links.collect::<Vec<_>>(), data["links"].as_array().map(Vec::len)),
        (vec!["a".into(), "a".into()], Some(1))
    );

    for (written, link) in [
        ("{ ipv4DHCP: { provisioning: {} } }", Some("provisioning")),
        ("{ ipv4DHCP: { provisioning: ~ } }", Some("provisioning")),
        ("{ ipv6DHCP: { provisioning: {} } }", Some("provisioning")),
        ("{ ipv4DHCP: { private: {} } }", Some("private_nic")),
        ("{ ipv4DHCP: { storage: {} } }", None),
    ] {
        let converted = good(&[("values.yaml", &networks(written))]);
        let data = secret(&converted, "a-network-data")["stringData"]["networkData"].as_str().expect("a text");
        let data: Value = serde_saphyr::from_str(data).expect("YAML");
        assert_eq!(data["networks"][0]["link"].as_str(), link, "{written}: {data}");
        assert_eq!(converted.notes.len(), usize::from(link.is_none()), "{:?}", converted.notes);
    }

    let config = "export IRONIC_INTERFACE=\"enp4s0f3\"\nexport IRONIC_ENABLE_DHCP=\"yes\"\nexport DOCKER_REGISTRY_MIRRORS=\"\"\n\
                  DOCKER_REGISTRY_MIRRORS=https://mirror.example\nexport KUD_ADDONS=all\n";
    let converted = good(&[("nodes.json", NODES), ("user_config.sh", config)]);
    let about: Vec<_> = converted.notes.iter().filter_map(|note| note.split('`').nth(1)).collect();
    assert_eq!(about, ["IRONIC_INTERFACE", "IRONIC_ENABLE_DHCP", "DOCKER_REGISTRY_MIRRORS", "KUD_ADDONS"]);
    let slip = told(&[("nodes.json", NODES), ("user_config.sh", "PROVIDER_NETWORK_GATEWY=10.0.0.1\n")]);
    assert!(slip.contains("`PROVIDER_NETWORK_GATEWY`: found a key that nobody knows"), "{slip}");
}

/// The same files as others write and print them.
#[test]
fn files_of_every_hand_are_read() {
    let bmc = |indent: &str| {
        ["bmcAddress: ipmi://10.0.0.2", "bmcUsername: a", "bmcPassword: b"]
            .map(|line| format!("{indent}{line}\n"))
            .concat()
    };
    let release = |chart: &str, indent: &str| {
        let lines =
            ["kind: HelmRelease", "spec:", "  chart: { spec: { chart: CHART } }", "  values:", "    machineName: a"];
        let lines = lines.map(|line| format!("{indent}{line}\n")).concat().replace("CHART", chart);
        lines + &bmc(&format!("{indent}    "))
    };
    let flux = |chart: &str| format!("apiVersion: helm.toolkit.fluxcd.io/v2\n{}", release(chart, ""));
    let listed = format!(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: helm.toolkit.fluxcd.io/v2\n{}",
        release("deploy/machine", "  ")
    );
    let json = |address: &str| {
        format!(
            "{{\"nodes\": [{{\"name\": \"a\", \"ipmi_driver_info\": {{\"address\": \"{address}\", \"username\": \"a\", \"password\": \"b\"}}}}]}}"
        )
    };
    let windows = format!("machineName: a\n{}", bmc("")).replace('\n', "\r\n");
    for (file, text, address) in [
        ("a.yaml", format!("\u{feff}{windows}"), "ipmi://10.0.0.2"),
        ("a.yaml", flux("./deploy/machine"), "ipmi://10.0.0.2"),
        ("a.yaml", flux("machine/"), "ipmi://10.0.0.2"),
        ("a.yaml", listed, "ipmi://10.0.0.2"),
        ("a.json", format!("\u{feff}{}", json("10.0.0.2:6230")), "ipmi://10.0.0.2:6230"),
        ("a.json", json("fd00::2"), "ipmi://[fd00::2]"),
        (
            "a.json",
            "{\n\t\"machineName\": \"a\", \"bmcAddress\": \"ipmi://10.0.0.2\", \"bmcUsername\": \"a\", \"bmcPassword\": \"b\"\n}\n".to_owned(),
            "ipmi://10.0.0.2",
        ),
        ("a.json", json("[fd00::2]:6230"), "ipmi://[fd00::2]:6230"),
    ] {
        let converted = good(&[(file, &text)]);
        let host = converted.objects.iter().find(|it| it["kind"] == "BareMetalHost").expect("a host");
        assert_eq!(host["spec"]["bmc"]["address"], address, "{text}");
        assert_eq!(host["spec"]["rootDeviceHints"]["minSizeGigabytes"], 48, "{text}");
    }
    let other = told(&[("a.yaml", &flux("deploy/cluster"))]);
    assert!(
        other.contains("found no host (a.yaml:1: this HelmRelease of the chart `deploy/cluster` is no host)"),
        "{other}"
    );
    let number = told(&[("a.yaml", &format!("machineName: a\n{}", bmc("").replace("Password: b", "Password: 0123")))]);
    assert!(number.ends_with("found a number, or true or false, expected the BMC's password, in quotes"), "{number}");
}

#[test]
fn what_comes_out_is_read_by_the_rehearsal() {
    let other = VALUES.replace("00:1e:67:fe:f4:1a", "00:1e:67:fe:f4:1b");
    let converted = good(&[("nodes.json", NODES), ("values.yaml", &other)]);
    let hosts = crate::bmc::manifests::read(&text(&converted)).expect("hosts");
    let names: Vec<_> = hosts.iter().map(|host| (host.name.as_str(), host.credentials.is_ok())).collect();
    assert_eq!(names, [("node1", true), ("node2", true), ("pod11-node5", true)]);
}

#[test]
fn every_mistake_is_told_with_line_key_found_and_expected() {
    let nodes = "{ \"nodes\": [ {\n\t\"name\": \"Node_1\",\n\t\"ipmi_driver_info\": { \"adress\": \"1.2.3.4\", \"username\": \"\", \"password\": 12 },\n\
                 \"os\": { \"image_name\": \"../x\" }, \"net\": { \"links\": [ { \"id\": \"provisioning_nic\", \"ethernet_mac_address\": \"00:11\" } ] }\n} ] }\n";
    let values = "machineName: a\nbmcAddress: gopher://1.2.3.4\nbmcUsername: a\nbmcPassword: b\n";
    let network = "machineName: a\nbmcAddress: 1.2.3.4\nbmcUsername: a\nbmcPassword: ENC[AES256_GCM,data:x]\nimageNam: x\nnetworkData:\n  \
                   links: { ethernets: { a: {} } }\n  networks: { ipv4: { b: { link: c, ipAddress: 10.0.0.1 } } }\n";
    let config = "PROVIDER_NETWORK_GATEWAY=$(ip route)\nPROVIDER_NETWORK_GATEWAY=10.0.0\nFOO=1\nrm -rf /\n";
    let all = told(&[
        ("nodes.json", nodes),
        ("good.yaml", values),
        ("bad.yaml", network),
        ("user_config.sh", config),
        ("list.yaml", "- a\n"),
        ("torn.yaml", "a: [\n"),
    ]);
    insta::assert_snapshot!(all);
    assert_eq!(
        told(&[("a.yaml", VALUES), ("b.yaml", VALUES)]),
        "b.yaml:1: found `pod11-node5` again, expected a name that no other host has: a.yaml:1 has it\n\
         b.yaml:4: `bmcAddress`: found `redfish+https://10.10.110.15/redfish/v1/Systems/1`, the BMC of `pod11-node5`, \
         expected a BMC that no other host has: a.yaml:4 has it\n\
         b.yaml:8: `bootMACAddress`: found `00:1e:67:fe:f4:1a`, the card of `pod11-node5`, expected a MAC address that no \
         other host has: a.yaml:8 has it"
    );
    assert!(told(&[("user_config.sh", CONFIG)]).contains("found no host"));
}

/// A host of the machine chart, with more lines.
fn machine(name: &str, address: &str, more: &str) -> String {
    format!("machineName: {name}\nbmcAddress: {address}\nbmcUsername: a\nbmcPassword: b\n{more}")
}

/// Values of the machine chart that cloud-init would take and make nothing of; what may be a secret is not shown.
#[test]
fn who_may_log_in_is_checked() {
    let user = |lines: &str| machine("a", "10.0.0.2", &format!("userData: {{ {lines} }}\n"));
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUj2nTRtTBGTKkZEZyEw4c3DPZi3s4aPbLy7KIw2Xx3 me";
    good(&[("a.yaml", &user(&format!("sshAuthorizedKey: '{key}', hashedPassword: $y$j9T$a$b, fqdn: a.example.org")))]);
    for (lines, expected) in [
        (
            "sshAuthorizedKey: hunter2",
            "`userData.sshAuthorizedKey`: found another text, which is not shown, expected a public",
        ),
        ("sshAuthorizedKey: ssh-ed25519 hunter2", "`userData.sshAuthorizedKey`: found another text"),
        (
            "sshAuthorizedKey: '-----BEGIN OPENSSH PRIVATE KEY----- hunter2'",
            "`userData.sshAuthorizedKey`: found another text",
        ),
        (
            "hashedPassword: hunter2",
            "`userData.hashedPassword`: found another text, which is not shown, expected a hash",
        ),
        ("hashedPassword: [hunter2]", "`userData.hashedPassword`: found a list, expected a hash"),
        (
            "fqdn: node_1.example.org",
            "`userData.fqdn`: found `node_1.example.org`, expected a host name with its domain",
        ),
    ] {
        let told = told(&[("a.yaml", &user(lines))]);
        assert!(told.starts_with(&format!("a.yaml:5: {expected}")) && !told.contains("hunter2"), "{told}");
    }
}

/// What would be refused later, by the API server or by the controller, is told here.
#[test]
fn labels_addresses_and_the_namespace_are_those_that_are_admitted() {
    let labels = |labels: &str| machine("a", "10.0.0.2", &format!("machineLabels: {{ {labels} }}\n"));
    good(&[("a.yaml", &labels("machine: a, example.org/Rack_1: '', b.c: X-1.y"))]);
    for (wrong, expected) in [
        ("a b: c", "a.yaml:5: `machineLabels.a b`: found `a b`, expected a label's key"),
        ("/a: c", "a.yaml:5: `machineLabels./a`: found `/a`, expected a label's key"),
        ("Example.org/a: c", "a.yaml:5: `machineLabels.Example.org/a`: found `Example.org/a`, expected a label's key"),
        ("a: b c", "a.yaml:5: `machineLabels.a`: found `b c`, expected a label's value"),
        ("a: -b", "a.yaml:5: `machineLabels.a`: found `-b`, expected a label's value"),
    ] {
        let told = told(&[("a.yaml", &labels(wrong))]);
        assert!(told.starts_with(expected), "{told}");
    }
    good(&[("a.yaml", &machine("a", "redfish+https://10.0.0.2:8443/redfish/v1/Systems/1", ""))]);
    for address in ["redfish+https://10.0.0.2:99999", "ipmi://10.0.0.2:99999"] {
        assert_eq!(
            told(&[("a.yaml", &machine("a", address, ""))]),
            "a.yaml:2: `bmcAddress`: found the port `99999`, expected a port from 1 to 65535"
        );
    }
    let one = inputs(&[("a.yaml", &machine("a", "10.0.0.2", ""))]);
    for (namespace, is_good) in [("metal3", true), ("site-1", true), ("Metal", false), ("a.b", false), ("", false)] {
        let converted = convert(&one, &Choices { namespace: namespace.into(), ..choices() });
        assert_eq!(converted.is_ok(), is_good, "{namespace}");
        let told = converted.err().and_then(|problems| Some(problems.first()?.to_string()));
        let expected = format!("--namespace: found `{namespace}`, expected a name of a namespace");
        assert!(told.is_none_or(|told| told.starts_with(&expected)));
    }
}

#[test]
fn two_hosts_with_one_bmc_or_one_card_are_told() {
    let nodes = |second: &str, mac: &str| {
        let node = |name: &str, address: &str, mac: &str| {
            format!(
                "{{ \"name\": \"{name}\",\n\"ipmi_driver_info\": {{ \"address\": \"{address}\", \"username\": \"a\", \"password\": \"b\" }},\n\
                 \"net\": {{ \"links\": [ {{ \"id\": \"provisioning_nic\", \"ethernet_mac_address\": \"{mac}\" }} ] }} }}"
            )
        };
        let both = [node("a", "10.0.0.2", "52:54:00:00:00:0a"), node("b", second, mac)].join(",\n");
        format!("{{ \"nodes\": [\n{both}\n] }}\n")
    };
    good(&[("n.json", &nodes("10.0.0.2:6230", "52:54:00:00:00:0b"))]);
    let both = told(&[("n.json", &nodes("10.0.0.2:623", "52:54:00:00:00:0A"))]);
    assert_eq!(
        both,
        "n.json:6: `nodes[1].ipmi_driver_info.address`: found `ipmi://10.0.0.2:623`, the BMC of `a`, expected a BMC that no \
         other host has: n.json:3 has it\n\
         n.json:7: `nodes[1].net.links[0].ethernet_mac_address`: found `52:54:00:00:00:0a`, the card of `a`, expected a MAC \
         address that no other host has: n.json:4 has it"
    );
    let card = |name: &str, address: &str, mac: &str| machine(name, address, &format!("bootMACAddress: {mac}\n"));
    let one = card("a", "redfish://10.0.0.2/redfish/v1/Systems/1", "52:54:00:00:00:0a");
    let other = card("b", "redfish://10.0.0.2/redfish/v1/Systems/2", "52:54:00:00:00:0b");
    good(&[("a.yaml", &one), ("b.yaml", &other)]);
    let same = told(&[("a.yaml", &one), ("b.yaml", &other.replace("Systems/2", "Systems/1/"))]);
    assert!(
        same.starts_with("b.yaml:2: `bmcAddress`: found `redfish://10.0.0.2/redfish/v1/Systems/1/`, the BMC"),
        "{same}"
    );
}

#[test]
fn networks_are_on_links_and_gateways_within_their_networks() {
    let chart = |networks: &str| {
        let links = "{ ethernets: { a: { macAddress: 00:1e:67:fe:f4:19 }, b: { macAddress: 00:1e:67:fe:f4:1a } } }";
        machine("a", "10.0.0.2", &format!("networkData:\n  links: {links}\n  networks: {networks}\n"))
    };
    let flat = |gateway: &str| {
        let network =
            format!("{{ macAddress: 00:1e:67:fe:f4:19, type: ipv4, ipAddress: 10.1.0.2/24, gateway: {gateway} }}");
        machine("a", "10.0.0.2", &format!("networks:\n  a: {network}\n"))
    };
    let raw = |network: &str| {
        format!(
            "{{ \"nodes\": [ {{ \"name\": \"a\", \"ipmi_driver_info\": {{ \"address\": \"10.0.0.2\", \"username\": \"a\", \"password\": \"b\" }},\n\
             \"net\": {{ \"links\": [ {{ \"id\": \"a\", \"ethernet_mac_address\": \"00:1e:67:fe:f4:19\" }} ],\n\"networks\": [ {network} ] }} }} ] }}\n"
        )
    };
    for right in [
        chart("{ ipv4: { a: { ipAddress: 10.1.0.2/24, gateway: 10.1.0.1 } } }"),
        chart("{ ipv4DHCP: { a: { gateway: 10.9.0.1 } } }"),
        chart("{ ipv6: { a: { ipAddress: 'fd00::2/64', gateway: 'fe80::1' } } }"),
        chart("{ ipv4: { a: { ipAddress: 10.1.0.2/24, gateway: 10.2.0.1 }, c: { link: a, ipAddress: 10.2.0.2/24 } } }"),
        flat("10.1.0.1"),
    ] {
        good(&[("a.yaml", &right)]);
    }
    for right in [
        r#"{ "id": "n", "link": "a", "type": "ipv4", "ip_address": "10.1.0.2", "netmask": "255.255.255.0", "gateway": "10.1.0.1" }"#,
        r#"{ "id": "n", "link": "a", "type": "ipv4", "ip_address": "10.1.0.2/16", "routes": [ { "network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.1.9.1" } ] }"#,
        r#"{ "id": "n", "link": "a", "type": "ipv4_dhcp", "gateway": "10.9.0.1" }"#,
    ] {
        good(&[("a.json", &raw(right))]);
    }
    let wrong = [
        (
            "a.yaml",
            chart("{ ipv4: { a: { ipAddress: 10.1.0.2/24, gateway: 10.2.0.1 } } }"),
            "a.yaml:7: `networkData.networks.ipv4.a.gateway`: found `10.2.0.1`, expected an address in `10.1.0.0/24`",
        ),
        (
            "a.yaml",
            chart("{ ipv4: { a: { ipAddress: 10.1.0.2/24, gateway: 10.1.0.2 } } }"),
            "a.yaml:7: `networkData.networks.ipv4.a.gateway`: found `10.1.0.2`, expected another address than the host's own",
        ),
        (
            "a.yaml",
            chart("{ ipv4: { a: { ipAddress: 10.1.0.2/24, gateway: 'fd00::1' } } }"),
            "a.yaml:7: `networkData.networks.ipv4.a.gateway`: found `fd00::1`, expected none, for the link has no IPv6 address",
        ),
        (
            "a.yaml",
            flat("10.2.0.1"),
            "a.yaml:6: `networks.a.gateway`: found `10.2.0.1`, expected an address in `10.1.0.0/24`",
        ),
        (
            "a.json",
            raw(r#"{ "id": "n", "link": "c", "type": "ipv4_dhcp" }"#),
            "a.json:3: `nodes[0].net.networks[0].link`: found `c`, expected the `id` of one of `links`",
        ),
        (
            "a.json",
            raw(r#"{ "id": "n", "link": "a", "type": "ipv4", "ip_address": "10.1.0.2/24", "gateway": "10.2.0.1" }"#),
            "a.json:3: `nodes[0].net.networks[0].gateway`: found `10.2.0.1`, expected an address in `10.1.0.0/24`",
        ),
        (
            "a.json",
            raw(
                r#"{ "id": "n", "link": "a", "type": "ipv4", "ip_address": "10.1.0.2", "netmask": "24", "routes": [ { "network": "0.0.0.0", "gateway": "10.2.0.1" } ] }"#,
            ),
            "a.json:3: `nodes[0].net.networks[0].routes[0].gateway`: found `10.2.0.1`, expected an address in `10.1.0.0/24`",
        ),
        (
            "a.json",
            raw(r#"{ "id": "n", "link": "a", "type": "ipv4", "ip_address": "10.1.0" }"#),
            "a.json:2: `nodes[0].net`: found what no server can use (",
        ),
        ("a.json", raw("5"), "a.json:2: `nodes[0].net`: found what no server can use ("),
    ];
    for (file, text, expected) in wrong {
        let told = told(&[(file, &text)]);
        assert!(told.starts_with(expected) && !told.contains('\n'), "{told}");
    }
}

#[test]
fn a_shell_file_is_never_run() {
    for line in [
        "IRONIC_INTERFACE=`id`",
        "IRONIC_INTERFACE=\"$(id)\"",
        "IRONIC_INTERFACE=a; id",
        "IRONIC_INTERFACE=\"a\"b",
        "source x",
    ] {
        let told = told(&[("nodes.json", NODES), ("user_config.sh", line)]);
        assert!(told.starts_with("user_config.sh:1: found `") && told.contains("read, not run"), "{line}: {told}");
    }
}

#[test]
fn the_value_of_an_unknown_key_is_never_shown() {
    let config = "export BMC_PASSWORD=hunter2\nIRONIC_INTERFACE=eno1\n";
    let notes = good(&[("nodes.json", NODES), ("user_config.sh", config)]).notes.join("\n");
    assert!(
        notes.contains("user_config.sh:1: `BMC_PASSWORD`: nothing of a host") && notes.contains("is `eno1`: "),
        "{notes}"
    );
    let told = told(&[("nodes.json", NODES), ("user_config.sh", "BMC_PASSWORD=\"hunter2\"$x")]);
    assert!(told.contains("found `BMC_PASSWORD=...`"), "{told}");
    assert!(!notes.contains("hunter2") && !told.contains("hunter2"), "{notes} {told}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0..4000_usize) {
        let noise = String::from_utf8_lossy(&bytes).into_owned();
        for (file, whole) in [("nodes.json", NODES), ("user_config.sh", CONFIG), ("site.yaml", SITE), ("values.yaml", VALUES)] {
            let at = (0..=cut.min(whole.len())).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or(0);
            let spoilt = format!("{}{noise}{}", &whole[..at], &whole[at..]);
            let _ = convert(&inputs(&[(file, &noise)]), &choices());
            let _ = convert(&inputs(&[(file, &spoilt)]), &choices());
        }
    }
}
