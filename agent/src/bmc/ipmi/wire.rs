//! Packets: RMCP, session headers, LAN messages, and the sealing of a session's payloads.

use aes::Aes128;
use aes::cipher::{BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _};
use ring::hmac;

/// 13.1.3: version 6 (ASF 2.0), no sequence number (no acknowledgement), class IPMI.
const RMCP: [u8; 4] = [0x06, 0x00, 0xff, 0x07];
/// 13.6: authentication types of the session header.
const AUTH_NONE: u8 = 0x00;
const AUTH_RMCP_PLUS: u8 = 0x06;
/// 13.27.3: payload types.
pub(super) const PAYLOAD_IPMI: u8 = 0x00;
pub(super) const PAYLOAD_SOL: u8 = 0x01;
pub(super) const PAYLOAD_OPEN_REQUEST: u8 = 0x10;
pub(super) const PAYLOAD_OPEN_RESPONSE: u8 = 0x11;
pub(super) const PAYLOAD_RAKP1: u8 = 0x12;
pub(super) const PAYLOAD_RAKP2: u8 = 0x13;
pub(super) const PAYLOAD_RAKP3: u8 = 0x14;
pub(super) const PAYLOAD_RAKP4: u8 = 0x15;
/// 13.6, payload type byte: encrypted, authenticated.
const ENCRYPTED: u8 = 0x80;
const AUTHENTICATED: u8 = 0x40;
/// 13.6, "Next Header".
const NEXT_HEADER: u8 = 0x07;
/// 5.5, 13.8: the BMC's address, and a remote console's software id.
const BMC: u8 = 0x20;
const CONSOLE: u8 = 0x81;
/// AES block (13.29).
pub(super) const BLOCK: usize = 16;
/// Authentication type, payload type, session id, sequence number, length.
const PLUS_HEADER: usize = 12;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the packet says.
    #[error("the packet is cut off")]
    Short,
    /// Not IPMI over RMCP.
    #[error("the packet is not IPMI")]
    NotIpmi,
    /// A checksum is wrong.
    #[error("the message's checksum is wrong")]
    Checksum,
    /// The packet was not made by who knows the password.
    #[error("the packet's authentication code is wrong")]
    Authentication,
    /// Deciphered, it has no form.
    #[error("the packet cannot be deciphered")]
    Padding,
    /// An answer to something else.
    #[error("the packet answers something else")]
    Unexpected,
}

/// Hash of a cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    /// Cipher suite 3 (22.15.2): RAKP-HMAC-SHA1, HMAC-SHA1-96, AES-CBC-128.
    Sha1,
    /// Cipher suite 17: RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128.
    Sha256,
}

impl Hash {
    /// 13.28: authentication algorithm; 13.28.4: integrity algorithm.
    pub const fn algorithms(self) -> (u8, u8) {
        match self {
            Self::Sha1 => (0x01, 0x01),
            Self::Sha256 => (0x03, 0x04),
        }
    }

    /// Bytes of a RAKP code, and of a packet's or RAKP 4's (which is cut).
    pub const fn lengths(self) -> (usize, usize) {
        match self {
            Self::Sha1 => (20, 12),
            Self::Sha256 => (32, 16),
        }
    }

    pub fn key(self, secret: &[u8]) -> hmac::Key {
        let algorithm = match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
        };
        hmac::Key::new(algorithm, secret)
    }

    /// HMAC over the parts, one behind the other.
    pub fn mac(self, secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.key(secret));
        for part in parts {
            context.update(part);
        }
        context.sign().as_ref().to_vec()
    }
}

/// A message between console and BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Network function; odd in answers.
    pub function: u8,
    /// Number of the request.
    pub sequence: u8,
    pub command: u8,
    /// In answers the completion code comes first.
    pub data: Vec<u8>,
}

fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)).wrapping_neg()
}

impl Message {
    /// 13.8: a request.
    pub fn encode(&self) -> Vec<u8> {
        let head = [BMC, self.function << 2];
        let mut bytes = vec![head[0], head[1], checksum(&head), CONSOLE, self.sequence << 2, self.command];
        bytes.extend(&self.data);
        let sum = checksum(&bytes[3..]);
        bytes.push(sum);
        bytes
    }

    /// 13.8: an answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let [_, function, _, _, sequence, command, data @ .., _] = bytes else { return Err(WireError::Short) };
        if checksum(&bytes[..3]) != 0 || checksum(&bytes[3..]) != 0 {
            return Err(WireError::Checksum);
        }
        Ok(Self { function: function >> 2, sequence: sequence >> 2, command: *command, data: data.to_vec() })
    }
}

/// A packet outside of any session, in IPMI 1.5's header (13.6): for what is asked before.
pub(super) fn encode_plain(message: &Message) -> Vec<u8> {
    let message = message.encode();
    let mut packet = RMCP.to_vec();
    packet.push(AUTH_NONE);
    packet.extend([0; 8]);
    packet.push(u8::try_from(message.len()).unwrap_or(u8::MAX));
    packet.extend(message);
    packet
}

/// Reads [`encode_plain`]'s answer.
pub(super) fn decode_plain(packet: &[u8]) -> Result<Message, WireError> {
    let rest = packet.strip_prefix(&RMCP).ok_or(WireError::NotIpmi)?;
    let [AUTH_NONE, _, _, _, _, _, _, _, _, length, rest @ ..] = rest else { return Err(WireError::NotIpmi) };
    Message::decode(rest.get(..usize::from(*length)).ok_or(WireError::Short)?)
}

fn plus_header(kind: u8, session: u32, sequence: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![AUTH_RMCP_PLUS, kind];
    bytes.extend(session.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
    bytes
}

/// A packet of RMCP+ before there are keys: the handshake's.
pub(super) fn encode_open(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = RMCP.to_vec();
    packet.extend(plus_header(kind, 0, 0, payload.len()));
    packet.extend(payload);
    packet
}

/// The payload of the handshake's packet of this type.
pub(super) fn decode_open(packet: &[u8], kind: u8) -> Result<&[u8], WireError> {
    let parts = split(packet)?;
    if parts.kind == kind { Ok(parts.payload) } else { Err(WireError::Unexpected) }
}

/// A packet of RMCP+, taken apart.
struct Parts<'a> {
    kind: u8,
    session: u32,
    payload: &'a [u8],
    /// What comes behind the payload.
    trailer: &'a [u8],
}

fn split(packet: &[u8]) -> Result<Parts<'_>, WireError> {
    let rest = packet.strip_prefix(&RMCP).ok_or(WireError::NotIpmi)?;
    let [AUTH_RMCP_PLUS, kind, a, b, c, d, _, _, _, _, low, high, rest @ ..] = rest else {
        return Err(WireError::NotIpmi);
    };
    let length = usize::from(u16::from_le_bytes([*low, *high]));
    let (payload, trailer) = rest.split_at_checked(length).ok_or(WireError::Short)?;
    Ok(Parts { kind: *kind, session: u32::from_le_bytes([*a, *b, *c, *d]), payload, trailer })
}

/// What a session's packets are sealed with.
#[derive(Clone)]
pub(super) struct Keys {
    hash: Hash,
    k1: Vec<u8>,
    cipher: Aes128,
}

impl Keys {
    /// 13.32: both keys follow from the session's integrity key.
    pub fn new(hash: Hash, integrity: &[u8]) -> Self {
        let k1 = hash.mac(integrity, &[&[1; 20]]);
        let k2 = hash.mac(integrity, &[&[2; 20]]);
        let mut key = [0; BLOCK];
        key.copy_from_slice(&k2[..BLOCK]);
        Self { hash, k1, cipher: Aes128::new(&key.into()) }
    }

    /// A packet of the session to the BMC with a payload of this type: enciphered, with its code (13.6, 13.28.4, 13.29).
    pub fn seal(&self, (session, sequence): (u32, u32), kind: u8, message: &[u8], vector: [u8; BLOCK]) -> Vec<u8> {
        let payload = self.encipher(message, vector);
        let mut packet = RMCP.to_vec();
        packet.extend(plus_header(kind | ENCRYPTED | AUTHENTICATED, session, sequence, payload.len()));
        packet.extend(&payload);
        // From the authentication type to the next header it is a multiple of 4 bytes.
        let pad = (4 - (PLUS_HEADER + payload.len() + 2) % 4) % 4;
        packet.extend(std::iter::repeat_n(0xff, pad));
        packet.extend([u8::try_from(pad).unwrap_or_default(), NEXT_HEADER]);
        let code = self.hash.mac(&self.k1, &[&packet[RMCP.len()..]]);
        packet.extend(&code[..self.hash.lengths().1]);
        packet
    }

    /// Type and content of the payload of a packet of the session from the BMC, if it is the BMC's.
    pub fn open(&self, session: u32, packet: &[u8]) -> Result<(u8, Vec<u8>), WireError> {
        let Parts { kind, session: to, payload, trailer } = split(packet)?;
        if kind & (ENCRYPTED | AUTHENTICATED) != ENCRYPTED | AUTHENTICATED || to != session {
            return Err(WireError::Unexpected);
        }
        let length = self.hash.lengths().1;
        let signed = packet.len().checked_sub(length).filter(|_| trailer.len() > length).ok_or(WireError::Short)?;
        let (signed, code) = packet.split_at(signed);
        let right = self.hash.mac(&self.k1, &[&signed[RMCP.len()..]]);
        let difference = right.iter().zip(code).fold(0, |sum, (a, b)| sum | (a ^ b));
        if difference != 0 {
            return Err(WireError::Authentication);
        }
        Ok((kind & !(ENCRYPTED | AUTHENTICATED), self.decipher(payload)?))
    }

    /// 13.29: the vector, then the message, 1, 2, 3, ..., and how many of those.
    fn encipher(&self, message: &[u8], vector: [u8; BLOCK]) -> Vec<u8> {
        let mut plain = message.to_vec();
        let pad = (BLOCK - (plain.len() + 1) % BLOCK) % BLOCK;
        let pad = u8::try_from(pad).unwrap_or_default();
        plain.extend(1..=pad);
        plain.push(pad);
        let (mut last, mut out) = (vector, vector.to_vec());
        for chunk in plain.chunks_exact(BLOCK) {
            // Cipher block chaining (NIST SP 800-38A, 6.2).
            last.iter_mut().zip(chunk).for_each(|(a, b)| *a ^= b);
            let mut block = last.into();
            self.cipher.encrypt_block(&mut block);
            last = block.into();
            out.extend(last);
        }
        out
    }

    fn decipher(&self, payload: &[u8]) -> Result<Vec<u8>, WireError> {
        let (vector, rest) = payload.split_at_checked(BLOCK).ok_or(WireError::Short)?;
        if rest.is_empty() || rest.len() % BLOCK != 0 {
            return Err(WireError::Padding);
        }
        let (mut last, mut plain) = (vector, Vec::with_capacity(rest.len()));
        for chunk in rest.chunks_exact(BLOCK) {
            let mut bytes = [0; BLOCK];
            bytes.copy_from_slice(chunk);
            let mut block = bytes.into();
            self.cipher.decrypt_block(&mut block);
            plain.extend(block.iter().zip(last).map(|(a, b)| a ^ b));
            last = chunk;
        }
        let pad = plain.pop().map(usize::from).ok_or(WireError::Padding)?;
        let length = plain.len().checked_sub(pad).ok_or(WireError::Padding)?;
        if plain[length..].iter().zip(1..).any(|(byte, wanted)| *byte != wanted) {
            return Err(WireError::Padding);
        }
        plain.truncate(length);
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_any_changed_byte_is_noticed(
            message in proptest::collection::vec(any::<u8>(), 7..60),
            vector in any::<[u8; BLOCK]>(),
            at in any::<proptest::sample::Index>(),
            sha256 in any::<bool>(),
            kind in PAYLOAD_IPMI..=PAYLOAD_SOL,
        ) {
            let keys = Keys::new(if sha256 { Hash::Sha256 } else { Hash::Sha1 }, b"an integrity key");
            let mut packet = keys.seal((7, 1), kind, &message, vector);
            prop_assert_eq!(keys.open(7, &packet), Ok((kind, message)));
            prop_assert_eq!(keys.open(8, &packet), Err(WireError::Unexpected));
            let at = at.index(packet.len());
            packet[at] ^= 1;
            prop_assert!(keys.open(7, &packet).is_err());
        }

        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut packet = RMCP.to_vec();
            packet.extend(&bytes);
            let keys = Keys::new(Hash::Sha1, b"key");
            for packet in [&packet, &bytes] {
                let _ = keys.open(0, packet);
                let _ = decode_plain(packet);
                let _ = decode_open(packet, PAYLOAD_RAKP2);
                let _ = keys.decipher(packet);
            }
        }
    }

    #[test]
    fn a_request_has_both_checksums() {
        let message = Message { function: 0x06, sequence: 0, command: 0x38, data: vec![0x8e, 0x04] };
        assert_eq!(message.encode(), [0x20, 0x18, 0xc8, 0x81, 0x00, 0x38, 0x8e, 0x04, 0xb5]);
    }
}
