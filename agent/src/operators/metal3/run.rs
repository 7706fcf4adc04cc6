//! Starts all of it: the watches that are shared, the controllers, the webhook, and what tells how they are.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent_api::metal3::BareMetalHost;
use anyhow::Context as _;
use axum::Router;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector;
use kube::runtime::reflector::Store;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::baremetalhost::{Executor, Limits, Operator, Pulses, Queues, Slots, watch_firmware};
use super::common::{Common, Pace, Ramdisk};
use super::{admission, dataimage, hostclaim, preprovisioning, subscription, switches};
use crate::operators::kit::{Base, Changes, Objects, command, serve};
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
    /// File on Ironic's machine with the authorities of BMCs' certificates; Ironic's own when `None`.
    pub bmc_authorities: Option<String>,
    /// URL below which BMCs fetch what Ironic serves for them as virtual media, when it is not Ironic's own.
    pub external_http_url: Option<String>,
    /// Ramdisk; Ironic's own when `None`.
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
    /// ClusterRole with which the API server forgets that, where it is asked for all namespaces.
    pub webhook_owner: Option<String>,
    /// How often the BMC of a host that something waits for is asked; never when `None`.
    pub pulse: Option<Duration>,
    /// The box's table of signs of life ([`signs::keep`]); without it only Ironic's signs are known.
    pub signs: Option<PathBuf>,
}

impl Settings {
    fn preprovisioning(&self) -> preprovisioning::Settings {
        preprovisioning::Settings { used: self.preprovisioning_images, ramdisk: self.ramdisk.clone() }
    }
}

/// Runs until told to stop.
pub async fn run(settings: &Settings, stop: &CancellationToken) -> anyhow::Result<()> {
    let client = command::client(settings.kubeconfig.as_deref()).await?;
    let (secrets, secret_writer) = reflector::store::<Secret>();
    let (hosts, host_writer) = reflector::store::<BareMetalHost>();
    let (wake, woken) = mpsc::unbounded_channel();
    let base = Base {
        client: client.clone(),
        namespace: settings.namespace.clone(),
        objects: Objects::new(client.clone(), secrets),
        recorder: Recorder::new(client.clone(), Reporter { controller: NAME.to_owned(), instance: None }),
    };
    let common = Common {
        base: base.clone(),
        ironic: Arc::new(ironic::Client::new(&settings.ironic)?),
        hosts: hosts.clone(),
        host_changes: Changes::default(),
        wake,
        pace: settings.pace,
    };
    let (firmware, of_firmware) = watch_firmware(&base);
    let executor = Executor {
        ironic: common.ironic.clone(),
        objects: base.objects.clone(),
        hosts: hosts.clone(),
        firmware,
        pace: settings.pace,
        bmc_authorities: settings.bmc_authorities.clone(),
        external_http_url: settings.external_http_url.clone(),
        preprovisioning: settings.preprovisioning(),
    };
    let slots = Slots::new(settings.provisioning_limit, common.wake.clone());
    let mut operator = Operator::new(executor, slots, base.recorder.clone(), settings.limits)?;
    operator.signs = signs::Reader::of(settings.signs.clone());
    operator.pulses = Arc::new(Pulses::new(settings.pulse));
    let operator = Arc::new(operator);

    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    let admission = if let Some(address) = settings.webhook {
        let (namespace, owner) = (settings.namespace.clone(), settings.webhook_owner.clone());
        let place = admission::Place { address, namespace, owner };
        Some(admission::start(&mut tasks, place, client, hosts.clone(), stop)?)
    } else {
        admission::start_without(&mut tasks, client, stop);
        None
    };
    if let Some(address) = settings.serve {
        serve::start(&mut tasks, address, router(operator.clone(), hosts.clone(), admission), stop).await?;
    }
    start(&mut tasks, &common, settings.preprovisioning());
    let (pulses, wake) = (Arc::clone(&operator.pulses), common.wake.clone());
    tasks.spawn(async move {
        pulses.run(&wake).await;
        Ok(())
    });
    let changes = common.host_changes.clone();
    let queues = Queues { hosts: host_writer, secrets: secret_writer, woken, firmware: of_firmware, changes };
    tokio::select! {
        () = operator.run(&base, hosts, queues, settings.workers) => {}
        () = stop.cancelled() => {}
        Some(ended) = tasks.join_next() => ended.context("a server of the controller")??,
    }
    Ok(())
}

/// Starts the controllers of the smaller kinds. They end with the set.
fn start(tasks: &mut JoinSet<anyhow::Result<()>>, common: &Common, images: preprovisioning::Settings) {
    let mut start = |controller: Pin<Box<dyn Future<Output = ()> + Send>>| {
        tasks.spawn(async move {
            controller.await;
            Ok(())
        });
    };
    start(Box::pin(subscription::run(common.clone())));
    start(Box::pin(dataimage::run(common.clone())));
    start(Box::pin(hostclaim::run(common.clone())));
    start(Box::pin(preprovisioning::run(common.clone(), images)));
    start(Box::pin(switches::run(common.clone())));
}

fn router(operator: Arc<Operator>, hosts: Store<BareMetalHost>, admission: Option<watch::Receiver<bool>>) -> Router {
    let listed = hosts.clone();
    let metrics = move || {
        let (held, waiting) = operator.slots.count();
        operator.metrics.text(&[
            ("foothold_provisioning_slots_held", held),
            ("foothold_provisioning_slots_waiting", waiting),
            ("foothold_baremetalhosts", hosts.len()),
        ])
    };
    let ready = move || {
        let (hosts, admission) = (listed.clone(), admission.clone());
        async move {
            let listed = tokio::time::timeout(Duration::from_millis(100), hosts.wait_until_ready()).await;
            if admission.is_some_and(|known| !*known.borrow()) {
                return Err("the API server does not ask yet what is admitted");
            }
            listed.map_err(drop).and_then(|ready| ready.map_err(drop)).map_err(|()| "the hosts are not listed yet")
        }
    };
    serve::router(metrics, ready)
}
