//! Objects of the site: manifests, kustomizations and charts, rendered when the image is built.
//!
//! ```text
//! content.manifests, content.charts --inputs--> Source, each with the digest of its files
//!     --render (helm, kubectl kustomize; toolbox, no network)--> YAML --documents--> Object
//!     --settle: charts see what the box and all other content serve--> the objects of each
//!     --sets (hooks, namespaces, order)--> manifests/<nn>-<name>.yaml
//! ```
//! Manifests come first, then charts, both in the order of the definition. A chart with hooks becomes up to three files:
//! what runs before it, the chart, what runs after it. The files are YAML whose documents are JSON, so that every reader
//! sees the same values.

pub mod charts;
pub mod documents;
pub mod inputs;
pub mod kustomization;
pub mod render;
pub mod same;
pub mod sets;
pub mod settle;

use std::collections::{BTreeMap, BTreeSet};

use agent_api::metal3::crds;
use agent_api::release::{Blob, ContentFile, ContentKind, Digest};
use anyhow::{Context, Result, bail};

use self::inputs::{Inputs, Origin, Source};
use self::render::Renderer;
use crate::builder::Builder;
use crate::config::Appliance;
use crate::kubernetes::modules::HELM;
use crate::lock::Lock;
use crate::store::{Cache, Made, StageKey};
use crate::toolbox::Toolbox;

/// Changes when the same inputs give other files.
const REVISION: u32 = 3;

/// Records what the definition names: the digest of every input, and Helm when there are charts.
pub fn resolve(at: &Builder, appliance: &Appliance, lock: &mut Lock) -> Result<()> {
    if !appliance.content.charts.is_empty() {
        lock.modules.insert(HELM.name.to_owned(), HELM.digest(&at.packages())?);
    }
    charts::resolve(at, appliance, lock)?;
    lock.manifests = digests(&sources(at, appliance, Some(lock))?);
    Ok(())
}

/// What the definition names; without a lock, as far as it is on this machine.
pub fn sources(at: &Builder, appliance: &Appliance, lock: Option<&Lock>) -> Result<Vec<Source>> {
    let charts = lock.map(|lock| &lock.charts);
    Inputs { content: &appliance.content, directory: &appliance.directory, charts, cache: &at.cache }.sources()
}

fn digests(sources: &[Source]) -> BTreeMap<String, Digest> {
    sources.iter().map(|source| (source.title.clone(), source.digest.clone())).collect()
}

/// The same lock gives the same bytes: inputs that changed since are refused. Charts of registries are fetched.
pub fn check(at: &Builder, appliance: &Appliance, lock: &Lock) -> Result<()> {
    charts::bring(at, appliance, lock)?;
    check_locked(&sources(at, appliance, Some(lock))?, &lock.manifests)
}

/// The files that the stage made, for the release.
pub fn files(made: &Made) -> Vec<ContentFile> {
    let file = |(path, blob): (&String, &Blob)| ContentFile::stored(path, ContentKind::Manifest, blob);
    made.files.iter().map(file).collect()
}

fn check_locked(sources: &[Source], locked: &BTreeMap<String, Digest>) -> Result<()> {
    for source in sources {
        let Some(expected) = locked.get(&source.title) else {
            bail!("the lock does not name {}\nhint: `foothold lock --update`", source.title);
        };
        if *expected != source.digest {
            let found = &source.digest;
            bail!("{} is {found}, the lock expects {expected}\nhint: `foothold lock --update`", source.title);
        }
    }
    Ok(())
}

/// The API of a box, as its charts see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterApi {
    /// `group/version`, and `group/version/Kind` for each of its kinds.
    pub versions: BTreeSet<String>,
    /// Custom kinds of the box itself that lie in no namespace.
    pub cluster_scoped: Vec<sets::Kind>,
}

impl ClusterApi {
    /// What Kubernetes serves, and what provisioning adds to it.
    pub fn new(versions: Vec<String>, provisioning: bool) -> Self {
        let mut api = Self { versions: versions.into_iter().collect(), cluster_scoped: Vec::new() };
        for definition in crds::all().into_iter().filter(|_| provisioning) {
            let (group, kind) = (&definition.spec.group, &definition.spec.names.kind);
            for version in definition.spec.versions.iter().filter(|version| version.served) {
                let version = format!("{group}/{}", version.name);
                api.versions.insert(format!("{version}/{kind}"));
                api.versions.insert(version);
            }
            if definition.spec.scope == "Cluster" {
                api.cluster_scoped.push((group.clone(), kind.clone()));
            }
        }
        api
    }
}

/// What rendering needs.
pub struct Stage<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The toolbox.
    pub toolbox: &'a Toolbox,
    /// `kubectl`, and `helm` when there are charts.
    pub tools: &'a Made,
    /// Version of the cluster.
    pub version: &'a str,
    /// Its API.
    pub api: &'a ClusterApi,
    /// Told what is waited for.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

impl Stage<'_> {
    /// Renders all sources, or takes the result from the cache. Files by path: `manifests/01-web.yaml`.
    pub fn make(&self, sources: &[Source]) -> Result<(Made, bool)> {
        let mut key = StageKey::new("manifests", REVISION).with("kubernetes", self.version);
        for (name, blob) in &self.tools.files {
            key = key.with(name, &blob.digest);
        }
        for version in &self.api.versions {
            key = key.with("api", version);
        }
        for source in sources {
            key = key.with(&source.title, &source.digest);
        }
        self.cache.stage(&key, &mut || (self.waiting)("another build is rendering the same"), |work| {
            let renderer = Renderer::new(self, work.path())?;
            let mut result = Made::default();
            for (path, text) in self.render(sources, &renderer)?.files()? {
                result.files.insert(path, self.cache.adopt_bytes(text.as_bytes())?);
            }
            Ok(result)
        })
    }

    fn render(&self, sources: &[Source], renderer: &Renderer<'_>) -> Result<sets::Sets> {
        let mut all = Vec::new();
        for source in sources {
            (self.waiting)(&source.title);
            all.push(match &source.origin {
                Origin::Manifests(parts) => settle::Objects::Given(renderer.manifests(source, parts)?),
                Origin::Chart(_) => settle::Objects::Rendered,
            });
        }
        let titles: Vec<&str> = sources.iter().map(|source| source.title.as_str()).collect();
        let mut texts: BTreeMap<usize, render::Rendering> = BTreeMap::new();
        let objects = settle::settle(&titles, all, &self.api.versions, &mut |number, versions| {
            (self.waiting)(&sources[number].title);
            let (rendering, objects) = renderer.chart(&sources[number], versions)?;
            texts.insert(number, rendering);
            Ok(objects)
        })?;
        renderer.check_again(texts.iter().map(|(number, rendering)| (&sources[*number], rendering)))?;
        let sets = sets::Sets::of(sources.iter().zip(objects).collect(), &self.api.cluster_scoped);
        sets.context("taking in what was rendered")
    }
}

#[cfg(test)]
mod tests;
