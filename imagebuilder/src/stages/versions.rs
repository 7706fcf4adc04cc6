//! Stages of other releases of Kubernetes than the box's own, for clusters of servers: programs, images, and what nodes fetch.

use agent_api::release::Image;
use anyhow::{Context, Result};

use super::system::{kubernetes_programs, module_set};
use super::{LOCK, Results, Say, Site, Stage};
use crate::config::ClusterVersion;
use crate::content::{clusters, versions};
use crate::kubernetes::binaries::Source;
use crate::kubernetes::modules;
use crate::store::Made;

/// The releases.
fn all(site: &Site<'_>) -> impl Iterator<Item = String> {
    site.appliance.services.cluster_versions().iter().map(|other| other.version.to_string())
}

/// Name of the stage with the programs of a release.
fn programs_of(version: &str) -> String {
    format!("kubernetes {version}")
}

/// Name of the stage with its images.
fn images_of(version: &str) -> String {
    format!("cluster-images {version}")
}

/// Their programs.
pub fn programs<'a>(site: &'a Site<'_>) -> Result<Vec<Stage<'a>>> {
    let one = |other: &'a ClusterVersion| {
        let version = other.version.to_string();
        let name = programs_of(&version);
        if let Some(source) = Source::of(&other.source) {
            let locked = version.clone();
            return Ok(kubernetes_programs(site, &name, source, version, move |lock| lock.binaries_of(&locked)));
        }
        let set = modules::other(&version).with_context(|| format!("no modules of {version} are pinned"))?;
        Ok(Stage { name, ..module_set(site, set)? })
    };
    site.appliance.services.cluster_versions().iter().map(one).collect()
}

/// Their images, and what nodes fetch. `flannel`: its manifest.
pub fn served<'a>(site: &'a Site<'_>, flannel: &str) -> Vec<Stage<'a>> {
    let of = |version: String| [images(site, version.clone()), files(site, version, flannel.to_owned())];
    all(site).flat_map(of).collect()
}

fn images<'a>(site: &'a Site<'_>, version: String) -> Stage<'a> {
    let programs = programs_of(&version);
    let needs = [LOCK.to_owned(), "containers-layer".to_owned(), programs.clone()];
    let note = format!("images of Kubernetes {version} for clusters");
    let name = images_of(&version);
    let make = move |results: &Results, say: Say<'_>| {
        versions::make(&versions::Input {
            cache: &site.at.cache,
            toolbox: site.toolbox,
            programs: results.of(&programs)?,
            recipes: &site.recipes,
            own: &results.of("containers-layer")?.fact::<Vec<_>>("images")?,
            debs: site.lock()?.packages("os")?,
            version: &version,
            built: site.built(),
            fetch: &|debs| site.fetch(debs, say),
            waiting: say,
        })
    };
    Stage::new(name, note, needs, make)
}

fn files<'a>(site: &'a Site<'_>, version: String, flannel: String) -> Stage<'a> {
    let programs = programs_of(&version);
    let needs = site.with_all_programs(&[]).into_iter().map(str::to_owned).chain([programs.clone()]);
    let (name, note) = (format!("clusters {version}"), format!("{}, of Kubernetes {version}", clusters::NOTE));
    let make = move |results: &Results, say: Say<'_>| {
        let own = results.all_programs()?;
        let mut served = own.clone();
        served.files.extend(results.of(&programs)?.files.clone());
        clusters::make(&site.at.cache, (&served, &own), &version, &flannel, say)
    };
    Stage::new(name, note, needs, make).serving(clusters::files)
}

/// All programs of the release with those of other releases of Kubernetes, which have their version behind their name.
pub fn with_others(site: &Site<'_>, results: &Results) -> Result<Made> {
    let mut programs = results.all_programs()?;
    for version in all(site) {
        let others = results.of(&programs_of(&version))?.files.iter();
        programs.files.extend(others.map(|(name, blob)| (format!("{name}-{version}"), blob.clone())));
    }
    Ok(programs)
}

/// Names of the stages that [`with_others`] needs beside those of all programs.
pub fn names(site: &Site<'_>) -> Vec<String> {
    all(site).map(|version| programs_of(&version)).collect()
}

/// Images of other releases of Kubernetes, as far as they are there; each reference once.
pub fn images_made(site: &Site<'_>, results: &Results) -> Result<Vec<Image>> {
    let mut images: Vec<Image> = Vec::new();
    for made in all(site).filter_map(|version| results.0.get(&images_of(&version))) {
        for image in versions::images(made)? {
            if !images.iter().any(|there| there.reference == image.reference) {
                images.push(image);
            }
        }
    }
    Ok(images)
}
