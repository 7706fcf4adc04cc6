//! Network cards, and the cable between machines of one test.
//!
//! Nothing here lets a machine reach the host's network: user networking is restricted to the ports
//! that are forwarded *into* the machine, segments exist only between machines.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::tap::TapDevice;

/// A machine that does not take its frames delays the others for this long, then loses the frame.
const SEND_WITHIN: Duration = Duration::from_millis(50);
/// Larger than any Ethernet frame QEMU sends.
const FRAME_MAX: usize = 68 << 10;

/// A network card.
#[derive(Debug, Clone)]
pub struct Nic {
    pub(crate) model: NicModel,
    pub(crate) cable: Cable,
    pub(crate) mac: Option<String>,
    pub(crate) boot: bool,
}

/// What the machine takes the card for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NicModel {
    /// virtio-net.
    #[default]
    Virtio,
    /// Intel's 82551: Linux' driver loads a file of firmware into it, and leaves it alone where it finds none.
    I82551,
}

impl NicModel {
    /// QEMU's name for the device.
    pub(crate) fn device(self) -> &'static str {
        match self {
            Self::Virtio => "virtio-net-pci",
            Self::I82551 => "i82551",
        }
    }

    /// What the device is told beside its name. LACP takes only cards that say how fast they are, and in both directions at
    /// once (IEEE 802.1AX, 6.3.5); virtio's says nothing by itself.
    pub(crate) fn options(self) -> &'static str {
        match self {
            Self::Virtio => ",speed=10000,duplex=full",
            Self::I82551 => "",
        }
    }
}

/// What the card's cable ends in.
#[derive(Debug, Clone)]
pub(crate) enum Cable {
    /// Not plugged in: no carrier.
    Unplugged,
    /// Carrier, but nobody ever answers (no DHCP either).
    Silent,
    /// QEMU's user networking: DHCP gives 10.0.2.15 (10.0.3.15 to the second card, and so on), loopback
    /// ports of the host lead to these ports of the machine, nothing leads out.
    User { forwards: Vec<u16> },
    /// A segment with other machines.
    Segment(Segment),
    /// An interface of the host.
    Device(TapDevice),
}

impl Nic {
    /// A card without a cable.
    pub fn no_cable() -> Self {
        Self::with(Cable::Unplugged)
    }

    /// A card whose cable leads to a network where nobody answers.
    pub fn silent() -> Self {
        Self::with(Cable::Silent)
    }

    /// A card that gets an address by DHCP, with these ports of the machine reachable through
    /// [`Vm::forwarded`](crate::Vm::forwarded).
    pub fn user(forwards: &[u16]) -> Self {
        Self::with(Cable::User { forwards: forwards.to_vec() })
    }

    /// A card on a segment shared with other machines.
    pub fn segment(segment: &Segment) -> Self {
        Self::with(Cable::Segment(segment.clone()))
    }

    /// A card whose cable leads to an interface of the host.
    pub fn device(device: &TapDevice) -> Self {
        Self::with(Cable::Device(device.clone()))
    }

    /// Sets what the machine takes it for.
    #[must_use]
    pub fn model(mut self, model: NicModel) -> Self {
        self.model = model;
        self
    }

    /// Sets the hardware address, such as `52:54:00:12:34:56`. By default it follows from the
    /// machine's name and the card's position.
    #[must_use]
    pub fn mac(mut self, mac: impl Into<String>) -> Self {
        self.mac = Some(mac.into());
        self
    }

    /// Boots from this card when no disk can be booted.
    #[must_use]
    pub fn boot(mut self) -> Self {
        self.boot = true;
        self
    }

    fn with(cable: Cable) -> Self {
        Self { model: NicModel::default(), cable, mac: None, boot: false }
    }
}

/// A card as QEMU gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WiredNic {
    pub model: NicModel,
    pub mac: String,
    pub boot: bool,
    pub backend: Backend,
}

/// The other end of the card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Backend {
    /// A hub of its own. Used without a cable, too; the link is then set down before the machine starts.
    Nobody,
    /// (host port, port of the machine)
    User { forwards: Vec<(u16, u16)> },
    /// An inherited datagram socket, one frame a datagram.
    Socket { fd: i32 },
    /// An inherited TAP device.
    Device { fd: i32 },
}

/// An Ethernet segment between machines: what one sends, all others get.
///
/// Lives as long as a machine on it or a clone of the handle.
#[derive(Debug, Clone, Default)]
pub struct Segment {
    ports: Arc<Mutex<Vec<Arc<UnixDatagram>>>>,
}

/// One end of a segment. Dropping it pulls the cable out.
#[derive(Debug)]
pub(crate) struct Plug {
    segment: Segment,
    port: Arc<UnixDatagram>,
}

/// An end of a segment to send and receive Ethernet frames.
#[derive(Debug)]
pub struct Tap {
    socket: UnixDatagram,
    _plug: Plug,
}

impl Tap {
    /// The next frame (without checksum): its length, or an error of kind `WouldBlock` when none comes.
    pub fn receive(&self, frame: &mut [u8], within: Duration) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(within))?;
        self.socket.recv(frame)
    }

    /// Sends a frame to all machines.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.socket.send(frame).map(drop)
    }
}

impl Segment {
    /// An empty segment.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an end: the socket for QEMU, and the guard that unplugs it.
    pub(crate) fn plug(&self) -> io::Result<(OwnedFd, Plug)> {
        let (ours, theirs) = UnixDatagram::pair()?;
        ours.set_write_timeout(Some(SEND_WITHIN))?;
        let port = Arc::new(ours);
        self.lock().push(Arc::clone(&port));
        let (segment, from) = (self.clone(), Arc::clone(&port));
        std::thread::spawn(move || segment.carry(&from));
        Ok((theirs.into(), Plug { segment: self.clone(), port }))
    }

    /// Adds an end for the test itself.
    pub fn tap(&self) -> io::Result<Tap> {
        let (socket, plug) = self.plug()?;
        Ok(Tap { socket: socket.into(), _plug: plug })
    }

    /// Hands on what comes in at `from`, until it is unplugged.
    fn carry(&self, from: &Arc<UnixDatagram>) {
        let mut frame = vec![0; FRAME_MAX];
        while let Ok(length @ 1..) = from.recv(&mut frame) {
            let others: Vec<_> = self.lock().iter().filter(|port| !Arc::ptr_eq(port, from)).cloned().collect();
            for port in others {
                // Ethernet promises nothing.
                let _ = port.send(&frame[..length]);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<UnixDatagram>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        self.segment.lock().retain(|port| !Arc::ptr_eq(port, &self.port));
        let _ = self.port.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reaches_every_other_end_and_unplugged_ends_are_gone() {
        let segment = Segment::new();
        let mut ends: Vec<_> = (0..3)
            .map(|_| {
                let (fd, plug) = segment.plug().expect("plugged");
                let socket = UnixDatagram::from(fd);
                socket.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
                (socket, plug)
            })
            .collect();
        ends[0].0.send(b"frame").expect("sent");
        let mut buffer = [0; 16];
        for (socket, _) in &ends[1..] {
            assert_eq!(socket.recv(&mut buffer).expect("received"), 5);
        }
        ends.truncate(1);
        assert_eq!(segment.lock().len(), 1);
        ends[0].0.send(b"alone").expect("sent");
        ends.clear();
        assert!(segment.lock().is_empty());
    }
}
