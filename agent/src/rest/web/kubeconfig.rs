//! `GET /api/v1/kubeconfig`: the cluster's admin kubeconfig, with the address under which this client reaches the box.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use agent_api::ports::KUBERNETES_API;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::routes::{App, bad_query};
use crate::door::Refusal;
use crate::vitals;

/// Where kubeadm's layout keeps it.
pub const ADMIN: &str = "/etc/kubernetes/admin.conf";

/// A name that is in every serving certificate that kubeadm's rules make.
const CERTAIN_NAME: &str = "kubernetes";

/// Why there is no kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// Nothing there yet.
    #[error("the cluster has no kubeconfig yet: {0}")]
    NotYet(String),
    /// The file is not a kubeconfig.
    #[error("`{ADMIN}` is not a kubeconfig: {0}")]
    Shape(String),
    /// `?server=` is not a URL of an API server.
    #[error("`server`: `{0}` is not an https URL")]
    Server(String),
}

/// Which server the client wants to talk to.
pub fn server_for(asked: Option<&str>, host: Option<&str>) -> Result<Option<String>, KubeconfigError> {
    if let Some(asked) = asked {
        let refuse = || KubeconfigError::Server(asked.to_owned());
        let uri: Uri = asked.parse().map_err(|_| refuse())?;
        let right = uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty());
        return if right { Ok(Some(asked.trim_end_matches('/').to_owned())) } else { Err(refuse()) };
    }
    let host = host.and_then(|host| host.parse::<Authority>().ok());
    Ok(host.map(|authority| format!("https://{}:{KUBERNETES_API}", authority.host())))
}

/// Reads the file and sets the server.
pub fn kubeconfig(path: &Path, server: Option<&str>, own: &[IpAddr]) -> Result<String, KubeconfigError> {
    let text = fs_err::read_to_string(path).map_err(|error| KubeconfigError::NotYet(error.to_string()))?;
    with_server(&text, server, own)
}

/// Sets the server of every cluster in it. Reached under a name or an address that is not the box's `own` (a
/// forwarded port, a translated address), the certificate is checked against a name that it has for certain.
fn with_server(text: &str, server: Option<&str>, own: &[IpAddr]) -> Result<String, KubeconfigError> {
    let Some(server) = server else { return Ok(text.to_owned()) };
    let shape = |error: &dyn std::fmt::Display| KubeconfigError::Shape(error.to_string());
    let mut config: Value = agent_api::yaml::read(text).map_err(KubeconfigError::Shape)?;
    let clusters = config.get_mut("clusters").and_then(Value::as_array_mut).ok_or_else(|| shape(&"no clusters"))?;
    let host = server.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let is_own = address.is_some_and(|address| own.contains(&address));
    for cluster in clusters {
        let inner = cluster.get_mut("cluster").and_then(Value::as_object_mut).ok_or_else(|| shape(&"no cluster"))?;
        inner.insert("server".to_owned(), json!(server));
        if !is_own {
            inner.insert("tls-server-name".to_owned(), json!(CERTAIN_NAME));
        }
    }
    serde_saphyr::to_string(&config).map_err(|error| shape(&error))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    /// URL of the API server, instead of the host of the request.
    server: Option<String>,
}

pub(super) async fn admin(
    State(app): State<Arc<App>>,
    query: Result<Query<Server>, QueryRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(|rejection| bad_query(&rejection, "?server=https://HOST:PORT"))?;
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(Authority::as_str).or(host);
    let yaml = server_for(query.server.as_deref(), host)
        .and_then(|server| kubeconfig(&app.options.kubeconfig, server.as_deref(), &vitals::addresses()))
        .map_err(|error| no_kubeconfig(&app, &error))?;
    let name = HeaderValue::from_static("attachment; filename=\"kubeconfig.yaml\"");
    let kind = HeaderValue::from_static("application/yaml");
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], yaml).into_response())
}

fn no_kubeconfig(app: &App, error: &KubeconfigError) -> Refusal {
    match error {
        KubeconfigError::NotYet(_) => {
            let status = app.options.bus.now();
            let at = status.running().last().or_else(|| status.failed().last());
            let hint = at.map_or_else(
                || "see /api/v1/status".to_owned(),
                |step| format!("the box is at {}/{}; see /api/v1/status", step.phase, step.step),
            );
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), hint).again_in(2)
        }
        KubeconfigError::Server(_) => {
            Refusal::new(StatusCode::BAD_REQUEST, error.to_string(), "?server=https://HOST:PORT")
        }
        KubeconfigError::Shape(_) => {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), "see /api/v1/support-bundle")
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{server_for, with_server};

    const ADMIN_CONF: &str = "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: QUJD
    server: https://198.18.0.1:6443
  name: kubernetes
contexts:
- context:
    cluster: kubernetes
    user: kubernetes-admin
  name: kubernetes-admin@kubernetes
current-context: kubernetes-admin@kubernetes
kind: Config
preferences: {}
users:
- name: kubernetes-admin
  user:
    client-certificate-data: QUJD
    client-key-data: QUJD
";

    #[rstest]
    #[case::host_with_port(None, Some("192.0.2.7:8443"), Some("https://192.0.2.7:6443"))]
    #[case::v6(None, Some("[2001:db8::7]:8443"), Some("https://[2001:db8::7]:6443"))]
    #[case::name(None, Some("edge"), Some("https://edge:6443"))]
    #[case::asked(Some("https://127.0.0.1:34567/"), Some("192.0.2.7:8443"), Some("https://127.0.0.1:34567"))]
    #[case::nothing(None, None, None)]
    #[case::noise(None, Some("a b"), None)]
    fn the_server_is_the_one_the_client_used(
        #[case] asked: Option<&str>,
        #[case] host: Option<&str>,
        #[case] server: Option<&str>,
    ) {
        assert_eq!(server_for(asked, host).expect("valid").as_deref(), server);
    }

    #[rstest]
    #[case("http://192.0.2.7:6443")]
    #[case("192.0.2.7")]
    #[case("https://")]
    #[case("https://a b/")]
    fn a_server_that_is_no_https_url_is_refused(#[case] asked: &str) {
        server_for(Some(asked), None).expect_err("refused");
    }

    #[test]
    fn an_own_address_is_checked_as_it_is_and_a_foreign_one_by_a_certain_name() {
        let own = ["192.0.2.7".parse().expect("an address")];
        let direct = with_server(ADMIN_CONF, Some("https://192.0.2.7:6443"), &own).expect("rewritten");
        let forwarded = with_server(ADMIN_CONF, Some("https://127.0.0.1:34567"), &own).expect("rewritten");
        insta::assert_snapshot!(direct);
        assert!(!direct.contains("tls-server-name"));
        assert!(forwarded.contains("server: https://127.0.0.1:34567\n"), "{forwarded}");
        assert!(forwarded.contains("tls-server-name: kubernetes\n"), "{forwarded}");
    }
}
