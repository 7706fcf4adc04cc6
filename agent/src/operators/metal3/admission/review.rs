//! The rules of metal3's kinds.

use std::sync::Arc;

use agent_api::metal3::{BareMetalHost, admission};

use crate::operators::kit::webhook::{Operation, Request, Rule};

/// Gives the hosts that may refer to an object.
pub type Hosts = Arc<dyn Fn() -> Vec<BareMetalHost> + Send + Sync>;

/// What speaks against an object.
type Problems = Result<Vec<String>, serde_json::Error>;

/// Why it is refused, as API servers word several problems.
fn refusal(problems: &[String]) -> Option<String> {
    admission::message(problems)
}

const fn rule(
    singular: &'static str,
    operations: &'static [&'static str],
    check: fn(&Request, &Hosts) -> Result<Option<String>, serde_json::Error>,
) -> Rule<Hosts> {
    Rule { group: "metal3.io", version: "v1alpha1", singular, operations, check }
}

const WRITTEN: &[&str] = &["CREATE", "UPDATE"];

/// The kinds that have rules.
pub const RULES: &[Rule<Hosts>] = &[
    rule("baremetalhost", WRITTEN, |asked, _| Ok(refusal(&host(asked)?))),
    rule("bmceventsubscription", WRITTEN, |asked, _| Ok(refusal(&subscription(asked)?))),
    rule("dataimage", WRITTEN, |asked, _| Ok(refusal(&admission::data_image(&asked.new_object()?)))),
    rule("hostclaim", WRITTEN, |asked, _| Ok(refusal(&admission::host_claim(&asked.new_object()?)))),
    rule("hostfirmwarecomponents", WRITTEN, |asked, _| {
        Ok(refusal(&admission::firmware_components(&asked.new_object()?)))
    }),
    rule("hostnetworkattachment", &["CREATE", "UPDATE", "DELETE"], |asked, hosts| {
        Ok(refusal(&attachment(asked, hosts)?))
    }),
];

fn subscription(asked: &Request) -> Problems {
    Ok(match asked.operation {
        Operation::Update => admission::event_subscription_update(&asked.old_object()?, &asked.new_object()?),
        Operation::Create | Operation::Delete => admission::event_subscription_create(&asked.new_object()?),
    })
}

fn attachment(asked: &Request, hosts: &Hosts) -> Problems {
    Ok(match asked.operation {
        Operation::Delete => admission::network_attachment_delete(&asked.old_object()?, &hosts()),
        Operation::Update => admission::network_attachment_update(&asked.old_object()?, &asked.new_object()?, &hosts()),
        Operation::Create => admission::network_attachment_create(&asked.new_object()?),
    })
}

fn host(asked: &Request) -> Problems {
    let new: BareMetalHost = asked.new_object()?;
    if asked.operation == Operation::Create {
        return Ok(admission::host_create(&new));
    }
    let old: BareMetalHost = asked.old_object()?;
    // Whatever it was admitted with once: a host that leaves must be able to lose its finalizers.
    if new.metadata.deletion_timestamp.is_some() && new.spec == old.spec {
        return Ok(Vec::new());
    }
    Ok(admission::host_update(&old, &new))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_api::metal3::BareMetalHost;
    use serde_json::{Value, json};

    use super::RULES;
    use crate::operators::kit::webhook::answer;

    fn object(kind: &str, spec: &Value) -> Value {
        json!({"apiVersion": "metal3.io/v1alpha1", "kind": kind,
            "metadata": {"name": "a", "namespace": "metal3"}, "spec": spec})
    }

    fn review(operation: &str, old: &Value, new: &Value) -> String {
        let kind = [new, old].into_iter().find_map(|it| it["kind"].as_str()).expect("a kind");
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1",
            "kind": {"group": "metal3.io", "version": "v1alpha1", "kind": kind}, "operation": operation,
            "object": new, "oldObject": old}})
        .to_string()
    }

    fn given(hosts: &[BareMetalHost]) -> super::Hosts {
        let hosts = hosts.to_vec();
        Arc::new(move || hosts.clone())
    }

    /// Empty where it is allowed.
    fn said(operation: &str, old: &Value, new: &Value, hosts: &[BareMetalHost]) -> String {
        let answer = answer(&review(operation, old, new), RULES, &given(hosts)).expect("an answer");
        let response = &answer["response"];
        assert_eq!(response["uid"], "u-1");
        assert_eq!(response["allowed"], response["status"].is_null());
        response["status"]["message"].as_str().unwrap_or_default().to_owned()
    }

    #[test]
    fn each_kind_is_checked_in_metal3s_words() {
        let host = |spec: Value| object("BareMetalHost", &spec);
        let attachment = |mode: &str| object("HostNetworkAttachment", &json!({"mode": mode, "nativeVLAN": 1}));
        let subscription = |url: &str| object("BMCEventSubscription", &json!({"hostName": "a", "destination": url}));
        let good = host(json!({"online": true, "bootMACAddress": "52:54:00:00:00:01"}));
        let moved = host(json!({"online": true, "bootMACAddress": "52:54:00:00:00:02"}));
        let none = Value::Null;
        let table = [
            ("CREATE", &none, &good, ""),
            ("UPDATE", &good, &moved, "bootMACAddress can not be changed once it is set"),
            (
                "CREATE",
                &none,
                &object("DataImage", &json!({"url": "nfs://a/b.iso"})),
                "URL \"nfs://a/b.iso\" is invalid: invalid scheme in URL, \"nfs\" not allowed",
            ),
            (
                "UPDATE",
                &subscription("https://a/b"),
                &subscription("https://a/c"),
                "subscriptions cannot be updated, please recreate it",
            ),
            (
                "CREATE",
                &none,
                &object("HostFirmwareComponents", &json!({"updates": [{"component": "bios", "url": "ftp://a"}]})),
                "invalid URL \"ftp://a\" in FirmwareUpdate in component \"bios\": invalid scheme in URL, \"ftp\" not allowed",
            ),
            (
                "CREATE",
                &none,
                &object("HostClaim", &json!({"poweredOn": true, "image": {"url": "http://a/b"}})),
                "checksum is required for normal images",
            ),
            ("DELETE", &attachment("access"), &none, ""),
        ];
        for (operation, old, new, expected) in table {
            assert_eq!(said(operation, old, new, &[]), expected, "{operation} {new}");
        }
    }

    #[test]
    fn an_attachment_that_a_host_refers_to_stays() {
        let spec =
            json!({"online": true, "networkInterfaces": [{"name": "eno1", "hostNetworkAttachment": {"name": "a"}}]});
        let host = serde_json::from_value(object("BareMetalHost", &spec)).expect("a host");
        let attachment = object("HostNetworkAttachment", &json!({"mode": "access", "nativeVLAN": 1}));
        let said = said("DELETE", &attachment, &Value::Null, &[host]);
        assert!(
            said.ends_with("cannot delete attachment while referenced by BMH interfaces: metal3/a[eno1]"),
            "{said}"
        );
    }

    #[test]
    fn a_host_that_leaves_may_leave_whatever_it_is() {
        let mut bad =
            object("BareMetalHost", &json!({"online": true, "bmc": {"address": "nothing://a", "credentialsName": ""}}));
        assert!(!said("CREATE", &Value::Null, &bad, &[]).is_empty());
        assert!(!said("UPDATE", &bad, &bad, &[]).is_empty());
        bad["metadata"]["deletionTimestamp"] = json!("2026-03-02T08:00:00Z");
        assert_eq!(said("UPDATE", &bad, &bad, &[]), "");
        let mut changed = bad.clone();
        changed["spec"]["online"] = json!(false);
        assert!(!said("UPDATE", &bad, &changed, &[]).is_empty());
    }

    #[test]
    fn what_is_no_review_is_told() {
        let none = &given(&[]);
        assert!(
            answer("{}", RULES, none).expect_err("no request").starts_with("this is no AdmissionReview: missing field")
        );
        let pod = json!({"request": {"uid": "u", "kind": {"kind": "Pod"}, "operation": "CREATE"}}).to_string();
        assert_eq!(answer(&pod, RULES, none).expect_err("no rules"), "kind `Pod` has no rules");
        let bad = review("CREATE", &Value::Null, &json!({"kind": "DataImage", "spec": 7}));
        let response = answer(&bad, RULES, none).expect("an answer")["response"].clone();
        assert!(response["status"]["message"].as_str().is_some_and(|it| it.starts_with("cannot be read: ")));
    }
}
