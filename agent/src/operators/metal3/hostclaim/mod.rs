//! `HostClaim`: a wish for some host, by those who may not see the hosts; `HostDeployPolicy`: whose wishes the hosts of a
//! namespace serve.
//!
//! ```text
//! decide   HostSelector, policies, hosts ──► an available host       policy   namespaces that a policy admits
//! wishes   changes of the host             selector  labels          secrets  copies in the host's namespace
//! look     the claim's host                act       finds a host, keeps it, gives it back     tell   the status
//!
//! finalizer ─► a host is chosen ─► host.spec.consumerRef ─► status.bareMetalHost ─► host.spec is kept as the claim says
//!              (its resourceVersion must be the one that was seen: no two claims get it)          │ (deleted)
//!              finalizer goes ◄─ consumerRef goes ◄─ copies go ◄─ the host has no image ◄─ image, data, power go
//! ```
//!
//! `spec.consumerRef` of the host is what counts: the claim's status, which its owner may write, is only where to look.
//! A host of another namespace is had only where a policy there admits the claim's namespace, and Secrets that the claim
//! names are copied there; those of its own namespace are used as they are.

mod act;
mod controller;
mod decide;
mod look;
mod policy;
mod secrets;
mod selector;
mod tell;
mod wishes;

pub use controller::run;

use agent_api::metal3::{BareMetalHost, HostClaim, ObjectReference};

use crate::operators::kit::Object as _;

/// Kind of a claim as a host names it.
const KIND: &str = "HostClaim";
/// Group and version of a claim as a host names it.
const API_VERSION: &str = "metal3.io/v1alpha1";

/// How a host names a claim.
fn reference(claim: &HostClaim) -> ObjectReference {
    let (namespace, name) = claim.key();
    ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some(KIND.to_owned()),
        namespace: Some(namespace),
        name: Some(name),
        ..ObjectReference::default()
    }
}

/// The claim that a host names, as namespace and name.
fn consumer(host: &BareMetalHost) -> Option<(&str, &str)> {
    let by = host.spec.consumer_ref.as_ref()?;
    let ours = by.kind.as_deref() == Some(KIND)
        && by.api_version.as_deref().is_some_and(|version| version.split('/').next() == Some("metal3.io"));
    if ours { Some((by.namespace.as_deref()?, by.name.as_deref()?)) } else { None }
}

/// Whether a host is the claim's.
fn is_of(host: &BareMetalHost, claim: &HostClaim) -> bool {
    let (namespace, name) = claim.key();
    consumer(host) == Some((&namespace, &name))
}
