//! What lets somebody in: public keys of OpenSSH, and hashes of tokens. A key that is a placeholder, or cut off, would close the
//! box for ever: somebody seems to have access, and nobody has.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Types of public keys that sshd takes (sshd(8), "`AUTHORIZED_KEYS` FILE FORMAT"), with what follows the type's name in the
/// key.
const KEY_TYPES: [(&str, &[Part]); 7] = [
    // RFC 8709, 4.
    ("ssh-ed25519", &[Part::Bytes(32)]),
    // RFC 4253, 6.6.
    ("ssh-rsa", &[Part::Number(1, 64), Part::Number(1024, 16_384)]),
    // RFC 5656, 3.1: the curve, and an uncompressed point of it (SEC 1, 2.3.3).
    ("ecdsa-sha2-nistp256", &[Part::Text("nistp256"), Part::Point(65)]),
    ("ecdsa-sha2-nistp384", &[Part::Text("nistp384"), Part::Point(97)]),
    ("ecdsa-sha2-nistp521", &[Part::Text("nistp521"), Part::Point(133)]),
    // OpenSSH, PROTOCOL.u2f, "SSH U2F Key formats": at the end the application.
    ("sk-ssh-ed25519@openssh.com", &[Part::Bytes(32), Part::Any]),
    ("sk-ecdsa-sha2-nistp256@openssh.com", &[Part::Text("nistp256"), Part::Point(65), Part::Any]),
];
/// A type that OpenSSH 10 does not know any more.
const DSS: &str = "ssh-dss";
/// SHA-256 of what is left of a token that is empty: nothing, or the line end of `echo`.
const OF_NOTHING: [&str; 2] = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b",
];

/// A part of a key: its length in four bytes, then that many bytes (RFC 4251, 5, "string").
#[derive(Clone, Copy)]
enum Part {
    /// So many bytes.
    Bytes(usize),
    /// A positive number (RFC 4251, 5, "mpint") of at least and at most so many bits.
    Number(usize, usize),
    /// This text.
    Text(&'static str),
    /// A point of a curve in so many bytes.
    Point(usize),
    /// Whatever there is.
    Any,
}

impl Part {
    fn is(self, bytes: &[u8]) -> bool {
        match self {
            Self::Bytes(length) => bytes.len() == length,
            Self::Number(least, most) => {
                let digits = bytes.strip_prefix(&[0]).unwrap_or(bytes);
                let bits = digits.first().map_or(0, |first| digits.len() * 8 - first.leading_zeros() as usize);
                let negative = bytes.first().is_some_and(|first| *first >= 0x80);
                !negative && (least..=most).contains(&bits)
            }
            Self::Text(text) => bytes == text.as_bytes(),
            Self::Point(length) => bytes.len() == length && bytes.first() == Some(&4),
            Self::Any => true,
        }
    }
}

/// Why a line of `authorized_keys` lets nobody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongKey {
    pub found: &'static str,
    pub hint: &'static str,
}

/// Whether sshd takes a line of `authorized_keys`: a type and its key behind each other, options before and a comment behind
/// them.
pub fn is_public_key(line: &str) -> bool {
    wrong_key(line).is_none()
}

/// What is wrong with a line of `authorized_keys`.
pub(super) fn wrong_key(line: &str) -> Option<WrongKey> {
    let hint = "copy the whole line of a `.pub` file";
    let none = Some(WrongKey { found: "this is not a public key", hint });
    let line = line.trim();
    if line.contains(['\n', '\r']) || line.starts_with('#') {
        return none;
    }
    // What does not begin with a type begins with options.
    let Some((kind, key)) = kind_and_key(line).or_else(|| kind_and_key(behind_options(line))) else { return none };
    let Some((_, parts)) = KEY_TYPES.iter().find(|(known, _)| *known == kind) else {
        let found = "sshd takes no keys of the type `ssh-dss` any more";
        return Some(WrongKey { found, hint: "`ssh-keygen -t ed25519` makes a key that it takes" });
    };
    let whole = STANDARD.decode(key).is_ok_and(|bytes| is_key(&bytes, kind, parts));
    let found = "this public key is a placeholder, or was cut or changed while it was copied";
    (!whole).then_some(WrongKey { found, hint })
}

/// The type and the key at the beginning of a text, if it begins with a type.
fn kind_and_key(text: &str) -> Option<(&str, &str)> {
    let mut words = text.split_whitespace();
    let kind = words.next().filter(|kind| *kind == DSS || KEY_TYPES.iter().any(|(known, _)| known == kind))?;
    Some((kind, words.next()?))
}

/// What follows the options: they end at the first space that is not between quotes.
fn behind_options(line: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    let ends = |(_, letter): &(usize, char)| {
        quoted ^= *letter == '"' && !escaped;
        escaped = *letter == '\\' && !escaped;
        !quoted && letter.is_whitespace()
    };
    line.char_indices().find(ends).map_or("", |(at, _)| &line[at..])
}

/// Whether it is the name of its type and these parts, and nothing more.
fn is_key(bytes: &[u8], kind: &str, parts: &[Part]) -> bool {
    let Some((name, mut rest)) = string(bytes) else { return false };
    for part in parts {
        match string(rest) {
            Some((bytes, behind)) if part.is(bytes) => rest = behind,
            _ => return false,
        }
    }
    name == kind.as_bytes() && rest.is_empty()
}

/// The first part, and what follows it.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

/// Why a text is not the SHA-256 of a token that somebody has; `None` for one that may be.
pub fn wrong_token_hash(text: &str) -> Option<&'static str> {
    let first = text.chars().next();
    match () {
        () if !is_sha256(text) => Some("this is not a SHA-256"),
        () if text.chars().all(|digit| Some(digit) == first) => Some("this is a placeholder, the hash of no token"),
        () if OF_NOTHING.contains(&text) => Some("this is the SHA-256 of an empty token"),
        () => None,
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::{any, proptest};
    use sha2::{Digest, Sha256};

    use super::{is_public_key, wrong_key, wrong_token_hash};

    /// Public keys that ssh-keygen of OpenSSH 9.2 made, one of each type that needs no device.
    const MADE: &str = include_str!("fixtures/authorized_keys");

    /// A line with a key of these parts.
    fn line(kind: &str, inner: &str, parts: &[&[u8]]) -> String {
        let mut bytes = Vec::new();
        for part in [&[inner.as_bytes()], parts].concat() {
            bytes.extend(u32::try_from(part.len()).expect("short").to_be_bytes());
            bytes.extend(part);
        }
        format!("{kind} {}", STANDARD.encode(bytes))
    }

    #[test]
    fn keys_that_ssh_keygen_makes_are_taken_with_options_and_comments() {
        assert_eq!(MADE.lines().count(), 5);
        for made in MADE.lines() {
            let key = made.rsplit_once(' ').expect("a comment").0;
            for good in [
                made.to_owned(),
                key.to_owned(),
                format!("{key} me@example.org of mine"),
                format!("  from=\"10.0.0.0/8\",no-pty {key} me\n"),
                format!("command=\"echo \\\"a b\\\" ssh-dss AAAA\" {key}"),
            ] {
                assert_eq!(wrong_key(&good), None, "{good}");
            }
        }
    }

    #[test]
    fn keys_of_security_keys_are_taken() {
        let (point, sk) = ([&[4_u8][..], &[7; 64]].concat(), "sk-ecdsa-sha2-nistp256@openssh.com");
        assert!(is_public_key(&line(sk, sk, &[b"nistp256", &point, b"ssh:"])));
        let sk = "sk-ssh-ed25519@openssh.com";
        assert!(is_public_key(&line(sk, sk, &[&[7; 32], b"ssh:"])));
        assert!(!is_public_key(&line(sk, sk, &[&[7; 32]])), "it has no application");
    }

    #[test]
    fn keys_that_let_nobody_in_are_refused() {
        let made = MADE.lines().next().expect("a key");
        let (_, blob) = made.split_once(' ').expect("a type");
        let (ed, rsa, ec) = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256");
        let odd = [1_u8, 0, 1];
        let modulus = |bytes: usize| [&[0_u8, 0x80][..], &vec![1; bytes - 1]].concat();
        assert!(is_public_key(&line(rsa, rsa, &[&odd, &modulus(128)])), "1024 bits");
        for bad in [
            "",
            "ssh-ed25519",
            "ssh-ed25519 AAAA... me@example.org",
            "ssh-ed25519 AAAA me@example.org",
            "ssh-ed25519 me@example.org",
            &made[..made.len() / 2],
            blob,
            &format!("# {made}"),
            &format!("ssh-unknown {blob}"),
            &format!("ssh-rsa {blob}"),
            &format!("{made}\n{made}"),
            &format!("command=\"a {made}"),
            &line(ed, rsa, &[&[7; 32]]),
            &line(ed, ed, &[&[7; 31]]),
            &line(ed, ed, &[&[7; 32], b""]),
            &line(rsa, rsa, &[&odd, &modulus(96)]),
            &line(rsa, rsa, &[&odd, &[0x80; 256]]),
            &line(rsa, rsa, &[b"", &modulus(256)]),
            &line(ec, ec, &[b"nistp384", &[4; 65]]),
            &line(ec, ec, &[b"nistp256", &[2; 33]]),
        ] {
            assert!(!is_public_key(bad), "{bad}");
        }
        let dss = wrong_key(&line("ssh-dss", "ssh-dss", &[&[1]])).expect("refused");
        assert!(dss.found.contains("`ssh-dss`") && dss.hint.contains("ed25519"), "{dss:?}");
    }

    #[test]
    fn hashes_that_nobody_or_everybody_has_the_token_of_are_refused() {
        let of = |token: &str| hex::encode(Sha256::digest(token));
        assert_eq!(wrong_token_hash(&of("secret")), None);
        for (hash, why) in [
            (of(""), "an empty token"),
            (of("\n"), "an empty token"),
            ("0".repeat(64), "a placeholder"),
            ("f".repeat(64), "a placeholder"),
            (of("secret").to_uppercase(), "not a SHA-256"),
            (String::new(), "not a SHA-256"),
        ] {
            assert!(wrong_token_hash(&hash).is_some_and(|told| told.contains(why)), "{hash}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(noise in any::<String>(), bytes in any::<Vec<u8>>()) {
            let _ = wrong_key(&noise);
            let _ = wrong_key(&format!("{noise} ssh-rsa {}", STANDARD.encode(bytes)));
        }

        #[test]
        fn a_key_that_is_cut_is_refused(number in 0..5_usize, cut in 1..40_usize) {
            let made = MADE.lines().nth(number).expect("a key");
            let key = made.rsplit_once(' ').expect("a comment").0;
            assert!(!is_public_key(&key[..key.len() - cut]));
        }
    }
}
