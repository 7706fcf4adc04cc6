//! Runs the controller: watches, workers, and what tells how it is.
//!
//! ```text
//! BareMetalHost  (spec, annotations, finalizers) ─┐
//! Secret         (with the label)                 │
//! BIOS settings, firmware, their policy           ├─► queue, each host once ─► workers ─► Operator::reconcile
//! a free slot    (its turn in the queue)          │        ▲                                   │
//! a companion    (drive or ramdisk is ready)      ┘        │                                   │
//!                                                          └────────── asked again later ◄─────┘
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use agent_api::metal3::BareMetalHost;
use agent_api::metal3::annotations::SECRET_LABEL;
use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::controller::{self, Config as Workers};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Predicate as _, PredicateConfig, WatchStreamExt as _, predicates, reflector, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::net::TcpListener;
use tokio::sync::{OnceCell, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::companions;
use super::controller::{Operator, key};
use super::decide::Limits;
use super::executor::{Executor, Pace};
use super::firmware;
use super::objects::{ObjectError, Objects};
use super::slots::Slots;
use super::wishes::Ramdisk;
use crate::cluster::follow;
use crate::operators::admission;
use crate::operators::preprovisioning;
use crate::operators::turns::{Heard, ended, watched};
use crate::{ironic, signs};

/// Name of the controller in events.
const NAME: &str = "metal3-baremetal-controller";

/// Settings of the controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Kubeconfig; that of the pod, or of the environment, when `None`.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the hosts; all when `None`.
    pub namespace: Option<String>,
    /// Ironic.
    pub ironic: ironic::Settings,
    /// File on Ironic's machine with the authorities of BMCs' certificates; Ironic's own when nothing is told.
    pub bmc_authorities: Option<String>,
    /// Ramdisk; Ironic's own when nothing is told.
    pub ramdisk: Ramdisk,
    /// Whether ramdisks are made for each host, as `PreprovisioningImage`s.
    pub preprovisioning_images: bool,
    /// Hosts that are inspected, provisioned and deprovisioned at a time.
    pub provisioning_limit: usize,
    /// Hosts that are decided on at a time.
    pub workers: u16,
    /// Limits of a host.
    pub limits: Limits,
    /// How often Ironic is asked.
    pub pace: Pace,
    /// Where metrics and health are served; nowhere when `None`.
    pub serve: Option<SocketAddr>,
    /// Where the API server asks what is admitted; it is not told to ask when `None`.
    pub webhook: Option<SocketAddr>,
    /// The box's table of signs of life ([`signs::keep`]); without it only Ironic's are told.
    pub signs: Option<PathBuf>,
}

type Queued = Result<ObjectRef<BareMetalHost>, watcher::Error>;
/// Hosts that are to have a turn.
pub(super) type Queue = Pin<Box<dyn Stream<Item = Queued> + Send>>;

impl Settings {
    fn preprovisioning(&self) -> preprovisioning::Settings {
        preprovisioning::Settings { used: self.preprovisioning_images, ramdisk: self.ramdisk.clone() }
    }
}

/// Runs until told to stop.
pub async fn run(settings: &Settings, stop: &CancellationToken) -> anyhow::Result<()> {
    let client = client(settings.kubeconfig.as_ref()).await?;
    let (secrets, secret_writer) = reflector::store::<Secret>();
    let (hosts, host_writer) = reflector::store::<BareMetalHost>();
    let (wake, woken) = mpsc::unbounded_channel();
    let (firmware, of_firmware) = firmware::watch(&client, settings.namespace.as_deref());
    let preprovisioning = settings.preprovisioning();
    let objects = Objects::new(client.clone(), secrets);
    let recorder = Recorder::new(client.clone(), Reporter { controller: NAME.to_owned(), instance: None });
    let common = companions::common(settings, &client, &objects, &recorder, hosts.clone(), wake.clone())?;
    let executor = Executor {
        ironic: common.ironic.clone(),
        objects,
        hosts: hosts.clone(),
        firmware,
        pace: settings.pace,
        bmc_authorities: settings.bmc_authorities.clone(),
        preprovisioning: preprovisioning.clone(),
    };
    let slots = Slots::new(settings.provisioning_limit, wake);
    let mut operator = Operator::new(executor, slots, recorder, settings.limits);
    operator.signs = signs::Reader::of(settings.signs.clone());
    let operator = Arc::new(operator);

    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    let admission = settings.webhook.map(|address| {
        let settings = admission::Settings { address, namespace: settings.namespace.clone() };
        admission::start(&mut tasks, &settings, client.clone(), hosts.clone(), stop)
    });
    let admission = admission.transpose()?;
    if let Some(address) = settings.serve {
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening at {address}"))?;
        let router = router(operator.clone(), hosts.clone(), admission);
        let stop = stop.clone();
        tasks.spawn(
            async move { Ok(axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await?) },
        );
    }

    companions::start(&mut tasks, &common, preprovisioning);

    let queue = stream::select_all(
        [
            of_hosts(
                watched(&client, settings.namespace.as_deref()),
                host_writer,
                operator.clone(),
                common.heard.clone(),
            ),
            of_secrets(watched(&client, settings.namespace.as_deref()), secret_writer, hosts.clone()),
            of_slots(woken),
        ]
        .into_iter()
        .chain(of_firmware),
    );
    let turns = turns(operator, hosts, queue, settings.workers);
    tokio::select! {
        () = turns => {}
        () = stop.cancelled() => {}
        Some(ended) = tasks.join_next() => ended.context("a server of the controller")??,
    }
    Ok(())
}

/// Turns with hosts, for as long as they are watched.
async fn turns(
    operator: Arc<Operator>,
    hosts: Store<BareMetalHost>,
    queue: impl Stream<Item = Queued> + Send + 'static,
    workers: u16,
) {
    let kept = Arc::new(OnceCell::new());
    let all = hosts.clone();
    let reconcile = move |host: Arc<BareMetalHost>, operator: Arc<Operator>| {
        let (kept, all) = (kept.clone(), all.clone());
        Box::pin(async move {
            kept.get_or_init(async || operator.keep_slots(&all.state())).await;
            operator.reconcile(host).await
        })
    };
    let failed = |_: Arc<BareMetalHost>, error: &ObjectError, operator: Arc<Operator>| operator.failed(error);
    let workers = Workers::default().concurrency(workers);
    let turns = controller::applier(reconcile, failed, operator, hosts, queue, workers);
    turns.for_each(|turn| async move { ended::<BareMetalHost>(turn.err()) }).await;
}

async fn client(kubeconfig: Option<&PathBuf>) -> anyhow::Result<Client> {
    if let Some(path) = kubeconfig {
        return follow::client(path).await;
    }
    let config = kube::Config::infer().await.context("no kubeconfig, and not in a pod; hint: `--kubeconfig`")?;
    Ok(Client::try_from(config)?)
}

/// Hosts that somebody else changed: what the controller writes itself changes none of these.
fn of_hosts(
    api: Api<BareMetalHost>,
    writer: reflector::store::Writer<BareMetalHost>,
    operator: Arc<Operator>,
    heard: Heard,
) -> Queue {
    let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    let events = events.inspect_ok(move |event| match event {
        watcher::Event::Delete(host) => {
            operator.gone(&key(host));
            heard.tell(&key(host));
        }
        watcher::Event::Apply(host) | watcher::Event::InitApply(host) => heard.tell(&key(host)),
        watcher::Event::InitDone => heard.listed(),
        watcher::Event::Init => {}
    });
    let relevant = predicates::generation.combine(predicates::annotations).combine(predicates::finalizers);
    let changed = events.applied_objects().predicate_filter(relevant, PredicateConfig::default());
    Box::pin(changed.map_ok(|host| ObjectRef::from_obj(&host)))
}

/// Hosts whose credentials changed.
fn of_secrets(api: Api<Secret>, writer: reflector::store::Writer<Secret>, hosts: Store<BareMetalHost>) -> Queue {
    let (name, value) = SECRET_LABEL;
    let config = watcher::Config::default().labels(&format!("{name}={value}"));
    let touched = watcher(api, config).default_backoff().reflect(writer).touched_objects();
    let of = move |secret: Secret| {
        let (name, namespace) = (secret.name_any(), secret.metadata.namespace);
        let theirs = hosts.state_filter(|host: &BareMetalHost| {
            let credentials = host.spec.bmc.as_ref().map(|bmc| bmc.credentials_name.as_str());
            credentials == Some(&name) && host.metadata.namespace == namespace
        });
        stream::iter(theirs.into_iter().map(|host| Ok(ObjectRef::from_obj(&*host))).collect::<Vec<_>>())
    };
    Box::pin(touched.map_ok(of).try_flatten())
}

/// Hosts whose turn it is.
fn of_slots(woken: mpsc::UnboundedReceiver<super::slots::Key>) -> Queue {
    Box::pin(stream::unfold(woken, async |mut woken| {
        let (namespace, name) = woken.recv().await?;
        Some((Ok(ObjectRef::new(&name).within(&namespace)), woken))
    }))
}

fn router(operator: Arc<Operator>, hosts: Store<BareMetalHost>, admission: Option<watch::Receiver<bool>>) -> Router {
    let metrics = {
        let hosts = hosts.clone();
        move || async move {
            let (held, waiting) = operator.slots.count();
            let gauges = [
                ("foothold_provisioning_slots_held", held),
                ("foothold_provisioning_slots_waiting", waiting),
                ("foothold_baremetalhosts", hosts.len()),
            ];
            operator.metrics.text(&gauges)
        }
    };
    let ready = move || async move {
        let listed = tokio::time::timeout(std::time::Duration::from_millis(100), hosts.wait_until_ready()).await;
        match listed {
            _ if admission.is_some_and(|known| !*known.borrow()) => {
                (StatusCode::SERVICE_UNAVAILABLE, "the API server does not ask yet what is admitted")
            }
            Ok(Ok(())) => (StatusCode::OK, "ok"),
            Ok(Err(_)) | Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the hosts are not listed yet"),
        }
    };
    Router::new().route("/metrics", get(metrics)).route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready))
}
