//! The routes on a box whose cluster and Ironic are fakes on loopback; and what is told of all that can be seen, as it is.

use std::sync::{Arc, Mutex};

use agent_api::host_story::{HostList, HostStory};
use agent_api::metal3::BareMetalHost;
use agent_api::rest::Problem;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use jiff::Timestamp;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::tests::Fixture;
use super::tell;
use crate::cluster::kubeconfig::{Credentials, render};
use crate::cluster::pki::Pair;
use crate::door::testing;
use crate::ironic::Node;
use crate::provisioning::credentials::IronicCredentials;
use crate::provisioning::{RUN, SECRETS, dhcp, segment};
use crate::signs::Table;

fn now() -> Timestamp {
    "2026-03-02T08:01:00Z".parse().expect("a moment")
}

/// As the API server has it while it is inspected.
fn host() -> Value {
    let version = json!({"credentials": {"name": "bmc", "namespace": "metal3"}, "credentialsVersion": "7"});
    json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "node-1", "namespace": "metal3", "uid": "u-2", "generation": 1,
            "creationTimestamp": "2026-03-02T07:59:00Z"},
        "spec": {"online": true, "bootMACAddress": "52:54:00:00:00:0a",
            "bmc": {"address": "redfish://10.0.0.1", "credentialsName": "bmc"}},
        "status": {"operationalStatus": "OK", "errorMessage": "", "poweredOn": false,
            "provisioning": {"state": "inspecting", "ID": "5a1ee0f4"},
            "goodCredentials": version, "triedCredentials": version,
            "operationHistory": {
                "register": {"start": "2026-03-02T07:59:10Z", "end": "2026-03-02T07:59:40Z"},
                "inspect": {"start": "2026-03-02T07:59:40Z", "end": null}},
            "conditions": [
                {"type": "Progressing", "status": "True", "reason": "Inspecting", "message": "powered on; no DHCP request yet",
                    "lastTransitionTime": "2026-03-02T07:59:05Z"},
                {"type": "Ready", "status": "False", "reason": "Inspecting", "message": "",
                    "lastTransitionTime": "2026-03-02T07:59:01Z"}]},
    })
}

fn node() -> Value {
    json!({
        "uuid": "5a1ee0f4", "name": "metal3~node-1", "provision_state": "inspect wait", "power_state": "power on",
        "boot_interface": "ipxe", "inspect_interface": "agent", "inspection_started_at": "2026-03-02T07:59:45+00:00",
        "provision_updated_at": "2026-03-02T07:59:50+00:00", "deploy_step": {}, "clean_step": {},
        "driver_internal_info": {"last_power_state_change": "2026-03-02T08:00:00.125000"},
    })
}

fn events() -> Value {
    let about = |uid: &str| json!({"kind": "BareMetalHost", "name": "node-1", "uid": uid});
    json!([
        {"involvedObject": about("u-2"), "eventTime": "2026-03-02T07:59:12.000000Z", "firstTimestamp": null,
            "type": "Normal", "reason": "Registered", "message": "Registered new host"},
        {"involvedObject": about("u-2"), "eventTime": "2026-03-02T07:59:15.000000Z", "type": "Warning",
            "reason": "RegistrationError", "message": "401",
            "series": {"count": 3, "lastObservedTime": "2026-03-02T07:59:30.000000Z"}},
        {"involvedObject": about("u-1"), "lastTimestamp": "2026-03-02T07:00:00Z", "type": "Normal",
            "reason": "Deleted", "message": "of the host that had the name before"},
    ])
}

fn table() -> Value {
    json!({
        "dhcp": [{"mac": "52:54:00:00:00:0a", "lease": "172.22.0.50",
            "asked": {"at": "2026-03-02T08:00:20Z", "message": "request", "client": "ipxe", "architecture": 7},
            "answered": {"at": "2026-03-02T08:00:20.5Z", "message": "ack", "address": "172.22.0.50",
                "server": "172.22.0.1", "ours": true}}],
        "http": [{"client": "172.22.0.50", "path": "/provisioning/5a1ee0f4/deploy_ramdisk", "at": "2026-03-02T08:00:30Z"}],
    })
}

fn told(host: Value, node: Option<Value>, table: Value) -> HostStory {
    let host: BareMetalHost = serde_json::from_value(host).expect("a host");
    let node: Option<Node> = node.map(|node| serde_json::from_value(node).expect("a node"));
    let table: Table = serde_json::from_value(table).expect("a table");
    let events = events().as_array().cloned().unwrap_or_default();
    tell::story(&host, node.as_ref(), &table, &events, Vec::new(), now())
}

#[test]
fn a_host_that_is_inspected_is_told_from_its_beginning_to_its_last_sign() {
    let story = told(host(), Some(node()), table());
    insta::assert_snapshot!(serde_json::to_string_pretty(&story).expect("JSON"));
}

/// What stands under `waits` in every kind of wait.
#[test]
fn a_host_that_waits_says_for_what() {
    let nothing = || json!({"dhcp": [], "http": []});
    let condition = |status: &str, reason: &str, message: &str| {
        let mut host = host();
        host["status"]["conditions"] = json!([{"type": "Progressing", "status": status, "reason": reason,
            "message": message, "lastTransitionTime": "2026-03-02T08:00:00Z"}]);
        host
    };
    let mut steady = host();
    steady["status"]["conditions"][1]["status"] = "True".into();
    let mut fresh = host();
    fresh.as_object_mut().expect("an object").remove("status");
    let available = Some(json!({"uuid": "5a1ee0f4", "provision_state": "available", "power_state": "power on"}));
    let retried = "tried again at 2026-03-02T08:02:00Z, or at once when the host or its credentials change";
    let table = [
        ("on, nothing heard", told(host(), Some(node()), nothing())),
        ("Ironic does not answer", told(host(), None, nothing())),
        (
            "its turn has not come",
            told(condition("False", "Delayed", "this one is queued"), available.clone(), nothing()),
        ),
        ("it failed", told(condition("False", "InspectionError", retried), available.clone(), nothing())),
        ("nobody has looked", told(fresh, None, nothing())),
        ("nothing", told(steady, available, nothing())),
    ];
    let said = |story: &HostStory| serde_json::to_string(&story.line.waits).expect("JSON");
    let told: Vec<String> = table.iter().map(|(name, story)| format!("{name}: {}", said(story))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

/// The API server and Ironic in one: what is at a path, and what was asked.
#[derive(Clone, Default)]
struct Fake {
    answers: Arc<Vec<(&'static str, Value)>>,
    asked: Arc<Mutex<Vec<String>>>,
}

async fn answer(State(fake): State<Fake>, uri: Uri) -> Response {
    fake.asked.lock().expect("not poisoned").push(uri.to_string());
    match fake.answers.iter().find(|(path, _)| *path == uri.path()) {
        Some((_, value)) => Json(value.clone()).into_response(),
        None => (StatusCode::NOT_FOUND, Json(json!({"message": "not found"}))).into_response(),
    }
}

struct Site {
    fixture: Fixture,
    fake: Fake,
    _tasks: JoinSet<()>,
}

/// A box that provisions; `ironic`: whether that answers.
async fn start(ironic: bool) -> Site {
    let version = json!({"id": "v1", "min_version": "1.1", "version": "1.95"});
    let answers = vec![
        ("/", json!({"default_version": version})),
        ("/v1/nodes", json!({"nodes": [node()]})),
        ("/v1/nodes/5a1ee0f4", node()),
        ("/apis/metal3.io/v1alpha1/baremetalhosts", json!({"items": [host(), {"kind": "BareMetalHost"}]})),
        ("/apis/metal3.io/v1alpha1/namespaces/metal3/baremetalhosts/node-1", host()),
        ("/api/v1/namespaces/metal3/events", json!({"items": events()})),
    ];
    let fake = Fake { answers: Arc::new(answers), asked: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut tasks = JoinSet::new();
    let router = Router::new().fallback(answer).with_state(fake.clone());
    tasks.spawn(async move { axum::serve(listener, router).await.expect("served") });
    let dir = lay_out(&url);
    let url = if ironic { url } else { "http://127.0.0.1:1".to_owned() };
    let fixture = Fixture::with_files(dir, |options| options.ironic = url);
    Site { fixture, fake, _tasks: tasks }
}

/// What lies on such a box.
fn lay_out(server: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    let release = json!({"name": "a", "version": "1", "provisioning": {}});
    let mut whole = serde_json::to_value(agent_api::release::Release::default()).expect("JSON");
    whole.as_object_mut().expect("an object").extend(release.as_object().cloned().expect("an object"));
    fs_err::write(at("release.json"), whole.to_string()).expect("written");
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["client".to_owned()]).expect("made");
    let pair = Pair { certificate: cert.pem(), key: signing_key.serialize_pem() };
    let authority = testing::tls().1;
    let kubeconfig = render(server, &authority, "kubernetes-admin", &Credentials::Inline(&pair));
    fs_err::write(at("admin.conf"), kubeconfig).expect("written");
    IronicCredentials::open(&at(SECRETS)).expect("made");
    fs_err::create_dir_all(at(RUN)).expect("a folder");
    fs_err::write(at(RUN).join("ca.crt"), authority).expect("written");
    fs_err::create_dir_all(at(dhcp::STATE)).expect("a folder");
    let heard = table()["dhcp"].to_string();
    fs_err::write(at(dhcp::STATE).join(segment::signs::SIGNS), heard).expect("written");
    dir
}

#[tokio::test]
async fn all_hosts_and_one_host_are_told() {
    let site = start(true).await;
    let list: HostList = site.fixture.ask("/api/v1/hosts").await.json().await.expect("a list");
    assert_eq!(list.hosts.len(), 1);
    let line = &list.hosts[0];
    assert_eq!((&*line.namespace, &*line.name, &*line.state), ("metal3", "node-1", "inspecting"));
    let waits = line.waits.clone().expect("it waits");
    assert_eq!(waits.what, "asked DHCP and got 172.22.0.50; fetches the ramdisk");
    assert_eq!(waits.until.expect("an end").0.to_string(), "2026-03-02T08:29:45Z");
    assert!(list.problems[0].starts_with("a `BareMetalHost` is not as it should be"), "{:?}", list.problems);

    let answer = site.fixture.ask("/api/v1/hosts/metal3/node-1").await;
    let story: HostStory = answer.json().await.expect("a story");
    assert_eq!(story.line, *line);
    assert!(story.timeline.iter().any(|it| it.word == "RegistrationError" && it.count == Some(3)), "{story:?}");
    assert!(story.problems.is_empty(), "{:?}", story.problems);
    let asked = site.fake.asked.lock().expect("not poisoned").join("\n");
    assert!(asked.contains("involvedObject.kind%3DBareMetalHost%2CinvolvedObject.name%3Dnode-1"), "{asked}");
}

#[tokio::test]
async fn a_host_that_is_not_there_is_404_and_strange_names_reach_nobody() {
    let site = start(true).await;
    for path in ["metal3/none", "metal3/..%2f..%2fsecrets", "Metal3/a", "metal3/%3Fx=y"] {
        let answer = site.fixture.ask(&format!("/api/v1/hosts/{path}")).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        let problem: Problem = answer.json().await.expect("a problem");
        assert!(problem.error.starts_with("there is no BareMetalHost `"), "{problem:?}");
    }
    let asked = site.fake.asked.lock().expect("not poisoned").clone();
    assert!(
        asked.iter().all(|path| !path.contains("secrets") && !path.contains('?') || path.contains("events?")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn without_ironic_the_rest_is_told_and_without_a_cluster_nothing() {
    let site = start(false).await;
    for path in ["/api/v1/hosts", "/api/v1/hosts/metal3/node-1"] {
        let answer = site.fixture.ask(path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let text = answer.text().await.expect("text");
        assert!(text.contains("Ironic was not asked, so that BMC and ramdisk are not known"), "{text}");
        assert!(text.contains("Inspecting: powered on; no DHCP request yet"), "{text}");
    }
    fs_err::remove_file(site.fixture.dir.path().join("admin.conf")).expect("removed");
    for path in ["/api/v1/hosts", "/api/v1/hosts/metal3/node-1"] {
        let answer = site.fixture.ask(path).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(answer.headers().contains_key("retry-after"));
        let problem: Problem = answer.json().await.expect("a problem");
        assert!(problem.error.starts_with("the API server cannot be asked: "), "{problem:?}");
    }
}
