//! ECDSA P-256 keys in the form kubeadm writes them: `EC PRIVATE KEY` (SEC 1, RFC 5915).
//!
//! The library speaks PKCS #8 only. Both forms of a P-256 key have fixed lengths, so that the change
//! from one to the other is a matter of cutting and framing.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};

use super::PkiError;

/// Bytes of a P-256 private key.
const PRIVATE: usize = 32;
/// Bytes of an uncompressed P-256 point.
const PUBLIC: usize = 65;

/// `ECPrivateKey` (RFC 5915, 3) up to the private key: SEQUENCE, version 1, OCTET STRING.
const SEC1_HEAD: [u8; 7] = [0x30, 0x77, 0x02, 0x01, 0x01, 0x04, 0x20];
/// `[0] parameters`: prime256v1, then `[1] publicKey` up to the point.
const SEC1_MIDDLE: [u8; 17] =
    [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0xa1, 0x44, 0x03, 0x42, 0x00];
/// `PrivateKeyInfo` (RFC 5208, 5): version 0, id-ecPublicKey with prime256v1, OCTET STRING of an `ECPrivateKey`.
const PKCS8_HEAD: [u8; 29] = [
    0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
    0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x6d,
];
/// The inner `ECPrivateKey` of that form, without parameters.
const PKCS8_INNER: [u8; 7] = [0x30, 0x6b, 0x02, 0x01, 0x01, 0x04, 0x20];
/// `[1] publicKey` up to the point.
const PKCS8_MIDDLE: [u8; 5] = [0xa1, 0x44, 0x03, 0x42, 0x00];

/// A new key.
pub fn generate() -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(PkiError::Crypto)
}

/// The key as kubeadm writes it.
pub fn to_sec1_pem(key: &KeyPair) -> Result<String, PkiError> {
    let pkcs8 = key.serialized_der();
    let start = PKCS8_HEAD.len() + PKCS8_INNER.len();
    let private = pkcs8.get(start..start + PRIVATE).ok_or(PkiError::KeyShape)?;
    let public = key.public_key_raw();
    if !pkcs8.starts_with(&PKCS8_HEAD) || public.len() != PUBLIC {
        return Err(PkiError::KeyShape);
    }
    let der = [&SEC1_HEAD[..], private, &SEC1_MIDDLE, public].concat();
    Ok(pem("EC PRIVATE KEY", &der))
}

/// Reads a key that [`to_sec1_pem`] or kubeadm wrote.
pub fn from_sec1_pem(text: &str) -> Result<KeyPair, PkiError> {
    let der = der_of(text, "EC PRIVATE KEY").ok_or(PkiError::KeyShape)?;
    let rest = der.strip_prefix(&SEC1_HEAD[..]).ok_or(PkiError::KeyShape)?;
    let (private, rest) = rest.split_at_checked(PRIVATE).ok_or(PkiError::KeyShape)?;
    let public = rest.strip_prefix(&SEC1_MIDDLE[..]).ok_or(PkiError::KeyShape)?;
    let pkcs8 = [&PKCS8_HEAD[..], &PKCS8_INNER, private, &PKCS8_MIDDLE, public].concat();
    let pkcs8 = rustls::pki_types::PrivatePkcs8KeyDer::from(pkcs8);
    KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, &PKCS_ECDSA_P256_SHA256).map_err(PkiError::Crypto)
}

/// PEM with lines of 64 characters, as Go writes it.
pub fn pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

/// The bytes of the first PEM block with that label.
pub fn der_of(text: &str, label: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    STANDARD.decode(body.split_ascii_whitespace().collect::<String>()).ok()
}

#[cfg(test)]
mod tests {
    use super::{from_sec1_pem, generate, to_sec1_pem};

    #[test]
    fn a_key_survives_being_written_as_kubeadm_writes_it() {
        let key = generate().expect("a key");
        let text = to_sec1_pem(&key).expect("SEC 1");
        let again = from_sec1_pem(&text).expect("the key again");
        assert_eq!(again.serialized_der(), key.serialized_der());
        assert_eq!(text.len(), 227, "kubeadm's files have this size");
    }

    #[test]
    fn a_key_of_kubeadm_is_read() {
        let text = include_str!("testdata/kubeadm-ec.key");
        let key = from_sec1_pem(text).expect("kubeadm's key");
        assert_eq!(to_sec1_pem(&key).expect("SEC 1"), text);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert!(from_sec1_pem("").is_err());
        assert!(from_sec1_pem("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n").is_err());
    }
}
