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
    ObjectReference::of(API_VERSION, KIND, namespace, name)
}

/// The claim that a host names, as namespace and name.
fn consumer(host: &BareMetalHost) -> Option<(&str, &str)> {
    host.spec.consumer_ref.as_ref()?.names(API_VERSION, KIND)
}

/// Whether a host is the claim's.
fn is_of(host: &BareMetalHost, claim: &HostClaim) -> bool {
    let (namespace, name) = claim.key();
    consumer(host) == Some((&namespace, &name))
}
