//! The kernel's announcements of devices, so that nobody has to poll for them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt, socket, sockopt,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

/// The kernel's own multicast group.
const KERNEL_GROUP: u32 = 1;

/// A socket that hears announcements.
#[derive(Debug)]
pub struct Uevents {
    socket: OwnedFd,
}

/// One announcement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uevent {
    /// `add`, `change`, `remove`, ...
    pub action: String,
    /// `block`, `pci`, ...
    pub subsystem: String,
    /// Path below `/sys`.
    pub path: String,
    /// What a driver matches on, if it is a device that wants one.
    pub modalias: String,
}

impl Uevents {
    /// Announcements from now on.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Netlink, SockType::Datagram, flags, SockProtocol::NetlinkKObjectUEvent)?;
        // A machine announces hundreds of devices while modules load; what is lost is found by walking.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &(4 << 20));
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))?;
        Ok(Self { socket })
    }

    /// Waits until something is announced, at most `timeout`, and returns all that is waiting.
    pub fn wait(&self, timeout: Duration) -> Vec<Uevent> {
        let limit = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&limit));
        let mut heard = Vec::new();
        let mut buffer = [0_u8; 8192];
        while let Ok(length) = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            heard.push(parse(&buffer[..length]));
        }
        heard
    }
}

fn parse(message: &[u8]) -> Uevent {
    let mut event = Uevent::default();
    for field in message.split(|byte| *byte == 0) {
        let text = String::from_utf8_lossy(field);
        match text.split_once('=') {
            Some(("ACTION", value)) => value.clone_into(&mut event.action),
            Some(("SUBSYSTEM", value)) => value.clone_into(&mut event.subsystem),
            Some(("MODALIAS", value)) => value.clone_into(&mut event.modalias),
            Some(("DEVPATH", value)) => value.clone_into(&mut event.path),
            _ => {}
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_announcement_is_read_by_its_keys() {
        let event = parse(b"add@/devices/x\0ACTION=add\0DEVPATH=/devices/x\0SUBSYSTEM=block\0SEQNUM=7\0");
        assert_eq!(
            (event.action.as_str(), event.subsystem.as_str(), event.path.as_str()),
            ("add", "block", "/devices/x")
        );
    }
}
