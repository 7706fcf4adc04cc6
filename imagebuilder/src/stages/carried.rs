//! Stages of what an image carries beside the box's own system, and of what starts and describes it.

use agent_api::release::InitrdConfig;
use anyhow::{Context, Result};

use super::system::module_set;
use super::{CLUSTER_STATE, KEY, LOCK, OS_IMAGE, Results, Say, Site, Stage, versions};
use crate::config::{OsImage, OsImageSource, ServiceName};
use crate::content::clusters;
use crate::content::debian::{self, Repository};
use crate::content::manifests::{self, ClusterApi};
use crate::content::os_images;
use crate::kubernetes::modules::{HELM, KUBERNETES};
use crate::kubernetes::templates::API_VERSIONS;
use crate::osimage::recipe::Recipe;
use crate::problems::count;
use crate::release::{initrd, sbom};
use crate::store::Made;

/// All of them.
pub fn carried<'a>(site: &'a Site<'_>) -> Result<Vec<Stage<'a>>> {
    let mut stages = Vec::new();
    stages.extend(debian_repository(site));
    stages.push(parts_list(site));
    for image in &site.appliance.content.os_images {
        stages.extend(os_image(site, image)?);
    }
    stages.extend(cluster_stages(site)?);
    stages.extend(rendered_manifests(site)?);
    stages.push(initramfs(site));
    Ok(stages)
}

fn debian_repository<'a>(site: &'a Site<'_>) -> Option<Stage<'a>> {
    let asked = &site.appliance.content.debian_packages;
    if asked.is_empty() {
        return None;
    }
    let note = format!("{}, with what they need", count(asked.len(), "package"));
    let debs = site.debs(|lock| Ok(lock.packages_for(debian::SET, asked)?.to_vec()));
    let make = move |_: &Results, say: Say<'_>| {
        let (cache, lock, signer) = (&site.at.cache, site.lock()?, site.signer.context("there is no key yet")?);
        let debs = lock.packages_for(debian::SET, asked)?;
        let repository = Repository { cache, debs, made: lock.made, waiting: say };
        repository.make(&debian::repository_key(signer)?, &|debs| site.fetch(debs, say))
    };
    Some(Stage::new("debian-repository", note, [LOCK, KEY], make).of_debs(debs).serving(debian::files))
}

fn parts_list<'a>(site: &'a Site<'_>) -> Stage<'a> {
    let needs = site.with_all_programs(&[]).into_iter().map(str::to_owned).chain(versions::names(site));
    Stage::new("sbom", "Go modules and crates of the programs", needs, move |results, say| {
        let at = site.at;
        sbom::parts::make(&at.cache, &at.workspace, &versions::with_others(site, results)?, at.network.offline, say)
    })
}

/// An OS image that a recipe makes. Those that come ready are no stage: they are fetched.
fn os_image<'a>(site: &'a Site<'_>, image: &'a OsImage) -> Result<Option<Stage<'a>>> {
    let OsImageSource::Recipe { directory, formats } = &image.source else { return Ok(None) };
    let recipe = Recipe::read(directory)?;
    let note = format!("a server's disk: {}", count(recipe.packages.len(), "package"));
    let needs = if recipe.programs.is_empty() { vec![LOCK] } else { site.with_all_programs(&[LOCK]) };
    let set = os_images::set(image.name.as_str());
    let debs = site.debs(|lock| Ok(lock.packages_for(&set, &recipe.packages)?.to_vec()));
    let make = move |results: &Results, say: Say<'_>| {
        let programs = if recipe.programs.is_empty() { Made::default() } else { results.all_programs()? };
        let lock = site.lock()?;
        let input = crate::osimage::Input {
            cache: &site.at.cache,
            toolbox: site.toolbox,
            toolbox_key: site.toolbox_key,
            recipe: &recipe,
            directory,
            debs: lock.packages_for(&set, &recipe.packages)?,
            programs: &programs,
            formats,
            built: lock.made,
            waiting: say,
        };
        if crate::osimage::recall(&input)?.is_none() {
            site.fetch(input.debs, say)?;
        }
        crate::osimage::make(&input)
    };
    Ok(Some(Stage::new(format!("{OS_IMAGE}{}", image.name), note, needs, make).of_debs(debs)))
}

/// What servers become nodes of a cluster with: of the box's own release of Kubernetes, and of others.
fn cluster_stages<'a>(site: &'a Site<'_>) -> Result<Vec<Stage<'a>>> {
    if !site.appliance.services.has(ServiceName::Clusters) {
        return Ok(Vec::new());
    }
    let flannel = clusters::flannel(&site.at.images(), &site.packages())?;
    let others = versions::served(site, &flannel);
    let make = move |results: &Results, say: Say<'_>| {
        let own = results.all_programs()?;
        clusters::make(&site.at.cache, (&own, &own), &site.version(), &flannel, say)
    };
    let own = Stage::new("clusters", clusters::NOTE, site.with_all_programs(&[]), make).serving(clusters::files);
    Ok([own].into_iter().chain(others).collect())
}

/// Helm, when there are charts and nothing else asks for it.
pub(super) fn helm_of_charts<'a>(site: &'a Site<'_>) -> Result<Option<Stage<'a>>> {
    let asked = site.on_demand.iter().any(|set| set.name == HELM.name);
    if asked || site.appliance.content.charts.is_empty() { Ok(None) } else { module_set(site, &HELM).map(Some) }
}

/// Helm, when there are charts, and what it and kustomize render.
pub fn rendered_manifests<'a>(site: &'a Site<'_>) -> Result<Vec<Stage<'a>>> {
    let content = &site.appliance.content;
    let sources = manifests::sources(site.at, site.appliance, site.lock)?;
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    let mut stages = Vec::new();
    let needs_helm = !content.charts.is_empty();
    let mut needs = vec![KUBERNETES.name];
    if needs_helm {
        stages.extend(helm_of_charts(site)?);
        // Charts are told what the box's API server serves.
        needs.extend([HELM.name, CLUSTER_STATE]);
    }
    let note = count(sources.len(), "manifest or chart");
    let make = move |results: &Results, say: Say<'_>| {
        let versions = match results.0.get(CLUSTER_STATE) {
            Some(state) if needs_helm => state.fact(API_VERSIONS)?,
            _ => Vec::new(),
        };
        let api = ClusterApi::new(versions, site.appliance.services.provisioning.is_some());
        let mut tools = results.0.get(HELM.name).cloned().unwrap_or_default();
        tools.files.insert("kubectl".into(), results.of(KUBERNETES.name)?.file("kubectl")?.clone());
        let (cache, toolbox, version) = (&site.at.cache, site.toolbox, site.version());
        manifests::Stage { cache, toolbox, tools: &tools, version: &version, api: &api, waiting: say }.make(&sources)
    };
    stages.push(Stage::new("manifests", note, needs, make).serving(|made| Ok(manifests::files(made))));
    Ok(stages)
}

fn initramfs<'a>(site: &'a Site<'_>) -> Stage<'a> {
    Stage::new("initrd", "agent, kernel modules, public key", [LOCK, "os", "agent", KEY], move |results, _| {
        let appliance = site.appliance;
        initrd::make(&initrd::Input {
            cache: &site.at.cache,
            agent: results.of("agent")?,
            os: results.of("os")?,
            public_key: &site.signer.context("there is no key yet")?.public_key,
            config: InitrdConfig {
                name: appliance.name.to_string(),
                version: appliance.version.to_string(),
                built: site.built(),
            },
        })
    })
}
