//! A network namespace that lives as long as a thread, and what is started from it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

use super::SiteError;

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own. Threads that are made from it are there, too: such as those of a
/// runtime.
#[derive(Debug)]
pub struct Namespace {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Namespace {
    /// Makes one.
    ///
    /// # Errors
    /// Without the right to.
    pub fn make() -> Result<Self, SiteError> {
        let (jobs, todo) = mpsc::channel::<Job>();
        let (made, begun) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let done = unshare(CloneFlags::CLONE_NEWNET).map(|()| gettid());
            let failed = done.is_err();
            if made.send(done).is_err() || failed {
                return;
            }
            while let Ok(job) = todo.recv() {
                job();
            }
        });
        let gone = |_| SiteError::Namespace(io::Error::other("its thread is gone"));
        let thread_id = begun.recv().map_err(gone)?.map_err(|errno| SiteError::Namespace(errno.into()))?;
        let path = PathBuf::from(format!("/proc/{}/task/{thread_id}/ns/net", std::process::id()));
        Ok(Self { jobs: Some(jobs), thread: Some(thread), path })
    }

    /// Its file, for `nsenter --net=`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Does something there, and waits for it. A panic there is one here.
    ///
    /// # Panics
    /// When the work does.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        let job: Job = Box::new(move || {
            // Who waits is still there.
            let _ = done.send(catch_unwind(AssertUnwindSafe(work)));
        });
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        match result.recv() {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => unreachable!("the thread answers each job that it was sent ({sent})"),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Namespace;
    use crate::host::{enter_network_of_process, in_network_of_process};

    #[test]
    fn a_thread_of_a_sites_network_finds_back_to_that_of_the_process() {
        let namespace = Namespace::make().unwrap_or_else(|error| panic!("{error}"));
        namespace.run(move || {
            let thread = std::thread::spawn(move || {
                assert!(!in_network_of_process().expect("told"), "it begins where it was made");
                enter_network_of_process().expect("entered");
                assert!(in_network_of_process().expect("told"));
            });
            thread.join().expect("it is back");
        });
    }
}
