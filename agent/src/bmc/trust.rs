//! Which certificates a BMC may have: what OpenSSL takes, since Ironic asks BMCs by it.
//!
//! ```text
//! ca.crt ─► those that sign themselves: authorities ─┐
//!        └► the others: between ─────────────────────┴─► verifier ─► good | CertificateProblem
//! ```
//! Two rules differ from rustls' own. A certificate that is an authority itself (as many BMCs make theirs) may serve where it
//! is given itself. And an authority counts only when it signs itself: one between is no end of the chain.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Which certificates a BMC may have.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Any.
    Anybody,
    /// Signed by those the system knows.
    System,
    /// Signed by (or being) one of these.
    Authorities(Vec<CertificateDer<'static>>),
}

/// A PEM text that names no certificates.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AuthorityError {
    /// The text holds no certificate.
    #[error("found no certificate, expected at least one in PEM")]
    None,
    /// A part of it is not a certificate.
    #[error("certificate {number}: {why}")]
    Broken {
        /// Which, from 1.
        number: usize,
        /// What is wrong.
        why: String,
    },
    /// No client can be made.
    #[error("the TLS client")]
    Client(#[from] rustls::Error),
}

impl Trust {
    /// What a host says of its BMC. `unverified`: its certificate is not checked. `authority`: `ca.crt` of its Secret.
    /// `otherwise`: where it says nothing.
    ///
    /// # Errors
    /// The authority holds no certificate, or one that cannot be read.
    pub fn of_host(unverified: bool, authority: Option<&str>, otherwise: Self) -> Result<Self, AuthorityError> {
        match authority {
            _ if unverified => Ok(Self::Anybody),
            Some(pem) => Self::authorities(pem),
            None => Ok(otherwise),
        }
    }

    /// Those of a PEM text.
    ///
    /// # Errors
    /// The text holds no certificate, or one that cannot be read.
    pub fn authorities(pem: &str) -> Result<Self, AuthorityError> {
        let mut found = Vec::new();
        for (number, certificate) in (1..).zip(CertificateDer::pem_slice_iter(pem.as_bytes())) {
            let broken = |why: String| AuthorityError::Broken { number, why };
            let certificate = certificate.map_err(|error| broken(error.to_string()))?;
            X509Certificate::from_der(&certificate).map_err(|error| broken(error.to_string()))?;
            found.push(certificate);
        }
        if found.is_empty() { Err(AuthorityError::None) } else { Ok(Self::Authorities(found)) }
    }
}

/// TLS 1.2 and 1.3 with a server whose certificate these sign, or are.
///
/// # Errors
/// The provider has no such TLS.
pub(super) fn client(known: &[CertificateDer<'static>]) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Verifier::of(known, &provider));
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// Certificates that sign themselves.
    roots: Vec<CertificateDer<'static>>,
    /// Others.
    between: Vec<CertificateDer<'static>>,
    /// Checks chains of certificates; `None` without roots.
    chains: Option<Arc<WebPkiServerVerifier>>,
}

impl Verifier {
    fn of(known: &[CertificateDer<'static>], provider: &Arc<CryptoProvider>) -> Self {
        let (roots, between): (Vec<_>, Vec<_>) = known.iter().cloned().partition(signs_itself);
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().cloned());
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider)).build().ok();
        Self { provider: Arc::clone(provider), roots, between, chains }
    }
}

fn signs_itself(certificate: &CertificateDer<'static>) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, it)| it.subject().as_raw() == it.issuer().as_raw())
}

/// A certificate that is known itself: what is left is its time, and whose it is.
fn known_itself(certificate: &CertificateDer<'_>, server: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, read) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let (validity, now) = (read.validity(), i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, server)
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.roots.iter().any(|root| root == end_entity) {
            return known_itself(end_entity, server_name, now).map(|()| ServerCertVerified::assertion());
        }
        let Some(chains) = &self.chains else { return Err(CertificateError::UnknownIssuer.into()) };
        let all: Vec<CertificateDer<'_>> = intermediates.iter().chain(&self.between).cloned().collect();
        chains.verify_server_cert(end_entity, &all, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What is wrong with a certificate, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateProblem {
    /// Nobody who is trusted signed it.
    Unknown,
    /// It is for these names and addresses.
    OtherName(Vec<String>),
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYet,
    /// Something else, in the library's words.
    Other(String),
}

impl CertificateProblem {
    /// By what rustls says.
    pub(super) fn of(error: &CertificateError) -> Self {
        match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Unknown,
            CertificateError::NotValidForName => Self::OtherName(Vec::new()),
            CertificateError::NotValidForNameContext { presented, .. } => {
                // `DnsName("a")`, `IpAddress(10.0.0.1)`
                let inner = |text: &String| {
                    let inner = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
                    inner.unwrap_or(text).trim_matches('"').to_owned()
                };
                Self::OtherName(presented.iter().map(inner).collect())
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYet,
            // Many BMCs' certificates are authorities that sign themselves: nobody said to trust this one.
            CertificateError::Other(why) if format!("{why:?}").contains("CaUsedAsEndEntity") => Self::Unknown,
            CertificateError::Other(why) if format!("{why:?}").contains("UnsupportedCertVersion") => {
                Self::Other("it is of version 1 of X.509, which names no address".to_owned())
            }
            other => Self::Other(other.to_string()),
        }
    }

    /// What to do about it, that works when it is done. `given`: whether a `ca.crt` was given.
    pub fn hint(&self, given: bool) -> String {
        let unchecked = "or set `disableCertificateVerification: true` in `spec.bmc`";
        match self {
            Self::Unknown if given => format!(
                "`ca.crt` in the Secret has no certificate that signs itself and signed, or is, the BMC's: put that in it, \
                 with those between, {unchecked}"
            ),
            Self::Unknown => format!(
                "put the BMC's certificate, where it signs itself, or else the authority that signed it, as `ca.crt` in the \
                 Secret, {unchecked}"
            ),
            Self::OtherName(_) => format!(
                "write one of its names in `spec.bmc.address`, give the BMC a certificate for its address, {unchecked}: \
                 `ca.crt` does not help here"
            ),
            Self::Expired => format!("give the BMC a new certificate, {unchecked}; see that the clock here is right"),
            Self::NotYet => {
                "set the clocks of the BMC and of this machine: the certificate was made in the future".into()
            }
            Self::Other(_) => format!("give the BMC another certificate, {unchecked}"),
        }
    }
}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("nobody who is trusted signed it"),
            Self::OtherName(names) if names.is_empty() => f.write_str("it is for no name or address"),
            Self::OtherName(names) => write!(f, "it is for `{}`, and not for this address", names.join("`, `")),
            Self::Expired => f.write_str("its time is over"),
            Self::NotYet => f.write_str("its time has not come yet"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
