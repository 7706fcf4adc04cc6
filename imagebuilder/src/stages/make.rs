//! Makes stages, each as soon as what it needs is there.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::course::Course;
use super::{KEY, LOCK, Results, Stage};
use crate::builder::Builder;
use crate::host::cancel::Together;
use crate::store::Made;

/// Stages that are made at the same time: the three long roads of a first build are Debian, Go and Rust.
pub(super) const AT_ONCE: usize = 3;
/// Builds that end sooner do not say how far they are; others say it so often.
const TELL: Duration = Duration::from_secs(10);

/// How far the work is.
struct Progress<'s, 'a> {
    waiting: Vec<&'s Stage<'a>>,
    /// Stages that are being made.
    running: usize,
    compiling: bool,
    failed: bool,
    results: Results,
    course: Course<'s>,
    /// Workers that have not ended.
    workers: usize,
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
        self.course.begins(&stage.name);
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
        course: Course::new(stages, &at.cache),
        workers: 0,
    };
    let first: Vec<_> = std::iter::from_fn(|| progress.next()).take(AT_ONCE).collect();
    progress.workers = first.len();
    let work = Work { at, progress: Mutex::new(progress), changed: Condvar::new(), together: Together::default() };
    let shared = &work;
    std::thread::scope(|scope| {
        for stage in first {
            scope.spawn(move || shared.run(stage));
        }
        shared.tell();
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
            let begun = Instant::now();
            let mut took = None;
            let mut timed = |say: super::Say<'_>| {
                let made = stage.make(&results, say);
                took = made.as_ref().is_ok_and(|(_, cached)| !cached).then(|| begun.elapsed().as_secs_f64());
                made
            };
            let work = || self.together.run(|| self.at.stage(&stage.name, &mut timed));
            // A worker that ended without a word would leave the others waiting for its stage.
            let made = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                self.together.fail(anyhow!("making `{}` panicked", stage.name));
                None
            });
            self.end(stage, made, took);
            next = self.wait();
        }
        self.progress().workers -= 1;
        self.changed.notify_all();
    }

    /// Says how far the stages are until all workers have ended.
    fn tell(&self) {
        let mut step = None;
        let mut told = Instant::now();
        let mut progress = self.progress();
        while progress.workers > 0 {
            let rest = TELL.saturating_sub(told.elapsed());
            progress = self.changed.wait_timeout(progress, rest).map_or_else(|held| held.into_inner().0, |held| held.0);
            if told.elapsed() < TELL || progress.workers == 0 {
                continue;
            }
            told = Instant::now();
            let left = progress.course.left(told);
            let step = step.get_or_insert_with(|| self.at.report.step("build", "stages"));
            step.count_noting(left.made, left.all, "stages", &left.words());
        }
        let failed = progress.failed;
        drop(progress);
        match step {
            Some(step) if failed => step.failed("a stage failed"),
            Some(step) => step.done(),
            None => {}
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress<'s, 'a>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `took`: seconds, unless it was in the cache.
    fn end(&self, stage: &Stage<'_>, made: Option<Made>, took: Option<f64>) {
        let mut progress = self.progress();
        progress.running -= 1;
        progress.compiling &= !stage.go;
        match made {
            Some(made) => {
                progress.course.is_made(&stage.name, took);
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
