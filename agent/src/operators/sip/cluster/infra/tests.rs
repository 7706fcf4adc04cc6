use std::collections::BTreeMap;

use agent_api::sip::cluster::{Role, SipCluster};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{Addresses, Backend, Given, Images, Infra, Member, Objects, plan, wrong};

/// The shape of Airship's own sample.
fn sample() -> SipCluster {
    let text = include_str!("../../../../../tests/fixtures/sip/sipcluster.yaml");
    let mut object: SipCluster = serde_saphyr::from_str(text).expect("a SIPCluster");
    object.metadata.uid = Some("0a1b2c3d".to_owned());
    object
}

fn images() -> Images {
    let [own, jump_host, oidc] = ["sip", "jumphost", "oidc"].map(|name| format!("foothold.dev/{name}:1"));
    Images { own, jump_host, oidc }
}

fn member(role: Role, namespace: &str, name: &str) -> Member {
    Member { role, host: (namespace.to_owned(), name.to_owned()), standby: false, topology: None }
}

fn backends(members: &[Member]) -> Vec<Backend> {
    let address = |number: usize| -> Addresses {
        [("oam-ipv4".to_owned(), [10, 0, 0, u8::try_from(number).expect("few") + 1].into())].into()
    };
    let addresses: BTreeMap<_, _> =
        members.iter().enumerate().map(|(number, member)| (member.host.clone(), address(number))).collect();
    Backend::all(members, &addresses)
}

fn two_roles() -> Vec<Backend> {
    backends(&[
        member(Role::ControlPlane, "hosts", "cp1"),
        member(Role::Worker, "hosts", "w1"),
        member(Role::Worker, "hosts", "w2"),
    ])
}

fn given() -> Given {
    Given {
        node_keys: vec!["id_ed25519".to_owned()],
        host_key: ("private".to_owned(), "public".to_owned()),
        ..Given::default()
    }
}

fn made(infra: Infra, object: &SipCluster, given: &Given) -> Objects {
    plan(infra, object, &two_roles(), given, &images()).expect("a plan").expect("asked for")
}

fn texts(objects: &Objects) -> BTreeMap<String, String> {
    let data = objects.secret.data.clone().unwrap_or_default();
    data.into_iter().map(|(key, bytes)| (key, String::from_utf8(bytes.0).expect("text"))).collect()
}

#[test]
fn configurations_of_haproxy_have_the_hosts_of_their_role() {
    let object = sample();
    let config = |infra| made(infra, &object, &given()).config.expect("a configuration");
    insta::assert_snapshot!("control_plane", config(Infra::ControlPlane));
    insta::assert_snapshot!("worker", config(Infra::Worker));
    // A cluster whose hosts come later has a load balancer that waits for them.
    let empty = plan(Infra::Worker, &object, &[], &given(), &images()).expect("a plan").expect("asked for");
    assert!(!empty.config.expect("a configuration").contains("  server "));
}

/// SIP-1: names, ports, labels.
#[test]
fn objects_are_called_as_airship_calls_them_and_go_with_the_cluster() {
    let object = sample();
    for (infra, name) in [
        (Infra::ControlPlane, "loadbalancer-controlplane-tenant-one"),
        (Infra::Worker, "loadbalancer-worker-tenant-one"),
        (Infra::JumpHost, "jumphost-tenant-one"),
    ] {
        let objects = made(infra, &object, &given());
        let all = [&objects.secret.metadata, &objects.service.metadata, &objects.deployment.metadata];
        let maps = objects.config_maps.iter().map(|map| &map.metadata);
        for meta in all.into_iter().chain(maps) {
            assert_eq!(meta.namespace.as_deref(), Some("tenants"));
            let labels = meta.labels.clone().unwrap_or_default();
            assert_eq!(labels["app.kubernetes.io/part-of"], "sip");
            assert_eq!(labels["app.kubernetes.io/instance"], name);
            assert_eq!(meta.owner_references.as_ref().expect("an owner")[0].name, "tenant-one");
        }
        assert_eq!((objects.secret.name_any(), objects.service.name_any()), (name.to_owned(), name.to_owned()));
    }
    let ports = |infra| {
        let spec = json!(made(infra, &object, &given()).service.spec);
        let ports = spec["ports"].as_array().cloned().unwrap_or_default();
        ports.iter().map(|port| json!([port["name"], port["port"], port["nodePort"]])).collect::<Vec<Value>>()
    };
    assert_eq!(ports(Infra::ControlPlane), [json!(["http", 6443, 30000])]);
    assert_eq!(
        ports(Infra::Worker),
        [json!(["port-30002", 30002, 30002]), json!(["port-30003", 30003, 30003]), json!(["port-30004", 30004, 30004])]
    );
    assert_eq!(ports(Infra::JumpHost), [json!(["ssh", 22, 30001])]);
}

/// SIP-11: there `nodeLabels` and `clusterIP` were taken and nothing came of them.
#[test]
fn what_the_user_says_of_a_service_is_done() {
    let mut object = sample();
    let wish = &mut object.spec.services.load_balancer_control_plane[0].wish;
    wish.cluster_ip = Some("10.96.0.99".to_owned());
    let pod = |object: &SipCluster| json!(made(Infra::ControlPlane, object, &given()).deployment.spec.template.spec);
    let before = pod(&object);
    assert_eq!(before["containers"][0]["image"], "haproxy:2.3.2");
    let terms =
        &before["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!(terms.as_array().map(Vec::len), Some(2), "either label of a control plane");
    assert!(before["tolerations"].to_string().contains("node-role.kubernetes.io/master"));
    let wish = &mut object.spec.services.load_balancer_control_plane[0].wish;
    wish.node_labels = [("zone".to_owned(), "a".to_owned())].into();
    wish.image = None;
    let after = pod(&object);
    assert_eq!((&after["nodeSelector"], &after["affinity"]), (&json!({"zone": "a"}), &Value::Null));
    assert_eq!(after["containers"][0]["image"], "foothold.dev/sip:1");
    let service = json!(made(Infra::ControlPlane, &object, &given()).service.spec);
    assert_eq!((&service["clusterIP"], &service["type"]), (&json!("10.96.0.99"), &json!("NodePort")));
}

#[test]
fn a_template_of_the_user_is_used_in_place_of_ours_and_named_when_it_is_wrong() {
    let mut given = given();
    given.templates = [("loadbalancerworker", "{{ range .Servers }}{{ .Name }}={{ .IP }};{{ end }}".to_owned())].into();
    let object = sample();
    assert_eq!(made(Infra::Worker, &object, &given).config.as_deref(), Some("w1=10.0.0.2;w2=10.0.0.3;\n"));
    assert!(made(Infra::ControlPlane, &object, &given).config.expect("ours").contains("/readyz"));
    given.templates = [("loadbalancerworker", "{{ range }}".to_owned())].into();
    let why = plan(Infra::Worker, &object, &two_roles(), &given, &images()).expect_err("refused");
    assert!(why.starts_with("the template `loadBalancerWorker.cfg` of ConfigMap `loadbalancerworker`"), "{why}");
}

/// There the pod had the BMCs' passwords, in clear.
#[test]
fn the_jump_host_knows_its_hosts_and_may_only_ask() {
    let object = sample();
    let objects = made(Infra::JumpHost, &object, &given());
    let texts = texts(&objects);
    let hosts: Value = serde_json::from_str(&texts["hosts"]).expect("JSON");
    assert_eq!(
        hosts[0],
        json!({"name": "cp1", "host": "hosts/cp1", "role": "ControlPlane", "standby": false, "ip": "10.0.0.1"})
    );
    assert!(texts.values().all(|text| !text.to_lowercase().contains("password")), "{texts:?}");
    assert!(texts["ssh_config"].contains("Host w2\n  HostName 10.0.0.3\n"), "{}", texts["ssh_config"]);
    assert!(texts["ssh_config"].contains("IdentityFile /etc/opt/sip/ssh-private-keys/id_ed25519\n"));
    let (_, rights, _) = objects.rights.expect("rights");
    let rules = json!(rights.rules);
    assert_eq!(
        rules,
        json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["jumphost-tenant-one-requests"],
            "verbs": ["get", "patch"]}])
    );
    let map = objects.config_maps[0].data.clone().expect("data");
    assert!(map["authorized-keys"].starts_with("ssh-ed25519 ") && map["authorized-keys"].ends_with("example.org\n"));
    insta::assert_snapshot!("sshd_config", map["sshd_config"]);
    assert_eq!(objects.config_maps[1].data, None, "what is written there is not overwritten");
    let aliases = json!(objects.deployment.spec.template.spec)["hostAliases"].clone();
    assert_eq!(aliases[0], json!({"ip": "10.0.0.1", "hostnames": ["cp1"]}));
}

/// SIP-12, once more: `HAProxy` refuses two servers of one name.
#[test]
fn two_hosts_of_one_name_have_two_names() {
    let all =
        backends(&[member(Role::Worker, "a", "w"), member(Role::Worker, "b", "w"), member(Role::Worker, "b", "x")]);
    assert_eq!(all.iter().map(|backend| backend.name.as_str()).collect::<Vec<_>>(), ["w.a", "w.b", "x"]);
    let all =
        backends(&[member(Role::Worker, "a", "w"), member(Role::Worker, "b", "w"), member(Role::Worker, "b", "w.a")]);
    assert_eq!(all.iter().map(|backend| backend.name.as_str()).collect::<Vec<_>>(), ["w.a", "w.b", "w.a.b"]);
}

/// SIP-9, and what no API server would take.
#[test]
fn all_that_is_wrong_with_services_is_named_with_its_path() {
    let mut object = sample();
    assert_eq!(wrong(&object), Vec::<String>::new());
    let services = &mut object.spec.services;
    services.jump_host[0].ssh_authorized_keys.push("ssh-rsa not-a-key".to_owned());
    services.jump_host[0].node_port = 30003;
    services.jump_host[0].wish.cluster_ip = Some("here".to_owned());
    services.load_balancer_control_plane[0].wish.node_interface_id = String::new();
    services.jump_host[0].wish.node_labels = [("zone".to_owned(), "a b".to_owned())].into();
    let wrong = wrong(&object);
    for (number, words) in [
        "loadBalancerControlPlane[0].nodeInterfaceId is missing",
        "jumpHost[0].clusterIP is `here`",
        "jumpHost[0].nodeLabels: the value of `zone` is `a b`",
        "jumpHost[0].sshAuthorizedKeys[1] is no key",
        "jumpHost[0].nodePort and spec.services.loadBalancerWorker[0].nodePortRange have a port in common",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(wrong[number].contains(words), "{wrong:?}");
    }
    object.spec.services.load_balancer_worker[0].node_port_range.end = 30001;
    assert!(super::wrong(&object).iter().any(|why| why.contains("comes before its start")));
}
