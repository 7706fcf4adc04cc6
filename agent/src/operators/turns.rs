//! Turns with the objects of one kind: what the controllers of the smaller kinds share.
//!
//! ```text
//! its own watch ──────────┐
//! hosts that changed      ├─► queue, each object once ─► Turn::turn, with the object as it is now ─► rest
//! (Heard: one watch)  ────┘        ▲                                                                  │
//!                                  └──────────────── asked again later ◄──────────────────────────────┘
//! ```

use std::collections::HashMap;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_api::metal3::BareMetalHost;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{self, Action as Next, Config as Workers};
use kube::runtime::events::Recorder;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Predicate as _, PredicateConfig, WatchStreamExt as _, predicates, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::baremetalhost::objects::{ObjectError, Objects, doing};
use super::baremetalhost::{Pace, node_name};
use crate::ironic::{self, IronicError, Node};
use crate::steps::chain;

/// Objects of a kind that are worked on at a time.
const WORKERS: u16 = 4;
/// After somebody else was faster.
const STALE: Duration = Duration::from_secs(1);
/// After any other error of the API server.
const BROKEN: Duration = Duration::from_secs(15);
/// First pause after a failure; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(2);
/// Failures after which pauses get no longer: 2 s doubled so often is 8.5 min.
const MOST: u32 = 8;

/// Namespace and name.
pub type Key = (String, String);
/// Objects to be looked at.
pub type Queue<K> = Pin<Box<dyn Stream<Item = Result<ObjectRef<K>, watcher::Error>> + Send>>;

/// An object of a namespace.
pub trait Object:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Namespace and name.
    fn key(&self) -> Key {
        (self.namespace().unwrap_or_default(), self.name_any())
    }

    /// Whether it is being deleted.
    fn leaves(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// Whether it has a finalizer.
    fn held_by(&self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|one| one == finalizer)
    }
}

impl<K> Object for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Objects of a kind that are looked at; of all namespaces when `None`.
pub fn watched<K: Object>(client: &Client, namespace: Option<&str>) -> Api<K> {
    namespace.map_or_else(|| Api::all(client.clone()), |namespace| Api::namespaced(client.clone(), namespace))
}

/// A turn has ended.
pub fn ended<K: Object>(error: Option<controller::Error<ObjectError, watcher::Error>>) {
    match error {
        // Told where they happen; an object that went meanwhile is no matter.
        None | Some(controller::Error::ReconcilerFailed(..) | controller::Error::ObjectNotFound(_)) => {}
        Some(error) => log::warn!("watching {}: {error}", K::kind(&())),
    }
}

/// What a controller does with an object.
pub trait Turn: Send + Sync + 'static {
    /// The object.
    type Kind: Object;

    /// One turn, with the object as the API server has it now.
    fn turn(&self, object: Self::Kind) -> impl Future<Output = Result<Next, ObjectError>> + Send;
}

/// Tells which hosts changed, so that they are watched once for all who want to know.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    listeners: Arc<Mutex<Vec<mpsc::UnboundedSender<Key>>>>,
    listed: Arc<watch::Sender<bool>>,
}

impl Heard {
    /// A host changed, or is gone.
    pub fn tell(&self, host: &Key) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for listener in listeners.iter() {
            // Who listens no more has ended.
            let _ = listener.send(host.clone());
        }
    }

    fn listen(&self) -> mpsc::UnboundedReceiver<Key> {
        let (tell, heard) = mpsc::unbounded_channel();
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(tell);
        heard
    }

    /// All hosts are known from now on.
    pub fn listed(&self) {
        self.listed.send_replace(true);
    }

    /// Waits until all hosts are known. The store's own way to wait wakes only one of those who do.
    async fn until_listed(&self) {
        // The sender is ours: it cannot be gone.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }
}

/// What the controllers have in common.
#[derive(Clone)]
pub struct Common {
    /// The cluster.
    pub client: Client,
    /// Namespace that is looked at; all when `None`.
    pub namespace: Option<String>,
    /// Objects of the cluster.
    pub objects: Objects,
    /// Tells events.
    pub recorder: Recorder,
    /// Ironic.
    pub ironic: Arc<ironic::Client>,
    /// The hosts as they are watched.
    pub hosts: Store<BareMetalHost>,
    /// Which hosts change.
    pub heard: Heard,
    /// Hosts that are to be looked at.
    pub wake: mpsc::UnboundedSender<Key>,
    /// How often Ironic is asked.
    pub pace: Pace,
}

impl Common {
    /// Objects of a kind, and those of them that somebody changed: not by writing their status.
    pub fn changed<K: Object>(&self) -> (Store<K>, Queue<K>) {
        let (store, writer) = reflector::store();
        let events = watcher(watched::<K>(&self.client, self.namespace.as_deref()), watcher::Config::default())
            .default_backoff()
            .reflect(writer);
        let relevant = predicates::generation.combine(predicates::annotations).combine(predicates::finalizers);
        let changed = events.applied_objects().predicate_filter(relevant, PredicateConfig::default());
        (store, Box::pin(changed.map_ok(|object| ObjectRef::from_obj(&object))))
    }

    /// Objects of a kind, and those of them that changed in whatever way.
    pub fn touched<K: Object>(&self) -> (Store<K>, Queue<K>) {
        let (store, writer) = reflector::store();
        let events = watcher(watched::<K>(&self.client, self.namespace.as_deref()), watcher::Config::default())
            .default_backoff()
            .reflect(writer);
        (store, Box::pin(events.touched_objects().map_ok(|object| ObjectRef::from_obj(&object))))
    }

    /// Objects that a change of a host matters to.
    pub fn of_hosts<K: Object>(&self, of: impl Fn(&Key) -> Vec<ObjectRef<K>> + Send + 'static) -> Queue<K> {
        let keys = stream::unfold(self.heard.listen(), async |mut heard| Some((heard.recv().await?, heard)));
        Box::pin(keys.flat_map(move |host| stream::iter(of(&host).into_iter().map(Ok))))
    }

    /// Has a host looked at.
    pub fn wake(&self, host: &Key) {
        // Nobody is left to wake when the controller ends.
        let _ = self.wake.send(host.clone());
    }

    /// A host's node, by its UUID, or by its name where that UUID is not known any more.
    pub async fn node(&self, host: &BareMetalHost) -> Result<Option<Node>, IronicError> {
        let id = host.status.as_ref().map(|status| status.provisioning.id.as_str()).filter(|id| !id.is_empty());
        if let Some(id) = id
            && let Some(node) = self.ironic.node(id).await?
        {
            return Ok(Some(node));
        }
        self.ironic.node(&node_name(host)).await
    }

    /// Merges something into an object's status, whatever else was changed in between.
    pub async fn merge_status<K: Object>(&self, object: &K, status: Value) -> Result<K, ObjectError> {
        let (namespace, name) = object.key();
        let change = Patch::Merge(json!({"status": status}));
        let api = self.objects.api::<K>(&namespace);
        let written = api.patch_status(&name, &PatchParams::default(), &change).await;
        written.map_err(doing(format!("writing the status of {} `{namespace}/{name}`", K::kind(&()))))
    }

    /// Adds or removes a finalizer. An object that is gone needs none.
    pub async fn set_finalizer<K: Object>(&self, object: &K, finalizer: &str, there: bool) -> Result<(), ObjectError> {
        let mut all = object.finalizers().to_vec();
        all.retain(|one| one != finalizer);
        if there {
            all.push(finalizer.to_owned());
        }
        match self.objects.merge(object, json!({"metadata": {"finalizers": all}})).await {
            Err(error) if error.is_gone() => Ok(()),
            written => written.map(drop),
        }
    }

    /// Takes turns with the objects of the queues, once the hosts are listed. Does not end.
    pub async fn run<T: Turn>(&self, controller: T, store: Store<T::Kind>, queues: Vec<Queue<T::Kind>>) {
        self.heard.until_listed().await;
        let objects = self.objects.clone();
        let reconcile = move |object: Arc<T::Kind>, controller: Arc<T>| {
            let objects = objects.clone();
            Box::pin(async move {
                let (namespace, name) = object.key();
                match objects.get::<T::Kind>(&namespace, &name).await? {
                    Some(object) => controller.turn(object).await,
                    None => Ok(Next::await_change()),
                }
            })
        };
        let failed = |_: Arc<T::Kind>, error: &ObjectError, _: Arc<T>| {
            if error.is_stale() || error.is_gone() {
                return Next::requeue(STALE);
            }
            log::warn!("{}", chain(error));
            Next::requeue(BROKEN)
        };
        let workers = Workers::default().concurrency(WORKERS);
        let queue = stream::select_all(queues);
        let turns = controller::applier(reconcile, failed, Arc::new(controller), store, queue, workers);
        turns.for_each(|turn| async move { ended::<T::Kind>(turn.err()) }).await;
    }
}

/// What failed how often in a row, and until when it rests; forgotten with the process, which then tries at once.
#[derive(Debug, Default)]
pub struct Failures(Mutex<HashMap<Key, Failure>>);

#[derive(Debug)]
struct Failure {
    count: u32,
    /// The object's, when it failed.
    generation: Option<i64>,
    until: Instant,
}

impl Failures {
    /// It failed: the pause until it is tried again.
    pub fn one_more(&self, object: &impl Object) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(&object.key()).map_or(0, |failure| failure.count);
        let rest = pause(before);
        let generation = object.meta().generation;
        all.insert(object.key(), Failure { count: before + 1, generation, until: Instant::now() + rest });
        rest
    }

    /// What is left of the pause, whatever else has the object looked at. None when it is not the object that failed:
    /// what its user changed is tried at once.
    pub fn left(&self, object: &impl Object) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = all.get(&object.key()).filter(|failure| failure.generation == object.meta().generation)?;
        Some(failure.until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// It did not fail.
    pub fn none(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

fn pause(failures: u32) -> Duration {
    FIRST * 2_u32.pow(failures.min(MOST))
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::DataImage;
    use serde_json::json;

    use super::{Failures, Heard, Object as _};

    fn image(generation: i64) -> DataImage {
        serde_json::from_value(json!({"metadata": {"namespace": "a", "name": "b", "generation": generation},
            "spec": {"url": "http://box/one.iso"}}))
        .expect("an image")
    }

    #[test]
    fn pauses_grow_up_to_minutes_and_begin_anew_after_a_success() {
        let failures = Failures::default();
        let pauses: Vec<u64> = (0..11).map(|_| failures.one_more(&image(1)).as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512]);
        failures.none(&image(1).key());
        assert_eq!(failures.one_more(&image(1)).as_secs(), 2);
    }

    #[test]
    fn what_failed_rests_until_its_user_changes_it() {
        let failures = Failures::default();
        assert_eq!(failures.left(&image(1)), None);
        let pause = failures.one_more(&image(1));
        assert!(failures.left(&image(1)).is_some_and(|left| left <= pause));
        assert_eq!(failures.left(&image(2)), None);
    }

    #[tokio::test]
    async fn all_who_wait_for_the_hosts_go_on() {
        let heard = Heard::default();
        let tell = async {
            tokio::task::yield_now().await;
            heard.listed();
        };
        tokio::join!(heard.until_listed(), heard.until_listed(), tell);
        heard.until_listed().await;
    }

    #[test]
    fn all_who_listen_hear_of_a_host_and_who_ended_is_no_matter() {
        let heard = Heard::default();
        let (mut one, other) = (heard.listen(), heard.listen());
        drop(other);
        heard.tell(&("a".to_owned(), "b".to_owned()));
        assert_eq!(one.try_recv().expect("heard"), ("a".to_owned(), "b".to_owned()));
    }
}
