//! Whose claims the hosts of a namespace serve.

use std::collections::BTreeMap;

use agent_api::metal3::{HostClaimNamespaces, HostDeployPolicy};
use regex::Regex;

/// Whether a policy admits the claims of a namespace that has these labels. All of its conditions must hold; one without
/// `hostClaimNamespaces` admits nobody.
///
/// # Errors
/// What is wrong with the regular expression. Such a policy admits nobody.
pub fn admits(policy: &HostDeployPolicy, namespace: &str, labels: &BTreeMap<String, String>) -> Result<bool, String> {
    let Some(admitted) = &policy.spec.host_claim_namespaces else { return Ok(false) };
    if admitted.names.as_ref().is_some_and(|names| !names.iter().any(|name| name == namespace)) {
        return Ok(false);
    }
    if pattern(admitted)?.is_some_and(|pattern| !pattern.is_match(namespace)) {
        return Ok(false);
    }
    Ok(admitted.has_labels.iter().flatten().all(|wanted| {
        let any = wanted.value.as_deref().unwrap_or_default().is_empty();
        labels.get(&wanted.name).is_some_and(|value| any || Some(value) == wanted.value.as_ref())
    }))
}

/// Why a policy admits nobody, though it means to.
pub fn problem(policy: &HostDeployPolicy) -> Option<String> {
    policy.spec.host_claim_namespaces.as_ref().and_then(|admitted| pattern(admitted).err())
}

fn pattern(admitted: &HostClaimNamespaces) -> Result<Option<Regex>, String> {
    let Some(pattern) = admitted.name_matches.as_ref().filter(|pattern| !pattern.is_empty()) else { return Ok(None) };
    Regex::new(pattern).map(Some).map_err(|error| format!("`nameMatches` is no regular expression: {error}"))
}

/// Whether a policy asks for labels of the namespace.
pub fn asks_for_labels(policy: &HostDeployPolicy) -> bool {
    policy.spec.host_claim_namespaces.as_ref().is_some_and(|admitted| admitted.has_labels.iter().flatten().count() > 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agent_api::metal3::{HostDeployPolicy, HostDeployPolicySpec};
    use serde_json::{Value, json};

    use super::admits;

    fn admitted(spec: Value) -> Result<bool, String> {
        let spec: HostDeployPolicySpec = serde_json::from_value(spec).expect("a policy");
        let labels = BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
        admits(&HostDeployPolicy::new("p", spec), "tenant-a", &labels)
    }

    #[test]
    fn all_conditions_of_a_policy_must_hold() {
        for (namespaces, admits) in [
            (json!({}), true),
            (json!({"names": ["tenant-a", "b"]}), true),
            (json!({"names": ["b"]}), false),
            (json!({"names": []}), false),
            (json!({"nameMatches": "^tenant-"}), true),
            // Anywhere in the name, unless it says where.
            (json!({"nameMatches": "nant"}), true),
            (json!({"nameMatches": "^nant$"}), false),
            (json!({"hasLabels": [{"name": "tier"}]}), true),
            (json!({"hasLabels": [{"name": "tier", "value": "gold"}]}), true),
            (json!({"hasLabels": [{"name": "tier", "value": "iron"}]}), false),
            (json!({"hasLabels": [{"name": "tier"}, {"name": "hosts"}]}), false),
            (json!({"names": ["tenant-a"], "nameMatches": "^b"}), false),
        ] {
            assert_eq!(admitted(json!({"hostClaimNamespaces": namespaces})), Ok(admits), "{namespaces}");
        }
    }

    #[test]
    fn a_policy_that_says_nothing_or_nonsense_admits_nobody() {
        assert_eq!(admitted(json!({})), Ok(false));
        let told = admitted(json!({"hostClaimNamespaces": {"nameMatches": "("}})).expect_err("nonsense");
        assert!(told.contains("no regular expression"), "{told}");
    }
}
