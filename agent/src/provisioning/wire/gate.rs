//! Port 6385: TLS of the box, the rules, and the way to Ironic, which listens on the loopback address alone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_api::ports;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::any;
use axum::{Router, http};
use rustls::ServerConfig;
use serde_json::json;
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::rules::{Verdict, is_of_sender, verdict};
use super::{Known, Wire};
use crate::door::server::{self, Peer};
use crate::http::{client, hop};
use crate::listen::KnownPeers;

/// Most bytes of a request: an inventory with the ramdisk's logs.
const BODY_BYTES: usize = 64 << 20;
/// If Ironic takes longer than this, the client is told that Ironic does not answer. Some of its answers wait for a BMC.
const ANSWER: Duration = Duration::from_secs(180);
/// What stands before Ironic.
#[derive(Clone, Debug)]
pub struct Gate {
    wire: Wire,
    ironic: reqwest::Client,
    base: String,
}

impl Gate {
    /// Before the Ironic that listens on that port of the loopback address.
    ///
    /// # Errors
    /// If no client can be made.
    pub fn new(wire: Wire, port: u16) -> anyhow::Result<Self> {
        // Nobody but the box listens on its loopback address: its certificate tells nothing more.
        let ironic = client::plain().tls_danger_accept_invalid_certs(true).timeout(ANSWER);
        Ok(Self { wire, ironic: ironic.build()?, base: format!("https://127.0.0.1:{port}") })
    }
}

/// Listens on these addresses until `stop`. Returns those that are bound by now. Needs a tokio runtime.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    addresses: &[SocketAddr],
    gate: Gate,
    tls: ServerConfig,
    stop: &CancellationToken,
) -> Vec<SocketAddr> {
    let router = Router::new().fallback(any(answer)).with_state(Arc::new(gate));
    server::start(tasks, addresses, router, tls, Arc::<KnownPeers>::default(), stop)
}

async fn answer(
    State(gate): State<Arc<Gate>>,
    Extension(Peer(address)): Extension<Peer>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let (wire, uri) = (gate.wire.clone(), head.uri.clone());
    let judged = spawn_blocking(move || {
        let known = wire.known(address);
        let verdict = verdict(&known, uri.path(), uri.query().unwrap_or_default());
        (known, verdict)
    });
    let Ok((known, verdict)) = judged.await else {
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "the box is stopping");
    };
    let passed = match verdict {
        Verdict::Refuse(why) => return refused(&known, &path, &why),
        passed => passed,
    };
    let Ok(body) = to_bytes(body, BODY_BYTES).await else {
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large");
    };
    let query = match passed {
        Verdict::Pass(query) => query,
        // A node's id in the query would be believed without a look at the cards.
        _ => match serde_json::from_slice(&body).map_err(|error| error.to_string()) {
            Ok(report) => match is_of_sender(&known, &report) {
                Ok(()) => String::new(),
                Err(why) => return refused(&known, &path, &why),
            },
            Err(why) => return refused(&known, &path, &why),
        },
    };
    pass(&gate, head, &path, &query, body.to_vec()).await
}

async fn pass(gate: &Gate, mut head: http::request::Parts, path: &str, query: &str, body: Vec<u8>) -> Response {
    hop::strip(&mut head.headers);
    // The client counts anew.
    head.headers.remove(header::CONTENT_LENGTH);
    let mark = if query.is_empty() { "" } else { "?" };
    let url = format!("{}{path}{mark}{query}", gate.base);
    let sent = gate.ironic.request(head.method, url).headers(head.headers).body(body).send().await;
    let answered = async {
        let answer = sent?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        Ok::<_, reqwest::Error>((status, headers, answer.bytes().await?))
    };
    match answered.await {
        Ok((status, mut headers, bytes)) => {
            hop::strip(&mut headers);
            headers.remove(header::CONTENT_LENGTH);
            let mut response = Response::new(Body::from(bytes));
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            response
        }
        Err(error) => {
            log::debug!("Ironic does not answer: {error}");
            refusal(StatusCode::SERVICE_UNAVAILABLE, "Ironic is starting: ask again")
        }
    }
}

fn refused(known: &Known, path: &str, why: &str) -> Response {
    log::warn!("{} was refused `{path}` on port {}: {why}", known.address, ports::IRONIC);
    refusal(StatusCode::FORBIDDEN, why)
}

/// An error in Ironic's own form.
fn refusal(status: StatusCode, message: &str) -> Response {
    let fault = json!({"faultcode": "Client", "faultstring": message, "debuginfo": null});
    let mut response = Response::new(Body::from(json!({"error_message": fault}).to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
