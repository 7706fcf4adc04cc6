//! `GET /api/v1/hosts` and `GET /api/v1/hosts/NAMESPACE/NAME`: the state of the servers, and what each waits for.
//!
//! ```text
//! API server ─ BareMetalHosts, events ─┐
//! Ironic ─ nodes ──────────────────────┼─► tell (pure) ─► HostList, HostStory
//! the box ─ signs::Table ──────────────┘
//! ```
//! Without the API server the answer is an error; without Ironic the answer says what it lacks.

use std::sync::Arc;

use agent_api::host_story::{HostList, HostStory};
use agent_api::metal3::BareMetalHost;
use anyhow::Context as _;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use tokio::task::spawn_blocking;

use super::Options;
use super::ask::{away, cluster, is_name};
use super::routes::App;
use crate::door::Refusal;
use crate::ironic::{self, Node};
use crate::provisioning::credentials::{self, IronicCredentials};
use crate::provisioning::{RUN, SECRETS};
use crate::signs::{Table, node};

mod tell;
#[cfg(test)]
mod tests;

/// All hosts of the cluster.
const HOSTS: &str = "/apis/metal3.io/v1alpha1/baremetalhosts";
/// Events that are told of a host, at most.
const EVENTS: usize = 500;

/// All hosts, one line each.
pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<HostList>, Refusal> {
    let options = &app.options;
    provisions(options)?;
    let asked = async { cluster(options)?.get(HOSTS).await.map_err(|error| away(&error)) };
    let (found, nodes, table) = tokio::join!(asked, nodes(options), table(options));
    let (found, table) = (found?, table?);
    let (nodes, mut problems) = match nodes {
        Ok(nodes) => (nodes, Vec::new()),
        Err(error) => (Vec::new(), vec![of_ironic(&error)]),
    };
    if found.is_none() {
        problems.push("the cluster does not know `BareMetalHost`s yet".to_owned());
    }
    let items = found.map(|list| list["items"].as_array().cloned().unwrap_or_default()).unwrap_or_default();
    let (now, mut hosts) = (Timestamp::now(), Vec::new());
    for item in items {
        match serde_json::from_value::<BareMetalHost>(item) {
            Ok(host) => hosts.push(tell::line(&host, tell::node_of(&host, &nodes), &table, now)),
            Err(error) => problems.push(format!("a `BareMetalHost` is not as it should be: {error}")),
        }
    }
    hosts.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(Json(HostList { hosts, problems }))
}

/// All of one host.
pub(super) async fn one(
    State(app): State<Arc<App>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Json<HostStory>, Refusal> {
    let options = &app.options;
    provisions(options)?;
    let absent = || {
        let error = format!("there is no BareMetalHost `{namespace}/{name}`");
        Refusal::new(StatusCode::NOT_FOUND, error, "GET /api/v1/hosts lists those that there are")
    };
    if !is_name(&namespace) || !is_name(&name) {
        return Err(absent());
    }
    let api = cluster(options)?;
    let host_path = format!("/apis/metal3.io/v1alpha1/namespaces/{namespace}/baremetalhosts/{name}");
    let about = format!("involvedObject.kind%3DBareMetalHost%2CinvolvedObject.name%3D{name}");
    let events_path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector={about}&limit={EVENTS}");
    let asked = async { tokio::try_join!(api.get(&host_path), api.get(&events_path)) };
    let (asked, table) = tokio::join!(asked, table(options));
    let (host, events) = asked.map_err(|error| away(&error))?;
    let host: BareMetalHost = serde_json::from_value(host.ok_or_else(absent)?).map_err(|error| {
        let error = format!("BareMetalHost `{namespace}/{name}` is not as it should be: {error}");
        Refusal::new(StatusCode::BAD_GATEWAY, error, "see `kubectl get bmh -o yaml`")
    })?;
    let (node, problems) = match node_of(options, &host).await {
        Ok(node) => (node, Vec::new()),
        Err(error) => (None, vec![of_ironic(&error)]),
    };
    let events = events.map(|list| list["items"].as_array().cloned().unwrap_or_default()).unwrap_or_default();
    Ok(Json(tell::story(&host, node.as_ref(), &table?, &events, problems, Timestamp::now())))
}

fn provisions(options: &Options) -> Result<(), Refusal> {
    if options.vitals.identity().provisioning {
        return Ok(());
    }
    let hint = "declare `services.provisioning` in the definition of the appliance, and build it again";
    Err(Refusal::new(StatusCode::NOT_FOUND, "this release does not provision servers", hint))
}

/// What the box saw. Files are read, which may block.
async fn table(options: &Options) -> Result<Table, Refusal> {
    let (root, fetches) = (options.root.clone(), options.fetches.clone());
    let gathered = spawn_blocking(move || Table::gather(&root, &fetches, Timestamp::now())).await;
    gathered.map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), "try again"))
}

fn of_ironic(error: &anyhow::Error) -> String {
    format!("Ironic was not asked, so that BMC and ramdisk are not known: {error:#}")
}

fn client(options: &Options) -> anyhow::Result<ironic::Client> {
    let at = |folder: &str| options.root.join(folder.trim_start_matches('/'));
    let text = fs_err::read(at(SECRETS).join(credentials::FILE))?;
    let IronicCredentials { username, password, .. } =
        serde_json::from_slice(&text).context("reading its credentials")?;
    let ca = fs_err::read_to_string(at(RUN).join("ca.crt"))?;
    let settings = ironic::Settings { url: options.ironic.clone(), ca: Some(ca), user: Some((username, password)) };
    Ok(ironic::Client::new(&settings)?)
}

async fn nodes(options: &Options) -> anyhow::Result<Vec<Node>> {
    Ok(client(options)?.nodes(node::FIELDS).await?)
}

async fn node_of(options: &Options, host: &BareMetalHost) -> anyhow::Result<Option<Node>> {
    Ok(client(options)?.node(&tell::ident(host)).await?)
}

/// URL of the box's Ironic.
pub(super) fn ironic_of_box() -> String {
    format!("https://127.0.0.1:{}", agent_api::ports::IRONIC)
}
