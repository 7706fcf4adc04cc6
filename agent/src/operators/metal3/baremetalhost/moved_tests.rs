//! Hosts that were moved here, with their status in an annotation, as `clusterctl move` brings them.

use agent_api::metal3::annotations::{self, PAUSED, STATUS};
use agent_api::metal3::{BareMetalHost, ProvisioningState};
use rstest::rstest;
use serde_json::{Value, json};

use super::tell::{Seen, conditions};
use super::tests::{deleted, facts, host, reason, start, step};
use super::*;

fn moved(status: &str) -> BareMetalHost {
    let annotations = json!({STATUS: status});
    host(ProvisioningState::None, &json!({"metadata": {"annotations": annotations, "finalizers": []}, "status": null}))
}

#[test]
fn a_moved_host_gets_its_status_back_before_anything_else() {
    assert_eq!(step(&moved("{}"), &facts()), Step::Act(Action::RestoreStatus));
    let settled = json!({"metadata": {"annotations": {STATUS: "{}"}}});
    let remove = Step::Act(Action::RemoveAnnotation(STATUS));
    assert_eq!(step(&host(ProvisioningState::Provisioned, &settled), &facts()), remove);
}

/// It arrives paused, is told so, and is let go later: its status still counts.
#[test]
fn what_is_told_of_a_paused_host_is_no_status() {
    let mut host = moved("{\"provisioning\":{\"state\":\"provisioned\"}}");
    let annotations = host.metadata.annotations.get_or_insert_default();
    annotations.insert(PAUSED.to_owned(), "metal3.io/capm3".to_owned());
    let outcome = decide(&host, &facts());
    assert_eq!(outcome.step, Step::Wait { reason: WaitReason::Paused, until: None });
    let mut status = apply(&host, &outcome, start());
    status.conditions = Some(conditions(&host, &status, &outcome, &Seen::default(), start()));
    host.status = Some(status);
    host.metadata.annotations.get_or_insert_default().remove(PAUSED);
    assert_eq!(step(&host, &facts()), Step::Act(Action::RestoreStatus));
}

/// metal3's operator takes what is left out, or empty, for what a new host has.
#[rstest]
#[case::state(json!({"provisioning": {"state": "provisioned"}}), ProvisioningState::Provisioned, "")]
#[case::nothing(json!({}), ProvisioningState::None, "")]
#[case::as_go_writes_it(
    json!({"operationalStatus": "OK", "errorType": "", "lastUpdated": null, "hardware": null, "errorMessage": "",
        "provisioning": {"state": "externally provisioned", "ID": "u", "image": {"url": ""}, "bootMode": "UEFI",
            "customDeploy": {}}, "poweredOn": true, "operationHistory": {"register": {"start": null, "end": null}}}),
    ProvisioningState::ExternallyProvisioned, "u"
)]
fn a_status_may_be_a_part_of_one(#[case] told: Value, #[case] state: ProvisioningState, #[case] id: &str) {
    let status = annotations::status(&told.to_string()).expect("a status");
    assert_eq!((status.provisioning.state, status.provisioning.id.as_str()), (state, id));
    assert_eq!(step(&moved(&told.to_string()), &facts()), Step::Act(Action::RestoreStatus));
}

/// Taken for a new one, the host would be inspected, and what runs on it would end.
#[rstest]
#[case::no_json("provisioned", "expected value")]
#[case::no_state("{\"provisioning\":{\"state\":\"Provisioned\"}}", "unknown variant `Provisioned`")]
#[case::a_list("[]", "invalid type: sequence")]
fn a_host_whose_status_cannot_be_read_is_left_alone(#[case] status: &str, #[case] why: &str) {
    let host = moved(status);
    let outcome = decide(&host, &facts());
    assert!(matches!(reason(outcome.step.clone()), WaitReason::NoStatus(_)), "{outcome:?}");
    let told = conditions(&host, &apply(&host, &outcome, start()), &outcome, &Seen::default(), start());
    let progressing = told.iter().find(|it| it.kind == "Progressing").expect("told");
    assert!(progressing.reason == "InvalidAnnotationValue" && progressing.message.contains(why), "{progressing:?}");
    let leaves = json!({"metadata": {"annotations": {STATUS: status}}, "status": null});
    assert_eq!(step(&deleted(ProvisioningState::None, &leaves), &facts()), Step::Act(Action::RestoreStatus));
}
