//! HTTPS on port 8443: the web page, REST, the event stream. It answers from the agent's first second on,
//! whatever the cluster does.
//!
//! ```text
//! access       who may come in: Site's token, or the claim code on the console
//! certificate  the box's own authority, and a server certificate that follows its addresses
//! server       listeners, TLS, limits on connections
//! api          the routes                timeline, kubeconfig, bundle, redact   what they answer with
//! upload       bodies that are taken while they come: bundles
//! rehearsals   the site's BMCs are asked, and not changed
//! hosts/       where the servers stand that the box provisions, and what is waited for
//! page/        the web page, one file
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent_api::ports;
use agent_api::site::Site;
use rustls::server::ResolvesServerCert;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::content::fetches::Fetches;
use crate::events::Bus;
use crate::host::runner::Runner;
use crate::releases::Releases;
use crate::site_out::SiteOut;
use crate::vitals::{self, Vitals};

mod access;
pub(crate) mod api;
pub(crate) mod body;
pub(crate) mod bundle;
mod certificate;
mod hosts;
mod kubeconfig;
mod page;
pub(crate) mod redact;
mod rehearsals;
pub(crate) mod server;
pub(crate) mod timeline;
mod upload;

pub use access::{ClaimError, Gate, Verdict};
pub(crate) use body::Fed;
pub use certificate::CertificateError;
use certificate::{Authority, Resolver};

/// How often the box's addresses are looked at: a new address is served within this time.
const LOOK_AT_ADDRESSES: Duration = Duration::from_secs(5);

/// How often the certificate's end is looked at.
const RENEW_LOOK: Duration = Duration::from_secs(86_400);

/// Where the box keeps its own authority.
pub const CERTIFICATES: &str = "/var/lib/foothold/web";

/// What REST needs from the rest of the agent.
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// The news.
    pub bus: Bus,
    /// Who may come in.
    pub gate: Arc<Gate>,
    /// Site, once it was looked for: until then nobody comes in.
    pub site: watch::Receiver<Option<Arc<Site>>>,
    /// Facts of the box.
    pub vitals: Vitals,
    /// Where a Site that is sent here is kept.
    pub stored_site: PathBuf,
    /// Folder of the web certificates ([`CERTIFICATES`]).
    pub certificates: PathBuf,
    /// The cluster's admin kubeconfig.
    pub kubeconfig: PathBuf,
    /// Runs `journalctl` and the like for the support bundle.
    pub runner: Arc<dyn Runner>,
    /// Releases that are here.
    pub releases: Releases,
    /// Root of the files that go into the support bundle.
    pub root: PathBuf,
    /// Writes reports to the SITE partition.
    pub site_out: Arc<SiteOut>,
    /// Who fetched what from the box.
    pub fetches: Fetches,
    /// URL of Ironic.
    pub ironic: String,
}

impl Options {
    /// As on a real box.
    pub fn of_box(
        bus: Bus,
        gate: Arc<Gate>,
        site: watch::Receiver<Option<Arc<Site>>>,
        vitals: Vitals,
        runner: Arc<dyn Runner>,
        site_out: Arc<SiteOut>,
    ) -> Self {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        Self {
            listen: any.map(|ip| SocketAddr::new(ip, ports::WEB)).to_vec(),
            bus,
            gate,
            site,
            vitals,
            stored_site: PathBuf::from("/var/lib/foothold/site.yaml"),
            certificates: PathBuf::from(CERTIFICATES),
            kubeconfig: PathBuf::from(kubeconfig::ADMIN),
            runner,
            releases: Releases::of_box(),
            root: PathBuf::from("/"),
            site_out,
            fetches: Fetches::default(),
            ironic: hosts::ironic_of_box(),
        }
    }
}

/// What others need to know about the running server.
#[derive(Clone, Debug)]
pub struct Web {
    /// SHA-256 of the authority's certificate, for the console.
    pub fingerprint: String,
    /// Addresses that are bound.
    pub addresses: Vec<SocketAddr>,
    /// The authority's certificate.
    pub authority: String,
    /// The certificate that follows the box's addresses, for other servers of the box.
    pub resolver: Arc<dyn ResolvesServerCert>,
}

/// Starts the listeners. An address that cannot be bound now is tried again until it can; without a writable
/// DATA the certificate is made in memory. Needs a tokio runtime.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    options: Options,
    stop: &CancellationToken,
) -> Result<Web, CertificateError> {
    let built = options.vitals.identity().built;
    let authority = Authority::open(&options.certificates, built).or_else(|error| {
        log::warn!("the web certificate lasts only until the next start: {error}");
        Authority::in_memory(built)
    })?;
    let names = certificate::names_of(&vitals::hostname(), &vitals::addresses());
    let resolver = Arc::new(Resolver::new(authority.serve(&names, SystemTime::now())?));
    let (fingerprint, pem) = (authority.fingerprint(), authority.pem());
    let shown: Arc<dyn ResolvesServerCert> = resolver.clone();
    let tls = server::tls(Arc::clone(&shown))?;
    let listen = options.listen.clone();
    tasks.spawn(follow_site(Arc::clone(&options.gate), options.site.clone(), stop.clone()));
    let router = api::router(options, fingerprint.clone(), pem.clone());
    let addresses = server::start(tasks, &listen, router, tls, stop);
    tasks.spawn(follow_addresses(authority, resolver, names, stop.clone()));
    Ok(Web { fingerprint, addresses, authority: pem, resolver: shown })
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
    authority.serve_at(path, &certificate::names_of(&vitals::hostname(), &vitals::addresses()), SystemTime::now())?;
    Ok(authority.pem())
}

/// TLS with whatever certificate is current, for the box's other servers.
pub fn tls(resolver: Arc<dyn ResolvesServerCert>) -> Result<rustls::ServerConfig, CertificateError> {
    Ok(server::tls(resolver)?)
}

/// Tells the gate what Site says about access, now and when it changes.
async fn follow_site(
    gate: Arc<Gate>,
    mut site: watch::Receiver<Option<Arc<Site>>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let follow = async {
        loop {
            if let Some(known) = site.borrow_and_update().clone() {
                gate.set_site(&known.access);
            }
            if site.changed().await.is_err() {
                return;
            }
        }
    };
    stop.run_until_cancelled(follow).await;
    Ok(())
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
        let found = certificate::names_of(&vitals::hostname(), &vitals::addresses());
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

/// TLS for the tests of other servers.
#[cfg(test)]
pub mod testing {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::certificate::{Authority, Resolver, names_of};
    use super::server;

    /// A configuration, and the authority that a client must trust.
    pub fn tls() -> (rustls::ServerConfig, String) {
        let authority = Authority::in_memory(1_790_000_000).expect("made");
        let key = authority.serve(&names_of("", &[]), SystemTime::now()).expect("issued");
        (server::tls(Arc::new(Resolver::new(key))).expect("a configuration"), authority.pem())
    }
}

#[cfg(test)]
mod tests;
