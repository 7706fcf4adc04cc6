//! `foothold-agent run`: everything the agent is after the root was switched, as tasks with one owner.
//!
//! ```text
//! first_boot --Site--> Gate (who may come in)
//!     |                  |
//!     +--events--> Bus --+--> console, REST
//! release, uploads -------+--> registry, content
//! ```

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use agent_api::boot::{LAYERS, MEDIUM, Mode};
use agent_api::events::{Event, Phase, State};
use agent_api::ports;
use anyhow::Context;
use serde_json::json;
use systemd_journal_logger::JournalLog;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::content::fetches::Fetches;
use crate::content::server::Content;
use crate::content::space::Keeper;
use crate::content::{Carried, Source, space};
use crate::door::{CERTIFICATES, Certificate, Gate};
use crate::events::{Bus, Paths, uptime};
use crate::first_boot::{self, Machine, Published};
use crate::host::{Runner, System};
use crate::provisioning::served::Served;
use crate::provisioning::wire::{self, Wire};
use crate::registry::Front;
use crate::services::Volumes;
use crate::steps::ledger::{self, Ledger};
use crate::support::{self, SiteOut};
use crate::uploads::{UploadLimits, Uploads, publish};
use crate::vitals::Vitals;
use crate::{console, door, eta, http, medium, pulls, rest, signs, uploads, usage};

/// Where a claimed token's hash is kept.
pub(crate) const ACCESS: &str = "/var/lib/foothold/access";

/// Runs until the service is stopped.
pub fn main() -> anyhow::Result<()> {
    start_logging();
    // One crypto provider for the whole process, so that no library chooses another.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(run());
    runtime.shutdown_background();
    result
}

fn start_logging() {
    let installed = JournalLog::new().map(JournalLog::install);
    if matches!(installed, Ok(Ok(()))) {
        log::set_max_level(log::LevelFilter::Info);
    }
}

async fn run() -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let runner: Arc<dyn Runner> = Arc::new(System::new());
    let bus = Bus::open(&Paths::of_box()).context("opening the events of this boot")?;
    let vitals = Vitals::of_box();
    let gate = Arc::new(Gate::new(Path::new(ACCESS)));
    let published = Published::default();
    let site = published.site.subscribe();
    let site_out = Arc::new(SiteOut::new(Path::new("/")));
    let fetches = Fetches::default();
    let certificate = door::certificate::start(&mut tasks, Path::new(CERTIFICATES), vitals.identity().built, &stop)
        .context("making the web certificate")?;
    tasks.spawn(door::follow_site(Arc::clone(&gate), site.clone(), stop.clone()));
    let mut web = rest::web::Options::of_box(
        bus.clone(),
        Arc::clone(&gate),
        certificate.clone(),
        vitals.clone(),
        Arc::clone(&runner),
        Arc::clone(&site_out),
    );
    web.fetches = fetches.clone();
    rest::web::start(&mut tasks, web, &stop).context("starting the web server")?;
    site_out.set_fingerprint(&certificate.fingerprint);
    let sources =
        support::site::ReportSources { bus: bus.clone(), vitals: vitals.clone(), runner: Arc::clone(&runner) };
    support::site::start(&mut tasks, site_out, sources, &stop);
    let uploads = open_uploads(&bus);
    if let Some(uploads) = &uploads {
        let resolver = Arc::clone(&certificate.resolver);
        let options = rest::uploads::Options::of_box(Arc::clone(&gate), site, resolver, uploads.clone());
        rest::uploads::start(&mut tasks, options, &stop).context("starting the server for uploads")?;
    }
    let screens =
        console::Options::of_box(bus.clone(), Arc::clone(&gate), vitals.clone(), certificate.fingerprint.clone());
    console::start(&mut tasks, screens, &stop);
    // After the consoles are started: they must see what the guard has found by now.
    eta::start(&mut tasks, vitals.proof(), &bus, &stop);
    medium::start(&mut tasks, vitals.clone(), bus.clone(), &stop);

    let machine = Machine::open(runner)?;
    usage::start(&mut tasks, machine.usage().clone(), &bus, &stop);
    let ledger = Arc::new(Ledger::open(Path::new(ledger::PATH))?);
    // Before containerd is started: it asks here for whatever is not unpacked on the box.
    let content = ToServe { uploads: uploads.clone(), fetches, ironic: true };
    let registry = serve(&mut tasks, &machine, content, &certificate, gate, &bus, &stop)?;
    let mut keepers: Vec<Arc<dyn Keeper>> = Vec::new();
    keepers.extend(registry.storage().map(|storage| storage as Arc<dyn Keeper>));
    keepers.extend(Volumes::of(&machine).map(|volumes| Arc::new(volumes) as Arc<dyn Keeper>));
    keepers.extend(uploads.map(|uploads| Arc::new(uploads) as Arc<dyn Keeper>));
    space::start(&mut tasks, vitals, keepers, &stop);
    let bring_up = first_boot_of(machine, bus, ledger, published, registry);
    let stopping = stop.clone();
    tasks.spawn(async move {
        Box::pin(stopping.run_until_cancelled_owned(bring_up)).await;
        Ok(())
    });
    tasks.spawn(wait_for_signal(stop.clone()));
    while let Some(ended) = tasks.join_next().await {
        // A task that fails ends the process: systemd starts it again, and it goes on where it was.
        if let Err(error) = ended.map_err(anyhow::Error::from).and_then(|result| result) {
            stop.cancel();
            return Err(error);
        }
        if stop.is_cancelled() {
            tasks.shutdown().await;
        }
    }
    Ok(())
}

/// What is served besides the release, and the record of who fetches what.
pub(crate) struct ToServe {
    pub uploads: Option<Uploads>,
    pub fetches: Fetches,
    /// Whether Ironic is behind the agent here, where the release provisions servers.
    pub ironic: bool,
}

/// Registry and content, for box and site.
pub(crate) fn serve(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    machine: &Machine,
    ToServe { uploads, fetches, ironic }: ToServe,
    certificate: &Certificate,
    gate: Arc<Gate>,
    bus: &Bus,
    stop: &CancellationToken,
) -> anyhow::Result<Arc<Front>> {
    let release = machine.release();
    let recorder = pulls::start(tasks, bus, stop);
    let known = gate.known();
    let front = Arc::new(Front::new(release, Path::new("/"), gate, recorder));
    if machine.facts().mode == Mode::Run {
        let mut sources: Vec<Arc<dyn Source>> =
            vec![Arc::new(Carried::new(release, Path::new(MEDIUM), Path::new(LAYERS)))];
        if let Some(uploads) = uploads {
            sources.push(Arc::new(uploads.clone()));
            let url = format!("http://127.0.0.1:{}/", ports::REGISTRY).parse()?;
            let registry = publish::Registry::new(url, Some(front.own_token().to_owned()))?;
            publish::start(tasks, uploads, publish::Reader::of_box(), Some(registry), bus.clone(), stop);
        }
        if let Some(storage) = front.storage().filter(|storage| storage.limit().is_some()) {
            let stop = stop.clone();
            tasks.spawn(async move {
                stop.run_until_cancelled(storage.keep_tidy()).await;
                Ok(())
            });
        }
        if ironic && release.provisioning.is_some() {
            sources.push(Arc::new(Served::of(Path::new("/"))));
            signs::keep::start(tasks, "/".into(), fetches.clone(), stop);
            let gate = wire::Gate::new(Wire::of(Path::new("/")), ports::IRONIC_LOOPBACK)?;
            let tls = door::tls(Arc::clone(&certificate.resolver))?;
            wire::start(tasks, &anywhere(ports::IRONIC), gate, tls, stop);
        }
        let content = Arc::new(Content::new(sources, Path::new(MEDIUM), release.built).noting(fetches).knowing(known));
        let tls = door::tls(Arc::clone(&certificate.resolver))?;
        http::start(tasks, &anywhere(ports::REGISTRY), Arc::clone(&front), tls.clone(), stop);
        http::start(tasks, &anywhere(ports::CONTENT), content, tls, stop);
    }
    Ok(front)
}

fn anywhere(port: u16) -> [SocketAddr; 2] {
    [(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()]
}

/// The store of uploads. When DATA cannot be written there is none, and the box goes on without it.
fn open_uploads(bus: &Bus) -> Option<Uploads> {
    const STEP: &str = "uploads";
    bus.started(Phase::Content, STEP);
    match Uploads::open(Path::new(uploads::PLACE), UploadLimits::default()) {
        Ok(uploads) => {
            bus.done_with(Phase::Content, STEP, json!({"images": uploads.all().len(), "port": ports::BPA}));
            Some(uploads)
        }
        Err(error) => {
            let event = Event::of_box(uptime(), Phase::Content, STEP, State::Failed).with("cause", error.to_string());
            let next = "check DATA: `dmesg` names the disk; then `systemctl restart foothold-agent`";
            bus.emit(event.with("next", next).with("log", "journalctl -u foothold-agent").with("workload", true));
            None
        }
    }
}

/// In safe mode only Site is read, so that people can log in to repair the box.
async fn first_boot_of(machine: Machine, bus: Bus, ledger: Arc<Ledger>, published: Published, registry: Arc<Front>) {
    match machine.facts().mode {
        Mode::Run => first_boot::run(machine, bus, ledger, published, registry).await,
        Mode::Safe | Mode::Check => first_boot::run_safe(machine, bus, ledger, published).await,
    }
}

/// Returns when a signal ends the process, or when it is told to stop; everything is told then.
pub(crate) async fn wait_for_signal(stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = stop.cancelled() => {}
    }
    stop.cancel();
    Ok(())
}
