//! Phase `services`: the objects that the release declares, applied in order, and each one healthy.
//!
//! ```text
//! manifests of the release --read--> [Declared] --apply--> API server, inventory (ConfigMap), ledger
//!                                        +--------look---> health of each: status, console, `ready`
//! ```
//! Both go on at once: what is applied already is looked at while the rest waits for something. An object whose apply
//! fails holds nobody else up. What an earlier release declared and this one does not goes, unless it holds what others
//! may want ([`declared::why_kept`]).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_api::boot::MEDIUM;
use agent_api::release::ContentKind;
use agent_api::rest::ObjectStatus;
use anyhow::Context;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use super::{Machine, phase};
use crate::cluster::api::{Api, ApiError};
use crate::cluster::declared::{self, Declared, FIELD_MANAGER, INVENTORY, Id, Inventory, SET_LABEL};
use crate::cluster::discovery::{Discovery, DiscoveryError};
use crate::cluster::health::{self, Health};
use crate::content::{Carried, Held, Source};
use crate::events::Bus;
use crate::steps::{Key, Missing, Outcome, Steps};

/// Pause between two looks while something is missing.
const EVERY: Duration = Duration::from_secs(1);
/// Pause, and number of tries, for a kind whose definition was just applied.
const NEW_KIND: (Duration, usize) = (Duration::from_millis(200), 100);
/// An object of a ready box may be unhealthy for so long, as it is while somebody changes it.
const GRACE: Duration = Duration::from_secs(60);
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

/// The declared objects of this boot.
#[derive(Debug)]
pub struct SiteObjects {
    files: Vec<Held>,
    key: Key,
    known: Mutex<Vec<Known>>,
    discovery: Discovery,
    unhealthy: Mutex<Option<Instant>>,
}

impl SiteObjects {
    /// Those of the release; nothing when it declares none and no earlier one has.
    pub fn of(machine: &Machine, steps: &Steps) -> Option<Self> {
        let carried = Carried::new(machine.release(), &machine.at(MEDIUM));
        let files: Vec<Held> = carried.list().into_iter().filter(|held| held.kind == ContentKind::Manifest).collect();
        (!files.is_empty() || steps.ledger.was_done(&phase::SITE_OBJECTS)).then(|| Self::new(files))
    }

    /// Those of these files.
    pub fn new(files: Vec<Held>) -> Self {
        let key = Key::of(files.iter().map(|held| format!("{} {}", held.path, held.digest)));
        Self { files, key, known: Mutex::default(), discovery: Discovery::default(), unhealthy: Mutex::default() }
    }

    /// Applies them and waits until each is healthy.
    pub async fn bring_up(&self, steps: &Steps, api: &Api) {
        tokio::join!(self.apply(steps, api), self.wait(steps, api));
    }

    /// Applies what is not recorded, and removes what is left over.
    pub async fn apply(&self, steps: &Steps, api: &Api) {
        steps.perform(&phase::SITE_OBJECTS, || self.try_apply(steps, api)).await;
    }

    async fn wait(&self, steps: &Steps, api: &Api) {
        let step = &phase::SITE_HEALTH;
        steps.bus.started(step.phase, step.name);
        steps.wait(step, EVERY, || self.look(steps, api)).await;
        // Only says that Jobs which remove themselves have once been complete.
        if let Err(error) = steps.record(step, &self.key) {
            log::warn!("the ledger: {error}");
        }
        steps.bus.done_with(step.phase, step.name, json!({"objects": self.lock().len()}));
    }

    async fn try_apply(&self, steps: &Steps, api: &Api) -> anyhow::Result<Outcome<()>> {
        self.read()?;
        let before = self.inventory(api).await?;
        let recorded = steps.is_current(&phase::SITE_OBJECTS, &self.key) && before.key == self.key.to_string();
        if recorded && self.all_there(steps, api).await? {
            return Ok(Outcome::Current(()));
        }
        let ids: Vec<Id> = self.lock().iter().map(|known| known.declared.id.clone()).collect();
        let mut inventory = Inventory { key: String::new(), objects: before.objects.clone() };
        inventory.objects.extend(ids.iter().cloned());
        // Before anything is made: after a power cut the next release still knows what to remove.
        remember(api, &inventory).await?;
        self.apply_all(steps, api).await?;
        let (pruned, kept) = self.prune(api, &before).await?;
        let sets = self.sets();
        remember(api, &Inventory { key: self.key.to_string(), objects: ids.iter().cloned().collect() }).await?;
        steps.record(&phase::SITE_OBJECTS, &self.key)?;
        Ok(Outcome::Done((), json!({"objects": ids.len(), "sets": sets, "removed": pruned, "kept": kept})))
    }

    /// Reads the files of the release, once. They are small: their digests are checked here.
    fn read(&self) -> anyhow::Result<()> {
        if !self.lock().is_empty() {
            return Ok(());
        }
        let mut all = Vec::new();
        for held in &self.files {
            let bytes = fs_err::read(&held.file)?;
            let found = hex::encode(Sha256::digest(&bytes));
            anyhow::ensure!(
                found == held.digest.hex(),
                "`{}` is damaged on the medium: it hashes to {found}",
                held.path
            );
            all.extend(declared::read(&held.path, &String::from_utf8(bytes)?)?);
        }
        let health = Health { healthy: false, message: "it is not applied yet".to_owned() };
        let known = |declared| Known { declared, applied: Applied::NotYet, health: health.clone() };
        *self.lock() = all.into_iter().map(known).collect();
        Ok(())
    }

    /// Applies what is not applied yet, in order. What must wait for something does, and what fails is told at the end.
    async fn apply_all(&self, steps: &Steps, api: &Api) -> anyhow::Result<()> {
        let total = self.lock().len();
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
            let step = &phase::SITE_OBJECTS;
            steps.bus.waiting(step.phase, step.name, &on, &format!("`{what}` comes after it"));
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

    async fn apply_one(&self, api: &Api, declared: &Declared) -> anyhow::Result<()> {
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

    async fn apply_once(&self, api: &Api, declared: &Declared) -> anyhow::Result<()> {
        let (path, object) = self.located(api, declared).await?;
        let Err(error) = api.apply(&path, &object, FIELD_MANAGER, false).await else { return Ok(()) };
        let found = api.get(&path).await?;
        let ours = found.as_ref().is_some_and(|found| found["metadata"]["labels"][SET_LABEL].is_string());
        match error.status() {
            // Somebody has changed a field of an object that this box has made: the release says what it should be.
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
    async fn located(&self, api: &Api, declared: &Declared) -> Result<(String, Value), DiscoveryError> {
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

    async fn path_of(&self, api: &Api, id: &Id) -> Result<String, DiscoveryError> {
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

    /// Whether every recorded object is still there. Then nothing is applied again.
    async fn all_there(&self, steps: &Steps, api: &Api) -> anyhow::Result<bool> {
        let ids: Vec<Id> = self.lock().iter().map(|known| known.declared.id.clone()).collect();
        let was_healthy = steps.is_current(&phase::SITE_HEALTH, &self.key);
        for id in &ids {
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

    /// Removes what an earlier release declared. What was removed, and what stays and why.
    async fn prune(&self, api: &Api, before: &Inventory) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let declared: Vec<Declared> = self.lock().iter().map(|known| known.declared.clone()).collect();
        let (mut removed, mut kept) = (Vec::new(), Vec::new());
        for id in before.left_over(&declared) {
            let path = match self.path_of(api, &id).await {
                Ok(path) => path,
                Err(DiscoveryError::Unknown { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(found) = api.get(&path).await? else { continue };
            if let Some(why) = declared::why_kept(&found) {
                kept.push(format!("{id}: {why}"));
                continue;
            }
            let removing = api.delete(&format!("{path}?propagationPolicy=Background")).await;
            removing.with_context(|| format!("removing {id}, which is not declared any more"))?;
            removed.push(id.to_string());
        }
        Ok((removed, kept))
    }

    /// Looks at every object that was not healthy at the last look; tells the first that is not.
    async fn look(&self, steps: &Steps, api: &Api) -> Result<(), Missing> {
        let total = self.lock().len();
        if total == 0 && !self.files.is_empty() {
            return Err(Missing::new("the objects of the release", "they are not read yet"));
        }
        let was_healthy = steps.is_current(&phase::SITE_HEALTH, &self.key);
        let healthy_before = self.healthy();
        for i in 0..total {
            if !self.lock()[i].health.healthy {
                self.look_at(api, i, was_healthy).await?;
            }
        }
        let healthy = self.healthy();
        self.publish(&steps.bus);
        if healthy != healthy_before {
            let step = &phase::SITE_HEALTH;
            steps.bus.progress(step.phase, step.name, json!({"healthy": healthy, "objects": total}));
        }
        self.first_unhealthy()
    }

    /// Looks again, on a box that is ready. What is gone is applied again; what is unhealthy has a while to recover.
    pub async fn check(&self, steps: &Steps, api: &Api) -> Result<(), Missing> {
        let total = self.lock().len();
        for i in 0..total {
            let (declared, _) = self.at(i);
            if health::can_change(&declared.id.kind) || !self.lock()[i].health.healthy {
                self.look_at(api, i, true).await?;
            }
        }
        self.publish(&steps.bus);
        let first = self.first_unhealthy();
        let mut since = self.unhealthy.lock().unwrap_or_else(PoisonError::into_inner);
        match first {
            Ok(()) => {
                *since = None;
                Ok(())
            }
            Err(missing) if since.get_or_insert_with(Instant::now).elapsed() >= GRACE => Err(missing),
            Err(_) => Ok(()),
        }
    }

    async fn look_at(&self, api: &Api, i: usize, was_healthy: bool) -> Result<(), Missing> {
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

    async fn ask(&self, api: &Api, declared: &Declared, was_healthy: bool) -> anyhow::Result<Health> {
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

    fn first_unhealthy(&self) -> Result<(), Missing> {
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

    fn publish(&self, bus: &Bus) {
        let status = |known: &Known| ObjectStatus {
            kind: known.declared.id.kind.clone(),
            namespace: known.declared.id.namespace.clone(),
            name: known.declared.id.name.clone(),
            set: known.declared.set.clone(),
            healthy: known.health.healthy,
            message: known.health.message.clone(),
        };
        bus.set_objects(self.lock().iter().map(status).collect());
    }

    async fn inventory(&self, api: &Api) -> Result<Inventory, ApiError> {
        Ok(api.get(&inventory_path()).await?.map(|map| Inventory::read(&map)).unwrap_or_default())
    }

    fn at(&self, i: usize) -> (Declared, Applied) {
        let all = self.lock();
        (all[i].declared.clone(), all[i].applied.clone())
    }

    fn healthy(&self) -> usize {
        self.lock().iter().filter(|known| known.health.healthy).count()
    }

    fn sets(&self) -> usize {
        self.files.len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        // Each change is one assignment: a panic elsewhere leaves it valid.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn inventory_path() -> String {
    format!("/api/v1/namespaces/kube-system/configmaps/{INVENTORY}")
}

async fn remember(api: &Api, inventory: &Inventory) -> Result<(), ApiError> {
    api.apply(&inventory_path(), &inventory.object(), FIELD_MANAGER, true).await.map(drop)
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
