//! SIGINT, SIGTERM and SIGHUP ask everything to stop; a third one no longer waits for the clean-up.

use std::io;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Cancel, Exit};

/// Signals after which the clean-up is given up.
const PATIENCE: u32 = 3;

/// Sets the flag when the process is asked to end. The thread that waits for that lives as long as the process.
pub fn cancel_on(cancel: &Cancel) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let guard = runtime.enter();
    let signals = kinds.into_iter().map(signal).collect::<io::Result<Vec<Signal>>>()?;
    drop(guard);
    let cancel = cancel.clone();
    thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(wait(signals, &cancel)))?;
    Ok(())
}

async fn wait(mut signals: Vec<Signal>, cancel: &Cancel) {
    for _ in 1..PATIENCE {
        any(&mut signals).await;
        cancel.cancel();
    }
    any(&mut signals).await;
    std::process::exit(Exit::Interrupted.code().into());
}

async fn any(signals: &mut [Signal]) {
    std::future::poll_fn(|context| {
        let caught = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if caught { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
