//! What is done while something is not known: Ironic is silent, a BMC has not told its power.

use agent_api::metal3::{OperationalStatus, ProvisioningState};
use jiff::SignedDuration;
use serde_json::json;

use super::tests::{away, deleted, facts, host, reason, start, step, with_image};
use super::*;

#[test]
fn without_ironic_the_user_is_told_and_what_needs_none_goes_on() {
    let mut facts = facts();
    facts.ironic = away(60);
    let provisioned = host(ProvisioningState::Provisioned, &with_image("http://a"));
    let outcome = decide(&provisioned, &facts);
    let until = start().checked_add(SignedDuration::from_secs(30)).ok();
    let message = "Ironic does not answer: connection refused".to_owned();
    assert_eq!(outcome.step, Step::Wait { reason: WaitReason::IronicAway(message.clone()), until });
    let status = apply(&provisioned, &outcome, start());
    assert_eq!((status.error_message, status.error_count, status.error_type), (message.clone(), 0, None));
    // Told once, then written no more.
    let mut told = provisioned.clone();
    told.status = Some(apply(&provisioned, &outcome, start()));
    assert_eq!(decide(&told, &facts).changes, []);
    facts.ironic = Ironic::Ready;
    let outcome = decide(&told, &facts);
    assert_eq!(apply(&told, &outcome, start()).operational_status, OperationalStatus::Ok);
    // While it may just be restarted, that is no error.
    facts.ironic = away(59);
    let outcome = decide(&provisioned, &facts);
    assert_eq!(outcome.step, Step::Wait { reason: WaitReason::IronicAway(message), until });
    let status = apply(&provisioned, &outcome, start());
    assert_eq!((status.error_message.as_str(), status.operational_status), ("", OperationalStatus::Ok));

    facts.ironic = away(0);
    let WaitReason::IronicAway(hint) = reason(step(&deleted(ProvisioningState::Provisioned, &json!({})), &facts))
    else {
        panic!("no wait for Ironic");
    };
    let leaves = decide(&deleted(ProvisioningState::Provisioned, &json!({})), &facts);
    assert_eq!(leaves.changes, [Change::Note(OperationalStatus::Error, hint.clone())]);
    assert!(hint.ends_with("hint: the annotation `baremetalhost.metal3.io/detached` lets the host go without it"));
    let unmanaged = host(ProvisioningState::Unmanaged, &json!({"spec": {"bmc": null}}));
    assert_eq!(reason(step(&unmanaged, &facts)), WaitReason::NoBmc);
    let never_known = deleted(ProvisioningState::Deleting, &json!({"status": {"provisioning": {"ID": ""}}}));
    assert_eq!(step(&never_known, &facts), Step::Deleted);
}

/// As after an adoption, until its BMC was asked.
#[test]
fn a_host_whose_power_is_not_known_is_not_said_to_be_steady() {
    let mut facts = facts();
    facts.powered_on = None;
    let external = json!({"spec": {"externallyProvisioned": true}});
    for (state, fields) in [
        (ProvisioningState::Available, json!({})),
        (ProvisioningState::Provisioned, with_image("http://a")),
        (ProvisioningState::ExternallyProvisioned, external),
    ] {
        assert_eq!(reason(step(&host(state, &fields), &facts)), WaitReason::PowerUnknown, "{state}");
    }
}
