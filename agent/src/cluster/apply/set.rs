//! The objects of one origin: applied in order, looked at until each is healthy, removed once they are not declared any
//! more.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_api::rest::ObjectStatus;
use anyhow::Context;
use reqwest::StatusCode;
use serde_json::Value;
use tokio::time::sleep;

use super::super::api::ApiError;
use super::ObjectApi;
use super::declared::{Declared, FIELD_MANAGER, Id, SET_LABEL};
use super::discovery::{Discovery, DiscoveryError};
use super::health::{self, Health};
use super::inventory::{self, Inventory, InventoryPlace};
use crate::steps::Missing;

/// Pause between two looks at what an object waits for.
const EVERY: Duration = Duration::from_secs(1);
/// Pause, and number of tries, for a kind whose definition was just applied.
const NEW_KIND: (Duration, usize) = (Duration::from_millis(200), 100);
/// How many failures a message names.
const NAMED: usize = 5;

/// What is known of one declared object.
#[derive(Debug)]
struct Known {
    declared: Declared,
    applied: Applied,
    health: Health,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Applied {
    NotYet,
    Failed(String),
    Yes,
}

/// What the caller remembers of these objects.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// Key of what is declared: another one means that something has changed.
    pub key: &'a str,
    /// All of it was applied once, under this key.
    pub applied: bool,
    /// All of it was healthy once, under this key: Jobs that remove themselves may be gone.
    pub healthy: bool,
}

/// What was done to bring the objects there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Brought {
    /// Nothing: all were there, as recorded.
    Current,
    /// All were applied.
    Applied {
        /// What was removed.
        removed: Vec<String>,
        /// What is not declared any more and stays, and why.
        kept: Vec<String>,
    },
}

/// Declared objects, and what is known of each.
#[derive(Debug)]
pub struct ObjectSet {
    place: InventoryPlace,
    known: Mutex<Vec<Known>>,
    discovery: Discovery,
}

impl ObjectSet {
    /// An empty one, whose inventory lies at `place`.
    pub fn new(place: InventoryPlace) -> Self {
        Self { place, known: Mutex::default(), discovery: Discovery::default() }
    }

    /// Says what is declared, in the order in which it is to be applied.
    pub fn declare(&self, objects: Vec<Declared>) {
        let health = Health { healthy: false, message: "it is not applied yet".to_owned() };
        let known = |declared| Known { declared, applied: Applied::NotYet, health: health.clone() };
        *self.lock() = objects.into_iter().map(known).collect();
    }

    /// How many are declared.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// How many are healthy.
    pub fn healthy(&self) -> usize {
        self.lock().iter().filter(|known| known.health.healthy).count()
    }

    /// Each object, for the status.
    pub fn statuses(&self) -> Vec<ObjectStatus> {
        let status = |known: &Known| ObjectStatus {
            kind: known.declared.id.kind.clone(),
            namespace: known.declared.id.namespace.clone(),
            name: known.declared.id.name.clone(),
            set: known.declared.set.clone(),
            healthy: known.health.healthy,
            message: known.health.message.clone(),
        };
        self.lock().iter().map(status).collect()
    }

    /// Applies what is not recorded, and removes what is left over. `waits` hears what the next object waits for.
    pub async fn bring(
        &self,
        api: &impl ObjectApi,
        recorded: Recorded<'_>,
        waits: &(dyn Fn(&Missing) + Sync),
    ) -> anyhow::Result<Brought> {
        let before = self.place.read(api).await?;
        if recorded.applied && before.key == recorded.key && self.all_there(api, recorded.healthy).await? {
            return Ok(Brought::Current);
        }
        let ids = self.ids();
        let mut inventory = Inventory { key: String::new(), objects: before.objects.clone() };
        inventory.objects.extend(ids.iter().cloned());
        // Before anything is made: after a power cut the next version still knows what to remove.
        self.place.write(api, &inventory).await?;
        self.apply_all(api, waits).await?;
        let (removed, kept) = self.prune(api, &before).await?;
        self.place.write(api, &Inventory { key: recorded.key.to_owned(), objects: ids.into_iter().collect() }).await?;
        Ok(Brought::Applied { removed, kept })
    }

    /// Looks at every object that was not healthy at the last look. What is gone is applied again.
    pub async fn look(&self, api: &impl ObjectApi, was_healthy: bool) -> Result<(), Missing> {
        for i in 0..self.len() {
            if !self.lock()[i].health.healthy {
                self.look_at(api, i, was_healthy).await?;
            }
        }
        Ok(())
    }

    /// Looks at every object that was healthy and may not be any more, and at every one that was not.
    pub async fn look_again(&self, api: &impl ObjectApi) -> Result<(), Missing> {
        for i in 0..self.len() {
            let (declared, _) = self.at(i);
            if health::can_change(&declared.id.kind) || !self.lock()[i].health.healthy {
                self.look_at(api, i, true).await?;
            }
        }
        Ok(())
    }

    /// The first object that was not healthy at the last look, and why.
    pub fn first_unhealthy(&self) -> Result<(), Missing> {
        let all = self.lock();
        let healthy = all.iter().filter(|known| known.health.healthy).count();
        // What is not applied yet waits for others: they say more.
        let unhealthy = all.iter().filter(|known| !known.health.healthy);
        match unhealthy.min_by_key(|known| known.applied == Applied::NotYet) {
            None => Ok(()),
            Some(known) => {
                let what = format!("`{}` ({healthy} of {} objects are healthy)", known.declared.id, all.len());
                Err(Missing::new(what, known.health.message.clone()))
            }
        }
    }

    /// Applies what is not applied yet, in order. What must wait for something does, and what fails is told at the end.
    async fn apply_all(&self, api: &impl ObjectApi, waits: &(dyn Fn(&Missing) + Sync)) -> anyhow::Result<()> {
        let total = self.len();
        let mut failures = Vec::new();
        let mut tried = vec![false; total];
        loop {
            let mut blocked = None;
            for (i, tried) in tried.iter_mut().enumerate() {
                let (declared, applied) = self.at(i);
                if applied == Applied::Yes || *tried {
                    continue;
                }
                if let Some(on) = self.blocked(i) {
                    blocked.get_or_insert((declared.id.to_string(), on));
                    continue;
                }
                *tried = true;
                let result = self.apply_one(api, &declared).await;
                let applied = match result {
                    Ok(()) => Applied::Yes,
                    Err(error) => {
                        let cause = format!("{error:#}");
                        failures.push(format!("{}: {cause}", declared.id));
                        Applied::Failed(cause)
                    }
                };
                self.lock()[i].applied = applied;
            }
            let Some((what, on)) = blocked.filter(|_| failures.is_empty()) else { break };
            waits(&Missing::new(on, format!("`{what}` comes after it")));
            sleep(EVERY).await;
        }
        if failures.is_empty() {
            return Ok(());
        }
        let more =
            if failures.len() > NAMED { format!("; and {} more", failures.len() - NAMED) } else { String::new() };
        let named = failures[..failures.len().min(NAMED)].join("; ");
        anyhow::bail!("{} of {total} objects are not applied: {named}{more}", failures.len())
    }

    /// What object `i` must wait for: a hook for all of its chart that comes before it, everything for a hook before it.
    fn blocked(&self, i: usize) -> Option<String> {
        let all = self.lock();
        let own = &all[i].declared;
        let before = all[..i].iter().filter(|one| one.declared.chart() == own.chart());
        let unhealthy = before.filter(|one| own.hook || one.declared.hook);
        unhealthy
            .filter(|one| one.applied != Applied::Yes || !one.health.healthy)
            .map(|one| format!("`{}` to be healthy", one.declared.id))
            .next()
    }

    async fn apply_one(&self, api: &impl ObjectApi, declared: &Declared) -> anyhow::Result<()> {
        let mut tries = 0;
        loop {
            let error = match self.apply_once(api, declared).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            tries += 1;
            if tries > NEW_KIND.1 || !self.is_new_kind(&declared.id) || !is_not_there(&error) {
                return Err(error);
            }
            sleep(NEW_KIND.0).await;
        }
    }

    async fn apply_once(&self, api: &impl ObjectApi, declared: &Declared) -> anyhow::Result<()> {
        let (path, object) = self.located(api, declared).await?;
        let Err(error) = api.apply(&path, &object, FIELD_MANAGER, false).await else { return Ok(()) };
        let found = api.get(&path).await?;
        let ours = found.as_ref().is_some_and(|found| found["metadata"]["labels"][SET_LABEL].is_string());
        match error.status() {
            // Somebody has changed a field of an object that was made from here: what is declared says what it should be.
            Some(StatusCode::CONFLICT) if ours => Ok(api.apply(&path, &object, FIELD_MANAGER, true).await.map(drop)?),
            Some(StatusCode::CONFLICT) => Err(anyhow::Error::new(error).context("the object belongs to somebody else")),
            // What cannot be changed is made anew: nothing serves from a Job or a bare pod.
            Some(StatusCode::UNPROCESSABLE_ENTITY) if ours && matches!(declared.id.kind.as_str(), "Job" | "Pod") => {
                api.delete(&format!("{path}?propagationPolicy=Background")).await?;
                Ok(api.apply(&path, &object, FIELD_MANAGER, false).await.map(drop)?)
            }
            _ => Err(error.into()),
        }
    }

    /// Path of an object, and the object as it lies there.
    async fn located(&self, api: &impl ObjectApi, declared: &Declared) -> Result<(String, Value), DiscoveryError> {
        let id = &declared.id;
        let resource = self.discovery.find(api, &id.api_version, &id.kind).await?;
        let mut object = declared.object.clone();
        if !resource.namespaced
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            metadata.shift_remove("namespace");
        }
        Ok((resource.path(&id.api_version, &id.namespace, &id.name), object))
    }

    async fn path_of(&self, api: &impl ObjectApi, id: &Id) -> Result<String, DiscoveryError> {
        let resource = self.discovery.find(api, &id.api_version, &id.kind).await?;
        Ok(resource.path(&id.api_version, &id.namespace, &id.name))
    }

    /// Whether the definition of that object's kind was just applied.
    fn is_new_kind(&self, id: &Id) -> bool {
        self.lock().iter().any(|known| {
            let spec = &known.declared.object["spec"];
            let group = id.api_version.split_once('/').map(|(group, _)| group);
            known.applied == Applied::Yes
                && known.declared.id.kind == "CustomResourceDefinition"
                && spec["group"].as_str() == group
                && spec["names"]["kind"] == id.kind
        })
    }

    /// Whether every object is still there. Then nothing is applied again.
    async fn all_there(&self, api: &impl ObjectApi, was_healthy: bool) -> anyhow::Result<bool> {
        for id in &self.ids() {
            let found = match self.path_of(api, id).await {
                Ok(path) => api.get(&path).await?.is_some(),
                Err(DiscoveryError::Unknown { .. }) => false,
                Err(error) => return Err(error.into()),
            };
            let has_ended = was_healthy && may_be_gone(id);
            if !found && !has_ended {
                return Ok(false);
            }
        }
        for known in self.lock().iter_mut() {
            known.applied = Applied::Yes;
        }
        Ok(true)
    }

    /// Removes what an earlier version declared. What was removed, and what stays and why.
    async fn prune(&self, api: &impl ObjectApi, before: &Inventory) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let (mut removed, mut kept) = (Vec::new(), Vec::new());
        for id in before.left_over(&self.ids()) {
            let path = match self.path_of(api, &id).await {
                Ok(path) => path,
                Err(DiscoveryError::Unknown { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(found) = api.get(&path).await? else { continue };
            if let Some(why) = inventory::why_kept(&found) {
                kept.push(format!("{id}: {why}"));
                continue;
            }
            let removing = api.delete(&format!("{path}?propagationPolicy=Background")).await;
            removing.with_context(|| format!("removing {id}, which is not declared any more"))?;
            removed.push(id.to_string());
        }
        Ok((removed, kept))
    }

    async fn look_at(&self, api: &impl ObjectApi, i: usize, was_healthy: bool) -> Result<(), Missing> {
        let (declared, applied) = self.at(i);
        let health = match applied {
            Applied::NotYet => return Ok(()),
            Applied::Failed(cause) => Health { healthy: false, message: cause },
            Applied::Yes => {
                let asked = self.ask(api, &declared, was_healthy).await;
                asked.map_err(|error| Missing::new("the API server", format!("{error:#}")))?
            }
        };
        self.lock()[i].health = health;
        Ok(())
    }

    async fn ask(&self, api: &impl ObjectApi, declared: &Declared, was_healthy: bool) -> anyhow::Result<Health> {
        let id = &declared.id;
        let Some(found) = api.get(&self.path_of(api, id).await?).await? else {
            if was_healthy && may_be_gone(id) {
                return Ok(Health { healthy: true, message: "it has ended and removed itself".to_owned() });
            }
            self.apply_one(api, declared).await.with_context(|| format!("applying {id} again, it was gone"))?;
            return Ok(Health { healthy: false, message: "it was gone and is applied again".to_owned() });
        };
        let mut health = health::of(&found);
        if !health.healthy
            && let Some(query) = health::pods_of(&found)
        {
            let path = format!("/api/v1/namespaces/{}/pods?labelSelector={query}&limit=20", id.namespace);
            let why = api.get(&path).await?.and_then(|list| health::why(&list));
            health.message.extend(why.map(|why| format!(", {why}")));
        }
        Ok(health)
    }

    fn ids(&self) -> Vec<Id> {
        self.lock().iter().map(|known| known.declared.id.clone()).collect()
    }

    fn at(&self, i: usize) -> (Declared, Applied) {
        let all = self.lock();
        (all[i].declared.clone(), all[i].applied.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        // Each change is one assignment: a panic elsewhere leaves it valid.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Jobs may remove themselves once they have ended (`ttlSecondsAfterFinished`), or be removed.
fn may_be_gone(id: &Id) -> bool {
    id.kind == "Job"
}

/// Whether the API server does not know the kind yet.
fn is_not_there(error: &anyhow::Error) -> bool {
    let unknown = matches!(error.downcast_ref(), Some(DiscoveryError::Unknown { .. }));
    unknown || error.downcast_ref::<ApiError>().and_then(ApiError::status) == Some(StatusCode::NOT_FOUND)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::super::declared::declared;
    use super::super::fake::FakeCluster;
    use super::super::inventory::InventoryPlace;
    use super::{Brought, ObjectSet, Recorded};

    fn object(version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "web"}})
    }

    fn set(objects: Vec<Value>) -> ObjectSet {
        let set = ObjectSet::new(InventoryPlace::new("web", "shop-objects"));
        set.declare(objects.into_iter().map(|object| declared(object, "shop")).collect());
        set
    }

    const NEW: Recorded<'_> = Recorded { key: "1", applied: false, healthy: false };

    #[tokio::test(start_paused = true)]
    async fn a_hook_holds_up_what_comes_after_it_until_it_is_healthy() {
        let cluster = FakeCluster::default();
        let mut hook = object("batch/v1", "Job", "prepare");
        hook["metadata"]["annotations"] = json!({"helm.sh/hook": "pre-install"});
        let objects = set(vec![hook, object("v1", "ConfigMap", "after")]);
        let waits = std::sync::Mutex::new(Vec::new());
        let tell = |missing: &crate::steps::Missing| waits.lock().expect("a list").push(missing.clone());
        let look = async {
            sleep(Duration::from_millis(1500)).await;
            assert!(!cluster.has("/api/v1/namespaces/web/configmaps/after"));
            cluster.set_status(
                "/apis/batch/v1/namespaces/web/jobs/prepare",
                json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}),
            );
            objects.look(&cluster, false).await.expect("looked");
        };
        let (brought, ()) = tokio::join!(objects.bring(&cluster, NEW, &tell), look);
        assert_eq!(brought.expect("applied"), Brought::Applied { removed: vec![], kept: vec![] });
        assert!(cluster.has("/api/v1/namespaces/web/configmaps/after"));
        let first = waits.lock().expect("a list")[0].clone();
        assert_eq!(
            (first.what.as_str(), first.why.as_str()),
            ("`Job web/prepare` to be healthy", "`ConfigMap web/after` comes after it")
        );
        objects.look(&cluster, false).await.expect("looked");
        assert_eq!(objects.first_unhealthy(), Ok(()));
    }

    #[tokio::test]
    async fn what_is_not_declared_any_more_goes_and_what_holds_data_stays() {
        let cluster = FakeCluster::default();
        let old = set(vec![object("v1", "PersistentVolumeClaim", "data"), object("v1", "ConfigMap", "old")]);
        old.bring(&cluster, NEW, &|_| ()).await.expect("applied");
        let new = set(vec![object("v1", "ConfigMap", "new")]);
        let recorded = Recorded { key: "2", ..NEW };
        let brought = new.bring(&cluster, recorded, &|_| ()).await.expect("applied");
        let kept = vec!["PersistentVolumeClaim web/data: it holds data".to_owned()];
        assert_eq!(brought, Brought::Applied { removed: vec!["ConfigMap web/old".to_owned()], kept });
        let recorded = Recorded { applied: true, ..recorded };
        assert_eq!(new.bring(&cluster, recorded, &|_| ()).await.expect("looked"), Brought::Current);
        cluster.remove("/api/v1/namespaces/web/configmaps/new");
        let brought = new.bring(&cluster, recorded, &|_| ()).await.expect("applied");
        assert_ne!(brought, Brought::Current, "one of them was gone");
    }

    #[tokio::test]
    async fn one_that_fails_holds_nobody_else_up() {
        let cluster = FakeCluster::default();
        let objects = set(vec![object("example.org/v1", "Widget", "w"), object("v1", "ConfigMap", "c")]);
        let error = objects.bring(&cluster, NEW, &|_| ()).await.expect_err("no such kind").to_string();
        let expected =
            "1 of 2 objects are not applied: Widget web/w: the cluster knows no `Widget` of `example.org/v1`";
        assert_eq!(error, expected);
        assert!(cluster.has("/api/v1/namespaces/web/configmaps/c"));
    }
}
