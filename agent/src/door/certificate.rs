//! The certificate that the box's servers show: under the box's own authority, for the addresses and the host name
//! that the box has now.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::authority::{Authority, CertificateError, names_of};
use crate::vitals;

/// How often the box's addresses are looked at: a new address is served within this time.
const LOOK_AT_ADDRESSES: Duration = Duration::from_secs(5);

/// How often the certificate's end is looked at.
const RENEW_LOOK: Duration = Duration::from_secs(86_400);

/// Where the box keeps its own authority.
pub const CERTIFICATES: &str = "/var/lib/foothold/web";

/// The box's certificate, and what clients may know of it. Clones show the same one.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// SHA-256 of the authority's certificate, for the console.
    pub fingerprint: String,
    /// The authority's certificate in PEM.
    pub authority: String,
    /// Gives each connection the newest certificate.
    pub resolver: Arc<dyn ResolvesServerCert>,
}

/// Opens the authority in `dir`, and keeps a certificate under it in step with the box's addresses. Without a writable
/// DATA the authority is made in memory. Needs a tokio runtime.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    dir: &Path,
    built: u64,
    stop: &CancellationToken,
) -> Result<Certificate, CertificateError> {
    let authority = Authority::open(dir, built).or_else(|error| {
        log::warn!("the web certificate lasts only until the next start: {error}");
        Authority::in_memory(built)
    })?;
    let names = names_of(&vitals::hostname(), &vitals::addresses());
    let resolver = Arc::new(Resolver::new(authority.serve(&names, SystemTime::now())?));
    let (fingerprint, pem) = (authority.fingerprint(), authority.pem());
    tasks.spawn(follow_addresses(authority, Arc::clone(&resolver), names, stop.clone()));
    Ok(Certificate { fingerprint, authority: pem, resolver })
}

/// A certificate for `localhost` and loopback under an authority in `dir`, and the authority in PEM: for a server that
/// runs on no box.
pub fn own_certificate(dir: &Path) -> Result<(Arc<dyn ResolvesServerCert>, String), CertificateError> {
    let authority = Authority::open(dir, 0)?;
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let resolver = Resolver::new(authority.serve(&names, SystemTime::now())?);
    Ok((Arc::new(resolver), authority.pem()))
}

/// Key and certificate at `path` for a server of the box that is no part of the agent: under the authority in `dir`, for
/// the box's names and addresses now. Returns the authority in PEM.
pub fn certificate_at(path: &Path, dir: &Path, built: u64) -> Result<String, CertificateError> {
    let authority = Authority::open(dir, built)?;
    authority.serve_at(path, &names_of(&vitals::hostname(), &vitals::addresses()), SystemTime::now())?;
    Ok(authority.pem())
}

/// Keeps the certificate's names and its end in step with the box.
async fn follow_addresses(
    authority: Authority,
    resolver: Arc<Resolver>,
    mut names: Vec<String>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut looked = tokio::time::interval(LOOK_AT_ADDRESSES);
    let mut renew = SystemTime::now() + RENEW_LOOK;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = looked.tick() => {}
        }
        let now = SystemTime::now();
        let found = names_of(&vitals::hostname(), &vitals::addresses());
        if found == names && now < renew {
            continue;
        }
        match authority.serve(&found, now) {
            Ok(next) => resolver.replace(next),
            Err(error) => log::error!("the web certificate stays as it is: {error}"),
        }
        names = found;
        renew = now + RENEW_LOOK;
    }
}

/// Hands the newest certificate to each new connection.
#[derive(Debug)]
pub(crate) struct Resolver(RwLock<Arc<CertifiedKey>>);

impl Resolver {
    /// Starts with this one.
    pub(crate) fn new(first: CertifiedKey) -> Self {
        Self(RwLock::new(Arc::new(first)))
    }

    /// Connections from now on get this one.
    pub(crate) fn replace(&self, next: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}
