//! TAP devices: an interface of the host whose other end is a card of a machine.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A TAP device in the network namespace of the thread that made it. It is gone when it and all machines on it are.
#[derive(Debug, Clone)]
pub struct TapDevice {
    end: Arc<OwnedFd>,
    name: String,
}

/// Where they are made (kernel documentation, networking/tuntap).
const CLONE: &str = "/dev/net/tun";

/// A process that was forked and has not called `exec` yet has all descriptors of its parent: a device that was given
/// up a moment ago is there for as long.
const HELD_BY_CHILDREN: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl TapDevice {
    /// Makes the device, or takes over one of that name that nobody holds. It is down, and has no address. The kernel
    /// puts the first number that is free in the place of a `%d`.
    ///
    /// # Errors
    /// Without the right to make interfaces, for a name that is too long, and for one that is taken: of another kind,
    /// or held ([`io::ErrorKind::ResourceBusy`]).
    pub fn new(name: &str) -> io::Result<Self> {
        let end = OwnedFd::from(fs_err::OpenOptions::new().read(true).write(true).open(CLONE)?.into_file());
        let begin = Instant::now();
        loop {
            match attach(&end, name) {
                Ok(name) => return Ok(Self { end: Arc::new(end), name }),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && begin.elapsed() < HELD_BY_CHILDREN => {
                    #[expect(clippy::disallowed_methods, reason = "nobody is told when the other end is closed")]
                    std::thread::sleep(LOOK_AGAIN);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Its name, such as `tap0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another descriptor of it, for a machine.
    pub(crate) fn end(&self) -> io::Result<OwnedFd> {
        self.end.try_clone()
    }
}

/// Makes a descriptor that of the device, and tells its name.
#[expect(unsafe_code, reason = "TUNSETIFF has no safe form")]
fn attach(device: &OwnedFd, name: &str) -> io::Result<String> {
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
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let told =
        request.ifr_name.iter().take_while(|&&letter| letter != 0).map(|letter| letter.cast_unsigned()).collect();
    String::from_utf8(told).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sched::{CloneFlags, unshare};

    use super::TapDevice;

    /// Does something in a network namespace of its own.
    fn alone(work: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
            work();
        });
        thread.join().expect("its work is done");
    }

    #[test]
    fn a_device_that_a_child_holds_for_a_moment_can_be_made_again() {
        alone(|| {
            let tap = TapDevice::new("card").expect("made");
            let childs = tap.end().expect("another descriptor");
            drop(tap);
            let child = std::thread::spawn(move || {
                std::thread::park_timeout(Duration::from_millis(200));
                drop(childs);
            });
            assert_eq!(TapDevice::new("card").expect("made again").name(), "card");
            child.join().expect("the child is gone");
        });
    }

    #[test]
    fn a_device_that_is_held_stays_whose_it_is_and_numbers_are_free_ones() {
        alone(|| {
            let one = TapDevice::new("card%d").expect("made");
            let two = TapDevice::new("card%d").expect("made");
            assert_eq!([one.name(), two.name()], ["card0", "card1"]);
            let error = TapDevice::new("card0").expect_err("it is held");
            assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy, "{error}");
        });
    }
}
