//! An `AdmissionReview` (admission.k8s.io/v1) answered. Pure.

use agent_api::metal3::{BareMetalHost, admission};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What is asked about a kind.
pub struct Rule {
    /// Name of one, in lower case: that of the resource without the `s`.
    pub singular: &'static str,
    /// When it is asked.
    pub operations: &'static [&'static str],
    check: Check,
}

/// Gives what speaks against an object. The function tells the hosts that may refer to it.
type Check = fn(&Request, &dyn Fn() -> Vec<BareMetalHost>) -> Result<Vec<String>, serde_json::Error>;

impl Rule {
    /// Where the API server asks: metal3's path.
    pub fn path(&self) -> String {
        format!("/validate-metal3-io-v1alpha1-{}", self.singular)
    }
}

const WRITTEN: &[&str] = &["CREATE", "UPDATE"];

/// The kinds that have rules.
pub const RULES: &[Rule] = &[
    Rule { singular: "baremetalhost", operations: WRITTEN, check: host },
    Rule {
        singular: "bmceventsubscription",
        operations: WRITTEN,
        check: |asked, _| match asked.operation {
            Operation::Update => {
                Ok(admission::event_subscription_update(&read(&asked.old_object)?, &read(&asked.object)?))
            }
            _ => Ok(admission::event_subscription_create(&read(&asked.object)?)),
        },
    },
    Rule {
        singular: "dataimage",
        operations: WRITTEN,
        check: |asked, _| Ok(admission::data_image(&read(&asked.object)?)),
    },
    Rule {
        singular: "hostclaim",
        operations: WRITTEN,
        check: |asked, _| Ok(admission::host_claim(&read(&asked.object)?)),
    },
    Rule {
        singular: "hostfirmwarecomponents",
        operations: WRITTEN,
        check: |asked, _| Ok(admission::firmware_components(&read(&asked.object)?)),
    },
    Rule {
        singular: "hostnetworkattachment",
        operations: &["CREATE", "UPDATE", "DELETE"],
        check: |asked, hosts| match asked.operation {
            Operation::Delete => Ok(admission::network_attachment_delete(&read(&asked.old_object)?, &hosts())),
            Operation::Update => {
                let (old, new) = (read(&asked.old_object)?, read(&asked.object)?);
                Ok(admission::network_attachment_update(&old, &new, &hosts()))
            }
            Operation::Create => Ok(admission::network_attachment_create(&read(&asked.object)?)),
        },
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Operation {
    Create,
    Update,
    Delete,
}

#[derive(Debug, Deserialize)]
struct Kind {
    kind: String,
}

/// `AdmissionReview.request`, as far as rules need it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    kind: Kind,
    operation: Operation,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
}

fn read<K: DeserializeOwned>(object: &Value) -> Result<K, serde_json::Error> {
    K::deserialize(object)
}

fn host(asked: &Request, _: &dyn Fn() -> Vec<BareMetalHost>) -> Result<Vec<String>, serde_json::Error> {
    let new: BareMetalHost = read(&asked.object)?;
    if asked.operation == Operation::Create {
        return Ok(admission::host_create(&new));
    }
    let old: BareMetalHost = read(&asked.old_object)?;
    // Whatever it was admitted with once: a host that leaves must be able to lose its finalizers.
    if new.metadata.deletion_timestamp.is_some() && new.spec == old.spec {
        return Ok(Vec::new());
    }
    Ok(admission::host_update(&old, &new))
}

/// The answer to a review.
///
/// # Errors
/// What was sent is no review, in words.
pub fn answer(body: &str, hosts: impl Fn() -> Vec<BareMetalHost>) -> Result<Value, String> {
    #[derive(Deserialize)]
    struct Review {
        request: Request,
    }
    let Review { request } =
        serde_json::from_str(body).map_err(|error| format!("this is no AdmissionReview: {error}"))?;
    let singular = request.kind.kind.to_ascii_lowercase();
    let Some(rule) = RULES.iter().find(|rule| rule.singular == singular) else {
        return Err(format!("kind `{}` has no rules", request.kind.kind));
    };
    let problems = (rule.check)(&request, &hosts).unwrap_or_else(|error| vec![format!("cannot be read: {error}")]);
    let mut response = json!({"uid": request.uid, "allowed": problems.is_empty()});
    if let Some(message) = admission::message(&problems) {
        response["status"] = json!({"code": 403, "reason": "Forbidden", "message": message});
    }
    Ok(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::BareMetalHost;
    use serde_json::{Value, json};

    use super::answer;

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

    /// Empty where it is allowed.
    fn said(operation: &str, old: &Value, new: &Value, hosts: &[BareMetalHost]) -> String {
        let answer = answer(&review(operation, old, new), || hosts.to_vec()).expect("an answer");
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
        let none = || Vec::new();
        assert!(answer("{}", none).expect_err("no request").starts_with("this is no AdmissionReview: missing field"));
        let pod = json!({"request": {"uid": "u", "kind": {"kind": "Pod"}, "operation": "CREATE"}}).to_string();
        assert_eq!(answer(&pod, none).expect_err("no rules"), "kind `Pod` has no rules");
        let bad = review("CREATE", &Value::Null, &json!({"kind": "DataImage", "spec": 7}));
        let response = answer(&bad, none).expect("an answer")["response"].clone();
        assert!(response["status"]["message"].as_str().is_some_and(|it| it.starts_with("cannot be read: ")));
    }
}
