//! Queues and turns of clusters.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_api::clusters::provisioning::{CLUSTER_LABEL, FINALIZER, Provisioning};
use agent_api::metal3::BareMetalHost;
use futures_util::stream;
use kube::Api;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::act::asked_version;
use super::decide::{Choice, choose, consumer};
use super::eta::History;
use super::install::Work;
use super::leaving::no_master_stays;
use super::overlap::overlap;
use super::tell::{Told, What, is_settled};
use super::tenant::is_tenants;
use super::upgrade::impossible;
use super::upkeep::{Aim, stands};
use super::watch::{Due, whole};
use super::wishes::Wanted;
use crate::operators::bpa::common::Common;
use crate::operators::kit::{Failures, Key, Next, Object as _, ObjectError, Queue, Turn, told_key, turns};

/// Pause until progress is told again.
const PROGRESS: Duration = Duration::from_secs(3);
/// Pause until hosts are looked for again. A change of a host is noticed at once.
const SEARCH: Duration = Duration::from_secs(30);
/// Pause until the nodes of a cluster are looked at again.
const WATCH: Duration = Duration::from_secs(60);
/// Pause until work that has just begun is told.
const BEGUN: Duration = Duration::from_secs(1);
/// Pause after another writer changed a host first.
pub(super) const AGAIN: Duration = Duration::from_millis(200);

/// The controller.
pub(super) struct Controller {
    pub common: Common,
    pub failures: Failures,
    /// All clusters, as they are watched.
    pub all: Store<Provisioning>,
    /// Work that runs, by cluster.
    pub works: Mutex<HashMap<Key, Arc<Work>>>,
    /// Tasks of that work; they end with the controller.
    pub tasks: Mutex<JoinSet<()>>,
    /// What earlier work took.
    pub history: Arc<History>,
    /// Sends a cluster into the queue.
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
            object.status.as_ref().is_none_or(|status| !is_settled(status)) || is_tenants(host, object)
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
        all: store.clone(),
        works: Mutex::default(),
        tasks: Mutex::default(),
        history: Arc::new(History::open(&common.folder)),
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
        let tenant = match self.tenant(&object).await? {
            Ok(tenant) => tenant,
            Err(why) => {
                self.unmet(&object, None, Told::new(What::Unschedulable, why)).await?;
                return Ok(Next::requeue(SEARCH));
            }
        };
        let wanted = match Wanted::of(&object, tenant.as_ref()) {
            Ok(wanted) => wanted,
            Err(wrong) => {
                self.unmet(&object, None, Told::new(What::Invalid, wrong.join("\n"))).await?;
                return Ok(Next::requeue(WATCH));
            }
        };
        if let Some(why) = impossible(&object, &wanted) {
            self.unmet(&object, Some(&wanted), Told::new(What::Invalid, why)).await?;
            return Ok(Next::requeue(WATCH));
        }
        if let Some(other) = self.taken_by(&object) {
            let cluster = object.cluster();
            let why = format!(
                "the cluster `{cluster}` is that of Provisioning `{other}`; hint: give this one another label `{CLUSTER_LABEL}`"
            );
            self.tell(&object, Told::new(What::Invalid, why)).await?;
            return Ok(Next::requeue(SEARCH));
        }
        if self.common.hosts.state().is_empty() {
            // They may not be listed yet.
            tokio::time::timeout(SEARCH, self.common.hosts.wait_until_ready()).await.ok();
        }
        let choice = choose(&object, &wanted, &self.common.hosts.state(), &self.leases());
        if !choice.lacking.is_empty() {
            self.unmet(&object, Some(&wanted), lacking(choice)).await?;
            return Ok(Next::requeue(SEARCH));
        }
        if let Some(why) = no_master_stays(&object, &choice.chosen, &self.common.hosts.state()) {
            self.unmet(&object, Some(&wanted), Told::new(What::Invalid, why)).await?;
            return Ok(Next::requeue(WATCH));
        }
        let new = !stands(&object) && object.spec.installer.is_none();
        if let Some(why) = overlap(&wanted, &choice.chosen, self.common.place.address).filter(|_| new) {
            self.tell(&object, Told::new(What::Invalid, why)).await?;
            return Ok(Next::requeue(SEARCH));
        }
        if !self.claim(&object, &choice.chosen).await? {
            return Ok(Next::requeue(AGAIN));
        }
        let mut renew = false;
        if self.is_current(&object, &choice.chosen) {
            self.release_others(&object, &choice.chosen).await?;
            match self.watch(&object).await? {
                None => return Ok(Next::requeue(WATCH)),
                Some(due) => renew = due == Due::Renewal,
            }
        }
        if let Some(left) = self.failures.left(&object) {
            return Ok(Next::requeue(left));
        }
        match self.begin(&object, &wanted, choice.chosen, Aim::Spec, renew).await? {
            Ok(()) => Ok(Next::requeue(BEGUN)),
            Err(why) => {
                self.unmet(&object, Some(&wanted), Told::new(What::Failing, why)).await?;
                Ok(Next::requeue(self.failures.one_more(&object)))
            }
        }
    }
}

impl Controller {
    /// The work that runs for a cluster.
    pub(super) fn work(&self, key: &Key) -> Option<Arc<Work>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Forgets the work that has ended.
    pub(super) fn forget_work(&self, key: &Key) {
        self.works.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// An older object of the same cluster's name, in any namespace: inventories and logs are in a folder of that name.
    pub(super) fn taken_by(&self, object: &Provisioning) -> Option<String> {
        taken_by(object, &self.all.state())
    }

    /// Tells how far the work is, and takes its result when it has ended.
    async fn follow(&self, object: &Provisioning, work: &Work) -> Result<Next, ObjectError> {
        let Some(ended) = work.ended() else {
            // An upgrade goes no further than the node that it is at when another version is asked for.
            work.wish(asked_version(object));
            if work.is_in_the_way_of(object.metadata.generation) {
                work.halt();
            }
            self.tell(object, work.told(What::Installing)).await?;
            return Ok(Next::requeue(PROGRESS));
        };
        if work.is_halted() {
            // Nothing has failed, and nothing is done: the next turn looks at the newer spec.
            self.tell(object, work.told(What::Installing)).await?;
            self.forget_work(&object.key());
            return Ok(Next::requeue(AGAIN));
        }
        // A spec that was changed meanwhile has not been looked at yet.
        let object = &for_generation(object, work.generation());
        if let (Err(_), Some(made)) = (&ended, work.made()) {
            let known = object.status.as_ref().map(|status| status.nodes.clone()).unwrap_or_default();
            let nodes = if work.aim() == Aim::Upkeep { known } else { work.nodes() };
            self.keep(object, &nodes, &made).await?;
        }
        if work.aim() == Aim::Upkeep {
            return self.kept_up(object, ended).await;
        }
        let told = match ended {
            Ok(made) => {
                self.keep(object, &work.nodes(), &made).await?;
                self.failures.none(&object.key());
                Told { made: Some(made), ..whole(work.nodes()) }
            }
            Err(why) => {
                self.failures.one_more(object);
                Told { nodes: Some(work.nodes()), ..Told::new(What::Failing, why) }
            }
        };
        let failed = told.what == What::Failing;
        self.tell(object, told).await?;
        // Only what was told is forgotten: an operator that ends in between finds the Job that failed, and tells it.
        if failed {
            self.forget_job(object).await?;
        }
        self.forget_work(&object.key());
        Ok(Next::requeue(self.failures.left(object).unwrap_or(AGAIN)))
    }
}

/// The object, as of that generation.
fn for_generation(object: &Provisioning, generation: Option<i64>) -> Provisioning {
    let mut object = object.clone();
    object.metadata.generation = generation;
    object
}

fn taken_by(object: &Provisioning, all: &[Arc<Provisioning>]) -> Option<String> {
    let age = |one: &Provisioning| (one.metadata.creation_timestamp.clone().map(|time| time.0), one.key());
    let same = |other: &&Arc<Provisioning>| other.cluster() == object.cluster() && other.key() != object.key();
    let older = all.iter().filter(same).filter(|other| age(other) < age(object)).min_by_key(|other| age(other))?;
    Some(told_key(&older.key()))
}

fn lacking(choice: Choice) -> Told {
    let why = choice.lacking.join("\n");
    Told { not_chosen: choice.not_chosen, ..Told::new(What::Unschedulable, why) }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod turn_tests;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_api::clusters::provisioning::Provisioning;
    use serde_json::json;

    use super::taken_by;

    fn object(namespace: &str, name: &str, cluster: &str, second: u8) -> Arc<Provisioning> {
        let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning", "metadata": {
            "name": name, "namespace": namespace, "labels": {"cluster": cluster},
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")}, "spec": {"masters": []}});
        Arc::new(serde_json::from_value(object).expect("an object"))
    }

    #[test]
    fn the_older_object_has_a_clusters_name() {
        let all = [object("a", "one", "east", 1), object("b", "two", "east", 2), object("b", "three", "west", 3)];
        let taken = |at: usize| taken_by(&all[at], &all);
        assert_eq!((taken(0), taken(1).as_deref(), taken(2)), (None, Some("a/one"), None));
        let same_time = [object("b", "one", "east", 1), object("a", "one", "east", 1)];
        assert_eq!(taken_by(&same_time[0], &same_time).as_deref(), Some("a/one"));
        assert_eq!(taken_by(&same_time[1], &same_time), None);
    }
}
