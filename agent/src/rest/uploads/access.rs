//! Who may do what: the token of the box does everything, a certificate of Site's clients acts for its owners.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::handlers::App;
use crate::door::guard::{bearer, prove};
use crate::door::refusal::refuse;
use crate::door::server::{ClientCertificate, Peer};
use crate::door::{Refusal, Verdict};

/// The subject that acts for every owner.
const ADMIN: &str = "foothold:admin";

/// For whom the client of a request acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Everybody,
    Owners(BTreeSet<String>),
}

impl Caller {
    pub(super) fn may(&self, owner: &str) -> Result<(), Refusal> {
        match self {
            Self::Owners(owners) if !owners.contains(owner) => {
                let error = "the client certificate is for another owner";
                let hint = "the owner of the path must be an O (or, without O, the CN) of the certificate's subject";
                Err(Refusal::new(StatusCode::FORBIDDEN, error, hint))
            }
            Self::Owners(_) | Self::Everybody => Ok(()),
        }
    }
}

/// Lets in who has a token or a certificate.
pub(super) async fn only_known(
    State(app): State<Arc<App>>,
    Extension(Peer(peer)): Extension<Peer>,
    Extension(ClientCertificate(chain)): Extension<ClientCertificate>,
    mut request: Request,
    next: Next,
) -> Response {
    let token = bearer(request.headers());
    let caller = match (chain.first(), token) {
        (Some(certificate), None) if app.clients.trusts(&chain) => owners_of(certificate),
        _ => match app.gate.check(peer, token) {
            Verdict::Allowed => Caller::Everybody,
            verdict => return refuse(verdict).into_response(),
        },
    };
    prove(&request);
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// The owners in a certificate's subject. One that cannot be read acts for nobody.
fn owners_of(certificate: &CertificateDer<'_>) -> Caller {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Caller::Owners(BTreeSet::new()) };
    let subject = certificate.subject();
    let texts = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
    let mut owners: BTreeSet<String> = subject.iter_organization().filter_map(texts).collect();
    if owners.is_empty() {
        owners = subject.iter_common_name().filter_map(texts).collect();
    }
    if owners.contains(ADMIN) { Caller::Everybody } else { Caller::Owners(owners) }
}

/// Checks clients' certificates under the authority that Site names; without one, none is asked for.
#[derive(Debug, Default)]
pub(super) struct Clients(RwLock<Option<Arc<dyn ClientCertVerifier>>>);

/// Why an authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientsError {
    #[error("it is not PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("it is no certificate: {0}")]
    Certificate(#[from] rustls::Error),
    #[error(transparent)]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

impl Clients {
    /// Trusts the certificates under this authority from now on, and no others.
    pub(super) fn trust(&self, pem: Option<&str>) -> Result<(), ClientsError> {
        let verifier = pem.map(verifier_of).transpose();
        let (verifier, result) = match verifier {
            Ok(verifier) => (verifier, Ok(())),
            Err(error) => (None, Err(error)),
        };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = verifier;
        result
    }

    /// Whether this certificate, with those behind it, is good now.
    fn trusts(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((certificate, behind)) = chain.split_first() else { return false };
        self.verify_client_cert(certificate, behind, UnixTime::now()).is_ok()
    }

    fn now(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn verifier_of(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, ClientsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    Ok(builder.allow_unauthenticated().build()?)
}

impl ClientCertVerifier for Clients {
    fn offer_client_auth(&self) -> bool {
        self.now().is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // The authority may change while this list is lent out; clients send what they have.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verifier = self.now().ok_or(CertificateError::UnknownIssuer)?;
        verifier.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.now().ok_or(CertificateError::UnknownIssuer)?.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.now().ok_or(CertificateError::UnknownIssuer)?.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
