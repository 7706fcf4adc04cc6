//! Labels of mounted file systems (`FS_IOC_SETFSLABEL`, linux/fs.h).

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use fs_err::File;

use super::ioctl;

/// `_IOW(0x94, 50, char[256])`.
const FS_IOC_SETFSLABEL: u64 = (1 << 30) | (256 << 16) | (0x94 << 8) | 0x32;

/// Sets the label of the file system mounted at `root`.
#[expect(unsafe_code, reason = "FS_IOC_SETFSLABEL has no safe form")]
pub fn set(root: &Path, label: &str) -> io::Result<()> {
    let directory = File::open(root)?;
    let mut buffer = [0_u8; 256];
    let length = label.len().min(255);
    buffer[..length].copy_from_slice(&label.as_bytes()[..length]);
    // SAFETY: the request reads 256 bytes.
    unsafe { ioctl::with(directory.as_fd(), FS_IOC_SETFSLABEL, buffer.as_mut_ptr()) }.map(drop)
}
