//! Which hosts are to have a turn, and the turns.
//!
//! ```text
//! BareMetalHost  (spec, annotations, finalizers) ─┐
//! Secret         (with the label)                 │
//! BIOS settings, firmware, their policy           ├─► queue, each host once ─► workers ─► Operator::reconcile
//! a free slot    (its turn in the queue)          │        ▲                                   │
//! another kind   (drive or ramdisk is ready)      ┘        │                                   │
//!                                                          └────────── asked again later ◄─────┘
//! ```

use std::sync::Arc;

use agent_api::metal3::BareMetalHost;
use agent_api::metal3::annotations::SECRET_LABEL;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::controller::{self, Config as Workers};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Predicate as _, PredicateConfig, WatchStreamExt as _, predicates, watcher};
use kube::{Api, ResourceExt as _};
use tokio::sync::{OnceCell, mpsc};

use super::controller::Operator;
use crate::operators::kit::turns::{ended, related};
use crate::operators::kit::{Base, Changes, Key, Object as _, ObjectError, Queue};

/// Where hosts to be looked at come from.
pub struct Queues {
    /// Hosts as they are watched.
    pub hosts: Writer<BareMetalHost>,
    /// Secrets with the label that the controller may read.
    pub secrets: Writer<Secret>,
    /// Hosts that a free slot, or another kind's controller, wakes.
    pub woken: mpsc::UnboundedReceiver<Key>,
    /// Hosts whose firmware is asked about.
    pub firmware: Vec<Queue<BareMetalHost>>,
    /// Where changes of hosts are announced.
    pub changes: Changes,
}

impl Queues {
    fn all(self, base: &Base, operator: &Arc<Operator>, hosts: &Store<BareMetalHost>) -> Vec<Queue<BareMetalHost>> {
        let mut all = vec![
            of_hosts(base.watched(), self.hosts, operator.clone(), self.changes),
            of_secrets(base.watched(), self.secrets, hosts.clone()),
            of_woken(self.woken),
        ];
        all.extend(self.firmware);
        all
    }
}

impl Operator {
    /// Turns with hosts, for as long as they are watched.
    pub async fn run(self: Arc<Self>, base: &Base, hosts: Store<BareMetalHost>, queues: Queues, workers: u16) {
        let queue = stream::select_all(queues.all(base, &self, &hosts));
        let kept = Arc::new(OnceCell::new());
        let all = hosts.clone();
        let reconcile = move |host: Arc<BareMetalHost>, operator: Arc<Self>| {
            let (kept, all) = (kept.clone(), all.clone());
            Box::pin(async move {
                kept.get_or_init(async || operator.keep_slots(&all.state())).await;
                operator.reconcile(host).await
            })
        };
        let failed = |_: Arc<BareMetalHost>, error: &ObjectError, operator: Arc<Self>| operator.failed(error);
        let workers = Workers::default().concurrency(workers);
        let turns = controller::applier(reconcile, failed, self, hosts, queue, workers);
        turns.for_each(|turn| async move { ended::<BareMetalHost>(turn.err()) }).await;
    }
}

/// Hosts that somebody else changed: what the controller writes itself changes none of these.
fn of_hosts(
    api: Api<BareMetalHost>,
    writer: Writer<BareMetalHost>,
    operator: Arc<Operator>,
    changes: Changes,
) -> Queue<BareMetalHost> {
    let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    let events = events.inspect_ok(move |event| match event {
        watcher::Event::Delete(host) => {
            operator.gone(&host.key());
            changes.tell(&host.key());
        }
        watcher::Event::Apply(host) | watcher::Event::InitApply(host) => changes.tell(&host.key()),
        watcher::Event::InitDone => changes.listed(),
        watcher::Event::Init => {}
    });
    let relevant = predicates::generation.combine(predicates::annotations).combine(predicates::finalizers);
    let theirs = events.applied_objects().predicate_filter(relevant, PredicateConfig::default());
    Box::pin(theirs.map_ok(|host| ObjectRef::from_obj(&host)))
}

/// Hosts whose credentials changed.
fn of_secrets(api: Api<Secret>, writer: Writer<Secret>, hosts: Store<BareMetalHost>) -> Queue<BareMetalHost> {
    let (name, value) = SECRET_LABEL;
    let config = watcher::Config::default().labels(&format!("{name}={value}"));
    related((api, config), writer, move |secret: &Secret| {
        let (name, namespace) = (secret.name_any(), &secret.metadata.namespace);
        let theirs = hosts.state_filter(|host: &BareMetalHost| {
            let credentials = host.spec.bmc.as_ref().map(|bmc| bmc.credentials_name.as_str());
            credentials == Some(&name) && host.metadata.namespace == *namespace
        });
        theirs.iter().map(|host| ObjectRef::from_obj(&**host)).collect()
    })
}

/// Hosts that are woken.
fn of_woken(woken: mpsc::UnboundedReceiver<Key>) -> Queue<BareMetalHost> {
    Box::pin(stream::unfold(woken, async |mut woken| {
        let (namespace, name) = woken.recv().await?;
        Some((Ok(ObjectRef::new(&name).within(&namespace)), woken))
    }))
}
