//! Turns with the objects of one kind.
//!
//! ```text
//! its own watch ────────────────┐
//! other kinds, by their watches ├─► queue, each object once ─► Turn::turn, with the object as it is now ─► rest
//! (`Changes`: one for several)  ┘        ▲                                                                  │
//!                                        └──────────────── asked again later ◄──────────────────────────────┘
//! ```

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{self, Config as Workers};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Predicate as _, PredicateConfig, WatchStreamExt as _, predicates, reflector, watcher};
use kube::{Api, Client, Resource as _};
use serde::Serialize;

use super::command;
use super::events::{Event, Reason};
use super::objects::{Object, ObjectError, Objects};
use crate::steps::chain;

/// Objects of a kind that are worked on at a time.
const WORKERS: u16 = 4;
/// Pause after another writer changed the object first.
const STALE: Duration = Duration::from_secs(1);
/// Pause after any other error of the API server.
const BROKEN: Duration = Duration::from_secs(15);

/// The API server refuses what a controller writes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Refused;

impl Reason for Refused {
    fn word(self) -> &'static str {
        "Refused"
    }

    fn is_warning(self) -> bool {
        true
    }
}

/// When an object has its next turn. It is `kube`'s type; several kinds have an `Action` of their own.
pub use kube::runtime::controller::Action as Next;

/// Objects to be looked at.
pub type Queue<K> = Pin<Box<dyn Stream<Item = Result<ObjectRef<K>, watcher::Error>> + Send>>;

/// Objects that a change of another kind's object matters to, such as those that own it, or name it.
pub fn related<D: Object, K: Object>(
    (api, config): (Api<D>, watcher::Config),
    writer: Writer<D>,
    of: impl Fn(&D) -> Vec<ObjectRef<K>> + Send + 'static,
) -> Queue<K> {
    let touched = watcher(api, config).default_backoff().reflect(writer).touched_objects();
    Box::pin(touched.map_ok(move |object| stream::iter(of(&object).into_iter().map(Ok))).try_flatten())
}

/// The same for objects whose metadata are enough to tell what they matter to. Their content is neither read nor kept.
pub fn related_by_metadata<D: Object, K: Object>(
    api: Api<PartialObjectMeta<D>>,
    config: watcher::Config,
    of: impl Fn(&ObjectMeta) -> Vec<ObjectRef<K>> + Send + 'static,
) -> Queue<K>
where
    PartialObjectMeta<D>: Object,
{
    let touched = watcher(api, config).default_backoff().touched_objects();
    Box::pin(touched.map_ok(move |object| stream::iter(of(&object.metadata).into_iter().map(Ok))).try_flatten())
}

/// References to objects that are watched.
pub fn refs<K: Object>(objects: &[Arc<K>]) -> Vec<ObjectRef<K>> {
    objects.iter().map(|object| ObjectRef::from_obj(&**object)).collect()
}

/// A turn has ended.
pub fn ended<K: Object>(error: Option<controller::Error<ObjectError, watcher::Error>>) {
    match error {
        // They are logged where they happen; an object that went meanwhile needs nothing.
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

/// What all controllers of an operator work with.
#[derive(Clone)]
pub struct Base {
    /// The cluster.
    pub client: Client,
    /// Namespace that is looked at; all when `None`.
    pub namespace: Option<String>,
    /// Objects of the cluster.
    pub objects: Objects,
    /// Tells events.
    pub recorder: Recorder,
}

impl Base {
    /// On the cluster of a kubeconfig, as `manager`. No Secret is watched: each is read when it is needed.
    pub async fn connect(kubeconfig: Option<&Path>, namespace: Option<&str>, manager: &str) -> anyhow::Result<Self> {
        let client = command::client(kubeconfig).await?;
        let (secrets, _writer) = reflector::store::<Secret>();
        Ok(Self {
            client: client.clone(),
            namespace: namespace.map(str::to_owned),
            objects: Objects::new(client.clone(), secrets),
            recorder: Recorder::new(client, Reporter { controller: manager.to_owned(), instance: None }),
        })
    }

    /// Objects of a kind that are looked at.
    pub fn watched<K: Object>(&self) -> Api<K> {
        let all = || Api::all(self.client.clone());
        self.namespace.as_deref().map_or_else(all, |namespace| Api::namespaced(self.client.clone(), namespace))
    }

    /// Objects of a kind, and those of them that somebody changed: not by writing their status.
    pub fn changed<K: Object>(&self) -> (Store<K>, Queue<K>) {
        let (store, writer) = reflector::store();
        let events = watcher(self.watched::<K>(), watcher::Config::default()).default_backoff().reflect(writer);
        let relevant = predicates::generation.combine(predicates::labels).combine(predicates::annotations);
        let relevant = relevant.combine(predicates::finalizers);
        let changed = events.applied_objects().predicate_filter(relevant, PredicateConfig::default());
        (store, Box::pin(changed.map_ok(|object| ObjectRef::from_obj(&object))))
    }

    /// Objects of a kind, and those of them that changed in whatever way.
    pub fn touched<K: Object>(&self) -> (Store<K>, Queue<K>) {
        let (store, writer) = reflector::store();
        let events = watcher(self.watched::<K>(), watcher::Config::default()).default_backoff().reflect(writer);
        (store, Box::pin(events.touched_objects().map_ok(|object| ObjectRef::from_obj(&object))))
    }

    /// Tells an event about an object.
    pub async fn tell<R: Reason>(&self, about: &ObjectReference, event: &Event<R>) {
        event.publish(&self.recorder, about).await;
    }

    /// Writes a status that is another one than `before`, and tells its news.
    pub async fn report<K, S, R>(
        &self,
        object: &K,
        (before, status): (&S, &S),
        news: Option<Event<R>>,
    ) -> Result<(), ObjectError>
    where
        K: Object,
        S: Serialize + PartialEq + Sync,
        R: Reason,
    {
        if status == before {
            return Ok(());
        }
        self.objects.change_status(object, before, status).await?;
        if let Some(event) = news {
            self.tell(&object.object_ref(&()), &event).await;
        }
        Ok(())
    }

    /// Takes turns with the objects of the queues. Does not end.
    pub async fn run<T: Turn>(&self, controller: T, store: Store<T::Kind>, queues: Vec<Queue<T::Kind>>) {
        let base = self.clone();
        let reconcile = move |object: Arc<T::Kind>, controller: Arc<T>| {
            let base = base.clone();
            Box::pin(async move {
                let (namespace, name) = object.key();
                let Some(object) = base.objects.get::<T::Kind>(&namespace, &name).await? else {
                    return Ok(Next::await_change());
                };
                let about = object.object_ref(&());
                let turned = controller.turn(object).await;
                // It would be refused again and again, and the status does not tell it.
                if let Some(error) = turned.as_ref().err().filter(|error| error.is_refused()) {
                    base.tell(&about, &Event::new(Refused, chain(error))).await;
                }
                turned
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
