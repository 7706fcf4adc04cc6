use agent_api::metal3::{BareMetalHost, ConditionStatus, ProvisioningState};
use serde_json::json;

use super::super::tests::{facts, host, start, with_image};
use super::super::{Facts, Ironic, Report, apply, conclude, decide};
use super::{Action, Node, Seen, Trouble, conditions, failed_generation, reached};

fn shows(what: &str) -> Seen {
    Seen { shown: Some(what.to_owned()), ..Seen::default() }
}

/// How far it is says Ironic; while it has no time to say so, what was told stays.
#[test]
fn what_is_waited_for_is_told_while_ironic_is_busy() {
    let before = told(&host(ProvisioningState::Inspecting, &json!({})), None);
    let outcome = decide(&before, &Facts { ironic: Ironic::Busy, ..facts() });
    let status = apply(&before, &outcome, start());
    let later = start() + jiff::SignedDuration::from_secs(60);
    let conditions = conditions(&before, &status, &outcome, &Seen::default(), later);
    assert_eq!(Some(conditions), before.status.and_then(|status| status.conditions));
}

/// The time beside what is told is that of what is told.
#[test]
fn another_message_is_told_with_another_time() {
    let before = host(ProvisioningState::Inspecting, &json!({}));
    let outcome = conclude(
        &before,
        &facts(),
        &Action::Inspect { again: false, reboot: false },
        &Report::Continues(jiff::SignedDuration::ZERO),
    );
    let at = |seconds: i64| start() + jiff::SignedDuration::from_secs(seconds);
    let mut told = before.clone();
    let mut times = Vec::new();
    for (seconds, shown) in [(0, "asked DHCP"), (10, "asked DHCP"), (20, "fetches the ramdisk")] {
        let mut status = apply(&told, &outcome, at(seconds));
        let all = conditions(&told, &status, &outcome, &shows(shown), at(seconds));
        let one = |kind: &str| all.iter().find(|it| it.kind == kind).expect("told").last_transition_time.0;
        times.push((one("Progressing"), one("Healthy")));
        status.conditions = Some(all);
        told.status = Some(status);
    }
    assert_eq!(times, [(at(0), at(0)), (at(0), at(0)), (at(20), at(0))]);
}

/// The host with the status and the conditions of what was decided, or of what came of an action.
fn told(host: &BareMetalHost, done: Option<(&Action, &Report)>) -> BareMetalHost {
    let facts = facts();
    let outcome = done.map_or_else(|| decide(host, &facts), |(action, report)| conclude(host, &facts, action, report));
    let mut status = apply(host, &outcome, start());
    status.conditions = Some(conditions(host, &status, &outcome, &Seen::default(), start()));
    BareMetalHost { status: Some(status), ..host.clone() }
}

fn holds(host: &BareMetalHost, kind: &str) -> (bool, String, String) {
    let all = host.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let found = all.into_iter().find(|it| it.kind == kind).expect("a condition");
    (found.status == ConditionStatus::True, found.reason, found.message)
}

#[test]
fn a_steady_host_tells_the_same_again() {
    let first = told(&host(ProvisioningState::Available, &json!({})), None);
    for kind in ["Manageable", "AvailableForProvisioning", "Ready", "Healthy"] {
        assert!(holds(&first, kind).0, "{kind}");
    }
    assert_eq!(told(&first, None).status, first.status);
}

/// #194: what went wrong is told, and stays told while it is waited.
#[test]
fn an_error_is_told_with_the_generation_that_was_tried() {
    let host = host(ProvisioningState::Preparing, &json!({}));
    let failed = told(&host, Some((&Action::Prepare, &Report::Failed("no".into()))));
    let (healthy, reason, message) = holds(&failed, "Healthy");
    assert_eq!((healthy, &*reason, &*message), (false, "PreparationError", "no"));
    assert!(holds(&failed, "Progressing").2.starts_with("tried again at 2026-03-02T08:02:00Z"));
    assert_eq!(failed_generation(&failed), Some(1));
    // The user changes something: the error is still about what was tried, so that it is tried at once (#798).
    let mut changed = failed.clone();
    changed.metadata.generation = Some(2);
    assert_eq!(failed_generation(&changed), Some(1));
    let facts = super::super::Facts { failed_generation: failed_generation(&changed), ..facts() };
    assert_eq!(decide(&changed, &facts).step, super::Step::Act(Action::Prepare));
    let again = told(&changed, None);
    assert_eq!(failed_generation(&again), Some(1));
}

/// What a host shows is told as long as it is worked on, and written only when it shows something else.
#[test]
fn what_a_host_shows_is_told_and_the_same_again_is_no_news() {
    let host = host(ProvisioningState::Inspecting, &json!({}));
    let told = |host: &BareMetalHost, step: super::Step, shown: &str| {
        let outcome = super::Outcome { changes: Vec::new(), step };
        let mut status = apply(host, &outcome, start());
        status.conditions = Some(conditions(host, &status, &outcome, &shows(shown), start()));
        BareMetalHost { status: Some(status), ..host.clone() }
    };
    let action = || Action::Inspect { again: false, reboot: false };
    let wait = || super::Step::Wait { reason: super::WaitReason::Working(action()), until: Some(start()) };
    let on = told(&host, wait(), "powered on; no DHCP request yet");
    let (_, reason, message) = holds(&on, "Progressing");
    assert_eq!((&*reason, &*message), ("Inspecting", "powered on; no DHCP request yet"));
    let asked = told(&on, super::Step::Act(action()), "powered on; no DHCP request yet");
    assert_eq!(holds(&asked, "Progressing"), holds(&on, "Progressing"));
    assert_eq!(told(&on, wait(), "powered on; no DHCP request yet").status, on.status);
    assert_eq!(holds(&told(&on, wait(), "ramdisk is up"), "Progressing").2, "ramdisk is up");
}

/// A BMC that hangs or refuses comes first, whatever its ramdisk says; what it answered is forgotten when nothing waits
/// for it.
#[test]
fn what_is_wrong_with_a_bmc_is_told_while_something_waits_for_it() {
    let action = Action::Provision { reboot: false };
    let report = Report::Continues(jiff::SignedDuration::from_secs(10));
    let host = host(ProvisioningState::Provisioning, &json!({}));
    let silent = Trouble { word: "BMCAway", says: "no answer within 5.0 s".into(), hint: "restart the BMC".into() };
    let outcome = conclude(&host, &facts(), &action, &report);
    let tell = |host: &BareMetalHost, bmc: Option<Result<(), Trouble>>| {
        let mut status = apply(host, &outcome, start());
        let seen = Seen { shown: Some("ramdisk is up, heartbeat seen".into()), bmc, reached: None };
        status.conditions = Some(conditions(host, &status, &outcome, &seen, start()));
        BareMetalHost { status: Some(status), ..host.clone() }
    };
    let hangs = tell(&host, Some(Err(silent)));
    let (answers, reason, message) = holds(&hangs, "BMCAnswers");
    let said = "its BMC does not answer: no answer within 5.0 s; hint: restart the BMC";
    assert_eq!((answers, &*reason, &*message), (false, "BMCAway", said));
    assert_eq!(holds(&hangs, "Progressing").2, format!("{said}; ramdisk is up, heartbeat seen"));
    let again = tell(&hangs, Some(Ok(())));
    assert!(holds(&again, "BMCAnswers").0);
    assert_eq!(holds(&again, "Progressing").2, "ramdisk is up, heartbeat seen");
    let over = tell(&hangs, None).status.and_then(|status| status.conditions).unwrap_or_default();
    assert!(!over.iter().any(|it| it.kind == "BMCAnswers"), "{over:#?}");
}

/// What is under way is told in words, whether or not the host shows anything of it.
#[test]
fn what_is_being_done_never_goes_without_words() {
    let host = host(ProvisioningState::Provisioned, &json!({}));
    for action in [Action::Register, Action::Adopt, Action::PowerOn, Action::PowerOffForGood, Action::Forget] {
        let report = Report::Continues(jiff::SignedDuration::from_secs(10));
        let (on, reason, message) = holds(&told(&host, Some((&action, &report))), "Progressing");
        assert!(on && message.starts_with("Ironic is "), "{reason}: {message}");
    }
}

#[test]
fn a_wait_says_why() {
    let mut none = facts();
    none.slot = super::super::Slot::None;
    let waiting = host(ProvisioningState::Registering, &json!({}));
    let outcome = decide(&waiting, &none);
    let status = apply(&waiting, &outcome, start());
    let all = conditions(&waiting, &status, &outcome, &Seen::default(), start());
    let progressing = all.iter().find(|it| it.kind == "Progressing").expect("told");
    assert_eq!((progressing.status, &*progressing.reason), (ConditionStatus::False, "Delayed"));
    let gave_up = json!({"spec": {"image": {"url": "http://a"}}, "status": {"provisioningFailCount": 5,
        "lastAttemptedImage": {"url": "http://a"}}});
    let told = told(&host(ProvisioningState::Available, &gave_up), None);
    assert_eq!(holds(&told, "Progressing").1, "GaveUp");
}

/// As metal3 tells it, and until Ironic says something else.
#[test]
fn a_bmc_that_ironic_has_lost_is_told() {
    let lost = Node {
        fault: Some("power failure".to_owned()),
        maintenance_reason: Some("Timeout reached".to_owned()),
        ..Node::default()
    };
    assert_eq!((reached(&lost), reached(&Node::default())), (Err("Timeout reached".to_owned()), Ok(())));
    let tell = |host: &BareMetalHost, reached: Option<Result<(), String>>, powered_on: Option<bool>| {
        let outcome = decide(host, &Facts { powered_on, ..facts() });
        let mut status = apply(host, &outcome, start());
        status.conditions = Some(conditions(host, &status, &outcome, &Seen { reached, ..Seen::default() }, start()));
        BareMetalHost { status: Some(status), ..host.clone() }
    };
    let said = (false, "PowerFailure".to_owned(), "Ironic does not reach the host's BMC: Timeout reached".to_owned());
    for state in [ProvisioningState::Available, ProvisioningState::Provisioned] {
        let fields = if state == ProvisioningState::Available { json!({}) } else { with_image("http://a") };
        let fine = tell(&host(state, &fields), Some(Ok(())), Some(true));
        assert!(holds(&fine, "Manageable").0 && holds(&fine, "Ready").0);
        let gone = tell(&fine, Some(reached(&lost)), None);
        for kind in ["Manageable", "Ready"] {
            assert_eq!(holds(&gone, kind), said, "{state}: {kind}");
        }
        assert_eq!(
            (holds(&gone, "Progressing").1, holds(&gone, "Progressing").2),
            ("PowerUnknown".to_owned(), said.2.clone())
        );
        assert!(!holds(&gone, "AvailableForProvisioning").0);
        assert_eq!(holds(&tell(&gone, None, None), "Manageable"), said, "{state}: Ironic is away");
        assert!(holds(&tell(&gone, Some(Ok(())), Some(true)), "Ready").0, "{state}");
    }
}
