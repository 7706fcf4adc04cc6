//! Makes stages, each as soon as what it needs is there.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, anyhow};

use super::{KEY, LOCK, Results, Stage};
use crate::builder::Builder;
use crate::host::cancel::Together;
use crate::store::Made;

/// Stages that are made at the same time: the three long roads of a first build are Debian, Go and Rust.
const AT_ONCE: usize = 3;

/// How far the work is.
struct Progress<'s, 'a> {
    waiting: Vec<&'s Stage<'a>>,
    /// Stages that are being made.
    running: usize,
    compiling: bool,
    failed: bool,
    results: Results,
}

impl<'s, 'a> Progress<'s, 'a> {
    /// The first stage that can be made now.
    fn next(&mut self) -> Option<&'s Stage<'a>> {
        if self.failed {
            return None;
        }
        let given = BTreeSet::from([LOCK, KEY]);
        let can =
            |stage: &&Stage<'_>| !(stage.go && self.compiling) && self.results.missing(&stage.needs, &given).is_empty();
        let place = self.waiting.iter().position(can)?;
        let stage = self.waiting.remove(place);
        self.running += 1;
        self.compiling |= stage.go;
        Some(stage)
    }
}

/// Makes all of `stages`, and takes what is cached from there. When one fails, the others stop, and its error is the
/// error.
pub fn make(at: &Builder, stages: &[Stage<'_>]) -> Result<Results> {
    let mut progress = Progress {
        waiting: stages.iter().collect(),
        running: 0,
        compiling: false,
        failed: false,
        results: Results::default(),
    };
    let first: Vec<_> = std::iter::from_fn(|| progress.next()).take(AT_ONCE).collect();
    let work = Work { at, progress: Mutex::new(progress), changed: Condvar::new(), together: Together::default() };
    let shared = &work;
    std::thread::scope(|scope| {
        for stage in first {
            scope.spawn(move || shared.run(stage));
        }
    });
    let Work { progress, together, .. } = work;
    together.outcome()?;
    let progress = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    match progress.waiting.first() {
        None => Ok(progress.results),
        Some(stage) => Err(anyhow!("the stage `{}` needs one that no list has: {:?}", stage.name, stage.needs)),
    }
}

/// What the workers share.
struct Work<'s, 'a> {
    at: &'s Builder,
    progress: Mutex<Progress<'s, 'a>>,
    changed: Condvar,
    together: Together,
}

impl<'s, 'a> Work<'s, 'a> {
    /// One worker: makes a stage, then others, until none is left that it could make.
    fn run(&self, first: &'s Stage<'a>) {
        let mut next = Some(first);
        while let Some(stage) = next {
            let results = self.progress().results.clone();
            let work = || self.together.run(|| self.at.stage(&stage.name, |say| stage.make(&results, say)));
            // A worker that ended without a word would leave the others waiting for its stage.
            let made = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                self.together.fail(anyhow!("making `{}` panicked", stage.name));
                None
            });
            self.end(stage, made);
            next = self.wait();
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress<'s, 'a>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, stage: &Stage<'_>, made: Option<Made>) {
        let mut progress = self.progress();
        progress.running -= 1;
        progress.compiling &= !stage.go;
        match made {
            Some(made) => {
                progress.results.0.insert(stage.name.clone(), made);
            }
            None => progress.failed = true,
        }
        self.changed.notify_all();
    }

    /// The next stage; none when all are made or nothing more can be.
    fn wait(&self) -> Option<&'s Stage<'a>> {
        let mut progress = self.progress();
        loop {
            if let Some(stage) = progress.next() {
                return Some(stage);
            }
            if progress.running == 0 || progress.failed || progress.waiting.is_empty() {
                return None;
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
