//! A webhook that refuses objects before they are stored.
//!
//! ```text
//! API server ─► https://ADDRESS/validate-GROUP-VERSION-KIND ─► answer (pure) ─► the rule's check
//!     ▲
//!     └── ValidatingWebhookConfiguration: where to ask, and the certificate that answers there
//! ```
//!
//! Key and certificate live as long as the process: the next one that starts puts its own into the configuration before
//! anything else. Nothing that is written while nobody answers is taken unseen (`failurePolicy: Fail`). What becomes of the
//! configuration after that is [`registration`]'s.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::registration::{self, Owner, Registration};
use crate::door::server;

/// The most that an API server takes of an object, and it twice, with what is around them.
const BODY: usize = 8 * 1024 * 1024;

/// What an operator's webhook is called, where it answers, and for which namespace.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// Name of the configuration; with a namespace of its own, that is added.
    pub name: &'static str,
    /// Common name of its certificate.
    pub common_name: &'static str,
    /// Field manager of the configuration.
    pub manager: &'static str,
    /// Address on which the API server reaches it.
    pub address: SocketAddr,
    /// Namespace whose objects are checked; all when `None`.
    pub namespace: Option<String>,
    /// ClusterRole with which the configuration goes, where it is not a namespace's.
    pub owner: Option<String>,
}

impl Webhook {
    fn owner(&self) -> Option<Owner> {
        let role = || self.owner.clone().map(Owner::ClusterRole);
        self.namespace.clone().map(Owner::Namespace).or_else(role)
    }
}

/// What is asked about a kind. `C`: what else a check has to know.
pub struct Rule<C: 'static> {
    /// API group of the kind.
    pub group: &'static str,
    /// Version of the group.
    pub version: &'static str,
    /// Name of one, in lower case: that of the resource without the `s`.
    pub singular: &'static str,
    /// When it is asked.
    pub operations: &'static [&'static str],
    /// Gives why an object is refused, in words; nothing when it is admitted.
    pub check: fn(&Request, &C) -> Result<Option<String>, serde_json::Error>,
}

impl<C> Rule<C> {
    /// Where the API server asks: the path that Go's controller-runtime gives it.
    pub fn path(&self) -> String {
        format!("/validate-{}-{}-{}", self.group.replace('.', "-"), self.version, self.singular)
    }
}

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// It is new.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
}

#[derive(Debug, Deserialize)]
struct GroupVersionKind {
    kind: String,
}

/// `AdmissionReview.request` (admission.k8s.io/v1), as far as rules need it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    uid: String,
    kind: GroupVersionKind,
    /// What is done.
    pub operation: Operation,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
}

impl Request {
    /// The object as it shall be.
    ///
    /// # Errors
    /// It is not of this type.
    pub fn new_object<K: DeserializeOwned>(&self) -> Result<K, serde_json::Error> {
        K::deserialize(&self.object)
    }

    /// The object as it was.
    ///
    /// # Errors
    /// It is not of this type.
    pub fn old_object<K: DeserializeOwned>(&self) -> Result<K, serde_json::Error> {
        K::deserialize(&self.old_object)
    }
}

/// The answer to a review.
///
/// # Errors
/// What was sent is no review, in words.
pub fn answer<C>(body: &str, rules: &[Rule<C>], context: &C) -> Result<Value, String> {
    #[derive(Deserialize)]
    struct Review {
        request: Request,
    }
    let Review { request } =
        serde_json::from_str(body).map_err(|error| format!("this is no AdmissionReview: {error}"))?;
    let singular = request.kind.kind.to_ascii_lowercase();
    let Some(rule) = rules.iter().find(|rule| rule.singular == singular) else {
        return Err(format!("kind `{}` has no rules", request.kind.kind));
    };
    let refusal = (rule.check)(&request, context).unwrap_or_else(|error| Some(format!("cannot be read: {error}")));
    let mut response = json!({"uid": request.uid, "allowed": refusal.is_none()});
    if let Some(message) = refusal {
        response["status"] = json!({"code": 403, "reason": "Forbidden", "message": message});
    }
    Ok(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// Starts it: the receiver turns true once the API server knows that it is to ask here. Needs a tokio runtime.
///
/// # Errors
/// No certificate can be made.
pub fn start<C: Clone + Send + Sync + 'static>(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    webhook: &Webhook,
    (rules, context): (&'static [Rule<C>], C),
    client: Client,
    stop: &CancellationToken,
) -> anyhow::Result<watch::Receiver<bool>> {
    let (key, authority) = certificate(webhook).context("making the webhook's certificate")?;
    let review = async move |State(context): State<C>, Path(path): Path<String>, body: String| {
        if !rules.iter().any(|rule| rule.path() == format!("/{path}")) {
            return (StatusCode::NOT_FOUND, format!("`/{path}` checks nothing"));
        }
        match answer(&body, rules, &context) {
            Ok(answer) => (StatusCode::OK, answer.to_string()),
            Err(problem) => (StatusCode::BAD_REQUEST, problem),
        }
    };
    let router = Router::new().route("/{*path}", post(review)).layer(DefaultBodyLimit::max(BODY)).with_state(context);
    let tls = server::tls(Arc::new(SingleCertAndKey::from(key)))?;
    let bound = server::start(tasks, &[webhook.address], router, tls, Arc::default(), stop);
    let (told, known) = watch::channel(false);
    let registration = Registration {
        manager: webhook.manager,
        own: Some(configuration(webhook, rules, &authority)),
        bound: bound.first().copied(),
        owner: webhook.owner(),
        pace: registration::Pace::default(),
    };
    keep(tasks, registration, client, told, stop);
    Ok(known)
}

/// Where the controller has no webhook: what one before it left behind is removed. Needs a tokio runtime.
pub fn start_without(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    manager: &'static str,
    client: Client,
    stop: &CancellationToken,
) {
    let pace = registration::Pace::default();
    let registration = Registration { manager, own: None, bound: None, owner: None, pace };
    keep(tasks, registration, client, watch::channel(false).0, stop);
}

fn keep(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    registration: Registration,
    client: Client,
    told: watch::Sender<bool>,
    stop: &CancellationToken,
) {
    let stop = stop.clone();
    tasks.spawn(async move {
        stop.run_until_cancelled(registration.keep(client, told)).await;
        Ok(())
    });
}

/// A key, and a certificate for the address that is its own authority and never ends: it is known to nobody but the API
/// server, and forgotten with the process.
fn certificate(webhook: &Webhook) -> anyhow::Result<(CertifiedKey, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([webhook.address.ip().to_string()])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, webhook.common_name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Whatever the clock says.
    (params.not_before, params.not_after) = (date_time_ymd(1970, 1, 1), date_time_ymd(9999, 12, 31));
    let certificate = params.self_signed(&key)?;
    let private = any_supported_type(&PrivateKeyDer::Pkcs8(key.serialize_der().into()))?;
    Ok((CertifiedKey::new(vec![certificate.der().clone()], private), certificate.pem()))
}

/// The configuration, and its name.
pub fn configuration<C>(webhook: &Webhook, rules: &[Rule<C>], authority: &str) -> (String, Value) {
    let (own, name) = (webhook.namespace.as_ref(), webhook.name);
    let name = own.map_or_else(|| name.to_owned(), |namespace| format!("{name}-{namespace}"));
    let selector = own.map_or_else(|| json!({}), |it| json!({"matchLabels": {"kubernetes.io/metadata.name": it}}));
    let bundle = BASE64_STANDARD.encode(authority);
    let webhooks: Vec<Value> = rules
        .iter()
        .map(|rule| {
            json!({
                "name": format!("{}.{}", rule.singular, rule.group),
                "clientConfig": {"url": format!("https://{}{}", webhook.address, rule.path()), "caBundle": bundle},
                "rules": [{"apiGroups": [rule.group], "apiVersions": [rule.version], "operations": rule.operations,
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
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": webhook.manager}}, "webhooks": webhooks});
    (name, object)
}

#[cfg(test)]
mod tests {
    use super::{Webhook, certificate};

    #[test]
    fn each_start_has_a_certificate_of_its_own() {
        let address = "[::1]:9443".parse().expect("an address");
        let webhook = Webhook { name: "n", common_name: "c", manager: "m", address, namespace: None, owner: None };
        let ((one, text), (other, _)) = (certificate(&webhook).expect("one"), certificate(&webhook).expect("another"));
        assert!(one.keys_match().is_ok() && one.cert != other.cert);
        assert!(text.starts_with("-----BEGIN CERTIFICATE-----"));
    }
}
