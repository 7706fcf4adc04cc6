//! `HostClaim`: a wish for some host, by those who may not see the hosts.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Condition, NamespacedName, ObjectReference, SecretReference, Time};
use super::image::{CustomDeploy, Image};

/// Held until the host is given back.
pub const FINALIZER: &str = "metal3.io/hostclaim";
/// Condition: there is a host.
pub const ASSOCIATED: &str = "Associated";
/// Condition: the host was told what the claim says.
pub const SYNCHRONIZED: &str = "Synchronized";

/// A condition on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostSelectorRequirement {
    /// The label.
    pub key: String,
    /// `=`, `==`, `!=`, `in`, `notin`, `exists` or `!`.
    pub operator: String,
    /// Values to compare with.
    pub values: Vec<String>,
}

/// Which hosts will do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostSelector {
    /// Labels that the host must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Conditions on its labels that must hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_expressions: Option<Vec<HostSelectorRequirement>>,
    /// The only namespace to look in; all that allow it when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_namespace: Option<String>,
}

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "HostClaim",
    plural = "hostclaims",
    status = "HostClaimStatus",
    doc = "A wish for some host."
)]
#[serde(rename_all = "camelCase")]
pub struct HostClaimSpec {
    /// Whether the host shall be powered on.
    pub powered_on: bool,
    /// What is written to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Secret with user data for the config drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretReference>,
    /// Secret with network data for the config drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretReference>,
    /// Secret with metadata for the config drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretReference>,
    /// A deploy procedure of one's own, instead of `image`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// Which hosts will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_selector: Option<HostSelector>,
    /// Who uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<ObjectReference>,
    /// Preferred value of the label `infrastructure.cluster.x-k8s.io/failure-domain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostClaimStatus {
    /// When this was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// `Associated` and `Synchronized`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// The host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_metal_host: Option<NamespacedName>,
    /// What was found in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_data: Option<NamespacedName>,
    /// Whether it is powered on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub powered_on: Option<bool>,
}
