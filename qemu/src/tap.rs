//! TAP devices: an interface of the host whose other end is a card of a machine.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

/// A TAP device in the network namespace of the thread that made it. It is gone when it and all machines on it are.
#[derive(Debug, Clone)]
pub struct TapDevice(Arc<OwnedFd>);

/// Where they are made (kernel documentation, networking/tuntap).
const CLONE: &str = "/dev/net/tun";

impl TapDevice {
    /// Makes the device, or takes over one of that name that nobody holds. It is down, and has no address.
    ///
    /// # Errors
    /// Without the right to make interfaces, and for a name that is too long or taken.
    pub fn new(name: &str) -> io::Result<Self> {
        let device = fs_err::OpenOptions::new().read(true).write(true).open(CLONE)?;
        let device = OwnedFd::from(device.into_file());
        attach(&device, name)?;
        Ok(Self(Arc::new(device)))
    }

    /// Another descriptor of it, for a machine.
    pub(crate) fn end(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

#[expect(unsafe_code, reason = "TUNSETIFF has no safe form")]
fn attach(device: &OwnedFd, name: &str) -> io::Result<()> {
    // SAFETY: all of its fields may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is not the name of an interface")));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).map_err(io::Error::other)?;
    // SAFETY: the request is whole, and the kernel only writes into it.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
