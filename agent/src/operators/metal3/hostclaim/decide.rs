//! Which host a claim gets.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use agent_api::metal3::annotations::{DETACHED, PAUSED};
use agent_api::metal3::{BareMetalHost, BareMetalHostStatus, ConditionStatus, HostClaim, ProvisioningState};
use agent_api::sip::cluster::cluster_of;
use kube::ResourceExt as _;

use super::{is_of, selector};
use crate::operators::kit::Object as _;

/// Label of hosts that `spec.failureDomain` of a claim prefers.
const FAILURE_DOMAIN: &str = "infrastructure.cluster.x-k8s.io/failure-domain";

/// Whether a host may be given to somebody.
pub fn is_free(host: &BareMetalHost) -> bool {
    let available = matches!(host.state(), ProvisioningState::Available | ProvisioningState::Ready);
    let fine = host.status.as_ref().is_some_and(|status| status.error_message.is_empty() && !is_lost(status));
    let used = host.spec.consumer_ref.is_some()
        || !host.spec.image_url().is_empty()
        || !host.spec.custom_method().is_empty()
        || host.spec.externally_provisioned()
        // A SIPCluster chose it, which claims by labels alone.
        || cluster_of(host.labels()).is_some();
    let left_alone = [PAUSED, DETACHED].iter().any(|name| host.annotation(name).is_some());
    available && fine && !used && !left_alone && !host.leaves()
}

/// Whether its BMC does not answer any more: nothing can be written to it.
fn is_lost(status: &BareMetalHostStatus) -> bool {
    let mut all = status.conditions.iter().flatten();
    all.any(|it| it.kind == "Manageable" && it.status == ConditionStatus::False)
}

/// The host for a claim, in one of these namespaces: the one that it has already, else any that is free and as asked for,
/// best in the failure domain. Claims that choose at the same time choose different ones where they can.
///
/// # Errors
/// What is wrong with the selector.
pub fn choose(
    claim: &HostClaim,
    hosts: &[Arc<BareMetalHost>],
    namespaces: &BTreeSet<String>,
) -> Result<Option<Arc<BareMetalHost>>, String> {
    if let Some(own) = hosts.iter().find(|host| is_of(host, claim)) {
        return Ok(Some(own.clone()));
    }
    let selector = claim.spec.host_selector.as_ref();
    let only = selector.and_then(|selector| selector.in_namespace.as_deref()).filter(|only| !only.is_empty());
    let mut fitting = Vec::new();
    for host in hosts {
        let (namespace, _) = host.key();
        let here = only.is_none_or(|only| only == namespace) && namespaces.contains(&namespace);
        // A wrong expression is reported even where no host is free.
        if selector::matches(selector, host.labels())? && here && is_free(host) {
            fitting.push(host.clone());
        }
    }
    if let Some(domain) = claim.spec.failure_domain.as_ref().filter(|domain| !domain.is_empty()) {
        let inside = |host: &Arc<BareMetalHost>| host.labels().get(FAILURE_DOMAIN) == Some(domain);
        if fitting.iter().any(inside) {
            fitting.retain(inside);
        }
    }
    fitting.sort_by_key(|host| host.key());
    let at = spread(claim, fitting.len());
    Ok(at.and_then(|at| fitting.into_iter().nth(at)))
}

/// Anything below `count`, the same for a claim each time.
fn spread(claim: &HostClaim, count: usize) -> Option<usize> {
    let mut hasher = DefaultHasher::new();
    claim.metadata.uid.hash(&mut hasher);
    let spread = usize::try_from(hasher.finish() & 0xffff_ffff).unwrap_or_default();
    spread.checked_rem(count)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use agent_api::metal3::{BareMetalHost, HostClaim};
    use serde_json::{Value, json};

    use super::{choose, is_free};

    fn host(name: &str, change: &Value) -> Arc<BareMetalHost> {
        let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": name, "namespace": "site", "labels": {"size": "big"}, "annotations": {}},
            "spec": {"online": true},
            "status": {"operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true,
                "provisioning": {"state": "available", "ID": "u"}}});
        for (path, value) in change.as_object().into_iter().flatten() {
            let (parent, field) = path.rsplit_once('/').expect("a path");
            object.pointer_mut(parent).expect("a parent")[field] = value.clone();
        }
        Arc::new(serde_json::from_value(object).expect("a host"))
    }

    fn claim(spec: Value) -> HostClaim {
        let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim",
            "metadata": {"name": "c", "namespace": "tenant", "uid": "1"}});
        object["spec"] = spec;
        serde_json::from_value(object).expect("a claim")
    }

    fn consumer(namespace: &str) -> Value {
        json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim", "namespace": namespace, "name": "c"})
    }

    fn name(claim: &HostClaim, hosts: &[Arc<BareMetalHost>], namespaces: &[&str]) -> Option<String> {
        let namespaces: BTreeSet<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
        choose(claim, hosts, &namespaces).expect("a selector").and_then(|host| host.metadata.name.clone())
    }

    #[test]
    fn only_a_host_that_nobody_uses_is_free() {
        assert!(is_free(&host("a", &json!({}))));
        for (path, value) in [
            ("/status/provisioning/state", json!("provisioned")),
            ("/status/errorMessage", json!("broken")),
            (
                "/status/conditions",
                json!([{"type": "Manageable", "status": "False", "reason": "PowerFailure", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]),
            ),
            ("/spec/consumerRef", json!({"kind": "Metal3Machine", "name": "m"})),
            ("/spec/image", json!({"url": "http://x"})),
            ("/spec/externallyProvisioned", json!(true)),
            (
                "/metadata/labels",
                json!({"sip.airshipit.org/cluster-namespace": "a", "sip.airshipit.org/cluster-name": "t"}),
            ),
            ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            ("/metadata/annotations", json!({"baremetalhost.metal3.io/paused": ""})),
            ("/metadata/annotations", json!({"baremetalhost.metal3.io/detached": ""})),
        ] {
            assert!(!is_free(&host("a", &json!({path: value}))), "{path}");
        }
    }

    #[test]
    fn a_host_is_chosen_by_namespace_and_labels() {
        let hosts = [host("a", &json!({"/metadata/labels": {"size": "small"}})), host("b", &json!({}))];
        let big = claim(json!({"poweredOn": true, "hostSelector": {"matchLabels": {"size": "big"}}}));
        assert_eq!(name(&big, &hosts, &["site"]).as_deref(), Some("b"));
        assert_eq!(name(&big, &hosts, &["tenant"]), None, "no policy");
        let elsewhere = claim(json!({"poweredOn": true, "hostSelector": {"inNamespace": "other"}}));
        assert_eq!(name(&elsewhere, &hosts, &["site", "other"]), None);
        let wrong = claim(json!({"poweredOn": true,
            "hostSelector": {"matchExpressions": [{"key": "size", "operator": "~", "values": []}]}}));
        assert!(choose(&wrong, &hosts, &BTreeSet::from(["site".to_owned()])).is_err());
    }

    #[test]
    fn the_host_that_names_the_claim_is_its_host_whatever_else() {
        let own = host("z", &json!({"/spec/consumerRef": consumer("tenant")}));
        let other = host("y", &json!({"/spec/consumerRef": consumer("another")}));
        let hosts = [host("a", &json!({})), other.clone(), own];
        let any = claim(json!({"poweredOn": true}));
        assert_eq!(name(&any, &hosts, &[]).as_deref(), Some("z"));
        assert_eq!(name(&any, &[other], &["site"]), None);
    }

    #[test]
    fn a_failure_domain_is_preferred_and_not_demanded() {
        let domain = "infrastructure.cluster.x-k8s.io/failure-domain";
        let hosts = [host("a", &json!({})), host("b", &json!({"/metadata/labels": {domain: "rack1"}}))];
        let wish = |domain: &str| claim(json!({"poweredOn": true, "failureDomain": domain}));
        assert_eq!(name(&wish("rack1"), &hosts, &["site"]).as_deref(), Some("b"));
        assert!(name(&wish("rack2"), &hosts, &["site"]).is_some());
    }
}
