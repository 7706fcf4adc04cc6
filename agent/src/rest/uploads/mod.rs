//! REST of the Binary Provisioning Agent, HTTPS on 9015: uploads for the site.
//!
//! ```text
//! TLS (client certificate or token) ─► access ─► handlers ─► uploads::Uploads (DATA) ─► content server, apt, registry
//!                                                upload: body ─channel─► Writer on a thread of its own
//! ```
//! Routes, bodies and texts are those of [`agent_api::bpa`]; what Akraino's clients know works unchanged. No body is
//! ever held in memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use agent_api::bpa::Kind;
use agent_api::ports;
use agent_api::site::{self, Site};
use rustls::server::ResolvesServerCert;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::door::{Gate, server};
use crate::uploads::{UploadLimits, Uploads};

mod access;
mod answers;
mod form;
mod handlers;
#[cfg(test)]
mod tests;
mod upload;

use access::Clients;

/// What REST needs from the rest of the agent.
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Who may come in by token.
    pub gate: Arc<Gate>,
    /// Site: the authority of clients, `compat`, shares of DATA.
    pub site: watch::Receiver<Option<Arc<Site>>>,
    /// The box's certificate.
    pub certificate: Arc<dyn ResolvesServerCert>,
    /// The store.
    pub uploads: Uploads,
    /// Shares of DATA where Site says nothing.
    pub limits: UploadLimits,
}

impl Options {
    /// As on a real box.
    pub fn of_box(
        gate: Arc<Gate>,
        site: watch::Receiver<Option<Arc<Site>>>,
        certificate: Arc<dyn ResolvesServerCert>,
        uploads: Uploads,
    ) -> Self {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let listen = any.map(|ip| SocketAddr::new(ip, ports::BPA)).to_vec();
        Self { listen, gate, site, certificate, uploads, limits: UploadLimits::default() }
    }
}

/// Starts the listeners, and tells the addresses that are bound by now. Needs a tokio runtime.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    options: Options,
    stop: &CancellationToken,
) -> Result<Vec<SocketAddr>, rustls::Error> {
    let clients = Arc::new(Clients::default());
    let tls = server::tls_with(options.certificate, clients.clone())?;
    let uploads = (options.uploads.clone(), options.limits);
    tasks.spawn(follow_site(options.site.clone(), uploads, Arc::clone(&clients), stop.clone()));
    let known = options.gate.known();
    let app = handlers::App { uploads: options.uploads, gate: options.gate, clients, site: options.site };
    Ok(server::start(tasks, &options.listen, handlers::router(app), tls, known, stop))
}

/// Takes over what Site says about uploads, now and when it changes.
async fn follow_site(
    mut site: watch::Receiver<Option<Arc<Site>>>,
    (uploads, limits): (Uploads, UploadLimits),
    clients: Arc<Clients>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let follow = async {
        loop {
            if let Some(known) = site.borrow_and_update().clone() {
                if let Err(error) = clients.trust(known.access.client_ca.as_deref()) {
                    log::error!("`access.clientCa` of Site is not used: {error}");
                }
                uploads.set_limits(limits_of(limits.clone(), &known.uploads));
            }
            if site.changed().await.is_err() {
                return;
            }
        }
    };
    stop.run_until_cancelled(follow).await;
    Ok(())
}

fn limits_of(mut limits: UploadLimits, rules: &site::Uploads) -> UploadLimits {
    let said = [
        (Kind::BinaryImages, rules.binary_percent),
        (Kind::ContainerImages, rules.container_percent),
        (Kind::OsImages, rules.os_percent),
    ];
    limits.percent.extend(said.into_iter().filter_map(|(kind, share)| Some((kind, share?))));
    limits
}
