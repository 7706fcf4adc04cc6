//! Phase `services`: the objects that the release declares, applied in order, and each one healthy.
//!
//! ```text
//! manifests of the release --read--> ObjectSet (cluster::apply) --bring--> API server, inventory; ledger
//!                                        +------------------------look---> health of each: status, console, `ready`
//! ```

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent_api::boot::{LAYERS, MEDIUM};
use agent_api::release::{ContentKind, Digest};
use serde_json::json;
use tokio::time::Instant;

use super::{Machine, phase};
use crate::cluster::api::Api;
use crate::cluster::apply::inventory::InventoryPlace;
use crate::cluster::apply::{Brought, ObjectSet, Recorded, declared};
use crate::content::{Carried, Held, Source};
use crate::steps::{Key, Missing, Outcome, Steps};

/// Pause between two looks while something is missing.
const EVERY: Duration = Duration::from_secs(1);
/// An object of a ready box may be unhealthy for so long, as it is while somebody changes it.
const GRACE: Duration = Duration::from_secs(60);
/// Where the cluster remembers what the release has declared.
const INVENTORY: (&str, &str) = ("kube-system", "foothold-objects");

/// The declared objects of this boot.
#[derive(Debug)]
pub struct SiteObjects {
    files: Vec<Held>,
    key: Key,
    set: ObjectSet,
    unhealthy: Mutex<Option<Instant>>,
}

impl SiteObjects {
    /// Those of the release; nothing when it declares none and no earlier one has.
    pub fn of(machine: &Machine, steps: &Steps) -> Option<Self> {
        let carried = Carried::new(machine.release(), &machine.at(MEDIUM), &machine.at(LAYERS));
        let files: Vec<Held> = carried.list().into_iter().filter(|held| held.kind == ContentKind::Manifest).collect();
        (!files.is_empty() || steps.ledger.was_done(&phase::SITE_OBJECTS)).then(|| Self::new(files))
    }

    /// Those of these files.
    pub fn new(files: Vec<Held>) -> Self {
        let key = Key::of(files.iter().map(|held| format!("{} {}", held.path, held.digest)));
        let set = ObjectSet::new(InventoryPlace::new(INVENTORY.0, INVENTORY.1));
        Self { files, key, set, unhealthy: Mutex::default() }
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
        steps.bus.done_with(step.phase, step.name, json!({"objects": self.set.len()}));
    }

    async fn try_apply(&self, steps: &Steps, api: &Api) -> anyhow::Result<Outcome<()>> {
        self.read()?;
        let (step, key) = (&phase::SITE_OBJECTS, self.key.to_string());
        let (applied, healthy) = (steps.is_current(step, &self.key), steps.is_current(&phase::SITE_HEALTH, &self.key));
        let waits = |missing: &Missing| steps.bus.waiting(step.phase, step.name, &missing.what, &missing.why);
        match self.set.bring(api, Recorded { key: &key, applied, healthy }, &waits).await? {
            Brought::Current => Ok(Outcome::Current(())),
            Brought::Applied { removed, kept } => {
                steps.record(step, &self.key)?;
                let (objects, sets) = (self.set.len(), self.files.len());
                Ok(Outcome::Done((), json!({"objects": objects, "sets": sets, "removed": removed, "kept": kept})))
            }
        }
    }

    /// Reads the files of the release, once. They are small: their digests are checked here.
    fn read(&self) -> anyhow::Result<()> {
        if !self.set.is_empty() {
            return Ok(());
        }
        let mut all = Vec::new();
        for held in &self.files {
            let bytes = fs_err::read(&held.file)?;
            let found = Digest::of(&bytes);
            anyhow::ensure!(
                found == held.digest,
                "`{}` is damaged on the medium: it hashes to {}",
                held.path,
                found.hex()
            );
            all.extend(declared::read(&held.path, &String::from_utf8(bytes)?)?);
        }
        self.set.declare(all);
        Ok(())
    }

    /// Looks at every object that was not healthy at the last look; tells the first that is not.
    async fn look(&self, steps: &Steps, api: &Api) -> Result<(), Missing> {
        let total = self.set.len();
        if total == 0 && !self.files.is_empty() {
            return Err(Missing::new("the objects of the release", "they are not read yet"));
        }
        let healthy_before = self.set.healthy();
        self.set.look(api, steps.is_current(&phase::SITE_HEALTH, &self.key)).await?;
        let healthy = self.set.healthy();
        steps.bus.set_objects(self.set.statuses());
        if healthy != healthy_before {
            let step = &phase::SITE_HEALTH;
            steps.bus.progress(step.phase, step.name, json!({"healthy": healthy, "objects": total}));
        }
        self.set.first_unhealthy()
    }

    /// Looks again, on a box that is ready. What is gone is applied again; what is unhealthy has a while to recover.
    pub async fn check(&self, steps: &Steps, api: &Api) -> Result<(), Missing> {
        self.set.look_again(api).await?;
        steps.bus.set_objects(self.set.statuses());
        let first = self.set.first_unhealthy();
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
}
