//! HTTPS on port 8443: the web page, REST, the event stream. It answers from the agent's first second on,
//! whatever the cluster does.
//!
//! ```text
//! api          the routes                kubeconfig   the cluster's, for whoever asks
//! rehearsals   the site's BMCs are asked, and not changed
//! hosts/       where the servers stand that the box provisions, and what is waited for
//! page/        the web page, one file
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use agent_api::ports;
use agent_api::site::Site;
use rustls::server::ResolvesServerCert;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::content::fetches::Fetches;
use crate::door::{self, CERTIFICATES, Certificate, CertificateError, Gate, server};
use crate::events::Bus;
use crate::host::runner::Runner;
use crate::releases::Releases;
use crate::support::SiteOut;
use crate::vitals::Vitals;

mod api;
mod hosts;
mod kubeconfig;
mod page;
mod rehearsals;

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
    let Certificate { fingerprint, authority, resolver } =
        door::certificate::start(tasks, &options.certificates, built, stop)?;
    let tls = server::tls(Arc::clone(&resolver))?;
    let listen = options.listen.clone();
    tasks.spawn(door::follow_site(Arc::clone(&options.gate), options.site.clone(), stop.clone()));
    let router = api::router(options, fingerprint.clone(), authority.clone());
    let addresses = server::start(tasks, &listen, router, tls, stop);
    Ok(Web { fingerprint, addresses, authority, resolver })
}

#[cfg(test)]
mod tests;
