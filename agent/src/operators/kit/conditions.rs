//! Conditions of a status, as Kubernetes' own `meta.SetStatusCondition` merges them.

use agent_api::meta::{Condition, ConditionStatus, Time};
use jiff::Timestamp;

use super::events::{Event, Reason};

/// Longest message that the API server accepts, in bytes.
const MOST: usize = 32_000;
/// To so many characters a longer message is cut: a character has at most four bytes.
const CUT: usize = 8_000;

/// A condition as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    /// Which aspect.
    pub kind: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Why, one word.
    pub reason: &'static str,
    /// Why, for people; may be empty.
    pub message: String,
    /// `metadata.generation` that it is about.
    pub generation: Option<i64>,
}

/// The event by which users are told what a condition of that kind says now, if that is news: it has another reason than
/// before, or warns of something else.
pub fn news<R: Reason>(before: Option<&Vec<Condition>>, kind: &str, what: R, why: &str) -> Option<Event<R>> {
    let before = before.into_iter().flatten().find(|condition| condition.kind == kind);
    let is_news = before.is_none_or(|it| it.reason != what.word() || what.is_warning() && it.message != why);
    is_news.then(|| Event::new(what, why))
}

/// The conditions of an object after an update. An updated condition keeps its place, and its date as long as it does not
/// change between true and false. The others stay as they are: another controller writes them, or a later update.
pub fn merge(
    before: Option<&Vec<Condition>>,
    told: impl IntoIterator<Item = NewCondition>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut all = before.cloned().unwrap_or_default();
    for told in told {
        let status = if told.holds { ConditionStatus::True } else { ConditionStatus::False };
        let at = all.iter().position(|it| it.kind == told.kind);
        let same = at.map(|at| &all[at]).filter(|it| it.status == status);
        let condition = Condition {
            kind: told.kind.to_owned(),
            status,
            observed_generation: told.generation,
            last_transition_time: same.map_or(Time(now), |it| it.last_transition_time),
            reason: told.reason.to_owned(),
            message: cut(told.message),
        };
        match at {
            Some(at) => all[at] = condition,
            None => all.push(condition),
        }
    }
    all
}

/// The message, cut to what the API server accepts.
fn cut(message: String) -> String {
    if message.len() > MOST { message.chars().take(CUT).collect() } else { message }
}

#[cfg(test)]
mod tests {
    use agent_api::meta::ConditionStatus;
    use jiff::Timestamp;

    use super::{NewCondition, merge};

    fn told(kind: &'static str, holds: bool, message: &str) -> NewCondition {
        NewCondition { kind, holds, reason: "Why", message: message.to_owned(), generation: Some(2) }
    }

    #[test]
    fn a_condition_keeps_its_place_and_its_date_until_it_turns() {
        let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let first = merge(None, [told("A", true, ""), told("B", false, "no")], early);
        let second = merge(Some(&first), [told("B", false, "still not")], late);
        assert_eq!(second[0], first[0], "nobody told of it");
        assert_eq!((&*second[1].message, second[1].last_transition_time.0), ("still not", early));
        let third = merge(Some(&second), [told("A", false, ""), told("C", true, "")], late);
        assert_eq!(third.iter().map(|it| &*it.kind).collect::<Vec<_>>(), ["A", "B", "C"]);
        assert_eq!((third[0].status, third[0].last_transition_time.0), (ConditionStatus::False, late));
    }

    #[test]
    fn a_message_is_no_longer_than_the_api_server_takes() {
        let all = merge(None, [told("A", true, &"ü".repeat(20_000))], Timestamp::UNIX_EPOCH);
        assert!(all[0].message.len() < 32_768);
    }
}
