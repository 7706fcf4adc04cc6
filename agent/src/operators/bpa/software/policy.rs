//! When nodes are updated, and how many at a time. Pure.

use std::time::Duration;

use agent_api::clusters::software::{Day, RebootWhen, UpdatePolicy, UpdateWhen, UpdateWindow};
use agent_api::metal3::IntOrString;
use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, Zoned};

/// The days that are looked at for the next beginning: a week, and one that a change of the clock may take away.
const DAYS: i64 = 8;

/// `spec.update`, read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Policy {
    when: When,
    most: Most,
    /// Pods leave before.
    pub drain: bool,
    /// Nodes that ask for it are restarted.
    pub reboot: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum When {
    Now,
    Window(Window),
    Manual,
}

/// How many nodes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Most {
    Nodes(usize),
    Percent(usize),
}

#[derive(Clone, Debug, PartialEq)]
struct Window {
    days: Vec<Weekday>,
    start: Time,
    end: Time,
    zone: TimeZone,
}

/// Whether nodes may be updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Go {
    Now,
    /// The reason in one word and in a sentence, and how long until then, if that is known.
    Later {
        reason: &'static str,
        why: String,
        left: Option<Duration>,
    },
}

impl Policy {
    /// Reads `spec.update`.
    ///
    /// # Errors
    /// All that is wrong, each with its path.
    pub fn read(wish: Option<&UpdatePolicy>) -> Result<Self, Vec<String>> {
        let wish = wish.cloned().unwrap_or_default();
        let mut wrong = Vec::new();
        let window = wish.window.as_ref().map(Window::read).transpose().unwrap_or_else(|all| {
            wrong.extend(all);
            None
        });
        let when = match (wish.when, window) {
            (UpdateWhen::Window, Some(window)) => When::Window(window),
            (UpdateWhen::Window, None) => {
                if wish.window.is_none() {
                    let example = "`window: {startTime: \"02:00\", endTime: \"04:00\"}`";
                    wrong.push(format!("spec.update.window is missing, and `when` is `Window`; expected {example}"));
                }
                When::Manual
            }
            (other, _) => {
                if wish.window.is_some() {
                    let found = format!("spec.update.window is there, and `when` is `{other:?}`");
                    wrong.push(format!("{found}; hint: write `when: Window`, or leave the window out"));
                }
                if other == UpdateWhen::Now { When::Now } else { When::Manual }
            }
        };
        let most = wish.max_unavailable.as_ref().map_or(Ok(Most::Nodes(1)), Most::read);
        let most = most.unwrap_or_else(|why| {
            wrong.push(why);
            Most::Nodes(1)
        });
        let read = Self { when, most, drain: wish.drain, reboot: wish.reboot == RebootWhen::IfRequired };
        if wrong.is_empty() { Ok(read) } else { Err(wrong) }
    }

    /// Whether nodes may be updated now. `request`: the annotation by which that is asked for; `handled`: its value when that
    /// was done last.
    pub fn go(&self, request: Option<&str>, handled: Option<&str>, now: Timestamp) -> Go {
        match &self.when {
            When::Now => Go::Now,
            When::Manual if request.is_some() && request != handled => Go::Now,
            When::Manual => Go::Later {
                reason: "WaitingForRequest",
                why: "they are updated when the annotation `foothold.dev/update` gets another value".to_owned(),
                left: None,
            },
            When::Window(window) => match window.opens(now) {
                Ok(()) => Go::Now,
                Err(next) => {
                    let at = next
                        .as_ref()
                        .map_or_else(|| "never".to_owned(), |at| at.strftime("%a %F %H:%M %Z").to_string());
                    let left = next.map(|at| at.timestamp().duration_since(now).unsigned_abs());
                    Go::Later { reason: "WaitingForWindow", why: format!("they are updated in the window: {at}"), left }
                }
            },
        }
    }

    /// The nodes of each step: masters one after the other, then workers. `all`: how many nodes the cluster has; `due`: those
    /// to be updated, and whether each is a master.
    pub fn steps<T>(&self, all: usize, due: Vec<(T, bool)>) -> Vec<Vec<T>> {
        let most = match self.most {
            Most::Nodes(nodes) => nodes,
            Most::Percent(percent) => (all * percent / 100).max(1),
        };
        let (masters, workers): (Vec<_>, Vec<_>) = due.into_iter().partition(|(_, is_master)| *is_master);
        let mut steps: Vec<Vec<T>> = masters.into_iter().map(|(node, _)| vec![node]).collect();
        let mut workers = workers.into_iter().map(|(node, _)| node).peekable();
        while workers.peek().is_some() {
            steps.push(workers.by_ref().take(most).collect());
        }
        steps
    }
}

impl Most {
    fn read(wish: &IntOrString) -> Result<Self, String> {
        let text = wish.to_string();
        let number = |text: &str, most: usize| text.parse().ok().filter(|number| (1..=most).contains(number));
        let read = match text.strip_suffix('%') {
            Some(percent) => number(percent, 100).map(Self::Percent),
            None => number(&text, usize::MAX).map(Self::Nodes),
        };
        read.ok_or_else(|| {
            format!("spec.update.maxUnavailable is `{text}`; expected a number of nodes from 1 on, or `1%` to `100%`")
        })
    }
}

impl Window {
    fn read(wish: &UpdateWindow) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        let mut time = |key: &str, text: &str| {
            let read = Time::strptime("%H:%M", text);
            if read.is_err() {
                wrong.push(format!("spec.update.window.{key} is `{text}`; expected hour and minute, such as `02:30`"));
            }
            read.unwrap_or_default()
        };
        let (start, end) = (time("startTime", &wish.start_time), time("endTime", &wish.end_time));
        let zone = TimeZone::get(&wish.time_zone).unwrap_or_else(|_| {
            wrong.push(format!(
                "spec.update.window.timeZone is `{}`; expected a name of the IANA database, such as `Europe/Berlin` or `UTC`",
                wish.time_zone
            ));
            TimeZone::UTC
        });
        let days = wish.days.iter().copied().map(weekday).collect();
        if wrong.is_empty() { Ok(Self { days, start, end, zone }) } else { Err(wrong) }
    }

    /// Whether it is open; the error is its next beginning.
    fn opens(&self, now: Timestamp) -> Result<(), Option<Zoned>> {
        let here = now.to_zoned(self.zone.clone());
        let mut next = None;
        for day in -1..=DAYS {
            let Ok(date) = here.date().checked_add(day.days()) else { continue };
            if !self.days.is_empty() && !self.days.contains(&date.weekday()) {
                continue;
            }
            let last = if self.end > self.start { Ok(date) } else { date.tomorrow() };
            let begin = date.to_datetime(self.start).to_zoned(self.zone.clone());
            let end = last.and_then(|last| last.to_datetime(self.end).to_zoned(self.zone.clone()));
            let (Ok(begin), Ok(end)) = (begin, end) else { continue };
            if begin.timestamp() <= now && now < end.timestamp() {
                return Ok(());
            }
            if begin.timestamp() > now {
                next = Some(begin);
                break;
            }
        }
        Err(next)
    }
}

fn weekday(day: Day) -> Weekday {
    match day {
        Day::Monday => Weekday::Monday,
        Day::Tuesday => Weekday::Tuesday,
        Day::Wednesday => Weekday::Wednesday,
        Day::Thursday => Weekday::Thursday,
        Day::Friday => Weekday::Friday,
        Day::Saturday => Weekday::Saturday,
        Day::Sunday => Weekday::Sunday,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Go, Policy};

    fn read(update: Value) -> Result<Policy, Vec<String>> {
        Policy::read(Some(&serde_json::from_value(update).expect("a policy")))
    }

    fn at(text: &str) -> jiff::Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn what_is_wrong_is_told_with_its_path() {
        let window = |key: &str, value: Value| {
            let mut all = json!({"startTime": "02:00", "endTime": "04:00"});
            all[key] = value;
            json!({"when": "Window", "window": all})
        };
        for (update, words) in [
            (json!({"when": "Window"}), "spec.update.window is missing, and `when` is `Window`"),
            (
                json!({"window": {"startTime": "02:00", "endTime": "04:00"}}),
                "spec.update.window is there, and `when` is `Now`",
            ),
            (window("startTime", json!("26:00")), "spec.update.window.startTime is `26:00`"),
            (window("endTime", json!("4")), "spec.update.window.endTime is `4`"),
            (window("timeZone", json!("Berlin")), "spec.update.window.timeZone is `Berlin`"),
            (json!({"maxUnavailable": 0}), "spec.update.maxUnavailable is `0`"),
            (json!({"maxUnavailable": "101%"}), "spec.update.maxUnavailable is `101%`"),
            (json!({"maxUnavailable": "some"}), "spec.update.maxUnavailable is `some`"),
            (json!({"maxUnavailable": -1}), "spec.update.maxUnavailable is `-1`"),
        ] {
            let wrong = read(update.clone()).expect_err("refused");
            assert!(wrong.len() == 1 && wrong[0].starts_with(words), "{update}: {wrong:?}");
        }
        let nothing = Policy::read(None).expect("the old way");
        assert_eq!(nothing.go(None, None, at("2026-11-29T12:00:00Z")), Go::Now);
        assert!(!nothing.drain && !nothing.reboot);
    }

    #[test]
    fn a_window_is_open_from_its_beginning_to_its_end_in_its_own_time_zone() {
        let go = |window: &Value, now: &str| match read(json!({"when": "Window", "window": window})).expect("good").go(
            None,
            None,
            at(now),
        ) {
            Go::Now => "now".to_owned(),
            Go::Later { reason, why, left } => {
                assert_eq!(reason, "WaitingForWindow");
                format!(
                    "{} in {}",
                    why.trim_start_matches("they are updated in the window: "),
                    left.expect("a time").as_secs()
                )
            }
        };
        let night = json!({"startTime": "02:00", "endTime": "04:00"});
        // Over midnight, on the days on which it begins; the 29th of November 2026 is a Sunday.
        let late = json!({"days": ["sat", "Sunday"], "startTime": "23:00", "endTime": "01:00"});
        let berlin = json!({"startTime": "02:00", "endTime": "03:00", "timeZone": "Europe/Berlin"});
        let always = json!({"startTime": "00:00", "endTime": "00:00"});
        for (window, now, expected) in [
            (&night, "2026-11-29T01:59:59Z", "Sun 2026-11-29 02:00 UTC in 1"),
            (&night, "2026-11-29T02:00:00Z", "now"),
            (&night, "2026-11-29T03:59:59Z", "now"),
            (&night, "2026-11-29T04:00:00Z", "Mon 2026-11-30 02:00 UTC in 79200"),
            (&late, "2026-11-29T00:30:00Z", "now"),
            (&late, "2026-11-29T01:00:00Z", "Sun 2026-11-29 23:00 UTC in 79200"),
            (&late, "2026-11-30T00:30:00Z", "now"),
            (&late, "2026-12-01T00:30:00Z", "Sat 2026-12-05 23:00 UTC in 426600"),
            (&berlin, "2026-11-29T01:30:00Z", "now"),
            (&berlin, "2026-07-01T00:30:00Z", "now"),
            (&berlin, "2026-07-01T01:30:00Z", "Thu 2026-07-02 02:00 CEST in 81000"),
            (&always, "2026-11-29T17:00:00Z", "now"),
        ] {
            assert_eq!(go(window, now), expected, "{window} {now}");
        }
    }

    #[test]
    fn by_hand_each_new_value_of_the_annotation_counts_once() {
        let policy = read(json!({"when": "Manual"})).expect("good");
        for (request, handled, expected) in [
            (None, None, false),
            (Some("1"), None, true),
            (Some("1"), Some("1"), false),
            (Some("2"), Some("1"), true),
            (None, Some("1"), false),
        ] {
            let go = policy.go(request, handled, at("2026-11-29T12:00:00Z")) == Go::Now;
            assert_eq!(go, expected, "{request:?} {handled:?}");
        }
    }

    #[test]
    fn masters_are_updated_one_by_one_and_workers_as_many_as_may_be_away() {
        let due = || vec![("w0", false), ("m0", true), ("w1", false), ("m1", true), ("w2", false)];
        let steps = |most: Value, all: usize| read(json!({"maxUnavailable": most})).expect("good").steps(all, due());
        assert_eq!(steps(json!(null), 9), [vec!["m0"], vec!["m1"], vec!["w0"], vec!["w1"], vec!["w2"]]);
        assert_eq!(steps(json!(2), 5), [vec!["m0"], vec!["m1"], vec!["w0", "w1"], vec!["w2"]]);
        assert_eq!(steps(json!("3"), 5), [vec!["m0"], vec!["m1"], vec!["w0", "w1", "w2"]]);
        assert_eq!(steps(json!("40%"), 5), [vec!["m0"], vec!["m1"], vec!["w0", "w1"], vec!["w2"]]);
        assert_eq!(steps(json!("10%"), 5).len(), 5);
    }
}
