//! The status of a host's firmware, and which updates are to be written.

use agent_api::metal3::admission;
use agent_api::metal3::{
    FirmwareComponentStatus, FirmwareUpdate, HostFirmwareComponents, HostFirmwareComponentsStatus, Time,
};
use jiff::Timestamp;

use super::condition::{self, Told};
use crate::ironic::FirmwareComponent;

/// Reason of conditions that are well.
const OK: &str = "OK";
/// Reason of `Valid` when it is not.
const INVALID: &str = "InvalidComponent";
/// What names of network cards begin with.
const NIC: &str = "nic:";

/// What follows from what is asked for and what there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The status; `lastUpdated` is that of before when nothing changed.
    pub status: HostFirmwareComponentsStatus,
    /// What speaks against what is asked for, in metal3's words.
    pub problems: Vec<String>,
    /// What is to be written; nothing when there are problems.
    pub updates: Vec<FirmwareUpdate>,
}

/// What has come of the updates that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark<'a> {
    /// Ironic began to write these.
    Begun(&'a [FirmwareUpdate]),
    /// It could not: all are to be written again.
    Failed,
}

/// Judges what an object asks for. `found`: what Ironic says; what was known before when `None`.
pub fn judge(object: &HostFirmwareComponents, found: Option<&[FirmwareComponent]>, now: Timestamp) -> Judged {
    let before = object.status.clone().unwrap_or_default();
    let wanted = &object.spec.updates;
    let done = before.updates.as_deref().unwrap_or_default();
    let problems = problems(object);
    let valid = problems.is_empty();
    let updates: Vec<FirmwareUpdate> =
        if valid { wanted.iter().filter(|update| !done.contains(update)).cloned().collect() } else { Vec::new() };
    // An update that is not asked for any more is as good as written.
    let settled = valid && updates.is_empty();
    let wrong = format!("Invalid Firmware Components: [{}]", condition::named(&problems, " "));
    let told = Told { changed: !settled && wanted != done, fine: OK, wrong: (!valid).then_some((INVALID, wrong)) };
    let components = found.map_or_else(|| before.components.clone(), |found| Some(components(found)));
    let written = if settled { Some(wanted.clone()).filter(|all| !all.is_empty()) } else { before.updates.clone() };
    let conditions = condition::conditions(before.conditions.as_ref(), &told, object.metadata.generation, now);
    let mut status = HostFirmwareComponentsStatus {
        updates: written,
        components: components.filter(|all| !all.is_empty()),
        last_updated: before.last_updated,
        conditions: Some(conditions),
    };
    if object.status.as_ref() != Some(&status) {
        status.last_updated = Some(Time(now));
    }
    Judged { status, problems, updates }
}

/// The status with what has come of the updates.
pub fn marked(object: &HostFirmwareComponents, mark: Mark<'_>, now: Timestamp) -> HostFirmwareComponentsStatus {
    let mut with = object.clone();
    let done = &mut with.status.get_or_insert_default().updates;
    *done = match mark {
        Mark::Begun(updates) => {
            let replaced = |old: &FirmwareUpdate| updates.iter().any(|new| new.component == old.component);
            let kept = done.iter().flatten().filter(|old| !replaced(old));
            Some(kept.chain(updates).cloned().collect())
        }
        Mark::Failed => None,
    };
    let mut status = judge(&with, None, now).status;
    if object.status.as_ref() != Some(&status) {
        status.last_updated = Some(Time(now));
    }
    status
}

fn problems(object: &HostFirmwareComponents) -> Vec<String> {
    let unknown = |update: &&FirmwareUpdate| {
        update.component != "bmc" && update.component != "bios" && !update.component.starts_with(NIC)
    };
    let named = object.spec.updates.iter().filter(unknown).map(|update| {
        let name = &update.component;
        format!("component {name} is invalid, only 'bmc', 'bios', or names starting with '{NIC}' are allowed as update names")
    });
    named.chain(admission::firmware_components(object)).collect()
}

/// Components that metal3's users know; Ironic may tell of more.
fn components(found: &[FirmwareComponent]) -> Vec<FirmwareComponentStatus> {
    let known =
        |one: &&FirmwareComponent| one.component == "bmc" || one.component == "bios" || one.component.starts_with(NIC);
    found
        .iter()
        .filter(known)
        .map(|one| FirmwareComponentStatus {
            component: one.component.clone(),
            initial_version: one.initial_version.clone().unwrap_or_default(),
            current_version: one.current_version.clone(),
            last_version_flashed: one.last_version_flashed.clone(),
            updated_at: one.updated_at.as_deref().and_then(|at| at.parse().ok()).map(Time),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::ConditionStatus;
    use serde_json::{Value, json};

    use super::super::super::tests::start;
    use super::*;

    fn asking(updates: &Value, done: &Value) -> HostFirmwareComponents {
        serde_json::from_value(json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "HostFirmwareComponents",
            "metadata": {"name": "a", "namespace": "site", "generation": 2},
            "spec": {"updates": updates}, "status": {"updates": done},
        }))
        .expect("an object")
    }

    fn found() -> Vec<FirmwareComponent> {
        serde_json::from_value(json!([
            {"component": "bios", "initial_version": "1.0", "current_version": "1.1", "last_version_flashed": "1.1", "updated_at": "2026-03-01T10:00:00+00:00"},
            {"component": "bmc", "initial_version": "2.0", "current_version": "2.0", "last_version_flashed": null, "updated_at": null},
            {"component": "nic:1", "initial_version": "3.0"}, {"component": "psu", "initial_version": "4.0"},
        ]))
        .expect("components")
    }

    fn update(component: &str, file: &str) -> Value {
        json!({"component": component, "url": format!("http://box/{file}")})
    }

    #[test]
    fn what_was_not_written_yet_is_to_be_written() {
        let (bios, bmc, nic) = (update("bios", "b1"), update("bmc", "m1"), update("nic:1", "n1"));
        // Asked for, written before, to be written, status afterwards, whether a change is told.
        let table = [
            (json!([]), json!([]), json!([]), json!(null), false),
            (json!([bios]), json!(null), json!([bios]), json!(null), true),
            (json!([bios, nic]), json!([bios]), json!([nic]), json!([bios]), true),
            (json!([bios]), json!([bios]), json!([]), json!([bios]), false),
            (json!([update("bios", "b2")]), json!([bios]), json!([update("bios", "b2")]), json!([bios]), true),
            // Taken back: nothing to write.
            (json!([bmc]), json!([bios, bmc]), json!([]), json!([bmc]), false),
            (json!([]), json!([bios]), json!([]), json!(null), false),
        ];
        for (asked, done, updates, status, changed) in table {
            let judged = judge(&asking(&asked, &done), Some(&found()), start());
            assert_eq!((json!(judged.updates), json!(judged.status.updates)), (updates, status), "{asked} {done}");
            let told =
                judged.status.conditions.iter().flatten().find(|it| it.kind == "ChangeDetected").map(|it| it.status);
            assert_eq!(
                told,
                Some(if changed { ConditionStatus::True } else { ConditionStatus::False }),
                "{asked} {done}"
            );
        }
    }

    #[test]
    fn what_cannot_be_written_is_told() {
        let table = [
            (
                update("nic", "a"),
                "component nic is invalid, only 'bmc', 'bios', or names starting with 'nic:' are allowed as update names",
            ),
            (
                update("BIOS", "a"),
                "component BIOS is invalid, only 'bmc', 'bios', or names starting with 'nic:' are allowed as update names",
            ),
            (
                json!({"component": "bmc", "url": "ftp://box/a"}),
                "invalid URL \"ftp://box/a\" in FirmwareUpdate in component \"bmc\": invalid scheme in URL, \"ftp\" not allowed",
            ),
        ];
        for (asked, problem) in table {
            let judged = judge(&asking(&json!([asked, update("bios", "b1")]), &json!(null)), Some(&found()), start());
            assert_eq!((judged.problems, judged.updates), (vec![problem.to_owned()], vec![]), "{asked}");
            let valid = judged.status.conditions.iter().flatten().find(|it| it.kind == "Valid").cloned().expect("told");
            assert_eq!((valid.status, &*valid.reason), (ConditionStatus::False, "InvalidComponent"));
            assert_eq!(valid.message, format!("Invalid Firmware Components: [{problem}]"));
        }
    }

    #[test]
    fn versions_are_told_as_ironic_has_them() {
        let status = judge(&asking(&json!([]), &json!(null)), Some(&found()), start()).status;
        let told = status.components.expect("components");
        assert_eq!(told.iter().map(|one| &*one.component).collect::<Vec<_>>(), ["bios", "bmc", "nic:1"]);
        assert_eq!(
            json!(told[0]),
            json!({"component": "bios", "initialVersion": "1.0", "currentVersion": "1.1",
            "lastVersionFlashed": "1.1", "updatedAt": "2026-03-01T10:00:00Z"})
        );
    }

    #[test]
    fn updates_are_written_once_unless_that_failed() {
        let mut object = asking(&json!([update("bios", "b1")]), &json!(null));
        let begun = object.spec.updates.clone();
        object.status = Some(marked(&object, Mark::Begun(&begun), start()));
        assert_eq!(judge(&object, Some(&found()), start()).updates, []);
        let later = start() + jiff::SignedDuration::from_secs(9);
        assert_eq!(Some(marked(&object, Mark::Begun(&begun), later)), object.status);
        // What was asked for meanwhile is not taken for written.
        let more: FirmwareUpdate = serde_json::from_value(update("bmc", "m1")).expect("an update");
        object.spec.updates.push(more.clone());
        object.status = Some(marked(&object, Mark::Begun(&begun), later));
        assert_eq!(judge(&object, Some(&found()), later).updates, [more]);
        object.status = Some(marked(&object, Mark::Failed, start()));
        assert_eq!(judge(&object, Some(&found()), start()).updates, object.spec.updates);
    }
}
