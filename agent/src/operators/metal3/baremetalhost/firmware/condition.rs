//! The two conditions that both kinds have.

use agent_api::metal3::host_firmware_settings::{CHANGE_DETECTED, VALID};
use agent_api::metal3::{Condition, ConditionStatus};
use jiff::Timestamp;

use crate::operators::kit::NewCondition;
use crate::operators::kit::conditions::merge;

/// Problems that a message names; a wrong file names hundreds.
const NAMED: usize = 10;

/// What the conditions of an object say.
pub(super) struct Told {
    /// Whether what is asked for is not what there is.
    pub changed: bool,
    /// Reason of all that is well.
    pub fine: &'static str,
    /// Reason and message of what is wrong.
    pub wrong: Option<(&'static str, String)>,
}

/// The conditions of an object. `before`: those that it has.
pub(super) fn conditions(
    before: Option<&Vec<Condition>>,
    told: &Told,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let (reason, message) = told.wrong.as_ref().map_or((told.fine, ""), |(reason, message)| (*reason, message));
    let valid = told.wrong.is_none();
    let one = |kind: &'static str, holds, reason: &'static str, message: &str| NewCondition {
        kind,
        holds,
        reason,
        message: message.to_owned(),
        generation,
    };
    merge(before, [one(CHANGE_DETECTED, told.changed, told.fine, ""), one(VALID, valid, reason, message)], now)
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
