//! Whether to stop: every wait for another process, a lock or a download looks here.
//!
//! Two flags count: the user's, for the whole process, and that of the [`Together`] whose work the thread does, which is
//! set when another part of that work has failed.
//!
//! The user's flag is a static, and no argument, because a signal is sent to the process: there is one such flag, and nobody
//! has another. Only the innermost waits look at it, and they lie below all stages. As an argument it would pass through every
//! function between; where one of them forgot it, Ctrl-C would not end that wait, and neither the compiler nor a test would
//! show it. What concerns only a part of the work is no static: a [`Together`] is made and handed on by who needs it.

use std::cell::RefCell;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::error::{Cancel, Interrupted};

static CANCEL: OnceLock<Cancel> = OnceLock::new();

thread_local! {
    /// The flag of the work that this thread does with others.
    static PART_OF: RefCell<Option<Cancel>> = const { RefCell::new(None) };
}

/// Makes `cancel` the flag that waits look at. The first call counts.
pub fn install(cancel: &Cancel) {
    let _ = CANCEL.set(cancel.clone());
}

/// An error when everything should stop.
pub fn check() -> Result<(), Interrupted> {
    CANCEL.get().map_or(Ok(()), Cancel::check)?;
    PART_OF.with_borrow(|part_of| part_of.as_ref().map_or(Ok(()), Cancel::check))
}

/// Whether this thread's work is to end because another part of it has failed.
pub fn gives_way() -> bool {
    PART_OF.with_borrow(|part_of| part_of.as_ref().is_some_and(Cancel::is_cancelled))
}

/// Work in several threads that is of use only as a whole: the first part that fails ends the others.
#[derive(Debug, Default)]
pub struct Together {
    failed: Cancel,
    first: Mutex<Option<anyhow::Error>>,
}

impl Together {
    /// Does one part of the work in this thread. `None`: it failed, or gave way to one that did.
    pub fn run<T>(&self, part: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        let before = PART_OF.replace(Some(self.failed.clone()));
        let result = part();
        PART_OF.set(before);
        result.map_err(|error| self.fail(error)).ok()
    }

    /// Ends the other parts because of `error`, unless one before it did.
    pub fn fail(&self, error: anyhow::Error) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            *first = Some(error);
        }
        self.failed.cancel();
    }

    /// The error of the part that failed first.
    pub fn outcome(self) -> anyhow::Result<()> {
        self.first.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::{Duration, Instant};

    use anyhow::{anyhow, bail};

    use super::{Together, check, gives_way};
    use crate::host::command::{Run, pause};

    #[test]
    fn a_part_that_fails_ends_the_programs_of_the_others_and_its_error_is_the_error() {
        let together = Together::default();
        let started = Instant::now();
        // A program whose own child does the work, as a compiler's driver has.
        let driver = Run::new("sh").args(["-c", "sleep 60 & wait"]);
        std::thread::scope(|scope| {
            let long = scope.spawn(|| together.run(|| Ok(driver.output()?)));
            let failing = scope.spawn(|| {
                together.run(|| -> anyhow::Result<()> {
                    pause(Duration::from_millis(300));
                    bail!("no such package")
                })
            });
            assert_eq!(failing.join().expect("no panic"), None);
            assert_eq!(long.join().expect("no panic"), None);
        });
        assert!(started.elapsed() < Duration::from_secs(30), "it waited for the others");
        assert_eq!(together.outcome().expect_err("a part failed").to_string(), "no such package");
    }

    #[test]
    fn of_two_errors_the_first_counts() {
        let together = Together::default();
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                together.run(|| -> anyhow::Result<()> {
                    both.wait();
                    assert!(gives_way());
                    Ok(check()?)
                })
            });
            together.run(|| -> anyhow::Result<()> { Err(anyhow!("the first")) });
            both.wait();
        });
        assert_eq!(together.outcome().expect_err("a part failed").to_string(), "the first");
    }

    #[test]
    fn work_that_goes_well_is_whole_and_leaves_no_flag_behind() {
        let together = Together::default();
        assert_eq!(together.run(|| Ok(7)), Some(7));
        together.fail(anyhow!("later"));
        assert!(!gives_way(), "this thread is no part of it any more");
        assert_eq!(check(), Ok(()));
        Together::default().outcome().expect("nothing failed");
    }
}
