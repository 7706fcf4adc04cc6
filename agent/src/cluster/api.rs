//! A small client for the Kubernetes API: JSON over one kept TLS connection.
//!
//! By hand, though the operators use `kube`: health endpoints that answer "no" in plain text and etcd's gateway are asked
//! here, too. `kube`'s client leaves requests, statuses and errors of such calls to its user, so this file would stay.
//!
//! Objects are plain JSON: the agent applies what kubeadm rendered and reads a handful of fields. Each error names the
//! call that failed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use agent_api::ports::KUBERNETES_API;
use reqwest::{Method, StatusCode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

use super::kubeconfig::ParsedKubeconfig;

/// How long one answer may take: under emulation the first ones are slow.
const PATIENCE: Duration = Duration::from_secs(15);
/// Whose fields the applied objects are: kubeadm's, which made them.
const FIELD_MANAGER: &str = "kubeadm";

/// A name that stands in every certificate of the API server.
const LOCAL_NAME: &str = "kubernetes";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The credentials cannot be used.
    #[error("credentials for the API server: {0}")]
    Credentials(String),
    /// No answer.
    #[error("{method} {path}")]
    Transport {
        /// Method.
        method: Method,
        /// Path.
        path: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// An answer that says no.
    #[error("{method} {path}: {status}: {message}")]
    Refused {
        /// Method.
        method: Method,
        /// Path.
        path: String,
        /// HTTP status.
        status: StatusCode,
        /// The server's own words.
        message: String,
    },
}

impl ApiError {
    /// The HTTP status, if there was an answer.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Credentials(_) | Self::Transport { .. } => None,
        }
    }
}

/// A connection to the API server.
#[derive(Clone, Debug)]
pub struct Api {
    client: reqwest::Client,
    server: String,
}

impl Api {
    /// Connects, at the first call, as the user of a kubeconfig.
    pub fn new(kubeconfig: &ParsedKubeconfig) -> Result<Self, ApiError> {
        let client = builder(kubeconfig)?.build().map_err(|error| ApiError::Credentials(error.to_string()))?;
        Ok(Self { client, server: kubeconfig.server.clone() })
    }

    /// The same API server on this machine, by the loopback address and under one of its names.
    pub fn by_loopback(kubeconfig: &ParsedKubeconfig) -> Result<Self, ApiError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, KUBERNETES_API));
        let client = builder(kubeconfig)?.resolve(LOCAL_NAME, address);
        let client = client.build().map_err(|error| ApiError::Credentials(error.to_string()))?;
        Ok(Self { client, server: format!("https://{LOCAL_NAME}:{KUBERNETES_API}") })
    }

    /// An object or list; nothing if it is not there.
    pub async fn get(&self, path: &str) -> Result<Option<Value>, ApiError> {
        match self.call(Method::GET, path, None).await {
            Ok(bytes) => json(Method::GET, path, &bytes).map(Some),
            Err(ApiError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The text of a health endpoint, good or bad, and whether it is good.
    pub async fn health(&self, path: &str) -> Result<(bool, String), ApiError> {
        match self.call(Method::GET, path, None).await {
            Ok(bytes) => Ok((true, String::from_utf8_lossy(&bytes).into_owned())),
            Err(ApiError::Refused { message, .. }) => Ok((false, message)),
            Err(error) => Err(error),
        }
    }

    /// Creates an object in the collection `path`.
    pub async fn create(&self, path: &str, object: &Value) -> Result<(), ApiError> {
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        self.call(Method::POST, &path, Some(("application/json", object))).await.map(drop)
    }

    /// Asks a question whose words are in the body: the answer. etcd's gateway is spoken to like this.
    pub async fn ask(&self, path: &str, question: &Value) -> Result<Value, ApiError> {
        let bytes = self.call(Method::POST, path, Some(("application/json", question))).await?;
        json(Method::POST, path, &bytes)
    }

    /// Merges `change` into the object at `path` (RFC 7386).
    pub async fn merge(&self, path: &str, change: &Value) -> Result<(), ApiError> {
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        self.call(Method::PATCH, &path, Some(("application/merge-patch+json", change))).await.map(drop)
    }

    /// Applies the fields of `object` to the one at `path` as `manager` (server-side apply); it need not be there.
    /// `force` takes fields over that another manager has. The object as it is now.
    pub async fn apply(&self, path: &str, object: &Value, manager: &str, force: bool) -> Result<Value, ApiError> {
        let path = format!("{path}?fieldManager={manager}&force={force}&fieldValidation=Strict");
        let bytes = self.call(Method::PATCH, &path, Some(("application/apply-patch+yaml", object))).await?;
        json(Method::PATCH, &path, &bytes)
    }

    /// Removes the object at `path`; one that is not there is as good.
    pub async fn delete(&self, path: &str) -> Result<(), ApiError> {
        match self.call(Method::DELETE, path, None).await {
            Ok(_) | Err(ApiError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn call(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Vec<u8>, ApiError> {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.server));
        if let Some((content_type, object)) = body {
            request = request.header("content-type", content_type).body(object.to_string());
        }
        let transport = |source| ApiError::Transport { method: method.clone(), path: path.to_owned(), source };
        let response = request.send().await.map_err(transport)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(transport)?.to_vec();
        if status.is_success() {
            return Ok(bytes);
        }
        Err(ApiError::Refused { method, path: path.to_owned(), status, message: message_of(&bytes) })
    }
}

fn builder(kubeconfig: &ParsedKubeconfig) -> Result<reqwest::ClientBuilder, ApiError> {
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls_config(kubeconfig)?).no_proxy();
    Ok(builder.timeout(PATIENCE).user_agent(concat!("foothold-agent/", env!("CARGO_PKG_VERSION"))))
}

/// What a `Status` object says, or the text as it is.
fn message_of(bytes: &[u8]) -> String {
    let status: Option<Value> = serde_json::from_slice(bytes).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str()).map(str::to_owned);
    message.unwrap_or_else(|| String::from_utf8_lossy(bytes).trim().to_owned())
}

fn json(method: Method, path: &str, bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::Refused {
        method,
        path: path.to_owned(),
        status: StatusCode::OK,
        message: format!("the answer is no JSON: {error}"),
    })
}

fn tls_config(kubeconfig: &ParsedKubeconfig) -> Result<rustls::ClientConfig, ApiError> {
    let bad = |error: &dyn std::fmt::Display| ApiError::Credentials(error.to_string());
    let chain = |pem: &str| -> Result<Vec<CertificateDer<'static>>, ApiError> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(|error| bad(&error))
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in chain(&kubeconfig.ca)? {
        roots.add(certificate).map_err(|error| bad(&error))?;
    }
    let key = PrivateKeyDer::from_pem_slice(kubeconfig.key.as_bytes()).map_err(|error| bad(&error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&error))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain(&kubeconfig.certificate)?, key)
        .map_err(|error| bad(&error))
}

#[cfg(test)]
mod tests {
    use super::message_of;

    #[test]
    fn refusals_carry_the_servers_words() {
        assert_eq!(
            message_of(br#"{"kind":"Status","message":"namespaces \"x\" not found"}"#),
            "namespaces \"x\" not found"
        );
        assert_eq!(message_of(b"[-]poststarthook failed\n"), "[-]poststarthook failed");
    }
}
