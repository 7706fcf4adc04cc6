//! The stages of a build as data: what each is called, what it needs, how it is made.
//!
//! ```text
//! Site ─► system + carried: the list, in the order of `plan` ─► make: each as soon as what it needs is there
//!                                                           └─► plan: each looked up, nothing made
//! ```
//! A new stage is one function in `system` or `carried`, which calls the module that makes it. The build, the plan
//! and what runs at the same time follow from the list.

mod carried;
mod course;
mod make;
mod system;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use agent_api::release::ContentFile;
use anyhow::{Context, Result};

pub use self::carried::{carried, rendered_manifests};
pub use self::make::make;
pub use self::system::{all_programs, cluster_state, programs, system, templates};
pub use self::versions::{images_made as images_of_other_versions, with_others as programs_with_others};

use crate::builder::Builder;
use crate::config::Appliance;
use crate::content::programs::on_demand;
use crate::kubernetes::modules::{ModuleSet, ON_DEMAND, SETS};
use crate::lock::{Deb, Lock, fetch};
use crate::oci::recipe::Recipe;
use crate::oci::service::{self, Declared};
use crate::release::sign::Signer;
use crate::store::Made;
use crate::toolbox::Toolbox;

/// Name of the step that writes the lock, for stages that need it.
pub const LOCK: &str = "lock";
/// Name of the stage that runs a control plane once.
pub const CLUSTER_STATE: &str = "cluster-state";
/// What some stages need that the user may not have yet: the first build makes it.
pub const KEY: &str = "development key";
/// What the names of OS images' stages begin with.
pub const OS_IMAGE: &str = "os-image ";

/// Where progress of a stage is told.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// What all stages are made from.
pub struct Site<'a> {
    /// Cache, sources, network. A cache that is only looked at makes a plan.
    pub at: &'a Builder,
    /// The definition.
    pub appliance: &'a Appliance,
    /// Exactly what goes in; a plan may have none yet.
    pub lock: Option<&'a Lock>,
    /// Foreign tools.
    pub toolbox: &'a Toolbox,
    /// Key of the toolbox, for stages that depend on its tools.
    pub toolbox_key: &'a str,
    /// Signs the release, and what of it is not covered by that signature.
    pub signer: Option<&'a Signer>,
    /// Images of declared services.
    pub services: Vec<Declared>,
    /// Recipes of the box's own images.
    pub recipes: Vec<Recipe>,
    /// Sets of programs that the definition asks for beside those of every box.
    pub on_demand: Vec<&'static ModuleSet>,
}

impl<'a> Site<'a> {
    /// Reads the recipes that the definition asks for.
    pub fn new(
        at: &'a Builder,
        appliance: &'a Appliance,
        lock: Option<&'a Lock>,
        (toolbox, toolbox_key): (&'a Toolbox, &'a str),
        signer: Option<&'a Signer>,
    ) -> Result<Self> {
        let services = service::declared(&at.images(), &appliance.services)?;
        let recipes = Recipe::read_all(&at.images())?;
        let on_demand = on_demand(&at.images(), appliance)?;
        Ok(Self { at, appliance, lock, toolbox, toolbox_key, signer, services, recipes, on_demand })
    }

    fn lock(&self) -> Result<&'a Lock> {
        self.lock.context("there is no lock yet")
    }

    fn built(&self) -> u64 {
        self.lock.map_or(0, |lock| lock.made)
    }

    fn version(&self) -> String {
        self.appliance.kubernetes.version.to_string()
    }

    /// What of the lock a stage is made of, for the plan. A lock that lacks it is an error when the stage is made.
    fn debs(&self, of: impl FnOnce(&'a Lock) -> Result<Vec<Deb>>) -> Vec<Deb> {
        self.lock.and_then(|lock| of(lock).ok()).unwrap_or_default()
    }

    /// Brings packages into the cache, unless it is only looked at.
    fn fetch(&self, debs: &[Deb], say: Say<'_>) -> Result<()> {
        if !self.at.cache.only_looks() {
            fetch::debs(&self.at.cache, &self.at.network, debs, &mut |line| say(line))?;
        }
        Ok(())
    }

    /// Whether the network must not be used.
    fn offline(&self) -> bool {
        self.at.network.offline
    }

    fn packages(&self) -> PathBuf {
        self.at.packages()
    }

    /// These, the agent, and all sets of programs that the definition has.
    fn with_all_programs(&self, needs: &[&'static str]) -> Vec<&'static str> {
        let sets = with_programs(needs).into_iter().chain(self.on_demand.iter().map(|set| set.name));
        sets.chain(["agent"]).collect()
    }
}

/// What of a stage the box serves.
pub type Serves = fn(&Made) -> Result<Vec<ContentFile>>;

type Make<'a> = Box<dyn Fn(&Results, Say<'_>) -> Result<(Made, bool)> + Send + Sync + 'a>;

/// One stage of the build.
pub struct Stage<'a> {
    /// Its name, as `build` reports it.
    pub name: String,
    /// Under which name its times are kept: what is made in two ways takes two times.
    pub timed_as: String,
    /// What it is about, for the plan.
    pub note: String,
    /// Stages whose results it is made from; [`LOCK`] and [`KEY`] count, too.
    pub needs: Vec<String>,
    /// Packages that are fetched for it.
    pub debs: Vec<Deb>,
    /// Whether it compiles Go modules: that uses all cores, so one such stage runs at a time.
    pub go: bool,
    /// The file whose size counts in the plan; none: all files.
    pub main: Option<&'static str>,
    /// What of it the box serves.
    pub serves: Option<Serves>,
    make: Make<'a>,
}

impl<'a> Stage<'a> {
    fn new(
        name: impl Into<String>,
        note: impl Into<String>,
        needs: impl IntoIterator<Item = impl Into<String>>,
        make: impl Fn(&Results, Say<'_>) -> Result<(Made, bool)> + Send + Sync + 'a,
    ) -> Self {
        let name = name.into();
        Self {
            timed_as: name.clone(),
            name,
            note: note.into(),
            needs: needs.into_iter().map(Into::into).collect(),
            debs: Vec::new(),
            go: false,
            main: None,
            serves: None,
            make: Box::new(make),
        }
    }

    fn of_debs(self, debs: Vec<Deb>) -> Self {
        Self { debs, ..self }
    }

    fn counting(self, main: &'static str) -> Self {
        Self { main: Some(main), ..self }
    }

    fn serving(self, serves: Serves) -> Self {
        Self { serves: Some(serves), ..self }
    }

    /// Makes it or takes it from the cache. Everything it needs must be in `results`.
    pub fn make(&self, results: &Results, say: Say<'_>) -> Result<(Made, bool)> {
        (self.make)(results, say)
    }
}

/// What stages made, by name.
#[derive(Clone, Debug, Default)]
pub struct Results(pub BTreeMap<String, Made>);

impl Results {
    /// What the stage made.
    pub fn of(&self, name: &str) -> Result<&Made> {
        self.0.get(name).with_context(|| format!("the stage `{name}` has not been made"))
    }

    /// Programs of all sets as one, with the agent's `pause` once it is there.
    pub fn programs(&self) -> Result<Made> {
        let mut all = Made::default();
        for set in SETS {
            all.files.extend(self.of(set.name)?.files.clone());
        }
        if let Some(agent) = self.0.get("agent") {
            all.files.insert("pause".into(), agent.file("pause")?.clone());
        }
        Ok(all)
    }

    /// All programs but the agent's, those that were asked for among them.
    pub fn compiled(&self) -> Result<Made> {
        let mut all = self.programs()?;
        for made in ON_DEMAND.iter().filter_map(|set| self.0.get(set.name)) {
            all.files.extend(made.files.clone());
        }
        Ok(all)
    }

    /// All programs of the release, the agent's and those that were asked for among them.
    pub fn all_programs(&self) -> Result<Made> {
        let mut all = self.compiled()?;
        all.files.extend(self.of("agent")?.files.clone());
        Ok(all)
    }

    /// Templates, and what a new cluster begins with.
    pub fn templates(&self) -> Result<Made> {
        let mut all = self.of("templates")?.clone();
        all.files.extend(self.of(CLUSTER_STATE)?.files.clone());
        Ok(all)
    }

    /// What the images of services are made of, as far as they are there.
    pub fn services(&self, services: &[Declared]) -> Result<service::Images> {
        let mut images = service::Images::default();
        for (image, made) in services.iter().filter_map(|image| Some((image, self.0.get(&image.set())?))) {
            images.add(image, made)?;
        }
        Ok(images)
    }

    /// Which of these are not there yet.
    pub fn missing(&self, needs: &[String], given: &BTreeSet<&str>) -> Vec<String> {
        let there = |name: &String| given.contains(name.as_str()) || self.0.contains_key(name);
        needs.iter().filter(|name| !there(name)).cloned().collect()
    }
}

/// These, and the sets of programs of every box.
fn with_programs(needs: &[&'static str]) -> Vec<&'static str> {
    needs.iter().copied().chain(SETS.iter().map(|set| set.name)).collect()
}

#[cfg(test)]
mod tests;
