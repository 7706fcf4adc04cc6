//! Queues and turns of clusters.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_api::clusters::provisioning::{ClusterPhase, FINALIZER, Provisioning};
use agent_api::metal3::BareMetalHost;
use futures_util::stream;
use kube::Api;
use kube::runtime::controller::Action as Next;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::decide::{Choice, choose, consumer};
use super::install::Work;
use super::tell::{Told, What};
use super::wishes::Wanted;
use crate::operators::bpa::common::Common;
use crate::operators::kit::{Failures, Key, Object as _, ObjectError, Queue, Turn, turns};

/// Until progress is told again.
const PROGRESS: Duration = Duration::from_secs(3);
/// Until hosts are looked for again; a change of one is noticed at once.
const SEARCH: Duration = Duration::from_secs(30);
/// Until the nodes of a cluster are looked at again.
const WATCH: Duration = Duration::from_secs(60);
/// After somebody else was faster.
const AGAIN: Duration = Duration::from_millis(200);

/// The controller.
pub(super) struct Controller {
    pub common: Common,
    pub failures: Failures,
    /// What runs, by cluster.
    pub works: Mutex<HashMap<Key, Arc<Work>>>,
    /// The tasks of what runs; they end with the controller.
    pub tasks: Mutex<JoinSet<()>>,
    /// Clusters that are to be looked at.
    pub wake: mpsc::UnboundedSender<Key>,
}

/// Runs the controller of clusters.
pub async fn run(common: Common, host_writer: Writer<BareMetalHost>) {
    let (store, changed) = common.base.changed::<Provisioning>();
    let (wake, woken) = mpsc::unbounded_channel::<Key>();
    let all = store.clone();
    // Hosts are in any namespace, as ICN has it.
    let hosts = (Api::<BareMetalHost>::all(common.base.client.clone()), watcher::Config::default());
    let of_hosts = turns::related(hosts, host_writer, move |host: &BareMetalHost| {
        let user = consumer(host).map(|(namespace, name)| ObjectRef::new(name).within(namespace));
        let open = all.state_filter(|object: &Provisioning| {
            object.status.as_ref().is_none_or(|status| status.phase != ClusterPhase::Ready)
        });
        open.iter().map(|object| ObjectRef::from_obj(&**object)).chain(user).collect()
    });
    let woken: Queue<Provisioning> = Box::pin(stream::unfold(woken, async |mut woken| {
        let (namespace, name) = woken.recv().await?;
        Some((Ok(ObjectRef::new(&name).within(&namespace)), woken))
    }));
    let controller = Controller {
        common: common.clone(),
        failures: Failures::default(),
        works: Mutex::default(),
        tasks: Mutex::default(),
        wake,
    };
    common.base.run(controller, store, vec![changed, of_hosts, woken]).await;
}

impl Turn for Controller {
    type Kind = Provisioning;

    async fn turn(&self, object: Provisioning) -> Result<Next, ObjectError> {
        if object.leaves() {
            return self.leave(&object).await;
        }
        if !object.held_by(FINALIZER) {
            self.common.base.objects.hold(&object, FINALIZER).await?;
            return Ok(Next::await_change());
        }
        // What runs is told; it is not disturbed by a change, which is looked at when it has ended.
        if let Some(work) = self.work(&object.key()) {
            return self.follow(&object, &work).await;
        }
        let wanted = match Wanted::of(&object) {
            Ok(wanted) => wanted,
            Err(wrong) => {
                self.tell(&object, Told::new(What::Invalid, wrong.join("\n"))).await?;
                return Ok(Next::await_change());
            }
        };
        if self.common.hosts.state().is_empty() {
            // They may not be listed yet.
            tokio::time::timeout(SEARCH, self.common.hosts.wait_until_ready()).await.ok();
        }
        let choice = choose(&object, &wanted, &self.common.hosts.state(), &self.leases());
        if !choice.lacking.is_empty() {
            self.tell(&object, lacking(choice)).await?;
            return Ok(Next::requeue(SEARCH));
        }
        if !self.claim(&object, &choice.chosen).await? {
            return Ok(Next::requeue(AGAIN));
        }
        if Self::is_current(&object, &choice.chosen) {
            self.release_others(&object, &choice.chosen).await?;
            return Ok(Next::requeue(WATCH));
        }
        if let Some(left) = self.failures.left(&object) {
            return Ok(Next::requeue(left));
        }
        self.start(&object, wanted, choice.chosen).await
    }
}

impl Controller {
    /// What runs for a cluster.
    pub(super) fn work(&self, key: &Key) -> Option<Arc<Work>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Tells how far it is; takes the result when it has ended.
    async fn follow(&self, object: &Provisioning, work: &Work) -> Result<Next, ObjectError> {
        let Some(ended) = work.ended() else {
            self.tell(object, Told { nodes: Some(work.nodes()), ..Told::new(What::Installing, work.sentence()) })
                .await?;
            return Ok(Next::requeue(PROGRESS));
        };
        let told = match ended {
            Ok(made) => {
                self.keep(object, work, &made).await?;
                self.failures.none(&object.key());
                Told { nodes: Some(work.nodes()), made: Some(made), ..Told::new(What::Ready, String::new()) }
            }
            Err(why) => {
                self.failures.one_more(object);
                Told { nodes: Some(work.nodes()), ..Told::new(What::Failing, why) }
            }
        };
        self.tell(object, told).await?;
        self.works.lock().unwrap_or_else(PoisonError::into_inner).remove(&object.key());
        Ok(Next::requeue(self.failures.left(object).unwrap_or(AGAIN)))
    }
}

fn lacking(choice: Choice) -> Told {
    let why = choice.lacking.join("\n");
    Told { not_chosen: choice.not_chosen, ..Told::new(What::Unschedulable, why) }
}
