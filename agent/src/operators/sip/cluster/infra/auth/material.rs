//! The provider's certificate, the authority that signs it, and the keys of tokens. What is good is kept.

use std::time::Duration;

use agent_api::sip::cluster::SipCluster;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, date_time_ymd,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{CERTIFICATE, KEY, SIGNING_KEY, SIGNING_PUBLIC, authority_name, text_of};
use crate::cluster::pki::{self, keys};
use crate::operators::sip::cluster::infra::{Infra, parts};

/// How long a certificate is good for: browsers refuse more than 398 days.
const LIFETIME: Duration = Duration::from_secs(397 * 86_400);
/// With less than this left it is made anew.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 86_400);

/// What a provider has of certificates and keys, all PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Material {
    /// Certificates of the authority.
    pub authority: String,
    /// Its key, where it was made here.
    pub authority_key: Option<String>,
    /// Certificate of the server.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// Signs tokens.
    pub signing_key: String,
    /// What they are checked with.
    pub signing_public: String,
}

impl Material {
    /// The Secret that keeps the authority, where it was made here.
    pub fn own_authority(&self, object: &SipCluster) -> Option<Secret> {
        let key = self.authority_key.clone()?;
        let data = [(CERTIFICATE, self.authority.clone()), (KEY, key)];
        let bytes = |(key, text): (&str, String)| (key.to_owned(), ByteString(text.into_bytes()));
        Some(Secret {
            metadata: parts::metadata(Infra::Auth, object, authority_name(object)),
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(data.map(bytes).into()),
            ..Secret::default()
        })
    }

    /// All of it for a server with these names. `kept`: the provider's Secret, as it is. `now`: seconds since 1970.
    ///
    /// # Errors
    /// What the library refuses, in words.
    pub fn make(authority: &Authority, kept: Option<&Secret>, names: &[String], now: u64) -> Result<Self, String> {
        let of = |key: &str| kept.and_then(|secret| text_of(secret, key));
        let found = of(CERTIFICATE).zip(of(KEY)).filter(|(pem, key)| authority.is_good(pem, key, names, now));
        let (certificate, key) = match found {
            Some(found) => found,
            None => authority.sign(names, now).map_err(|error| format!("making a certificate: {error}"))?,
        };
        let signing = of(SIGNING_KEY).zip(of(SIGNING_PUBLIC)).filter(|(key, public)| is_pair(key, public));
        let (signing_key, signing_public) = match signing {
            Some(found) => found,
            None => new_pair().map_err(|error| format!("making a key: {error}"))?,
        };
        let authority_key = authority.own.then(|| authority.key.clone());
        let authority = authority.pem.clone();
        Ok(Self { authority, authority_key, certificate, key, signing_key, signing_public })
    }
}

/// An authority that can sign.
pub struct Authority {
    pem: String,
    key: String,
    /// It was made here.
    own: bool,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one. Whatever clocks say, it is good.
    ///
    /// # Errors
    /// What the library refuses.
    pub fn new(name: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        (params.not_before, params.not_after) = (date_time_ymd(1970, 1, 1), date_time_ymd(9999, 12, 31));
        let (pem, text) = (params.self_signed(&key)?.pem(), key.serialize_pem());
        let issuer = Issuer::from_ca_cert_pem(&pem, key)?;
        Ok(Self { pem, key: text, own: true, issuer })
    }

    /// That of a Secret. `own`: it was made here.
    ///
    /// # Errors
    /// What is wrong with the Secret, in words.
    pub fn of(secret: &Secret, own: bool) -> Result<Self, String> {
        let text = |key: &str| text_of(secret, key).ok_or_else(|| format!("has no `{key}`"));
        let (pem, text) = (text(CERTIFICATE)?, text(KEY)?);
        let key = keys::from_sec1_pem(&text).or_else(|_| KeyPair::from_pem(&text));
        let key = key.map_err(|_| format!("`{KEY}` is no key in PKCS #8, or on P-256 in SEC 1"))?;
        let found = pki::inspect(&pem).ok_or_else(|| format!("`{CERTIFICATE}` is no certificate in PEM"))?;
        if found.public != key.der_bytes() {
            return Err(format!("`{KEY}` is not the key of `{CERTIFICATE}`"));
        }
        if !is_authority(&pem) {
            return Err(format!("`{CERTIFICATE}` is no authority: it may sign no certificates"));
        }
        let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(|error| format!("`{CERTIFICATE}`: {error}"))?;
        Ok(Self { pem, key: text, own, issuer })
    }

    /// A certificate for these names, with its key. Both are PEM.
    fn sign(&self, names: &[String], now: u64) -> Result<(String, String), rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = common_name("oidc");
        params.not_before = date_time_ymd(1970, 1, 1);
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(now) + LIFETIME;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }

    /// Whether a certificate is of this authority, for these names, and good for a while yet.
    fn is_good(&self, pem: &str, key: &str, names: &[String], now: u64) -> bool {
        let (Some(found), Ok(key)) = (pki::inspect(pem), KeyPair::from_pem(key)) else { return false };
        let mut names = names.to_vec();
        names.sort();
        let lasts = found.not_after > now + RENEW_BEFORE.as_secs();
        found.names == names && lasts && found.public == key.der_bytes() && is_signed(pem, &self.pem)
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn is_authority(pem: &str) -> bool {
    let Some(der) = keys::der_of(pem, "CERTIFICATE") else { return false };
    X509Certificate::from_der(&der).is_ok_and(|(_, certificate)| certificate.is_ca())
}

fn is_signed(pem: &str, authority: &str) -> bool {
    let der = |text: &str| keys::der_of(text, "CERTIFICATE");
    let Some((own, authority)) = der(pem).zip(der(authority)) else { return false };
    let parsed = X509Certificate::from_der(&own).ok().zip(X509Certificate::from_der(&authority).ok());
    parsed.is_some_and(|((_, own), (_, authority))| own.verify_signature(Some(authority.public_key())).is_ok())
}

/// A key on P-256 and its public half.
fn new_pair() -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn is_pair(key: &str, public: &str) -> bool {
    KeyPair::from_pem(key).is_ok_and(|key| key.public_key_pem() == public)
}
