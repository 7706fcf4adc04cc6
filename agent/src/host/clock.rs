//! The clocks.

use std::io;

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

/// Seconds since power-on, sleep included (`CLOCK_BOOTTIME`).
#[expect(clippy::cast_precision_loss, reason = "seconds since power-on fit")]
pub fn boot_secs() -> f64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Seconds since 1970 by the wall clock.
pub fn now_secs() -> u64 {
    u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0)
}

/// Sets the wall clock.
pub fn set_secs(secs: u64) -> io::Result<()> {
    let tv_sec = i64::try_from(secs).map_err(io::Error::other)?;
    Ok(clock_settime(ClockId::Realtime, Timespec { tv_sec, tv_nsec: 0 })?)
}

/// Does nothing for a while. Only for a process that has nothing left to do.
pub fn pause(duration: std::time::Duration) {
    #[expect(clippy::disallowed_methods, reason = "the one door to sleeping")]
    std::thread::sleep(duration);
}
