//! Marks on an error that say how the command ends: [`HostLacks`] (69), [`Interrupted`] (130), [`WrongUsage`] (64).
//!
//! Every module may put one into its chain of causes; [`CommandError`](crate::report::CommandError) looks for them.
//! A message may end in a line `hint: ...`; it is shown once, at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit codes, stable for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// It failed.
    Failed = 1,
    /// Wrong usage, or a wrong file (`EX_USAGE`).
    Wrong = 64,
    /// The host lacks something, which the message names (`EX_UNAVAILABLE`).
    HostLacks = 69,
    /// Interrupted by a signal, and cleaned up.
    Interrupted = 130,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// The host lacks something that foothold cannot bring itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this host lacks {what}\nhint: {hint}")]
pub struct HostLacks {
    /// What is missing.
    pub what: String,
    /// One line that can be pasted, or what to ask for.
    pub hint: String,
}

/// The arguments, or a file named by them, cannot be what the user meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}\nhint: {hint}")]
pub struct WrongUsage {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// The user asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Whether the user has asked to stop. All clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks everything to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// An error once it is time to stop: `cancel.check()?` in every long loop.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_cancelled() { Err(Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cancel, Interrupted};

    #[test]
    fn all_clones_are_cancelled_together() {
        let cancel = Cancel::default();
        let clone = cancel.clone();
        assert_eq!(clone.check(), Ok(()));
        cancel.cancel();
        assert_eq!(clone.check(), Err(Interrupted));
    }
}
