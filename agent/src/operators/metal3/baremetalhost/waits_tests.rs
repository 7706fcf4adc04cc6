//! That nothing is waited for in vain: what a host needs may come late, what went wrong may be mended, somebody may want
//! it gone.

#![allow(clippy::needless_pass_by_value, reason = "`json!` where it is needed reads best")]

use agent_api::metal3::{ErrorType, OperationalStatus, ProvisioningState};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::tests::{deleted, facts, failed, host, image, reason, start, step, with_image};
use super::*;

fn with(mut fields: Value, more: Value) -> Value {
    for (name, value) in more.as_object().cloned().unwrap_or_default() {
        match fields[&name].as_object_mut() {
            Some(into) => into.extend(value.as_object().cloned().unwrap_or_default()),
            None => fields[&name] = value,
        }
    }
    fields
}

#[test]
fn what_provisioning_needs_is_waited_for_and_is_no_failure() {
    let mut host = host(ProvisioningState::Provisioning, &json!({"spec": {"image": image("http://a")}}));
    let provision = Action::Provision { reboot: false };
    let missing = Report::NotYet("the Secret `site/a` does not exist".into());
    let outcome = conclude(&host, &facts(), &provision, &missing);
    let until = start().checked_add(SignedDuration::from_secs(30)).ok();
    let why = "the Secret `site/a` does not exist".to_owned();
    assert_eq!(outcome.step, Step::Wait { reason: WaitReason::NotYet(why.clone()), until });
    host.status = Some(apply(&host, &outcome, start()));
    let status = host.status.clone().expect("a status");
    assert_eq!((status.error_message, status.operational_status), (why, OperationalStatus::Error));
    assert_eq!((status.error_type, status.error_count, status.provisioning_fail_count), (None, 0, 0));
    // It is looked for again, and told no second time.
    let again = decide(&host, &facts());
    assert_eq!((again.step, again.changes), (Step::Act(provision.clone()), Vec::new()));
    assert_eq!(conclude(&host, &facts(), &provision, &missing).changes, []);
    // It is there.
    let goes_on = conclude(&host, &facts(), &provision, &Report::Continues(SignedDuration::from_secs(3)));
    assert_eq!(apply(&host, &goes_on, start()).operational_status, OperationalStatus::Ok);
}

/// The way out for a server whose ramdisk never comes up.
#[test]
fn inspection_that_fails_can_be_switched_off_at_once() {
    let annotation = json!({"metadata": {"annotations": {"inspect.metal3.io": "disabled"}}});
    let host = host(ProvisioningState::Inspecting, &with(failed("inspection error", 4), annotation));
    let outcome = decide(&host, &facts());
    assert_eq!(outcome.step, Step::Transition(ProvisioningState::Preparing));
    let status = apply(&host, &outcome, start());
    assert_eq!((status.error_type, status.error_count), (None, 0));
}

#[test]
fn another_image_or_another_disk_is_not_taken_for_the_one_that_is_written() {
    let status = json!({"lastAttemptedImage": image("http://a")});
    let writing =
        |more: Value| host(ProvisioningState::Provisioning, &with(json!({"spec": {"image": image("http://a")}}), more));
    let same = writing(json!({"status": status.clone()}));
    assert_eq!(step(&same, &facts()), Step::Act(Action::Provision { reboot: false }));
    for other in [json!({"image": image("http://b")}), json!({"rootDeviceHints": {"deviceName": "/dev/sdb"}})] {
        let overtaken = writing(json!({"status": status.clone(), "spec": other}));
        assert_eq!(step(&overtaken, &facts()), Step::Transition(ProvisioningState::Deprovisioning));
    }
}

#[test]
fn the_disk_is_the_one_that_is_asked_for_now() {
    let hints = |name: &str| json!({"deviceName": name});
    let fields = json!({
        "spec": {"image": image("http://a"), "rootDeviceHints": hints("/dev/sdb")},
        "status": {"provisioning": {"rootDeviceHints": hints("/dev/sda")}},
    });
    let mut host = host(ProvisioningState::Available, &fields);
    host.status = Some(apply(&host, &decide(&host, &facts()), start()));
    let taken = host.status.as_ref().and_then(|status| status.provisioning.root_device_hints.clone());
    assert_eq!(json!(taken), hints("/dev/sdb"));
    assert_eq!(step(&host, &facts()), Step::Act(Action::Provision { reboot: false }));
}

#[test]
fn what_was_given_up_is_tried_again_when_the_host_is_changed() {
    let fields = with(
        failed("provisioning error", 0),
        json!({"spec": {"customDeploy": {"method": "m"}}, "status": {"provisioningFailCount": 5}}),
    );
    let host = host(ProvisioningState::Available, &fields);
    assert_eq!(reason(step(&host, &facts())), WaitReason::GaveUp { tries: 5 });
    let changed = Facts { failed_generation: Some(0), ..facts() };
    let outcome = decide(&host, &changed);
    assert_eq!(outcome.step, Step::Transition(ProvisioningState::Provisioning));
    assert_eq!(apply(&host, &outcome, start()).provisioning_fail_count, 0);
}

/// A battery that is empty, a clock that is set by the network later.
#[test]
fn a_clock_that_is_set_back_makes_no_wait_longer() {
    let host = host(ProvisioningState::Preparing, &failed("preparation error", 1));
    assert_eq!(reason(step(&host, &facts())), WaitReason::Failed(ErrorType::Preparation));
    let now = start().checked_sub(SignedDuration::from_hours(24 * 365)).expect("a moment");
    assert_eq!(step(&host, &Facts { now, ..facts() }), Step::Act(Action::Prepare));
}

#[test]
fn a_detached_host_goes_at_once_whatever_went_wrong_before() {
    let detached = json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": ""}}});
    let mut host = deleted(ProvisioningState::Deprovisioning, &with(failed("provisioning error", 9), detached.clone()));
    let outcome = decide(&host, &facts());
    assert_eq!(outcome.step, Step::Transition(ProvisioningState::Deleting));
    host.status = Some(apply(&host, &outcome, start()));
    assert_eq!(step(&host, &facts()), Step::Act(Action::Forget));
    // Ironic answers, and refuses.
    let refused = Report::Failed("database is full".into());
    assert_eq!(conclude(&host, &facts(), &Action::Forget, &refused).step, Step::Deleted);
    let kept = deleted(ProvisioningState::Deleting, &json!({}));
    assert!(matches!(conclude(&kept, &facts(), &Action::Forget, &refused).step, Step::Wait { .. }));
}

#[test]
fn errors_from_before_hold_no_deletion_up() {
    let unregistered = Facts { registered: false, ..facts() };
    let mut host = deleted(
        ProvisioningState::Provisioned,
        &with(with_image("http://a"), failed("provisioned registration error", 12)),
    );
    let outcome = decide(&host, &unregistered);
    assert_eq!(outcome.step, Step::Transition(ProvisioningState::Deprovisioning));
    host.status = Some(apply(&host, &outcome, start()));
    assert!(matches!(step(&host, &unregistered), Step::Act(Action::Register)));
    let dead = Report::Failed("the BMC does not answer".into());
    for tries in 1..=3 {
        let outcome = conclude(&host, &unregistered, &Action::Register, &dead);
        assert!(matches!(outcome.step, Step::Wait { .. }), "{tries}");
        host.status = Some(apply(&host, &outcome, start()));
    }
    let outcome = conclude(&host, &unregistered, &Action::Register, &dead);
    assert_eq!(outcome.step, Step::Transition(ProvisioningState::Deleting));
}

#[test]
fn a_host_that_is_to_be_kept_is_detached_though_it_is_deleted_already() {
    let kept =
        json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": "{\"deleteAction\":\"delay\"}"}}});
    let provisioned = deleted(ProvisioningState::Provisioned, &with(with_image("http://a"), kept.clone()));
    assert_eq!(step(&provisioned, &facts()), Step::Act(Action::Detach));
    let busy = deleted(ProvisioningState::Inspecting, &kept);
    assert_eq!(reason(step(&busy, &facts())), WaitReason::DetachedDeleteDelayed);
}

/// Nothing is wrong with a host whose Ironic has no time for it, least of all with one that is to go.
#[test]
fn an_ironic_that_is_busy_changes_nothing_about_a_host() {
    let busy = Facts { ironic: Ironic::Busy, ..facts() };
    for host in [
        host(ProvisioningState::Available, &json!({})),
        host(ProvisioningState::Inspecting, &json!({})),
        deleted(ProvisioningState::Deprovisioning, &json!({})),
        deleted(ProvisioningState::PoweringOffBeforeDelete, &json!({})),
        deleted(ProvisioningState::Deleting, &json!({})),
    ] {
        let outcome = decide(&host, &busy);
        assert_eq!(reason(outcome.step.clone()), WaitReason::IronicBusy, "{:?}", host.state());
        assert_eq!(outcome.changes, [], "{:?}", host.state());
    }
    let unmanaged = host(ProvisioningState::Unmanaged, &json!({"spec": {"bmc": null}}));
    assert_ne!(reason(step(&unmanaged, &busy)), WaitReason::IronicBusy);
}

#[test]
fn what_is_wrong_with_a_host_is_not_hidden_by_ironics_silence() {
    let host = host(ProvisioningState::Available, &failed("provisioning error", 0));
    let outcome = decide(&host, &Facts { ironic: super::tests::away(90), ..facts() });
    assert!(matches!(outcome.step, Step::Wait { reason: WaitReason::IronicAway(_), .. }));
    assert_eq!(outcome.changes, []);
}

#[test]
fn volumes_that_could_not_be_made_are_made_again_even_as_before() {
    let raid = |level: &str| json!({"hardwareRAIDVolumes": [{"level": level}]});
    let prepared = json!({"spec": {"raid": raid("5")}, "status": {"provisioning": {"raid": raid("1")}}});
    let no = Report::Failed("no such disk".into());
    let host = host(ProvisioningState::Preparing, &prepared);
    let status = apply(&host, &conclude(&host, &facts(), &Action::Prepare, &no), start());
    assert_eq!(status.provisioning.raid, None);
    let same = json!({"spec": {"raid": raid("1")}, "status": {"provisioning": {"raid": raid("1")}}});
    let host = super::tests::host(ProvisioningState::Preparing, &same);
    let status = apply(&host, &conclude(&host, &facts(), &Action::Prepare, &no), start());
    assert_eq!(status.provisioning.raid, host.spec.raid, "something else failed");
}

/// They are tried when Ironic takes them.
#[test]
fn credentials_that_change_while_ironic_is_at_work_are_told_after_it() {
    let mut rotated = facts();
    rotated.credentials =
        BmcSecret::Found(SecretVersion { name: "secret".into(), namespace: "site".into(), version: "2".into() });
    rotated.busy = true;
    let inspected = host(ProvisioningState::Inspecting, &json!({}));
    assert_eq!(step(&inspected, &rotated), Step::Act(Action::Inspect { again: false, reboot: false }));
    rotated.busy = false;
    assert_eq!(step(&inspected, &rotated), Step::Act(Action::Register));
}
