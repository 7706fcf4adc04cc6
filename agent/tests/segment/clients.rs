//! Whom network boot knows: firmware of each kind, iPXE, and machines behind a relay.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use agent_api::net::MacAddress;
use dhcproto::v4::{Architecture, DhcpOption, Flags, Message, MessageType, Opcode, OptionCode, UnknownOption};
use dhcproto::{Decodable as _, Decoder, Encodable as _, Encoder};
use foothold_agent::provisioning::segment::packet::packet;

use super::site::{OURS, Site};
use super::wire::wait;
use super::{KNOWN, PATIENCE, SILENCE, STRANGER};

/// Headers of IPv4 and UDP, of packets without IP options.
const HEADERS: usize = 28;
const UNSPECIFIED: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

/// The question of a machine that boots over the network.
fn question(mac: MacAddress, architecture: u16, ipxe: bool, relay: Ipv4Addr) -> Message {
    let mut message = Message::new_with_id(rand::random(), UNSPECIFIED, UNSPECIFIED, UNSPECIFIED, relay, &mac.0);
    message.set_flags(Flags::default().set_broadcast());
    let http = matches!(architecture, 16 | 19);
    let class = format!("{}Client:Arch:{architecture:05}:UNDI:003016", if http { "HTTP" } else { "PXE" });
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(MessageType::Discover));
    let asked = vec![OptionCode::SubnetMask, OptionCode::Router, OptionCode::BootfileName];
    options.insert(DhcpOption::ParameterRequestList(asked));
    options.insert(DhcpOption::ClassIdentifier(class.into_bytes()));
    options.insert(DhcpOption::ClientSystemArchitecture(Architecture::from(architecture)));
    if ipxe {
        // It tells its features in it (option space of Etherboot).
        options.insert(DhcpOption::Unknown(UnknownOption::new(OptionCode::Unknown(175), vec![177, 5, 1, 0, 0, 0, 0])));
    }
    message
}

/// The name of what is booted, wherever it stands.
fn boots(answer: &Message) -> String {
    let option = answer.opts().get(OptionCode::BootfileName).and_then(|option| match option {
        DhcpOption::BootfileName(name) => Some(name.clone()),
        _ => None,
    });
    let name = option.or_else(|| answer.fname().map(<[u8]>::to_vec)).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
}

fn class(answer: &Message) -> Option<&[u8]> {
    match answer.opts().get(OptionCode::ClassIdentifier) {
        Some(DhcpOption::ClassIdentifier(class)) => Some(class),
        _ => None,
    }
}

/// Asks until ours answers.
fn asked(site: &Site, message: &Message) -> Message {
    let until = Instant::now() + PATIENCE;
    let mut buffer = [0; 2048];
    while Instant::now() < until {
        site.client.socket.broadcast(&packet(message).expect("encoded")).expect("sent");
        let again = Instant::now() + Duration::from_secs(2);
        while Instant::now() < again {
            while let Ok(received) = site.client.socket.receive(&mut buffer) {
                let body = buffer[..received.length].get(HEADERS..).filter(|_| !received.outgoing);
                let answer = body.and_then(|body| Message::decode(&mut Decoder::new(body)).ok());
                if let Some(answer) = answer.filter(|answer| answer.xid() == message.xid() && answer.siaddr() == OURS) {
                    return answer;
                }
            }
            wait(&site.client.socket, again.saturating_duration_since(Instant::now()));
        }
    }
    panic!("no answer to {message:?}");
}

#[test]
fn firmware_of_each_kind_is_given_its_loader_and_ipxe_goes_on_by_http() {
    let site = Site::new();
    let _ours = site.serve("guard");
    let http = |file: &str| format!("http://172.22.0.1:6180/provisioning/{file}");
    for (architecture, ipxe, wanted) in [
        (0, false, "undionly.kpxe".to_owned()),
        (7, false, "snponly.efi".to_owned()),
        (9, false, "snponly.efi".to_owned()),
        (11, false, "ipxe-arm64.efi".to_owned()),
        (16, false, http("snponly.efi")),
        (19, false, http("ipxe-arm64.efi")),
        (0, true, http("boot.ipxe")),
        (7, true, http("boot.ipxe")),
        (11, true, http("boot.ipxe")),
    ] {
        let answer = asked(&site, &question(KNOWN, architecture, ipxe, UNSPECIFIED));
        assert_eq!(boots(&answer), wanted, "architecture {architecture}, iPXE: {ipxe}");
        assert_eq!(answer.yiaddr(), Ipv4Addr::from([172, 22, 0, 50]));
        // Firmware that boots over HTTP ignores offers without it.
        assert!(!matches!(architecture, 16 | 19) || class(&answer) == Some(b"HTTPClient"), "{answer:?}");
    }
}

#[test]
fn machines_behind_a_relay_are_served_when_they_are_known() {
    let site = Site::new();
    let (gateway, relay) = site.relay();
    let _ours = site.serve("guard");
    let ask = |mac: MacAddress, patience: Duration| {
        let message = question(mac, 7, false, gateway);
        let mut bytes = Vec::new();
        message.encode(&mut Encoder::new(&mut bytes)).expect("encoded");
        let (until, mut buffer) = (Instant::now() + patience, [0; 2048]);
        relay.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
        while Instant::now() < until {
            relay.send_to(&bytes, (OURS, 67)).expect("sent");
            // It hears what the guard asks everybody, too, and late answers.
            while let Ok((length, _)) = relay.recv_from(&mut buffer) {
                let answer = Message::decode(&mut Decoder::new(&buffer[..length])).expect("DHCP");
                if answer.opcode() == Opcode::BootReply && answer.xid() == message.xid() {
                    return Some(answer);
                }
            }
        }
        None
    };
    // Its reservation is of another subnet: it is known all the same.
    let answer = ask(KNOWN, PATIENCE).expect("an offer");
    let given = answer.yiaddr().octets();
    assert!(given[..3] == [10, 1, 0] && (10..=99).contains(&given[3]), "an address of that subnet: {given:?}");
    let router = answer.opts().get(OptionCode::Router);
    assert_eq!(router, Some(&DhcpOption::Router(vec![gateway])));
    assert_eq!(boots(&answer), "snponly.efi");
    // No look reaches its network: whoever else serves there is not known.
    assert_eq!(ask(STRANGER, SILENCE), None);
}
