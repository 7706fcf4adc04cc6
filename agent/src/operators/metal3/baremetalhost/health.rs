//! What Ironic said last, whichever host it was asked about.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::decide::Ironic;
use crate::ironic::IronicError;

/// Whether Ironic answers.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// When it was last said to be ready.
    ready: Option<Instant>,
    /// Since when it does not answer.
    silent: Option<Timestamp>,
    /// What was heard instead, and when last.
    heard: Option<(Instant, Ironic)>,
    /// When it last answered anything.
    answered: Option<Instant>,
}

/// An Ironic that takes questions and has answered one within this time is busy, not away.
const BUSY: Duration = Duration::from_secs(60);

impl Health {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It does not answer; this was heard instead.
    pub(super) fn is_silent(&self, heard: &IronicError) -> Ironic {
        self.silent_at(heard, Instant::now())
    }

    fn silent_at(&self, heard: &IronicError, now: Instant) -> Ironic {
        let mut known = self.known();
        known.ready = None;
        let lately = known.answered.is_some_and(|when| now.saturating_duration_since(when) <= BUSY);
        let since = *known.silent.get_or_insert_with(Timestamp::now);
        let ironic =
            if heard.is_slow() && lately { Ironic::Busy } else { Ironic::Away { heard: heard.to_string(), since } };
        known.heard = Some((now, ironic.clone()));
        ironic
    }

    /// It did not answer within this time, whoever asked.
    pub(super) fn still_silent(&self, time: Duration) -> Option<Ironic> {
        let known = self.known();
        let (when, ironic) = known.heard.as_ref()?;
        (when.elapsed() <= time).then(|| ironic.clone())
    }

    /// It answers.
    pub(super) fn answers(&self) {
        let mut known = self.known();
        (known.silent, known.heard, known.answered) = (None, None, Some(Instant::now()));
    }

    /// It says that it is ready.
    pub(super) fn is_ready(&self) {
        self.known().ready = Some(Instant::now());
    }

    /// Whether it said so within this time, and has answered since.
    pub(super) fn was_ready_within(&self, time: Duration) -> bool {
        self.known().ready.is_some_and(|since| since.elapsed() <= time)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use reqwest::Method;

    use super::{BUSY, Health, Ironic};
    use crate::ironic::IronicError;

    #[test]
    fn silence_is_waited_for_once() {
        let health = Health::default();
        assert_eq!(health.still_silent(Duration::MAX), None);
        let away = health.is_silent(&IronicError::Busy("no answer".to_owned()));
        assert_eq!(health.still_silent(Duration::MAX), Some(away));
        assert_eq!(health.still_silent(Duration::ZERO), None, "it is asked again");
        health.answers();
        assert_eq!(health.still_silent(Duration::MAX), None);
    }

    /// One that answered a moment ago has something else to do; one that has said nothing for a minute is away.
    #[test]
    fn slow_is_not_away() {
        let heard = |slow: bool| IronicError::Away {
            method: Method::GET,
            path: "/v1/nodes/a".to_owned(),
            why: "no answer within 10 s".to_owned(),
            slow,
        };
        let is_away = |ironic: Ironic| matches!(ironic, Ironic::Away { .. });
        let (health, now) = (Health::default(), Instant::now());
        assert!(is_away(health.silent_at(&heard(true), now)), "it has never answered");
        health.answers();
        let now = now + Duration::from_secs(1);
        assert_eq!(health.silent_at(&heard(true), now), Ironic::Busy);
        assert_eq!(health.still_silent(Duration::MAX), Some(Ironic::Busy), "others do not wait behind it");
        assert!(is_away(health.silent_at(&heard(false), now)), "refused connections are no work");
        assert!(is_away(health.silent_at(&heard(true), now + BUSY * 2)));
        health.answers();
        assert_eq!(health.silent_at(&heard(true), Instant::now()), Ironic::Busy);
    }
}
