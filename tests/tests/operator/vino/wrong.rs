//! What is wrong, what cannot be made, and what runs out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use agent_api::vino::values::VALUES;
use foothold_agent::operators::vino::ipam::{self, Want};
use foothold_agent::operators::vino::pools::{PoolError, Pools};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{HOSTS, Machines, RUNTIME, VINOES, fixture};
use crate::cluster::admin;
use crate::site::{PATIENCE, condition};

fn vino(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "airship.airshipit.org/v1", "kind": "Vino", "metadata": {"name": name}, "spec": spec})
}

fn small(subnet: &str, (start, stop): (&str, &str), labels: Value) -> Value {
    json!({"nodeSelector": {"matchLabels": labels}, "bmcCredentials": {"username": "a", "password": "b"},
        "networks": [{"name": "m", "subnet": subnet, "staticAllocationStart": start, "staticAllocationStop": stop,
            "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "$vinobridge"}]}],
        "nodes": [{"name": "worker", "count": 1, "networkInterfaces": [{"name": "eth0", "network": "m"}]}]})
}

/// What two of them share, what a node cannot make, what runs out: each said, and what was there goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_made_is_said_and_nothing_is_half_done() {
    let mut machines = Machines::prepare().await;
    machines.run();
    for (name, ip, pool) in [("n1", "10.0.0.1", "a"), ("n2", "fd00::2", "a"), ("n3", "10.0.0.3", "b")] {
        machines.node(name, ip, json!({"pool": pool})).await;
    }
    let pool_a = json!({"pool": "a"});
    machines.create(&vino("one", small("10.1.0.0/24", ("10.1.0.1", "10.1.0.4"), pool_a.clone()))).await;
    machines.ready("one").await;
    // Each node has its own bridge as gateway, and an address of IPv6 has its brackets.
    let gateways =
        [machines.values("n1").await, machines.values("n2").await].map(|it| it.networks[0].routes[0].gateway.clone());
    assert_eq!(gateways.iter().collect::<BTreeSet<_>>().len(), 2, "{gateways:?}");
    let host = machines.api.get(&format!("{HOSTS}/default-one-n2-worker-0")).await.expect("asked").expect("there");
    assert_eq!(host["spec"]["bmc"]["address"], "redfish+http://[fd00::2]:8000/redfish/v1/Systems/worker-0");

    // A second one with a range of the first.
    machines.create(&vino("two", small("10.1.0.0/24", ("10.1.0.4", "10.1.0.20"), json!({"pool": "b"})))).await;
    machines
        .says(
            "two",
            "Ready",
            ("False", "ReconciliationFailed"),
            "network `m` and network `m` of Vino `default/one`: their ranges",
        )
        .await;
    let other = small("10.1.0.0/24", ("10.1.0.10", "10.1.0.20"), json!({"pool": "b"}));
    machines.api.merge(&format!("{VINOES}/two"), &json!({"spec": other})).await.expect("changed");
    machines.ready("two").await;
    // A third one on nodes of the first.
    machines.create(&vino("three", small("10.3.0.0/24", ("10.3.0.1", "10.3.0.9"), pool_a))).await;
    machines
        .says("three", "BMHReady", ("False", "ReconciliationFailed"), "it is Vino `default/one`'s, and a node has one")
        .await;
    machines.api.delete(&format!("{VINOES}/three")).await.expect("deleted");
    machines.until(&format!("{VINOES}/three"), "gone", Value::is_null).await;

    // Four addresses for two bridges and two machines: there is none for another one.
    let count = |count: u32| {
        json!({"spec": {"nodes": [{"name": "worker", "count": count,
        "networkInterfaces": [{"name": "eth0", "network": "m"}]}]}})
    };
    let before = machines.values("n1").await;
    machines.api.merge(&format!("{VINOES}/one"), &count(2)).await.expect("changed");
    machines
        .says(
            "one",
            "BMHReady",
            ("False", "ReconciliationFailed"),
            "IPAM range [10.1.0.1,10.1.0.4] in subnet 10.1.0.0/24 is exhausted",
        )
        .await;
    assert_eq!(machines.values("n1").await, before, "nothing half done");
    // What is advised then helps, though the addresses of the range are in use.
    let larger = small("10.1.0.0/24", ("10.1.0.1", "10.1.0.9"), json!({}))["networks"].clone();
    machines.api.merge(&format!("{VINOES}/one"), &json!({"spec": {"networks": larger}})).await.expect("changed");
    machines.ready("one").await;
    assert_eq!(machines.values("n1").await.networks[0].bridge_ip, before.networks[0].bridge_ip);
    machines.api.merge(&format!("{VINOES}/one"), &count(1)).await.expect("changed");
    machines.ready("one").await;

    // What libvirt refuses is said in its words, and no host is made for it.
    let words = "XML error: unknown OS type";
    machines.faults(|faults| drop(faults.refused.insert("worker-1".to_owned(), words.to_owned())));
    machines.api.merge(&format!("{VINOES}/two"), &count(2)).await.expect("changed");
    machines
        .says("two", "BMHReady", ("False", "ReconciliationFailed"), &format!("node `n3`: domain `worker-1`: {words}"))
        .await;
    assert_eq!(machines.hosts().await.iter().filter(|host| host.starts_with("default-two-")).count(), 1);
    machines.faults(|faults| faults.refused.clear());
    machines.ready("two").await;
    assert_eq!(machines.hosts().await.iter().filter(|host| host.starts_with("default-two-")).count(), 2);

    // A node that is selected no more loses what it had.
    machines.api.merge("/api/v1/nodes/n2", &json!({"metadata": {"labels": {"pool": "c"}}})).await.expect("labelled");
    machines
        .until("/api/v1/nodes/n2", "without an annotation", |node| node["metadata"]["annotations"][VALUES].is_null())
        .await;
    assert!(!machines.hosts().await.iter().any(|host| host.contains("-n2-")));

    // A flavour that is not there, and a template that is none.
    let strange = json!({"spec": {"nodes": [{"name": "giant", "count": 1}]}});
    machines.api.merge(&format!("{VINOES}/one"), &strange).await.expect("changed");
    machines
        .says(
            "one",
            "ConfigMapReady",
            ("False", "ReconciliationFailed"),
            "there is no flavour `giant`, only master, worker",
        )
        .await;
    machines.map("vino-daemonset-template", json!({"template": "kind: DaemonSet"})).await;
    machines
        .says("two", "ConfigMapReady", ("False", "ReconciliationFailed"), "it has no `spec.template.spec.containers`")
        .await;
    // Pods that say nothing: it is waited for them, and that is said.
    machines.faults(|faults| faults.are_silent = true);
    machines.api.delete(&format!("{VINOES}/two")).await.expect("deleted");
    machines
        .until(&format!("{VINOES}/two"), "waiting", |object| {
            condition(object, "Ready").2.contains("node `n3`: its pod removes machines and networks")
        })
        .await;
    machines.faults(|faults| faults.are_silent = false);
    for name in ["one", "two"] {
        let _ = machines.api.delete(&format!("{VINOES}/{name}")).await;
        machines.until(&format!("{VINOES}/{name}"), "gone", Value::is_null).await;
    }
    assert_eq!(machines.left().await, Vec::<String>::new());
}

/// What the API server refuses before it is stored, and VIN-2: a thousand addresses at once, by two programs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_input_is_refused_and_a_thousand_at_once_have_a_thousand_addresses() {
    let machines = Machines::prepare().await;
    let change = |path: &str, value: Value| {
        let mut spec = small("10.1.0.0/24", ("10.1.0.1", "10.1.0.4"), json!({"pool": "a"}));
        *spec.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
        spec
    };
    for (name, spec, words) in [
        ("a", json!({}), "spec.bmcCredentials: Required value"),
        ("a", change("/bmcCredentials", json!({"username": "a"})), "spec.bmcCredentials.password: Required value"),
        ("a", change("/bmcCredentials/password", json!("")), "spec.bmcCredentials.password"),
        ("a", change("/nodeSelector", json!({})), "spec.nodeSelector.matchLabels: Required value"),
        ("a", change("/networks/0/subnet", json!("10.1.0.0/33")), "`subnet` is no network"),
        ("a", change("/networks/0/staticAllocationStop", json!("10.2.0.9")), "is no address of `subnet`"),
        ("a", change("/networks/0/staticAllocationStop", json!("10.1.0.x")), "is no address of `subnet`"),
        (
            "a",
            change("/networks/0", json!({"name": "m", "subnet": "10.1.0.0/24"})),
            "`staticAllocationStart` and `staticAllocationStop` are missing",
        ),
        (
            "a",
            change("/networks/0/routes/0/gateway", json!("$bridge")),
            "`gateway` is neither an address nor `$vinobridge`",
        ),
        ("a", change("/networks/0/name", json!("n")), "names a network that is not in `networks`"),
        ("a", change("/nodes/0/count", json!(-1)), "spec.nodes[0].count"),
        ("a", change("/nodes/0/name", json!("Worker_1")), "spec.nodes[0].name"),
        (
            "a",
            change("/nodes/0", json!({"name": "w", "count": 1, "bootInterfaceName": "eth9"})),
            "`bootInterfaceName` names no interface",
        ),
        (
            "a",
            change("/nodes/0", json!({"name": "w", "count": 1, "diskDrives": [{"name": "d"}]})),
            "a disk has neither `path` nor `options.sizeGb`",
        ),
        (
            "a",
            change(
                "/nodes/0",
                json!({"name": "w", "count": 1, "diskDrives": [{"name": "d", "path": "/a", "type": "iso"}]}),
            ),
            "spec.nodes[0].diskDrives[0].type",
        ),
        (
            "a-name-that-is-so-long-that-it-can-be-no-label-of-what-is-made-for-it",
            change("/nodes/0/count", json!(1)),
            "metadata.name has at most 63 characters",
        ),
    ] {
        let error = machines.api.create(VINOES, &vino(name, spec)).await.expect_err(words);
        let text = format!("{error:?}").replace('\\', "");
        assert!(text.contains(words), "{words}: {text}");
    }
    for text in [
        include_str!("../../../../agent/tests/fixtures/vino/vino.yaml"),
        include_str!("../../../../agent/tests/fixtures/vino/vino-before.yaml"),
    ] {
        machines.create(&fixture(text)).await;
        machines.api.delete(&format!("{VINOES}/vino-test-cr")).await.expect("deleted");
        machines.until(&format!("{VINOES}/vino-test-cr"), "gone", Value::is_null).await;
    }
    let pools = format!("/apis/airship.airshipit.org/v1/namespaces/{RUNTIME}/ippools");
    let sample = fixture(include_str!("../../../../agent/tests/fixtures/vino/ippool.yaml"));
    machines.api.create(&pools, &sample).await.expect("an IPPool");
    machines.api.delete(&format!("{pools}/ippool-sample")).await.expect("deleted");
    thousand(&machines).await;
}

#[expect(clippy::print_stdout, reason = "how often it was asked again")]
async fn thousand(machines: &Machines) {
    let kubeconfig = kube::config::Kubeconfig::read_from(admin(&machines.cluster)).expect("a kubeconfig");
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
    let client = kube::Client::try_from(config).expect("a client");
    let programs = [Pools::new(client.clone(), RUNTIME), Pools::new(client, RUNTIME)];
    let range = ipam::range("10.7.0.1", "10.7.7.255").expect("a range");
    let begun = Instant::now();
    let asked = (0..1000).map(|number| {
        let (pools, range) = (programs[number % 2].clone(), range.clone());
        async move {
            let to = format!("host-{number}/m");
            let want = Want { vino: "default/v", to: &to, mac: None };
            loop {
                match pools.allocate("10.7.0.0/16", "52:54:00:07:00:00", &range, want).await {
                    Ok(given) => return given,
                    // Whether it was written or not: who asks again gets the same.
                    Err(PoolError::Object(error)) if begun.elapsed() < PATIENCE => {
                        println!("asking again for {to}: {error:?}");
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    let given = asked.collect::<JoinSet<_>>().join_all().await;
    let took = begun.elapsed();
    let ips: BTreeSet<&str> = given.iter().map(|one| one.ip.as_str()).collect();
    let macs: BTreeSet<&str> = given.iter().map(|one| one.mac.as_str()).collect();
    assert_eq!((ips.len(), macs.len()), (1000, 1000), "in {took:?}");
    let path = format!("/apis/airship.airshipit.org/v1/namespaces/{RUNTIME}/ippools/ippool-10-7-0-0-16");
    let pool = machines.api.get(&path).await.expect("asked").expect("a pool");
    assert_eq!(pool["spec"]["allocatedIPs"].as_array().map(Vec::len), Some(1000));
    assert_eq!(pool["spec"]["nextMAC"], "52:54:00:07:03:e8");
    for pools in &programs {
        pools.free_others("default/v", &[]).await.expect("taken back");
    }
    assert!(machines.api.get(&path).await.expect("asked").is_none(), "a pool that holds nothing is gone");
}
