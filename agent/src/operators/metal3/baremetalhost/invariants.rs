//! What holds whatever a host and its surroundings are like, tried with some ten thousands of them.

use agent_api::metal3::annotations::RebootMode;
use agent_api::metal3::{BareMetalHost, ProvisioningState};
use serde_json::{Value, json};

use super::tests::{away, deleted, facts, failed, host, image, start, with_image};
use super::*;

fn hosts() -> Vec<BareMetalHost> {
    let annotations = [
        json!({}),
        json!({"baremetalhost.metal3.io/paused": ""}),
        json!({"baremetalhost.metal3.io/detached": ""}),
        json!({"baremetalhost.metal3.io/detached": "{\"deleteAction\":\"delay\",\"force\":true}"}),
        json!({"reboot.metal3.io": "", "reboot.metal3.io/client": "{\"mode\":\"hard\",\"force\":true}"}),
        json!({"inspect.metal3.io": ""}),
    ];
    let specs = [
        json!({}),
        with_image("http://a"),
        json!({"spec": {"image": image("http://b"), "online": false}}),
        json!({"spec": {"externallyProvisioned": true, "disablePowerOff": true}}),
    ];
    let troubles = [
        json!({}),
        failed("registration error", 1),
        failed("power management error", 9),
        failed("provisioning error", 0),
        failed("servicing error", 1),
        json!({"status": {"operationalStatus": "detached"}}),
    ];
    let mut all = Vec::new();
    for state in ProvisioningState::ALL {
        for annotations in &annotations {
            for spec in &specs {
                for trouble in &troubles {
                    let mut both = trouble.clone();
                    both["metadata"] = json!({"annotations": annotations});
                    both["spec"] = spec["spec"].clone();
                    if both["spec"].is_null() {
                        both["spec"] = json!({});
                    }
                    if let Some(provisioning) = spec["status"].get("provisioning") {
                        merge_provisioning(&mut both, provisioning);
                    }
                    all.extend([host(state, &both), deleted(state, &both)]);
                }
            }
        }
    }
    all
}

fn merge_provisioning(host: &mut Value, provisioning: &Value) {
    if host.get("status").is_none() {
        host["status"] = json!({});
    }
    host["status"]["provisioning"] = provisioning.clone();
}

fn surroundings() -> Vec<Facts> {
    let found = facts().credentials;
    let mut all = Vec::new();
    for ironic in [Ironic::Ready, away(0), away(90)] {
        for credentials in [found.clone(), BmcSecret::Missing("gone".into()), BmcSecret::Bad("no user".into())] {
            for slot in [Slot::Free, Slot::None] {
                let none = Standing::default();
                let asked = Standing { wish: Wish::Service, changed: true, servicing: false };
                for (powered_on, firmware) in
                    [(Some(true), none), (Some(false), none), (Some(false), asked), (None, none)]
                {
                    let (ironic, credentials) = (ironic.clone(), credentials.clone());
                    all.push(Facts { credentials, ironic, slot, firmware, powered_on, ..facts() });
                }
            }
        }
    }
    all
}

/// Runs a check on each host in each of its surroundings.
fn everywhere(check: impl Fn(&BareMetalHost, &Facts, &Outcome)) {
    let surroundings = surroundings();
    for host in hosts() {
        for facts in &surroundings {
            check(&host, facts, &decide(&host, facts));
        }
    }
}

/// No busy loop: what is waited for lies ahead, and the status that tells of it is written once.
#[test]
fn a_wait_ends_later_and_is_told_once() {
    everywhere(|host, facts, outcome| {
        let Step::Wait { until, .. } = &outcome.step else { return };
        assert!(until.is_none_or(|until| until > facts.now), "{host:?} {facts:?}");
        let mut told = host.clone();
        told.status = Some(apply(host, outcome, facts.now));
        let again = decide(&told, facts);
        assert_eq!(again.changes, [], "{outcome:?}\n{host:?}\n{facts:?}");
        assert!(matches!(again.step, Step::Wait { .. }), "{outcome:?} -> {again:?}\n{host:?}\n{facts:?}");
    });
}

#[test]
fn without_ironic_nothing_is_asked_of_it() {
    everywhere(|host, facts, outcome| {
        let Step::Act(action) = &outcome.step else { return };
        let own = matches!(
            action,
            Action::RestoreStatus | Action::SaveHardwareDetails | Action::AddFinalizer | Action::RemoveAnnotation(_)
        );
        assert!(own || facts.ironic == Ironic::Ready, "{action:?}: {host:?}");
    });
}

#[test]
fn without_a_slot_no_host_is_worked_on() {
    everywhere(|host, facts, outcome| {
        let works = matches!(
            outcome.step,
            Step::Transition(
                ProvisioningState::Inspecting | ProvisioningState::Provisioning | ProvisioningState::Deprovisioning
            ) | Step::Act(Action::Inspect { .. } | Action::Provision { .. } | Action::Deprovision)
        );
        assert!(!works || facts.slot != Slot::None, "{host:?}");
    });
}

/// An old operating system must not come back: power is only given to hosts that have what they shall have.
#[test]
fn hosts_are_powered_on_in_steady_states_only() {
    everywhere(|host, _, outcome| {
        if matches!(outcome.step, Step::Act(Action::PowerOn | Action::Reboot(_))) {
            let steady = [
                ProvisioningState::Ready,
                ProvisioningState::Available,
                ProvisioningState::Provisioned,
                ProvisioningState::ExternallyProvisioned,
            ]
            .contains(&host.state());
            assert!(steady && host.metadata.deletion_timestamp.is_none(), "{outcome:?}: {host:?}");
        }
    });
}

#[test]
fn nothing_is_powered_off_that_may_not_be() {
    everywhere(|host, _, outcome| {
        let off = matches!(outcome.step, Step::Act(Action::PowerOff(RebootMode::Soft | RebootMode::Hard)));
        assert!(!off || host.spec.disable_power_off != Some(true), "{host:?}");
    });
}

/// A deletion comes to an end, whatever Ironic says, as long as it says something.
#[test]
fn deletions_end() {
    for report in [Report::Done, Report::Failed("no".into()), Report::Unknown] {
        for host in hosts() {
            let kept = host.metadata.annotations.iter().flatten().any(|(name, value)| {
                name.ends_with("/paused") || name.ends_with("/detached") && value.contains("delay")
            });
            if host.metadata.deletion_timestamp.is_some() && !kept {
                assert!(ends(host.clone(), &report), "{report:?} {host:?}");
            }
        }
    }
}

/// One decision after the other, each wait over at once, at most a hundred.
fn ends(mut host: BareMetalHost, report: &Report) -> bool {
    let mut facts = Facts { now: start(), ..facts() };
    for _ in 0..100 {
        let mut outcome = decide(&host, &facts);
        host.status = Some(apply(&host, &outcome, facts.now));
        if let Step::Act(action) = outcome.step.clone() {
            // A host that Ironic does not know is registered first, in vain; being forgotten does not fail.
            facts.registered &= *report != Report::Unknown;
            let no = Report::Failed("no".into());
            let report = match (&action, report) {
                (Action::Forget, _) => &Report::Done,
                (Action::Register, Report::Unknown) => &no,
                (_, report) => report,
            };
            outcome = conclude(&host, &facts, &action, report);
            host.status = Some(apply(&host, &outcome, facts.now));
        }
        match outcome.step {
            Step::Deleted => return true,
            Step::Wait { until, .. } => facts.now = until.unwrap_or(facts.now),
            Step::Transition(_) | Step::Act(_) | Step::Again => {}
        }
    }
    false
}
