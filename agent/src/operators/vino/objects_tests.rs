use serde_json::json;

use super::*;

fn vino() -> Vino {
    let mut object: Vino =
        serde_saphyr::from_str(include_str!("../../../tests/fixtures/vino/vino.yaml")).expect("a Vino");
    object.metadata.namespace = Some("default".to_owned());
    object
}

fn ground() -> Ground {
    Ground {
        namespace: "vino-system".to_owned(),
        image: "foothold.dev/vino:1".to_owned(),
        interface: Some("ens4".to_owned()),
    }
}

#[test]
fn the_pod_of_a_node_is_what_node_and_controller_agreed_on() {
    let made = daemon_set(&vino(), &ground(), None).expect("a DaemonSet");
    insta::assert_snapshot!(serde_saphyr::to_string(&made).expect("YAML"));
}

#[test]
fn a_template_of_users_stays_what_it_is_but_for_who_and_where_it_is() {
    let mut object = vino();
    object.spec.daemon_set_options =
        Some(DaemonSetOptions { libvirt_image: Some("mine:2".to_owned()), ..DaemonSetOptions::default() });
    let template = "kind: DaemonSet\nmetadata: {name: vino, namespace: default, labels: {a: b}}\nspec:\n  selector: {matchLabels: {own: x}}\n  \
                    template:\n    metadata: {labels: {own: x}}\n    spec:\n      hostPID: true\n      containers:\n      \
                    - {name: libvirt, image: \"theirs:1\", env: [{name: NODE_NAME, value: wrong}, {name: OWN, value: mine}]}\n      \
                    - {name: more, image: \"more:1\"}\n";
    let made = json!(daemon_set(&object, &ground(), Some(template)).expect("a DaemonSet"));
    assert_eq!(made["metadata"]["name"], "default-vino-test-cr");
    assert_eq!(made["metadata"]["namespace"], "vino-system");
    assert_eq!(made["metadata"]["labels"]["a"], "b");
    let pod = &made["spec"]["template"]["spec"];
    assert_eq!((&pod["hostPID"], &pod["nodeSelector"]), (&json!(true), &json!({"beta.kubernetes.io/os": "linux"})));
    let containers = pod["containers"].as_array().expect("containers");
    assert_eq!((&containers[0]["image"], &containers[1]["image"]), (&json!("mine:2"), &json!("more:1")));
    let env = containers[0]["env"].as_array().expect("an environment");
    let named = |name: &str| env.iter().filter(|it| it["name"] == name).collect::<Vec<_>>();
    assert_eq!(named("OWN").len(), 1);
    assert_eq!(
        named("NODE_NAME"),
        [&json!({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})]
    );
    for labels in [&made["spec"]["selector"]["matchLabels"], &made["spec"]["template"]["metadata"]["labels"]] {
        assert_eq!(*labels, json!({"own": "x", CR_NAME: "vino-test-cr", CR_NAMESPACE: "default"}));
    }
    for (template, words) in [
        ("[", "is no DaemonSet"),
        ("kind: DaemonSet", "it has no `spec.template.spec.containers`"),
        ("spec: {template: {spec: {containers: [3]}}}", "is no DaemonSet"),
    ] {
        let why = daemon_set(&object, &ground(), Some(template)).expect_err("refused");
        assert!(why.contains(words), "{why}");
    }
}

/// There it was that of Redfish, which the hosts have in clear text.
#[test]
fn a_screen_has_a_password_of_its_own_that_stays() {
    let hosts = ["h-0".to_owned(), "h-1".to_owned()];
    let first = vnc(&vino(), &ground(), &hosts[..1], None);
    let again = vnc(&vino(), &ground(), &hosts, Some(&first));
    let text = |secret: &Secret, key: &str| {
        String::from_utf8(secret.data.as_ref().expect("data")[key].0.clone()).expect("text")
    };
    assert_eq!(text(&first, "h-0"), text(&again, "h-0"));
    assert_ne!(text(&again, "h-0"), text(&again, "h-1"));
    assert!(text(&again, "h-1").len() == 8 && text(&again, "h-1") != vino().spec.bmc_credentials.password);
    assert_eq!(vnc(&vino(), &ground(), &[], Some(&again)).data.expect("data").len(), 0);
}

#[test]
fn a_pods_account_reads_what_is_its_vinos_and_no_other_secret() {
    let (account, role, binding) = rights(&vino(), &ground());
    assert_eq!(account.name_any(), "default-vino-test-cr");
    assert_eq!(binding.subjects.expect("subjects")[0].namespace.as_deref(), Some("vino-system"));
    let rules = role.rules.expect("rules");
    let of = |resource: &str| {
        rules.iter().find(|rule| rule.resources.as_deref() == Some(&[resource.to_owned()])).expect("a rule")
    };
    assert_eq!(of("secrets").verbs, ["get"]);
    let names = of("secrets").resource_names.clone().expect("names");
    assert_eq!(names, ["default-vino-test-cr-bmc", "default-vino-test-cr-vnc"]);
    assert!(
        rules
            .iter()
            .all(|rule| !rule.verbs.iter().any(|verb| ["list", "create", "delete", "*"].contains(&verb.as_str())))
    );
}

#[test]
fn a_host_is_what_airship_makes_of_a_machine() {
    let object = vino();
    let wish = HostWish {
        name: "default-vino-test-cr-node01-worker-0",
        node: "node01",
        node_ip: "10.0.0.9",
        domain: "worker-0",
        boot_mac: "52:54:00:06:00:02",
        set: &object.spec.nodes[1],
        labels: labels(&object),
        has_network_data: true,
    };
    let made = json!(host(&ground(), &wish, None));
    assert_eq!(made["metadata"]["namespace"], "vino-system");
    assert_eq!(
        made["spec"],
        json!({"online": true, "bootMACAddress": "52:54:00:06:00:02",
        "bmc": {"address": "redfish+http://10.0.0.9:8000/redfish/v1/Systems/worker-0", "disableCertificateVerification": true,
            "credentialsName": "default-vino-test-cr-node01-worker-0-credentials"},
        "rootDeviceHints": {"deviceName": "/dev/vda"},
        "networkData": {"name": "default-vino-test-cr-node01-worker-0-network-data", "namespace": "vino-system"}})
    );
    assert_eq!(bmc_address("fd00::9", "a-0"), "redfish+http://[fd00::9]:8000/redfish/v1/Systems/a-0");
    // Its user switched it off.
    let mut had = host(&ground(), &wish, None);
    had.spec.online = false;
    had.metadata.resource_version = Some("7".to_owned());
    let again = host(&ground(), &wish, Some(&had));
    assert_eq!((again.spec.online, again.metadata.resource_version.as_deref()), (false, Some("7")));
}
