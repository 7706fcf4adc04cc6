//! `pause`: the first process of a pod. Holds its namespaces, buries orphans, ends when told to.

use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

fn main() -> ExitCode {
    let mut wanted = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGCHLD] {
        wanted.add(signal);
    }
    if wanted.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    loop {
        match wanted.wait() {
            Ok(Signal::SIGCHLD) => bury(),
            Ok(_) => return ExitCode::SUCCESS,
            Err(_) => {}
        }
    }
}

fn bury() {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}
