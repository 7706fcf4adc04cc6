//! Stages of the box's own system: Debian, programs, what kubeadm renders, layers, images of services.

use std::collections::BTreeMap;
use std::path::Path;

use agent_api::release::Blob;
use anyhow::Result;

use super::carried::helm_of_charts;
use super::{CLUSTER_STATE, LOCK, Results, Site, Stage, versions, with_programs};
use crate::builder::AgentProfile;
use crate::kubernetes::binaries::{self, Binaries, Source};
use crate::kubernetes::modules::{self, Build, KUBERNETES, ModuleSet};
use crate::kubernetes::templates as rendered;
use crate::layer::{agent, appliance, containers, kubernetes, os};
use crate::lock::Lock;
use crate::oci::service;
use crate::problems::count;
use crate::ramdisk::{self, Ramdisk};
use crate::store::{Made, NotMade};

/// All of them.
pub fn system<'a>(site: &'a Site<'_>) -> Result<Vec<Stage<'a>>> {
    let mut stages = vec![os_layer(site)];
    stages.extend(programs(site)?);
    stages.extend(on_demand(site)?);
    stages.extend(versions::programs(site)?);
    stages.extend([agent_programs(site), templates(site), cluster_state(site), kubernetes_layer(site)]);
    stages.extend(site.services.iter().map(|image| service_image(site, image)));
    stages.extend(Ramdisk::declared(&site.at.images(), &site.appliance.services)?.map(|one| deploy_ramdisk(site, one)));
    stages.extend([containers_layer(site), appliance_layer(site)]);
    Ok(stages)
}

fn os_layer<'a>(site: &'a Site<'_>) -> Stage<'a> {
    let debs = site.debs(|lock| Ok([lock.packages("os")?, lock.packages("kernel")?].concat()));
    let note = match site.lock {
        Some(_) => format!("Debian and kernel: {} packages", debs.len()),
        None => "Debian and kernel".to_owned(),
    };
    let make = move |_: &Results, say: super::Say<'_>| {
        let (lock, packages, at) = (site.lock()?, site.packages(), site.at);
        let (cache, toolbox, toolbox_key) = (&at.cache, site.toolbox, site.toolbox_key);
        let input = os::Input { cache, toolbox, toolbox_key, lock, packages: &packages, waiting: say };
        if os::recall(&input)?.is_none() {
            site.fetch(&[lock.packages("os")?, lock.packages("kernel")?].concat(), say)?;
        }
        os::make(&input)
    };
    Stage::new("os", note, [LOCK], make).of_debs(debs).counting("os")
}

/// The programs of every box but the agent: Kubernetes' own, which may come from elsewhere, and the module sets.
pub fn programs<'a>(site: &'a Site<'_>) -> Result<Vec<Stage<'a>>> {
    let source = &site.appliance.kubernetes.source;
    let elsewhere = Source::of(source)
        .map(|source| kubernetes_programs(site, KUBERNETES.name, source, site.version(), |lock| &lock.binaries));
    let sets = modules::of(source).map(|set| module_set(site, set)).collect::<Result<Vec<_>>>()?;
    Ok(elsewhere.into_iter().chain(sets).collect())
}

fn on_demand<'a>(site: &'a Site<'_>) -> Result<Vec<Stage<'a>>> {
    site.on_demand.iter().map(|set| module_set(site, set)).collect()
}

/// Every program that is compiled from Go modules or comes from elsewhere: those of every box, those that the definition
/// asks for, those of other releases of Kubernetes, and Helm for its charts.
pub fn all_programs<'a>(site: &'a Site<'_>) -> Result<Vec<Stage<'a>>> {
    let others = versions::programs(site)?;
    Ok(programs(site)?.into_iter().chain(on_demand(site)?).chain(others).chain(helm_of_charts(site)?).collect())
}

/// Kubernetes' own programs of a release, when they are not built. `locked`: those of the lock.
pub(super) fn kubernetes_programs<'a>(
    site: &'a Site<'_>,
    name: &str,
    source: Source<'a>,
    version: String,
    locked: impl Fn(&Lock) -> &BTreeMap<String, Blob> + Send + Sync + 'a,
) -> Stage<'a> {
    let note = format!("{source}: {}", count(KUBERNETES.programs.len(), "program"));
    Stage::new(name, note, [LOCK], move |_, say| {
        let cache = &site.at.cache;
        let binaries =
            Binaries { cache, source: source.clone(), version: &version, offline: site.offline(), waiting: say };
        let ask = |program: &Path| {
            if cache.only_looks() { Err(NotMade.into()) } else { binaries::ask_version(site.toolbox, program) }
        };
        binaries.make(locked(site.lock()?), &ask)
    })
}

/// A set of programs that are compiled from Go modules.
pub(super) fn module_set<'a>(site: &'a Site<'_>, set: &'a ModuleSet) -> Result<Stage<'a>> {
    let programs = count(set.programs.len(), "program");
    let note = format!("Go modules {}: {programs}", set.version(&site.packages())?);
    let stage = Stage::new(set.name, note, [""; 0], move |_, say| {
        let packages = site.packages();
        // A new lock would hold what is there now.
        let own = set.digest(&packages)?;
        let locked = site.lock.map_or(Ok(&own), |lock| lock.module_set(set.name))?;
        let (cache, toolbox, offline) = (&site.at.cache, site.toolbox, site.offline());
        set.build(&Build { cache, toolbox, packages: &packages, locked, offline, waiting: say })
    });
    Ok(Stage { go: true, ..stage })
}

fn agent_programs<'a>(site: &'a Site<'_>) -> Stage<'a> {
    let profile = site.at.agent;
    let note = match profile {
        AgentProfile::Site => "the box's own program".to_owned(),
        AgentProfile::Development => format!("the box's own program, {}", AgentProfile::DEVELOPMENT),
    };
    let make = move |_: &Results, say: super::Say<'_>| {
        agent::make(&site.at.cache, &site.at.workspace, profile, site.offline(), say)
    };
    Stage { timed_as: profile.name().to_owned(), ..Stage::new("agent", note, [""; 0], make) }
}

/// What kubeadm renders.
pub fn templates<'a>(site: &'a Site<'_>) -> Stage<'a> {
    Stage::new("templates", "what kubeadm renders", [KUBERNETES.name], move |results, say| {
        rendered::make(&rendered::Input {
            cache: &site.at.cache,
            toolbox: site.toolbox,
            kubeadm: results.of(KUBERNETES.name)?.file("kubeadm")?,
            appliance: site.appliance,
            packages: &site.packages(),
            waiting: say,
        })
    })
}

/// What a new cluster begins with.
pub fn cluster_state<'a>(site: &'a Site<'_>) -> Stage<'a> {
    Stage::new(CLUSTER_STATE, "what a new cluster begins with", with_programs(&["templates"]), move |results, say| {
        rendered::state(&rendered::StateInput {
            cache: &site.at.cache,
            toolbox: site.toolbox,
            helper: &site.at.helper,
            programs: &results.programs()?,
            templates: results.of("templates")?,
            waiting: say,
        })
    })
}

fn kubernetes_layer<'a>(site: &'a Site<'_>) -> Stage<'a> {
    let make = move |results: &Results, say: super::Say<'_>| {
        let (cache, programs) = (&site.at.cache, results.programs()?);
        kubernetes::make(cache, site.toolbox, site.toolbox_key, &programs, site.built(), say)
    };
    Stage::new("kubernetes-layer", "kubelet, containerd, CNI plugins", with_programs(&[LOCK]), make)
        .counting("kubernetes")
}

/// What a stage needs that holds programs of the release, or none of them.
fn maybe_programs(site: &Site<'_>, has_programs: bool) -> Vec<&'static str> {
    if has_programs { site.with_all_programs(&[LOCK]) } else { vec![LOCK] }
}

fn service_image<'a>(site: &'a Site<'_>, image: &'a service::Declared) -> Stage<'a> {
    let note = format!("the image `{}`", image.recipe.reference);
    let has_programs = image.programs().next().is_some();
    let debs = site.debs(|lock| Ok(image.packages(lock)?.to_vec()));
    let make = move |results: &Results, say: super::Say<'_>| {
        let programs = if has_programs { results.all_programs()? } else { Made::default() };
        let (lock, toolbox, toolbox_key) = (site.lock()?, site.toolbox, site.toolbox_key);
        let input = service::Input { lock, toolbox, toolbox_key, programs: &programs };
        service::make(site.at, image, &input, say)
    };
    Stage::new(image.set(), note, maybe_programs(site, has_programs), make).of_debs(debs)
}

fn deploy_ramdisk<'a>(site: &'a Site<'_>, ramdisk: Ramdisk) -> Stage<'a> {
    let has_programs = !ramdisk.recipe.programs.is_empty();
    let debs = site.debs(|lock| Ok(ramdisk.packages(lock)?.concat()));
    let make = move |results: &Results, say: super::Say<'_>| {
        let programs = if has_programs { results.all_programs()? } else { Made::default() };
        let (lock, toolbox, toolbox_key) = (site.lock()?, site.toolbox, site.toolbox_key);
        let input = ramdisk::Input { lock, toolbox, toolbox_key, programs: &programs, lists: site.packages() };
        ramdisk.make(site.at, &input, say)
    };
    let note = "what servers run while they are installed";
    Stage::new(ramdisk::SET, note, maybe_programs(site, has_programs), make).of_debs(debs).serving(ramdisk::files)
}

/// Images of services that the box itself runs.
fn own_services<'a>(site: &'a Site<'_>) -> impl Iterator<Item = &'a service::Declared> {
    site.services.iter().filter(|image| !image.extra.carried)
}

/// Names of their stages.
fn service_names(site: &Site<'_>) -> impl Iterator<Item = String> {
    own_services(site).map(service::Declared::set)
}

fn containers_layer<'a>(site: &'a Site<'_>) -> Stage<'a> {
    let note = format!("{} images, unpacked", site.recipes.len() + own_services(site).count());
    let needs = with_programs(&[LOCK, "agent"]).into_iter().map(str::to_owned).chain(service_names(site));
    let make = move |results: &Results, say: super::Say<'_>| {
        containers::make(&containers::Input {
            cache: &site.at.cache,
            toolbox: site.toolbox,
            toolbox_key: site.toolbox_key,
            programs: &results.programs()?,
            debs: site.lock()?.packages("os")?,
            recipes: &site.recipes,
            services: &results.services(&site.services)?.packed,
            version: &site.version(),
            built: site.built(),
            fetch: &|debs| site.fetch(debs, say),
            waiting: say,
        })
    };
    Stage::new("containers-layer", note, needs, make).counting("containers")
}

fn appliance_layer<'a>(site: &'a Site<'_>) -> Stage<'a> {
    let needs = [LOCK, "agent", "templates", CLUSTER_STATE].map(str::to_owned).into_iter().chain(service_names(site));
    let make = move |results: &Results, say: super::Say<'_>| {
        appliance::make(&appliance::Input {
            cache: &site.at.cache,
            toolbox: site.toolbox,
            toolbox_key: site.toolbox_key,
            agent: results.of("agent")?,
            templates: &results.templates()?,
            services: &results.services(&site.services)?.exports,
            overlay: &site.at.workspace.join("overlay"),
            built: site.built(),
            waiting: say,
        })
    };
    Stage::new("appliance-layer", "agent, templates, overlay", needs, make).counting("appliance")
}
