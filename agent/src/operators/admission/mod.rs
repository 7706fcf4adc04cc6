//! The webhook that refuses objects of metal3's group in the words of its operator.
//!
//! ```text
//! API server ─► https://ADDRESS/validate-metal3-io-v1alpha1-KIND ─► review (pure) ─► agent_api::metal3::admission
//!     ▲
//!     └── ValidatingWebhookConfiguration: where to ask, and the certificate that answers there
//! ```
//!
//! Key and certificate live as long as the process: whoever starts next says so in the configuration before anything
//! else. Nothing that is written while nobody answers is taken unseen (`failurePolicy: Fail`), as with metal3.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_api::metal3::BareMetalHost;
use anyhow::Context as _;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::Store;
use kube::{Api, Client};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::door::server;

mod review;

/// Name of the configuration, as metal3's manifests have it.
const NAME: &str = "baremetal-operator-validating-webhook-configuration";
/// Whose fields the configuration's are.
const MANAGER: &str = "foothold-baremetalhost";
/// The most that an API server takes of an object, and it twice, with what is around them.
const BODY: usize = 8 * 1024 * 1024;
/// Between two tries to tell the API server.
const AGAIN: Duration = Duration::from_secs(2);

/// Where it answers, and for whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address on which the API server reaches it.
    pub address: SocketAddr,
    /// Namespace whose objects are checked; all when `None`.
    pub namespace: Option<String>,
}

/// Starts it: the receiver turns true once the API server knows that it is to ask here. Needs a tokio runtime.
///
/// # Errors
/// No certificate can be made.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    settings: &Settings,
    client: Client,
    hosts: Store<BareMetalHost>,
    stop: &CancellationToken,
) -> anyhow::Result<watch::Receiver<bool>> {
    let (key, authority) = certificate(settings.address).context("making the webhook's certificate")?;
    let router = Router::new().route("/{*path}", post(answer)).layer(DefaultBodyLimit::max(BODY)).with_state(hosts);
    let tls = server::tls(Arc::new(SingleCertAndKey::from(key)))?;
    server::start(tasks, &[settings.address], router, tls, stop);
    let (told, known) = watch::channel(false);
    let (name, object) = configuration(settings, &authority);
    let stop = stop.clone();
    tasks.spawn(async move {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client);
        let tell = async {
            let apply = PatchParams::apply(MANAGER).force();
            while let Err(error) = api.patch(&name, &apply, &Patch::Apply(&object)).await {
                log::warn!("the API server does not know yet that it is to ask what is admitted: {error}");
                tokio::time::sleep(AGAIN).await;
            }
            let _ = told.send(true);
            // The receiver tells an ended task by its closed channel.
            std::future::pending::<()>().await;
        };
        stop.run_until_cancelled(tell).await;
        Ok(())
    });
    Ok(known)
}

async fn answer(
    State(hosts): State<Store<BareMetalHost>>,
    Path(path): Path<String>,
    body: String,
) -> (StatusCode, String) {
    if !review::RULES.iter().any(|rule| rule.path() == format!("/{path}")) {
        return (StatusCode::NOT_FOUND, format!("`/{path}` checks nothing"));
    }
    let referring = || {
        hosts.state().iter().filter(|host| host.spec.network_interfaces.is_some()).map(|it| (**it).clone()).collect()
    };
    match review::answer(&body, referring) {
        Ok(answer) => (StatusCode::OK, answer.to_string()),
        Err(problem) => (StatusCode::BAD_REQUEST, problem),
    }
}

/// A key, and a certificate for the address that is its own authority and never ends: it is known to nobody but the API
/// server, and forgotten with the process.
fn certificate(address: SocketAddr) -> anyhow::Result<(CertifiedKey, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([address.ip().to_string()])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "baremetal-operator-webhook");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Whatever the clock says.
    (params.not_before, params.not_after) = (date_time_ymd(1970, 1, 1), date_time_ymd(9999, 12, 31));
    let certificate = params.self_signed(&key)?;
    let private = any_supported_type(&PrivateKeyDer::Pkcs8(key.serialize_der().into()))?;
    Ok((CertifiedKey::new(vec![certificate.der().clone()], private), certificate.pem()))
}

/// Its name, and what the API server is told.
fn configuration(settings: &Settings, authority: &str) -> (String, Value) {
    use base64::Engine as _;

    let own = settings.namespace.as_ref();
    let name = own.map_or_else(|| NAME.to_owned(), |namespace| format!("{NAME}-{namespace}"));
    let selector = own.map_or_else(|| json!({}), |it| json!({"matchLabels": {"kubernetes.io/metadata.name": it}}));
    let bundle = base64::prelude::BASE64_STANDARD.encode(authority);
    let webhooks: Vec<Value> = review::RULES
        .iter()
        .map(|rule| {
            json!({
                "name": format!("{}.metal3.io", rule.singular),
                "clientConfig": {"url": format!("https://{}{}", settings.address, rule.path()), "caBundle": bundle},
                "rules": [{"apiGroups": ["metal3.io"], "apiVersions": ["v1alpha1"], "operations": rule.operations,
                    "resources": [format!("{}s", rule.singular)], "scope": "Namespaced"}],
                "namespaceSelector": selector,
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "sideEffects": "None",
                "timeoutSeconds": 10,
            })
        })
        .collect();
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": webhooks});
    (name, object)
}

#[cfg(test)]
mod tests {
    use super::{Settings, certificate, configuration};

    #[test]
    fn the_api_server_is_told_where_to_ask_and_about_what() {
        let address = "127.0.0.1:9443".parse().expect("an address");
        let (name, object) = configuration(&Settings { address, namespace: None }, "PEM");
        insta::assert_snapshot!(serde_json::to_string_pretty(&object).expect("JSON"));
        assert_eq!(name, "baremetal-operator-validating-webhook-configuration");
        let (name, object) = configuration(&Settings { address, namespace: Some("metal3".into()) }, "PEM");
        assert!(name.ends_with("-metal3"));
        let selector = &object["webhooks"][0]["namespaceSelector"]["matchLabels"];
        assert_eq!(selector["kubernetes.io/metadata.name"], "metal3");
    }

    #[test]
    fn each_start_has_a_certificate_of_its_own() {
        let address = "[::1]:9443".parse().expect("an address");
        let ((one, text), (other, _)) = (certificate(address).expect("one"), certificate(address).expect("another"));
        assert!(one.keys_match().is_ok() && one.cert != other.cert);
        assert!(text.starts_with("-----BEGIN CERTIFICATE-----"));
    }
}
