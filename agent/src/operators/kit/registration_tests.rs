//! Registrations against an API server that keeps what it is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use rstest::rstest;
use tokio::task::{AbortHandle, JoinSet};

use super::*;

const MANAGER: &str = "manager";
const PATH: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// What an API server has of configurations, and of namespaces and `ClusterRole`s (these have their own name as UID).
#[derive(Clone, Default)]
struct Cluster(Arc<Mutex<BTreeMap<String, Value>>>);

impl Cluster {
    fn all(&self) -> BTreeMap<String, Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn put(&self, name: &str, mut object: Value) -> Value {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(name).and_then(|it| it["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok());
        object["metadata"]["resourceVersion"] = json!(format!("{}", before.unwrap_or_default() + 1));
        object["metadata"]["uid"] = json!(name);
        object["metadata"]["managedFields"] = json!([{"manager": MANAGER, "operation": "Apply"}]);
        all.insert(name.to_owned(), object.clone());
        object
    }

    async fn serve(&self, tasks: &mut JoinSet<()>) -> Client {
        let one = get(async |Path(name): Path<String>| {
            (name != "nobody").then(|| Json(json!({"metadata": {"name": name, "uid": name}}))).ok_or((
                StatusCode::NOT_FOUND,
                Json(
                    json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "no"}),
                ),
            ))
        });
        let list = get(async |State(cluster): State<Self>| {
            let items: Vec<Value> = cluster.all().into_values().collect();
            Json(json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfigurationList",
                "metadata": {}, "items": items}))
        });
        let item = axum::routing::patch(async |State(cluster): State<Self>, Path(name): Path<String>, body: String| {
            Json(cluster.put(&name, serde_json::from_str(&body).expect("an object")))
        })
        .delete(async |State(cluster): State<Self>, Path(name): Path<String>| {
            cluster.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            Json(json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {}}))
        });
        let router = Router::new()
            .route("/api/v1/namespaces/{name}", one.clone())
            .route("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}", one)
            .route(PATH, list)
            .route(&format!("{PATH}/{{name}}"), item)
            .with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tasks.spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        let _ = rustls::crypto::ring::default_provider().install_default();
        let uri = format!("http://{address}").parse().expect("a URI");
        Client::try_from(kube::Config::new(uri)).expect("a client")
    }

    /// Waits until there are exactly these.
    async fn until(&self, names: &[&str]) {
        let begun = Instant::now();
        loop {
            let all = self.all();
            let there: Vec<&str> = all.keys().map(String::as_str).collect();
            if there == names {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{names:?} expected, {there:?} found");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn at(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn object(name: &str, port: u16) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [{"name": "a.metal3.io", "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "clientConfig": {"url": format!("https://{}/validate-a", at(port))}}]})
}

fn registration(name: Option<&str>, port: u16) -> Registration {
    Registration {
        manager: MANAGER,
        own: name.map(|name| (name.to_owned(), object(name, port))),
        bound: name.map(|_| at(port)),
        owner: None,
        pace: Pace { renew: Duration::from_millis(40), again: Duration::from_millis(5) },
    }
}

/// A controller that runs until its task is aborted.
fn run(of: Registration, client: &Client, tasks: &mut JoinSet<()>) -> AbortHandle {
    tasks.spawn(of.keep(client.clone(), watch::channel(false).0))
}

/// Without a namespace and later with one, with one and later with another or none, at the same address or another one,
/// without a webhook at all: never do two stay.
#[rstest]
#[case::narrowed(("all", 1), (Some("all-a"), 1))]
#[case::widened(("all-a", 1), (Some("all"), 1))]
#[case::moved(("all-a", 1), (Some("all-b"), 1))]
#[case::narrowed_at_another_address(("all", 1), (Some("all-a"), 2))]
#[case::without_a_webhook(("all", 1), (None, 1))]
#[tokio::test]
async fn what_the_controller_before_told_goes(#[case] before: (&str, u16), #[case] after: (Option<&str>, u16)) {
    let cluster = Cluster::default();
    let mut tasks = JoinSet::new();
    let client = cluster.serve(&mut tasks).await;
    let first = run(registration(Some(before.0), before.1), &client, &mut tasks);
    cluster.until(&[before.0]).await;
    first.abort();
    let _second = run(registration(after.0, after.1), &client, &mut tasks);
    cluster.until(&after.0.map_or(Vec::new(), |name| vec![name])).await;
}

#[tokio::test]
async fn controllers_that_live_keep_theirs_and_have_it_again_when_somebody_deletes_it() {
    let cluster = Cluster::default();
    let mut tasks = JoinSet::new();
    let client = cluster.serve(&mut tasks).await;
    let _one = run(registration(Some("all-a"), 1), &client, &mut tasks);
    let _other = run(registration(Some("all-b"), 2), &client, &mut tasks);
    cluster.until(&["all-a", "all-b"]).await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        assert_eq!(cluster.all().len(), 2);
    }
    cluster.0.lock().expect("not poisoned").remove("all-a");
    cluster.until(&["all-a", "all-b"]).await;
}

#[rstest]
#[case(Owner::Namespace("metal".into()), json!([{"apiVersion": "v1", "kind": "Namespace", "name": "metal", "uid": "metal"}]))]
#[case(
    Owner::ClusterRole("operator".into()),
    json!([{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "operator", "uid": "operator"}])
)]
#[case::not_there_yet(Owner::Namespace("nobody".into()), Value::Null)]
#[tokio::test]
async fn it_goes_with_its_owner(#[case] owner: Owner, #[case] expected: Value) {
    let cluster = Cluster::default();
    let mut tasks = JoinSet::new();
    let client = cluster.serve(&mut tasks).await;
    let _one = run(Registration { owner: Some(owner), ..registration(Some("all"), 1) }, &client, &mut tasks);
    cluster.until(&["all"]).await;
    assert_eq!(cluster.all()["all"]["metadata"]["ownerReferences"], expected);
}

/// What another program or an older version made is judged by what is sure.
#[test]
fn nothing_is_removed_that_somebody_may_still_answer() {
    let of = registration(Some("own"), 1);
    let (mut unchanged, begun) = (Unchanged::new(), Instant::now());
    let found = |name: &str, renewed: bool, url: &str| Found {
        name: name.to_owned(),
        uid: "u".to_owned(),
        version: "1".to_owned(),
        renewed,
        asks: vec![url.to_owned()],
    };
    let all = vec![
        found("own", true, "https://127.0.0.1:1/a"),
        found("same address", false, "https://127.0.0.1:1/a"),
        found("longer port", false, "https://127.0.0.1:11/a"),
        found("renewed elsewhere", true, "https://127.0.0.1:2/a"),
        found("older version elsewhere", false, "https://127.0.0.1:3/a"),
        found("a service", false, ""),
    ];
    let mut names = |after: Duration| {
        let gone = left_behind(all.clone(), &of, &mut unchanged, begun + after);
        gone.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    assert_eq!(names(Duration::ZERO), ["same address"]);
    assert_eq!(names(of.pace.renew * 3), ["same address"]);
    assert_eq!(names(of.pace.renew * 4), ["same address", "renewed elsewhere"]);
    let theirs: ValidatingWebhookConfiguration = serde_json::from_value(json!({"metadata": {"name": "x", "uid": "u",
        "resourceVersion": "1", "managedFields": [{"manager": "kubectl"}]}, "webhooks": []}))
    .expect("an object");
    assert_eq!(Found::of(&theirs, MANAGER), None);
}
