//! Making a process unimportant, unkillable and resident.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};

const IOPRIO_WHO_PROCESS: i32 = 1;
/// `IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0)`, linux/ioprio.h.
const IOPRIO_IDLE: i32 = 3 << 13;

/// Runs this process only when nothing else wants the processor or the disk.
#[expect(unsafe_code, reason = "no crate has a safe form of these calls")]
pub fn become_idle() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: both calls read at most `parameter`, which lives until they return.
    let results = unsafe {
        let scheduler = libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter);
        let disk = libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
        [i64::from(scheduler), disk]
    };
    if results.contains(&-1) { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The kernel never picks this process when memory runs out.
pub fn never_kill() -> io::Result<()> {
    fs_err::write("/proc/self/oom_score_adj", "-1000")
}

/// What this process has touched stays in memory: it must be able to report that its own program
/// file cannot be read any more.
pub fn stay_resident() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}
