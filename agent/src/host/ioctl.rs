//! The one place where `ioctl` is called.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Calls `ioctl` with a pointer to `argument`, or with null.
///
/// # Safety
/// The kernel must read and write at most `argument` for this request, and any pointer inside it
/// must point to memory of the length that the request expects.
#[expect(unsafe_code, reason = "there is no safe form of these requests")]
pub(super) unsafe fn with<T: ?Sized>(fd: impl AsFd, request: u64, argument: *mut T) -> io::Result<i32> {
    // SAFETY: the caller's.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, argument.cast::<libc::c_void>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Calls `ioctl` with a number.
#[expect(unsafe_code, reason = "there is no safe form of these requests")]
pub(super) fn with_number(fd: impl AsFd, request: u64, argument: u64) -> io::Result<i32> {
    // SAFETY: the requests of this crate that take a number touch no memory of ours.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
