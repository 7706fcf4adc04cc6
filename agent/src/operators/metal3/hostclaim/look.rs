//! What is known of a claim.

use std::collections::{BTreeMap, BTreeSet};

use agent_api::metal3::{BareMetalHost, HostClaim};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};

use super::controller::Controller;
use super::{is_of, policy};
use crate::operators::kit::{Object as _, ObjectError, doing};

impl Controller {
    /// The host that the status names, when it names the claim too.
    pub(super) async fn host(&self, claim: &HostClaim) -> Result<Option<BareMetalHost>, ObjectError> {
        let Some(at) = claim.status.as_ref().and_then(|status| status.bare_metal_host.as_ref()) else {
            return Ok(None);
        };
        let host = self.common.host(&at.namespace, &at.name).await?;
        Ok(host.filter(|host| is_of(host, claim)))
    }

    /// Namespaces whose hosts the claim may have.
    pub(super) async fn namespaces(&self, claim: &HostClaim) -> Result<BTreeSet<String>, ObjectError> {
        let (own, _) = claim.key();
        let policies = self.policies.state();
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        if policies.iter().any(|policy| policy::asks_for_labels(policy)) {
            let api = Api::<Namespace>::all(self.common.base.client.clone());
            let found = api.get_opt(&own).await.map_err(doing(format!("reading Namespace `{own}`")))?;
            labels = found.map(|namespace| namespace.labels().clone()).unwrap_or_default();
        }
        let mut all = BTreeSet::from([own.clone()]);
        for policy in &policies {
            // What is wrong with it was told when it was changed.
            if policy::admits(policy, &own, &labels) == Ok(true) {
                all.insert(policy.key().0);
            }
        }
        Ok(all)
    }
}
