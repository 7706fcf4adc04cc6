//! Certificates as kubeadm lays them out: three authorities, their leaves, and the service account keys.
//!
//! ```text
//! Node --leaves--> [LeafSpec] --+
//! /etc/kubernetes/pki --found---+--decide--> [(LeafSpec, Reason)] --issue--> files
//! ```
//!
//! Differences from kubeadm, each with a reason: `notBefore` is the build time of the release, so that
//! a clock that is corrected backwards invalidates nothing; a renewed certificate keeps its key, so
//! that one rename is the whole renewal, whenever the power goes.

pub mod keys;
mod spec;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_api::boot::CA_LIFE;
use rcgen::{Certificate, CertificateParams, Issuer, KeyPair};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Node;
use crate::host::files::{self, PUBLIC, SECRET};

pub use spec::{Authority, LeafSpec, Subject, Usage, leaves};

/// Where kubeadm keeps certificates.
pub const PKI_DIR: &str = "/etc/kubernetes/pki";

const DAY: u64 = 24 * 3600;
/// kubeadm's `certificateValidityPeriod`.
const LEAF_LIFE: Duration = Duration::from_secs(365 * DAY);
/// A certificate that is valid for less than this is issued anew.
pub const RENEW_BEFORE: Duration = Duration::from_secs(30 * DAY);

/// What can go wrong with keys and certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The library refused.
    #[error("the cryptographic library refused")]
    Crypto(#[source] rcgen::Error),
    /// Not a P-256 key in SEC 1 form.
    #[error("not an `EC PRIVATE KEY` on P-256")]
    KeyShape,
    /// An authority that was made and recorded is not there any more, or cannot be read.
    #[error("authority `{name}` was made on an earlier boot and cannot be read now from {path}")]
    AuthorityLost {
        /// Which.
        name: &'static str,
        /// Its certificate.
        path: PathBuf,
    },
    /// Reading or writing a file.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The times between which certificates are valid.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// Build time of the release, seconds since 1970: nothing is valid before.
    pub built: u64,
    /// The clock, seconds since 1970.
    pub now: u64,
}

/// An authority that can sign.
pub struct Ca {
    /// Its certificate.
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
    public: Vec<u8>,
}

/// The three authorities.
pub struct Authorities {
    /// Signs for the API server's clients and itself.
    pub cluster: Ca,
    /// Signs for the aggregation layer's client.
    pub front_proxy: Ca,
    /// Signs for etcd and its clients.
    pub etcd: Ca,
}

impl Authorities {
    /// The one that signs.
    pub fn get(&self, authority: Authority) -> &Ca {
        match authority {
            Authority::Cluster => &self.cluster,
            Authority::FrontProxy => &self.front_proxy,
            Authority::Etcd => &self.etcd,
        }
    }
}

/// Opens the three authorities below `dir` and makes what is missing; `made_before` says that the
/// ledger knows of them: then a missing one is an error, never replaced in silence.
pub fn authorities(dir: &Path, validity: Validity, made_before: bool) -> Result<Authorities, PkiError> {
    let open = |authority| open_or_make(dir, authority, validity, made_before);
    Ok(Authorities {
        cluster: open(Authority::Cluster)?,
        front_proxy: open(Authority::FrontProxy)?,
        etcd: open(Authority::Etcd)?,
    })
}

fn open_or_make(dir: &Path, authority: Authority, validity: Validity, made_before: bool) -> Result<Ca, PkiError> {
    let certificate = dir.join(format!("{}.crt", authority.file()));
    let key_file = certificate.with_extension("key");
    let read = || -> Option<Ca> {
        let pem = fs_err::read_to_string(&certificate).ok()?;
        let key = keys::from_sec1_pem(&fs_err::read_to_string(&key_file).ok()?).ok()?;
        let found = inspect(&pem)?;
        (found.public == spki_point(&key)).then_some(())?;
        ca(pem, key).ok()
    };
    if let Some(ca) = read() {
        return Ok(ca);
    }
    if made_before {
        return Err(PkiError::AuthorityLost { name: authority.common_name(), path: certificate });
    }
    let key = keys::generate()?;
    let params = spec::authority_params(authority, span(validity, CA_LIFE));
    let pem = to_pem(&params.self_signed(&key).map_err(PkiError::Crypto)?);
    files::write(&key_file, keys::to_sec1_pem(&key)?.as_bytes(), SECRET)?;
    files::write(&certificate, pem.as_bytes(), PUBLIC)?;
    ca(pem, key)
}

fn ca(pem: String, key: KeyPair) -> Result<Ca, PkiError> {
    let public = spki_point(&key);
    let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(PkiError::Crypto)?;
    Ok(Ca { pem, issuer, public })
}

fn to_pem(certificate: &Certificate) -> String {
    keys::pem("CERTIFICATE", certificate.der())
}

fn spki_point(key: &KeyPair) -> Vec<u8> {
    key.public_key_raw().to_vec()
}

fn span(validity: Validity, life: Duration) -> (u64, u64) {
    // A clock before the build time is wrong: count from the build.
    (validity.built, validity.now.max(validity.built) + life.as_secs())
}

/// What a certificate file says, as far as it matters for keeping it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundCertificate {
    /// Subject as `O=a, CN=b`.
    pub subject: String,
    /// DNS names and addresses, sorted.
    pub names: Vec<String>,
    /// Seconds since 1970.
    pub not_before: u64,
    /// Seconds since 1970.
    pub not_after: u64,
    /// The public key's point.
    pub public: Vec<u8>,
    /// Whether the authority's key signed it. Filled by [`inspect_leaf`].
    pub signed: bool,
}

/// Reads the first certificate of a PEM text; `None` if there is none.
pub fn inspect(pem: &str) -> Option<FoundCertificate> {
    inspect_der(&keys::der_of(pem, "CERTIFICATE")?)
}

/// Reads a certificate as it goes over the wire; `None` if it is none.
pub fn inspect_der(der: &[u8]) -> Option<FoundCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(found(&certificate))
}

/// [`inspect`], and whether `ca` signed it.
pub fn inspect_leaf(pem: &str, ca: &Ca) -> Option<FoundCertificate> {
    let der = keys::der_of(pem, "CERTIFICATE")?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_ASN1, &ca.public);
    let signed = key.verify(certificate.tbs_certificate.as_ref(), &certificate.signature_value.data).is_ok();
    Some(FoundCertificate { signed, ..found(&certificate) })
}

fn found(certificate: &X509Certificate<'_>) -> FoundCertificate {
    let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
    let mut names = Vec::new();
    if let Ok(Some(extension)) = certificate.subject_alternative_name() {
        names.extend(extension.value.general_names.iter().filter_map(spec::name_text));
    }
    names.sort();
    FoundCertificate {
        subject: certificate.subject().to_string(),
        names,
        not_before: seconds(certificate.validity().not_before),
        not_after: seconds(certificate.validity().not_after),
        public: certificate.public_key().subject_public_key.data.to_vec(),
        signed: false,
    }
}

/// Addresses that the API server's certificate in `dir` is for; none where there is no such certificate.
pub fn served_addresses(dir: &Path) -> Vec<IpAddr> {
    let found = fs_err::read_to_string(dir.join("apiserver.crt")).ok().and_then(|pem| inspect(&pem));
    found.into_iter().flat_map(|found| found.names).filter_map(|name| name.parse().ok()).collect()
}

/// Why a certificate is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is none that can be read.
    Missing,
    /// Another authority signed it.
    OtherAuthority,
    /// It is for another name.
    OtherSubject,
    /// The box has other names or addresses now.
    NamesChanged,
    /// It ends within [`RENEW_BEFORE`].
    EndsSoon,
    /// The clock is before its start.
    NotYetValid,
}

/// Whether a certificate must be issued, and why. Pure.
pub fn decide(spec: &LeafSpec, found: Option<&FoundCertificate>, now: u64) -> Option<Reason> {
    let Some(found) = found else { return Some(Reason::Missing) };
    if !found.signed {
        return Some(Reason::OtherAuthority);
    }
    if found.subject != spec.subject.text() {
        return Some(Reason::OtherSubject);
    }
    if found.names != spec.names() {
        return Some(Reason::NamesChanged);
    }
    if now < found.not_before {
        return Some(Reason::NotYetValid);
    }
    (found.not_after < now + RENEW_BEFORE.as_secs()).then_some(Reason::EndsSoon)
}

/// A certificate with its key.
pub struct Pair {
    /// PEM.
    pub certificate: String,
    /// PEM, SEC 1.
    pub key: String,
}

/// Signs a certificate for `key`.
pub fn issue(spec: &LeafSpec, key: &KeyPair, ca: &Ca, validity: Validity) -> Result<String, PkiError> {
    let params: CertificateParams = spec::leaf_params(spec, span(validity, LEAF_LIFE))?;
    Ok(to_pem(&params.signed_by(key, &ca.issuer).map_err(PkiError::Crypto)?))
}

/// A certificate with a new key.
pub fn issue_pair(spec: &LeafSpec, ca: &Ca, validity: Validity) -> Result<Pair, PkiError> {
    let key = keys::generate()?;
    Ok(Pair { certificate: issue(spec, &key, ca, validity)?, key: keys::to_sec1_pem(&key)? })
}

/// What was done to one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// File below the directory, without ending.
    pub file: String,
    /// Why.
    pub reason: Reason,
}

/// Brings every leaf below `dir` up to date. Returns what was issued.
pub fn leaves_on_disk(
    dir: &Path,
    node: &Node,
    authorities: &Authorities,
    validity: Validity,
) -> Result<Vec<Issued>, PkiError> {
    let mut issued = Vec::new();
    for spec in leaves(node) {
        if let Some(reason) = leaf_on_disk(dir, &spec, authorities.get(spec.authority), validity)? {
            issued.push(Issued { file: spec.file.clone(), reason });
        }
    }
    service_account_keys(dir)?;
    Ok(issued)
}

fn leaf_on_disk(dir: &Path, spec: &LeafSpec, ca: &Ca, validity: Validity) -> Result<Option<Reason>, PkiError> {
    let certificate = dir.join(format!("{}.crt", spec.file));
    let key_file = dir.join(format!("{}.key", spec.file));
    let key = fs_err::read_to_string(&key_file).ok().and_then(|text| keys::from_sec1_pem(&text).ok());
    let found = fs_err::read_to_string(&certificate).ok().and_then(|pem| inspect_leaf(&pem, ca));
    let fits = |key: &KeyPair| found.as_ref().is_some_and(|found| found.public == spki_point(key));
    let found = if key.as_ref().is_some_and(fits) { found } else { None };
    let Some(reason) = decide(spec, found.as_ref(), validity.now) else { return Ok(None) };
    let key = if let Some(key) = key { key } else { new_key(&key_file)? };
    files::write(&certificate, issue(spec, &key, ca, validity)?.as_bytes(), PUBLIC)?;
    Ok(Some(reason))
}

fn new_key(file: &Path) -> Result<KeyPair, PkiError> {
    let key = keys::generate()?;
    files::write(file, keys::to_sec1_pem(&key)?.as_bytes(), SECRET)?;
    Ok(key)
}

/// `sa.key` and `sa.pub`: what service account tokens are signed with. Never replaced.
fn service_account_keys(dir: &Path) -> Result<(), PkiError> {
    let private = dir.join("sa.key");
    let found = fs_err::read_to_string(&private).ok().and_then(|text| keys::from_sec1_pem(&text).ok());
    let key = if let Some(key) = found { key } else { new_key(&private)? };
    let public = keys::pem("PUBLIC KEY", &rcgen::PublicKeyData::subject_public_key_info(&key));
    files::write(&dir.join("sa.pub"), public.as_bytes(), SECRET)?;
    Ok(())
}

/// A self-signed serving pair for the kubelet, which would otherwise make two RSA keys at its first start.
pub fn kubelet_serving(node: &str, validity: Validity) -> Result<Pair, PkiError> {
    let (authority, leaf) = spec::kubelet_serving_params(node, span(validity, LEAF_LIFE))?;
    let ca_key = keys::generate()?;
    let ca_certificate = authority.self_signed(&ca_key).map_err(PkiError::Crypto)?;
    let key = keys::generate()?;
    let issuer = Issuer::new(authority, ca_key);
    let certificate = leaf.signed_by(&key, &issuer).map_err(PkiError::Crypto)?;
    Ok(Pair { certificate: to_pem(&certificate) + &to_pem(&ca_certificate), key: keys::to_sec1_pem(&key)? })
}

#[cfg(test)]
mod tests;
