//! HTTPS on port 8443: the web page, REST, the event stream. It answers from the agent's first second on,
//! whatever the cluster does.
//!
//! ```text
//! routes       the list: path, handler, limits
//! front        page, health, authority, claim      page/        the web page, one file
//! status       status, timeline, support bundle    events       what happened and happens
//! kubeconfig   the cluster's, for whoever asks     site         a Site for the next start; a report on SITE
//! bundles      a release to run next               rehearsals   the site's BMCs are asked, and not changed
//! hosts/       where the servers stand that the box provisions, and what is waited for
//! clusters     application clusters: how far they are, kubeconfigs, inventories, logs
//! ask          the box's API server is asked
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use agent_api::ports;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::content::fetches::Fetches;
use crate::door::{Certificate, Gate, server};
use crate::events::Bus;
use crate::host::runner::Runner;
use crate::releases::Releases;
use crate::support::SiteOut;
use crate::vitals::Vitals;

mod ask;
mod bundles;
mod clusters;
mod events;
mod front;
mod hosts;
mod kubeconfig;
mod page;
mod rehearsals;
mod routes;
mod site;
mod status;

/// What REST needs from the rest of the agent.
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// The news.
    pub bus: Bus,
    /// Who may come in.
    pub gate: Arc<Gate>,
    /// The box's certificate.
    pub certificate: Certificate,
    /// Facts of the box.
    pub vitals: Vitals,
    /// Where a Site that is sent here is kept.
    pub stored_site: PathBuf,
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
        certificate: Certificate,
        vitals: Vitals,
        runner: Arc<dyn Runner>,
        site_out: Arc<SiteOut>,
    ) -> Self {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        Self {
            listen: any.map(|ip| SocketAddr::new(ip, ports::WEB)).to_vec(),
            bus,
            gate,
            certificate,
            vitals,
            stored_site: PathBuf::from("/var/lib/foothold/site.yaml"),
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

/// Starts the listeners, and tells the addresses that are bound by now. An address that cannot be bound now is tried again
/// until it can. Needs a tokio runtime.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    options: Options,
    stop: &CancellationToken,
) -> Result<Vec<SocketAddr>, rustls::Error> {
    let tls = server::tls(Arc::clone(&options.certificate.resolver))?;
    let (listen, known) = (options.listen.clone(), options.gate.known());
    Ok(server::start(tasks, &listen, routes::router(options), tls, known, stop))
}

#[cfg(test)]
mod tests;
