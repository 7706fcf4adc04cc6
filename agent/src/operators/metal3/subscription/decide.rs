//! What is done for a subscription. Pure.

use agent_api::metal3::BmcEventSubscription;
use agent_api::metal3::bmc_event_subscription::FINALIZER;

use super::look::Host;
use crate::operators::kit::Object as _;

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until something changes.
    Rest,
    /// Nothing, until Ironic knows the host.
    Wait,
    /// The finalizer is added.
    Hold,
    /// The status says why there is no subscription.
    Tell(String),
    /// It is made, for the node of this UUID.
    Create(String),
    /// It is removed, from the node of this UUID.
    Remove {
        /// The node.
        node: String,
        /// The BMC's name of it.
        id: String,
    },
    /// The finalizer goes.
    LetGo,
}

/// What is to be done now.
pub fn decide(subscription: &BmcEventSubscription, host: &Host) -> Step {
    let held = subscription.held_by(FINALIZER);
    let id = subscription.status.as_ref().and_then(|status| status.subscription_id.clone());
    let id = id.filter(|id| !id.is_empty());
    if subscription.leaves() {
        return match (host, id) {
            _ if !held => Step::Rest,
            (Host::Paused, Some(_)) => Step::Rest,
            (Host::Unregistered, Some(_)) => Step::Wait,
            (Host::Node(node), Some(id)) => Step::Remove { node: node.clone(), id },
            (Host::Gone | Host::Detached | Host::Unable(_), _) | (_, None) => Step::LetGo,
        };
    }
    let name = subscription.spec.host_name.as_deref().unwrap_or_default();
    match host {
        Host::Gone if name.is_empty() => Step::Tell("`spec.hostName` is empty".to_owned()),
        Host::Gone => Step::Tell(format!("the host `{name}` does not exist")),
        Host::Paused => Step::Rest,
        _ if !held => Step::Hold,
        _ if id.is_some() => Step::Rest,
        Host::Detached => Step::Tell(format!("the host `{name}` is detached")),
        Host::Unable(why) => Step::Tell(why.clone()),
        Host::Unregistered => Step::Wait,
        Host::Node(node) => Step::Create(node.clone()),
    }
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::{BareMetalHost, BmcEventSubscription};
    use serde_json::{Value, json};

    use super::super::look::known;
    use super::{Host, Step, decide};

    fn subscription(made: bool, held: bool, leaves: bool) -> BmcEventSubscription {
        let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BMCEventSubscription",
            "metadata": {"name": "s", "namespace": "n"}, "spec": {"hostName": "a", "destination": "http://x/"}});
        if made {
            object["status"] = json!({"subscriptionID": "7"});
        }
        if held {
            object["metadata"]["finalizers"] = json!(["bmceventsubscription.metal3.io"]);
        }
        if leaves {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(object).expect("a subscription")
    }

    fn host(address: &str, annotations: Value) -> BareMetalHost {
        let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {"online": true, "bmc": {"address": address, "credentialsName": "c"}}});
        object["metadata"]["annotations"] = annotations;
        serde_json::from_value(object).expect("a host")
    }

    #[test]
    fn each_state_has_its_step() {
        let node = || Host::Node("u".to_owned());
        let remove = || Step::Remove { node: "u".to_owned(), id: "7".to_owned() };
        let gone = "the host `a` does not exist".to_owned();
        let detached = "the host `a` is detached".to_owned();
        for (made, held, leaves, host, step) in [
            (false, false, false, Host::Gone, Step::Tell(gone)),
            (false, false, false, Host::Paused, Step::Rest),
            (false, false, false, node(), Step::Hold),
            (false, true, false, Host::Unregistered, Step::Wait),
            (false, true, false, Host::Unable("why".into()), Step::Tell("why".into())),
            (false, true, false, Host::Detached, Step::Tell(detached)),
            (false, true, false, node(), Step::Create("u".into())),
            (true, true, false, node(), Step::Rest),
            (true, true, false, Host::Detached, Step::Rest),
            (true, false, true, node(), Step::Rest),
            (true, true, true, node(), remove()),
            (true, true, true, Host::Paused, Step::Rest),
            (true, true, true, Host::Unregistered, Step::Wait),
            (true, true, true, Host::Gone, Step::LetGo),
            (true, true, true, Host::Detached, Step::LetGo),
            (false, true, true, node(), Step::LetGo),
            (false, true, true, Host::Unregistered, Step::LetGo),
        ] {
            let found = decide(&subscription(made, held, leaves), &host);
            assert_eq!(found, step, "made {made}, held {held}, leaves {leaves}, {host:?}");
        }
    }

    #[test]
    fn only_redfish_has_subscriptions() {
        let why = |address: &str| match known(Some(&host(address, json!({})))) {
            Some(Host::Unable(why)) => why,
            other => panic!("{address}: {other:?}"),
        };
        assert!(why("ipmi://10.0.0.1").contains("`ipmi`"), "{}", why("ipmi://10.0.0.1"));
        assert!(why("10.0.0.1").contains("Redfish"));
        assert!(why("").contains("no BMC"));
        assert!(why("nothing://10.0.0.1").contains("Unknown BMC type"));
        for address in ["redfish://10.0.0.1", "idrac-virtualmedia://10.0.0.1"] {
            assert_eq!(known(Some(&host(address, json!({})))), None, "{address}");
        }
    }

    #[test]
    fn a_host_that_is_left_alone_is_not_asked_for() {
        let with = |name: &str| host("redfish://10.0.0.1", json!({name: ""}));
        assert_eq!(known(None), Some(Host::Gone));
        assert_eq!(known(Some(&with("baremetalhost.metal3.io/paused"))), Some(Host::Paused));
        assert_eq!(known(Some(&with("baremetalhost.metal3.io/detached"))), Some(Host::Detached));
    }
}
