use std::net::Ipv4Addr;
use std::time::Duration;

use agent_api::host_story::{DhcpClient, DhcpSign};
use dhcproto::v4::{Architecture, DhcpOption, Message, MessageType, Opcode, UnknownOption};
use jiff::Timestamp;
use rstest::rstest;

use super::super::packet::{dhcp, packet};
use super::{REMEMBERED, SIGNS, Signs, read};
use agent_api::net::MacAddress;

const NONE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const OURS: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 1);
const GIVEN: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 50);

fn mac(number: u16) -> MacAddress {
    let [high, low] = number.to_be_bytes();
    MacAddress([0x52, 0x54, 0, 0, high, low])
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
}

fn ask(machine: MacAddress, kind: MessageType, options: impl IntoIterator<Item = DhcpOption>) -> Vec<u8> {
    let mut message = Message::new_with_id(1, NONE, NONE, NONE, NONE, &machine.0);
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    for option in options {
        message.opts_mut().insert(option);
    }
    packet(&message).expect("encoded")
}

fn answer(machine: MacAddress, kind: MessageType) -> Vec<u8> {
    let mut message = Message::new_with_id(1, NONE, GIVEN, NONE, NONE, &machine.0);
    message.set_opcode(Opcode::BootReply);
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    message.opts_mut().insert(DhcpOption::ServerIdentifier(OURS));
    packet(&message).expect("encoded")
}

fn hear(signs: &mut Signs, packet: &[u8], outgoing: bool, seconds: i64) {
    signs.heard(&dhcp(packet).expect("DHCP"), outgoing, at(seconds));
}

fn written(dir: &std::path::Path) -> Vec<DhcpSign> {
    read(&fs_err::read(dir.join(SIGNS)).expect("a file")).expect("signs")
}

/// As the programs themselves ask: EDK II, a BIOS, iPXE of Debian, systemd-networkd.
#[rstest]
#[case::uefi(vec![
    DhcpOption::ClassIdentifier(b"PXEClient:Arch:00007:UNDI:003016".to_vec()),
    DhcpOption::ClientSystemArchitecture(Architecture::X64),
], DhcpClient::Pxe, Some(7))]
#[case::http(vec![
    DhcpOption::ClassIdentifier(b"HTTPClient:Arch:00016:UNDI:003001".to_vec()),
    DhcpOption::Unknown(UnknownOption::new(93.into(), vec![0, 16])),
], DhcpClient::HttpBoot, Some(16))]
#[case::ipxe(vec![
    DhcpOption::ClassIdentifier(b"PXEClient:Arch:00000:UNDI:002001".to_vec()),
    DhcpOption::Unknown(UnknownOption::new(93.into(), vec![0, 0])),
    DhcpOption::Unknown(UnknownOption::new(77.into(), b"iPXE".to_vec())),
], DhcpClient::Ipxe, Some(0))]
#[case::ipxe_by_its_options(vec![
    DhcpOption::Unknown(UnknownOption::new(175.into(), vec![0xb1, 5, 1, 0x80, 0x86, 0x10, 0x0e])),
], DhcpClient::Ipxe, None)]
#[case::system(vec![DhcpOption::Hostname("node".to_owned())], DhcpClient::System, None)]
#[case::half_an_architecture(vec![DhcpOption::Unknown(UnknownOption::new(93.into(), vec![7]))], DhcpClient::System, None)]
fn what_asks_is_told_by_its_options(
    #[case] options: Vec<DhcpOption>,
    #[case] client: DhcpClient,
    #[case] architecture: Option<u16>,
) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut signs = Signs::open(dir.path());
    hear(&mut signs, &ask(mac(1), MessageType::Discover, options), false, 0);
    signs.keep(Duration::ZERO).expect("written");
    let asked = written(dir.path())[0].asked.clone().expect("it asked");
    assert_eq!((asked.client, asked.architecture, &*asked.message), (client, architecture, "discover"));
}

#[test]
fn the_last_question_and_the_last_answer_stay_and_outlive_the_guard() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut signs = Signs::open(dir.path());
    let firmware = DhcpOption::ClassIdentifier(b"PXEClient:Arch:00007:UNDI:003016".to_vec());
    hear(&mut signs, &ask(mac(1), MessageType::Discover, [firmware.clone()]), false, 0);
    hear(&mut signs, &answer(mac(1), MessageType::Offer), true, 1);
    hear(&mut signs, &ask(mac(1), MessageType::Request, [firmware]), false, 2);
    hear(&mut signs, &answer(mac(1), MessageType::Ack), true, 3);
    hear(&mut signs, &ask(mac(2), MessageType::Discover, []), false, 4);
    // Another server; and what this box asks itself, which is no machine's sign.
    hear(&mut signs, &answer(mac(2), MessageType::Offer), false, 5);
    hear(&mut signs, &ask(mac(3), MessageType::Discover, []), true, 6);
    signs.keep(Duration::ZERO).expect("written");
    insta::assert_snapshot!(serde_json::to_string_pretty(&written(dir.path())).expect("JSON"));
    let again = Signs::open(dir.path());
    assert_eq!(again.machines, signs.machines);
}

#[test]
fn the_file_is_not_written_with_every_packet_and_not_without_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut signs = Signs::open(dir.path());
    signs.keep(Duration::ZERO).expect("nothing to write");
    assert!(!dir.path().join(SIGNS).exists());
    let mut ask_at = |seconds: u64| {
        hear(&mut signs, &ask(mac(1), MessageType::Discover, []), false, seconds.cast_signed());
        signs.keep(Duration::from_secs(seconds)).expect("written");
        written(dir.path())[0].asked.clone().expect("asked").at.0
    };
    assert_eq!([0, 1, 2, 3].map(&mut ask_at), [at(0), at(0), at(0), at(3)]);
}

#[test]
fn a_file_that_is_none_is_begun_anew_and_memory_has_an_end() {
    let dir = tempfile::tempdir().expect("a folder");
    fs_err::write(dir.path().join(SIGNS), "{").expect("written");
    let mut signs = Signs::open(dir.path());
    for number in 0..=REMEMBERED {
        let machine = mac(u16::try_from(number).expect("few"));
        hear(&mut signs, &ask(machine, MessageType::Discover, []), false, i64::try_from(number).expect("few"));
    }
    assert_eq!(signs.machines.len(), REMEMBERED);
    assert!(!signs.machines.contains_key(&mac(0)), "the oldest is forgotten");
}
