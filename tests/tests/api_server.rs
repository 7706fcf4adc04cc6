//! A real etcd and kube-apiserver, started with the manifests, certificates and kubeconfigs that the
//! agent makes, on loopback. The templates are those of a real kubeadm.

mod cluster;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_api::events::State;
use agent_api::release::{ContentKind, Digest};
use foothold_agent::cluster::api::Api;
use foothold_agent::cluster::follow::Kept;
use foothold_agent::cluster::metrics_server::{self, Trust};
use foothold_agent::cluster::{checks, kubeconfig, local_path, objects};
use foothold_agent::content::Held;
use foothold_agent::events::Bus;
use foothold_agent::first_boot::site_objects::SiteObjects;
use foothold_agent::first_boot::{control_plane, etcd, leases};
use foothold_agent::steps::{Ledger, Pace, Steps};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ApiResource;
use serde_json::{Value, json};
use sha2::Digest as _;

use cluster::{Cluster, Places, client, define_metal3, node, rendered};

#[tokio::test]
async fn a_real_api_server_takes_what_the_agent_makes() {
    let cluster = Cluster::start();
    let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
    let template = fs_err::read_to_string(rendered("objects.json")).expect("objects");
    let all = objects::read(&template, &node(), &cluster.credentials.ca).expect("a template");
    let (all, nodes) = objects::split_node(all);
    for placed in &all {
        let new = objects::apply(&api, placed).await.unwrap_or_else(|error| panic!("{}: {error}", placed.title()));
        assert!(new, "{}", placed.title());
    }
    // A second time, as after a power cut, merges and changes nothing.
    for placed in &all {
        let before = api.get(&placed.path()).await.expect("asked").expect("there");
        let new = objects::apply(&api, placed).await.unwrap_or_else(|error| panic!("{}: {error}", placed.title()));
        let after = api.get(&placed.path()).await.expect("asked").expect("there");
        assert!(!new && before == after, "{}", placed.title());
    }
    // Nobody has registered the node: its labels wait, they do not create it.
    assert!(objects::apply(&api, &nodes[0]).await.is_err());
    assert!(checks::node(None, "edge").is_err());

    // The administrator's group is bound by an object that was just applied.
    let admin = client(&cluster.places, kubeconfig::ADMIN).await;
    let (ready, text) = admin.health("/readyz?verbose").await.expect("asked");
    assert!(ready || checks::readyz_missing(&text).contains("poststarthook"), "{text}");
    for user in ["controller-manager.conf", "scheduler.conf"] {
        client(&cluster.places, user).await;
    }
}

/// Every field is one that it knows (`fieldValidation=Strict`), and a claim that names no class gets the box's.
#[tokio::test]
async fn a_real_api_server_takes_the_metrics_api_and_volumes() {
    let cluster = Cluster::start();
    let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
    let trust = Trust::Node {
        name: "edge".to_owned(),
        address: node().advertise,
        authority: "PEM".to_owned(),
        generation: "1".to_owned(),
    };
    let metrics = metrics_server::objects("a.example/metrics-server:1", &trust).expect("objects");
    let volumes = local_path::objects("a.example/local-path-provisioner:1").expect("objects");
    for placed in metrics.iter().chain(&volumes) {
        let (path, title) = (placed.path(), placed.title());
        let applied = api.apply(&path, &placed.object, "a-test", false).await;
        let before = applied.unwrap_or_else(|error| panic!("{title}: {error}"));
        assert!(!objects::apply(&api, placed).await.expect("applied again"), "{title}");
        let after = api.get(&path).await.expect("asked").expect("there");
        assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"], "{title}");
    }
    // Its pod runs nowhere: the API server has nobody to ask.
    let error = api.get(metrics_server::NODES).await.expect_err("nobody answers");
    assert_eq!(error.status().map(|status| status.as_u16()), Some(503), "{error}");

    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let made = async || api.create(claims, &claim).await;
    for _ in 0..100 {
        // The default is known by an informer, which may be a moment behind.
        made().await.expect("a claim");
        let found = api.get(&format!("{claims}/data")).await.expect("asked").expect("there");
        if found["spec"]["storageClassName"] == "local-path" {
            return;
        }
        api.delete(&format!("{claims}/data")).await.expect("removed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("a claim gets no class");
}

/// Leaves of etcd's write-ahead log what is in it when it is made: a record each for checksum, metadata and snapshot, of eight
/// bytes that say how long it is (the top byte how much of that fills it up, when the sign is set), then the record.
fn cut_to_its_beginning(log: &Path) {
    let mut bytes = fs_err::read(log).expect("a log");
    let mut end = 0;
    for _ in 0..3 {
        let length = u64::from_le_bytes(bytes[end..end + 8].try_into().expect("eight bytes"));
        let filled = if length >> 63 == 1 { length >> 56 & 0b111 } else { 0 };
        end += 8 + usize::try_from((length & !(0xff << 56)) + filled).expect("a length");
    }
    assert!(bytes[end..].iter().any(|byte| *byte != 0), "nothing is cut off");
    bytes[end..].fill(0);
    fs_err::write(log, bytes).expect("written");
}

/// The power may go after etcd has made its log, and before it wrote that it is a member: it waits for a leader then, for
/// ever. The next boot begins anew.
#[tokio::test]
async fn an_etcd_that_a_power_cut_left_without_a_member_is_begun_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    let machine = cluster::machine(dir.path());
    control_plane::bring_up_to_date(&machine, &node(), false).expect("certificates");
    let places = Places::new(dir.path());
    let boot = |name: &str| {
        let path = machine.at("/proc/sys/kernel/random/boot_id");
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs_err::write(path, name).expect("written");
        etcd::prepare(&machine).expect("prepared")
    };
    let health = format!("http://127.0.0.1:{}/health", places.port("2381"));
    let told = async |word: &str| {
        for _ in 0..600 {
            if let Ok(answer) = reqwest::get(&health).await
                && answer.text().await.is_ok_and(|text| text.contains(word))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("etcd does not tell {word}");
    };

    assert!(!boot("first"));
    let mut process = Cluster::etcd(&places);
    told(r#""health":"true""#).await;
    process.end();
    let log = "var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal";
    cut_to_its_beginning(&dir.path().join(log));
    let mut process = Cluster::etcd(&places);
    told("RAFT NO LEADER").await;
    process.end();

    assert!(boot("second"));
    let _process = Cluster::etcd(&places);
    told(r#""health":"true""#).await;
    etcd::keep(&machine).expect("kept");
    assert!(!boot("third"));
}

/// After a reboot nobody waits for a leader of this node that is no more; of other nodes everybody does. The controller
/// manager waits until it is told.
#[tokio::test]
async fn leases_of_this_nodes_last_life_are_given_back() {
    let cluster = Cluster::start();
    let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
    let all = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let (manager, scheduler) = (format!("{all}/kube-controller-manager"), format!("{all}/kube-scheduler"));
    let spec = async |path: &str| api.get(path).await.expect("asked").expect("there")["spec"].take();
    let hold = async |path: &str, holder: &str| {
        let change = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3}});
        api.merge(path, &change).await.expect("changed");
    };

    // There is none in a new cluster.
    leases::hand_over(&api, &node()).await.expect("nothing to do");
    leases::take(&api, &node()).await.expect("created");
    let kept = spec(&manager).await;
    assert_eq!((&kept["holderIdentity"], &kept["leaseDurationSeconds"]), (&json!("edge_foothold-agent"), &json!(300)));
    assert!(api.get(&scheduler).await.expect("asked").is_none(), "the scheduler makes its own");
    leases::hand_over(&api, &node()).await.expect("handed over");
    assert_eq!(spec(&manager).await["holderIdentity"], Value::Null);

    // Who leads by now goes on.
    hold(&manager, "edge_5a1e-1").await;
    leases::hand_over(&api, &node()).await.expect("nothing to do");
    assert_eq!(spec(&manager).await["holderIdentity"], "edge_5a1e-1");

    // The next life of this node, and another node's scheduler.
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kube-scheduler"}});
    api.create(all, &lease).await.expect("created");
    hold(&scheduler, "edge-2_5a1e-2").await;
    leases::take(&api, &node()).await.expect("taken");
    let kept = spec(&manager).await;
    assert_eq!((&kept["holderIdentity"], &kept["leaseTransitions"]), (&json!("edge_foothold-agent"), &json!(3)));
    assert_eq!(spec(&scheduler).await["holderIdentity"], "edge-2_5a1e-2");

    // Another node's controller manager, and this node's scheduler.
    hold(&manager, "edge-2_5a1e-1").await;
    hold(&scheduler, "edge_5a1e-2").await;
    leases::take(&api, &node()).await.expect("taken");
    leases::hand_over(&api, &node()).await.expect("nothing to do");
    assert_eq!(spec(&manager).await["holderIdentity"], "edge-2_5a1e-1");
    assert_eq!(spec(&scheduler).await["holderIdentity"], Value::Null);
}

/// What changed while nobody could be asked is told afterwards.
#[tokio::test]
async fn who_follows_objects_catches_up_after_the_api_server_was_away() {
    const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let mut cluster = Cluster::start();
    let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
    let machine = cluster.machine();
    let (teller, mut told) = tokio::sync::mpsc::unbounded_channel();
    let keep = |object: &Value| object["data"]["told"].as_str().map(str::to_owned);
    let tell = |all: &Kept<String>| {
        teller.send(all.values().cloned().collect::<Vec<_>>()).expect("heard");
        std::future::ready(Ok(()))
    };
    let kind = ApiResource::erase::<ConfigMap>(&());
    let create = async |api: &Api, name: &str| {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"told": name}});
        api.create(CONFIG_MAPS, &object).await.expect("created");
    };
    let story = async {
        assert_eq!(told.recv().await, Some(Vec::new()), "that there is none is told too");
        create(&api, "a").await;
        assert_eq!(told.recv().await, Some(vec!["a".to_owned()]));
        let api = cluster.restart_api_server().await;
        create(&api, "b").await;
        api.delete(&format!("{CONFIG_MAPS}/a")).await.expect("gone");
        while told.recv().await != Some(vec!["b".to_owned()]) {}
    };
    let following = machine.follow(&kind, "the test is not told", keep, tell);
    let within = tokio::time::timeout(Duration::from_secs(120), story);
    tokio::select! {
        told = within => told.expect("told within two minutes"),
        () = following => unreachable!("it follows for ever"),
    }
}

/// A file of a release, as the builder writes it.
fn set(dir: &Path, path: &str, objects: &[Value]) -> Held {
    let documents: Vec<String> = objects.iter().map(|object| format!("---\n{object}\n")).collect();
    let text = format!("# a test\n{}", documents.concat());
    let hex = hex::encode(sha2::Sha256::digest(&text));
    let file = dir.join(&hex);
    fs_err::write(&file, &text).expect("written");
    let digest = Digest::from_hex(&hex).expect("a digest");
    Held { path: path.to_owned(), kind: ContentKind::Manifest, file, digest, size: text.len() as u64 }
}

fn steps(dir: &Path, ledger: &str) -> Steps {
    let tick = Duration::from_millis(50);
    let pace = Pace { first_pause: tick, longest_pause: tick, progress: Duration::from_secs(60) };
    let ledger = Arc::new(Ledger::open(&dir.join(ledger)).expect("a ledger"));
    Steps { bus: Bus::in_memory(), ledger, stop_before: None, pace }
}

/// Applies a release: the states that the step went through, and the text of its last event.
async fn release(steps: &Steps, api: &Api, files: &[Held]) -> (Vec<State>, Value) {
    let before = steps.bus.since(0).1.len() as u64;
    let objects = SiteObjects::new(files.to_vec());
    objects.apply(steps, api).await;
    objects.check(steps, api).await.expect("within the time of grace");
    let events = steps.bus.since(before).1;
    let detail = events.last().map(|event| json!(event.detail)).unwrap_or_default();
    (events.iter().map(|event| event.state).collect(), detail)
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": {"a": value}})
}

fn shop() -> [Value; 4] {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let pod =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "a.test/b:1"}]}});
    [
        json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "shop"}, "spec": {"size": 3}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": pod}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.org"},
            "spec": {"group": "example.org", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}}),
    ]
}

const WEB: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
const WIDGET: &str = "/apis/example.org/v1/namespaces/shop/widgets/w";
const SETTINGS: &str = "/api/v1/namespaces/shop/configmaps/settings";

#[tokio::test]
async fn declared_objects_are_applied_once_and_what_is_left_over_goes() {
    let cluster = Cluster::start();
    let dir = &cluster.dir;
    let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
    let version = |object: Option<Value>| object.map(|found| found["metadata"]["resourceVersion"].to_string());

    // The custom resource and the Deployment stand before what they need: they fail, the rest goes on, they follow.
    let files = [
        set(dir.path(), "manifests/01-shop.yaml", &shop()),
        set(dir.path(), "manifests/02-settings.yaml", &[config_map("settings", "1")]),
    ];
    let first = steps(dir.path(), "ledger.json");
    let (states, detail) = release(&first, &api, &files).await;
    assert_eq!(states, [State::Started, State::Failed, State::Done]);
    assert_eq!((&detail["objects"], &detail["sets"], &detail["removed"]), (&json!(5), &json!(2), &json!([])));
    let failed = first.bus.since(0).1[1].text("cause").unwrap_or_default().to_owned();
    assert!(
        failed.starts_with("2 of 5 objects are not applied: Widget shop/w: the cluster knows no `Widget`"),
        "{failed}"
    );
    let told: Vec<(String, bool, String)> =
        first.bus.objects().iter().map(|one| (one.title(), one.healthy, one.message.clone())).collect();
    let expected = [
        ("Widget shop/w", true, "there"),
        ("Deployment shop/web", false, "its controller has not seen it yet"),
        ("Namespace shop", true, "Active"),
        ("CustomResourceDefinition widgets.example.org", true, "established"),
        ("ConfigMap shop/settings", true, "there"),
    ];
    assert_eq!(told, expected.map(|(title, healthy, message)| (title.to_owned(), healthy, message.to_owned())));
    let web = api.get(WEB).await.expect("asked").expect("there");
    assert_eq!(web["metadata"]["labels"]["foothold.dev/set"], "shop");

    // Recorded and true: skipped. Not recorded, as after a power cut: applied again, and nothing changes.
    let (states, _) = release(&steps(dir.path(), "ledger.json"), &api, &files).await;
    assert_eq!(states, [State::Started, State::Skipped]);
    let (states, _) = release(&steps(dir.path(), "other.json"), &api, &files).await;
    assert_eq!((states, is_as_before(&api, &web).await), (vec![State::Started, State::Done], true));
    // Recorded, but somebody has removed one of them.
    api.delete(WIDGET).await.expect("removed");
    let (states, _) = release(&steps(dir.path(), "ledger.json"), &api, &files).await;
    assert_eq!(states, [State::Started, State::Done]);
    assert!(api.get(WIDGET).await.expect("asked").is_some());

    // Another release: a changed object that somebody has edited, and three that are not declared any more.
    let edited = json!({"data": {"a": "edited", "b": "theirs"}});
    api.merge(SETTINGS, &edited).await.expect("edited");
    let next = [set(dir.path(), "manifests/01-settings.yaml", &[config_map("settings", "2")])];
    let (states, detail) = release(&steps(dir.path(), "ledger.json"), &api, &next).await;
    assert_eq!(states, [State::Started, State::Done]);
    assert_eq!(detail["removed"], json!(["Deployment shop/web", "Widget shop/w"]));
    assert_eq!(detail["kept"].as_array().map(Vec::len), Some(2), "{detail}");
    assert!(api.get(WEB).await.expect("asked").is_none() && api.get(WIDGET).await.expect("asked").is_none());
    assert!(api.get("/api/v1/namespaces/shop").await.expect("asked").is_some());
    let settings = api.get(SETTINGS).await.expect("asked").expect("there");
    assert_eq!(settings["data"], json!({"a": "2", "b": "theirs"}), "declared fields only");

    // An object of somebody else is not taken over: the failure says so, and the step ends once it is out of the way.
    let theirs = config_map("theirs", "x");
    api.create("/api/v1/namespaces/shop/configmaps", &theirs).await.expect("created");
    let last = [set(dir.path(), "manifests/01-theirs.yaml", &[config_map("theirs", "y")])];
    let blocked = steps(dir.path(), "ledger.json");
    let wait = async {
        while blocked.bus.now().failed().next().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        api.delete("/api/v1/namespaces/shop/configmaps/theirs").await.expect("removed");
    };
    let ((states, detail), ()) = tokio::join!(release(&blocked, &api, &last), wait);
    assert_eq!(states, [State::Started, State::Failed, State::Done], "{detail}");
    let cause = blocked.bus.since(0).1[1].text("cause").unwrap_or_default().to_owned();
    assert!(cause.contains("ConfigMap shop/theirs: the object belongs to somebody else"), "{cause}");
    assert_eq!(version(api.get(SETTINGS).await.expect("asked")), None, "not declared any more");
}

/// Whether the Deployment is as it was.
async fn is_as_before(api: &Api, before: &Value) -> bool {
    api.get(WEB).await.expect("asked").as_ref() == Some(before)
}

/// Spec and status as they are sent come back from the API server: nothing is pruned, nothing is refused; and what the
/// schemas forbid is refused.
#[tokio::test]
async fn a_real_api_server_takes_the_kinds_of_metal3_and_keeps_every_field() {
    let cluster = Cluster::start();
    let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
    for namespace in ["site", "tenant", "network"] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        api.create("/api/v1/namespaces", &object).await.expect("a namespace");
    }

    let definitions = agent_api::metal3::crds::all();
    define_metal3(&api).await;
    let fixtures = [
        include_str!("../../agent/api/src/metal3/fixtures/baremetalhosts.yaml"),
        include_str!("../../agent/api/src/metal3/fixtures/others.yaml"),
    ];
    for text in fixtures {
        for object in serde_saphyr::from_str::<Vec<Value>>(text).expect("a list of objects") {
            kept(&api, &definitions, object).await;
        }
    }
    let hosts = "/apis/metal3.io/v1alpha1/namespaces/site/baremetalhosts";
    for spec in [
        json!({}),
        json!({"online": true, "bootMode": "bios"}),
        json!({"online": true, "bootMACAddress": "00:00"}),
        json!({"online": true, "image": {}}),
        json!({"online": true, "raid": {"softwareRAIDVolumes": [{"level": "1"}, {"level": "1"}, {"level": "1"}]}}),
    ] {
        let wrong = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "wrong"}, "spec": spec});
        assert!(api.create(hosts, &wrong).await.is_err(), "{spec}");
    }
}

async fn kept(
    api: &Api,
    definitions: &[k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition],
    mut object: Value,
) {
    let (kind, status) = (object["kind"].clone(), object["status"].take());
    let definition = definitions.iter().find(|it| it.spec.names.kind == kind).expect("a kind");
    let metadata = object["metadata"].clone();
    // What the API server gives out itself.
    object["metadata"] = json!({"name": metadata["name"], "namespace": metadata["namespace"]});
    object.as_object_mut().expect("an object").remove("status");
    let namespace = metadata["namespace"].as_str().expect("a namespace");
    let path = format!("/apis/metal3.io/v1alpha1/namespaces/{namespace}/{}", definition.spec.names.plural);
    let one = format!("{path}/{}", metadata["name"].as_str().expect("a name"));
    api.create(&path, &object).await.unwrap_or_else(|error| panic!("{one}: {error}"));
    let mut found = api.get(&one).await.expect("asked").expect("there");
    if object["spec"].get("automatedCleaningMode").is_none() && kind == "BareMetalHost" {
        assert_eq!(found["spec"]["automatedCleaningMode"].take(), "metadata", "{one}");
        found["spec"].as_object_mut().expect("a spec").remove("automatedCleaningMode");
    }
    assert_eq!(without_nulls(&found["spec"]), without_nulls(&object["spec"]), "{one}");
    let version = &definition.spec.versions[0];
    let has_status = version.subresources.as_ref().is_some_and(|all| all.status.is_some());
    if has_status && status.as_object().is_some_and(|status| !status.is_empty()) {
        let told =
            json!({"apiVersion": object["apiVersion"], "kind": kind, "metadata": object["metadata"], "status": status});
        let found = api.apply(&format!("{one}/status"), &told, "test", true).await;
        let found = found.unwrap_or_else(|error| panic!("{one}: {error}"));
        assert_eq!(without_nulls(&found["status"]), without_nulls(&status), "{one}");
    }
}

/// Whether a field is `null` or absent may change on the way.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, field)| !field.is_null());
            kept.map(|(name, field)| (name.clone(), without_nulls(field))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
