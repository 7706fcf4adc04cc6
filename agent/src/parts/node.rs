//! Services of the box on a node that someone else set up: the same services, laid out and followed as on the box.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_api::boot::{BootFacts, DataFound, MEDIUM, Mode, RELEASE};
use agent_api::release::Release;
use agent_api::site::Site;
use anyhow::Context as _;
use fs_err::os::unix::fs::symlink;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::command::OnNode;
use crate::cluster::{Node, manifests, nth_address};
use crate::content::fetches::Fetches;
use crate::daemon::{self, ToServe};
use crate::door::{self, CERTIFICATES, Gate};
use crate::events::Bus;
use crate::host::{System, files};
use crate::machine::Machine;
use crate::operators::kit::serve;
use crate::registry::Front;
use crate::rest;
use crate::services::dhcp::Dhcp;
use crate::services::ironic::Ironic;
use crate::services::metal3::Metal3;
use crate::services::registry::Registry;
use crate::services::{Ground, Service, Services, Turn, hold_back};
use crate::steps::{Ledger, Pace, Steps};
use crate::uploads::{self, UploadLimits, Uploads};

/// Where the ledger of this node's steps is.
const LEDGER: &str = "/var/lib/foothold/parts-ledger.jsonl";

/// What runs, and where.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Which services.
    pub services: Vec<OnNode>,
    /// What the release holds, as `foothold export` wrote it: `release.json`, `foothold/store`, `services`.
    pub medium: PathBuf,
    /// Network for servers, and who may come in.
    pub site: PathBuf,
    /// Registry that images of services are pulled from.
    pub registry: String,
    /// Namespace of the controller of `BareMetalHost`s.
    pub namespace: String,
    /// Name of the node.
    pub node: String,
    /// Its address.
    pub address: IpAddr,
    /// Where health is served.
    pub serve: SocketAddr,
}

impl NodeSettings {
    fn has(&self, service: OnNode) -> bool {
        self.services.contains(&service)
    }

    /// The node in the form of a box, for the services.
    fn machine(&self, site: &Site) -> anyhow::Result<Machine> {
        let path = self.medium.join("release.json");
        let text = fs_err::read(&path)
            .context("hint: copy the folder `medium` of the export to the node, as `/var/lib/foothold/medium`")?;
        let release: Release =
            serde_json::from_slice(&text).with_context(|| format!("reading `{}`", path.display()))?;
        files::write(Path::new(RELEASE), &text, files::PUBLIC)?;
        point(Path::new(MEDIUM), &self.medium)?;
        let facts = BootFacts {
            release: String::new(),
            mode: Mode::Run,
            medium: self.medium.display().to_string(),
            data: DataFound::Partition { device: String::new(), created: false },
            machine_id: String::new(),
            first_boot: false,
            clock_was_wrong: false,
        };
        let machine = Machine::new(Path::new("/"), Arc::new(System::new()), release, facts, String::new());
        Ok(machine.at_site(site).pulling_from(&self.registry))
    }

    /// The services that were asked for. An error names one that the release does not have.
    fn services(&self, machine: &Machine, front: &Arc<Front>) -> anyhow::Result<(Services, Option<Arc<Ironic>>)> {
        let ironic = Ironic::of(machine);
        let mut all: Vec<Arc<dyn Service>> = Vec::new();
        for service in &self.services {
            let (found, lacks) = match service {
                OnNode::Registry => {
                    (Registry::of(front).map(|it| Arc::new(it) as Arc<dyn Service>), "no image of a registry")
                }
                OnNode::Ironic => {
                    (ironic.clone().map(|it| it as Arc<dyn Service>), "no Ironic, or no controller for it")
                }
                OnNode::Dhcp => {
                    let dhcp = ironic.as_ref().and_then(|ironic| Dhcp::of(machine, ironic));
                    (dhcp.map(|it| Arc::new(it) as Arc<dyn Service>), "no DHCP, or Site leases no addresses (`range`)")
                }
            };
            all.push(found.with_context(|| format!("`{service:?}` cannot run: the release has {lacks}"))?);
        }
        Ok((Services::these(all), ironic.filter(|_| self.has(OnNode::Ironic))))
    }
}

/// Makes `link` a link to `to`. It is made again at each start, because `/run` is empty after power-on.
fn point(link: &Path, to: &Path) -> anyhow::Result<()> {
    if fs_err::read_link(link).is_ok_and(|there| there == to) {
        return Ok(());
    }
    files::remove(link)?;
    Ok(symlink(to, link)?)
}

/// Runs until told to stop, and then removes its static pods.
pub async fn run(settings: &NodeSettings) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let text = fs_err::read_to_string(&settings.site)?;
    let site = Site::parse(&text).with_context(|| format!("reading `{}`", settings.site.display()))?;
    let machine = settings.machine(&site)?;
    let release = machine.release();
    let mut tasks = JoinSet::new();
    let bus = Bus::in_memory();
    let gate = Arc::new(Gate::new(Path::new(daemon::ACCESS)));
    gate.set_site(&site.access);
    let certificate = door::certificate::start(&mut tasks, Path::new(CERTIFICATES), release.built, &stop)?;
    let uploads =
        settings.has(OnNode::Registry).then(|| Uploads::open(Path::new(uploads::PLACE), UploadLimits::default()));
    let uploads = uploads.transpose()?;
    // Site stays as it is: with another one the chart makes another pod.
    let (_sender, of_uploads) = watch::channel(Some(Arc::new(site.clone())));
    if let Some(uploads) = &uploads {
        let resolver = Arc::clone(&certificate.resolver);
        let options = rest::uploads::Options::of_box(Arc::clone(&gate), of_uploads, resolver, uploads.clone());
        rest::uploads::start(&mut tasks, options, &stop)?;
    }
    let content = ToServe { uploads, fetches: Fetches::default(), ironic: settings.has(OnNode::Ironic) };
    let front = daemon::serve(&mut tasks, &machine, content, &certificate, gate, &bus, &stop)?;
    let (services, ironic) = settings.services(&machine, &front)?;
    let steps = Steps {
        bus: bus.clone(),
        ledger: Arc::new(Ledger::open(Path::new(LEDGER))?),
        stop_before: None,
        pace: Pace::default(),
    };
    let range = &release.kubernetes.service_cidr;
    let node = Node {
        name: settings.node.clone(),
        advertise: settings.address,
        service_address: nth_address(range, 1).with_context(|| format!("the range of Services is `{range}`"))?,
        site_addresses: Vec::new(),
    };
    let services = Arc::new(services);
    let (asked, machine_of_asked) = (Arc::clone(&services), machine.clone());
    let ready = move || {
        let (services, machine) = (Arc::clone(&asked), machine_of_asked.clone());
        async move { is_ready(&services, &machine).await }
    };
    serve::start(&mut tasks, settings.serve, serve::router(String::new, ready), &stop).await?;
    tasks.spawn(log_events(bus));
    tasks.spawn(daemon::wait_for_signal(stop.clone()));
    let namespace = settings.namespace.clone();
    let mut work = Box::pin(bring_up(machine, steps, node, services, ironic, namespace));
    let ended = loop {
        tokio::select! {
            () = &mut work => break Ok(()),
            () = stop.cancelled() => break Ok(()),
            Some(ended) = tasks.join_next() => {
                let ended = ended.map_err(anyhow::Error::from).and_then(|ended| ended);
                if ended.is_err() {
                    break ended;
                }
            }
        }
    };
    // Otherwise the kubelet would run them for ever.
    hold_back(Path::new(manifests::DIR))?;
    ended
}

/// Brings all of them up and keeps them right. Ends only when it is dropped.
async fn bring_up(
    machine: Machine,
    steps: Steps,
    node: Node,
    services: Arc<Services>,
    ironic: Option<Arc<Ironic>>,
    namespace: String,
) {
    let on = Ground { machine: &machine, steps: &steps, node: &node };
    services.prepare(&machine).await;
    let all = async {
        services.start_with_kubelet(on).await;
        let api = loop {
            match machine.api() {
                Ok(api) => break api,
                Err(error) => log::error!("{error:#}"),
            }
            tokio::time::sleep(steps.pace.longest_pause).await;
        };
        for turn in [Turn::Beside, Turn::Last, Turn::Behind] {
            services.start(turn, on, &api).await;
        }
        services.tend(on).await;
    };
    tokio::join!(all, tell_controller(&machine, ironic.as_deref(), &namespace));
}

/// Tells the controller of `BareMetalHost`s how Ironic is asked, now and whenever that changes. Ends only when it is dropped.
async fn tell_controller(machine: &Machine, ironic: Option<&Ironic>, namespace: &str) {
    let Some(ironic) = ironic else { return std::future::pending().await };
    let tell = || async {
        let access = ironic.access().await.map_err(|missing| anyhow::anyhow!("{}: {}", missing.what, missing.why))?;
        Metal3::tell(&machine.api()?, namespace, &access).await
    };
    ironic.keep_told("the controller of BareMetalHosts", tell).await;
}

async fn is_ready(services: &Services, machine: &Machine) -> Result<(), &'static str> {
    let api = machine.api().map_err(|_| "the API server's credentials cannot be read")?;
    let asked = services.ask(&[Turn::Beside, Turn::Last, Turn::Behind], machine, &api).await;
    asked.map_err(|(step, missing)| {
        log::info!("{} is not ready: {}: {}", step.name, missing.what, missing.why);
        "a service does not answer yet: the log names it"
    })
}

/// Writes what happens to the pod's log.
async fn log_events(bus: Bus) -> anyhow::Result<()> {
    let mut events = bus.subscribe();
    loop {
        match events.recv().await {
            Ok(event) => log::info!("{}", serde_json::to_string(&event)?),
            Err(tokio::sync::broadcast::error::RecvError::Lagged(lost)) => log::warn!("{lost} events are not told"),
            Err(tokio::sync::broadcast::error::RecvError::Closed) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::point;

    #[test]
    fn a_link_is_made_once_and_moved_when_it_leads_elsewhere() {
        let dir = tempfile::tempdir().expect("a folder");
        let link = dir.path().join("medium");
        for to in ["one", "one", "two"] {
            point(&link, &dir.path().join(to)).expect("linked");
            assert_eq!(fs_err::read_link(&link).expect("a link"), dir.path().join(to));
        }
    }
}
