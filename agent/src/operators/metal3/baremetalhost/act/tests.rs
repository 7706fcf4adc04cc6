//! What is done with an Ironic that answers as told, on the loopback address.

use std::sync::{Arc, Mutex};

use agent_api::metal3::{BareMetalHost, ProvisioningState};
use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::tests::host;
use super::super::watch_firmware;
use super::{Action, Asked, Executor, Job, Report, Scratch};
use crate::ironic::{Client, Node, ProvisionState, Settings};
use crate::operators::kit::{Base, Objects};
use crate::operators::metal3::common::Pace;
use crate::operators::metal3::preprovisioning;

/// Changes that were asked of Ironic.
type Changes = Arc<Mutex<Vec<String>>>;

/// Who answers `status` and `body` for whatever is not the question for its version. No API server is there.
async fn executor(status: StatusCode, body: Value) -> (Executor, Changes, JoinSet<()>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let changes = Changes::default();
    let told = changes.clone();
    let answer = move |method: Method, uri: Uri| async move {
        if uri.path() == "/" {
            let version = json!({"min_version": "1.1", "version": "1.95"});
            return (StatusCode::OK, json!({"default_version": version}).to_string());
        }
        if method != Method::GET {
            told.lock().expect("a lock").push(format!("{method} {}", uri.path()));
        }
        (status, body.to_string())
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.expect("served") });
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().expect("a URL")));
    let client = client.expect("a client");
    let (secrets, _) = reflector::store();
    let base = Base {
        client: client.clone(),
        namespace: None,
        objects: Objects::new(client.clone(), secrets),
        recorder: Recorder::new(client, Reporter { controller: "test".to_owned(), instance: None }),
    };
    let (firmware, _) = watch_firmware(&base);
    let executor = Executor {
        ironic: Arc::new(Client::new(&Settings { url, ca: None, user: None }).expect("a client")),
        objects: base.objects,
        hosts: reflector::store().0,
        firmware,
        pace: Pace::default(),
        bmc_authorities: None,
        external_http_url: None,
        preprovisioning: preprovisioning::Settings::default(),
    };
    (executor, changes, server)
}

async fn report(
    executor: &Executor,
    host: &BareMetalHost,
    node: &Node,
    scratch: &mut Scratch,
    action: &Action,
) -> Report {
    let mut job = Job { host, node: Some(node), bmc: None, scratch, lost: false };
    executor.act(&mut job, action).await.expect("no API server is asked").report.expect("a report")
}

fn node(state: ProvisionState) -> Node {
    Node {
        uuid: "u".to_owned(),
        provision_state: state,
        inspect_interface: Some("agent".to_owned()),
        ..Node::default()
    }
}

/// What Ironic found may be gone: it is told, and the host is inspected again.
#[tokio::test]
async fn an_inspection_whose_result_is_gone_is_made_again() {
    let answer = json!({"error_message": {"faultstring": "Node inventory could not be found for node u."}});
    let (executor, changes, _server) = executor(StatusCode::NOT_FOUND, answer).await;
    let begun = json!({"status": {"operationHistory": {"inspect": {"start": "2026-03-02T08:00:00Z"}}}});
    let host = host(ProvisioningState::Inspecting, &begun);
    let node = Node {
        inspection_finished_at: Some("2026-03-02T08:05:00+00:00".to_owned()),
        ..node(ProvisionState::Manageable)
    };
    let action = Action::Inspect { again: false, reboot: false };
    let mut scratch = Scratch { asked: Some(Asked::Inspect), ..Scratch::default() };
    let failed = report(&executor, &host, &node, &mut scratch, &action).await;
    let why = "Ironic has nothing of what it found in the host: Node inventory could not be found for node u.";
    assert_eq!(failed, Report::Failed(why.to_owned()));
    assert_eq!(*changes.lock().expect("a lock"), Vec::<String>::new());
    // Its next try, and that of a controller that has been started since.
    report(&executor, &host, &node, &mut scratch, &action).await;
    assert_eq!(*changes.lock().expect("a lock"), ["PUT /v1/nodes/u/states/provision"]);
}

/// An image is not taken away from a server because Ironic was started anew while it was asked for it.
#[tokio::test]
async fn an_ironic_that_starts_is_no_failure_of_a_host() {
    let starting = json!({"error_message": {"faultstring": "Ironic is starting: ask again"}});
    let image = json!({"spec": {"image": {"url": "http://a", "checksum": "abc"}}});
    let host = host(ProvisioningState::Provisioning, &image);
    let action = Action::Provision { reboot: false };
    for (status, fails) in [
        (StatusCode::SERVICE_UNAVAILABLE, false),
        (StatusCode::BAD_GATEWAY, false),
        (StatusCode::UNAUTHORIZED, false),
        (StatusCode::BAD_REQUEST, true),
        (StatusCode::CONFLICT, true),
    ] {
        let (executor, _, _server) = executor(status, starting.clone()).await;
        let node = node(ProvisionState::Manageable);
        let report = report(&executor, &host, &node, &mut Scratch::default(), &action).await;
        assert_eq!(matches!(report, Report::Failed(_)), fails, "{status}: {report:?}");
        assert!(fails || matches!(report, Report::Continues(_)), "{status}: {report:?}");
    }
}

/// Whoever may write hosts in one namespace reads no Secrets of another by the config drive of a server.
#[tokio::test]
async fn secrets_of_other_namespaces_are_nobodys() {
    let (executor, _, _server) = executor(StatusCode::OK, json!({})).await;
    for field in ["userData", "networkData", "metaData"] {
        let spec = json!({"spec": {field: {"name": "s", "namespace": "kube-system"}}});
        let found = executor.objects.cloud_data(&host(ProvisioningState::Provisioning, &spec)).await;
        let why = format!("the Secret `kube-system/s` with `{field}` must be in the host's namespace `site`");
        assert_eq!(found.expect("no API server is asked"), Err(why));
    }
}
