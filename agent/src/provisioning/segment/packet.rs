//! DHCP packets as they are on the wire, from the IPv4 header on. The crate dhcproto writes them. They are read by hand,
//! because its decoder panics at some options with a wrong length, and anybody on the segment can send those.

use std::net::Ipv4Addr;

use dhcproto::v4::{Architecture, DhcpOption, Flags, Message, MessageType, OptionCode};
use dhcproto::{Encodable, Encoder};

use agent_api::net::MacAddress;

/// Port of servers and relays.
pub const SERVER_PORT: u16 = 67;
/// Port of clients.
pub const CLIENT_PORT: u16 = 68;
/// Shortest IPv4 header (RFC 791, 3.1).
const IPV4_HEADER: usize = 20;
/// UDP header (RFC 768).
const UDP_HEADER: usize = 8;
/// IP protocol number of UDP.
const UDP: u8 = 17;
/// `htype` of Ethernet, in the packet's second byte; `hlen` follows (RFC 2131, 2).
const ETHERNET: u8 = 1;
/// `op` of clients and of servers (RFC 2131, 2).
const BOOT_REQUEST: u8 = 1;
const BOOT_REPLY: u8 = 2;
/// Where the options begin, after [`COOKIE`] (RFC 2131, 2 and 3).
const OPTIONS: usize = 240;
/// What stands before them.
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Options without a length (RFC 2132, 3.1 and 3.2).
const PAD: u8 = 0;
const END: u8 = 255;
/// RFC 2132, 9.7.
const SERVER_IDENTIFIER: u8 = 54;

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How the server calls itself (option 54), or where the packet came from.
    pub server: Ipv4Addr,
    /// MAC address that the packet came from.
    pub from: MacAddress,
    /// The machine that it is for.
    pub to: MacAddress,
    /// The address that it gives; none when it only tells what to boot, or refuses.
    pub offered: Option<Ipv4Addr>,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A machine asks.
    Ask {
        /// The machine.
        mac: MacAddress,
        /// Whether a relay passed it on from another segment.
        relayed: bool,
    },
    /// A server answers.
    Answer(Answer),
}

/// A DHCP packet of Ethernet, less what nobody here needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dhcp<'a> {
    /// A server sent it.
    pub reply: bool,
    /// The MAC address of the client.
    pub mac: MacAddress,
    /// IP address that it came from.
    pub source: Ipv4Addr,
    /// The address that it gives; unspecified when it gives none.
    pub yiaddr: Ipv4Addr,
    /// The relay that passed it on; unspecified when none did.
    pub giaddr: Ipv4Addr,
    options: &'a [u8],
}

impl<'a> Dhcp<'a> {
    /// Value of the first option with that code.
    pub fn option(&self, wanted: u8) -> Option<&'a [u8]> {
        option(self.options, wanted)
    }

    /// How the server calls itself (option 54), or where the packet came from.
    pub fn server(&self) -> Ipv4Addr {
        let named = self.option(SERVER_IDENTIFIER).and_then(|value| <[u8; 4]>::try_from(value).ok());
        named.map_or(self.source, Ipv4Addr::from)
    }

    /// The address that it gives, if it gives one.
    pub fn gives(&self) -> Option<Ipv4Addr> {
        Some(self.yiaddr).filter(|address| !address.is_unspecified())
    }

    /// What the guard needs of it; `from`: who sent it.
    pub fn seen(&self, from: MacAddress) -> Seen {
        if self.reply {
            Seen::Answer(Answer { server: self.server(), from, to: self.mac, offered: self.gives() })
        } else {
            Seen::Ask { mac: self.mac, relayed: !self.giaddr.is_unspecified() }
        }
    }
}

/// Reads a packet; `None` if it is not DHCP over Ethernet.
pub(super) fn dhcp(packet: &[u8]) -> Option<Dhcp<'_>> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let (whole, protocol) = (packet.first()? >> 4 == 4 && header >= IPV4_HEADER, *packet.get(9)?);
    if !whole || protocol != UDP {
        return None;
    }
    let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    let port = u16::from_be_bytes(packet.get(header + 2..header + 4)?.try_into().ok()?);
    let body = packet.get(header + UDP_HEADER..)?;
    if port != SERVER_PORT && port != CLIENT_PORT || body.get(1..3)? != [ETHERNET, 6] {
        return None;
    }
    let mac = MacAddress(body.get(28..34)?.try_into().ok()?);
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(body.get(at..at + 4)?).ok()?));
    let (yiaddr, giaddr) = (address(16)?, address(24)?);
    if body.get(OPTIONS - COOKIE.len()..OPTIONS)? != COOKIE {
        return None;
    }
    let reply = match *body.first()? {
        BOOT_REQUEST => false,
        BOOT_REPLY => true,
        _ => return None,
    };
    Some(Dhcp { reply, mac, source: source.into(), yiaddr, giaddr, options: body.get(OPTIONS..)? })
}

/// Reads a packet that came from `from`; `None` if it is not DHCP over Ethernet.
pub fn read(packet: &[u8], from: MacAddress) -> Option<Seen> {
    dhcp(packet).map(|dhcp| dhcp.seen(from))
}

/// Value of the first option with that code; the others are not looked into, however they are made (RFC 2132, 2).
///
/// `Message::decode` of dhcproto reads them all, and panics at some that say a wrong length.
fn option(mut options: &[u8], wanted: u8) -> Option<&[u8]> {
    loop {
        let (&code, rest) = options.split_first()?;
        match code {
            PAD => options = rest,
            END => return None,
            _ => {
                let (&length, rest) = rest.split_first()?;
                let (value, rest) = rest.split_at_checked(usize::from(length))?;
                if code == wanted {
                    return Some(value);
                }
                options = rest;
            }
        }
    }
}

/// A DHCPDISCOVER to everybody, answered to everybody. `pxe` asks as firmware does: some servers answer nothing else.
pub fn discover(mac: MacAddress, transaction: u32, pxe: bool) -> Result<Vec<u8>, dhcproto::error::EncodeError> {
    let unspecified = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(transaction, unspecified, unspecified, unspecified, unspecified, &mac.0);
    message.set_flags(Flags::default().set_broadcast());
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(MessageType::Discover));
    options.insert(DhcpOption::ParameterRequestList(vec![
        OptionCode::SubnetMask,
        OptionCode::Router,
        OptionCode::TFTPServerName,
        OptionCode::BootfileName,
    ]));
    if pxe {
        options.insert(DhcpOption::ClassIdentifier(b"PXEClient:Arch:00007:UNDI:003016".to_vec()));
        options.insert(DhcpOption::ClientSystemArchitecture(Architecture::X64));
    }
    packet(&message)
}

/// The message from a client that has no address, to everybody.
pub fn packet(message: &Message) -> Result<Vec<u8>, dhcproto::error::EncodeError> {
    let mut body = Vec::new();
    message.encode(&mut Encoder::new(&mut body))?;
    // Relays of RFC 951's time drop what is shorter than a BOOTP packet.
    body.resize(body.len().max(300), 0);
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    let mut packet = vec![0x45, 0x10];
    packet.extend(length(IPV4_HEADER + UDP_HEADER + body.len()));
    packet.extend([0, 0, 0, 0, 64, UDP, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(CLIENT_PORT.to_be_bytes());
    packet.extend(SERVER_PORT.to_be_bytes());
    packet.extend(length(UDP_HEADER + body.len()));
    // No UDP checksum, which IPv4 allows.
    packet.extend([0, 0]);
    packet.extend(body);
    Ok(packet)
}

/// Of an IPv4 header (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Answer, MacAddress, OPTIONS, Seen, checksum, discover, option, packet, read};
    use dhcproto::v4::{DhcpOption, Message, MessageType, Opcode};
    use proptest::prelude::{any, proptest};
    use std::net::Ipv4Addr;

    const MINE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const THEIRS: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    #[test]
    fn a_probe_is_a_request_with_a_good_header() {
        for pxe in [false, true] {
            let packet = discover(MINE, 7, pxe).expect("encoded");
            assert_eq!(checksum(&packet[..20]), 0);
            assert_eq!(read(&packet, MINE), Some(Seen::Ask { mac: MINE, relayed: false }));
        }
    }

    #[test]
    fn an_answer_tells_who_gives_what_to_whom() {
        let (none, server, offered) = (Ipv4Addr::UNSPECIFIED, [192, 0, 2, 1].into(), [192, 0, 2, 9].into());
        let mut message = Message::new_with_id(1, none, offered, none, none, &MINE.0);
        message.set_opcode(Opcode::BootReply);
        message.opts_mut().insert(DhcpOption::MessageType(MessageType::Offer));
        message.opts_mut().insert(DhcpOption::ServerIdentifier(server));
        let wanted = Answer { server, from: THEIRS, to: MINE, offered: Some(offered) };
        assert_eq!(read(&packet(&message).expect("encoded"), THEIRS), Some(Seen::Answer(wanted)));
    }

    /// Options that dhcproto 0.15 panics at: 151 (status code) without a byte, 152 (base time) with five, 81 (FQDN) with one.
    #[test]
    fn options_of_a_wrong_length_do_not_hide_who_answers() {
        let (none, server) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(192, 0, 2, 1));
        let mut message = Message::new_with_id(1, none, none, none, none, &MINE.0);
        message.set_opcode(Opcode::BootReply);
        let mut bytes = packet(&message).expect("encoded");
        let options = 20 + 8 + OPTIONS;
        let odd = [0, 151, 0, 152, 5, 1, 2, 3, 4, 5, 81, 1, 0, 54, 4, 192, 0, 2, 1, 255];
        bytes[options..options + odd.len()].copy_from_slice(&odd);
        let wanted = Answer { server, from: THEIRS, to: MINE, offered: None };
        assert_eq!(read(&bytes, THEIRS), Some(Seen::Answer(wanted)));
    }

    #[test]
    fn an_option_is_found_or_not() {
        for (options, wanted) in [
            (&[54, 2, 7, 8, 255][..], Some(&[7, 8][..])),
            (&[0, 0, 1, 1, 9, 54, 0], Some(&[])),
            (&[255, 54, 1, 7], None),
            (&[54, 3, 7, 8], None),
            (&[54], None),
            (&[1, 1, 9], None),
            (&[], None),
        ] {
            assert_eq!(option(options, 54), wanted, "{options:?}");
        }
    }

    proptest! {
        #[test]
        fn any_packet_is_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0..300_usize) {
            let _ = read(&bytes, MINE);
            let mut packet = discover(MINE, 7, true).expect("encoded");
            for (index, byte) in bytes.iter().enumerate().take(12) {
                if let Some(place) = packet.get_mut(at + index) {
                    *place = *byte;
                }
            }
            let _ = read(&packet, MINE);
        }
    }
}
