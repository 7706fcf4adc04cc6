//! Turns of clusters against an API server that keeps what it is told.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agent_api::clusters::provisioning::{FINALIZER, NodePhase, NodeRole, Provisioning};
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::super::decide::tests::chosen;
use super::super::eta::{History, Schedule};
use super::super::install::{Made, Work};
use super::super::upkeep::Aim;
use super::{Controller, Failures, Turn as _};
use crate::operators::bpa::common::{Common, Parts, Place};
use crate::operators::kit::{Base, Objects};

const HOST: &str = "/apis/metal3.io/v1alpha1/namespaces/metal3/baremetalhosts/m";
const OBJECT: &str = "/apis/bpa.akraino.org/v1alpha1/namespaces/default/provisionings/p";

/// Objects by their paths.
#[derive(Clone, Default)]
struct Cluster(Arc<Mutex<BTreeMap<String, Value>>>);

impl Cluster {
    fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    fn put(&self, path: &str, object: Value) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), object);
    }

    /// Of a kind, in all namespaces.
    fn list(&self, kind: &str) -> Vec<Value> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|(path, _)| path.contains(&format!("/{kind}/"))).map(|(_, object)| object.clone()).collect()
    }

    fn answer(&self, method: &Method, path: &str, body: &str) -> Response {
        let path = path.trim_end_matches("/status");
        let kind = path.rsplit('/').next().unwrap_or_default();
        let absent = || {
            let status =
                json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": path});
            (StatusCode::NOT_FOUND, Json(status)).into_response()
        };
        match *method {
            Method::GET if kind.ends_with('s') => {
                let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": self.list(kind)});
                Json(list).into_response()
            }
            Method::GET => self.get(path).map_or_else(absent, |object| Json(object).into_response()),
            Method::PATCH => {
                let mut object = self.get(path).unwrap_or(Value::Null);
                merge(&mut object, serde_json::from_str(body).expect("a change"));
                self.put(path, object.clone());
                Json(object).into_response()
            }
            Method::DELETE => absent(),
            _ => Json(serde_json::from_str::<Value>(body).expect("an object")).into_response(),
        }
    }
}

/// RFC 7386.
fn merge(into: &mut Value, change: Value) {
    let Value::Object(change) = change else { return *into = change };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in change {
        match value {
            Value::Null => drop(into.as_object_mut().and_then(|map| map.remove(&key))),
            value => merge(&mut into[&key], value),
        }
    }
}

async fn controller(cluster: &Cluster, folder: &Path, tasks: &mut JoinSet<()>) -> Controller {
    let answer = async |State(cluster): State<Cluster>, method: Method, uri: Uri, body: String| {
        cluster.answer(&method, uri.path(), &body)
    };
    let router = Router::new().fallback(answer).with_state(cluster.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    tasks.spawn(async move {
        let _ = axum::serve(listener, router).await;
    });
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::try_from(Config::new(format!("http://{at}").parse().expect("a URI"))).expect("a client");
    let base = Base {
        client: client.clone(),
        namespace: None,
        objects: Objects::new(client.clone(), reflector::store().0),
        recorder: Recorder::new(client, Reporter { controller: "test".to_owned(), instance: None }),
    };
    let common = Common {
        base,
        // Nobody has listed them yet.
        hosts: reflector::store().0,
        place: Place { address: [172, 22, 0, 1].into(), version: "v1.36.4".to_owned() },
        parts: Parts::default(),
        folder: folder.to_owned(),
        folder_on_host: folder.to_owned(),
        leases: Vec::new(),
        agent: Arc::default(),
    };
    Controller {
        common,
        failures: Failures::default(),
        all: reflector::store().0,
        works: Mutex::new(HashMap::new()),
        tasks: Mutex::default(),
        history: Arc::new(History::open(folder)),
        wake: mpsc::unbounded_channel().0,
    }
}

/// A cluster of one host, whose object has that generation.
fn claimed(generation: i64, deleted: bool) -> Cluster {
    let cluster = Cluster::default();
    let by =
        json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning", "namespace": "default", "name": "p"});
    cluster.put(
        HOST,
        json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": "m", "namespace": "metal3", "annotations": {"bpa.akraino.org/node": "m"}},
            "spec": {"online": true, "consumerRef": by}}),
    );
    let mut metadata = json!({"name": "p", "namespace": "default", "uid": "1", "generation": generation,
        "finalizers": [FINALIZER]});
    if deleted {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    cluster.put(
        OBJECT,
        json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning", "metadata": metadata,
            "spec": {"masters": [{"m": {"mac-address": "52:54:00:00:00:0a"}}]}}),
    );
    cluster
}

fn object(cluster: &Cluster) -> Provisioning {
    serde_json::from_value(cluster.get(OBJECT).expect("it is there")).expect("a Provisioning")
}

fn work(controller: &Controller, generation: i64) -> Arc<Work> {
    let nodes = [chosen("m", 10, &[NodeRole::Master])];
    let work = Work::new(&nodes, &[], Vec::new(), Aim::Spec, Schedule::unknown(), Arc::clone(&controller.history));
    let work = Arc::new(work.of(Some(generation)));
    let key = ("default".to_owned(), "p".to_owned());
    controller.works.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&work));
    work
}

/// The operator has just started, and the hosts that it watches are not listed yet.
#[tokio::test]
async fn a_cluster_that_is_deleted_gives_its_hosts_back_also_when_the_operator_has_just_started() {
    let (dir, mut tasks) = (tempfile::tempdir().expect("a folder"), JoinSet::new());
    let cluster = claimed(1, true);
    let controller = controller(&cluster, dir.path(), &mut tasks).await;
    controller.turn(object(&cluster)).await.expect("a turn");
    let host = cluster.get(HOST).expect("the host stays");
    assert_eq!((&host["spec"]["consumerRef"], &host["metadata"]["annotations"]), (&Value::Null, &json!({})));
    assert_eq!(cluster.get(OBJECT).expect("it is there")["metadata"]["finalizers"], json!([]));
}

/// A step that fails is tried for ever.
#[tokio::test]
async fn a_cluster_that_is_deleted_does_not_wait_for_work_that_fails() {
    let (dir, mut tasks) = (tempfile::tempdir().expect("a folder"), JoinSet::new());
    let cluster = claimed(1, true);
    let controller = controller(&cluster, dir.path(), &mut tasks).await;
    let work = work(&controller, 1);
    work.change("m", |node| node.phase = NodePhase::Failing);
    controller.turn(object(&cluster)).await.expect("a turn");
    assert!(work.is_halted() && !object(&cluster).metadata.finalizers.unwrap_or_default().is_empty());
    // Somebody was entered before it ended: the status knows of it, so that the reset does.
    work.change("m", |node| node.host_key = Some("ssh-ed25519 AAAA".to_owned()));
    work.end(Err("it was ended".to_owned()));
    controller.turn(object(&cluster)).await.expect("a turn");
    let nodes = object(&cluster).status.expect("a status").nodes;
    assert_eq!(nodes[0].host_key.as_deref(), Some("ssh-ed25519 AAAA"));
    assert!(controller.work(&("default".to_owned(), "p".to_owned())).is_none());
}

#[tokio::test]
async fn work_that_fails_ends_when_the_spec_is_another_one() {
    for (generation, halted) in [(1, false), (2, true)] {
        let (dir, mut tasks) = (tempfile::tempdir().expect("a folder"), JoinSet::new());
        let cluster = claimed(generation, false);
        let controller = controller(&cluster, dir.path(), &mut tasks).await;
        let work = work(&controller, 1);
        work.change("m", |node| node.phase = NodePhase::Failing);
        controller.turn(object(&cluster)).await.expect("a turn");
        assert_eq!(work.is_halted(), halted, "{generation}");
    }
}

/// A master is away when certificates end: the kubeconfig that ends soon is replaced all the same, else all would be renewed
/// again and again until that master is back.
#[tokio::test]
async fn a_renewed_kubeconfig_is_kept_though_a_master_is_away() {
    for (renewed, kept) in [(true, Some("bmV3")), (false, None)] {
        let (dir, mut tasks) = (tempfile::tempdir().expect("a folder"), JoinSet::new());
        let cluster = claimed(1, false);
        let controller = controller(&cluster, dir.path(), &mut tasks).await;
        let work = work(&controller, 1);
        let text = |text: &str| text.to_owned();
        if renewed {
            let (version, endpoint) = (text("v1.36.4"), text("172.22.0.10:6443"));
            work.has_made(&Made { kubeconfig: text("new"), version, endpoint, networks: None });
        }
        work.end(Err(text("the certificates of m-1 are not renewed: no answer")));
        controller.turn(object(&cluster)).await.expect("a turn");
        let secret = cluster.get("/api/v1/namespaces/default/secrets/p-kubeconfig");
        let found = secret.as_ref().and_then(|secret| secret["data"]["value"].as_str());
        assert_eq!(found, kept);
        let ready = object(&cluster).status.and_then(|status| status.conditions).expect("conditions");
        assert!(ready[0].message.contains("m-1 are not renewed"), "{ready:?}");
    }
}

/// Another version that is asked for while nodes join is not said to be there: its own turn comes.
#[tokio::test]
async fn the_result_of_work_is_told_of_the_spec_for_which_it_was() {
    let (dir, mut tasks) = (tempfile::tempdir().expect("a folder"), JoinSet::new());
    let cluster = claimed(2, false);
    let controller = controller(&cluster, dir.path(), &mut tasks).await;
    let text = |text: &str| text.to_owned();
    let made =
        Made { kubeconfig: text("k"), version: text("v1.36.4"), endpoint: text("172.22.0.10:6443"), networks: None };
    let work = work(&controller, 1);
    work.change("m", |node| node.phase = NodePhase::Installed);
    work.end(Ok(made));
    controller.turn(object(&cluster)).await.expect("a turn");
    let status = object(&cluster).status.expect("a status");
    assert_eq!((status.observed_generation, status.version.as_deref()), (Some(1), Some("v1.36.4")));
    assert!(!controller.is_current(&object(&cluster), &[chosen("m", 10, &[NodeRole::Master])]));
}
