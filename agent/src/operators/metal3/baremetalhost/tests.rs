#![allow(clippy::needless_pass_by_value, reason = "each test is given its case by value")]

use agent_api::metal3::{
    BareMetalHost, BareMetalHostStatus, ErrorType, HardwareDetails, Image, OperationalStatus, ProvisioningState,
};
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use agent_api::metal3::annotations::RebootMode;

pub(super) fn start() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().expect("a moment")
}

fn secret(version: &str) -> SecretVersion {
    SecretVersion { name: "secret".into(), namespace: "site".into(), version: version.into() }
}

/// All is well.
pub(super) fn facts() -> Facts {
    Facts {
        now: start(),
        chance: 0.0,
        credentials: BmcSecret::Found(secret("1")),
        ironic: Ironic::Ready,
        registered: true,
        busy: false,
        adopted: true,
        slot: Slot::Free,
        unprepared: false,
        firmware: Standing::default(),
        hardware: None,
        powered_on: Some(true),
        failed_generation: Some(1),
        limits: Limits::default(),
    }
}

/// Ironic, silent for so many seconds.
pub(super) fn away(secs: i64) -> Ironic {
    let since = start().checked_sub(SignedDuration::from_secs(secs)).expect("a moment");
    Ironic::Away { heard: "connection refused".into(), since }
}

/// A host in a state, whose credentials were tried and found good; `fields` are merged into it.
pub(super) fn host(state: ProvisioningState, fields: &Value) -> BareMetalHost {
    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (name, value) in from {
                    merge(into.entry(name.clone()).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }
    let version = json!({"credentials": {"name": "secret", "namespace": "site"}, "credentialsVersion": "1"});
    let mut object = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "a", "namespace": "site", "generation": 1, "finalizers": ["baremetalhost.metal3.io"]},
        "spec": {"online": true, "bmc": {"address": "redfish://10.0.0.1", "credentialsName": "secret"}},
        "status": {"operationalStatus": "OK", "errorMessage": "", "poweredOn": true,
            "provisioning": {"state": state, "ID": "5a1ee0f4"},
            "goodCredentials": version, "triedCredentials": version},
    });
    merge(&mut object, fields);
    serde_json::from_value(object).unwrap_or_else(|problem| panic!("{fields}: {problem}"))
}

pub(super) fn deleted(state: ProvisioningState, fields: &Value) -> BareMetalHost {
    let mut host = host(state, fields);
    host.metadata.deletion_timestamp = serde_json::from_value(json!("2026-03-02T07:59:59Z")).expect("a moment");
    host
}

pub(super) fn image(url: &str) -> Value {
    json!({"url": url, "checksum": "abc"})
}

/// A host that has this image, as it shall have.
pub(super) fn with_image(url: &str) -> Value {
    json!({"spec": {"image": image(url)}, "status": {"provisioning": {"image": image(url)}}})
}

fn detached(value: &str) -> Value {
    json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": value}}})
}

pub(super) fn failed(kind: &str, count: i64) -> Value {
    json!({"status": {"operationalStatus": "error", "errorType": kind, "errorMessage": "no", "errorCount": count,
        "lastUpdated": "2026-03-02T08:00:00Z"}})
}

pub(super) fn step(host: &BareMetalHost, facts: &Facts) -> Step {
    decide(host, facts).step
}

pub(super) fn reason(step: Step) -> WaitReason {
    match step {
        Step::Wait { reason, .. } => reason,
        other => panic!("{other:?} is no wait"),
    }
}

#[rstest]
#[case(ProvisioningState::None, json!({}), Step::Transition(ProvisioningState::Registering))]
#[case(ProvisioningState::None, json!({"spec": {"bmc": null}}), Step::Transition(ProvisioningState::Unmanaged))]
#[case(ProvisioningState::Unmanaged, json!({}), Step::Transition(ProvisioningState::Registering))]
#[case(ProvisioningState::Registering, json!({}), Step::Transition(ProvisioningState::Inspecting))]
#[case(ProvisioningState::Registering, json!({"spec": {"inspectionMode": "disabled"}}), Step::Transition(ProvisioningState::Preparing))]
#[case(ProvisioningState::Registering, json!({"metadata": {"annotations": {"inspect.metal3.io": "disabled"}}}), Step::Transition(ProvisioningState::Preparing))]
#[case(ProvisioningState::Registering, json!({"spec": {"externallyProvisioned": true}}), Step::Transition(ProvisioningState::ExternallyProvisioned))]
#[case(ProvisioningState::MatchProfile, json!({}), Step::Transition(ProvisioningState::Preparing))]
#[case(ProvisioningState::Inspecting, json!({}), Step::Act(Action::Inspect { again: false, reboot: false }))]
#[case(ProvisioningState::Inspecting, json!({"metadata": {"annotations": {"reboot.metal3.io": "{\"force\":true}"}}}), Step::Act(Action::Inspect { again: false, reboot: true }))]
#[case(ProvisioningState::Inspecting, json!({"spec": {"inspectionMode": "disabled"}}), Step::Transition(ProvisioningState::Preparing))]
#[case(ProvisioningState::Inspecting, json!({"metadata": {"annotations": {"inspect.metal3.io": "disabled"}}}), Step::Transition(ProvisioningState::Preparing))]
#[case(ProvisioningState::Preparing, json!({}), Step::Act(Action::Prepare))]
#[case(ProvisioningState::Available, json!({"metadata": {"annotations": {"inspect.metal3.io": ""}}}), Step::Transition(ProvisioningState::Inspecting))]
#[case(ProvisioningState::Available, json!({"spec": {"externallyProvisioned": true}}), Step::Transition(ProvisioningState::ExternallyProvisioned))]
#[case(ProvisioningState::Available, json!({"spec": {"image": image("http://a")}}), Step::Transition(ProvisioningState::Provisioning))]
#[case(ProvisioningState::Ready, json!({"spec": {"image": image("http://a")}}), Step::Transition(ProvisioningState::Provisioning))]
#[case(ProvisioningState::Available, json!({"spec": {"customDeploy": {"method": "m"}}}), Step::Transition(ProvisioningState::Provisioning))]
#[case(ProvisioningState::Available, json!({"spec": {"image": image("http://a"), "online": false}}), Step::Act(Action::PowerOff(RebootMode::Soft)))]
#[case(ProvisioningState::Provisioning, json!({"spec": {"image": image("http://a")}}), Step::Act(Action::Provision { reboot: false }))]
#[case(ProvisioningState::Provisioning, json!({}), Step::Transition(ProvisioningState::Deprovisioning))]
#[case(ProvisioningState::Provisioned, json!({}), Step::Transition(ProvisioningState::Deprovisioning))]
#[case(ProvisioningState::Provisioned, json!({"spec": {"image": image("http://b")}, "status": {"provisioning": {"image": image("http://a")}}}), Step::Transition(ProvisioningState::Deprovisioning))]
#[case(ProvisioningState::Provisioned, json!({"spec": {"customDeploy": {"method": "b"}}, "status": {"provisioning": {"customDeploy": {"method": "a"}}}}), Step::Transition(ProvisioningState::Deprovisioning))]
#[case(ProvisioningState::ExternallyProvisioned, json!({}), Step::Transition(ProvisioningState::Provisioned))]
#[case(ProvisioningState::Deprovisioning, json!({}), Step::Act(Action::Deprovision))]
#[case(ProvisioningState::PoweringOffBeforeDelete, json!({}), Step::Act(Action::PowerOffForGood))]
#[case(ProvisioningState::Deleting, json!({}), Step::Act(Action::Forget))]
fn each_state_leads_on(#[case] state: ProvisioningState, #[case] fields: Value, #[case] wanted: Step) {
    assert_eq!(step(&host(state, &fields), &facts()), wanted);
}

#[rstest]
#[case(ProvisioningState::Provisioned, with_image("http://a"))]
#[case(ProvisioningState::Available, json!({}))]
#[case(ProvisioningState::ExternallyProvisioned, json!({"spec": {"externallyProvisioned": true}}))]
fn a_host_that_is_as_it_shall_be_is_looked_at_every_minute(#[case] state: ProvisioningState, #[case] fields: Value) {
    let until = start().checked_add(SignedDuration::from_secs(60)).ok();
    assert_eq!(step(&host(state, &fields), &facts()), Step::Wait { reason: WaitReason::Steady, until });
}

/// Action that is done, state it is done in, state that follows.
#[rstest]
#[case(Action::Inspect { again: false, reboot: false }, ProvisioningState::Inspecting, ProvisioningState::Preparing)]
#[case(Action::Prepare, ProvisioningState::Preparing, ProvisioningState::Available)]
#[case(Action::Provision { reboot: false }, ProvisioningState::Provisioning, ProvisioningState::Provisioned)]
#[case(Action::Deprovision, ProvisioningState::Deprovisioning, ProvisioningState::Available)]
#[case(Action::PowerOffForGood, ProvisioningState::PoweringOffBeforeDelete, ProvisioningState::Deleting)]
fn what_is_done_leads_on(#[case] action: Action, #[case] state: ProvisioningState, #[case] next: ProvisioningState) {
    let host = host(state, &failed("inspection error", 2));
    let outcome = conclude(&host, &facts(), &action, &Report::Done);
    assert_eq!(outcome.step, Step::Transition(next));
    let status = apply(&host, &outcome, start());
    assert_eq!((status.error_count, status.error_type, status.provisioning.state), (0, None, next));
}

#[rstest]
#[case(ProvisioningState::None, Step::Transition(ProvisioningState::Deleting))]
#[case(ProvisioningState::Unmanaged, Step::Transition(ProvisioningState::Deleting))]
#[case(ProvisioningState::Registering, Step::Transition(ProvisioningState::Deleting))]
#[case(ProvisioningState::MatchProfile, Step::Transition(ProvisioningState::PoweringOffBeforeDelete))]
#[case(ProvisioningState::Inspecting, Step::Transition(ProvisioningState::PoweringOffBeforeDelete))]
#[case(ProvisioningState::Preparing, Step::Transition(ProvisioningState::PoweringOffBeforeDelete))]
#[case(ProvisioningState::Ready, Step::Transition(ProvisioningState::PoweringOffBeforeDelete))]
#[case(ProvisioningState::Available, Step::Transition(ProvisioningState::PoweringOffBeforeDelete))]
#[case(ProvisioningState::Provisioning, Step::Transition(ProvisioningState::Deprovisioning))]
#[case(ProvisioningState::Provisioned, Step::Transition(ProvisioningState::Deprovisioning))]
#[case(ProvisioningState::ExternallyProvisioned, Step::Transition(ProvisioningState::PoweringOffBeforeDelete))]
#[case(ProvisioningState::Deprovisioning, Step::Act(Action::Deprovision))]
#[case(ProvisioningState::PoweringOffBeforeDelete, Step::Act(Action::PowerOffForGood))]
#[case(ProvisioningState::Deleting, Step::Act(Action::Forget))]
fn each_state_can_be_deleted_from(#[case] state: ProvisioningState, #[case] wanted: Step) {
    let host = deleted(state, &with_image("http://a"));
    assert_eq!(step(&host, &facts()), wanted);
    // A lost BMC does not hold a deletion up for ever.
    let lost = deleted(state, &failed("registration error", 4));
    if matches!(state, ProvisioningState::Deprovisioning | ProvisioningState::PoweringOffBeforeDelete) {
        assert_eq!(step(&lost, &facts()), Step::Transition(ProvisioningState::Deleting));
    }
}

#[rstest]
fn a_detached_host_is_deleted_at_once_from_any_state(
    #[values(true, false)] ironic_answers: bool,
    #[values("", "true", "{\"deleteAction\":\"delete\"}")] value: &str,
) {
    let mut facts = facts();
    facts.credentials = BmcSecret::Missing("gone".into());
    if !ironic_answers {
        facts.ironic = away(90);
    }
    for state in ProvisioningState::ALL {
        let mut host = deleted(state, &detached(value));
        if state != ProvisioningState::Deleting {
            let outcome = decide(&host, &facts);
            assert_eq!(outcome.step, Step::Transition(ProvisioningState::Deleting), "{state}");
            host.status = Some(apply(&host, &outcome, facts.now));
        }
        let wanted = if ironic_answers { Step::Act(Action::Forget) } else { Step::Deleted };
        assert_eq!(step(&host, &facts), wanted, "{state}");
    }
}

#[test]
fn a_detached_host_can_be_kept_until_it_is_attached_again() {
    let fields = json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": "{\"deleteAction\":\"delay\"}"}},
        "status": {"operationalStatus": "detached"}});
    let host = deleted(ProvisioningState::Provisioned, &fields);
    assert_eq!(reason(step(&host, &facts())), WaitReason::DetachedDeleteDelayed);
}

#[test]
fn hosts_are_detached_where_nothing_is_being_done_with_them_or_by_force() {
    for state in ProvisioningState::ALL {
        let idle = matches!(
            state,
            ProvisioningState::Provisioned
                | ProvisioningState::ExternallyProvisioned
                | ProvisioningState::Ready
                | ProvisioningState::Available
        );
        let plain = step(&host(state, &detached("")), &facts());
        assert_eq!(plain == Step::Act(Action::Detach), idle, "{state}");
        let forced = step(&host(state, &detached("{\"force\":true}")), &facts());
        assert_eq!(forced == Step::Act(Action::Detach), state != ProvisioningState::Deleting, "{state}");
    }
    let gone = host(ProvisioningState::Provisioned, &with_image("http://a"));
    let outcome = conclude(&gone, &facts(), &Action::Detach, &Report::Unknown);
    assert_eq!(apply(&gone, &outcome, start()).operational_status, OperationalStatus::Detached);
    let back = host(ProvisioningState::Provisioned, &json!({"status": {"operationalStatus": "detached"}}));
    let outcome = decide(&back, &facts());
    assert_eq!(outcome.step, Step::Again);
    assert_eq!(apply(&back, &outcome, start()).operational_status, OperationalStatus::Ok);
}

#[test]
fn nothing_is_done_with_a_paused_host() {
    for state in ProvisioningState::ALL {
        let paused = json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": "metal3.io/capm3"}}});
        for host in [host(state, &paused), deleted(state, &paused)] {
            assert_eq!(step(&host, &facts()), Step::Wait { reason: WaitReason::Paused, until: None });
        }
    }
}

#[test]
fn told_hardware_counts_where_inspection_is_off_and_nothing_was_found() {
    let annotation = json!({"inspect.metal3.io/hardwaredetails": "{\"ramMebibytes\":1}"});
    let told = json!({"metadata": {"annotations": annotation}, "spec": {"inspectionMode": "disabled"}});
    assert_eq!(step(&host(ProvisioningState::Registering, &told), &facts()), Step::Act(Action::SaveHardwareDetails));
    // What is kept beside it counts where nothing is told.
    let kept = Facts { hardware: Some(HardwareDetails::default()), ..facts() };
    let silent = host(ProvisioningState::Registering, &json!({"spec": {"inspectionMode": "disabled"}}));
    let outcome = decide(&silent, &kept);
    assert_eq!((outcome.step, outcome.changes), (Step::Again, vec![Change::Hardware(Box::default())]));
    let inspected = host(ProvisioningState::Registering, &json!({}));
    assert_eq!(step(&inspected, &kept), Step::Transition(ProvisioningState::Inspecting));
    let found = json!({"metadata": {"annotations": annotation}, "status": {"hardware": {}}});
    let remove = Step::Act(Action::RemoveAnnotation("inspect.metal3.io/hardwaredetails"));
    assert_eq!(step(&host(ProvisioningState::Available, &found), &facts()), remove);
}

#[test]
fn the_finalizer_comes_first_and_goes_last() {
    let bare = json!({"metadata": {"finalizers": []}});
    assert_eq!(step(&host(ProvisioningState::None, &bare), &facts()), Step::Act(Action::AddFinalizer));
    assert_eq!(step(&deleted(ProvisioningState::None, &bare), &facts()), Step::Deleted);
}

#[test]
fn credentials_that_change_are_tried_at_once() {
    let mut facts = facts();
    facts.credentials = BmcSecret::Found(secret("2"));
    for state in [
        ProvisioningState::Registering,
        ProvisioningState::Available,
        ProvisioningState::Provisioned,
        ProvisioningState::Deprovisioning,
    ] {
        for fields in [json!({}), failed("registration error", 9)] {
            let host = host(state, &fields);
            let outcome = decide(&host, &facts);
            assert_eq!(outcome.step, Step::Act(Action::Register), "{state}");
            let status = apply(&host, &outcome, start());
            let tried = status.tried_credentials.and_then(|tried| tried.credentials_version);
            assert_eq!(tried.as_deref(), Some("2"));
        }
    }
    let host = host(ProvisioningState::Registering, &failed("registration error", 3));
    let outcome = conclude(&host, &facts, &Action::Register, &Report::Done);
    let status = apply(&host, &outcome, start());
    assert_eq!((outcome.step, status.error_type, status.error_count), (Step::Again, None, 0));
    assert_eq!(status.good_credentials.and_then(|good| good.credentials_version).as_deref(), Some("2"));
}

#[test]
fn credentials_that_are_not_there_are_waited_for_and_told_once() {
    let mut facts = facts();
    facts.credentials = BmcSecret::Missing("secret `secret` not found".into());
    let mut host = host(ProvisioningState::Registering, &json!({}));
    let outcome = decide(&host, &facts);
    assert_eq!(reason(outcome.step.clone()), WaitReason::NoCredentials("secret `secret` not found".into()));
    host.status = Some(apply(&host, &outcome, start()));
    assert_eq!(host.status.as_ref().map(|status| status.error_count), Some(1));
    assert_eq!(decide(&host, &facts).changes, []);
    facts.credentials = BmcSecret::Bad("Missing BMC connection detail 'username' in credentials".into());
    assert!(matches!(step(&host, &facts), Step::Wait { reason: WaitReason::BadCredentials(_), until: None }));
    // A deletion needs none.
    facts.credentials = BmcSecret::Missing("gone".into());
    let leaving = deleted(ProvisioningState::Deprovisioning, &json!({}));
    assert_eq!(step(&leaving, &facts), Step::Act(Action::Deprovision));
    let outcome = conclude(&leaving, &facts, &Action::Deprovision, &Report::Unknown);
    assert_eq!(outcome.step, Step::Transition(ProvisioningState::Deleting));
}

#[test]
fn a_host_that_ironic_lost_is_registered_and_adopted_without_a_reboot() {
    let mut facts = facts();
    facts.registered = false;
    facts.adopted = false;
    let host = host(ProvisioningState::Provisioned, &with_image("http://a"));
    assert_eq!(step(&host, &facts), Step::Act(Action::Register));
    facts.registered = true;
    assert_eq!(step(&host, &facts), Step::Act(Action::Adopt));
    facts.adopted = true;
    assert_eq!(reason(step(&host, &facts)), WaitReason::Steady);
    let unknown = conclude(&host, &facts, &Action::PowerOn, &Report::Unknown);
    assert_eq!(unknown.step, Step::Again);
    let outcome = conclude(&host, &facts, &Action::Adopt, &Report::Failed("no".into()));
    assert_eq!(reason(outcome.step), WaitReason::Failed(ErrorType::ProvisionedRegistration));
}

#[test]
fn a_wait_after_an_error_ends_in_time_or_with_a_change() {
    let host = host(ProvisioningState::Preparing, &failed("preparation error", 3));
    let mut later = facts();
    let until = start().checked_add(SignedDuration::from_mins(8)).expect("a moment");
    let wait = Step::Wait { reason: WaitReason::Failed(ErrorType::Preparation), until: Some(until) };
    assert_eq!(step(&host, &later), wait);
    later.now = until;
    assert_eq!(step(&host, &later), Step::Act(Action::Prepare));
    let mut changed = facts();
    changed.failed_generation = Some(0);
    assert_eq!(step(&host, &changed), Step::Act(Action::Prepare));
    // Not known what the error was about: no reason to hurry.
    changed.failed_generation = None;
    assert_eq!(step(&host, &changed), wait);
}

#[rstest]
#[case(Action::Register, ProvisioningState::Registering, ErrorType::Registration)]
#[case(Action::Register, ProvisioningState::Provisioned, ErrorType::ProvisionedRegistration)]
#[case(Action::Inspect { again: false, reboot: false }, ProvisioningState::Inspecting, ErrorType::Inspection)]
#[case(Action::Prepare, ProvisioningState::Preparing, ErrorType::Preparation)]
#[case(Action::Deprovision, ProvisioningState::Deprovisioning, ErrorType::Provisioning)]
#[case(Action::PowerOn, ProvisioningState::Available, ErrorType::PowerManagement)]
#[case(Action::Detach, ProvisioningState::Available, ErrorType::Detach)]
fn a_failure_is_counted_and_tried_again(
    #[case] action: Action,
    #[case] state: ProvisioningState,
    #[case] kind: ErrorType,
) {
    let host = host(state, &json!({}));
    let outcome = conclude(&host, &facts(), &action, &Report::Failed("BMC says no".into()));
    let until = start().checked_add(SignedDuration::from_mins(2)).ok();
    assert_eq!(outcome.step, Step::Wait { reason: WaitReason::Failed(kind), until });
    let status = apply(&host, &outcome, start());
    assert_eq!((status.error_type, status.error_count), (Some(kind), 1));
    assert_eq!((status.operational_status, &*status.error_message), (OperationalStatus::Error, "BMC says no"));
}

#[test]
fn a_deletion_gives_up_cleaning_and_powering_off_after_three_tries() {
    let no = Report::Failed("no".into());
    for (action, state, next) in [
        (Action::Deprovision, ProvisioningState::Deprovisioning, ProvisioningState::PoweringOffBeforeDelete),
        (Action::PowerOffForGood, ProvisioningState::PoweringOffBeforeDelete, ProvisioningState::Deleting),
    ] {
        let patient = conclude(&deleted(state, &failed("provisioning error", 2)), &facts(), &action, &no);
        assert!(matches!(patient.step, Step::Wait { .. }));
        let over = conclude(&deleted(state, &failed("provisioning error", 3)), &facts(), &action, &no);
        assert_eq!(over.step, Step::Transition(next));
        let not_deleted = conclude(&host(state, &failed("provisioning error", 9)), &facts(), &action, &no);
        assert!(matches!(not_deleted.step, Step::Wait { .. }));
    }
}

/// One decision after the other, as the executor makes them, until something is waited for.
fn run(
    host: &mut BareMetalHost,
    facts: &Facts,
    report: impl Fn(&Action) -> Report,
) -> (Vec<ProvisioningState>, WaitReason) {
    let mut way = Vec::new();
    for _ in 0..100 {
        let mut outcome = decide(host, facts);
        loop {
            host.status = Some(apply(host, &outcome, facts.now));
            match outcome.step {
                Step::Transition(next) => way.push(next),
                Step::Wait { reason, .. } => return (way, reason),
                Step::Act(Action::RemoveAnnotation(name)) => {
                    host.metadata.annotations.get_or_insert_default().remove(name);
                }
                Step::Act(action) => {
                    outcome = conclude(host, facts, &action, &report(&action));
                    continue;
                }
                Step::Again => {}
                Step::Deleted => panic!("deleted"),
            }
            break;
        }
    }
    panic!("no end: {way:?}");
}

#[test]
fn a_new_host_gets_its_image() {
    let new = json!({"spec": {"image": image("http://a")}, "status": null});
    let mut host = host(ProvisioningState::None, &new);
    let (way, end) = run(&mut host, &facts(), |_| Report::Done);
    let wanted = [
        ProvisioningState::Registering,
        ProvisioningState::Inspecting,
        ProvisioningState::Preparing,
        ProvisioningState::Available,
        ProvisioningState::Provisioning,
        ProvisioningState::Provisioned,
    ];
    assert_eq!((way.as_slice(), end), (&wanted[..], WaitReason::Steady));
    let status = host.status.expect("a status");
    assert_eq!(status.provisioning.image, host.spec.image);
    let history = status.operation_history.expect("a history");
    for metric in [history.register, history.inspect, history.provision] {
        assert_eq!(metric.and_then(|metric| metric.end?.0).map(|end| end.0), Some(start()));
    }
}

#[test]
fn an_image_that_cannot_be_written_is_given_up_until_it_changes() {
    let mut host = host(ProvisioningState::Available, &json!({"spec": {"image": image("http://bad")}}));
    let report = |action: &Action| match action {
        Action::Provision { .. } => Report::Failed("checksum mismatch".into()),
        _ => Report::Done,
    };
    let (way, end) = run(&mut host, &facts(), report);
    assert_eq!(end, WaitReason::GaveUp { tries: 5 });
    assert_eq!(way.len(), 15, "{way:?}");
    let status = host.status.clone().expect("a status");
    assert_eq!(status.provisioning_fail_count, 5);
    assert_eq!(status.error_message, "checksum mismatch (image http://bad, checksum abc)");
    assert_eq!(status.operational_status, OperationalStatus::Error);
    // Another image is tried at once.
    host.spec.image = Some(Image { url: "http://good".into(), ..Image::default() });
    let (way, end) = run(&mut host, &facts(), |_| Report::Done);
    assert_eq!(
        (way.as_slice(), end),
        (&[ProvisioningState::Provisioning, ProvisioningState::Provisioned][..], WaitReason::Steady)
    );
    let status = host.status.expect("a status");
    assert_eq!((status.provisioning_fail_count, status.error_type), (0, None));
}

#[test]
fn a_host_that_cannot_be_cleaned_is_never_powered_on() {
    let mut host = host(ProvisioningState::Deprovisioning, &json!({}));
    let mut facts = facts();
    for _ in 0..20 {
        let (way, end) = run(&mut host, &facts, |action| {
            assert_eq!(*action, Action::Deprovision);
            Report::Failed("cleaning failed".into())
        });
        assert_eq!((way, end), (Vec::new(), WaitReason::Failed(ErrorType::Provisioning)));
        facts.now = facts.now.checked_add(SignedDuration::from_hours(9)).expect("a moment");
    }
}

#[test]
fn only_so_many_hosts_are_worked_on() {
    let mut none = facts();
    none.slot = Slot::None;
    let table = vec![
        host(ProvisioningState::Registering, &json!({})),
        host(ProvisioningState::Inspecting, &json!({})),
        host(ProvisioningState::Available, &json!({"spec": {"image": image("http://a")}})),
        host(ProvisioningState::Provisioning, &json!({"spec": {"image": image("http://a")}})),
        host(ProvisioningState::Provisioned, &json!({})),
        host(ProvisioningState::Deprovisioning, &json!({})),
        deleted(ProvisioningState::Provisioned, &json!({})),
    ];
    for mut host in table {
        let outcome = decide(&host, &none);
        let until = start().checked_add(SignedDuration::from_mins(2)).ok();
        assert_eq!(outcome.step, Step::Wait { reason: WaitReason::NoSlot, until });
        host.status = Some(apply(&host, &outcome, start()));
        assert_eq!(host.status.as_ref().map(|it| it.operational_status), Some(OperationalStatus::Delayed));
        assert_eq!(decide(&host, &none).changes, [], "told once");
        for slot in [Slot::Free, Slot::Held] {
            let outcome = decide(&host, &Facts { slot, ..facts() });
            assert!(!matches!(outcome.step, Step::Wait { .. }));
            assert_eq!(apply(&host, &outcome, start()).operational_status, OperationalStatus::Ok);
        }
    }
    // What needs no slot goes on.
    assert_eq!(step(&host(ProvisioningState::Preparing, &json!({})), &none), Step::Act(Action::Prepare));
}

/// State, annotations, other fields, whether it is on, step.
#[rstest]
#[case(ProvisioningState::Provisioned, json!({}), true, json!({}), None)]
#[case(ProvisioningState::Provisioned, json!({}), false, json!({}), Some(Action::PowerOn))]
#[case(ProvisioningState::Provisioned, json!({"online": false}), true, json!({}), Some(Action::PowerOff(RebootMode::Soft)))]
#[case(ProvisioningState::Provisioned, json!({"online": false}), false, json!({}), None)]
#[case(ProvisioningState::Provisioned, json!({}), true, json!({"reboot.metal3.io": ""}), Some(Action::PowerOff(RebootMode::Soft)))]
#[case(ProvisioningState::Provisioned, json!({}), true, json!({"reboot.metal3.io": "{\"mode\":\"hard\"}"}), Some(Action::PowerOff(RebootMode::Hard)))]
#[case(ProvisioningState::Provisioned, json!({}), true, json!({"reboot.metal3.io": "?!"}), Some(Action::PowerOff(RebootMode::Soft)))]
#[case(ProvisioningState::Provisioned, json!({}), false, json!({"reboot.metal3.io": ""}), Some(Action::RemoveAnnotation("reboot.metal3.io")))]
#[case(ProvisioningState::Provisioned, json!({}), true, json!({"reboot.metal3.io/a": ""}), Some(Action::PowerOff(RebootMode::Soft)))]
#[case(ProvisioningState::Provisioned, json!({}), true, json!({"reboot.metal3.io/a": "", "reboot.metal3.io/b": "{\"mode\":\"hard\"}"}), Some(Action::PowerOff(RebootMode::Hard)))]
#[case(ProvisioningState::Provisioned, json!({"disablePowerOff": true}), true, json!({"reboot.metal3.io": ""}), Some(Action::Reboot(RebootMode::Soft)))]
#[case(ProvisioningState::Provisioned, json!({"disablePowerOff": true}), true, json!({"reboot.metal3.io/a": ""}), None)]
#[case(ProvisioningState::Available, json!({}), true, json!({"reboot.metal3.io": ""}), None)]
#[case(ProvisioningState::Available, json!({}), true, json!({"reboot.metal3.io": "{\"force\":true}"}), Some(Action::PowerOff(RebootMode::Soft)))]
fn power_follows_online_and_the_reboot_annotations(
    #[case] state: ProvisioningState,
    #[case] spec: Value,
    #[case] on: bool,
    #[case] annotations: Value,
    #[case] wanted: Option<Action>,
) {
    let mut host = host(state, &json!({"metadata": {"annotations": annotations}, "spec": spec}));
    if state == ProvisioningState::Provisioned {
        let image = Some(Image { url: "http://a".into(), ..Image::default() });
        host.spec.image.clone_from(&image);
        host.status.get_or_insert_default().provisioning.image = image;
    }
    let step = step(&host, &Facts { powered_on: Some(on), ..facts() });
    match wanted {
        Some(action) => assert_eq!(step, Step::Act(action)),
        None => assert_eq!(reason(step), WaitReason::Steady),
    }
}

#[test]
fn clients_hold_a_host_off_until_the_last_one_lets_go() {
    let annotations = json!({"reboot.metal3.io/a": "", "reboot.metal3.io/b": ""});
    let mut host = host(ProvisioningState::Provisioned, &with_image("http://a"));
    host.metadata.annotations = serde_json::from_value(annotations).expect("annotations");
    let off = Facts { powered_on: Some(false), ..facts() };
    for left in [vec!["a", "b"], vec!["b"]] {
        let names = left.iter().map(ToString::to_string).collect();
        assert_eq!(reason(step(&host, &off)), WaitReason::HeldOff(names));
        host.metadata.annotations.get_or_insert_default().remove(&format!("reboot.metal3.io/{}", left[0]));
    }
    assert_eq!(step(&host, &off), Step::Act(Action::PowerOn));
}

#[test]
fn a_soft_power_off_that_failed_is_followed_by_a_hard_one() {
    let mut fields = failed("power management error", 1);
    fields["spec"] = json!({"online": false});
    let host = host(ProvisioningState::Available, &fields);
    let later = start().checked_add(SignedDuration::from_mins(3)).expect("a moment");
    let facts = Facts { now: later, ..facts() };
    assert_eq!(step(&host, &facts), Step::Act(Action::PowerOff(RebootMode::Hard)));
}

#[test]
fn a_status_without_changes_stays_the_same() {
    let host = host(ProvisioningState::Provisioned, &with_image("http://a"));
    let outcome = decide(&host, &facts());
    let status: BareMetalHostStatus = apply(&host, &outcome, start());
    assert_eq!(Some(status), host.status);
}
