//! `HostDeployPolicy`: who may claim the hosts of a namespace.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameValuePair {
    /// Its name.
    pub name: String,
    /// Its value; any when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Namespaces whose claims may bind hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostClaimNamespaces {
    /// By name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// By a regular expression, which may match anywhere: `^prod$` for exactly `prod`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_matches: Option<String>,
    /// By labels, all of which must be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_labels: Option<Vec<NameValuePair>>,
}

/// Who.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "HostDeployPolicy",
    plural = "hostdeploypolicies",
    status = "HostDeployPolicyStatus",
    doc = "Who may claim the hosts of this namespace."
)]
#[serde(rename_all = "camelCase")]
pub struct HostDeployPolicySpec {
    /// Whose claims may bind them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_claim_namespaces: Option<HostClaimNamespaces>,
}

/// Nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostDeployPolicyStatus {}
