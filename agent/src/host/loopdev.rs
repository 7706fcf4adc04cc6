//! Loop devices: a file as a block device (`LOOP_CONFIGURE`, linux/loop.h).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use fs_err::{File, OpenOptions};

use super::ioctl;

const LOOP_CTL_GET_FREE: u64 = 0x4C82;
const LOOP_CONFIGURE: u64 = 0x4C0A;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// How often to try: the kernel names a free device without reserving it, so another process may be faster.
const ATTEMPTS: usize = 16;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

/// What is done with the device. With `direct` the page cache is not filled twice; the kernel quietly falls back where the
/// file system cannot do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is only read.
    Read {
        /// Past the page cache.
        direct: bool,
    },
    /// It is written, too.
    Write {
        /// Past the page cache.
        direct: bool,
    },
}

impl Access {
    fn flags(self) -> u32 {
        let (access, direct) = match self {
            Self::Read { direct } => (LO_FLAGS_READ_ONLY, direct),
            Self::Write { direct } => (0, direct),
        };
        access | LO_FLAGS_AUTOCLEAR | if direct { LO_FLAGS_DIRECT_IO } else { 0 }
    }

    fn open(self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(matches!(self, Self::Write { .. })).open(path)
    }
}

/// An attached loop device. It detaches itself when its last user closes it.
#[derive(Debug)]
pub struct LoopDevice {
    /// `/dev/loopN`.
    pub path: PathBuf,
    /// Held open: an unused device would detach at once.
    _held: File,
}

/// Attaches `file` in blocks of `block_size` bytes.
pub fn attach(file: &Path, block_size: u32, access: Access) -> io::Result<LoopDevice> {
    let backing = access.open(file)?;
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    for _ in 0..ATTEMPTS {
        let number = ioctl::with_number(&control, LOOP_CTL_GET_FREE, 0)?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = access.open(&path)?;
        match configure(&device, &backing, block_size, access.flags()) {
            Ok(()) => return Ok(LoopDevice { path, _held: device }),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[expect(unsafe_code, reason = "LOOP_CONFIGURE has no safe form")]
fn configure(device: &File, backing: &File, block_size: u32, flags: u32) -> io::Result<()> {
    let info = LoopInfo64 {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    let fd = u32::try_from(backing.as_fd().as_raw_fd()).map_err(io::Error::other)?;
    let mut config = LoopConfig { fd, block_size, info, reserved: [0; 8] };
    // SAFETY: the request reads one `struct loop_config`, which `config` is.
    unsafe { ioctl::with(device.as_fd(), LOOP_CONFIGURE, &raw mut config) }.map(drop)
}
