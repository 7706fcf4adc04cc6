//! Faults on demand.

use std::time::Duration;

use serde::Deserialize;

/// What is wrong with a BMC. None by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "faults that have nothing to do with each other")]
pub struct Faults {
    /// Every answer is late by so many milliseconds.
    pub delay_ms: u64,
    /// Answers come and go.
    pub flaps: Option<Flaps>,
    /// Takes connections, and says nothing ever.
    pub silent: bool,
    /// The right password is refused, too.
    pub refuse_credentials: bool,
    /// It takes sessions, and no basic authentication.
    pub refuse_basic: bool,
    /// It takes basic authentication, and has no session left.
    pub refuse_sessions: bool,
    /// What it says about power.
    pub power: PowerFault,
}

/// Of `answered + dropped` requests the last ones are dropped without an answer, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Flaps {
    /// Requests that are answered.
    pub answered: u64,
    /// Requests whose connection is closed.
    pub dropped: u64,
}

/// How a BMC lies about power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PowerFault {
    /// Not at all.
    #[default]
    Honest,
    /// The system is told on when it is off, and off when it is on; the chassis tells the truth.
    Inverted,
    /// The state changes with every other answer.
    Wavering,
    /// A reset is answered with success, and nothing happens.
    Deaf,
}

impl Faults {
    /// How late an answer is.
    pub(super) const fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    /// Whether the request of this number, from 0, is dropped.
    pub(super) fn drops(&self, number: u64) -> bool {
        self.flaps.is_some_and(|flaps| number % flaps.answered.saturating_add(flaps.dropped).max(1) >= flaps.answered)
    }

    /// What the system and the chassis are said to be, by what is true and the number of the answer.
    pub(super) const fn told(&self, on: bool, number: u64) -> (bool, bool) {
        match self.power {
            PowerFault::Honest | PowerFault::Deaf => (on, on),
            PowerFault::Inverted => (!on, on),
            PowerFault::Wavering => (if number.is_multiple_of(2) { on } else { !on }, on),
        }
    }
}
