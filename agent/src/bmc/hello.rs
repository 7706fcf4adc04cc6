//! What a BMC speaks with which no TLS comes about: one `ClientHello`, and how it is answered.
//!
//! ```text
//! offer: TLS 1.2, all that OpenSSL takes and rustls does not ─► BMC ─► first bytes ─► read ─► Spoken
//! ```
//! rustls has neither RSA key exchange nor CBC nor finite-field Diffie-Hellman. Ironic's OpenSSL has, so a BMC with nothing else
//! is one that Ironic works with and we cannot ask. Bytes by RFC 5246 ("TLS 1.2"), by hand: no crate makes a `ClientHello`
//! alone.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Cipher suites of Debian's OpenSSL at its security level 2 that rustls lacks, by IANA's numbers and names.
const SUITES: [(u16, &str); 21] = [
    (0x009f, "DHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0xccaa, "DHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0x009e, "DHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0xc024, "ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"),
    (0xc028, "ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
    (0x006b, "DHE_RSA_WITH_AES_256_CBC_SHA256"),
    (0xc023, "ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    (0xc027, "ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0x0067, "DHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0xc00a, "ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    (0xc014, "ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    (0x0039, "DHE_RSA_WITH_AES_256_CBC_SHA"),
    (0xc009, "ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    (0xc013, "ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    (0x0033, "DHE_RSA_WITH_AES_128_CBC_SHA"),
    (0x009d, "RSA_WITH_AES_256_GCM_SHA384"),
    (0x009c, "RSA_WITH_AES_128_GCM_SHA256"),
    (0x003d, "RSA_WITH_AES_256_CBC_SHA256"),
    (0x003c, "RSA_WITH_AES_128_CBC_SHA256"),
    (0x0035, "RSA_WITH_AES_256_CBC_SHA"),
    (0x002f, "RSA_WITH_AES_128_CBC_SHA"),
];
/// 7.4.1.2: the version that is offered, and the one that is answered.
const TLS_1_2: u16 = 0x0303;
/// 6.2.1: kinds of records.
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
/// 7.4: kinds of handshake messages.
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// A `ServerHello`'s head, with the longest session id.
const ANSWER_BYTES: usize = 256;

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// TLS 1.2 with a cipher suite that Ironic takes, and we cannot.
    Tls12(&'static str),
    /// TLS older than that, or SSL: version of the wire.
    Older(u16),
    /// It refuses, with this alert.
    Refused(u8),
    /// HTTP without TLS.
    Http,
    /// Something that is no TLS.
    Other,
    /// It closes the connection.
    Nothing,
}

impl Spoken {
    /// Whether Ironic would get further.
    pub const fn is_for_ironic(&self) -> bool {
        matches!(self, Self::Tls12(_))
    }

    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Tls12(_) => "to have it rehearsed, switch on ECDHE with AES-GCM in the BMC, or update its firmware",
            Self::Older(_) => "switch on TLS 1.2 in the BMC, or update its firmware",
            Self::Refused(_) | Self::Nothing => {
                "see in the BMC that its web server has a certificate with a key, and which TLS it allows; restart the BMC"
            }
            Self::Http => "use the scheme with `+http`, such as `redfish+http://`, or switch on HTTPS in the BMC",
            Self::Other => "check the port in `spec.bmc.address`: Redfish is at 443 where nothing else is said",
        }
    }
}

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls12(suite) => {
                write!(
                    f,
                    "it speaks TLS 1.2 with nothing newer than `{suite}`, which Ironic takes and this rehearsal cannot"
                )
            }
            Self::Older(0x0300) => f.write_str("it speaks SSL 3 only, and Ironic wants TLS 1.2"),
            Self::Older(version) => {
                write!(f, "it speaks TLS 1.{} only, and Ironic wants TLS 1.2", version.wrapping_sub(0x0301) & 0xff)
            }
            Self::Refused(alert) => write!(f, "it refuses every cipher suite of TLS that Ironic knows (alert {alert})"),
            Self::Http => f.write_str("it speaks HTTP there, and no HTTPS"),
            Self::Other => f.write_str("what answers there is no HTTPS"),
            Self::Nothing => f.write_str("it closes the connection when TLS begins"),
        }
    }
}

fn with_length(bytes: &[u8], wide: usize) -> Vec<u8> {
    let length = (bytes.len() as u64).to_be_bytes();
    [&length[8 - wide..], bytes].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &with_length(data, 2)].concat()
}

/// The record: `ClientHello` (7.4.1.2) with its extensions. `name`: where the server has one.
fn offer(name: Option<&str>, random: [u8; 32]) -> Vec<u8> {
    let numbers = |all: &[u16]| all.iter().flat_map(|one| one.to_be_bytes()).collect::<Vec<u8>>();
    let suites: Vec<u16> = SUITES.iter().map(|(number, _)| *number).collect();
    let mut extensions = Vec::new();
    if let Some(name) = name {
        // RFC 6066, 3.
        let entry = [&[0][..], &with_length(name.as_bytes(), 2)].concat();
        extensions.extend(extension(0, &with_length(&entry, 2)));
    }
    // RFC 8422: x25519, secp256r1, secp384r1, secp521r1; points are not compressed.
    extensions.extend(extension(10, &with_length(&numbers(&[29, 23, 24, 25]), 2)));
    extensions.extend(extension(11, &with_length(&[0], 1)));
    // 7.4.1.4.1: PSS, PKCS #1 and ECDSA with SHA-2.
    let signatures = [0x0804, 0x0805, 0x0806, 0x0401, 0x0501, 0x0601, 0x0403, 0x0503, 0x0603];
    extensions.extend(extension(13, &with_length(&numbers(&signatures), 2)));
    // RFC 5746, 3.4.
    extensions.extend(extension(0xff01, &[0]));
    let hello = [
        &TLS_1_2.to_be_bytes()[..],
        &random,
        &with_length(&[], 1),
        &with_length(&numbers(&suites), 2),
        &with_length(&[0], 1),
        &with_length(&extensions, 2),
    ]
    .concat();
    let message = [&[CLIENT_HELLO][..], &with_length(&hello, 3)].concat();
    // The record says TLS 1.0: old servers want that.
    [&[HANDSHAKE, 3, 1][..], &with_length(&message, 2)].concat()
}

/// What the first bytes of an answer say; `None` when there are too few of them. `over`: no more will come.
fn read(bytes: &[u8], over: bool) -> Option<Spoken> {
    let number = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let short = if bytes.is_empty() { Spoken::Nothing } else { Spoken::Other };
    let short = over.then_some(short);
    match bytes {
        [ALERT, 3, ..] => bytes.get(6).map(|alert| Spoken::Refused(*alert)).or(short),
        [HANDSHAKE, 3, ..] => {
            let hello = || {
                (*bytes.get(5)? == SERVER_HELLO).then_some(())?;
                let version = number(9)?;
                if version < TLS_1_2 {
                    return Some(Spoken::Older(version));
                }
                // After the version, 32 random bytes and the session id.
                let suite = number(44 + usize::from(*bytes.get(43)?))?;
                let known = SUITES.iter().find(|(number, _)| *number == suite);
                Some(known.map_or(Spoken::Other, |(_, name)| Spoken::Tls12(name)))
            };
            hello().or(short)
        }
        [] | [HANDSHAKE | ALERT] => short,
        _ if b"HTTP/".starts_with(&bytes[..bytes.len().min(5)]) => {
            if bytes.len() < 5 {
                short
            } else {
                Some(Spoken::Http)
            }
        }
        _ => Some(Spoken::Other),
    }
}

/// Asks at `host` (name or address, without brackets).
pub(super) async fn ask(host: &str, port: u16, patience: Duration) -> io::Result<Spoken> {
    let name = host.parse::<std::net::IpAddr>().is_err().then_some(host);
    let asking = async {
        let mut stream = TcpStream::connect((host, port)).await?;
        stream.write_all(&offer(name, rand::random())).await?;
        let mut bytes = [0; ANSWER_BYTES];
        let mut length = 0;
        loop {
            // A reset is an end like any other.
            let got = stream.read(&mut bytes[length..]).await.unwrap_or(0);
            length += got;
            if let Some(spoken) = read(&bytes[..length], got == 0 || length == ANSWER_BYTES) {
                return Ok(spoken);
            }
        }
    };
    timeout(patience, asking).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use rstest::rstest;

    use super::*;

    /// A `ServerHello` of this version with this cipher suite, and a session id of this length.
    fn answer(version: u16, suite: u16, session: u8) -> Vec<u8> {
        let id = vec![7; usize::from(session)];
        let hello = [&version.to_be_bytes()[..], &[9; 32], &[session], &id, &suite.to_be_bytes(), &[0]].concat();
        let message = [&[SERVER_HELLO][..], &with_length(&hello, 3)].concat();
        [&[HANDSHAKE, 3, 3][..], &with_length(&message, 2)].concat()
    }

    #[rstest]
    #[case::rsa(answer(0x0303, 0x009c, 32), Spoken::Tls12("RSA_WITH_AES_128_GCM_SHA256"))]
    #[case::oldest_rsa(answer(0x0303, 0x002f, 0), Spoken::Tls12("RSA_WITH_AES_128_CBC_SHA"))]
    #[case::dhe(answer(0x0303, 0x009f, 0), Spoken::Tls12("DHE_RSA_WITH_AES_256_GCM_SHA384"))]
    #[case::cbc(answer(0x0303, 0xc014, 0), Spoken::Tls12("ECDHE_RSA_WITH_AES_256_CBC_SHA"))]
    #[case::tls_1_0(answer(0x0301, 0x002f, 0), Spoken::Older(0x0301))]
    #[case::ssl_3(answer(0x0300, 0x002f, 0), Spoken::Older(0x0300))]
    #[case::unasked(answer(0x0303, 0x1301, 0), Spoken::Other)]
    #[case::alert(vec![21, 3, 3, 0, 2, 2, 40], Spoken::Refused(40))]
    #[case::http(b"HTTP/1.1 400 Bad Request\r\n".to_vec(), Spoken::Http)]
    #[case::ssh(b"SSH-2.0-dropbear\r\n".to_vec(), Spoken::Other)]
    #[case::nothing(Vec::new(), Spoken::Nothing)]
    fn an_answer_is_what_it_is_however_it_is_cut(#[case] bytes: Vec<u8>, #[case] expected: Spoken) {
        assert_eq!(read(&bytes, true), Some(expected.clone()));
        let first = (0..=bytes.len()).find_map(|length| read(&bytes[..length], false));
        assert_eq!(first, (!bytes.is_empty()).then_some(expected));
    }

    #[test]
    fn each_is_told_with_a_hint() {
        let all = [
            (Spoken::Tls12("X"), "TLS 1.2 with nothing newer than `X`", "AES-GCM"),
            (Spoken::Older(0x0302), "TLS 1.1 only", "TLS 1.2"),
            (Spoken::Older(0x0301), "TLS 1.0 only", "TLS 1.2"),
            (Spoken::Refused(40), "alert 40", "certificate"),
            (Spoken::Http, "no HTTPS", "`+http`"),
            (Spoken::Other, "no HTTPS", "port"),
            (Spoken::Nothing, "closes the connection", "restart"),
        ];
        for (spoken, says, hint) in all {
            assert!(spoken.to_string().contains(says) && spoken.hint().contains(hint), "{spoken:?}");
        }
    }

    /// rustls reads what is offered as a `ClientHello`: lengths and extensions are right.
    #[rstest]
    #[case(Some("bmc.example"))]
    #[case(None)]
    fn what_is_offered_is_a_client_hello(#[case] name: Option<&str>) {
        let mut acceptor = rustls::server::Acceptor::default();
        acceptor.read_tls(&mut offer(name, [5; 32]).as_slice()).expect("bytes");
        let accepted = acceptor.accept().map_err(|(error, _)| error).expect("a ClientHello").expect("whole");
        let hello = accepted.client_hello();
        assert_eq!(hello.server_name(), name);
        assert_eq!(hello.cipher_suites().len(), 21);
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), over in any::<bool>()) {
            let _ = read(&bytes, over);
            let _ = read(&[&[HANDSHAKE, 3, 3][..], &bytes].concat(), over);
        }
    }
}
