//! A small certificate authority of the box's own, kept on DATA, whose fingerprint is on the console. It issues the
//! certificates of the box's servers.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::host::files;

/// What pods call the server for uploads: the Service of [`crate::cluster::bpa_service`].
const BPA_SERVICE: [&str; 2] = ["bpa-api-service.default.svc", "bpa-api-service.default.svc.cluster.local"];
/// How long a server certificate is good for: browsers refuse more than 398 days.
const LIFETIME: Duration = Duration::from_secs(397 * 86_400);
/// With less than this left it is made anew.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 86_400);

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Reading or writing a file.
    #[error("keeping the web certificate")]
    Io(#[from] io::Error),
    /// Making or reading a certificate.
    #[error("making the web certificate")]
    Make(#[from] rcgen::Error),
    /// Handing it to TLS.
    #[error("loading the web certificate")]
    Load(#[from] rustls::Error),
    /// A file that does not hold what its name says.
    #[error("`{0}` does not hold a certificate")]
    Damaged(PathBuf),
}

/// The box's own certificate authority.
pub struct Authority {
    dir: Option<PathBuf>,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    built: u64,
}

impl Authority {
    /// Takes the authority in `dir`, or makes one that is valid from `built` (seconds since 1970: no clock of a
    /// box or of its users is before that) for ever.
    pub fn open(dir: &Path, built: u64) -> Result<Self, CertificateError> {
        let (cert_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
        if let (Ok(cert), Ok(key)) = (fs_err::read(&cert_path), fs_err::read_to_string(&key_path)) {
            // Damage (a bad disk) must not lock everybody out: a new authority is better than none.
            match Self::load(dir, built, &cert, &key) {
                Ok(authority) => return Ok(authority),
                Err(error) => log::error!("the web authority is made anew: {error}"),
            }
        }
        let (certificate, key) = make_authority(built)?;
        // Key first: a certificate without its key is never seen.
        files::write_durably(&key_path, key.serialize_pem().as_bytes(), files::SECRET)?;
        files::write_durably(&cert_path, pem("CERTIFICATE", &certificate).as_bytes(), files::PUBLIC)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Self { dir: Some(dir.to_owned()), certificate, issuer, built })
    }

    /// An authority that ends with the process, for when DATA cannot be written.
    pub fn in_memory(built: u64) -> Result<Self, CertificateError> {
        let (certificate, key) = make_authority(built)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Self { dir: None, certificate, issuer, built })
    }

    fn load(dir: &Path, built: u64, cert: &[u8], key: &str) -> Result<Self, CertificateError> {
        let damaged = || CertificateError::Damaged(dir.join("ca.crt"));
        let certificate = CertificateDer::from_pem_slice(cert).map_err(|_| damaged())?;
        let key = KeyPair::from_pem(key)?;
        let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|_| damaged())?;
        if parsed.public_key().subject_public_key.data.as_ref() != rcgen::PublicKeyData::der_bytes(&key) {
            return Err(damaged());
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Self { dir: Some(dir.to_owned()), certificate, issuer, built })
    }

    /// SHA-256 of the authority's certificate, upper-case hex with colons, as browsers and openssl print it.
    pub fn fingerprint(&self) -> String {
        let hex: Vec<String> = Sha256::digest(&self.certificate).iter().map(|byte| format!("{byte:02X}")).collect();
        hex.join(":")
    }

    /// The authority's certificate, for clients that want to trust it.
    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// A server certificate for these names and addresses: the kept one while it is valid for them, else a new one.
    pub fn serve(&self, names: &[String], now: SystemTime) -> Result<CertifiedKey, CertificateError> {
        let path = self.dir.as_ref().map(|dir| dir.join("server.pem"));
        if let Some(kept) = path.as_ref().and_then(|path| self.kept(path, names, now)) {
            return Ok(kept);
        }
        let (issued, both) = self.issue(names, now)?;
        // It serves all the same; only the next start will make another one.
        if let Some(Err(error)) = path.map(|path| files::write_durably(&path, both.as_bytes(), files::SECRET)) {
            log::warn!("the web certificate is not kept: {error}");
        }
        Ok(issued)
    }

    /// The same for another server of the box, which reads key and certificate from the file at `path`.
    pub fn serve_at(&self, path: &Path, names: &[String], now: SystemTime) -> Result<(), CertificateError> {
        if self.kept(path, names, now).is_none() {
            files::write_durably(path, self.issue(names, now)?.1.as_bytes(), files::SECRET)?;
        }
        Ok(())
    }

    /// A new certificate, and the text of key and certificate.
    fn issue(&self, names: &[String], now: SystemTime) -> Result<(CertifiedKey, String), CertificateError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Foothold web");
        let end = secs(now + LIFETIME).max(self.built + LIFETIME.as_secs());
        set_validity(&mut params, self.built, end);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let both = key.serialize_pem() + &certificate.pem();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        Ok((self.certified(certificate.der().clone(), &key)?, both))
    }

    fn kept(&self, path: &Path, names: &[String], now: SystemTime) -> Option<CertifiedKey> {
        let both = fs_err::read(path).ok()?;
        let certificate = CertificateDer::from_pem_slice(&both).ok()?;
        let key = PrivateKeyDer::from_pem_slice(&both).ok()?;
        let (_, parsed) = X509Certificate::from_der(&certificate).ok()?;
        let (_, authority) = X509Certificate::from_der(&self.certificate).ok()?;
        parsed.verify_signature(Some(authority.public_key())).ok()?;
        if !is_current(&parsed, names, now) {
            return None;
        }
        let kept = self.certified(certificate, &key).ok()?;
        kept.keys_match().is_ok().then_some(kept)
    }

    fn certified(
        &self,
        leaf: CertificateDer<'static>,
        key: &PrivateKeyDer<'static>,
    ) -> Result<CertifiedKey, CertificateError> {
        let key = rustls::crypto::ring::sign::any_supported_type(key)?;
        Ok(CertifiedKey::new(vec![leaf, self.certificate.clone()], key))
    }
}

fn make_authority(built: u64) -> Result<(CertificateDer<'static>, KeyPair), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Foothold");
    // Boxes are told apart in a browser's list of authorities.
    let tag: [u8; 4] = rand::random();
    params.distinguished_name.push(DnType::CommonName, format!("Foothold box {}", hex::encode(tag)));
    set_validity(&mut params, built, u64::MAX);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok((params.self_signed(&key)?.der().clone(), key))
}

/// Whether a certificate has exactly these names and is good for a while yet.
fn is_current(certificate: &X509Certificate<'_>, names: &[String], now: SystemTime) -> bool {
    let Ok(Some(found)) = certificate.subject_alternative_name() else { return false };
    let mut found: Vec<String> = found.value.general_names.iter().filter_map(name_of).collect();
    let mut wanted = names.to_vec();
    found.sort();
    wanted.sort();
    let end = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    found == wanted && secs(now + RENEW_BEFORE) < end
}

fn name_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from).ok();
            v4.or_else(|| <[u8; 16]>::try_from(*bytes).map(IpAddr::from).ok()).map(|ip| ip.to_string())
        }
        _ => None,
    }
}

fn secs(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Sets both ends, in seconds since 1970. Later than the last second of 9999 is that second, which means "no
/// well-defined end" (RFC 5280, 4.1.2.5).
fn set_validity(params: &mut CertificateParams, from: u64, to: u64) {
    let moment = |secs: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(secs.min(253_402_300_799));
    params.not_before = moment(from);
    params.not_after = moment(to);
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Names under which the box may be asked: its addresses, its host name, and the loopback of whoever forwards
/// a port to it.
pub fn names_of(hostname: &str, addresses: &[IpAddr]) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let label = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if !hostname.is_empty() && hostname.len() < 254 && hostname.bytes().all(label) {
        names.push(hostname.to_ascii_lowercase());
    }
    names.extend(BPA_SERVICE.map(str::to_owned));
    names.extend(addresses.iter().map(IpAddr::to_string));
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rustls::sign::CertifiedKey;
    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::{Authority, names_of};

    const BUILT: u64 = 1_790_000_000;

    fn days(n: u64) -> Duration {
        Duration::from_hours(24 * n)
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(BUILT)
    }

    fn leaf(key: &CertifiedKey) -> X509Certificate<'_> {
        X509Certificate::from_der(&key.cert[0]).expect("a certificate").1
    }

    #[test]
    fn the_authority_stays_and_the_server_certificate_too_while_it_fits() {
        let dir = tempfile::tempdir().expect("a folder");
        let names = names_of("edge-1", &["192.0.2.7".parse().expect("an address")]);
        let first = Authority::open(dir.path(), BUILT).expect("made");
        let leaf_1 = first.serve(&names, now()).expect("issued");
        let again = Authority::open(dir.path(), BUILT).expect("read");
        assert_eq!(first.fingerprint(), again.fingerprint());
        let leaf_2 = again.serve(&names, now() + days(300)).expect("kept");
        assert_eq!(leaf_1.cert, leaf_2.cert);
        assert_eq!(leaf(&leaf_1).validity().not_before.timestamp(), i64::try_from(BUILT).expect("fits"));
    }

    #[test]
    fn other_addresses_or_too_little_time_make_a_new_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let authority = Authority::open(dir.path(), BUILT).expect("made");
        let names = names_of("edge-1", &[]);
        let first = authority.serve(&names, now()).expect("issued");
        let late = authority.serve(&names, now() + days(370)).expect("issued");
        assert_ne!(first.cert, late.cert);
        let moved = names_of("edge-1", &["2001:db8::7".parse().expect("an address")]);
        let there = authority.serve(&moved, now() + days(370)).expect("issued");
        assert_ne!(late.cert, there.cert);
        let text = format!("{:?}", leaf(&there).subject_alternative_name().expect("readable"));
        assert!(text.contains("edge-1"), "{text}");
    }

    #[test]
    fn a_damaged_authority_is_made_anew_and_no_old_certificate_is_served_under_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let names = names_of("edge-1", &[]);
        let first = Authority::open(dir.path(), BUILT).expect("made");
        let old = first.serve(&names, now()).expect("issued");
        fs_err::write(dir.path().join("ca.crt"), "noise").expect("damaged");
        let second = Authority::open(dir.path(), BUILT).expect("made anew");
        assert_ne!(first.fingerprint(), second.fingerprint());
        assert_ne!(second.serve(&names, now()).expect("issued").cert[0], old.cert[0]);
    }

    #[test]
    fn any_clock_gives_a_certificate() {
        let authority = Authority::in_memory(BUILT).expect("made");
        for clock in [SystemTime::UNIX_EPOCH, now() + days(65 * 365)] {
            let key = authority.serve(&names_of("", &[]), clock).expect("issued");
            let validity = leaf(&key).validity().clone();
            assert!(validity.not_before < validity.not_after);
        }
    }
}
