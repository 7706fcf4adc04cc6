//! DHCP packets of one interface, below the machine's own IP stack.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use tokio::io::unix::AsyncFd;

/// A packet socket on an interface: IPv4 packets to and from the ports of DHCP, in both directions.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    index: i32,
    mac: [u8; 6],
}

/// A packet as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its length, from the IPv4 header on.
    pub length: usize,
    /// MAC address of its sender.
    pub from: [u8; 6],
    /// This machine sent it.
    pub outgoing: bool,
}

/// UDP over IPv4, not a later fragment, to port 67 or 68: classic BPF from the IP header on, (code, true, false, k).
const DHCP: [(u16, u8, u8, u32); 9] = [
    (0x30, 0, 0, 9),
    (0x15, 0, 6, 17),
    (0x28, 0, 0, 6),
    (0x45, 4, 0, 0x1fff),
    (0xb1, 0, 0, 0),
    (0x48, 0, 0, 2),
    (0x15, 2, 0, 67),
    (0x15, 1, 0, 68),
    (0x06, 0, 0, 0),
];
/// The end of [`DHCP`]: take all of it.
const TAKE: (u16, u8, u8, u32) = (0x06, 0, 0, 0xffff);

impl PacketSocket {
    /// Opens a socket on the interface. Needs `CAP_NET_RAW`.
    pub fn open(interface: &str) -> io::Result<Self> {
        let link = getifaddrs()?
            .filter(|it| it.interface_name == interface)
            .find_map(|it| it.address?.as_link_addr().map(|link| (link.ifindex(), link.addr())));
        let absent = || io::Error::new(io::ErrorKind::NotFound, format!("there is no interface `{interface}`"));
        let (index, mac) = link.ok_or_else(absent)?;
        let mac = mac.ok_or_else(|| io::Error::other(format!("interface `{interface}` has no MAC address")))?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        // Without a protocol nothing arrives before the filter is in place.
        let fd = socket(AddressFamily::Packet, SockType::Datagram, flags, None)?;
        let index = i32::try_from(index).map_err(io::Error::other)?;
        let open = Self { fd, index, mac };
        open.filter()?;
        open.bind()?;
        Ok(open)
    }

    /// The interface's own MAC address.
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Lets tokio tell when a packet is there.
    #[expect(unsafe_code, reason = "tokio wants a promise about the descriptor")]
    pub fn watched(self) -> io::Result<AsyncFd<Self>> {
        // SAFETY: the descriptor is owned, never replaced, and closed only when `self` is dropped.
        Ok(unsafe { AsyncFd::register(self) }?)
    }

    #[expect(unsafe_code, reason = "no safe wrapper takes a filter of packets")]
    fn filter(&self) -> io::Result<()> {
        let instruction = |(code, jt, jf, k): (u16, u8, u8, u32)| libc::sock_filter { code, jt, jf, k };
        let mut program: Vec<libc::sock_filter> = DHCP.into_iter().chain([TAKE]).map(instruction).collect();
        let length = u16::try_from(program.len()).map_err(io::Error::other)?;
        let filter = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
        // SAFETY: `filter` and the program that it points to live until the call returns; the kernel copies both.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                size::<libc::sock_fprog>(),
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[expect(unsafe_code, reason = "no safe wrapper makes an address of the link layer")]
    fn bind(&self) -> io::Result<()> {
        let address = self.address(libc::ETH_P_ALL, [0; 6])?;
        // SAFETY: `address` is a whole `sockaddr_ll` that lives until the call returns.
        let result =
            unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), size::<libc::sockaddr_ll>()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn address(&self, protocol: i32, mac: [u8; 6]) -> io::Result<libc::sockaddr_ll> {
        let mut sll_addr = [0; 8];
        sll_addr[..6].copy_from_slice(&mac);
        Ok(libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).map_err(io::Error::other)?,
            sll_protocol: u16::try_from(protocol).map_err(io::Error::other)?.to_be(),
            sll_ifindex: self.index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr,
        })
    }

    /// The next packet; an error of kind `WouldBlock` when there is none.
    #[expect(unsafe_code, reason = "no safe wrapper tells the sender at the link layer")]
    pub fn receive(&self, packet: &mut [u8]) -> io::Result<Received> {
        loop {
            let mut from = self.address(0, [0; 6])?;
            let mut length = size::<libc::sockaddr_ll>();
            // SAFETY: `packet` may be written to its whole length; `from` has room for `length` bytes.
            let got = unsafe {
                libc::recvfrom(
                    self.fd.as_raw_fd(),
                    packet.as_mut_ptr().cast(),
                    packet.len(),
                    0,
                    (&raw mut from).cast(),
                    &raw mut length,
                )
            };
            let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
            if i32::from(u16::from_be(from.sll_protocol)) != libc::ETH_P_IP {
                continue;
            }
            let mut mac = [0; 6];
            mac.copy_from_slice(&from.sll_addr[..6]);
            return Ok(Received { length: got, from: mac, outgoing: from.sll_pkttype == libc::PACKET_OUTGOING });
        }
    }

    /// Sends an IPv4 packet to everybody on the segment.
    #[expect(unsafe_code, reason = "no safe wrapper makes an address of the link layer")]
    pub fn broadcast(&self, packet: &[u8]) -> io::Result<()> {
        let to = self.address(libc::ETH_P_IP, [0xff; 6])?;
        // SAFETY: `packet` and `to` live until the call returns, and are as long as it is told.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
                (&raw const to).cast(),
                size::<libc::sockaddr_ll>(),
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn size<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(libc::socklen_t::MAX)
}
