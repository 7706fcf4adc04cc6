//! The two conditions that both kinds have.

use agent_api::metal3::host_firmware_settings::{CHANGE_DETECTED, VALID};
use agent_api::metal3::{Condition, ConditionStatus, Time};
use jiff::Timestamp;

/// Problems that a message names; a wrong file names hundreds.
const NAMED: usize = 10;

/// What is told of an object.
pub(super) struct Told<'a> {
    /// Whether what is asked for is not what there is.
    pub changed: bool,
    /// Reason of all that is well.
    pub fine: &'a str,
    /// Reason and message of what is wrong.
    pub wrong: Option<(&'a str, String)>,
}

/// The conditions of an object. `before`: those that it has.
pub(super) fn conditions(
    before: Option<&Vec<Condition>>,
    told: &Told<'_>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let one = |kind: &str, holds: bool, reason: &str, message: &str| {
        let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
        let old = before.into_iter().flatten().find(|old| old.kind == kind && old.status == status);
        Condition {
            kind: kind.to_owned(),
            status,
            observed_generation: generation,
            last_transition_time: old.map_or(Time(now), |old| old.last_transition_time),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    };
    let (reason, message) = told.wrong.as_ref().map_or((told.fine, ""), |(reason, message)| (*reason, message));
    vec![one(CHANGE_DETECTED, told.changed, told.fine, ""), one(VALID, told.wrong.is_none(), reason, message)]
}

/// The first problems.
pub(super) fn named(problems: &[String], between: &str) -> String {
    let more = problems.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("and {more} more"));
    let text = problems.iter().take(NAMED).cloned().chain(more).collect::<Vec<_>>().join(between);
    // The API server refuses messages over 32,768 bytes.
    text.chars().take(8_000).collect()
}

/// Whether an object's conditions tell of this generation, and if so whether it asks for a change that can be made.
pub(super) fn pending(conditions: Option<&Vec<Condition>>, generation: Option<i64>) -> Option<bool> {
    let find = |kind: &str| {
        let all = conditions.into_iter().flatten();
        all.into_iter().find(|it| it.kind == kind && it.observed_generation == generation)
    };
    let (changed, valid) = (find(CHANGE_DETECTED)?, find(VALID)?);
    Some(changed.status == ConditionStatus::True && valid.status == ConditionStatus::True)
}
