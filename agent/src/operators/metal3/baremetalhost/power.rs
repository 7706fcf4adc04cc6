//! Power of hosts that nothing else is done with.

use agent_api::metal3::annotations::{self, REBOOT, RebootMode, Reboots};
use agent_api::metal3::{ErrorType, OperationalStatus, ProvisioningState};
use jiff::SignedDuration;

use super::decide::{View, Wish};
use super::outcome::{Action, Change, Outcome, Step, WaitReason};

/// Until a host's power is looked at again.
const POLL: SignedDuration = SignedDuration::from_secs(60);
/// The same, while Ironic does not know it: it asks every BMC once a minute.
const UNKNOWN: SignedDuration = SignedDuration::from_secs(20);

/// Keeps a host as wanted: on, off, or rebooted once.
pub(super) fn steady(view: &View<'_>) -> Outcome {
    let installed = installed(view);
    if installed && !view.facts.adopted {
        return Outcome::act(Action::Adopt);
    }
    let begun = view.status.operational_status == OperationalStatus::Servicing
        || view.status.error_type == Some(ErrorType::Servicing);
    if installed && (begun || view.facts.firmware.servicing) {
        return service(view);
    }
    let Some(on) = view.facts.powered_on else {
        return Outcome::wait(WaitReason::PowerUnknown, view.facts.after(UNKNOWN));
    };
    let asked = Some(annotations::reboots(view.host)).filter(|asked| installed || asked.force).unwrap_or_default();
    let seen = (on != view.status.powered_on).then_some(Change::Powered(on));
    power(view, &asked, on).with(seen)
}

const fn installed(view: &View<'_>) -> bool {
    matches!(view.state, ProvisioningState::Provisioned | ProvisioningState::ExternallyProvisioned)
}

/// A host is serviced until Ironic says how that ended; its power is Ironic's meanwhile.
fn service(view: &View<'_>) -> Outcome {
    let told = view.status.operational_status == OperationalStatus::Servicing;
    let change = (!told).then_some(Change::Operational(OperationalStatus::Servicing));
    Outcome::act(Action::Service).with(change)
}

fn power(view: &View<'_>, asked: &Reboots, on: bool) -> Outcome {
    let online = view.host.spec.online;
    // An operating system that was asked in vain is not asked again.
    let failed = view.status.error_type == Some(ErrorType::PowerManagement);
    let mode = if failed { RebootMode::Hard } else { asked.mode };
    if view.host.spec.disable_power_off == Some(true) {
        return without_off(view, asked, mode, on);
    }
    if on {
        return match (online, asked.any()) {
            (true, false) => fine(view),
            (true, true) | (false, _) => Outcome::act(Action::PowerOff(mode)),
        };
    }
    // It is off: the one-time reboot is half done, and what is left is what `online` says.
    if asked.once {
        return Outcome::act(Action::RemoveAnnotation(REBOOT));
    }
    if online && !asked.held_by.is_empty() {
        return Outcome::wait(WaitReason::HeldOff(asked.held_by.clone()), view.facts.after(POLL)).with(healed(view));
    }
    match online {
        // On its way from off to on, nobody uses it.
        true if installed(view) && view.facts.firmware.wish == Wish::Service => service(view),
        true => Outcome::act(Action::PowerOn),
        false => fine(view),
    }
}

/// A host that may not be powered off is rebooted instead, once: clients cannot hold it off.
fn without_off(view: &View<'_>, asked: &Reboots, mode: RebootMode, on: bool) -> Outcome {
    match (on, asked.once) {
        (false, _) => Outcome::act(Action::PowerOn),
        (true, true) if installed(view) && view.facts.firmware.wish == Wish::Service => service(view),
        (true, true) => Outcome::act(Action::Reboot(mode)),
        (true, false) => fine(view),
    }
}

fn fine(view: &View<'_>) -> Outcome {
    let changes = healed(view);
    if changes.is_empty() {
        Outcome::wait(WaitReason::Steady, view.facts.after(POLL))
    } else {
        Outcome::only(Step::Again).with(changes)
    }
}

/// What was wrong is not wrong any more.
fn healed(view: &View<'_>) -> Vec<Change> {
    if view.status.error_type.is_some() || view.status.error_count > 0 {
        vec![Change::ClearError, Change::ResetCount]
    } else {
        Vec::new()
    }
}
