//! The chart of `foothold export`: real Helm renders what the agent prints, a real API server takes each object, and operators
//! that are started by its command lines, with its rights alone, do a turn.

#![allow(clippy::needless_pass_by_value, reason = "`json!` where it is needed reads best")]

mod cluster;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_api::net::InterfaceAddress;
use agent_api::release::{Clusters, Digest, Image, Release, Sip, Vino};
use agent_api::servers::Provisioning;
use clap::Parser;
use foothold::export::{CHART, Chart, Helm, Parts, Printed, choose};
use foothold_agent::cluster::api::Api;
use foothold_agent::cluster::{follow, kubeconfig, objects};
use foothold_agent::operators::Operator;
use foothold_agent::parts::print;
use foothold_tests::programs::of_set;
use foothold_tests::{fixture, free_port};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use serde_json::{Value, json};
use tempfile::TempDir;

use cluster::{Cluster, client, served};

const NAMESPACE: &str = "foothold";

/// A release with every part; of its images only the names matter here.
fn release() -> Release {
    let names = [
        "agent:0.1.0",
        "ironic:29.0.5",
        "dnsmasq:2.91",
        "helm:4.3.1",
        "sip:0.1.0",
        "jumphost:10.0",
        "oidc:2.7.6",
        "vino:0.1.0",
        "registry:3.1.2",
    ];
    let image = |name: &str| Image {
        reference: format!("foothold.dev/{name}"),
        index: None,
        inner: Vec::new(),
        manifest: Digest::of(name),
        blobs: Vec::new(),
    };
    let address = "172.22.0.1/24".parse::<InterfaceAddress>().expect("an address");
    Release {
        images: names.into_iter().map(image).collect(),
        provisioning: Some(Provisioning { address: Some(address), ..Provisioning::default() }),
        clusters: Some(Clusters::default()),
        sip: Some(Sip {}),
        vino: Some(Vino { interface: None }),
        ..fixture::release()
    }
}

fn parts(release: &Release) -> Parts {
    let text = serde_json::to_string(&print(release).expect("printed")).expect("JSON");
    let printed: Vec<Printed> = serde_json::from_str(&text).expect("what the builder reads");
    choose(printed, &[], Path::new("appliance.yaml")).expect("parts")
}

/// The chart in a folder, and what real Helm makes of each part of it.
fn rendered() -> (TempDir, BTreeMap<&'static str, Vec<Value>>) {
    let (dir, release) = (tempfile::tempdir().expect("a folder"), release());
    let parts = parts(&release);
    let charts = dir.path().join("charts");
    for (path, text) in Chart::of(&release, &parts).expect("a chart").files() {
        let file = charts.join(CHART).join(path);
        fs_err::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs_err::write(file, text).expect("written");
    }
    let texts = render(&charts, &parts).unwrap_or_else(|error| panic!("{error:#}"));
    let read = |text: String| serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    (dir, texts.into_iter().map(|(part, text)| (part, read(text))).collect())
}

/// What the builder's own Helm makes of each part.
fn render(charts: &Path, parts: &Parts) -> anyhow::Result<Vec<(&'static str, String)>> {
    let (at, toolbox, programs) = of_set("helm")?;
    Helm::new(&at.cache, &toolbox, &programs)?.render(charts, parts)
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

/// Applies each object with every field checked (`fieldValidation=Strict`).
async fn apply(api: &Api, all: &[Value]) {
    for object in all {
        let placed = objects::place(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"));
        let applied = api.apply(&placed.path(), &placed.object, "helm", true).await;
        applied.unwrap_or_else(|error| panic!("{}: {error}", placed.title()));
    }
    for object in all.iter().filter(|object| kind(object) == "CustomResourceDefinition") {
        served(api, object["metadata"]["name"].as_str().expect("a name")).await;
    }
}

/// A kubeconfig of the Deployment's own account: it may what the chart lets it.
async fn account(cluster: &Cluster, name: &str) -> PathBuf {
    let client = follow::client(&cluster::admin(cluster)).await.expect("a client");
    let accounts = kube::Api::<ServiceAccount>::namespaced(client, NAMESPACE);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer: Value =
        accounts.create_subresource("token", name, &PostParams::default(), &request).await.expect("a token");
    let token = answer["status"]["token"].as_str().expect("a token");
    let text = fs_err::read_to_string(cluster::admin(cluster)).expect("a kubeconfig");
    let kept = text.lines().filter(|line| !line.trim_start().starts_with("client-key-data:"));
    let lines = kept.map(|line| match line.find("client-certificate-data:") {
        Some(at) => format!("{}token: {token}", &line[..at]),
        None => line.to_owned(),
    });
    let file = cluster.dir.path().join(format!("{name}.conf"));
    fs_err::write(&file, lines.collect::<Vec<_>>().join("\n") + "\n").expect("written");
    file
}

#[derive(Debug, Parser)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    #[command(subcommand)]
    Operator(Operator),
}

/// Starts an operator as the Deployment says, for as long as the test's process lives. What only its node has is elsewhere
/// here: ports, and the folder of clusters.
fn start(deployment: &Value, kubeconfig: &Path, dir: &Path) {
    let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let mut args: Vec<String> =
        args.as_array().expect("arguments").iter().map(|arg| arg.as_str().expect("a text").to_owned()).collect();
    let mut set = |flag: &str, value: Option<String>| {
        if let Some(at) = args.iter().position(|arg| arg == flag) {
            match value {
                Some(value) => args[at + 1] = value,
                None => drop(args.drain(at..=at + 1)),
            }
        }
    };
    set("--metrics-address", Some(format!("127.0.0.1:{}", free_port())));
    set("--clusters", Some(dir.display().to_string()));
    // No HAProxy on this host: pods check their configuration themselves then.
    set("--haproxy", None);
    args.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
    let line = CommandLine::try_parse_from(std::iter::once("foothold-agent".to_owned()).chain(args.clone()));
    let Command::Operator(operator) = line.unwrap_or_else(|error| panic!("{args:?}: {error}")).command;
    std::thread::spawn(move || operator.run());
}

/// Waits until the object's status has a condition; it says what the operator made of it.
async fn judged(api: &Api, path: &str) -> Value {
    for _ in 0..600 {
        let found = api.get(path).await.expect("asked").expect("there");
        if found["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty()) {
            return found["status"].clone();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{path} gets no condition");
}

#[tokio::test]
async fn a_real_api_server_takes_the_chart_and_its_operators_do_a_turn() {
    let (dir, parts) = rendered();
    assert_eq!(
        parts.keys().copied().collect::<Vec<_>>(),
        ["baremetalhost", "bpa", "dhcp", "kpa", "registry", "sip", "vino"]
    );
    let cluster = Cluster::start();
    let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    api.create("/api/v1/namespaces", &namespace).await.expect("a namespace");
    for (part, objects) in &parts {
        apply(&api, objects).await;
        for deployment in objects.iter().filter(|object| kind(object) == "Deployment") {
            let text = deployment.to_string();
            assert!(!text.contains("{{") && deployment["metadata"]["namespace"] == NAMESPACE, "{part}: {text}");
        }
    }
    let folder = dir.path().join("clusters");
    fs_err::create_dir(&folder).expect("made");
    for (part, name) in
        [("bpa", "bpa-operator"), ("kpa", "kpa-operator"), ("sip", "sip-operator"), ("vino", "vino-operator")]
    {
        let deployment = parts[part].iter().find(|object| kind(object) == "Deployment").expect("a Deployment");
        start(deployment, &account(&cluster, name).await, &folder);
    }
    for (path, object) in [
        (
            "/apis/bpa.akraino.org/v1alpha1/namespaces/default/provisionings",
            json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning", "metadata": {"name": "one", "labels": {"cluster": "one"}},
                "spec": {"masters": [{"m": {"mac-address": "52:54:00:00:00:01"}}]}}),
        ),
        (
            "/apis/kpa.foothold.dev/v1alpha1/namespaces/default/releases",
            json!({"apiVersion": "kpa.foothold.dev/v1alpha1", "kind": "Release", "metadata": {"name": "one"},
                "spec": {"clusterRef": {"name": "none"}, "manifests": ["files/a.yaml"]}}),
        ),
        (
            "/apis/airship.airshipit.org/v1/namespaces/default/sipclusters",
            json!({"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "metadata": {"name": "one"},
                "spec": {"nodes": {"ControlPlane": {"topologyKey": "a.example/rack",
                "labelSelector": {"matchLabels": {"role": "master"}}, "count": {"active": 1, "standby": 0}}}, "services": {}}}),
        ),
        // No node is chosen: what it makes in its own namespace is made.
        (
            "/apis/airship.airshipit.org/v1/namespaces/default/vinoes",
            json!({"apiVersion": "airship.airshipit.org/v1", "kind": "Vino", "metadata": {"name": "one"}, "spec": {
                "nodeSelector": {"matchLabels": {"machines": "none"}}, "bmcCredentials": {"username": "a", "password": "b"},
                "networks": [{"name": "m", "subnet": "192.0.2.0/24", "staticAllocationStart": "192.0.2.10",
                    "staticAllocationStop": "192.0.2.20"}],
                "nodes": [{"name": "worker", "count": 1, "networkInterfaces": [{"name": "eth0", "network": "m"}]}]}}),
        ),
    ] {
        api.create(path, &object).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let status = judged(&api, &format!("{path}/one")).await;
        let text = status["conditions"].to_string();
        assert!(!text.to_lowercase().contains("forbidden"), "{path}: {text}");
    }
}

/// `ctr images import` keeps tags alone: images are named by tag where they were imported, by digest in a registry.
#[test]
fn images_are_named_as_the_node_knows_them() {
    let (dir, _) = rendered();
    let (charts, parts) = (dir.path().join("charts"), parts(&release()));
    let values = charts.join(CHART).join("values.yaml");
    let right = fs_err::read_to_string(&values).expect("values");
    let of_agent = |registry: &str| -> Vec<String> {
        let text = right.replace("registry: foothold.dev", &format!("registry: {registry}"));
        fs_err::write(&values, text).expect("written");
        let all = render(&charts, &parts).unwrap_or_else(|error| panic!("{error:#}"));
        let words = all.iter().flat_map(|(_, text)| text.split(['"', ' ', '\n']));
        words.filter(|word| word.contains("/agent:")).map(str::to_owned).collect()
    };
    let imported = of_agent("foothold.dev");
    assert!(imported.len() > 4 && imported.iter().all(|image| image == "foothold.dev/agent:0.1.0"), "{imported:?}");
    let pushed = of_agent("registry.example:5000/site");
    let image = format!("registry.example:5000/site/agent:0.1.0@{}", Digest::of("agent:0.1.0"));
    assert!(pushed.len() > 4 && pushed.iter().all(|found| *found == image), "{pushed:?}");
}

#[test]
fn values_that_no_chart_takes_are_refused_by_helm_in_words() {
    let (dir, _) = rendered();
    let (charts, parts) = (dir.path().join("charts"), parts(&release()));
    let values = charts.join(CHART).join("values.yaml");
    let right = fs_err::read_to_string(&values).expect("values");
    for (replace, with, word) in [
        ("registry: foothold.dev", "registry: \"\"", "registry"),
        ("network: {}", "network: { gateway: 10.0.0.1 }", "gateway"),
        ("  bpa: true", "  bpb: true", "bpb"),
    ] {
        assert!(right.contains(replace), "{right}");
        fs_err::write(&values, right.replace(replace, with)).expect("written");
        let error = format!("{:#}", render(&charts, &parts).expect_err(with));
        assert!(error.contains(word), "{with}: {error}");
    }
}
