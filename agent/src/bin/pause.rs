//! `pause`: the first process of a pod. Holds its namespaces, buries orphans, ends when told to.
//!
//! `pause -v` tells its version and ends: the Job by which `kubeadm upgrade` checks a cluster's health runs just that.

use std::io::Write;
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|argument| argument == "-v") {
        let written = writeln!(std::io::stdout(), "pause {}", env!("CARGO_PKG_VERSION"));
        return if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
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
