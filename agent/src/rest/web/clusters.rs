//! `GET /api/v1/clusters` and what lies below it: application clusters as the API server has them, their kubeconfigs, and
//! the files in their folders.

use std::sync::Arc;

use agent_api::clusters::provisioning::{ClusterList, ClusterStory, Provisioning};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Options;
use super::ask::{away, cluster, is_name};
use super::routes::App;
use crate::door::Refusal;
use crate::services::clusters::FOLDER;

/// All clusters of the box's API server.
const PROVISIONINGS: &str = "/apis/bpa.akraino.org/v1alpha1/provisionings";
/// Files of a cluster that may be read, beside its logs.
const FILES: [&str; 2] = ["hosts.ini", "inventory.ini"];
/// Most bytes of a log that are sent: its end.
const LOG_BYTES: usize = 1 << 20;

/// All clusters.
pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<ClusterList>, Refusal> {
    let found = cluster(&app.options)?.get(PROVISIONINGS).await.map_err(|error| away(&error))?;
    let found = found.ok_or_else(none_here)?;
    let mut clusters: Vec<ClusterStory> = found["items"].as_array().into_iter().flatten().filter_map(story).collect();
    clusters.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(Json(ClusterList { clusters }))
}

/// One cluster.
pub(super) async fn one(
    State(app): State<Arc<App>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Json<ClusterStory>, Refusal> {
    let object = object(&app.options, &namespace, &name).await?;
    story(&object).map(Json).ok_or_else(|| absent(&namespace, &name))
}

/// Its kubeconfig.
pub(super) async fn kubeconfig(
    State(app): State<Arc<App>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let object = object(&app.options, &namespace, &name).await?;
    let not_yet = || {
        let error = format!("the cluster `{namespace}/{name}` has no kubeconfig yet");
        Refusal::new(
            StatusCode::NOT_FOUND,
            error,
            format!("GET /api/v1/clusters/{namespace}/{name} tells how far it is"),
        )
    };
    let secret = object["status"]["kubeconfigSecret"].as_str().filter(|name| is_name(name)).ok_or_else(not_yet)?;
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{secret}");
    let secret = cluster(&app.options)?.get(&path).await.map_err(|error| away(&error))?.ok_or_else(not_yet)?;
    let text = secret["data"]["value"].as_str().and_then(|text| STANDARD.decode(text).ok()).ok_or_else(not_yet)?;
    Ok(([(header::CONTENT_TYPE, "application/yaml")], text).into_response())
}

/// An inventory, or the log of a node.
pub(super) async fn file(
    State(app): State<Arc<App>>,
    Path((namespace, name, file)): Path<(String, String, String)>,
) -> Result<Response, Refusal> {
    let object = object(&app.options, &namespace, &name).await?;
    let absent = || {
        let error = format!("the cluster `{namespace}/{name}` has no file `{file}`");
        Refusal::new(StatusCode::NOT_FOUND, error, "there are hosts.ini, inventory.ini, and NODE.log for each node")
    };
    let read: Provisioning = serde_json::from_value(object).map_err(|_| absent())?;
    let log = file.strip_suffix(".log").is_some_and(|node| is_name(node) && !node.contains('.'));
    if !(log || FILES.contains(&&*file)) || !is_name(read.cluster()) {
        return Err(absent());
    }
    let folder = app.options.root.join(FOLDER.trim_start_matches('/')).join(read.cluster());
    let path = if log { folder.join("log").join(&file) } else { folder.join(&file) };
    let text = tokio::task::spawn_blocking(move || fs_err::read(path)).await;
    let mut text = match text {
        Ok(Ok(text)) => text,
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => return Err(absent()),
        Ok(Err(error)) => return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), "try again")),
        Err(error) => return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), "try again")),
    };
    if text.len() > LOG_BYTES {
        text.drain(..text.len() - LOG_BYTES);
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

async fn object(options: &Options, namespace: &str, name: &str) -> Result<Value, Refusal> {
    if !is_name(namespace) || !is_name(name) {
        return Err(absent(namespace, name));
    }
    let path = format!("/apis/bpa.akraino.org/v1alpha1/namespaces/{namespace}/provisionings/{name}");
    cluster(options)?.get(&path).await.map_err(|error| away(&error))?.ok_or_else(|| absent(namespace, name))
}

fn absent(namespace: &str, name: &str) -> Refusal {
    let error = format!("there is no Provisioning `{namespace}/{name}`");
    Refusal::new(StatusCode::NOT_FOUND, error, "GET /api/v1/clusters lists those that there are")
}

fn none_here() -> Refusal {
    let hint = "declare `services: { clusters: {} }` in the definition of the appliance, and build it again";
    Refusal::new(StatusCode::NOT_FOUND, "this release makes no application clusters", hint)
}

/// What REST says of an object. One that cannot be read is left out; the schema does not admit any such.
fn story(object: &Value) -> Option<ClusterStory> {
    let read: Provisioning = serde_json::from_value(object.clone()).ok()?;
    let status = read.status.clone().unwrap_or_default();
    Some(ClusterStory { namespace: read.metadata.namespace?, name: read.metadata.name?, status })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::story;

    #[test]
    fn a_cluster_is_told_with_its_nodes_and_before_it_has_any() {
        let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
            "metadata": {"name": "one", "namespace": "default"}, "spec": {"masters": []}});
        let told = story(&object).expect("told");
        assert_eq!((&*told.namespace, &*told.name, told.status.nodes.len()), ("default", "one", 0));
        assert_eq!(story(&json!({"kind": "Provisioning"})), None);
    }
}
