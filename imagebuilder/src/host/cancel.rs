//! The door's view of whether the user asked to stop: every wait for another process looks here.

use std::sync::OnceLock;

use crate::error::{Cancel, Interrupted};

static CANCEL: OnceLock<Cancel> = OnceLock::new();

/// Makes `cancel` the flag that waits look at. The first call counts.
pub fn install(cancel: &Cancel) {
    let _ = CANCEL.set(cancel.clone());
}

/// An error when everything should stop.
pub fn check() -> Result<(), Interrupted> {
    CANCEL.get().map_or(Ok(()), Cancel::check)
}
