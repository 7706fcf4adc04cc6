//! OpenPGP signatures, as far as apt needs them: one Ed25519 key, its certificate, signatures over texts.
//!
//! ```text
//! seed ─► Key ─┬─ certificate()  public key, user id, self-signature ─► PUBLIC KEY BLOCK
//!              ├─ detached()     signature over bytes                 ─► SIGNATURE (Release.gpg)
//!              └─ cleartext()    the text itself and its signature    ─► SIGNED MESSAGE (InRelease)
//! ```
//! Version 4 keys and signatures with `EdDSALegacy`, which every OpenPGP program in use reads (RFC 9580; section numbers
//! are its). Ed25519 is deterministic: the same key, text and time give the same bytes.
//!
//! It is written by hand because the crate `pgp` brings 180 crates into the agent, which would be a third more, for two
//! kinds of packets. apt itself checks in tests what is made here.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sha2::{Digest as _, Sha512};

/// Packet types (5).
const SIGNATURE: u8 = 2;
const PUBLIC_KEY: u8 = 6;
const USER_ID: u8 = 13;
/// Version of key and signature packets (5.2.3, 5.5.2.2).
const VERSION: u8 = 4;
/// Public-key algorithm `EdDSALegacy` (9.1).
const EDDSA_LEGACY: u8 = 22;
/// Hash algorithm SHA2-512 (9.5), and its name in a cleartext message (7.1).
const SHA512: u8 = 10;
const HASH_NAME: &str = "SHA512";
/// OID of the curve `Ed25519Legacy`, with its length (9.2).
const CURVE: [u8; 10] = [9, 0x2B, 0x06, 0x01, 0x04, 0x01, 0xDA, 0x47, 0x0F, 0x01];
/// Marks a native point (11.2.2).
const NATIVE_POINT: u8 = 0x40;
/// Signature types (5.2.1).
const BINARY: u8 = 0x00;
const TEXT: u8 = 0x01;
const POSITIVE_CERTIFICATION: u8 = 0x13;
/// Signature subpackets (5.2.3.7).
const CREATION_TIME: u8 = 2;
const ISSUER_KEY_ID: u8 = 16;
const KEY_FLAGS: u8 = 27;
const ISSUER_FINGERPRINT: u8 = 33;
/// Key flags (5.2.3.29): certifies, signs.
const CERTIFIES_AND_SIGNS: u8 = 0x01 | 0x02;
/// Polynomial and start of an armor's checksum (6.1.1).
const CRC24: (u32, u32) = (0x0186_4CFB, 0x00B7_04CE);
/// Characters of a line of armor (6.2).
const ARMOR_LINE: usize = 64;

/// Why something was not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenPgpError {
    /// The seed is no key.
    #[error("the seed is no Ed25519 key")]
    Seed,
    /// The last line has no line break.
    #[error("the text does not end with a line break")]
    Unended,
    /// Blanks at the end of a line, or carriage returns.
    #[error("the text has trailing blanks, which a signature does not cover")]
    Blanks,
}

/// A signing key.
pub struct Key {
    pair: Ed25519KeyPair,
    user: String,
    /// Seconds since 1970; part of the key's identity.
    created: u32,
}

impl Key {
    /// The key of `seed`, which was made at `created` and belongs to `user`.
    pub fn new(seed: &[u8; 32], user: &str, created: u32) -> Result<Self, OpenPgpError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| OpenPgpError::Seed)?;
        Ok(Self { pair, user: user.to_owned(), created })
    }

    /// Body of the public key packet (5.5.2.2).
    fn body(&self) -> Vec<u8> {
        let mut body = vec![VERSION];
        body.extend(self.created.to_be_bytes());
        body.push(EDDSA_LEGACY);
        body.extend(CURVE);
        body.extend(integer(&[&[NATIVE_POINT], self.pair.public_key().as_ref()].concat()));
        body
    }

    /// The body as it is hashed (5.5.4.2): for the fingerprint and below certifications.
    fn hashed_body(&self) -> Vec<u8> {
        let body = self.body();
        let length = u16::try_from(body.len()).expect("a short key").to_be_bytes();
        [&[0x99], length.as_slice(), &body].concat()
    }

    /// The fingerprint, 20 bytes.
    fn fingerprint(&self) -> Vec<u8> {
        digest(&SHA1_FOR_LEGACY_USE_ONLY, &self.hashed_body()).as_ref().to_vec()
    }

    /// What users compare: 40 hex digits.
    pub fn fingerprint_hex(&self) -> String {
        hex::encode_upper(self.fingerprint())
    }

    /// The certificate that users give to apt as `signed-by`.
    pub fn certificate(&self) -> String {
        let user = self.user.as_bytes();
        let length = u32::try_from(user.len()).expect("a short name").to_be_bytes();
        let signed = [self.hashed_body(), vec![0xB4], length.to_vec(), user.to_vec()].concat();
        let signature =
            self.sign(POSITIVE_CERTIFICATION, &signed, self.created, &[(KEY_FLAGS, vec![CERTIFIES_AND_SIGNS])]);
        let packets = [packet(PUBLIC_KEY, &self.body()), packet(USER_ID, user), signature].concat();
        armor("PUBLIC KEY BLOCK", &packets)
    }

    /// A signature over `bytes`, made at `time`.
    pub fn detached(&self, bytes: &[u8], time: u32) -> String {
        armor("SIGNATURE", &self.sign(BINARY, bytes, time, &[]))
    }

    /// `text` with a signature below it, made at `time` (7). The text has no trailing blanks and ends with a line break.
    pub fn cleartext(&self, text: &str, time: u32) -> Result<String, OpenPgpError> {
        let lines = text.strip_suffix('\n').ok_or(OpenPgpError::Unended)?;
        let trailing = lines.lines().any(|line| line.trim_end() != line);
        if trailing || text.contains('\r') {
            return Err(OpenPgpError::Blanks);
        }
        let signature = self.sign(TEXT, lines.replace('\n', "\r\n").as_bytes(), time, &[]);
        let escaped: Vec<String> = lines
            .split('\n')
            .map(|line| if line.starts_with('-') { format!("- {line}") } else { line.into() })
            .collect();
        let (text, signature) = (escaped.join("\n"), armor("SIGNATURE", &signature));
        Ok(format!("-----BEGIN PGP SIGNED MESSAGE-----\nHash: {HASH_NAME}\n\n{text}\n{signature}"))
    }

    /// A signature packet over `signed` (5.2.3, 5.2.4).
    fn sign(&self, kind: u8, signed: &[u8], time: u32, more: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let fingerprint = self.fingerprint();
        let mut subpackets = subpacket(CREATION_TIME, &time.to_be_bytes());
        subpackets.extend(subpacket(ISSUER_FINGERPRINT, &[&[VERSION], fingerprint.as_slice()].concat()));
        subpackets.extend(more.iter().flat_map(|(kind, body)| subpacket(*kind, body)));
        let length = |bytes: &[u8]| u16::try_from(bytes.len()).expect("few subpackets").to_be_bytes();
        let head = [&[VERSION, kind, EDDSA_LEGACY, SHA512], length(&subpackets).as_slice(), &subpackets].concat();
        let head_length = u32::try_from(head.len()).expect("a short head").to_be_bytes();
        let hash = Sha512::digest([signed, &head, &[VERSION, 0xFF], &head_length].concat());
        let signature = self.pair.sign(&hash);
        let (r, s) = signature.as_ref().split_at(32);
        let unhashed = subpacket(ISSUER_KEY_ID, &fingerprint[12..]);
        packet(
            SIGNATURE,
            &[&head, length(&unhashed).as_slice(), &unhashed, &hash[..2], &integer(r), &integer(s)].concat(),
        )
    }
}

/// A packet with the header of version 4's format (4.2.1).
fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xC0 | kind];
    packet.extend(length(body.len()));
    packet.extend(body);
    packet
}

/// A subpacket (5.2.3.7).
fn subpacket(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut subpacket = length(body.len() + 1);
    subpacket.push(kind);
    subpacket.extend(body);
    subpacket
}

/// A length of one or two octets (4.2.1.1, 4.2.1.2).
fn length(bytes: usize) -> Vec<u8> {
    match u8::try_from(bytes) {
        Ok(short) if short < 192 => vec![short],
        _ => {
            let rest = u16::try_from(bytes - 192).expect("packets here are short");
            (rest + (192 << 8)).to_be_bytes().to_vec()
        }
    }
}

/// A multiprecision integer: its number of bits, then its bytes without leading zeros (3.2).
fn integer(bytes: &[u8]) -> Vec<u8> {
    let bytes = &bytes[bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len())..];
    let bits = bytes.first().map_or(0, |first| bytes.len() * 8 - first.leading_zeros() as usize);
    let mut integer = u16::try_from(bits).expect("at most 263 bits").to_be_bytes().to_vec();
    integer.extend(bytes);
    integer
}

/// ASCII armor (6.2).
fn armor(kind: &str, bytes: &[u8]) -> String {
    let text = BASE64.encode(bytes);
    let lines: Vec<&str> =
        text.as_bytes().chunks(ARMOR_LINE).map(|line| std::str::from_utf8(line).expect("ASCII")).collect();
    let sum = BASE64.encode(&crc24(bytes).to_be_bytes()[1..]);
    format!("-----BEGIN PGP {kind}-----\n\n{}\n={sum}\n-----END PGP {kind}-----\n", lines.join("\n"))
}

fn crc24(bytes: &[u8]) -> u32 {
    let (polynomial, start) = CRC24;
    bytes.iter().fold(start, |crc, byte| {
        (0..8).fold(crc ^ (u32::from(*byte) << 16), |crc, _| {
            let next = crc << 1;
            if next & 0x0100_0000 == 0 { next } else { next ^ polynomial }
        }) & 0x00FF_FFFF
    })
}

#[cfg(test)]
mod tests {
    use super::{Key, crc24, integer, length};

    #[test]
    fn lengths_and_integers_are_those_of_the_examples_in_the_standard() {
        assert_eq!(length(100), [0x64]);
        assert_eq!(length(1723), [0xC5, 0xFB]);
        assert_eq!(integer(&[1]), [0, 1, 1]);
        assert_eq!(integer(&[0, 1, 0xFF]), [0, 9, 1, 0xFF]);
    }

    #[test]
    fn the_checksum_of_nothing_is_its_start() {
        assert_eq!(crc24(b""), 0x00B7_04CE);
        // The check value that catalogues of CRCs give for CRC-24/OPENPGP.
        assert_eq!(crc24(b"123456789"), 0x0021_CF02);
    }

    #[test]
    fn a_key_is_the_same_each_time_and_its_texts_are_kept_to_the_letter() {
        let key = || Key::new(&[7; 32], "test", 1).expect("a key");
        assert_eq!(key().certificate(), key().certificate());
        let message = key().cleartext("a: b\n- c\n", 2).expect("a message");
        assert!(
            message.starts_with(
                "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\na: b\n- - c\n-----BEGIN PGP SIGNATURE-----\n"
            ),
            "{message}"
        );
        key().cleartext("a \n", 2).expect_err("a trailing blank");
    }
}
