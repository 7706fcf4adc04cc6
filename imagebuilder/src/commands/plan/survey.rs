//! What a build would do: every stage looked up under its key, nothing made.
//!
//! The stages and their inputs are those of [`pipeline::release`](crate::pipeline::release), in the same order. A stage
//! whose inputs are results of stages that are to be made has no key yet: it comes after those.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_api::release::{Image, InitrdConfig};
use anyhow::{Context, Result};
use serde::Serialize;

use crate::config::{Appliance, OsImageSource};
use crate::content::debian::{self, Repository};
use crate::content::manifests::{self, inputs};
use crate::content::{images, os_images};
use crate::kubernetes::binaries::{Binaries, Source};
use crate::kubernetes::modules::{self, Build, KUBERNETES, ModuleSet, SETS};
use crate::kubernetes::templates;
use crate::layer::{agent, appliance, containers, kubernetes, os, seal};
use crate::lock::images::LockedImage;
use crate::lock::{Deb, Lock};
use crate::oci::recipe::Recipe as ContainerRecipe;
use crate::oci::service;
use crate::osimage::{self, recipe::Recipe};
use crate::problems::count;
use crate::ramdisk;
use crate::release::{initrd, sbom, sign};
use crate::store::{Cache, Made, NotMade};
use crate::toolbox::{Toolbox, bootstrap};

mod provisioning;

/// Where a build would find things. Only read.
pub struct Sources {
    /// The cache, for looking only.
    pub cache: Cache,
    /// Where `packages/`, `images/`, `overlay/` and the agent's sources are.
    pub workspace: PathBuf,
    /// Never use the network.
    pub offline: bool,
}

/// Whether a stage must be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "after")]
pub enum State {
    /// The cache has it, whole.
    Cached,
    /// It will be made.
    ToMake,
    /// It will be looked up, or made, when these are there.
    After(Vec<String>),
}

/// One stage of the build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// Its name, as `build` reports it.
    pub name: String,
    /// Whether it must be made.
    #[serde(flatten)]
    pub state: State,
    /// Bytes it made, once known.
    pub bytes: Option<u64>,
    /// What it is about.
    pub note: String,
}

/// What would be fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fetch {
    /// Debian packages that the stages to make need.
    pub packages: usize,
    /// Those that the cache does not have.
    pub missing: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Sets whose Go modules are fetched while they are compiled, as far as the cache does not have them.
    pub modules: Vec<String>,
    /// Published programs of Kubernetes that the cache does not have.
    pub programs: usize,
    /// Their bytes.
    pub program_bytes: u64,
    /// Blobs of container images that the cache does not have.
    pub image_blobs: usize,
    /// Their bytes.
    pub image_bytes: u64,
}

impl Fetch {
    fn add(&mut self, cache: &Cache, debs: &[Deb]) -> Result<()> {
        self.packages += debs.len();
        for deb in debs {
            if !cache.holds(&agent_api::release::Blob { digest: deb.sha256.clone(), size: deb.size })? {
                self.missing += 1;
                self.bytes += deb.size;
            }
        }
        Ok(())
    }
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Survey {
    /// The stages in their order.
    pub stages: Vec<Stage>,
    /// What would be fetched.
    pub fetch: Fetch,
    /// Bytes of all files that every image will hold, once all are known.
    pub content_bytes: Option<u64>,
}

/// Looks everything up.
pub fn survey(at: &Sources, appliance: &Appliance, lock: Option<&Lock>) -> Result<Survey> {
    let debs = lock.map(|lock| lock.packages("toolbox")).transpose()?;
    let tree = debs.map(|debs| bootstrap::tree_path(&at.cache, debs)).transpose()?.unwrap_or_default();
    let mut surveyor = Surveyor {
        at,
        appliance,
        lock,
        // Keys need the tree's name; nothing is run in it.
        toolbox: Toolbox::at(&tree, Path::new("")),
        key: tree.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        packages: at.workspace.join("packages"),
        survey: Survey::default(),
        made: BTreeMap::new(),
        services: service::declared(&at.workspace.join("images"), &appliance.services)?,
    };
    surveyor.toolbox(debs, bootstrap::is_complete(&tree))?;
    surveyor.os()?;
    surveyor.binaries()?;
    for set in modules::of(&appliance.kubernetes.source) {
        surveyor.modules(set)?;
    }
    surveyor.agent()?;
    surveyor.templates()?;
    surveyor.cluster_state()?;
    surveyor.kubernetes_layer()?;
    surveyor.service_images()?;
    surveyor.ramdisk()?;
    surveyor.containers_layer()?;
    surveyor.appliance_layer()?;
    surveyor.debian_repository()?;
    surveyor.images()?;
    surveyor.sbom()?;
    surveyor.os_images()?;
    surveyor.manifests()?;
    surveyor.initrd()?;
    surveyor.survey.content_bytes = surveyor.content_bytes()?;
    Ok(surveyor.survey)
}

struct Surveyor<'a> {
    at: &'a Sources,
    appliance: &'a Appliance,
    lock: Option<&'a Lock>,
    toolbox: Toolbox,
    key: String,
    packages: PathBuf,
    survey: Survey,
    /// Results that the cache has.
    made: BTreeMap<String, Made>,
    /// Images of declared services.
    services: Vec<service::Declared>,
}

fn silent(_: &str) {}

/// Name of the step that writes the lock, for stages that wait for it.
const LOCK: &str = "lock";
/// What the initrd waits for when the user has no development key yet: the first build makes it.
const KEY: &str = "development key";

impl Surveyor<'_> {
    fn push(&mut self, name: &str, state: State, bytes: Option<u64>, note: String) {
        self.survey.stages.push(Stage { name: name.to_owned(), state, bytes, note });
    }

    /// Records what looking for a stage came to. `main`: the file whose size counts; none: all files.
    fn found(&mut self, name: &str, looked: Result<(Made, bool)>, main: Option<&str>, note: String) -> Result<()> {
        match looked {
            Ok((made, _)) => {
                let all = || made.files.values().map(|blob| blob.size).sum();
                let bytes = main.and_then(|main| made.files.get(main)).map_or_else(all, |blob| blob.size);
                self.push(name, State::Cached, Some(bytes), note);
                self.made.insert(name.to_owned(), made);
                Ok(())
            }
            Err(error) if error.downcast_ref::<NotMade>().is_some() => {
                self.push(name, State::ToMake, None, note);
                Ok(())
            }
            Err(error) => Err(error.context(format!("planning `{name}`"))),
        }
    }

    /// Which of these results are not there yet.
    fn missing(&self, needed: &[&str]) -> Vec<String> {
        let there = |name: &str| if name == LOCK { self.lock.is_some() } else { self.made.contains_key(name) };
        needed.iter().filter(|name| !there(name)).map(|name| (*name).to_owned()).collect()
    }

    /// Whether all of these results are there; otherwise records that the stage waits for those that are not.
    fn ready(&mut self, name: &str, needed: &[&str], note: &str) -> bool {
        let missing = self.missing(needed);
        let ready = missing.is_empty();
        if !ready {
            self.push(name, State::After(missing), None, note.to_owned());
        }
        ready
    }

    fn toolbox(&mut self, debs: Option<&[Deb]>, complete: bool) -> Result<()> {
        let Some(debs) = debs else {
            self.ready("toolbox", &[LOCK], "foreign tools");
            return Ok(());
        };
        let note = format!("foreign tools: {} packages", debs.len());
        self.push("toolbox", if complete { State::Cached } else { State::ToMake }, None, note);
        if complete { Ok(()) } else { self.survey.fetch.add(&self.at.cache, debs) }
    }

    fn os(&mut self) -> Result<()> {
        let Some(lock) = self.lock else {
            self.ready("os", &[LOCK], "Debian and kernel");
            return Ok(());
        };
        let debs = [lock.packages("os")?, lock.packages("kernel")?].concat();
        let looked = os::recall(&os::Input {
            cache: &self.at.cache,
            toolbox: &self.toolbox,
            toolbox_key: &self.key,
            lock,
            packages: &self.packages,
            waiting: &silent,
        })?;
        if looked.is_none() {
            self.survey.fetch.add(&self.at.cache, &debs)?;
        }
        let looked = looked.map(|made| (made, true)).ok_or_else(|| NotMade.into());
        self.found("os", looked, Some("os"), format!("Debian and kernel: {} packages", debs.len()))
    }

    /// Kubernetes' own programs, when they are not built.
    fn binaries(&mut self) -> Result<()> {
        let Some(source) = Source::of(&self.appliance.kubernetes.source) else { return Ok(()) };
        let (name, programs) = (KUBERNETES.name, count(KUBERNETES.programs.len(), "program"));
        let note = format!("{source}: {programs}");
        let Some(lock) = self.lock else {
            self.ready(name, &[LOCK], &note);
            return Ok(());
        };
        if let Source::Upstream(_) = source {
            for blob in lock.binaries.values() {
                if !self.at.cache.holds(blob)? {
                    self.survey.fetch.programs += 1;
                    self.survey.fetch.program_bytes += blob.size;
                }
            }
        }
        let version = self.appliance.kubernetes.version.to_string();
        let binaries =
            Binaries { cache: &self.at.cache, source, version: &version, offline: self.at.offline, waiting: &silent };
        let looked = binaries.make(&lock.binaries, &|_| Err(NotMade.into()));
        self.found(name, looked, None, note)
    }

    fn modules(&mut self, set: &ModuleSet) -> Result<()> {
        let own = set.digest(&self.packages)?;
        let expected = match self.lock {
            // A new lock would hold what is there now.
            None => &own,
            Some(lock) => lock.module_set(set.name)?,
        };
        let looked = set.build(&Build {
            cache: &self.at.cache,
            toolbox: &self.toolbox,
            packages: &self.packages,
            locked: expected,
            offline: self.at.offline,
            waiting: &silent,
        });
        let programs = count(set.programs.len(), "program");
        let note = format!("Go modules {}: {programs}", set.version(&self.packages)?);
        self.found(set.name, looked, None, note)?;
        if !self.made.contains_key(set.name) {
            self.survey.fetch.modules.push(set.name.to_owned());
        }
        Ok(())
    }

    fn agent(&mut self) -> Result<()> {
        let looked = agent::make(&self.at.cache, &self.at.workspace, self.at.offline, &silent);
        self.found("agent", looked, None, "the box's own program".to_owned())
    }

    fn templates(&mut self) -> Result<()> {
        let note = "what kubeadm renders";
        if !self.ready("templates", &["kubernetes"], note) {
            return Ok(());
        }
        let looked = templates::make(&templates::Input {
            cache: &self.at.cache,
            toolbox: &self.toolbox,
            kubeadm: self.made["kubernetes"].file("kubeadm")?,
            appliance: self.appliance,
            packages: &self.packages,
            waiting: &silent,
        });
        self.found("templates", looked, None, note.to_owned())
    }

    /// Programs of all sets as one, with the agent's `pause`.
    fn programs(&self) -> Result<Made> {
        let mut all = Made::default();
        for set in SETS {
            all.files.extend(self.made[set.name].files.clone());
        }
        if let Some(agent) = self.made.get("agent") {
            all.files.insert("pause".into(), agent.file("pause")?.clone());
        }
        Ok(all)
    }

    fn cluster_state(&mut self) -> Result<()> {
        let (name, note) = ("cluster-state", "what a new cluster begins with");
        if !self.ready(name, &needed(&["templates"]), note) {
            return Ok(());
        }
        let looked = templates::state(&templates::StateInput {
            cache: &self.at.cache,
            toolbox: &self.toolbox,
            helper: Path::new("foothold"),
            programs: &self.programs()?,
            templates: &self.made["templates"],
            waiting: &silent,
        });
        self.found(name, looked, None, note.to_owned())
    }

    fn kubernetes_layer(&mut self) -> Result<()> {
        let (name, note) = ("kubernetes-layer", "kubelet, containerd, CNI plugins");
        // The agent's `pause` is among the programs, whichever of them the layer takes.
        if !self.ready(name, &needed(&[LOCK]), note) {
            return Ok(());
        }
        let (cache, built) = (&self.at.cache, self.built());
        let looked = kubernetes::make(cache, &self.toolbox, &self.key, &self.programs()?, built, &silent);
        self.found(name, looked, Some("kubernetes"), note.to_owned())
    }

    fn containers_layer(&mut self) -> Result<()> {
        let recipes = ContainerRecipe::read_all(&self.at.workspace.join("images"))?;
        let sets: Vec<String> = self.services.iter().map(service::Declared::set).collect();
        let (name, note) = ("containers-layer", format!("{} images, unpacked", recipes.len() + sets.len()));
        let parts: Vec<&str> = needed(&[LOCK, "agent"]).into_iter().chain(sets.iter().map(String::as_str)).collect();
        if !self.ready(name, &parts, &note) {
            return Ok(());
        }
        let services = self.services()?.packed;
        let looked = containers::make(&containers::Input {
            cache: &self.at.cache,
            toolbox: &self.toolbox,
            toolbox_key: &self.key,
            programs: &self.programs()?,
            debs: self.lock.context("a lock")?.packages("os")?,
            recipes: &recipes,
            services: &services,
            version: &self.appliance.kubernetes.version.to_string(),
            built: self.built(),
            fetch: &|_| Ok(()),
            waiting: &silent,
        });
        self.found(name, looked, Some("containers"), note)
    }

    fn appliance_layer(&mut self) -> Result<()> {
        let (name, note) = ("appliance-layer", "agent, templates, overlay");
        let sets: Vec<String> = self.services.iter().map(service::Declared::set).collect();
        let parts = [LOCK, "agent", "templates", "cluster-state"];
        let parts: Vec<&str> = parts.into_iter().chain(sets.iter().map(String::as_str)).collect();
        if !self.ready(name, &parts, note) {
            return Ok(());
        }
        let mut templates = self.made["templates"].clone();
        templates.files.extend(self.made["cluster-state"].files.clone());
        let looked = appliance::make(&appliance::Input {
            cache: &self.at.cache,
            toolbox: &self.toolbox,
            toolbox_key: &self.key,
            agent: &self.made["agent"],
            templates: &templates,
            services: &self.services()?.exports,
            overlay: &self.at.workspace.join("overlay"),
            built: self.built(),
            waiting: &silent,
        });
        self.found(name, looked, Some("appliance"), note.to_owned())
    }

    fn debian_repository(&mut self) -> Result<()> {
        let asked = &self.appliance.content.debian_packages;
        let (name, note) = ("debian-repository", format!("{}, with what they need", count(asked.len(), "package")));
        let signer = sign::existing_signer(self.appliance.sign.as_ref())?;
        if signer.is_some() {
            self.made.insert(KEY.to_owned(), Made::default());
        }
        if asked.is_empty() || !self.ready(name, &[LOCK, KEY], &note) {
            return Ok(());
        }
        let (lock, signer) = (self.lock.context("a lock")?, signer.context("a key")?);
        let debs = lock.packages_for(debian::SET, asked)?;
        let repository = Repository { cache: &self.at.cache, debs, made: lock.made, waiting: &silent };
        let looked = repository.make(&debian::repository_key(&signer)?, &|_| Ok(()));
        if looked.is_err() {
            self.survey.fetch.add(&self.at.cache, debs)?;
        }
        self.found(name, looked, None, note)
    }

    fn images(&mut self) -> Result<()> {
        let Some(lock) = self.lock.filter(|lock| !lock.images.is_empty()) else { return Ok(()) };
        let missing = images::missing(&self.at.cache, self.appliance, lock)?;
        let all = lock.images.values().flat_map(LockedImage::pieces);
        let note = format!("{}, by digest", count(lock.images.len(), "container image"));
        for piece in missing.iter().flat_map(|(_, image)| image.pieces()) {
            if !self.at.cache.holds(&piece.blob())? {
                self.survey.fetch.image_blobs += 1;
                self.survey.fetch.image_bytes += piece.size;
            }
        }
        let state = if missing.is_empty() { State::Cached } else { State::ToMake };
        self.push("images", state, Some(all.map(|piece| piece.size).sum()), note);
        Ok(())
    }

    fn sbom(&mut self) -> Result<()> {
        let (name, note) = ("sbom", "Go modules and crates of the programs");
        if !self.ready(name, &needed(&["agent"]), note) {
            return Ok(());
        }
        let (at, programs) = (self.at, self.all_programs()?);
        let looked = sbom::parts::make(&at.cache, &at.workspace, &programs, true, &silent);
        self.found(name, looked, None, note.to_owned())
    }

    fn os_images(&mut self) -> Result<()> {
        for image in &self.appliance.content.os_images {
            let OsImageSource::Recipe { directory, formats } = &image.source else { continue };
            let (recipe, name) = (Recipe::read(directory)?, format!("{OS_IMAGE}{}", image.name));
            let note = format!("a server's disk: {}", count(recipe.packages.len(), "package"));
            let parts = if recipe.programs.is_empty() { vec![LOCK] } else { needed(&[LOCK, "agent"]) };
            if !self.ready(&name, &parts, &note) {
                continue;
            }
            let lock = self.lock.context("a lock")?;
            let debs = lock.packages_for(&os_images::set(image.name.as_str()), &recipe.packages)?;
            let programs = if recipe.programs.is_empty() { Made::default() } else { self.all_programs()? };
            let looked = osimage::make(&osimage::Input {
                cache: &self.at.cache,
                toolbox: &self.toolbox,
                toolbox_key: &self.key,
                recipe: &recipe,
                directory,
                debs,
                programs: &programs,
                formats,
                built: lock.made,
                waiting: &silent,
            });
            if looked.is_err() {
                self.survey.fetch.add(&self.at.cache, debs)?;
            }
            self.found(&name, looked, None, note)?;
        }
        Ok(())
    }

    /// Helm, when there are charts, and what it and kustomize render.
    fn manifests(&mut self) -> Result<()> {
        let sources = inputs::sources(&self.appliance.content, &self.appliance.directory)?;
        if sources.is_empty() {
            return Ok(());
        }
        let (name, note) = ("manifests", count(sources.len(), "manifest or chart"));
        let mut needed = vec![KUBERNETES.name];
        if !self.appliance.content.charts.is_empty() {
            self.modules(&modules::HELM)?;
            needed.push(modules::HELM.name);
        }
        if !self.ready(name, &needed, &note) {
            return Ok(());
        }
        let mut tools = self.made.get(modules::HELM.name).cloned().unwrap_or_default();
        tools.files.insert("kubectl".into(), self.made[KUBERNETES.name].file("kubectl")?.clone());
        let version = self.appliance.kubernetes.version.to_string();
        let (cache, toolbox) = (&self.at.cache, &self.toolbox);
        let stage = manifests::Stage { cache, toolbox, tools: &tools, version: &version, waiting: &silent };
        let looked = stage.make(&sources);
        self.found(name, looked, None, note)
    }

    fn initrd(&mut self) -> Result<()> {
        let (name, note) = ("initrd", "agent, kernel modules, public key");
        let public_key = sign::existing_signer(self.appliance.sign.as_ref())?.map(|signer| signer.public_key);
        if public_key.is_some() {
            self.made.insert(KEY.to_owned(), Made::default());
        }
        if !self.ready(name, &[LOCK, "os", "agent", KEY], note) {
            return Ok(());
        }
        let looked = initrd::make(&initrd::Input {
            cache: &self.at.cache,
            agent: &self.made["agent"],
            os: &self.made["os"],
            public_key: &public_key.unwrap_or_default(),
            config: InitrdConfig {
                name: self.appliance.name.to_string(),
                version: self.appliance.version.to_string(),
                built: self.built(),
            },
        });
        self.found(name, looked, None, note.to_owned())
    }

    fn built(&self) -> u64 {
        self.lock.map_or(0, |lock| lock.made)
    }

    /// Layers, blobs of images, kernel, initrd, and files that are served: what every format carries.
    fn content_bytes(&self) -> Result<Option<u64>> {
        let names = ["os", "kubernetes-layer", "containers-layer", "appliance-layer", "initrd"];
        if !self.missing(&names).is_empty() {
            return Ok(None);
        }
        let mut blobs = vec![self.made["os"].file(os::KERNEL)?.clone(), self.made["initrd"].file("initrd")?.clone()];
        for name in &names[..4] {
            blobs.push(seal::blob_of(&seal::layer_of(&self.made[*name])?));
        }
        let images: Vec<Image> = self.made["containers-layer"].fact("images")?;
        blobs.extend(images.into_iter().flat_map(|image| image.blobs));
        let served = |name: &str| ["manifests", ramdisk::SET].contains(&name) || name.starts_with(OS_IMAGE);
        for (_, made) in self.made.iter().filter(|(name, _)| served(name)) {
            blobs.extend(made.files.values().cloned());
        }
        blobs.sort_by(|a, b| a.digest.cmp(&b.digest));
        blobs.dedup();
        Ok(Some(blobs.iter().map(|blob| blob.size).sum()))
    }
}

/// What the names of OS images' stages begin with.
const OS_IMAGE: &str = "os-image ";

/// All module sets, and these.
fn needed(more: &[&'static str]) -> Vec<&'static str> {
    more.iter().copied().chain(SETS.iter().map(|set| set.name)).collect()
}
