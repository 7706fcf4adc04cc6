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
    heard: Option<(Instant, String)>,
}

impl Health {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It does not answer; this was heard instead.
    pub(super) fn is_silent(&self, heard: &IronicError) -> Ironic {
        let mut known = self.known();
        known.ready = None;
        known.heard = Some((Instant::now(), heard.to_string()));
        Ironic::Away { heard: heard.to_string(), since: *known.silent.get_or_insert_with(Timestamp::now) }
    }

    /// It did not answer within this time, whoever asked.
    pub(super) fn still_silent(&self, time: Duration) -> Option<Ironic> {
        let known = self.known();
        let (when, heard) = known.heard.as_ref()?;
        let since = known.silent.filter(|_| when.elapsed() <= time)?;
        Some(Ironic::Away { heard: heard.clone(), since })
    }

    /// It answers.
    pub(super) fn answers(&self) {
        let mut known = self.known();
        (known.silent, known.heard) = (None, None);
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
    use std::time::Duration;

    use super::Health;
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
}
