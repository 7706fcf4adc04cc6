//! The handshake and the session of real programs, packet by packet.

use super::super::command::{BootOptions, ChassisStatus, Command, DeviceId, speaks_2};
use super::super::wire::{Message, decode_plain};
use super::*;

const SESSION: &str = include_str!("../../../tests/fixtures/ipmi-sim-suite3.txt");

/// Packets to and from the BMC.
fn packets() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let of = |mark: char| {
        let lines = SESSION.lines().filter_map(move |line| line.strip_prefix(mark));
        lines.map(|hex| hex::decode(hex.trim()).expect("hex")).collect()
    };
    (of('>'), of('<'))
}

/// The console of that session: its id and random number are in what it sent.
fn console(sent: &[Vec<u8>], password: &'static [u8]) -> Console<'static> {
    let random = sent[2][24..40].try_into().expect("16 bytes");
    let id = u32::from_le_bytes(sent[1][20..24].try_into().expect("4 bytes"));
    Console { hash: Hash::Sha1, user: b"admin", password, privilege: Privilege::Administrator, id, random }
}

#[test]
fn our_handshake_is_that_of_ipmitool_byte_by_byte() {
    let (sent, got) = packets();
    let console = console(&sent, b"secret");
    let opened = console.opened(&got[1]).expect("opened");
    assert_eq!(console.rakp1(&opened), sent[2]);
    let proved = console.rakp2(&opened, &got[2]).expect("proved");
    assert_eq!(console.rakp3(&proved), sent[3]);
    let keys = console.rakp4(&proved, &got[3]).expect("keys");

    let answers: Vec<Message> = got[4..]
        .iter()
        .map(|packet| Message::decode(&keys.open(console.id, packet).expect("opened").1).expect("a message"))
        .collect();
    let requests: Vec<Message> = sent[4..]
        .iter()
        .map(|packet| Message::decode(&keys.open(proved.bmc, packet).expect("opened").1).expect("a message"))
        .collect();
    let answer = |command: &Command| -> Vec<u8> {
        let at = requests.iter().position(|request| {
            (request.function, request.command, &request.data) == (command.function, command.code, &command.data)
        });
        let at = at.expect("asked");
        let (code, data) = command.answer(requests[at].sequence, &answers[at]).expect("its answer");
        assert_eq!(code, 0);
        data.to_vec()
    };
    let id = DeviceId::decode(&answer(&Command::device_id())).expect("an id");
    assert_eq!((id.firmware.as_str(), id.ipmi.as_str(), id.manufacturer), ("9.08", "2.0", 0x1291));
    let chassis = ChassisStatus::decode(&answer(&Command::chassis_status())).expect("a status");
    assert_eq!(chassis, ChassisStatus { on: true, fault: false });
    let boot = BootOptions::decode(&answer(&Command::boot_options())).expect("options");
    assert_eq!(boot.device_name(), "network");
    assert_eq!(answer(&Command::sel_time()).len(), 4);
    assert_eq!(answer(&Command::privilege(Privilege::Administrator)), [4]);
}

#[test]
fn what_is_asked_before_a_session_is_what_ipmitool_asks() {
    let (sent, got) = packets();
    let ask = Command::capabilities(Privilege::Administrator);
    assert_eq!(super::super::wire::encode_plain(&ask.message(0)), sent[0]);
    let message = decode_plain(&got[0]).expect("a message");
    let (code, data) = ask.answer(0, &message).expect("its answer");
    assert_eq!((code, speaks_2(data)), (0, Ok(true)));
}

#[test]
fn another_password_is_noticed_before_ours_is_shown() {
    let (sent, got) = packets();
    let console = console(&sent, b"Secret");
    let opened = console.opened(&got[1]).expect("opened");
    assert!(matches!(console.rakp2(&opened, &got[2]), Err(Refused::Password)));
}

#[test]
fn a_refusal_says_what_is_refused() {
    let (sent, got) = packets();
    let console = console(&sent, b"secret");
    for (code, refused) in
        [(0x11, Refused::Suite), (0x04, Refused::Suite), (0x0d, Refused::User), (0x02, Refused::Status(2))]
    {
        let mut packet = got[1].clone();
        packet[17] = code;
        assert_eq!(console.opened(&packet), Err(refused));
    }
}

#[test]
fn no_cut_packet_makes_the_handshake_panic() {
    let (sent, got) = packets();
    let console = console(&sent, b"secret");
    let opened = console.opened(&got[1]).expect("opened");
    let proved = console.rakp2(&opened, &got[2]).expect("proved");
    for packet in &got {
        for length in 0..packet.len() {
            let _ = console.opened(&packet[..length]);
            let _ = console.rakp2(&opened, &packet[..length]);
            let _ = console.rakp4(&proved, &packet[..length]);
        }
    }
}
