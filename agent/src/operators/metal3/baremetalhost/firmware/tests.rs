//! What a host's firmware does to its way.

use agent_api::metal3::annotations::{REBOOT, RebootMode};
use agent_api::metal3::{BareMetalHost, ErrorType, OperationalStatus, ProvisioningState};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::super::tests::{facts, failed, host, start, with_image};
use super::super::{Action, Change, Facts, Outcome, Report, Standing, Step, WaitReason, Wish, apply, conclude, decide};

fn wish(wish: Wish) -> Standing {
    Standing { wish, ..Standing::default() }
}

fn with(firmware: Standing, on: bool) -> Facts {
    Facts { firmware, powered_on: Some(on), ..facts() }
}

/// A host in use; `fields` are laid over it.
fn in_use(fields: &Value) -> BareMetalHost {
    let mut all = with_image("http://a");
    for part in ["metadata", "spec", "status"] {
        for (name, value) in fields[part].as_object().into_iter().flatten() {
            all[part][name] = value.clone();
        }
    }
    host(ProvisioningState::Provisioned, &all)
}

fn rebooting() -> Value {
    json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})
}

#[test]
fn a_wish_leads_to_preparing_only_before_a_host_is_in_use() {
    let table = [
        (ProvisioningState::Available, Wish::None, false),
        (ProvisioningState::Available, Wish::Prepare, true),
        (ProvisioningState::Available, Wish::Service, true),
        (ProvisioningState::Ready, Wish::Prepare, true),
    ];
    for (state, asked, prepares) in table {
        let step = decide(&host(state, &json!({})), &with(wish(asked), true)).step;
        assert_eq!(step == Step::Transition(ProvisioningState::Preparing), prepares, "{state} {asked:?}");
    }
    for asked in [Wish::None, Wish::Prepare, Wish::Service] {
        let step = decide(&in_use(&json!({})), &with(wish(asked), true)).step;
        assert!(matches!(step, Step::Wait { reason: WaitReason::Steady, .. }), "{asked:?} {step:?}");
    }
}

#[test]
fn a_host_in_use_is_serviced_on_its_way_from_off_to_on() {
    let serviced = || Outcome {
        changes: vec![Change::Operational(OperationalStatus::Servicing)],
        step: Step::Act(Action::Service),
    };
    let act = |action| Outcome { changes: vec![], step: Step::Act(action) };
    let no_off = json!({"metadata": rebooting()["metadata"], "spec": {"disablePowerOff": true}});
    let off = json!({"status": {"poweredOn": false}});
    let table = [
        ("asked to reboot", in_use(&rebooting()), Wish::Service, true, act(Action::PowerOff(RebootMode::Soft))),
        ("off", in_use(&off), Wish::Service, false, serviced()),
        ("off, without a policy", in_use(&off), Wish::Prepare, false, act(Action::PowerOn)),
        ("never off", in_use(&no_off), Wish::Service, true, serviced()),
        ("never off, without a policy", in_use(&no_off), Wish::Prepare, true, act(Action::Reboot(RebootMode::Soft))),
        ("not in use", host(ProvisioningState::Available, &off), Wish::None, false, act(Action::PowerOn)),
    ];
    for (case, host, asked, on, wanted) in table {
        assert_eq!(decide(&host, &with(wish(asked), on)), wanted, "{case}");
    }
    let held = json!({"metadata": {"annotations": {"reboot.metal3.io/client": ""}}, "status": {"poweredOn": false}});
    let step = decide(&in_use(&held), &with(wish(Wish::Service), false)).step;
    assert!(matches!(step, Step::Wait { reason: WaitReason::HeldOff(_), .. }), "{step:?}");
}

#[test]
fn servicing_goes_on_until_ironic_says_how_it_ended() {
    let begun = in_use(&json!({"status": {"operationalStatus": "servicing"}}));
    let act = Outcome { changes: vec![], step: Step::Act(Action::Service) };
    assert_eq!(decide(&begun, &with(Standing::default(), false)), act);
    // Even if the status does not tell any more.
    let busy = Standing { servicing: true, ..Standing::default() };
    assert_eq!(decide(&in_use(&json!({})), &with(busy, true)).step, Step::Act(Action::Service));

    let facts = with(wish(Wish::Service), false);
    let goes_on = Report::Continues(SignedDuration::from_secs(10));
    assert_eq!(conclude(&begun, &facts, &Action::Service, &goes_on).changes, []);
    let done = conclude(&begun, &facts, &Action::Service, &Report::Done);
    let status = apply(&begun, &done, start());
    assert_eq!((done.step, status.operational_status), (Step::Again, OperationalStatus::Ok));

    let failed = conclude(&begun, &facts, &Action::Service, &Report::Failed("no".into()));
    assert_eq!(failed.changes, [Change::Error(ErrorType::Servicing, "no".into())]);
    let mut again = begun;
    again.status = Some(apply(&again, &failed, start()));
    let waits = decide(&again, &facts).step;
    assert!(matches!(waits, Step::Wait { reason: WaitReason::Failed(ErrorType::Servicing), .. }), "{waits:?}");
    // Another wish is tried at once, and is no error any more once it goes on.
    let changed = Standing { changed: true, ..wish(Wish::Service) };
    let outcome = decide(&again, &with(changed, false));
    assert_eq!(outcome.step, Step::Act(Action::Service));
    again.status = Some(apply(&again, &outcome, start()));
    let outcome = conclude(&again, &facts, &Action::Service, &goes_on);
    let status = apply(&again, &outcome, start());
    assert_eq!((status.error_type, status.operational_status), (None, OperationalStatus::Servicing));
}

#[test]
fn another_wish_is_no_answer_to_another_error() {
    let changed = with(Standing { changed: true, ..wish(Wish::Prepare) }, true);
    let preparing = |kind| decide(&host(ProvisioningState::Preparing, &failed(kind, 1)), &changed).step;
    assert_eq!(preparing("preparation error"), Step::Act(Action::Prepare));
    assert!(matches!(preparing("power management error"), Step::Wait { .. }));
}

#[test]
fn the_reboot_that_servicing_was_is_not_done_again() {
    let host = in_use(&json!({"metadata": rebooting()["metadata"], "spec": {"disablePowerOff": true}}));
    let done = conclude(&host, &facts(), &Action::Service, &Report::Done);
    assert_eq!(done.step, Step::Act(Action::RemoveAnnotation(REBOOT)));
}
