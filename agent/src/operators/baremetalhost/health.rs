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
}

impl Health {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It does not answer; this was heard instead.
    pub(super) fn is_silent(&self, heard: &IronicError) -> Ironic {
        let mut known = self.known();
        known.ready = None;
        Ironic::Away { heard: heard.to_string(), since: *known.silent.get_or_insert_with(Timestamp::now) }
    }

    /// It answers.
    pub(super) fn answers(&self) {
        self.known().silent = None;
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
